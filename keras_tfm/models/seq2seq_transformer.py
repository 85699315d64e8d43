"""The encoder-decoder Transformer, as for translation.

Letters: B batch, S source length, T target length, M cache length, V vocabulary of
the target, D hidden_dim.
"""

import math

import keras
from keras import ops

from keras_tfm import layers
from keras_tfm.layers.dropout import PairedDropout
from keras_tfm.layers.policies import part_policy
from keras_tfm.layers.projection import TiedEmbedding
from keras_tfm.models import inputs as tools
from keras_tfm.models.cache_protocol import CacheProtocol
from keras_tfm.models.sizes import SEQ2SEQ_SIZES, numbers_of


@keras.saving.register_keras_serializable(package="keras_tfm")
class Seq2SeqTransformer(CacheProtocol, keras.Model):
    """Encoder and decoder with sinusoidal positions, a functional model.

    Embeddings are multiplied by sqrt(D), and the output head is the target's
    embedding matrix. Id 0 is padding, on both sides.

    Args:
        vocabulary_size: int, of the source, or of both languages together.
        num_layers: int, encoder blocks, and decoder blocks unless given.
        num_heads: int, divides `hidden_dim`.
        hidden_dim: int D.
        intermediate_dim: int, inner width of the feed-forward.
        max_sequence_length: int, longest S and T.
        num_decoder_layers: int or None.
        target_vocabulary_size: int V; None for one joint vocabulary, whose embedding
            both sides share.
        dropout: float in [0, 1), on embeddings and branches.
        norm_position: "post" (as published) or "pre" (with a final norm per side).
        activation: of the feed-forward.
        attention: attention value of every attention, or a list of them cycled over
            the layers; `MultiHeadAttention(num_heads)` unless given.
        feed_forward: likewise; `FeedForward(intermediate_dim)` unless given.
        remat: bool, blocks keep only their inputs and compute the rest again for the
            gradient: less memory, more time.
        dtype: dtype policy.
        **kwargs: `name`, `trainable`.

    Call arguments:
        inputs: dict with `source_token_ids`, int (B, S), and `target_token_ids`,
            int (B, T), the target so far, beginning with a start token.
        training: bool.

    Returns: float32 (B, T, V), logits of the next target token.

    Raises:
        ValueError: a length past `max_sequence_length`, heads that do not divide, an
            unknown `norm_position` or input key.

    Example:
        >>> model = keras_tfm.models.Seq2SeqTransformer(
        ...     vocabulary_size=50, num_layers=2, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=32, max_sequence_length=16,
        ... )
        >>> ids = {
        ...     "source_token_ids": keras.ops.ones((2, 5), "int32"),
        ...     "target_token_ids": keras.ops.ones((2, 7), "int32"),
        ... }
        >>> tuple(model(ids).shape)
        (2, 7, 50)

    References: Vaswani et al. 2017, arXiv:1706.03762.
    """

    def __init__(
        self,
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        max_sequence_length,
        num_decoder_layers=None,
        target_vocabulary_size=None,
        dropout=0.1,
        norm_position="post",
        activation="relu",
        attention=None,
        feed_forward=None,
        remat=False,
        dtype=None,
        trainable=True,
        **kwargs,
    ):
        policy = keras.dtype_policies.get(dtype)

        def part(name):
            return {"name": name, "dtype": part_policy(policy, name)}

        # Layers
        token_embedding = _embedding(
            vocabulary_size, hidden_dim, part("token_embedding")
        )
        target_embedding = token_embedding
        if target_vocabulary_size is not None:
            target_embedding = _embedding(
                target_vocabulary_size, hidden_dim, part("target_token_embedding")
            )
        position_encoding = layers.SinusoidalPositionEncoding(
            **part("position_encoding")
        )
        drop = PairedDropout(dropout, **part("embedding_dropout"))
        plain = layers.MultiHeadAttention(num_heads)
        plain_feed_forward = layers.FeedForward(intermediate_dim, activation=activation)
        wiring = {"norm_position": norm_position, "dropout": dropout}
        names = [f"encoder_block_{i}" for i in range(num_layers)]
        with tools.remat_scope(remat, names):
            encoder_blocks = [
                layers.TransformerEncoderBlock(
                    tools.value_of_layer(attention or plain, i),
                    tools.value_of_layer(feed_forward or plain_feed_forward, i),
                    **wiring,
                    **part(name),
                )
                for i, name in enumerate(names)
            ]
        names = [f"decoder_block_{i}" for i in range(num_decoder_layers or num_layers)]
        with tools.remat_scope(remat, names):
            decoder_blocks = [
                layers.TransformerDecoderBlock(
                    tools.value_of_layer(attention or plain, i),
                    tools.value_of_layer(feed_forward or plain_feed_forward, i),
                    cross_attention=tools.value_of_layer(attention or plain, i),
                    **wiring,
                    **part(name),
                )
                for i, name in enumerate(names)
            ]
        ends = [], []
        if norm_position != "post":
            ends = tuple(
                [keras.layers.LayerNormalization(epsilon=1e-5, **part(f"{side}_norm"))]
                for side in ("encoder", "decoder")
            )
        logits = keras.layers.Activation("linear", name="logits", dtype="float32")

        # Graph
        source = keras.Input((None,), dtype="int32", name="source_token_ids")
        target = keras.Input((None,), dtype="int32", name="target_token_ids")
        self_mask, context_mask = (
            layers.padding_mask(target),
            layers.padding_mask(source),
        )
        scale = math.sqrt(hidden_dim)
        x = drop(position_encoding(token_embedding(source) * scale))  # (B, S, D)
        for layer in encoder_blocks:
            x = layer(x, padding_mask=context_mask)
        for norm in ends[0]:
            x = norm(x)
        context = x
        x = drop(position_encoding(target_embedding(target) * scale))  # (B, T, D)
        for layer in decoder_blocks:
            x = layer(
                x,
                context=context,
                padding_mask=self_mask,
                context_padding_mask=context_mask,
            )
        for norm in ends[1]:
            x = norm(x)
        outputs = logits(target_embedding(x, reverse=True))  # (B, T, V)
        inputs = {"source_token_ids": source, "target_token_ids": target}
        super().__init__(inputs, outputs, **kwargs)
        tools.settle(self, policy, trainable)
        self.input_spec = None  # `call` checks

        # Config
        self.token_embedding = token_embedding
        self.target_embedding = target_embedding
        self.position_encoding = position_encoding
        self.encoder_blocks, self.decoder_blocks = encoder_blocks, decoder_blocks
        self.encoder_end, self.decoder_end = ends
        self.vocabulary_size = vocabulary_size
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.intermediate_dim = intermediate_dim
        self.max_sequence_length = max_sequence_length
        self.num_decoder_layers = num_decoder_layers
        self.target_vocabulary_size = target_vocabulary_size
        self.dropout = dropout
        self.remat = remat
        self.norm_position = norm_position
        self._values = tools.blocks_config(activation, attention, feed_forward)

    def call(self, inputs, training=None, mask=None):
        self._check(inputs)
        return super().call(inputs, training=training, mask=mask)

    def compute_output_spec(self, inputs, training=None, mask=None):
        self._check(inputs)
        return super().compute_output_spec(inputs)

    def _check(self, inputs):
        names = {"source_token_ids", "target_token_ids"}
        if not isinstance(inputs, dict) or set(inputs) != names:
            got = sorted(inputs) if isinstance(inputs, dict) else type(inputs).__name__
            raise ValueError(f"Inputs must be a dict with {sorted(names)}, got {got}.")
        for name in names:
            tools.check_length(inputs[name], self.max_sequence_length, name)

    def encode(self, source_token_ids):
        """The encoder alone, as decoding with a cache needs it.

        Args:
            source_token_ids: int (B, S), 0 is padding.

        Returns: pair of float (B, S, D) and bool (B, S), True for real tokens.
        """
        mask = layers.padding_mask(source_token_ids)
        x = self.token_embedding(source_token_ids) * math.sqrt(self.hidden_dim)
        x = self.position_encoding(x)
        for layer in self.encoder_blocks:
            x = layer(x, padding_mask=mask)
        for norm in self.encoder_end:
            x = norm(x)
        return x, mask

    def init_cache(self, batch_size, max_length, context=None):
        """Empty caches of the decoder blocks, cross-attention's filled.

        Args:
            batch_size: int or int tensor B.
            max_length: int M, target tokens that the cache holds.
            context: float (B, S, D), from `encode`.

        Returns: list of the blocks' caches.
        """
        tools.check_cache_length(max_length, self.max_sequence_length)
        return [
            layer.init_cache(batch_size, max_length, context)
            for layer in self.decoder_blocks
        ]

    def hidden_with_cache(
        self,
        token_ids,
        cache,
        cache_index,
        padding_mask=None,
        context_padding_mask=None,
        positions=None,
    ):
        """What `call_with_cache` makes logits of.

        Args:
            token_ids: see `call_with_cache`, as all that follow.
            cache: a cache.
            cache_index: int32 scalar tensor.
            padding_mask: bool (B, M).
            context_padding_mask: bool (B, S).
            positions: int (T,) or (B, T).

        Returns: pair of float (B, T, D) and the new cache.
        """
        if positions is None:
            positions = ops.arange(ops.shape(token_ids)[1], dtype="int32") + cache_index
        x = self.target_embedding(token_ids) * math.sqrt(self.hidden_dim)
        x = self.position_encoding(x, positions=positions)
        new_cache = []
        for layer, layer_cache in zip(self.decoder_blocks, cache):
            x, layer_cache = layer.call_with_cache(
                x,
                layer_cache,
                cache_index,
                padding_mask=padding_mask,
                context_padding_mask=context_padding_mask,
            )
            new_cache.append(layer_cache)
        for norm in self.decoder_end:
            x = norm(x)
        return x, new_cache

    def logits_of(self, hidden):
        """Logits of the next target token.

        Args:
            hidden: float (B, T, D), from `hidden_with_cache`.

        Returns: float32 (B, T, V).
        """
        return ops.cast(self.target_embedding(hidden, reverse=True), "float32")

    def get_config(self):
        return {
            **tools.base_config(self),
            "vocabulary_size": self.vocabulary_size,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "hidden_dim": self.hidden_dim,
            "intermediate_dim": self.intermediate_dim,
            "max_sequence_length": self.max_sequence_length,
            "num_decoder_layers": self.num_decoder_layers,
            "target_vocabulary_size": self.target_vocabulary_size,
            "dropout": self.dropout,
            "remat": self.remat,
            "norm_position": self.norm_position,
            **self._values,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**tools.from_blocks_config(config))

    @classmethod
    def from_size(cls, size, vocabulary_size, max_sequence_length=512, **changes):
        """A model of a published size, with random weights.

        Args:
            size: "base" or "big".
            vocabulary_size: int, joint.
            max_sequence_length: int, longest S and T.
            **changes: further constructor arguments that differ.
        """
        numbers = numbers_of(SEQ2SEQ_SIZES, size)
        numbers["max_sequence_length"] = max_sequence_length
        return cls(vocabulary_size, **{**numbers, **changes})


def _embedding(vocabulary_size, hidden_dim, part):
    initializer = keras.initializers.RandomNormal(stddev=hidden_dim**-0.5)
    return TiedEmbedding(
        vocabulary_size, hidden_dim, embeddings_initializer=initializer, **part
    )
