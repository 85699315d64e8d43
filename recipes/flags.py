"""From a dataclass of numbers and strings to command-line flags."""

import argparse
import dataclasses

RESUME = ("auto", "never")
PRECISIONS = ("none", "bfloat16", "float16")
JIT = ("auto", "on", "off")


def option(default, help, choices=None):
    """Make a field of a `Config`.

    Args:
        default: int, float or str.
        help: str, one line for `--help`.
        choices: tuple of allowed values, or None.

    Returns: a dataclass field.
    """
    return dataclasses.field(
        default=default, metadata={"help": help, "choices": choices}
    )


@dataclasses.dataclass
class Common:
    """What every recipe can be told.

    Raises:
        ValueError: a number that is not positive, or a word that is no choice.
    """

    dataset: str = option("", "data set")
    preset: str = option("", "named settings, see the end; else those of the data set")
    data_dir: str = option("", "folder of TFDS data sets; else TFDS's own folder")
    output_dir: str = option("", "folder of all results; else outputs/RECIPE/DATASET")
    examples: int = option(0, "use only so many training examples, 0 for all")
    epochs: int = option(10, "passes over the training data")
    batch_size: int = option(64, "examples a step")
    learning_rate: float = option(1e-3, "highest learning rate")
    resume: str = option(
        "auto",
        "auto: go on where a stopped run of the same command ended; "
        "never: start over and replace what the folder holds",
        RESUME,
    )
    seed: int = option(0, "decides weights, order and augmentation")
    mixed_precision: str = option(
        "none", "number format that layers compute in, beside float32", PRECISIONS
    )
    accumulate: int = option(1, "batches whose gradients are added up before a step")
    ema: float = option(
        0.0, "momentum of a running average of the weights, kept in the end; 0: none"
    )
    remat: int = option(0, "1: less memory, blocks compute again for the gradient")
    jit: str = option("auto", "compile the step with XLA (auto: Keras decides)", JIT)
    debug: int = option(0, "1 shows where in the code an error came from")

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value, choices = getattr(self, field.name), field.metadata["choices"]
            if choices and value not in choices:
                raise ValueError(
                    f"{flag(field.name)} must be one of {', '.join(map(str, choices))}"
                    f", got {value!r}."
                )
        for name in ("epochs", "batch_size", "learning_rate", "accumulate"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"{flag(name)} must be positive, got {getattr(self, name)}."
                )
        if not 0 <= self.ema < 1:
            raise ValueError(f"--ema must be in [0, 1), got {self.ema}.")

    @property
    def policy(self):
        """The Keras dtype policy, for `dtype=` of a model."""
        if self.mixed_precision == "none":
            return "float32"
        return f"mixed_{self.mixed_precision}"

    @property
    def optimizer_options(self):
        """Arguments of any optimizer: summed gradients, averaged weights."""
        steps = self.accumulate if self.accumulate > 1 else None
        average = {"use_ema": True, "ema_momentum": self.ema} if self.ema else {}
        return {"gradient_accumulation_steps": steps, **average}

    @property
    def jit_compile(self):
        """The value for `compile(jit_compile=...)`."""
        return {"auto": "auto", "on": True, "off": False}[self.jit]


def configure(config_class, presets, **given):
    """Make a `Config`: its defaults, then the preset's settings, then what is given.

    Args:
        config_class: a dataclass of `option`s that extends `Common`.
        presets: dict from names to dicts of settings. The preset is the one named by
            `preset`, else by `dataset`: "cifar10", or "csv" for "csv:reviews.csv".
            Those of "--init" come on top where `init` is given, then those of
            "cifar10 --init"; likewise "--init --lora" where `lora` is, too, or
            "--init --fine-tune".
        **given: settings that win.

    Returns: a `config_class`.

    Raises:
        ValueError: an unknown preset or setting.
    """
    preset = given.get("preset", "")
    if preset and preset not in presets:
        raise ValueError(
            f"--preset must be one of {', '.join(sorted(presets))}, got {preset!r}."
        )
    dataset = given.get("dataset", config_class.dataset)
    name = preset or (dataset if dataset in presets else dataset.partition(":")[0])
    chosen = dict(presets.get(name, {}))
    switches = ""
    for switch in ("init", "lora", "fine_tune"):
        if given.get(switch):
            switches += f" {flag(switch)}"
            chosen |= presets.get(switches.strip(), {})
            chosen |= presets.get(name + switches, {})
    return config_class(**{**chosen, **given})


def parse(config_class, presets, description, argv=None):
    """Read a `Config` from the command line.

    Args:
        config_class: see `configure`.
        presets: likewise.
        description: str, the recipe's docstring.
        argv: list of str, or None for the command line's own.

    Returns: a `config_class`.
    """
    parser = _Parser(
        description=description,
        epilog=_describe(presets),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for field in dataclasses.fields(config_class):
        default = f" (default: {field.default})" if field.default != "" else ""
        parser.add_argument(
            flag(field.name),
            type=field.type,
            choices=field.metadata["choices"],
            default=argparse.SUPPRESS,
            metavar=None if field.metadata["choices"] else field.type.__name__.upper(),
            help=field.metadata["help"].replace("%", "%%") + default,
        )
    return configure(config_class, presets, **vars(parser.parse_args(argv)))


def flag(name):
    """A setting's name on the command line."""
    return "--" + name.replace("_", "-")


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"error: {message} (--help shows all flags)\n")


def _describe(presets):
    lines = ["presets, used for the data set of that name or by --preset NAME:"]
    for name, settings in presets.items():
        flags = " ".join(f"{flag(k)} {v}" for k, v in settings.items())
        lines.append(f"  {name}: {flags}")
    return "\n".join(lines)
