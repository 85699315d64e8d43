"""keras_tfm: the parts of Transformers as Keras layers, and what they need."""

from keras_tfm import layers, models

__version__ = "0.1.0"
__all__ = ["layers", "models"]
