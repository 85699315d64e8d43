"""Pairs of texts that mean the same, for an encoder that learns to bring them together.

Letters: B pairs in a batch, N pairs, T length.
"""

import numpy as np

from keras_tfm.data.batches import bucket_lengths, bucketed_dataset, pad_rows
from keras_tfm.data.pipelines import encode_for_classification
from keras_tfm.data.tokenizers import special_ids


def text_pairs_dataset(
    pairs,
    tokenizer,
    max_length=128,
    batch_size=32,
    training=False,
    buckets=None,
    seed=0,
):
    """Pairs of texts as rows [CLS] text [SEP], both of a pair with one label.

    For `training.ContrastiveLoss`, which takes rows of one label for the same and all
    others of the batch for different.

    Args:
        pairs: list of (str, str).
        tokenizer: one with a start and an end token, such as `train_wordpiece` makes.
        max_length: int, longer texts are cut.
        batch_size: int B, pairs; a batch has 2 B rows.
        training: bool: shuffled anew at each pass, else in the given order.
        buckets: lengths to pad to, see `bucket_lengths`.
        seed: int.

    Returns: `tf.data.Dataset` of `({"token_ids", "segment_ids", "padding_mask"},
        labels)`: int32, int32 and bool (2 B, T), the number of the pair int32 (2 B,).
        The rows of a pair follow each other.

    Raises:
        ValueError: if there is no pair, or the tokenizer has no start and end token.
    """
    import tensorflow as tf

    texts = [text for pair in pairs for text in pair]
    rows, _ = encode_for_classification(texts, tokenizer, max_length)
    lengths = np.array([len(row) for row in rows], "int64").reshape(-1, 2)  # (N, 2)
    pad_id = special_ids(tokenizer)["pad"]

    def arrays(numbers, length):
        both = np.stack([2 * numbers, 2 * numbers + 1], axis=1).reshape(-1)
        token_ids = pad_rows([rows[i] for i in both], length, pad_id)
        padding_mask = np.arange(length) < lengths[numbers][..., np.newaxis]
        features = {
            "token_ids": token_ids.reshape(-1, 2, length),
            "segment_ids": np.zeros((len(numbers), 2, length), "int32"),
            "padding_mask": padding_mask,
        }
        return features, np.stack([numbers, numbers], axis=1).astype("int32")

    def flatten(features, labels):
        flat = {
            name: tf.reshape(value, [-1, tf.shape(value)[-1]])  # (2 B, T)
            for name, value in features.items()
        }
        return flat, tf.reshape(labels, [-1])

    longest = lengths.max(axis=1, initial=0)
    buckets = bucket_lengths(longest, max_length, buckets)
    dataset = bucketed_dataset(arrays, longest, buckets, batch_size, training, seed)
    return dataset.map(flatten)
