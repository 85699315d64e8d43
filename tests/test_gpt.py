"""GPT against Hugging Face's GPT-2, its laws, its cache."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm import layers, models
from tests import laws
from tests.laws import assert_near, differs, randomize, to_numpy, token_ids
from tests.sources import ROOT

SIZES = {"num_layers": 2, "num_heads": 3, "hidden_dim": 12, "intermediate_dim": 20}
CONFIG = {"vocabulary_size": 37, **SIZES, "max_sequence_length": 16}
POSITIONS = {
    "learned": {},
    "sinusoidal": {"position": "sinusoidal"},
    "rotary": {
        "position": None,
        "attention": layers.MultiHeadAttention(3, rotary=layers.RotaryEmbedding()),
    },
    "alibi": {
        "position": None,
        "attention": layers.MultiHeadAttention(3, relative_bias=layers.AlibiBias(3)),
    },
    "mixed": {
        "attention": [
            layers.MultiHeadAttention(3, window=3),
            layers.MultiHeadAttention(6, num_key_value_heads=2, qk_norm="rms"),
        ],
        "feed_forward": layers.MixtureOfExperts(layers.GatedFeedForward(7), 3),
        "norm": "rms",
    },
    "untied": {"position": "sinusoidal", "tie_embeddings": False},
}
kinds = pytest.mark.parametrize("kind", POSITIONS)
NAMES = {
    "attention/output": "attn.c_proj",
    "attention_residual/norm_before": "ln_1",
    "feed_forward/up": "mlp.c_fc",
    "feed_forward/down": "mlp.c_proj",
    "feed_forward_residual/norm_before": "ln_2",
}


def make(kind):
    return randomize(models.GPT(**CONFIG, **POSITIONS[kind]))


@pytest.fixture(scope="module")
def golden():
    return np.load(ROOT / "tests" / "golden" / "gpt2.npz")


def their_value(golden, path):
    """The golden value of one of our weights; theirs are (in, out) as ours."""
    owner, kind = path.rsplit("/", 1)
    kind = "bias" if kind in ("bias", "beta") else "weight"
    tops = {
        "token_embedding": "wte",
        "position_embedding": "wpe",
        "final_norm": "ln_f",
    }
    if owner in tops:
        return golden[f"weights/transformer.{tops[owner]}.{kind}"]
    block, part = owner.split("/", 1)
    block = f"weights/transformer.h.{block.removeprefix('block_')}"
    if part in NAMES:
        return golden[f"{block}.{NAMES[part]}.{kind}"]
    thirds = np.split(golden[f"{block}.attn.c_attn.{kind}"], 3, axis=-1)
    return thirds[("query", "key", "value").index(part.removeprefix("attention/"))]


@pytest.fixture(scope="module")
def gpt2(golden):
    model = models.GPT(**CONFIG)
    for weight in model.weights:
        weight.assign(their_value(golden, weight.path))
    return model


def test_logits_match(golden, gpt2):  # FAULTS O58
    logits = gpt2(golden["token_ids"])
    assert_near(logits, golden["logits"], atol=1e-4)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"


def test_left_padded_logits_match(golden, gpt2):  # FAULTS O22
    mask = golden["padding_mask"]
    logits = gpt2({"token_ids": golden["token_ids"], "padding_mask": mask})
    assert_near(to_numpy(logits)[mask], golden["padded_logits"][mask], atol=1e-4)


def test_greedy_decoding_with_the_cache_matches(golden, gpt2):
    ids, expected = golden["token_ids"], golden["generated"]
    cache, index, fed = gpt2.init_cache(2, 16), 0, ids
    while ids.shape[1] < expected.shape[1]:
        position = ops.convert_to_tensor(index, "int32")
        logits, cache = gpt2.call_with_cache(fed, cache, position)
        index += fed.shape[1]
        fed = to_numpy(logits)[:, -1:].argmax(-1).astype("int32")
        ids = np.concatenate([ids, fed], axis=1)
    np.testing.assert_array_equal(ids, expected)


@kinds
def test_causal(kind):
    model = make(kind)
    laws.later_tokens_change_nothing_before(
        lambda ids: to_numpy(model(ids)), token_ids(2, 5), lambda ids: 37 - ids
    )


@kinds
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(kind, side):  # FAULTS O22
    model = make(kind)

    def run(ids, mask):
        return to_numpy(model({"token_ids": ids, "padding_mask": mask}))

    for padding in (np.zeros((2, 3), "int32"), token_ids(2, 3, seed=1)):
        laws.padding_changes_nothing(run, token_ids(2, 5), padding, side)


@kinds
def test_cached_equals_full(kind):  # FAULTS O27
    model, ids = make(kind), token_ids(2, 12)
    full = to_numpy(model(ids))
    for capacity in (12, 15):  # FAULTS O30
        chunks = ([1] * 12, [5, 1, 6])
        laws.cached_equals_full(model, ids, full, capacity, chunks=chunks, atol=1e-4)


@kinds
def test_cached_equals_full_with_left_padding(kind):  # FAULTS O27, O22
    model, ids = make(kind), token_ids(2, 8)
    mask = np.arange(8) >= [[3], [0]]
    positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0).astype("int32")
    full = to_numpy(model({"token_ids": ids, "padding_mask": mask}))
    covers = np.concatenate([mask, np.ones((2, 3), bool)], axis=1)
    where = {"padding_mask": covers, "positions": positions}
    laws.cached_equals_full(model, ids, full, 11, chunks=([8], [1] * 8), **where)
    alone = to_numpy(model(ids[:1, 3:]))
    assert_near(full[:1, 3:], alone, atol=1e-4)


@kinds
def test_a_padded_prompt_in_the_cache(kind):  # FAULTS O29
    model = make(kind)
    prompts, new = token_ids(2, 5), token_ids(2, 1, seed=1)
    mask = np.array([[1, 1, 1, 0, 0, 1], [1, 1, 1, 1, 1, 1]], bool)
    positions = np.array([[0, 1, 2, 2, 2, 3], [0, 1, 2, 3, 4, 5]], "int32")
    cache = model.init_cache(2, 6)
    start, end = (ops.convert_to_tensor(n, "int32") for n in (0, 5))
    where = {"padding_mask": mask}
    _, cache = model.call_with_cache(
        prompts, cache, start, positions=positions[:, :5], **where
    )
    logits, _ = model.call_with_cache(
        new, cache, end, positions=positions[:, 5:], **where
    )
    if kind in ("alibi", "mixed"):  # count places, and the gap is in between
        rows = [1]
    else:
        rows = [0, 1]
    for row in rows:
        real = prompts[row : row + 1, : mask[row, :5].sum()]
        whole = np.concatenate([real, new[row : row + 1]], axis=1)
        expected = to_numpy(model(whole))[:, -1:]
        assert_near(to_numpy(logits)[row : row + 1], expected, atol=1e-4)


def test_the_head_is_tied(tmp_path):  # FAULTS O47
    model, ids = make("learned"), token_ids(2, 5)
    assert sum(37 in w.shape for w in model.weights) == 1
    model.save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    table, before = model.token_embedding.embeddings, to_numpy(model(ids))
    changed = to_numpy(table).copy()
    unused = next(i for i in range(37) if i not in ids)
    changed[unused] += 1.0
    table.assign(changed)
    moved = np.abs(to_numpy(model(ids)) - before).max((0, 1)) > 1e-6
    assert np.flatnonzero(moved).tolist() == [unused]
    used = int(ids[0, 0])
    changed[used] += np.linspace(-1, 1, 12)
    table.assign(changed)
    assert np.all(np.abs(to_numpy(model(ids))[0] - before[0]).max(-1) > 1e-6)


def test_an_untied_head_is_a_matrix_of_its_own():
    model, ids = make("untied"), token_ids(2, 5)
    head = model.output_head
    assert [tuple(w.shape) for w in head.weights] == [(12, 37)]
    cache = model.init_cache(2, 5)
    hidden, _ = model.hidden_with_cache(ids, cache, ops.convert_to_tensor(0, "int32"))
    assert_near(model(ids), to_numpy(hidden) @ to_numpy(head.kernel), atol=1e-5)
    gradients = laws.gradients(
        lambda scale: scale * ops.sum(model(ids) ** 2), np.float32(1e-3), model
    )
    names = [w.path for w in model.trainable_weights]
    table = to_numpy(gradients[names.index("token_embedding/embeddings") + 1])
    assert set(np.flatnonzero(np.abs(table).max(1))) == set(ids.flatten().tolist())


def test_the_gradient_of_a_tied_head_is_the_sum_of_both_uses():  # FAULTS O47
    model, ids = make("learned"), token_ids(2, 5)
    table = model.token_embedding.embeddings
    at = [w is table for w in model.trainable_variables].index(True) + 1
    head = model.token_embedding

    def through(stop_input, stop_output):
        keep, stop = (lambda x: x), ops.stop_gradient
        into, out = (stop if flag else keep for flag in (stop_input, stop_output))

        def loss(scale):
            x = into(head(ids)) + model.position_embedding(ops.zeros((2, 5, 12)))
            for block in model.blocks:
                x = block(x)
            x = model.final_norm(x)
            logits = ops.matmul(x, ops.transpose(out(ops.convert_to_tensor(table))))
            return scale * ops.sum(logits**2)

        return laws.gradients(loss, np.float32(1e-3), model)[at]

    whole = laws.gradients(
        lambda scale: scale * ops.sum(model(ids) ** 2), np.float32(1e-3), model
    )[at]
    assert_near(through(False, False), whole)
    assert_near(through(False, True) + through(True, False), whole)


def test_decoding_adds_no_losses():
    model, ids = make("mixed"), token_ids(2, 1)
    cache = model.init_cache(2, 4)
    for i in range(3):
        index = ops.convert_to_tensor(i, "int32")
        _, cache = model.call_with_cache(ids, cache, index)
    assert model.losses == []
    model(ids, training=True)
    assert len(model.losses) == 4  # two in each layer


def test_position_none_has_no_position():
    one_layer = {**CONFIG, "num_layers": 1}
    model = randomize(models.GPT(**one_layer, position=None))
    ids = token_ids(1, 5)
    shuffled = ids[:, [2, 0, 3, 1, 4]]  # the last token sees the same set
    assert_near(to_numpy(model(shuffled))[:, -1], to_numpy(model(ids))[:, -1])
    long = token_ids(1, 40)
    assert model(long).shape == (1, 40, 37)
    assert differs(make("learned")(shuffled)[:, -1], make("learned")(ids)[:, -1])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"position": "rotary"}, "`position` must be \"learned\".*got 'rotary'"),
        ({"norm": "batch"}, '`norm` must be "layer" or "rms"'),
        ({"attention": "flash"}, "`attention` must be a Keras layer instance"),
    ],
)
def test_refused(config, message):
    with pytest.raises(ValueError, match=message):
        models.GPT(**CONFIG, **config)
