"""The encoder-decoder Transformer, as for translation.

Letters: B batch, S source length, T target length, M cache length, V vocabulary of
the target, D hidden_dim.
"""

import keras
from keras import ops

from keras_tfm import layers
from keras_tfm.layers.dropout import PairedDropout
from keras_tfm.layers.policies import part_policy
from keras_tfm.models import inputs as tools
from keras_tfm.models.cache_protocol import CacheProtocol
from keras_tfm.models.seq2seq_parts import (
    make_blocks,
    make_embedders,
    make_head,
    run,
    target_mask,
)
from keras_tfm.models.sizes import SEQ2SEQ_SIZES, numbers_of


@keras.saving.register_keras_serializable(package="keras_tfm")
class Seq2SeqTransformer(CacheProtocol, keras.Model):
    """Encoder and decoder, a functional model.

    As published, embeddings are multiplied by sqrt(D), positions are sinusoidal and
    the output head is the target's embedding matrix. The first target token counts
    even if it is the id of padding.

    Args:
        vocabulary_size: int, of the source, or of both languages together.
        num_layers: int, encoder blocks, and decoder blocks unless given.
        num_heads: int, divides `hidden_dim`.
        hidden_dim: int D.
        intermediate_dim: int, inner width of the feed-forward.
        max_sequence_length: int, longest S and T.
        num_decoder_layers: int or None.
        target_vocabulary_size: int V; None: both sides share vocabulary and embedding.
        dropout: float in [0, 1), on embeddings and branches.
        norm_position: "post" (as published) or "pre" (with a final norm per side).
        activation: of the feed-forward.
        attention: attention value of every attention, or a list of them cycled over
            the layers; `MultiHeadAttention(num_heads)` unless given.
        feed_forward: likewise; `FeedForward(intermediate_dim)` unless given.
        remat: bool, blocks compute twice: less memory, more time.
        pad_token_id: int, the id of padding, on both sides.
        position: "sinusoidal"; "sinusoidal_halves" (all sines, then all cosines, as in
            Marian); or "learned", a table a side (as in BART).
        scale_embedding: bool, embeddings are multiplied by sqrt(D).
        embedding_norm: bool, a norm a side behind the positions.
        norm_epsilon: float.
        tie_embeddings: bool, the output head is the target's embedding matrix.
        logits_bias: bool, the output head has a bias.
        dtype: dtype policy.
        **kwargs: `name`, `trainable`.

    Call arguments:
        inputs: dict with `source_token_ids`, int (B, S), and `target_token_ids`,
            int (B, T), the target so far, beginning with a start token.
        training: bool.

    Returns: float32 (B, T, V), logits of the next target token.

    Raises:
        ValueError: a length past `max_sequence_length`, heads that do not divide, an
            unknown `norm_position`, `position` or input key.

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
        pad_token_id=0,
        position="sinusoidal",
        scale_embedding=True,
        embedding_norm=False,
        norm_epsilon=1e-5,
        tie_embeddings=True,
        logits_bias=False,
        dtype=None,
        trainable=True,
        **kwargs,
    ):
        policy = keras.dtype_policies.get(dtype)

        def part(name):
            return {"name": name, "dtype": part_policy(policy, name)}

        config = {
            "vocabulary_size": vocabulary_size,
            "num_layers": num_layers,
            "num_heads": num_heads,
            "hidden_dim": hidden_dim,
            "intermediate_dim": intermediate_dim,
            "max_sequence_length": max_sequence_length,
            "num_decoder_layers": num_decoder_layers,
            "target_vocabulary_size": target_vocabulary_size,
            "dropout": dropout,
            "norm_position": norm_position,
            "remat": remat,
            "pad_token_id": pad_token_id,
            "position": position,
            "scale_embedding": scale_embedding,
            "embedding_norm": embedding_norm,
            "norm_epsilon": norm_epsilon,
            "tie_embeddings": tie_embeddings,
            "logits_bias": logits_bias,
        }

        # Layers
        embed_source, embed_target = make_embedders(config, part)
        drop = PairedDropout(dropout, **part("embedding_dropout"))
        values = attention, feed_forward, activation
        encoder_blocks, encoder_end = make_blocks(config, "encoder", values, part)
        decoder_blocks, decoder_end = make_blocks(config, "decoder", values, part)
        head = make_head(config, embed_target.embedding, part)
        logits = keras.layers.Activation("linear", name="logits", dtype="float32")

        # Graph
        source = keras.Input((None,), dtype="int32", name="source_token_ids")
        target = keras.Input((None,), dtype="int32", name="target_token_ids")
        self_mask = target_mask(target, pad_token_id)
        context_mask = layers.padding_mask(source, pad_token_id)
        x = drop(embed_source(source))  # (B, S, D)
        context = run(encoder_blocks, encoder_end, x, padding_mask=context_mask)
        x = drop(embed_target(target))  # (B, T, D)
        masks = {"padding_mask": self_mask, "context_padding_mask": context_mask}
        hidden = run(decoder_blocks, decoder_end, x, context=context, **masks)
        outputs = logits(head(hidden))  # (B, T, V)
        inputs = {"source_token_ids": source, "target_token_ids": target}
        super().__init__(inputs, outputs, **kwargs)
        tools.settle(self, policy, trainable)
        self.input_spec = None  # `call` checks

        # Config
        self.hidden, self.head = hidden, head
        self.embed_source, self.embed_target = embed_source, embed_target
        self.token_embedding = embed_source.embedding
        self.target_embedding = embed_target.embedding
        self.encoder_blocks, self.decoder_blocks = encoder_blocks, decoder_blocks
        self.encoder_end, self.decoder_end = encoder_end, decoder_end
        self.vocabulary_size, self.pad_token_id = vocabulary_size, pad_token_id
        self.target_vocabulary_size = target_vocabulary_size
        self.num_layers, self.num_decoder_layers = num_layers, num_decoder_layers
        self.num_heads, self.hidden_dim = num_heads, hidden_dim
        self.dropout, self.remat, self.norm_position = dropout, remat, norm_position
        self.intermediate_dim = intermediate_dim
        self.max_sequence_length = max_sequence_length
        self._numbers = config
        self._values = tools.blocks_config(activation, attention, feed_forward)

    def call(self, inputs, training=None, mask=None):
        return super().call(self.complete(inputs), training=training, mask=mask)

    def compute_output_spec(self, inputs, training=None, mask=None):
        return super().compute_output_spec(self.complete(inputs))

    def complete(self, inputs):
        """All inputs; none may be missing here.

        Args:
            inputs: see the call arguments.

        Returns: dict with both keys.
        """
        names = {"source_token_ids", "target_token_ids"}
        if not isinstance(inputs, dict) or set(inputs) != names:
            got = sorted(inputs) if isinstance(inputs, dict) else type(inputs).__name__
            raise ValueError(f"Inputs must be a dict with {sorted(names)}, got {got}.")
        for name in names:
            tools.check_length(inputs[name], self.max_sequence_length, name)
        return inputs

    def encode(self, source_token_ids):
        """The encoder alone, as decoding with a cache needs it.

        Args:
            source_token_ids: int (B, S).

        Returns: pair of float (B, S, D) and bool (B, S), True for real tokens.
        """
        mask = layers.padding_mask(source_token_ids, self.pad_token_id)
        x = self.embed_source(source_token_ids)
        return run(self.encoder_blocks, self.encoder_end, x, padding_mask=mask), mask

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
        x = self.embed_target(token_ids, positions)
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
        return run([], self.decoder_end, x), new_cache

    def logits_of(self, hidden):
        """Logits of the next target token.

        Args:
            hidden: float (B, T, D), from `hidden_with_cache`.

        Returns: float32 (B, T, V).
        """
        return self.head(hidden)

    def output_matrix(self):
        """What `logits_of` multiplies by, float (V, D), and adds, (V,) or None."""
        return self.head.weights()

    def get_config(self):
        return {**tools.base_config(self), **self._numbers, **self._values}

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
        changes = {"max_sequence_length": max_sequence_length, **changes}
        return cls(vocabulary_size, **{**numbers_of(SEQ2SEQ_SIZES, size), **changes})
