"""tf.data pipelines for the models: text in, shuffled batches of ids out.

Texts are turned into ids once, when a pipeline is made: the ids in memory are its
cache.

Letters: B batch, T length, V vocabulary_size, C num_classes.
"""

import numpy as np

from keras_tfm.data.batches import (
    bucket_lengths,
    bucketed_dataset,
    check_token_ids,
    count_cut,
    gather_dataset,
    pad_rows,
)
from keras_tfm.data.masking import IGNORE_ID
from keras_tfm.data.pairs import pack_pair
from keras_tfm.data.tokenizers import encode, special_ids
from keras_tfm.data.windows import check_length, next_token_windows


def classification_dataset(
    texts,
    labels,
    tokenizer,
    max_length=128,
    batch_size=32,
    training=False,
    buckets=None,
    seed=0,
):
    """Text or text pairs to classes: [CLS] text [SEP], or [CLS] a [SEP] b [SEP].

    Args:
        texts: list of str, or list of (str, str).
        labels: int (N,), or float (N,) for a regression.
        tokenizer: one with a start and an end token, such as `train_wordpiece` makes.
        max_length: int, longer texts are cut (see `count_cut_texts`).
        batch_size: int B.
        training: bool: shuffled anew at each pass, else in the given order.
        buckets: lengths to pad to, see `bucket_lengths`; an empty list pads all to
            `max_length`.
        seed: int.

    Returns: `tf.data.Dataset` of `({"token_ids", "segment_ids", "padding_mask"},
        labels)`: int32, int32 and bool (B, T), labels (B,).

    Raises:
        ValueError: if texts and labels differ in number, there is none, or the
            tokenizer has no start and end token.
    """
    if len(texts) != len(labels):
        raise ValueError(
            f"`labels` must be as many as `texts` ({len(texts)}), got {len(labels)}."
        )
    rows, segments = encode_for_classification(texts, tokenizer, max_length)
    check_token_ids(rows, tokenizer.vocabulary_size())
    lengths = np.array([len(row) for row in rows], "int64")
    labels = np.asarray(labels)
    pad_id = special_ids(tokenizer)["pad"]

    def arrays(numbers, length):
        token_ids = pad_rows([rows[i] for i in numbers], length, pad_id)
        features = {
            "token_ids": token_ids,
            "segment_ids": pad_rows([segments[i] for i in numbers], length),
            "padding_mask": np.arange(length) < lengths[numbers][:, np.newaxis],
        }
        return features, labels[numbers]

    buckets = bucket_lengths(lengths, max_length, buckets)
    return bucketed_dataset(arrays, lengths, buckets, batch_size, training, seed)


def encode_for_classification(texts, tokenizer, max_length):
    """Turn texts or text pairs into rows with special tokens.

    Args:
        texts: list of str, or list of (str, str).
        tokenizer: one with a start and an end token.
        max_length: int, longest row; of a pair the longer text is cut first.

    Returns: `(rows, segments)`, two lists of int32 arrays.

    Raises:
        ValueError: if the tokenizer has no start and end token.
    """
    ids = special_ids(tokenizer)
    _need(ids, "start", "end")
    texts = list(texts)
    if texts and not isinstance(texts[0], str):
        first = encode(tokenizer, [a for a, _ in texts])
        second = encode(tokenizer, [b for _, b in texts])
    else:
        first = encode(tokenizer, texts)
        second = [None] * len(texts)
    packed = [
        pack_pair(a, b, max_length, ids["start"], ids["end"])
        for a, b in zip(first, second)
    ]
    return [row for row, _ in packed], [segments for _, segments in packed]


def count_cut_texts(texts, tokenizer, max_length):
    """Count the texts (or pairs) that do not fit and are cut.

    Args:
        texts: list of str, or list of (str, str).
        tokenizer: one with a start and an end token.
        max_length: int, longest row with its special tokens.

    Returns: int.
    """
    rows, _ = encode_for_classification(texts, tokenizer, 10**9)
    return count_cut([len(row) for row in rows], max_length)


def language_model_dataset(
    token_ids, length, batch_size=32, training=False, stride=None, seed=0
):
    """One long text to next-token windows, every window once a pass.

    Args:
        token_ids: int (n,), one text.
        length: int T.
        batch_size: int B.
        training: bool: shuffled anew at each pass, else in order.
        stride: int, the step between windows; None means T.
        seed: int.

    Returns: `tf.data.Dataset` of `(inputs, labels)`, int32 (B, T) each.

    Raises:
        ValueError: if the text is shorter than T + 1.
    """
    windows = next_token_windows(token_ids, length, stride)
    dataset = gather_dataset(windows, batch_size, training, seed)
    return dataset.prefetch(2)


def random_windows_dataset(token_ids, length, batch_size=32, steps=100, seed=0):
    """One long text to windows at random places, new ones at each pass.

    Args:
        token_ids: int (n,), one text.
        length: int T.
        batch_size: int B.
        steps: int, batches a pass.
        seed: int, the same seed gives the same sequence of passes.

    Returns: `tf.data.Dataset` of `(inputs, labels)`, int32 (B, T) each.

    Raises:
        ValueError: if the text is shorter than T + 1.
    """
    import tensorflow as tf

    token_ids = np.asarray(token_ids, "int32")
    check_length(token_ids, length)
    starts = len(token_ids) - length
    with tf.device("cpu"):
        text = tf.constant(token_ids)

    def windows(numbers):
        places = tf.cast(numbers % starts, "int32")  # (B,)
        rows = tf.gather(text, places[:, tf.newaxis] + tf.range(length + 1))
        return rows[:, :-1], rows[:, 1:]

    draws = tf.data.Dataset.random(seed, rerandomize_each_iteration=True)
    draws = draws.batch(batch_size, drop_remainder=True).take(steps)
    return draws.map(windows, num_parallel_calls=2, deterministic=True).prefetch(4)


def translation_dataset(
    sources,
    targets,
    tokenizer,
    target_tokenizer=None,
    max_length=128,
    batch_size=32,
    training=False,
    buckets=None,
    seed=0,
):
    """Sentence pairs for teacher forcing: the decoder reads <s> y, labels are y </s>.

    Args:
        sources: list of str.
        targets: list of str.
        tokenizer: one with a start and an end token; for both sides if it is alone.
        target_tokenizer: for the targets, or None.
        max_length: int, longer texts are cut and keep their end token.
        batch_size: int B.
        training: bool: shuffled anew at each pass, pairs of like length together,
            else in the given order.
        buckets: lengths to pad both sides to, see `bucket_lengths`.
        seed: int.

    Returns: `tf.data.Dataset` of `({"source_token_ids", "target_token_ids"}, labels)`,
        int32 (B, T) each. Padding has id 0; its labels are -100.

    Raises:
        ValueError: if sources and targets differ in number, or there is none.
    """
    if len(sources) != len(targets):
        raise ValueError(
            f"`targets` must be as many as `sources` ({len(sources)}), "
            f"got {len(targets)}."
        )
    target_tokenizer = target_tokenizer or tokenizer
    source_rows = encode_for_translation(sources, tokenizer, max_length)
    start = special_ids(target_tokenizer)["start"]
    _need({"start": start}, "start")
    label_rows = encode_for_translation(targets, target_tokenizer, max_length)
    target_rows = [np.append(np.int32(start), row[:-1]) for row in label_rows]
    check_token_ids(source_rows, tokenizer.vocabulary_size())
    check_token_ids(label_rows, target_tokenizer.vocabulary_size())

    def arrays(numbers, length):
        features = {
            "source_token_ids": pad_rows([source_rows[i] for i in numbers], length),
            "target_token_ids": pad_rows([target_rows[i] for i in numbers], length),
        }
        return features, pad_rows([label_rows[i] for i in numbers], length, IGNORE_ID)

    lengths = [max(len(s), len(t)) for s, t in zip(source_rows, label_rows)]
    lengths = np.array(lengths, "int64")
    buckets = bucket_lengths(lengths, max_length, buckets)
    return bucketed_dataset(arrays, lengths, buckets, batch_size, training, seed)


def encode_for_translation(texts, tokenizer, max_length=None):
    """Turn texts into rows that end with the end token: the encoder's input.

    Args:
        texts: list of str.
        tokenizer: one with an end token.
        max_length: int or None, longest row with its end token.

    Returns: list of int32 arrays.

    Raises:
        ValueError: if the tokenizer has no end token.
    """
    ids = special_ids(tokenizer)
    _need(ids, "end")
    rows = encode(tokenizer, texts)
    keep = None if max_length is None else max_length - 1
    return [np.append(row[:keep], np.int32(ids["end"])) for row in rows]


def _need(ids, *roles):
    for role in roles:
        if ids[role] is None:
            raise ValueError(f"`tokenizer` must have a token for {role}, it has none.")
