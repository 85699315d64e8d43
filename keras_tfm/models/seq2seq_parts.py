"""Parts of an encoder-decoder: from ids to vectors, blocks, from vectors to logits.

Letters: B batch, T length, V vocabulary, D hidden_dim.
"""

import functools
import math

import keras
from keras import ops

from keras_tfm import layers
from keras_tfm.layers.projection import Projection, TiedEmbedding
from keras_tfm.models import inputs as tools
from keras_tfm.models.bert_pretrainer import VocabularyBias

POSITIONS = ("sinusoidal", "sinusoidal_halves", "learned")


class Embedder:
    """What one side makes of its ids: embedding times scale, positions, norm.

    Args:
        embedding: `TiedEmbedding`.
        scale: float, 1 for none.
        positions: layer that adds positions.
        norm: layer or None.
    """

    def __init__(self, embedding, scale, positions, norm):
        self.embedding, self.scale = embedding, scale
        self.positions, self.norm = positions, norm

    def __call__(self, token_ids, positions=None):
        x = self.embedding(token_ids)  # (B, T, D)
        x = x if self.scale == 1 else x * self.scale
        x = self.positions(x, positions=positions)
        return x if self.norm is None else self.norm(x)


def make_embedders(config, part):
    """The embedders of source and target; they share what need not differ.

    Args:
        config: dict, the model's arguments.
        part: function from a name to a layer's `name` and `dtype`.

    Returns: pair of `Embedder`.

    Raises:
        ValueError: an unknown `position`.
    """
    if config["position"] not in POSITIONS:
        names = ", ".join(f'"{name}"' for name in POSITIONS)
        raise ValueError(f"`position` must be {names}, got {config['position']!r}.")
    width, target_size = config["hidden_dim"], config["target_vocabulary_size"]
    embedding = _embedding(config["vocabulary_size"], width, part("token_embedding"))
    embeddings = [embedding, embedding]
    if target_size is not None:
        embeddings[1] = _embedding(target_size, width, part("target_token_embedding"))
    scale = math.sqrt(width) if config["scale_embedding"] else 1.0
    norms = [None, None]
    if config["embedding_norm"]:
        norms = [
            keras.layers.LayerNormalization(
                epsilon=config["norm_epsilon"], **part(f"{side}embedding_norm")
            )
            for side in ("", "target_")
        ]
    parts = zip(embeddings, _positions(config, part), norms)
    return tuple(Embedder(table, scale, where, norm) for table, where, norm in parts)


def make_blocks(config, side, values, part):
    """The blocks of one side, and what follows them.

    Args:
        config: dict, the model's arguments.
        side: "encoder" or "decoder".
        values: attention and feed-forward as the model is given them, and the
            activation of the plain feed-forward.
        part: function from a name to a layer's `name` and `dtype`.

    Returns: pair of a list of blocks and a list of norms, empty for post-norm blocks.
    """
    attention, feed_forward, activation = values
    attention = attention or layers.MultiHeadAttention(config["num_heads"])
    feed_forward = feed_forward or layers.FeedForward(
        config["intermediate_dim"], activation=activation
    )
    count = config["num_layers"]
    if side == "decoder":
        count = config["num_decoder_layers"] or count
    wiring = {n: config[n] for n in ("norm_position", "norm_epsilon", "dropout")}
    names = [f"{side}_block_{i}" for i in range(count)]

    def make(i, name):
        own = tools.value_of_layer(attention, i), tools.value_of_layer(feed_forward, i)
        if side == "encoder":
            return layers.TransformerEncoderBlock(*own, **wiring, **part(name))
        return layers.TransformerDecoderBlock(
            *own, cross_attention=own[0], **wiring, **part(name)
        )

    with tools.remat_scope(config["remat"], names):
        blocks = [make(i, name) for i, name in enumerate(names)]
    if config["norm_position"] == "post":
        return blocks, []
    epsilon = config["norm_epsilon"]
    norm = keras.layers.LayerNormalization(epsilon=epsilon, **part(f"{side}_norm"))
    return blocks, [norm]


def run(blocks, end, inputs, **arguments):
    """What the blocks and norms of one side make of embeddings.

    Args:
        blocks: list of blocks.
        end: list of norms.
        inputs: float (B, T, D).
        **arguments: of the blocks.

    Returns: float (B, T, D).
    """
    for block in blocks:
        inputs = block(inputs, **arguments)
    for norm in end:
        inputs = norm(inputs)
    return inputs


class Head:
    """The output head: the target's embedding matrix or one of its own, and a bias.

    Args:
        embedding: `TiedEmbedding` of the target.
        projection: layer from (B, T, D) to (B, T, V), or None.
        bias: `VocabularyBias` or None.
    """

    def __init__(self, embedding, projection, bias):
        self.embedding, self.projection, self.bias = embedding, projection, bias

    def __call__(self, hidden):
        project = self.projection or functools.partial(self.embedding, reverse=True)
        logits = ops.cast(project(hidden), "float32")
        return logits if self.bias is None else self.bias(logits)

    def weights(self):
        """The matrix, float (V, D), and the bias, float (V,) or None."""
        matrix = self.embedding.embeddings
        if self.projection is not None:
            matrix = ops.transpose(self.projection.kernel)
        return matrix, None if self.bias is None else self.bias.bias


def make_head(config, embedding, part):
    """The output head.

    Args:
        config: dict, the model's arguments.
        embedding: `TiedEmbedding` of the target.
        part: function from a name to a layer's `name` and `dtype`.

    Returns: `Head`.
    """
    projection, bias = None, None
    if not config["tie_embeddings"]:
        projection = Projection(
            config["target_vocabulary_size"] or config["vocabulary_size"],
            use_bias=False,
            kernel_initializer=tools.initializer(),
            **part("output_head"),
        )
    if config["logits_bias"]:
        bias = VocabularyBias(name="logits_bias", dtype="float32")
    return Head(embedding, projection, bias)


def target_mask(target_token_ids, pad_token_id):
    """Where target tokens are real; the first one always is.

    Some models begin the target with the token that they pad with.

    Args:
        target_token_ids: int (B, T).
        pad_token_id: int.

    Returns: bool (B, T).
    """
    mask = layers.padding_mask(target_token_ids, pad_token_id)
    first = ops.ones_like(mask[:, :1])
    return ops.concatenate([first, mask[:, 1:]], axis=1)


def _embedding(vocabulary_size, hidden_dim, part):
    initializer = keras.initializers.RandomNormal(stddev=hidden_dim**-0.5)
    return TiedEmbedding(
        vocabulary_size, hidden_dim, embeddings_initializer=initializer, **part
    )


def _positions(config, part):
    """The layers that add positions, of source and target."""
    if config["position"] == "learned":
        return [
            layers.LearnedPositionEmbedding(
                config["max_sequence_length"],
                initializer=tools.initializer(),
                **part(f"{side}position_embedding"),
            )
            for side in ("", "target_")
        ]
    shared = layers.SinusoidalPositionEncoding(
        interleaved=config["position"] == "sinusoidal", **part("position_encoding")
    )
    return [shared, shared]
