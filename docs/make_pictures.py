"""Draw the pictures of docs/images that need no training.

python docs/make_pictures.py
"""

import pathlib

import keras
import numpy as np

from keras_tfm import layers, visualize

FOLDER = pathlib.Path(__file__).with_name("images")
WORDS = ["the", "cat", "sat", "down", "."]


def attention_from_scratch():
    """The three pictures of docs/attention_from_scratch.md, with its numbers."""
    random = np.random.default_rng(0)
    tokens = random.normal(size=(5, 8)).astype("float32")
    to_query, to_key, to_value = random.normal(size=(3, 8, 4)).astype("float32")
    triple = [
        (tokens @ matrix)[None, :, None] for matrix in (to_query, to_key, to_value)
    ]
    _, weights = layers.scaled_dot_product_attention(
        *triple, return_attention_scores=True
    )
    save(visualize.attention_map(np.array(weights)[0, 0], WORDS), "one_head")

    keras.utils.set_random_seed(1)
    attention = layers.MultiHeadAttention(num_heads=2, use_bias=False)
    _, weights = attention(tokens[None], return_attention_scores=True)
    save(visualize.attention_map(np.array(weights)[0], WORDS), "two_heads")

    table = np.array(layers.sinusoidal_table(5, 8))
    save(visualize.position_table(table, "Sinusoidal positions"), "sinusoidal_table")


def positions():
    """Position tables and biases of the layers' pages."""
    keras.utils.set_random_seed(0)
    grid = layers.PositionEmbedding2D((6, 6), kind="sincos")
    table = np.array(grid(np.zeros((1, 36, 32), "float32")))[0]
    rows = table / np.linalg.norm(table, axis=-1, keepdims=True)
    figure = visualize.similarity(rows @ rows.T, title="Cosines of 6 x 6 positions")
    save(figure, "position_embedding_2d")

    bias = layers.AlibiBias(num_heads=4)(np.zeros((1, 16, 1), "float32"))
    query = np.zeros((1, 16, 4, 1), "float32")
    _, weights = layers.scaled_dot_product_attention(
        query,
        query,
        query,
        attention_bias=bias,
        use_causal_mask=True,
        return_attention_scores=True,
    )
    figure = visualize.attention_map(np.array(weights)[0], title="ALiBi, equal scores")
    save(figure, "alibi_bias")


def save(figure, name):
    """Write a picture small enough for a repository."""
    figure.savefig(FOLDER / f"{name}.png", dpi=100)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    attention_from_scratch()
    positions()
