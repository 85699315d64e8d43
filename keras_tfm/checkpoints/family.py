"""What one family of checkpoints is: names, layouts, config fields, heads.

Each file of a family holds one `Family`, a declarative map with nothing hidden:
`bert.py` is the example to read.
"""

import dataclasses
import re
from collections.abc import Callable

from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.weight_map import shape_read
from keras_tfm.layers import gelu_tanh
from keras_tfm.models.classifier import Classifier

ACTIVATIONS = {  # the reference library's name: ours
    "gelu": "gelu",
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
OLD_NAMES = {  # as files that were once TensorFlow's end them
    "LayerNorm.gamma": "LayerNorm.weight",
    "LayerNorm.beta": "LayerNorm.bias",
}


class Config(dict):
    """Fields of a `config.json`; one that is missing is named when it is asked for.

    Args:
        fields: dict.
        source: str, where they come from.
    """

    def __init__(self, fields, source):
        super().__init__(fields)
        self.source = source

    def __missing__(self, name):
        raise CheckpointError(f"The config of {self.source} has no `{name}`.")

    def activation(self, name):
        """The activation that a field names.

        Args:
            name: str, the field.
        """
        if self[name] not in ACTIVATIONS:
            raise CheckpointError(
                f"The config of {self.source} asks for the activation "
                f"{self[name]!r}; known are {', '.join(ACTIVATIONS)}."
            )
        return ACTIVATIONS[self[name]]

    def refuse_other(self, **values):
        """Refuse a field that says something else than what is known here.

        Args:
            **values: the one value of each field; a field may be missing.
        """
        for name, value in values.items():
            if name in self and self[name] != value:
                raise CheckpointError(
                    f"The config of {self.source} has {name}={self[name]!r}; known is "
                    f"only {value!r}."
                )

    def num_classes(self):
        """Classes of a classification head: `id2label`, else `num_labels`."""
        if "id2label" in self:
            return len(self["id2label"])
        return self.get("num_labels", 2)  # both are left out where there are two


def activation_name(activation):
    """The reference library's name of a model's activation, None if it has none.

    Args:
        activation: str or function, as in a model's config.
    """
    name = getattr(activation, "__name__", activation)
    names = {getattr(ours, "__name__", ours): t for t, ours in ACTIVATIONS.items()}
    first = {"gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu"}
    return first.get(name, names.get(name))


def reads_pooled(model):
    """Whether a classifier, if it is one, reads what its backbone pools.

    Args:
        model: any model.
    """
    return not isinstance(model, Classifier) or model.pooling == "backbone"


@dataclasses.dataclass(frozen=True)
class Task:
    """What a checkpoint was trained for: a backbone alone, or with a head.

    Args:
        architectures: the reference library's class names; the first is written.
        prefix: str before the names of the backbone's arrays.
        entries: `Entry`s of the head.
        build: function (backbone, config, num_classes) that puts the head on.
        changes: arguments of the backbone that this task fixes.
        fits: function of a model that says whether its head is of this kind.
    """

    architectures: tuple
    prefix: str = ""
    entries: tuple = ()
    build: Callable = lambda backbone, config, num_classes: backbone
    changes: dict = dataclasses.field(default_factory=dict)
    fits: Callable = reads_pooled

    def holds(self, model, backbone):
        """Whether a model could be written as this task.

        Args:
            model: with its head.
            backbone: model without it, whose parts beyond what the task needs (None
                in `changes`) do no harm.
        """
        config = backbone.get_config()
        fixed = {k: v for k, v in self.changes.items() if v is not None}
        return self.fits(model) and all(config[k] == v for k, v in fixed.items())

    def classes_in(self, arrays):
        """Classes of the classification head in a file, None if it has none.

        Args:
            arrays: `Arrays`, without prefix.
        """
        for entry in self.entries:
            if entry.ours == "logits/kernel" and entry.theirs in arrays:
                return shape_read(entry.layout, arrays.shape_of(entry.theirs))[-1]
        return None


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of models that share names and layouts.

    Args:
        model_types: `model_type`s of the config; the first is written.
        build: function (config, **changes) that makes the backbone with fresh weights.
        entries: `Entry`s of the backbone, without prefix; or a function (config,
            backbone) that gives them, where layouts depend on sizes.
        tasks: dict from name to `Task`; "backbone" is always there.
        describe: function of a backbone that gives the config, or None if the model
            is not of this family; None if the family cannot be written.
        optional: regular expressions of weights that a checkpoint may lack.
        redundant: regular expressions of arrays that hold nothing new.
    """

    model_types: tuple
    build: Callable
    entries: tuple | Callable
    tasks: dict
    describe: Callable | None = None
    optional: tuple = ()
    redundant: tuple = ()

    def entries_of(self, config, backbone):
        """The `Entry`s of a backbone.

        Args:
            config: dict, of the file.
            backbone: model.
        """
        if callable(self.entries):
            return self.entries(config, backbone)
        return self.entries

    def task_of(self, config, arrays):
        """Name of the task that a config's `architectures` tell, else "backbone".

        Old configs have none: then the first task whose head is there.

        Args:
            config: `Config`.
            arrays: `Arrays`, without prefix.
        """
        wanted = (config.get("architectures") or [None])[0]
        for name, task in self.tasks.items():
            heads = [entry.theirs in arrays for entry in task.entries]
            if wanted in task.architectures or (not wanted and heads and all(heads)):
                return name
        return "backbone"

    def without_prefix(self, arrays):
        """The arrays under names without the backbone's prefix.

        Args:
            arrays: `Arrays` of a file.
        """

        def rename(name):
            found = [prefix for prefix in self.prefixes if name.startswith(prefix)]
            name = name.removeprefix(found[0]) if found else name
            for old, new in OLD_NAMES.items():
                name = name.removesuffix(old) + new if name.endswith(old) else name
            return name

        return arrays.renamed(rename)

    @property
    def prefixes(self):
        """What may stand before the names of the backbone's arrays."""
        return sorted({task.prefix for task in self.tasks.values() if task.prefix})

    def may_lack(self, path):
        """Whether a checkpoint may lack a weight of the backbone.

        Args:
            path: str, the weight's.
        """
        return any(re.fullmatch(pattern, path) for pattern in self.optional)
