"""Seq2SeqTransformer against PyTorch, its masks, its cache."""

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
B, S, T = 2, 7, 5
VALUES = {
    "plain": {},
    "pre": {"norm_position": "pre", "target_vocabulary_size": 29},
    "rotary": {
        "attention": layers.MultiHeadAttention(3, rotary=layers.RotaryEmbedding(50.0))
    },
    "bias": {
        "attention": [
            layers.MultiHeadAttention(3, relative_bias=layers.RelativePositionBias(3)),
            layers.MultiHeadAttention(3, window=3),
        ],
        "num_decoder_layers": 3,
    },
}
kinds = pytest.mark.parametrize("kind", VALUES)


def make(kind):
    return randomize(models.Seq2SeqTransformer(**CONFIG, **VALUES[kind]))


def inputs(length=T, source_length=S, seed=0):
    """Sources of S and S - 2 tokens, targets of T tokens."""
    source = token_ids(B, source_length, vocabulary_size=29, seed=seed)
    source[1, -2:] = 0
    target = token_ids(B, length, vocabulary_size=29, seed=seed + 1)
    return {"source_token_ids": source, "target_token_ids": target}


@pytest.fixture(scope="module")
def golden():
    return np.load(ROOT / "tests" / "golden" / "transformer.npz")


PARTS = {
    "encoder": ("attention", "feed_forward"),
    "decoder": ("attention", "cross_attention", "feed_forward"),
}


def load(model, golden, kind):
    """Copy the golden weights of one PyTorch model into the blocks of ours."""

    def set_dense(layer, name, rows=slice(None), joiner="."):
        kernel, bias = (
            golden[f"{kind}/weights/{name}{joiner}{w}"][rows]
            for w in ("weight", "bias")
        )
        layer.set_weights([kernel.T, bias])

    def set_norm(layer, name):
        values = [golden[f"{kind}/weights/{name}.{w}"] for w in ("weight", "bias")]
        layer.set_weights(values)

    for side, blocks in (
        ("encoder", model.encoder_blocks),
        ("decoder", model.decoder_blocks),
    ):
        for i, block in enumerate(blocks):
            prefix = f"{side}.layers.{i}"
            set_dense(block.feed_forward.up, f"{prefix}.linear1")
            set_dense(block.feed_forward.down, f"{prefix}.linear2")
            for number, part in enumerate(PARTS[side], 1):
                residual = getattr(block, f"{part}_residual")
                norm = residual.norm_before or residual.norm_after
                set_norm(norm, f"{prefix}.norm{number}")
            for part, theirs in (
                ("attention", "self_attn"),
                ("cross_attention", "multihead_attn"),
            ):
                layer = getattr(block, part, None)
                if layer is None:
                    continue
                name = f"{prefix}.{theirs}"
                for j, each in enumerate((layer.query, layer.key, layer.value)):
                    rows = slice(12 * j, 12 * (j + 1))
                    set_dense(each, f"{name}.in_proj", rows, joiner="_")
                set_dense(layer.output_projection, f"{name}.out_proj")
        for norm in getattr(model, f"{side}_end"):
            set_norm(norm, f"{side}.norm")


@pytest.mark.parametrize("kind", ["post", "pre"])
def test_blocks_match_pytorch(golden, kind):
    model = models.Seq2SeqTransformer(**CONFIG, norm_position=kind)
    load(model, golden, kind)
    source_mask, target_mask = golden["source_mask"], golden["target_mask"]
    x = golden["source"]
    for block in model.encoder_blocks:
        x = block(x, padding_mask=source_mask)
    for norm in model.encoder_end:
        x = norm(x)
    encoded = golden[f"{kind}/encoded"]
    assert_near(to_numpy(x)[source_mask], encoded[source_mask])
    context, x = x, golden["target"]
    for block in model.decoder_blocks:
        x = block(
            x,
            context=context,
            padding_mask=target_mask,
            context_padding_mask=source_mask,
        )
    for norm in model.decoder_end:
        x = norm(x)
    decoded = golden[f"{kind}/decoded"]
    assert_near(to_numpy(x)[target_mask], decoded[target_mask])


def test_the_wiring_of_the_whole_model():
    model, given = make("plain"), inputs()
    table = to_numpy(model.token_embedding.embeddings)
    positions = to_numpy(layers.sinusoidal_table(S, 12))
    x = table[given["source_token_ids"]] * 12**0.5 + positions
    mask = given["source_token_ids"] != 0
    for block in model.encoder_blocks:
        x = block(x, padding_mask=mask)
    context = x
    x = table[given["target_token_ids"]] * 12**0.5 + positions[:T]
    for block in model.decoder_blocks:
        x = block(x, context=context, context_padding_mask=mask)
    logits = model(given)
    assert_near(logits, to_numpy(x) @ table.T, atol=1e-4)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    encoded, encoded_mask = model.encode(given["source_token_ids"])
    assert_near(encoded, context)
    np.testing.assert_array_equal(encoded_mask, mask)


@kinds
def test_causal(kind):
    model, given = make(kind), inputs()

    def run(ids):
        return to_numpy(model({**given, "target_token_ids": ids}))

    laws.later_tokens_change_nothing_before(
        run, given["target_token_ids"], lambda ids: 29 - ids
    )


@kinds
def test_padding(kind):  # FAULTS O09
    model, given = make(kind), inputs()
    plain = to_numpy(model(given))
    zeros = np.zeros((B, 3), "int32")
    longer = {k: np.concatenate([ids, zeros], axis=1) for k, ids in given.items()}
    assert_near(to_numpy(model(longer))[:, :T], plain, atol=1e-4)
    source = {**given, "source_token_ids": longer["source_token_ids"]}
    assert_near(model(source), plain, atol=1e-4)


def test_source_and_target_padding_stay_apart():  # FAULTS O09
    model = make("plain")
    table = model.token_embedding.embeddings
    for length in (6, 4):
        given = inputs(length, 6)
        given["target_token_ids"][0, -3:] = 0
        real = given["target_token_ids"] != 0
        before = to_numpy(model(given))[real]
        changed = to_numpy(table).copy()
        changed[0] = 9.0  # what stands at padding
        table.assign(changed)
        assert_near(to_numpy(model(given))[real][:, 1:], before[:, 1:], atol=1e-4)
        changed[0] = 0.0
        table.assign(changed)


@kinds
def test_cached_equals_full(kind):  # FAULTS O28
    model, given = make(kind), inputs(10, 10)
    full = to_numpy(model(given))
    context, mask = model.encode(given["source_token_ids"])
    chunks = [1] * 10, [10], [4, 1, 5]
    ids = given["target_token_ids"]
    where = {"chunks": chunks, "atol": 1e-4, "context_padding_mask": mask}
    for capacity in (10, 13):  # FAULTS O30
        laws.cached_equals_full(model, ids, full, capacity, context, **where)


def test_one_vocabulary_is_shared_and_tied(tmp_path):  # FAULTS O47
    shared, apart = make("plain"), make("pre")
    assert sum(37 in w.shape for w in shared.weights) == 1
    tables = {w.path: w.shape[0] for w in apart.weights if "embeddings" in w.path}
    assert tables == {
        "token_embedding/embeddings": 37,
        "target_token_embedding/embeddings": 29,
    }
    shared.save(tmp_path / "model.keras")
    model, given = keras.models.load_model(tmp_path / "model.keras"), inputs()
    before = to_numpy(model(given))
    table = to_numpy(model.token_embedding.embeddings).copy()
    table[36] += 1.0  # never fed
    model.token_embedding.embeddings.assign(table)
    moved = np.abs(to_numpy(model(given)) - before).max((0, 1)) > 1e-6
    assert np.flatnonzero(moved).tolist() == [36]


def test_each_side_has_its_own_number_of_layers():
    model = models.Seq2SeqTransformer(**CONFIG, num_decoder_layers=1)
    assert len(model.encoder_blocks) == 2 and len(model.decoder_blocks) == 1
    assert model.get_config()["num_decoder_layers"] == 1
    assert model.get_config()["target_vocabulary_size"] is None


def test_both_sides_count():
    model, given = make("plain"), inputs()
    for name in given:
        other = {**given, name: inputs(seed=5)[name]}
        assert differs(model(other), model(given))


@pytest.mark.parametrize(
    "given",
    [
        token_ids(2, 5),
        {"source_token_ids": token_ids(2, 5)},
        {**inputs(), "padding_mask": np.ones((2, 5), bool)},
    ],
    ids=["bare", "no target", "mask"],
)
def test_other_inputs_are_refused(given):
    with pytest.raises(
        ValueError, match="Inputs must be a dict with .*source_token_ids"
    ):
        make("plain")(given)


def test_refused():
    with pytest.raises(ValueError, match='`norm_position` must be "pre", "post" or'):
        models.Seq2SeqTransformer(**CONFIG, norm_position="none")
    with pytest.raises(ValueError, match="`context` must be given"):
        make("plain").init_cache(2, 4)


def test_named_sizes():
    model = models.Seq2SeqTransformer.from_size(
        "base", 11, max_sequence_length=8, num_layers=1
    )
    assert (model.hidden_dim, model.num_heads, model.intermediate_dim) == (512, 8, 2048)
    attention, norm = 4 * (512 * 512 + 512), 2 * 512
    feed_forward = 2 * 512 * 2048 + 512 + 2048
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    assert model.count_params() == 11 * 512 + encoder + decoder


def test_the_cache_index_is_one_tensor_for_all_layers():
    model, given = make("plain"), inputs()
    context, mask = model.encode(given["source_token_ids"])
    traces = []

    def step(ids, cache, index):
        traces.append(1)
        return model.call_with_cache(ids, cache, index, context_padding_mask=mask)

    step, cache = laws.compiled(step), model.init_cache(B, T, context)
    rows = []
    for i in range(T):
        ids = ops.convert_to_tensor(given["target_token_ids"][:, i : i + 1])
        logits, cache = step(ids, cache, ops.convert_to_tensor(i, "int32"))
        rows.append(to_numpy(logits))
    assert len(traces) == 1  # FAULTS O52
    assert_near(np.concatenate(rows, 1), model(given), atol=1e-4)
