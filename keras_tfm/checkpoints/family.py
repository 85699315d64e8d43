"""What one family of checkpoints is: names, layouts, config fields, heads.

Each file of a family holds one `Family`, a declarative map with nothing hidden:
`bert.py` is the example to read.
"""

import dataclasses
import re
from collections.abc import Callable

from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.layers import gelu_tanh

ACTIVATIONS = {  # the reference library's name: ours
    "gelu": "gelu",
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
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

    def num_classes(self):
        """Classes of a classification head: `id2label`, else `num_labels`."""
        if "id2label" in self:
            return len(self["id2label"])
        return self["num_labels"]


def activation_name(activation):
    """The reference library's name of a model's activation, None if it has none.

    Args:
        activation: str or function, as in a model's config.
    """
    name = getattr(activation, "__name__", activation)
    names = {getattr(ours, "__name__", ours): t for t, ours in ACTIVATIONS.items()}
    first = {"gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu"}
    return first.get(name, names.get(name))


@dataclasses.dataclass(frozen=True)
class Task:
    """What a checkpoint was trained for: a backbone alone, or with a head.

    Args:
        architectures: the reference library's class names; the first is written.
        prefix: str before the names of the backbone's arrays.
        entries: `Entry`s of the head.
        build: function (backbone, config, num_classes) that puts the head on.
    """

    architectures: tuple
    prefix: str = ""
    entries: tuple = ()
    build: Callable = lambda backbone, config, num_classes: backbone


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of models that share names and layouts.

    Args:
        model_types: `model_type`s of the config; the first is written.
        build: function (config, **changes) that makes the backbone with fresh weights.
        entries: `Entry`s of the backbone, without prefix.
        tasks: dict from name to `Task`; "backbone" is always there.
        describe: function of a backbone that gives the config, or None if the model
            is not of this family; None if the family cannot be written.
        optional: regular expressions of weights that a checkpoint may lack.
        redundant: regular expressions of arrays that hold nothing new.
    """

    model_types: tuple
    build: Callable
    entries: tuple
    tasks: dict
    describe: Callable | None = None
    optional: tuple = ()
    redundant: tuple = ()

    def task_of(self, config):
        """Name of the task that a config's `architectures` tell, else "backbone".

        Args:
            config: `Config`.
        """
        wanted = config.get("architectures") or [""]
        for name, task in self.tasks.items():
            if wanted[0] in task.architectures:
                return name
        return "backbone"

    def without_prefix(self, arrays):
        """The arrays under names without the backbone's prefix.

        Args:
            arrays: `Arrays` of a file.
        """
        prefixes = tuple({t.prefix for t in self.tasks.values() if t.prefix})

        def rename(name):
            found = [prefix for prefix in prefixes if name.startswith(prefix)]
            return name.removeprefix(found[0]) if found else name

        return arrays.renamed(rename)

    def may_lack(self, path):
        """Whether a checkpoint may lack a weight of the backbone.

        Args:
            path: str, the weight's.
        """
        return any(re.fullmatch(pattern, path) for pattern in self.optional)
