"""SavedModel and LiteRT files from a model, and proof that they give its numbers."""

from keras_tfm.export.litert import to_litert
from keras_tfm.export.parity import Parity, check_parity, run_file
from keras_tfm.export.saved_model import to_saved_model

__all__ = ["Parity", "check_parity", "run_file", "to_litert", "to_saved_model"]
