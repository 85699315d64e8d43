"""Layers: weights and tensor maths, on any Keras backend."""

from keras_tfm.layers.activations import gelu_tanh
from keras_tfm.layers.alibi_bias import AlibiBias
from keras_tfm.layers.big_bird_attention import BigBirdAttention
from keras_tfm.layers.class_token import ClassToken
from keras_tfm.layers.dot_product_attention import scaled_dot_product_attention
from keras_tfm.layers.drop_path import DropPath
from keras_tfm.layers.feed_forward import FeedForward, GatedFeedForward
from keras_tfm.layers.layer_scale import LayerScale
from keras_tfm.layers.learned_position_embedding import LearnedPositionEmbedding
from keras_tfm.layers.linformer_attention import LinformerAttention
from keras_tfm.layers.longformer_attention import LongformerAttention
from keras_tfm.layers.lsh_attention import LSHAttention
from keras_tfm.layers.mamba2_mixer import Mamba2Mixer
from keras_tfm.layers.mamba_mixer import MambaMixer
from keras_tfm.layers.masks import (
    causal_mask,
    combine_masks,
    padding_mask,
    sliding_window_mask,
)
from keras_tfm.layers.mixture_of_experts import MixtureOfExperts
from keras_tfm.layers.multi_head_attention import MultiHeadAttention
from keras_tfm.layers.patch_embedding import PatchEmbedding
from keras_tfm.layers.performer_attention import PerformerAttention
from keras_tfm.layers.position_embedding_2d import (
    PositionEmbedding2D,
    resize_position_table,
)
from keras_tfm.layers.relative_position_bias import RelativePositionBias
from keras_tfm.layers.ring_attention import RingAttention
from keras_tfm.layers.rotary_embedding import RotaryEmbedding
from keras_tfm.layers.sinusoidal_position_encoding import (
    SinusoidalPositionEncoding,
    sinusoidal_table,
)
from keras_tfm.layers.sliding_window_attention import SlidingWindowAttention
from keras_tfm.layers.transformer_decoder_block import TransformerDecoderBlock
from keras_tfm.layers.transformer_encoder_block import TransformerEncoderBlock

__all__ = [
    "AlibiBias",
    "BigBirdAttention",
    "ClassToken",
    "DropPath",
    "FeedForward",
    "GatedFeedForward",
    "LSHAttention",
    "LayerScale",
    "LearnedPositionEmbedding",
    "LinformerAttention",
    "LongformerAttention",
    "Mamba2Mixer",
    "MambaMixer",
    "MixtureOfExperts",
    "MultiHeadAttention",
    "PatchEmbedding",
    "PerformerAttention",
    "PositionEmbedding2D",
    "RelativePositionBias",
    "RingAttention",
    "RotaryEmbedding",
    "SinusoidalPositionEncoding",
    "SlidingWindowAttention",
    "TransformerDecoderBlock",
    "TransformerEncoderBlock",
    "causal_mask",
    "combine_masks",
    "gelu_tanh",
    "padding_mask",
    "resize_position_table",
    "scaled_dot_product_attention",
    "sinusoidal_table",
    "sliding_window_mask",
]
