"""Generation: decoding loops for models that keep the cache protocol."""

from keras_tfm.generation.generate import generate
from keras_tfm.generation.strategies import Greedy, Sample

__all__ = ["Greedy", "Sample", "generate"]
