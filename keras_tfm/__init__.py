"""keras_tfm: the parts of Transformers as Keras layers, and what they need."""

from keras_tfm import (
    checkpoints,
    data,
    export,
    generation,
    layers,
    models,
    training,
    visualize,
)

__version__ = "0.1.0"
__all__ = [
    "checkpoints",
    "data",
    "export",
    "generation",
    "layers",
    "models",
    "training",
    "visualize",
]
