"""Masked language modelling: who is hidden, behind what, and how often."""

import numpy as np
import pytest

from keras_tfm.data import MaskedLanguageModel, continuation_table, train_wordpiece

pytestmark = pytest.mark.tensorflow

PAD, CLS, SEP, MASK, A, B = 0, 2, 3, 4, 5, 6
V = 40
SPECIAL = (0, 1, 2, 3)


def draw(masker, row, times=1, seed=None):
    features, labels = masker(np.tile(np.array(row, "int32"), (times, 1)), seed)
    return features["token_ids"].numpy(), labels.numpy()


def test_specials_are_never_touched():  # FAULTS O60
    row = [CLS, A, B, SEP, PAD, PAD]
    masker = MaskedLanguageModel(V, MASK, SPECIAL, rate=1.0)
    ids, labels = draw(masker, row, times=10_000)
    assert (labels == [-100, A, B, -100, -100, -100]).all()
    assert (ids[:, [0, 3, 4, 5]] == [CLS, SEP, PAD, PAD]).all()
    inside = ids[:, 1:3]
    assert not set(inside.ravel().tolist()) & set(SPECIAL)
    assert (inside == MASK).mean() == pytest.approx(0.8, abs=0.02)
    kept = (inside == [A, B]).mean()
    assert kept == pytest.approx(0.1 + 0.1 / 35, abs=0.02)
    random = inside[(inside != MASK) & (inside != [A, B])]
    assert set(random.tolist()) == set(range(5, V))  # every ordinary token


def test_shares_are_what_was_asked():
    row = [A] * 50
    always = MaskedLanguageModel(V, MASK, SPECIAL, 1.0, 1.0, 0.0)
    assert (draw(always, row)[0] == MASK).all()
    random = MaskedLanguageModel(V, MASK, SPECIAL, 1.0, 0.0, 1.0)
    ids, _ = draw(random, row, times=20)
    assert not (ids == MASK).any() and len(np.unique(ids)) == V - 5
    keep = MaskedLanguageModel(V, MASK, SPECIAL, 1.0, 0.0, 0.0)
    ids, labels = draw(keep, row)
    assert (ids == A).all() and (labels == A).all()


def test_rate():
    masker = MaskedLanguageModel(V, MASK, SPECIAL)
    _, labels = draw(masker, [A] * 100, times=300)
    assert (labels != -100).mean() == pytest.approx(0.15, abs=0.01)
    _, labels = draw(MaskedLanguageModel(V, MASK, SPECIAL, rate=0.0), [A] * 9)
    assert (labels == -100).all()


def test_no_eligible_token():  # FAULTS O59, O60
    masker = MaskedLanguageModel(V, MASK, SPECIAL, rate=1.0)
    ids, labels = draw(masker, [CLS, SEP, MASK, PAD])
    assert ids.tolist() == [[CLS, SEP, MASK, PAD]]
    assert (labels == -100).all()
    ids, labels = draw(masker, [])
    assert ids.shape == labels.shape == (1, 0)


def test_padding_mask_decides_where_it_is_given():
    masker = MaskedLanguageModel(V, MASK, SPECIAL, rate=1.0)
    features = {
        "token_ids": np.array([[A, B, A]]),
        "padding_mask": np.array([[True, False, True]]),
        "segment_ids": np.array([[0, 0, 1]]),
    }
    out, labels = masker(features)
    assert labels.numpy().tolist() == [[A, -100, A]]
    assert out["token_ids"].numpy()[0, 1] == B
    assert set(out) == set(features)
    assert out["segment_ids"] is features["segment_ids"]
    assert features["token_ids"].tolist() == [[A, B, A]]  # not changed in place


def test_whole_words():
    continuation = np.arange(V) >= 30
    row = [CLS, 5, 30, 31, 6, 7, 32, SEP]  # words: 5 30 31 | 6 | 7 32
    masker = MaskedLanguageModel(
        V, MASK, SPECIAL, rate=0.5, is_continuation=continuation
    )
    _, labels = draw(masker, row, times=3000)
    hidden = labels != -100
    assert (hidden[:, 1] == hidden[:, 2]).all() and (hidden[:, 2] == hidden[:, 3]).all()
    assert (hidden[:, 5] == hidden[:, 6]).all()
    assert hidden.mean(axis=0)[[1, 4, 5]] == pytest.approx([0.5] * 3, abs=0.05)
    assert not hidden[:, [0, 7]].any()
    together = (hidden[:, 1] & hidden[:, 5]).mean()
    assert together == pytest.approx(0.25, abs=0.05)  # words are independent


def test_continuation_after_a_special_token_is_a_word():
    continuation = np.arange(V) >= 30
    masker = MaskedLanguageModel(
        V, MASK, SPECIAL, rate=0.5, is_continuation=continuation
    )
    _, labels = draw(masker, [5, SEP, 30, 31], times=500)
    hidden = labels != -100
    assert (hidden[:, 2] == hidden[:, 3]).all()
    assert (hidden[:, 0] != hidden[:, 2]).any()


def test_continuation_table():
    tokenizer = train_wordpiece(["low lower lowest newest"] * 9, 40)
    tokens = list(tokenizer.get_vocabulary())
    table = continuation_table(tokenizer)
    assert table.sum() > 0
    assert table.tolist() == [token.startswith("##") for token in tokens]


def test_seeds():
    row = [A] * 64
    one, two = (MaskedLanguageModel(V, MASK, SPECIAL, seed=1) for _ in range(2))
    first = draw(one, row)
    np.testing.assert_array_equal(first[0], draw(two, row)[0])
    assert not np.array_equal(first[0], draw(one, row)[0])  # the next draw
    same = [draw(one, row, seed=[3, 4])[0] for _ in range(2)]
    np.testing.assert_array_equal(*same)


def test_pipeline_hides_other_tokens_at_each_pass():
    import tensorflow as tf

    def passes():
        rows = np.full((4, 32), A, "int32")
        dataset = tf.data.Dataset.from_tensor_slices({"token_ids": rows}).batch(2)
        dataset = dataset.apply(MaskedLanguageModel(V, MASK, SPECIAL).transform)
        return [[y.numpy().tolist() for _, y in dataset] for _ in range(2)]

    first, second = passes()
    assert first[0] != first[1] and first != second
    assert [first, second] == passes()  # the same seed, the same passes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rate": 1.5}, r"`rate` must be in \[0, 1\], got 1.5"),
        ({"mask_share": -0.1}, r"`mask_share` must be in \[0, 1\], got -0.1"),
        ({"random_share": 0.5}, r"`random_share` must be at most 1, got 1.3"),
        ({"mask_id": 40}, r"`mask_id` must be in \[0, 40\), got 40"),
        ({"special_ids": range(40)}, "must leave a token that may be hidden"),
        ({"is_continuation": [True]}, r"must have shape \(40,\), got \(1,\)"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        MaskedLanguageModel(
            **{
                "vocabulary_size": V,
                "mask_id": MASK,
                "special_ids": SPECIAL,
                **arguments,
            }
        )
