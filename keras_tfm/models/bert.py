"""BERT and its kin: a bidirectional encoder of one or two segments of text.

Letters: B batch, T length, V vocabulary_size, E embedding_dim, D hidden_dim.
"""

import keras
from keras import ops

from keras_tfm import layers
from keras_tfm.layers.dropout import PairedDropout
from keras_tfm.layers.policies import part_policy
from keras_tfm.models import inputs as tools
from keras_tfm.models.sizes import BERT_SIZES, numbers_of

OPTIONAL = {"segment_ids": ops.zeros_like, "padding_mask": tools.all_real}
POSITIONS = ("all", "real")


@keras.saving.register_keras_serializable(package="keras_tfm")
class Bert(keras.Model):
    """Bidirectional Transformer encoder, a functional model.

    Embeds tokens, positions and segments, runs `num_layers` post-norm blocks, and
    pools the first token through a dense layer with tanh. A few arguments make the
    wirings of RoBERTa, DistilBERT, ALBERT and ELECTRA.

    Args:
        vocabulary_size: int V.
        num_layers: int.
        num_heads: int, divides `hidden_dim`.
        hidden_dim: int D.
        intermediate_dim: int, inner width of the feed-forward.
        max_sequence_length: int, longest T.
        num_segments: int, kinds of segments; 0 for none, and no `segment_ids`.
        dropout: float in [0, 1), on embeddings, attention weights and branches.
        activation: of the feed-forward.
        norm_epsilon: float.
        attention: attention value, or a list of them cycled over the layers;
            `MultiHeadAttention(num_heads)` unless given.
        feed_forward: likewise; `FeedForward(intermediate_dim)` unless given.
        remat: bool, blocks keep only their inputs and compute the rest again for the
            gradient: less memory, more time.
        embedding_dim: int E, width of the embeddings, which a dense layer then brings
            to D (ALBERT, ELECTRA); None for D and no such layer.
        num_blocks: int, blocks with weights of their own, each run `num_layers` /
            `num_blocks` times in a row (ALBERT: 1); `num_layers` unless given.
        positions: "all" to count every token, "real" to count those that are not
            padding, which may then stand on the left: its position is row 0 of the
            table, which has one row more (RoBERTa).
        pooler_activation: of the dense layer on the first token; None for no such
            layer, so that `pooled_output` is the first token's vector.
        dtype: dtype policy.
        **kwargs: `name`, `trainable`.

    Call arguments:
        inputs: int (B, T) token ids, or a dict with `token_ids` and perhaps
            `segment_ids`, int (B, T), 0 unless given, and `padding_mask`, bool
            (B, T), True for real tokens, all True unless given.
        training: bool.

    Returns: dict with `sequence_output`, float (B, T, D), and `pooled_output`,
        float (B, D).

    Raises:
        ValueError: a length past `max_sequence_length`, heads that do not divide,
            an unknown input key or value of `positions`.

    Example:
        >>> model = keras_tfm.models.Bert(
        ...     vocabulary_size=50, num_layers=2, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=32,
        ... )
        >>> outputs = model(keras.ops.ones((2, 7), "int32"))
        >>> tuple(outputs["sequence_output"].shape)
        (2, 7, 8)
        >>> tuple(outputs["pooled_output"].shape)
        (2, 8)

    References: Devlin et al. 2018, arXiv:1810.04805; Liu et al. 2019 (RoBERTa),
        arXiv:1907.11692; Lan et al. 2019 (ALBERT), arXiv:1909.11942.
    """

    def __init__(
        self,
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        max_sequence_length=512,
        num_segments=2,
        dropout=0.1,
        activation="gelu",
        norm_epsilon=1e-12,
        attention=None,
        feed_forward=None,
        remat=False,
        embedding_dim=None,
        num_blocks=None,
        positions="all",
        pooler_activation="tanh",
        dtype=None,
        trainable=True,
        **kwargs,
    ):
        num_blocks = num_layers if num_blocks is None else num_blocks
        _check(num_layers, num_blocks, positions)
        policy = keras.dtype_policies.get(dtype)

        def part(name):
            return {"name": name, "dtype": part_policy(policy, name)}

        # Layers
        width = hidden_dim if embedding_dim is None else embedding_dim
        token_embedding = keras.layers.ReversibleEmbedding(
            vocabulary_size,
            width,
            embeddings_initializer=tools.initializer(),
            **part("token_embedding"),
        )
        position_embedding = layers.LearnedPositionEmbedding(
            max_sequence_length + (positions == "real"),
            initializer=tools.initializer(),
            **part("position_embedding"),
        )
        norm = keras.layers.LayerNormalization(
            epsilon=norm_epsilon, **part("embedding_norm")
        )
        drop = PairedDropout(dropout, **part("embedding_dropout"))
        own_attention = tools.plain_attention(num_heads, attention_dropout=dropout)
        own_feed_forward = tools.plain_feed_forward(intermediate_dim, activation)
        names = [f"block_{i}" for i in range(num_blocks)]
        with tools.remat_scope(remat, names):
            blocks = [
                layers.TransformerEncoderBlock(
                    tools.value_of_layer(attention or own_attention, i),
                    tools.value_of_layer(feed_forward or own_feed_forward, i),
                    norm_position="post",
                    norm_epsilon=norm_epsilon,
                    dropout=dropout,
                    **part(name),
                )
                for i, name in enumerate(names)
            ]

        def dense(name, activation=None):
            return keras.layers.Dense(
                hidden_dim,
                activation=activation,
                kernel_initializer=tools.initializer(),
                **part(name),
            )

        # Graph
        inputs = {"token_ids": keras.Input((None,), dtype="int32", name="token_ids")}
        x = token_embedding(inputs["token_ids"])  # (B, T, E)
        if num_segments:
            segment_ids = keras.Input((None,), dtype="int32", name="segment_ids")
            inputs["segment_ids"] = segment_ids
            segment_embedding = keras.layers.Embedding(
                num_segments,
                width,
                embeddings_initializer=tools.initializer(),
                **part("segment_embedding"),
            )
            add = keras.layers.Add(**part("embedding_sum"))
            x = add([x, segment_embedding(segment_ids)])
        padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")
        inputs["padding_mask"] = padding_mask
        counts = None
        if positions == "real":
            counts = tools.positions_from_one(padding_mask)
        x = drop(norm(position_embedding(x, positions=counts)))
        if embedding_dim is not None:
            x = dense("embedding_projection")(x)  # (B, T, D)
        for i in range(num_layers):
            x = blocks[i * num_blocks // num_layers](x, padding_mask=padding_mask)
        pooled = x[:, 0]  # (B, D)
        if pooler_activation is not None:
            pooled = dense("pooler", pooler_activation)(pooled)
        outputs = {"sequence_output": x, "pooled_output": pooled}
        super().__init__(inputs, outputs, **kwargs)
        tools.settle(self, policy, trainable)
        self.input_spec = None  # `call` checks

        # Config
        self.token_embedding = token_embedding
        self.blocks = blocks
        self.vocabulary_size = vocabulary_size
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.intermediate_dim = intermediate_dim
        self.max_sequence_length = max_sequence_length
        self.num_segments = num_segments
        self.dropout = dropout
        self.remat = remat
        self.norm_epsilon = norm_epsilon
        self.embedding_dim = embedding_dim
        self.num_blocks = num_blocks
        self.positions = positions
        self.pooler_activation = tools.activation_config(pooler_activation)
        self._values = tools.blocks_config(activation, attention, feed_forward)

    def call(self, inputs, training=None, mask=None):
        return super().call(self.complete(inputs), training=training, mask=mask)

    def compute_output_spec(self, inputs, training=None, mask=None):
        return super().compute_output_spec(self.complete(inputs))

    def complete(self, inputs):
        """All inputs: token ids alone or a dict, with the missing keys filled in.

        Args:
            inputs: see the call arguments.

        Returns: dict with every key.
        """
        optional = {k: make for k, make in OPTIONAL.items() if k in self.input}
        return tools.complete(inputs, optional, self.max_sequence_length)

    def get_config(self):
        return {
            **tools.base_config(self),
            "vocabulary_size": self.vocabulary_size,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "hidden_dim": self.hidden_dim,
            "intermediate_dim": self.intermediate_dim,
            "max_sequence_length": self.max_sequence_length,
            "num_segments": self.num_segments,
            "dropout": self.dropout,
            "remat": self.remat,
            "norm_epsilon": self.norm_epsilon,
            "embedding_dim": self.embedding_dim,
            "num_blocks": self.num_blocks,
            "positions": self.positions,
            "pooler_activation": self.pooler_activation,
            **self._values,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**tools.from_blocks_config(config))

    @classmethod
    def from_size(cls, size, **changes):
        """A model of a published size, with random weights.

        Args:
            size: "tiny", "mini", "small", "medium", "base" or "large".
            **changes: constructor arguments that differ.
        """
        return cls(**{**numbers_of(BERT_SIZES, size), **changes})


def _check(num_layers, num_blocks, positions):
    if not min(num_layers, 1) <= num_blocks <= num_layers:
        raise ValueError(
            f"`num_blocks` must be from 1 to `num_layers`, got {num_blocks} blocks and "
            f"{num_layers} layers."
        )
    if positions not in POSITIONS:
        raise ValueError(f'`positions` must be "all" or "real", got {positions!r}.')
