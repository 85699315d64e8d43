"""Pretrained weights in and out: the reference library's folders and our models."""

from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.load import load_pretrained, pretrained_report
from keras_tfm.checkpoints.save import save_pretrained

__all__ = [
    "CheckpointError",
    "load_pretrained",
    "pretrained_report",
    "save_pretrained",
]
