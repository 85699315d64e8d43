"""Vectors of texts: made in bulk, compared, measured, from a file too.

Letters: N texts, D width of a vector, Q queries, V vocabulary size.
"""

import contextlib

import numpy as np

from keras_tfm import data, export

MIN_WORDS = 6


def halves(lines):
    """Pairs out of single texts: how a line begins and how it goes on.

    Args:
        lines: list of str.

    Returns: list of (str, str); lines of fewer than six words give none.
    """
    words = [line.split() for line in lines]
    return [
        (" ".join(w[: len(w) // 2]), " ".join(w[len(w) // 2 :]))
        for w in words
        if len(w) >= MIN_WORDS
    ]


def encode(model, tokenizer, texts, max_length, batch_size=64):
    """The vectors of texts, those of like length together.

    Args:
        model: a `SentenceEncoder`.
        tokenizer: that of the model.
        texts: list of N str.
        max_length: int, tokens of a text that are read.
        batch_size: int.

    Returns: float32 (N, D).
    """
    order = np.argsort([len(text) for text in texts], kind="stable")
    dataset = data.classification_dataset(
        [texts[i] for i in order], np.zeros(len(texts)), tokenizer, max_length,
        batch_size,
    )  # fmt: skip
    vectors = model.predict(dataset.map(lambda features, _: features), verbose=0)
    result = np.empty_like(vectors)
    result[order] = vectors
    return result


def run_strings(path, texts):
    """The vectors of texts by a SavedModel alone.

    Args:
        path: the folder.
        texts: list of N str.

    Returns: float32 (N, D).
    """
    with contextlib.suppress(ImportError):  # its operations, if the tokenizer has some
        import tensorflow_text  # noqa: F401
    inputs = {"text": np.array(texts, object)}
    return export.run_file(path, inputs, "predict_text")["vectors"]


def nearest(queries, vectors, count):
    """The nearest vectors of each query.

    Args:
        queries: (Q, D), of length 1.
        vectors: (N, D), of length 1.
        count: int.

    Returns: pair of (Q, count): int numbers of the nearest, and their cosines.
    """
    scores = queries @ vectors.T  # (Q, N)
    found = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return found, np.take_along_axis(scores, found, axis=1)


def show(queries, query_vectors, lines, vectors, count):
    """Print the nearest lines of a few queries.

    Args:
        queries: list of str.
        query_vectors: (Q, D).
        lines: list of N str.
        vectors: (N, D).
        count: int, lines a query.
    """
    for query, found, cosines in zip(queries, *nearest(query_vectors, vectors, count)):
        print(f"  {query}")
        for number, cosine in zip(found, cosines):
            line = " ".join(str(lines[number]).split())
            print(f"    {cosine:.3f}  {line[:100]}{'...' * (len(line) > 100)}")


def recall(encode, pairs, name):
    """How often the second text of a pair is among the nearest of all second ones.

    Args:
        encode: function of N texts that gives (N, D).
        pairs: list of (str, str).
        name: str, what the numbers' names begin with.

    Returns: dict, the shares of pairs found first, and among the first ten.
    """
    first, second = (encode(list(texts)) for texts in zip(*pairs))
    return {
        f"{name}_recall_at_{count}": recall_of(first, second, count)
        for count in (1, 10)
    }


def recall_of(first, second, count):
    """The share of rows whose partner is among the nearest `count`.

    Args:
        first: (N, D).
        second: (N, D).
        count: int.

    Returns: float.
    """
    found, _ = nearest(first, second, count)
    return float(np.mean(np.any(found == np.arange(len(first))[:, None], axis=1)))


def recall_of_words(tokenizer, pairs, count=10):
    """The recall of no model: common tokens, rare ones count more (tf-idf).

    Args:
        tokenizer: one that makes ids.
        pairs: list of (str, str).
        count: int.

    Returns: float.
    """
    bags = []
    for texts in zip(*pairs):
        bag = np.zeros((len(texts), tokenizer.vocabulary_size()), "float32")  # (N, V)
        for row, ids in zip(bag, data.encode(tokenizer, list(texts))):
            np.add.at(row, ids, 1.0)
        bags.append(bag)
    weights = np.log((1 + len(pairs)) / (1 + np.sum(bags[1] > 0, axis=0))) + 1
    bags = [bag * weights for bag in bags]
    bags = [
        b / np.maximum(np.linalg.norm(b, axis=1, keepdims=True), 1e-9) for b in bags
    ]
    return recall_of(*bags, count)
