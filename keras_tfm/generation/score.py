"""How probable given continuations are: for few-shot classification and choices.

Letters: B batch, T prompt length, C continuations, L length of the longest one.
"""

import keras
import numpy as np
from keras import ops

from keras_tfm.generation.decoder import prefill
from keras_tfm.generation.generate import Compiled, compiled
from keras_tfm.generation.prompts import fit_to_buckets, read_prompts, vocabulary_of
from keras_tfm.generation.rows import repeat_rows


def score(model, prompts, continuations, padding_mask=None, jit_compile=True):
    """Log-probabilities of continuations, each after each prompt.

    A prompt is read once, whatever the number of continuations.

    Args:
        model: keeps the cache protocol.
        prompts: int (B, T), or a dict as for `generate`.
        continuations: list of C token rows (lists of ints), such as the labels of a
            classification.
        padding_mask: bool (B, T), True for real tokens.
        jit_compile: bool, see `generate`.

    Returns: float32 NumPy array (B, C), natural logarithms, sums over the tokens.
        Divide by the lengths to compare continuations of different lengths.

    Raises:
        ValueError: as `generate`; no continuation, an empty one, an id out of range.

    Example:
        >>> model = keras_tfm.models.GPT(
        ...     vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=32, max_sequence_length=16,
        ... )
        >>> keras_tfm.generation.score(model, [[5, 7]], [[3], [4, 9]]).shape
        (1, 2)

    References: Brown et al. 2020, sec. 2.4, arXiv:2005.14165.
    """
    rows = [[int(i) for i in row] for row in continuations]
    if not rows or not all(rows):
        raise ValueError(
            "`continuations` must be token rows that are not empty, got "
            f"{[len(row) for row in rows]} tokens."
        )
    size, highest = vocabulary_of(model), max(max(row) for row in rows)
    if min(min(row) for row in rows) < 0 or (size is not None and highest >= size):
        raise ValueError(f"`continuations` must be ids below {size}, got {highest}.")
    length = max(len(row) for row in rows)
    ids, mask = np.zeros((len(rows), length), "int32"), np.zeros((len(rows), length))
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
    read = read_prompts(model, prompts, padding_mask)
    inputs, max_length = fit_to_buckets(model, read, length)
    inputs |= {"continuations": ids, "real": mask.astype("float32")}
    scorer = compiled(Scorer, model, jit_compile, inputs, max_length)
    return np.asarray(scorer.predict_on_batch(inputs))


class Scorer(Compiled):
    """Reads prompts once and continuations after each, compiled.

    Its one setting: int, one more than the tokens that the cache has room for.

    Call arguments:
        inputs: dict of prompts as for `Decoder.start`, and `continuations` int32
            and `real` float32 (C, L).

    Returns: float32 (B, C).
    """

    def call(self, inputs):
        prompt = inputs["token_ids"]
        batch, length = ops.shape(prompt)
        choices, width = ops.shape(inputs["continuations"])
        read = prefill(self.model, inputs, prompt, self.settings[0] - 1)
        tokens = ops.tile(inputs["continuations"], [batch, 1])  # (B C, L)
        copies = {
            name: keras.tree.map_structure(lambda x: repeat_rows(x, choices), value)
            for name, value in {**read, "logits": read["logits"][:, -1:]}.items()
            if value is not None
        }
        logits = copies["logits"]  # (B C, 1, V)
        if inputs["continuations"].shape[1] > 1:
            later, _ = self.model.call_with_cache(
                tokens[:, :-1],
                copies["cache"],
                ops.convert_to_tensor(length, "int32"),
                padding_mask=copies["padding_mask"],
                context_padding_mask=copies.get("context_mask"),
                positions=copies["count"] + ops.arange(width - 1, dtype="int32"),
            )
            logits = ops.concatenate([logits, later], axis=1)  # (B C, L, V)
        log_probs = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
        chosen = ops.take_along_axis(log_probs, ops.expand_dims(tokens, 2), axis=2)
        chosen = ops.reshape(chosen, (batch, choices, width))
        real = ops.expand_dims(inputs["real"], 0)
        return ops.sum(ops.where(real > 0, chosen, 0.0), axis=-1)
