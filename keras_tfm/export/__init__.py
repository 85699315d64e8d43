"""SavedModel and LiteRT files from a model, and proof that they give its numbers."""

from keras_tfm.export.generation import (
    generation_to_litert,
    generation_to_saved_model,
)
from keras_tfm.export.generation_parity import GenerationParity, check_generation
from keras_tfm.export.litert import to_litert
from keras_tfm.export.parity import Parity, check_parity, run_file
from keras_tfm.export.saved_model import to_saved_model

__all__ = [
    "GenerationParity",
    "Parity",
    "check_generation",
    "check_parity",
    "generation_to_litert",
    "generation_to_saved_model",
    "run_file",
    "to_litert",
    "to_saved_model",
]
