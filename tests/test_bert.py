"""Bert and BertPretrainer against Hugging Face, and the laws of an encoder."""

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
NAMES = {
    "attention/query": "attention.self.query",
    "attention/key": "attention.self.key",
    "attention/value": "attention.self.value",
    "attention/output": "attention.output.dense",
    "attention_residual/norm_after": "attention.output.LayerNorm",
    "feed_forward/up": "intermediate.dense",
    "feed_forward/down": "output.dense",
    "feed_forward_residual/norm_after": "output.LayerNorm",
}
OTHERS = {
    "token_embedding/embeddings": "bert.embeddings.word_embeddings.weight",
    "segment_embedding/embeddings": "bert.embeddings.token_type_embeddings.weight",
    "position_embedding/table": "bert.embeddings.position_embeddings.weight",
    "embedding_norm": "bert.embeddings.LayerNorm",
    "pooler": "bert.pooler.dense",
    "token_transform": "cls.predictions.transform.dense",
    "token_norm": "cls.predictions.transform.LayerNorm",
    "token_logits/bias": "cls.predictions.bias",
    "next_sentence_logits": "cls.seq_relationship",
}


def their_name(path):
    """The name of one of our weights in the golden file."""
    if path in OTHERS:
        return OTHERS[path]
    owner, kind = path.rsplit("/", 1)
    if owner in OTHERS:
        owner = OTHERS[owner]
    else:
        block, part = owner.split("/", 1)
        owner = f"bert.encoder.layer.{block.removeprefix('block_')}.{NAMES[part]}"
    return f"{owner}.{'bias' if kind in ('bias', 'beta') else 'weight'}"


@pytest.fixture(scope="module")
def golden():
    return np.load(ROOT / "tests" / "golden" / "bert.npz")


@pytest.fixture(scope="module")
def pretrainer(golden):
    model = models.BertPretrainer(models.Bert(**CONFIG))
    used = set()
    for weight in model.weights:
        name = their_name(weight.path)
        value = golden[f"weights/{name}"]
        weight.assign(value.T if weight.path.endswith("kernel") else value)
        used.add(f"weights/{name}")
    assert used == {name for name in golden.files if name.startswith("weights/")}
    return model


def inputs_of(golden):
    return {k: golden[k] for k in ("token_ids", "segment_ids", "padding_mask")}


def test_hidden_states_match(golden, pretrainer):
    model = pretrainer.backbone
    states = [model.get_layer("embedding_dropout"), *model.blocks]
    probe = keras.Model(model.input, [layer.output for layer in states])
    real = golden["padding_mask"]
    for actual, expected in zip(probe(inputs_of(golden)), golden["hidden_states"]):
        assert_near(to_numpy(actual)[real], expected[real])
    outputs = model(inputs_of(golden))
    assert_near(outputs["pooled_output"], golden["pooled_output"])


def test_heads_match(golden, pretrainer):  # FAULTS O61
    outputs = pretrainer(inputs_of(golden))
    real = golden["padding_mask"]
    assert_near(
        to_numpy(outputs["token_logits"])[real], golden["token_logits"][real], atol=1e-4
    )
    assert_near(outputs["next_sentence_logits"], golden["next_sentence_logits"])
    for logits in outputs.values():
        assert keras.backend.standardize_dtype(logits.dtype) == "float32"


def test_segments_count_and_default_to_zeros(golden, pretrainer):  # FAULTS O61
    inputs = inputs_of(golden)
    zeros = {**inputs, "segment_ids": np.zeros_like(inputs["segment_ids"])}
    left_out = {k: v for k, v in inputs.items() if k != "segment_ids"}
    one, other = pretrainer(inputs), pretrainer(zeros)
    assert differs(one["next_sentence_logits"], other["next_sentence_logits"])
    assert_near(pretrainer(left_out)["token_logits"], other["token_logits"])


def test_the_pooled_output_reads_the_first_token():
    model = randomize(models.Bert(**CONFIG))
    outputs = model(token_ids(2, 5))
    first = to_numpy(outputs["sequence_output"])[:, 0]
    pooler = model.get_layer("pooler")
    assert_near(outputs["pooled_output"], pooler(first))


@pytest.mark.parametrize("side", ["right"])
def test_padding(side):  # positions are absolute, so padding goes to the right
    model = randomize(models.Bert(**CONFIG))

    def run(ids, mask):
        outputs = model({"token_ids": ids, "padding_mask": mask})
        return to_numpy(outputs["sequence_output"])

    for padding in (np.zeros((2, 3), "int32"), token_ids(2, 3, seed=1)):
        laws.padding_changes_nothing(run, token_ids(2, 5), padding, side)


def test_only_the_mask_says_what_is_padding():  # FAULTS O05
    model = randomize(models.Bert(**CONFIG))
    table = to_numpy(model.token_embedding.embeddings).copy()
    table[5], table[6] = 0.0, [1, -1] * 6
    model.token_embedding.embeddings.assign(table)
    ids = np.array([[5, 6, 7, 0]], "int32")
    plain = to_numpy(model(ids)["sequence_output"])
    for i in range(4):  # each token, whatever its vector or id, is attended to
        mask = np.ones((1, 4), bool)
        mask[0, i] = False
        masked = model({"token_ids": ids, "padding_mask": mask})["sequence_output"]
        others = [t for t in range(4) if t != i]
        assert differs(to_numpy(masked)[:, others], plain[:, others])


def test_the_head_is_tied(pretrainer, golden, tmp_path):  # FAULTS O47
    model = models.BertPretrainer(models.Bert(**CONFIG))
    model.set_weights(pretrainer.get_weights())
    model.save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    sizes = [w.path for w in model.weights if 37 in w.shape]
    assert sorted(sizes) == ["token_embedding/embeddings", "token_logits/bias"]
    before = to_numpy(model(inputs_of(golden))["token_logits"])
    table = to_numpy(model.backbone.token_embedding.embeddings).copy()
    unused = next(i for i in range(37) if i not in golden["token_ids"])
    table[unused] += 1.0
    model.backbone.token_embedding.embeddings.assign(table)
    after = to_numpy(model(inputs_of(golden))["token_logits"])
    moved = np.abs(after - before).max((0, 1)) > 1e-6
    assert np.flatnonzero(moved).tolist() == [unused]


def test_the_backbone_is_trained_not_copied(pretrainer):
    backbone = models.Bert(**CONFIG)
    model = models.BertPretrainer(backbone)
    assert model.backbone is backbone
    assert {id(w) for w in backbone.weights} <= {id(w) for w in model.weights}


def test_epsilon_and_activation_reach_every_layer():  # FAULTS O57
    model = models.Bert(**CONFIG, norm_epsilon=1e-3, activation=layers.gelu_tanh)
    norms = [
        layer
        for layer in models.BertPretrainer(model)._flatten_layers()
        if isinstance(layer, keras.layers.LayerNormalization)
    ]
    assert len(norms) == 6 and all(norm.epsilon == 1e-3 for norm in norms)
    x = ops.convert_to_tensor(np.array([-2.7], "float32"))
    for block in model.blocks:
        assert_near(block.feed_forward.activation(x), [-0.0088876], atol=1e-6)


def test_configs_of_before_still_load():
    model = models.Bert(**CONFIG)
    names = ("embedding_dim", "num_blocks", "positions", "pooler_activation")
    config = {k: v for k, v in model.get_config().items() if k not in names}
    old = models.Bert.from_config(config)
    assert [w.path for w in old.weights] == [w.path for w in model.weights]
    assert old.get_config() == model.get_config()
    config = models.BertPretrainer(model).get_config()
    for name in ("next_sentence", "activation"):
        del config[name]
    assert len(models.BertPretrainer.from_config(config).weights) == 46


@pytest.mark.parametrize("num_blocks, order", [(1, [0] * 5), (2, [0, 0, 0, 1, 1])])
def test_blocks_are_run_several_times(num_blocks, order):
    model = models.Bert(**{**CONFIG, "num_layers": 5}, num_blocks=num_blocks)
    randomize(model)
    inputs = keras.tree.map_structure(np.asarray, model.complete(token_ids(2, 5)))
    embedded = model.get_layer("embedding_dropout").output
    state = keras.Model(model.input, embedded)(inputs)
    for i in order:
        state = model.blocks[i](state)
    assert_near(model(inputs)["sequence_output"], state)


def test_positions_of_real_tokens():
    model = randomize(models.Bert(**CONFIG, positions="real"))
    ids = token_ids(2, 5)

    def run(ids, mask):
        outputs = model({"token_ids": ids, "padding_mask": mask})
        return to_numpy(outputs["sequence_output"])

    for side in ("left", "right"):
        laws.padding_changes_nothing(run, ids, np.zeros((2, 3), "int32"), side)
    assert model.get_layer("position_embedding").table.shape == (17, 12)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"num_blocks": 3}, "`num_blocks` must be from 1 to `num_layers`"),
        ({"num_blocks": 0}, "`num_blocks` must be"),
        ({"positions": "some"}, '`positions` must be "all" or "real"'),
    ],
)
def test_wirings_that_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        models.Bert(**CONFIG, **changes)
    model = models.Bert(**CONFIG, num_segments=0)
    with pytest.raises(ValueError, match="got the keys .*segment_ids"):
        model({"token_ids": token_ids(2, 5), "segment_ids": token_ids(2, 5)})
