"""GPT: a decoder-only Transformer, token ids in, next-token logits out.

Letters: B batch, T length, M cache length, V vocabulary_size, D hidden_dim.
"""

import functools

import keras
from keras import ops

from keras_tfm import layers
from keras_tfm.layers.dropout import PairedDropout
from keras_tfm.layers.policies import part_policy
from keras_tfm.layers.projection import Projection, TiedEmbedding
from keras_tfm.layers.residual import NORMS
from keras_tfm.models import inputs as tools
from keras_tfm.models.cache_protocol import CacheProtocol
from keras_tfm.models.sizes import GPT_SIZES, numbers_of

OPTIONAL = {"padding_mask": tools.all_real}


@keras.saving.register_keras_serializable(package="keras_tfm")
class GPT(CacheProtocol, keras.Model):
    """Decoder-only language model, a functional model.

    Embeds tokens and positions, runs `num_layers` causal pre-norm blocks and a final
    norm, and scores the vocabulary with the embedding matrix or one of its own.

    Args:
        vocabulary_size: int V.
        num_layers: int.
        num_heads: int, divides `hidden_dim`.
        hidden_dim: int D.
        intermediate_dim: int, inner width of the feed-forward; None for blocks
            without one, as in Mamba.
        max_sequence_length: int, longest T (no limit without learned positions).
        dropout: float in [0, 1), on embeddings and branches.
        activation: of the feed-forward; GPT-2 uses the tanh form of GELU.
        position: "learned", "sinusoidal" or None (as with a rotary attention).
        norm: "layer" or "rms".
        norm_epsilon: float.
        attention: attention value, or a list of them cycled over the layers;
            `MultiHeadAttention(num_heads)` unless given.
        feed_forward: likewise; `FeedForward(intermediate_dim)` unless given.
        remat: bool, blocks keep only their inputs and compute the rest again for the
            gradient: less memory, more time.
        tie_embeddings: bool, the output head is the embedding matrix; False: a matrix
            of its own, as in the larger models of the Llama family.
        dtype: dtype policy.
        **kwargs: `name`, `trainable`.

    Call arguments:
        inputs: int (B, T) token ids, or a dict with `token_ids` and perhaps
            `padding_mask`, bool (B, T), True for real tokens, whose positions are
            then counted from the first real one.
        training: bool.

    Returns: float32 (B, T, V), logits of the next token.

    Raises:
        ValueError: a length past `max_sequence_length`, heads that do not divide,
            an unknown `position` or input key.

    Example:
        >>> model = keras_tfm.models.GPT(
        ...     vocabulary_size=50, num_layers=2, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=32, max_sequence_length=16,
        ... )
        >>> tuple(model(keras.ops.ones((2, 7), "int32")).shape)
        (2, 7, 50)

    References:
        Radford et al. 2019, Language Models are Unsupervised Multitask Learners;
        Brown et al. 2020, arXiv:2005.14165.
    """

    def __init__(
        self,
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        max_sequence_length,
        dropout=0.0,
        activation=layers.gelu_tanh,
        position="learned",
        norm="layer",
        norm_epsilon=1e-5,
        attention=None,
        feed_forward=None,
        remat=False,
        tie_embeddings=True,
        dtype=None,
        trainable=True,
        **kwargs,
    ):
        if position not in ("learned", "sinusoidal", None):
            raise ValueError(
                f'`position` must be "learned", "sinusoidal" or None, got {position!r}.'
            )
        policy = keras.dtype_policies.get(dtype)

        def part(name):
            return {"name": name, "dtype": part_policy(policy, name)}

        # Layers
        token_embedding = TiedEmbedding(
            vocabulary_size,
            hidden_dim,
            embeddings_initializer=tools.initializer(),
            **part("token_embedding"),
        )
        position_layer = None
        if position == "learned":
            position_layer = layers.LearnedPositionEmbedding(
                max_sequence_length,
                initializer=tools.initializer(),
                **part("position_embedding"),
            )
        elif position == "sinusoidal":
            position_layer = layers.SinusoidalPositionEncoding(
                **part("position_embedding")
            )
        drop = PairedDropout(dropout, **part("embedding_dropout"))
        own_attention = tools.plain_attention(num_heads)
        own_feed_forward = tools.plain_feed_forward(intermediate_dim, activation)
        names = [f"block_{i}" for i in range(num_layers)]
        with tools.remat_scope(remat, names):
            blocks = [
                layers.TransformerDecoderBlock(
                    tools.value_of_layer(attention or own_attention, i),
                    tools.value_of_layer(feed_forward or own_feed_forward, i),
                    norm=norm,
                    norm_epsilon=norm_epsilon,
                    dropout=dropout,
                    **part(name),
                )
                for i, name in enumerate(names)
            ]
        final_norm = NORMS[norm](epsilon=norm_epsilon, **part("final_norm"))
        output_head = None
        if not tie_embeddings:
            output_head = Projection(
                vocabulary_size,
                use_bias=False,
                kernel_initializer=tools.initializer(),
                **part("output_head"),
            )
        logits = keras.layers.Activation("linear", name="logits", dtype="float32")

        # Graph
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")
        positions = tools.positions_of(padding_mask)
        x = token_embedding(token_ids)  # (B, T, D)
        if position_layer is not None:
            x = position_layer(x, positions=positions)
        x = drop(x)
        for block in blocks:
            rotated = getattr(block.attention, "rotary", None) is not None
            where = {"positions": positions} if rotated else {}
            x = block(x, padding_mask=padding_mask, **where)
        hidden = final_norm(x)  # (B, T, D)
        head = output_head or functools.partial(token_embedding, reverse=True)
        outputs = logits(head(hidden))  # (B, T, V)
        super().__init__(
            {"token_ids": token_ids, "padding_mask": padding_mask}, outputs, **kwargs
        )
        tools.settle(self, policy, trainable)
        self.input_spec = None  # `call` checks

        # Config
        self.hidden = hidden
        self.token_embedding, self.position_embedding = token_embedding, position_layer
        self.blocks, self.final_norm = blocks, final_norm
        self.output_head, self.tie_embeddings = output_head, tie_embeddings
        self.vocabulary_size = vocabulary_size
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.intermediate_dim = intermediate_dim
        self.max_sequence_length = max_sequence_length
        self.dropout = dropout
        self.remat = remat
        self.position = position
        self.norm = norm
        self.norm_epsilon = norm_epsilon
        self._values = tools.blocks_config(activation, attention, feed_forward)

    def call(self, inputs, training=None, mask=None):
        return super().call(self.complete(inputs), training=training, mask=mask)

    def compute_output_spec(self, inputs, training=None, mask=None):
        return super().compute_output_spec(self.complete(inputs))

    def complete(self, inputs):
        """All inputs: token ids alone or a dict, with the missing keys filled in.

        Args:
            inputs: see the call arguments.

        Returns: dict with both keys.
        """
        return tools.complete(inputs, OPTIONAL, self._limit())

    def _limit(self):
        return self.max_sequence_length if self.position == "learned" else None

    def init_cache(self, batch_size, max_length, context=None):
        """Empty caches of all blocks.

        Args:
            batch_size: int or int tensor B.
            max_length: int M, tokens that the cache holds.
            context: None, there is no encoder.

        Returns: list of the blocks' caches.
        """
        tools.check_cache_length(max_length, self._limit())
        return [block.init_cache(batch_size, max_length) for block in self.blocks]

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
            context_padding_mask: None.
            positions: int (T,) or (B, T).

        Returns: pair of float (B, T, D) and the new cache.
        """
        if positions is None:
            positions = ops.arange(ops.shape(token_ids)[1], dtype="int32") + cache_index
        x = self.token_embedding(token_ids)
        if self.position_embedding is not None:
            x = self.position_embedding(x, positions=positions)
        new_cache = []
        for block, block_cache in zip(self.blocks, cache):
            rotated = getattr(block.attention, "rotary", None) is not None
            x, block_cache = block.call_with_cache(
                x,
                block_cache,
                cache_index,
                padding_mask=padding_mask,
                positions=positions if rotated else None,
            )
            new_cache.append(block_cache)
        return self.final_norm(x), new_cache

    def logits_of(self, hidden):
        """Logits of the next token.

        Args:
            hidden: float (B, T, D), from `hidden_with_cache`.

        Returns: float32 (B, T, V).
        """
        if self.output_head is not None:
            return ops.cast(self.output_head(hidden), "float32")
        return ops.cast(self.token_embedding(hidden, reverse=True), "float32")

    def output_matrix(self):
        """What `logits_of` multiplies by: float (V, D), and no bias."""
        if self.output_head is not None:
            return ops.transpose(self.output_head.kernel), None
        return self.token_embedding.embeddings, None

    def get_config(self):
        return {
            **tools.base_config(self),
            "vocabulary_size": self.vocabulary_size,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "hidden_dim": self.hidden_dim,
            "intermediate_dim": self.intermediate_dim,
            "max_sequence_length": self.max_sequence_length,
            "dropout": self.dropout,
            "remat": self.remat,
            "tie_embeddings": self.tie_embeddings,
            "position": self.position,
            "norm": self.norm,
            "norm_epsilon": self.norm_epsilon,
            **self._values,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**tools.from_blocks_config(config))

    @classmethod
    def from_size(cls, size, **changes):
        """A model of a published size, with random weights.

        Args:
            size: "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl" or "gpt3-175b".
            **changes: constructor arguments that differ.
        """
        return cls(**{**numbers_of(GPT_SIZES, size), **changes})
