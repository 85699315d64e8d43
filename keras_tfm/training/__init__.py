"""Losses, schedules, metrics and optimizer settings for `compile` and `fit`."""

from keras_tfm.training.bleu import corpus_bleu, corpus_chrf
from keras_tfm.training.chunked_loss import ChunkedLossModel
from keras_tfm.training.contrastive import ContrastiveLoss
from keras_tfm.training.layer_wise_decay import layer_depths, layer_wise_decay
from keras_tfm.training.lora import (
    ParameterCount,
    add_lora,
    count_parameters,
    merge_lora,
    unmerge_lora,
)
from keras_tfm.training.lora_files import load_lora, save_lora
from keras_tfm.training.losses import SmoothedCrossentropy
from keras_tfm.training.metrics import MaskedAccuracy, Perplexity
from keras_tfm.training.redraw_features import RedrawFeatures
from keras_tfm.training.schedules import (
    InverseSquareRoot,
    LinearWarmup,
    ScaledSchedule,
    cosine_warmup,
    noam,
)
from keras_tfm.training.weight_decay import exclude_norms_and_biases

__all__ = [
    "ChunkedLossModel",
    "ContrastiveLoss",
    "InverseSquareRoot",
    "LinearWarmup",
    "MaskedAccuracy",
    "ParameterCount",
    "Perplexity",
    "RedrawFeatures",
    "ScaledSchedule",
    "SmoothedCrossentropy",
    "add_lora",
    "corpus_bleu",
    "corpus_chrf",
    "cosine_warmup",
    "count_parameters",
    "exclude_norms_and_biases",
    "layer_depths",
    "layer_wise_decay",
    "load_lora",
    "merge_lora",
    "noam",
    "save_lora",
    "unmerge_lora",
]
