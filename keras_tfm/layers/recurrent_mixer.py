"""The contract of attention, kept by a layer that carries a state from token to token.

Letters: B batch, T length, D width, M positions that a cache is asked for.
"""

import keras
from keras import ops

from keras_tfm.layers.key_value_cache import check_built
from keras_tfm.layers.masks import as_rank_2, combine_masks
from keras_tfm.layers.real_tokens_first import from_front, moves_of, to_front
from keras_tfm.layers.values import refuse

NO_PAIRS = "it carries a state from token to token and has no pairs of tokens"


class RecurrentMixer:
    """Gives a layer `call`, `init_cache` and `call_with_cache` around its `mix`.

    The layer has `bidirectional`, and the methods

        mix(inputs, counts, cache) -> (outputs, cache)

    where row b of inputs (B, T, D) has `counts[b]` real tokens, the first ones (all, if
    `counts` is None), and the cache holds None for what is before the first token; and

        cache_leaves() -> dict from names to pairs of a shape, without B, and a dtype.
    """

    def call(
        self,
        inputs,
        context=None,
        padding_mask=None,
        attention_mask=None,
        attention_bias=None,
        positions=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
        mask=None,
        inputs_mask=None,
        context_mask=None,
    ):
        refuse(
            self,
            NO_PAIRS,
            context=context,
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            positions=positions,
            return_attention_scores=return_attention_scores,
        )
        if self.bidirectional:
            refuse(self, "it is bidirectional", use_causal_mask=use_causal_mask)
        padding_mask = combine_masks(padding_mask, mask, inputs_mask)
        nothing = dict.fromkeys(self.cache_leaves())
        return self._mix_real(inputs, padding_mask, nothing)[0]

    def init_cache(self, batch_size, max_length, context=None):
        """States before the first token; they do not grow.

        Args:
            batch_size: int or int tensor B.
            max_length: int M, any.
            context: None.

        Returns: dict of zeros.
        """
        check_built(self)
        refuse(self, NO_PAIRS, context=context)
        if self.bidirectional:
            raise ValueError(
                f"{self.name!r} is bidirectional: what comes later changes what came "
                "before, so it has no cache."
            )
        return {
            name: ops.reshape(ops.zeros((batch_size, *shape), dtype), (-1, *shape))
            for name, (shape, dtype) in self.cache_leaves().items()
        }

    def call_with_cache(
        self,
        inputs,
        cache,
        cache_index,
        padding_mask=None,
        context_padding_mask=None,
        positions=None,
    ):
        """Go on from the states in the cache.

        Args:
            inputs: float (B, T, D), the tokens at cache_index, cache_index + 1 ...
            cache: what `init_cache` or the last call gave.
            cache_index: int32 scalar tensor, how many tokens came before.
            padding_mask: bool (B, M), True for real tokens; others are passed over,
                whether they stand before, among or after the real ones.
            context_padding_mask: None.
            positions: None.

        Returns: pair of float (B, T, D) and the new cache.
        """
        check_built(self)
        masks = {"context_padding_mask": context_padding_mask}
        refuse(self, NO_PAIRS, positions=positions, **masks)
        if padding_mask is not None:
            new = ops.arange(ops.shape(inputs)[1], dtype="int32") + cache_index
            padding_mask = ops.take(as_rank_2(padding_mask), new, axis=1)  # (B, T)
        return self._mix_real(inputs, padding_mask, cache)

    def _mix_real(self, inputs, padding_mask, cache):
        inputs = ops.cast(inputs, self.compute_dtype)
        if padding_mask is None:
            return self.mix(inputs, None, cache)
        moves, counts = moves_of(as_rank_2(padding_mask))
        if inputs.shape[1] == 1:  # in its place, whether real or not
            return self.mix(inputs, counts, cache)
        outputs, cache = self.mix(to_front(inputs, moves), counts, cache)
        return from_front(outputs, moves), cache

    @property
    def wide_dtype(self):
        """Dtype of the state, float32 at least."""
        return keras.backend.result_type(self.compute_dtype, "float32")

    def compute_output_shape(self, inputs_shape, context_shape=None):
        return inputs_shape

    def compute_output_spec(
        self, inputs, context=None, return_attention_scores=False, **_
    ):
        wanted = {"return_attention_scores": return_attention_scores}
        refuse(self, NO_PAIRS, context=context, **wanted)
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)


def both_ways(scan, sequences, *more):
    """Sum of the outputs of a scan from either end, run as one of twice the batch.

    Args:
        scan: function of the sequences and `more` that gives outputs (B, T, ...) first.
        sequences: tensors (B, T, ...).
        *more: further arguments.
    """
    both = [ops.concatenate([x, ops.flip(x, 1)], axis=0) for x in sequences]
    one, other = ops.split(scan(*both, *more)[0], 2, axis=0)
    return one + ops.flip(other, 1)
