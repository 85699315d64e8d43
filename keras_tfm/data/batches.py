"""From token rows to padded batches: checks, buckets and shuffling.

Letters: N rows, B batch, T length, V vocabulary_size.
"""

import numpy as np


def check_token_ids(token_ids, vocabulary_size):
    """Refuse token ids that an embedding of `vocabulary_size` rows cannot look up.

    Args:
        token_ids: int array of any shape, or a list of arrays.
        vocabulary_size: int V.

    Raises:
        ValueError: naming the first id outside [0, V). A layer cannot be
            relied on for this: compiled code reads another row in silence.
    """
    rows = token_ids if isinstance(token_ids, (list, tuple)) else [token_ids]
    for number, row in enumerate(rows):
        row = np.asarray(row)
        wrong = (row < 0) | (row >= vocabulary_size)
        if wrong.any():
            where = f" in row {number}" if len(rows) > 1 else ""
            raise ValueError(
                f"Token ids must be in [0, {vocabulary_size}), "
                f"got {row[wrong].flat[0]}{where}."
            )


def count_cut(lengths, max_length):
    """Count the texts that are too long, so that a recipe can say so.

    Args:
        lengths: int (N,), tokens of each text with its special tokens.
        max_length: int, longest row.

    Returns: int.
    """
    return int(np.sum(np.asarray(lengths) > max_length))


def bucket_lengths(lengths, max_length, buckets=None):
    """Choose the few row lengths that batches are padded to.

    Under `jit_compile=True` every new length is compiled anew, so there are few.

    Args:
        lengths: int (N,), real lengths.
        max_length: int, longest row allowed.
        buckets: None for up to four lengths in doubling steps, a list of lengths, or
            an empty list for `max_length` alone.

    Returns: sorted list of int; the last holds the longest row (at most `max_length`).

    Raises:
        ValueError: for a bucket outside [1, max_length].
    """
    longest = int(min(max(np.max(lengths, initial=1), 1), max_length))
    if buckets is None:
        top = min(-(-longest // 8) * 8, max_length)  # next multiple of 8
        buckets = [top >> step for step in range(4) if top >> step >= 8]
        return sorted({-(-bucket // 8) * 8 for bucket in buckets[1:]} | {top})
    buckets = sorted(set(buckets))
    if buckets and not (1 <= buckets[0] and buckets[-1] <= max_length):
        raise ValueError(
            f"`buckets` must be lengths in [1, {max_length}], got {buckets}."
        )
    if not buckets or buckets[-1] < longest:
        buckets.append(max_length)
    return buckets


def pad_rows(rows, length, pad_id=0, dtype="int32"):
    """Write rows of ids into one array, padded on the right, cut at `length`.

    Args:
        rows: list of int arrays.
        length: int T.
        pad_id: int.
        dtype: of the result.

    Returns: (N, T) array.
    """
    padded = np.full((len(rows), length), pad_id, dtype)
    for i, row in enumerate(rows):
        row = row[:length]
        padded[i, : len(row)] = row
    return padded


def bucketed_dataset(make_arrays, lengths, buckets, batch_size, shuffle, seed=0):
    """Batch rows and pad each batch to one of a few lengths.

    Shuffled, rows of like length come together: each bucket but the last holds whole
    batches (its longest rows over that move up a bucket), so there is one smaller batch
    at most and no row is lost. In order, each batch takes the smallest bucket that
    holds its longest row.

    Args:
        make_arrays: function of (row numbers, padded length) that returns a nest of
            arrays with those rows first.
        lengths: int (N,), real length of each row.
        buckets: sorted list of padded lengths.
        batch_size: int B.
        shuffle: bool, new order and new batches at each pass; else the given order.
        seed: int, the same seed gives the same sequence of passes.

    Returns: `tf.data.Dataset` of batches, its cardinality known.

    Raises:
        ValueError: if there is no row, or `batch_size` is not positive.
    """
    import tensorflow as tf

    if batch_size < 1:
        raise ValueError(f"`batch_size` must be positive, got {batch_size}.")
    if not len(lengths):
        raise ValueError("There must be at least one example, got none.")
    plan = _full_buckets if shuffle else _ordered_buckets
    buckets, choices = plan(np.minimum(lengths, buckets[-1]), buckets, batch_size)
    parts = [
        gather_dataset(make_arrays(rows, length), batch_size, shuffle, seed)
        for rows, length in buckets
    ]
    dataset = parts[0]
    if len(parts) > 1:
        order = tf.data.Dataset.from_tensor_slices(choices)
        if shuffle:
            order = order.shuffle(len(choices), seed, reshuffle_each_iteration=True)
        dataset = tf.data.Dataset.choose_from_datasets(parts, order)
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(len(choices)))
    return dataset.prefetch(tf.data.AUTOTUNE)


def gather_dataset(arrays, batch_size, shuffle, seed=0):
    """Batch the rows of arrays that lie in memory; only row numbers are shuffled.

    Args:
        arrays: nest of arrays, (N, ...) each.
        batch_size: int B.
        shuffle: bool, a new order at each pass.
        seed: int.

    Returns: `tf.data.Dataset` of nests of (B, ...), the last batch may be smaller.
    """
    import tensorflow as tf

    with tf.device("cpu"):
        tensors = tf.nest.map_structure(tf.convert_to_tensor, arrays)
    count = len(tf.nest.flatten(arrays)[0])
    dataset = tf.data.Dataset.range(count)
    if shuffle:
        dataset = dataset.shuffle(count, seed, reshuffle_each_iteration=True)
    return dataset.batch(batch_size).map(
        lambda rows: tf.nest.map_structure(lambda x: tf.gather(x, rows), tensors),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )


def _full_buckets(lengths, buckets, batch_size):
    """Sort rows into buckets of whole batches; name the bucket of each batch."""
    order = np.argsort(lengths, kind="stable")
    parts, choices, begin = [], [], 0
    for bucket in buckets:
        end = int(np.searchsorted(lengths[order], bucket, side="right"))
        if bucket != buckets[-1]:
            end = begin + (end - begin) // batch_size * batch_size
        if end > begin:
            choices += [len(parts)] * -(-(end - begin) // batch_size)
            parts.append((order[begin:end], bucket))
            begin = end
    return parts, np.array(choices, "int64")


def _ordered_buckets(lengths, buckets, batch_size):
    """Keep the order; give each batch the smallest bucket that holds it."""
    rows, choices = {}, []
    for begin in range(0, len(lengths), batch_size):
        batch = np.arange(begin, min(begin + batch_size, len(lengths)))
        bucket = buckets[int(np.searchsorted(buckets, lengths[batch].max()))]
        rows.setdefault(bucket, []).append(batch)
        choices.append(bucket)
    parts = [(np.concatenate(batches), bucket) for bucket, batches in rows.items()]
    numbers = {bucket: number for number, bucket in enumerate(rows)}
    return parts, np.array([numbers[bucket] for bucket in choices], "int64")
