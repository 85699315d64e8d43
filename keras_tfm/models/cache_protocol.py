"""Decoding with a cache, in two steps: hidden states, and logits of them.

Letters: B batch, T length, M cache length, S source length, V vocabulary of the
target, D hidden_dim.
"""


class CacheProtocol:
    """Gives a model `call_with_cache` out of its two halves.

    The model has `hidden_with_cache`, of the same arguments, and `logits_of(hidden)`;
    `init_cache(batch_size, max_length, context)` makes the empty cache.
    """

    def call_with_cache(
        self,
        token_ids,
        cache,
        cache_index,
        padding_mask=None,
        context_padding_mask=None,
        positions=None,
    ):
        """Logits of new tokens, given those in the cache.

        Args:
            token_ids: int (B, T), the tokens at cache_index, cache_index + 1 ...
            cache: what `init_cache` or the last call gave.
            cache_index: int32 scalar tensor, how many tokens are in the cache.
            padding_mask: bool (B, M), True for real tokens; prompts of different
                lengths are padded on the left.
            context_padding_mask: bool (B, S), from `encode`; None without an encoder.
            positions: int (T,) or (B, T), counting real tokens; cache_index, ...
                unless given.

        Returns: pair of float32 (B, T, V) and the new cache.
        """
        hidden, cache = self.hidden_with_cache(
            token_ids,
            cache,
            cache_index,
            padding_mask=padding_mask,
            context_padding_mask=context_padding_mask,
            positions=positions,
        )
        return self.logits_of(hidden), cache
