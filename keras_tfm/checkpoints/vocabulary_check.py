"""Whether a tokenizer and a model belong together."""

from keras_tfm.checkpoints.errors import CheckpointError


def check_vocabulary(tokenizer, model):
    """Refuse a tokenizer whose ids a model has no embedding for.

    Fewer tokens than rows are fine: tables are often rounded up.

    Args:
        tokenizer: has `vocabulary_size()`.
        model: `keras.Model` or layer with an embedding in it.

    Raises:
        CheckpointError: (a `ValueError`) if the vocabulary is larger than the
            embedding, or there is no embedding.

    Example:
        >>> tokenizer = keras_tfm.data.train_characters("to be or not to be")
        >>> keras_tfm.checkpoints.check_vocabulary(
        ...     tokenizer, keras.layers.Embedding(8, 4)
        ... )
        Traceback (most recent call last):
        ...
        keras_tfm.checkpoints.errors.CheckpointError: The tokenizer has 9 tokens, ...
    """
    rows = _embedding_rows(model)
    if rows is None:
        raise CheckpointError(f"{model.name} has no token embedding.")
    size = tokenizer.vocabulary_size()
    if size > rows:
        raise CheckpointError(
            f"The tokenizer has {size} tokens, more than the {rows} rows of "
            f"{model.name}'s token embedding."
        )


def _embedding_rows(layer):
    """The vocabulary size of a model, or of the first layer in it that has one."""
    for name in ("vocabulary_size", "input_dim"):
        rows = getattr(layer, name, None)
        if isinstance(rows, int):
            return rows
    for inner in getattr(layer, "layers", ()):
        rows = _embedding_rows(inner)
        if rows is not None:
            return rows
    return None
