"""Models: functional `keras.Model` classes, wired from the layers."""

from keras_tfm.models.bert import Bert
from keras_tfm.models.bert_pretrainer import BertPretrainer
from keras_tfm.models.classifier import classifier
from keras_tfm.models.gpt import GPT
from keras_tfm.models.replaced_token_detector import ReplacedTokenDetector
from keras_tfm.models.sentence_encoder import SentenceEncoder
from keras_tfm.models.seq2seq_transformer import Seq2SeqTransformer
from keras_tfm.models.sizes import parameter_count
from keras_tfm.models.vision_transformer import VisionTransformer

__all__ = [
    "GPT",
    "Bert",
    "BertPretrainer",
    "ReplacedTokenDetector",
    "SentenceEncoder",
    "Seq2SeqTransformer",
    "VisionTransformer",
    "classifier",
    "parameter_count",
]
