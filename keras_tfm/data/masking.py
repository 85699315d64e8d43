"""Masked language modelling: which tokens are hidden, and behind what.

Letters: B batch, T length, V vocabulary_size.
"""

import numpy as np

IGNORE_ID = -100  # the label of a position that has no loss


class MaskedLanguageModel:
    """Hide tokens for BERT's pre-training and keep them as labels.

    Each eligible token is chosen with probability `rate`; a chosen one becomes
    the mask token (80 %), a random token (10 %) or stays (10 %). Special tokens and
    padding are never chosen and never used as a replacement. A row
    without an eligible token keeps all its tokens and has no label.

    Args:
        vocabulary_size: int V.
        mask_id: int, the mask token.
        special_ids: iterable of int: padding, [CLS], [SEP] ... `mask_id` is added.
        rate: float in [0, 1].
        mask_share: float, share of the chosen tokens that become `mask_id`.
        random_share: float, share that becomes a random token; the rest stays.
        is_continuation: bool (V,) or None. If given, whole words are chosen: a token
            with True (WordPiece's "##...") belongs to the word before it.
        ignore_id: int, the label of every token that was not chosen.
        seed: int, for calls without a seed of their own.

    Call arguments:
        features: int (B, T) or a dict with "token_ids" and perhaps "padding_mask".
        seed: int (2,) tensor or None. None draws on: each call hides other tokens. Use
            `transform` in a pipeline, which hands out seeds.

    Returns: `(features, labels)`: a dict with "token_ids" and "padding_mask" (and what
        else came in), and int32 (B, T) labels.

    Raises:
        ValueError: for rates outside [0, 1], a `mask_id` outside the vocabulary or a
            vocabulary of special tokens only.

    References: Devlin et al. 2018, sec. 3.1 and A.1, arXiv:1810.04805.
    """

    def __init__(
        self,
        vocabulary_size,
        mask_id,
        special_ids,
        rate=0.15,
        mask_share=0.8,
        random_share=0.1,
        is_continuation=None,
        ignore_id=IGNORE_ID,
        seed=0,
    ):
        shares = {"mask_share": mask_share, "random_share": random_share}
        for name, value in {"rate": rate, **shares}.items():
            if not 0 <= value <= 1:
                raise ValueError(f"`{name}` must be in [0, 1], got {value}.")
        if mask_share + random_share > 1 + 1e-9:
            raise ValueError(
                "`mask_share` + `random_share` must be at most 1, "
                f"got {mask_share + random_share}."
            )
        if not 0 <= mask_id < vocabulary_size:
            raise ValueError(
                f"`mask_id` must be in [0, {vocabulary_size}), got {mask_id}."
            )
        special = np.zeros(vocabulary_size, bool)
        special[[mask_id, *special_ids]] = True
        if special.all():
            raise ValueError("`special_ids` must leave a token that may be hidden.")
        if is_continuation is not None:
            is_continuation = np.asarray(is_continuation, bool)
            if is_continuation.shape != (vocabulary_size,):
                raise ValueError(
                    f"`is_continuation` must have shape ({vocabulary_size},), "
                    f"got {is_continuation.shape}."
                )
        self.vocabulary_size = vocabulary_size
        self.mask_id = mask_id
        self.rate = rate
        self.mask_share = mask_share
        self.random_share = random_share
        self.is_special = special
        self.is_continuation = is_continuation
        self.ignore_id = ignore_id
        self.seed = seed
        self._rng = np.random.default_rng(seed)

    def __call__(self, features, seed=None):
        import tensorflow as tf

        if not isinstance(features, dict):
            features = {"token_ids": features}
        if seed is None:
            seed = self._rng.integers(2**31, size=2)
        seeds = tf.random.split(tf.cast(seed, "int32"), 3)
        token_ids = tf.cast(features["token_ids"], "int32")  # (B, T)
        eligible = ~tf.gather(self.is_special, token_ids)
        padding_mask = features.get("padding_mask")
        if padding_mask is None:
            padding_mask = token_ids != 0
        padding_mask = tf.cast(padding_mask, "bool")
        eligible &= padding_mask
        chosen = eligible & (self._draws(token_ids, eligible, seeds[0]) < self.rate)
        hidden = self._replace(token_ids, seeds[1], seeds[2])
        labels = tf.where(chosen, token_ids, self.ignore_id)
        token_ids = tf.where(chosen, hidden, token_ids)
        features = {**features, "token_ids": token_ids, "padding_mask": padding_mask}
        return features, labels

    def transform(self, dataset):
        """Hide other tokens at each pass: `dataset.apply(masker.transform)`.

        Args:
            dataset: a `tf.data.Dataset` of batches of features.

        Returns: a `tf.data.Dataset` of `(features, labels)`; the same `seed`
            gives the same sequence of passes.
        """
        import tensorflow as tf

        seeds = tf.data.Dataset.random(self.seed, rerandomize_each_iteration=True)
        seeds = seeds.batch(2, drop_remainder=True)
        pairs = tf.data.Dataset.zip(dataset, seeds)
        return pairs.map(
            lambda features, seed: self(features, seed % 2**31),
            num_parallel_calls=tf.data.AUTOTUNE,
        )

    def _draws(self, token_ids, eligible, seed):
        """One uniform number per token, or per word where words are known."""
        import tensorflow as tf

        draws = tf.random.stateless_uniform(tf.shape(token_ids), seed)
        if self.is_continuation is None:
            return draws
        inside = tf.gather(self.is_continuation, token_ids) & eligible
        before = tf.pad(eligible[:, :-1], [[0, 0], [1, 0]])
        starts = tf.cast(~(inside & before), "int32")
        words = tf.cumsum(starts, axis=1) - 1  # (B, T) number of the word
        return tf.gather(draws, words, batch_dims=1)

    def _replace(self, token_ids, kind_seed, token_seed):
        """What would stand in each token's place if it were chosen."""
        import tensorflow as tf

        ordinary = np.flatnonzero(~self.is_special).astype("int32")
        shape = tf.shape(token_ids)
        places = tf.random.stateless_uniform(
            shape, token_seed, maxval=len(ordinary), dtype="int32"
        )
        kinds = tf.random.stateless_uniform(shape, kind_seed)
        stays_from = self.mask_share + self.random_share
        changed = tf.where(
            kinds < self.mask_share, self.mask_id, tf.gather(ordinary, places)
        )
        return tf.where(kinds < stays_from, changed, token_ids)


def continuation_table(tokenizer):
    """Say of each token whether it continues a word, for whole-word masking.

    Args:
        tokenizer: a WordPiece tokenizer.

    Returns: bool (V,), True for the tokens that begin with "##".
    """
    tokens = list(tokenizer.get_vocabulary())
    return np.array([token.startswith("##") for token in tokens])
