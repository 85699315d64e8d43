"""Generation: decoding loops for models that keep the cache protocol."""

from keras_tfm.generation.beam_search import BeamSearch
from keras_tfm.generation.contrastive import Contrastive
from keras_tfm.generation.generate import Generated, generate, generate_with_scores
from keras_tfm.generation.processors import (
    ForcedToken,
    MinLength,
    NoRepeatNGram,
    OneOf,
    RepetitionPenalty,
    SuppressTokens,
)
from keras_tfm.generation.score import score
from keras_tfm.generation.speculative import Speculative
from keras_tfm.generation.strategies import Greedy, Sample
from keras_tfm.generation.stream import stream

__all__ = [
    "BeamSearch",
    "Contrastive",
    "ForcedToken",
    "Generated",
    "Greedy",
    "MinLength",
    "NoRepeatNGram",
    "OneOf",
    "RepetitionPenalty",
    "Sample",
    "Speculative",
    "SuppressTokens",
    "generate",
    "generate_with_scores",
    "score",
    "stream",
]
