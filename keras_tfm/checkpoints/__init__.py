"""Pretrained weights in and out: the reference library's folders and our models."""

from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.generation_options import generation_options
from keras_tfm.checkpoints.image_statistics import image_statistics
from keras_tfm.checkpoints.load import load_pretrained, pretrained_report
from keras_tfm.checkpoints.pretrained_tokenizer import PretrainedTokenizer
from keras_tfm.checkpoints.save import save_pretrained
from keras_tfm.checkpoints.tokenizer_files import load_tokenizer, save_tokenizer
from keras_tfm.checkpoints.vocabulary_check import check_vocabulary

__all__ = [
    "CheckpointError",
    "PretrainedTokenizer",
    "check_vocabulary",
    "generation_options",
    "image_statistics",
    "load_pretrained",
    "load_tokenizer",
    "pretrained_report",
    "save_pretrained",
    "save_tokenizer",
]
