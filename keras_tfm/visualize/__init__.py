"""Pictures of attention, training and tables, drawn with matplotlib."""

from keras_tfm.visualize.curves import training_curves
from keras_tfm.visualize.maps import attention_map, patch_attention
from keras_tfm.visualize.scores import attention_scores
from keras_tfm.visualize.tables import position_table, similarity

__all__ = [
    "attention_map",
    "attention_scores",
    "patch_attention",
    "position_table",
    "similarity",
    "training_curves",
]
