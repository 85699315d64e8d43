"""Tiny models with the cache protocol whose every probability is known."""

import keras
import numpy as np
from keras import ops


class TableModel(keras.Model):
    """The next token's logits depend on all tokens so far, through a number.

    The state, the only cache leaf, becomes (2 state + token + 1) mod `size`; `table`
    float (size, V) gives the logits. It is no key-value cache: a search that does not
    reorder it gives other results (FAULTS O39).
    """

    def __init__(self, table):
        super().__init__()
        self.size, self.vocabulary_size = table.shape
        self.table = self.add_weight(shape=table.shape, name="table")
        self.table.assign(table)
        self.built = True

    def init_cache(self, batch_size, max_length, context=None):
        return {"state": ops.zeros((batch_size, 1), "int32")}

    def call_with_cache(
        self,
        token_ids,
        cache,
        cache_index,
        padding_mask=None,
        context_padding_mask=None,
        positions=None,
    ):
        state, states = cache["state"], []
        for t in range(token_ids.shape[1]):
            token = token_ids[:, t : t + 1]
            new = ops.mod(2 * state + token + 1, self.size)
            if padding_mask is not None:
                real = ops.take(padding_mask, cache_index + t, axis=1)
                new = ops.where(ops.expand_dims(real, 1), new, state)
            state = new
            states.append(state)
        logits = ops.take(self.table, ops.concatenate(states, axis=1), axis=0)
        return logits, {"state": state}

    def log_probs(self, tokens):
        """Log-probabilities of the token after some tokens, in NumPy."""
        state = 0
        for token in tokens:
            state = (2 * state + token + 1) % self.size
        logits = ops.convert_to_numpy(self.table)[state].astype("float64")
        return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()


def log_table(probabilities):
    """Logits of a table of probabilities, 0 among them."""
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(probabilities, "float32"))


def all_answers(model, prompt, new, stops):
    """Every answer of up to `new` tokens and its log-probability."""
    answers, open_rows = {}, {(): 0.0}
    for step in range(new):
        longer = {}
        for row, total in open_rows.items():
            for token, value in enumerate(model.log_probs([*prompt, *row])):
                ended = token in stops or step == new - 1
                (answers if ended else longer)[(*row, token)] = total + value
        open_rows = longer
    return answers


class TrigramModel(keras.Model):
    """Logits of the next token from the last two, the first of them from the cache.

    The cache holds the tokens themselves, one place a position; `table` float
    (V, V, V) gives the logits. Where there is no real token, 0 stands.
    """

    def __init__(self, table):
        super().__init__()
        self.vocabulary_size = table.shape[0]
        self.table = self.add_weight(shape=table.shape, name="table")
        self.table.assign(table)
        self.built = True

    def init_cache(self, batch_size, max_length, context=None):
        return {"tokens": ops.zeros((batch_size, max_length), "int32")}

    def call_with_cache(
        self,
        token_ids,
        cache,
        cache_index,
        padding_mask=None,
        context_padding_mask=None,
        positions=None,
    ):
        real = padding_mask if padding_mask is not None else cache["tokens"] >= 0
        tokens = ops.slice_update(cache["tokens"], (0, cache_index), token_ids)
        places = ops.arange(token_ids.shape[1], dtype="int32") + cache_index
        seen = ops.where(real, tokens, 0)
        before = ops.take(seen, ops.maximum(places - 1, 0), axis=1)
        before = ops.where(places > 0, before, 0)
        last = ops.take(seen, places, axis=1)
        flat = ops.reshape(self.table, (-1, self.vocabulary_size))
        logits = ops.take(flat, before * self.vocabulary_size + last, axis=0)
        return logits, {"tokens": tokens}
