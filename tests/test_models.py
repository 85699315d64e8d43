"""What all models promise: the battery, sizes, inputs that may be left out."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm import layers, models
from keras_tfm.models import sizes
from tests.battery import Case, check_layer, label
from tests.exports import Reader, check_exports
from tests.laws import (
    POLICIES,
    assert_near,
    differs,
    normal,
    randomize,
    to_numpy,
    token_ids,
)

SMALL = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
TEXT = {"vocabulary_size": 31, **SMALL, "max_sequence_length": 16}
VALUES = {
    "attention": [
        layers.MultiHeadAttention(4, num_key_value_heads=2, window=3),
        layers.MultiHeadAttention(2, rotary=layers.RotaryEmbedding()),
    ],
    "feed_forward": layers.GatedFeedForward(5),
}


def text(batch, length):
    return {"token_ids": token_ids(batch, length), "padding_mask": keep(batch, length)}


def keep(batch, length):
    return np.arange(length) < length - np.arange(batch)[:, np.newaxis]


def segmented(batch, length):
    segments = (np.arange(length) > 1).astype("int32")
    return {
        **text(batch, length),
        "segment_ids": np.tile(segments, (batch, 1)),
    }


def pairs(batch, length):
    target = token_ids(batch, length, vocabulary_size=29) * keep(batch, length)
    return {
        "source_token_ids": token_ids(batch, length + 2),
        "target_token_ids": target.astype("int32"),
    }


def images(batch, _):
    return normal(batch, 4, 6, 1)


BERT = {
    **TEXT,
    **VALUES,
    "num_layers": 3,
    "remat": True,
    "num_segments": 3,
    "dropout": 0.2,
    "activation": "relu",
    "norm_epsilon": 1e-5,
    "embedding_dim": 6,
    "num_blocks": 2,
    "positions": "real",
    "pooler_activation": "relu",
}
GPT = {
    **TEXT,
    **VALUES,
    "remat": True,
    "dropout": 0.2,
    "activation": "relu",
    "position": "sinusoidal",
    "norm": "rms",
    "norm_epsilon": 1e-6,
    "tie_embeddings": False,
}
PAIR = {
    **TEXT,
    **VALUES,
    "remat": True,
    "num_decoder_layers": 1,
    "target_vocabulary_size": 29,
    "dropout": 0.2,
    "norm_position": "pre",
    "activation": "gelu",
    "pad_token_id": 5,
    "position": "learned",
    "scale_embedding": False,
    "embedding_norm": True,
    "norm_epsilon": 1e-6,
    "tie_embeddings": False,
    "logits_bias": True,
}
IMAGE = {
    **SMALL,
    **VALUES,
    "remat": True,
    "image_size": (4, 6),
    "patch_size": (2, 3),
    "pooling": "pooler",
    "channels": 1,
    "activation": "relu",
    "distillation_token": True,
    "dropout": 0.2,
    "drop_path": 0.1,
    "layer_scale": 0.5,
    "norm_epsilon": 1e-5,
}
CASES = [
    Case(models.Bert, BERT, segmented, 3 + 2 + 2 + 2 * 15 + 2),
    Case(models.GPT, GPT, text, 1 + 2 * 13 + 2),
    Case(models.Seq2SeqTransformer, PAIR, pairs, 4 + 4 + 2 * 15 + 2 + 25 + 2 + 2),
    Case(models.VisionTransformer, IMAGE, images, 4 + 1 + 2 * 17 + 4, free=(0,)),
]
PLAIN = {
    "bert": (models.Bert, TEXT, segmented),
    "gpt": (models.GPT, TEXT, text),
    "seq2seq": (models.Seq2SeqTransformer, TEXT, pairs),
    "vit": (
        models.VisionTransformer,
        {**SMALL, "image_size": 4, "patch_size": 2},
        None,
    ),
}


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    process = Reader(tmp_path_factory.mktemp("reader"))
    yield process
    process.close()


@pytest.mark.parametrize("case", CASES, ids=label)
def test_model(case, tmp_path):
    check_layer(case, tmp_path)


@pytest.mark.tensorflow
@pytest.mark.parametrize("case", CASES, ids=label)
def test_exports(case, tmp_path, reader):
    check_exports(case, tmp_path, reader)


SIZES = {
    "bert-base": (models.Bert, "base", 109_482_240),
    "bert-large": (models.Bert, "large", 335_141_888),
    "gpt2": (models.GPT, "gpt2", 124_439_808),
    "gpt3-175b": (models.GPT, "gpt3-175b", 174_604_259_328),
}


@pytest.mark.parametrize("size", SIZES)
def test_parameter_count(size):
    assert models.parameter_count(size) == SIZES[size][2]


@pytest.mark.slow
@pytest.mark.parametrize("size", ["bert-base", "gpt2"])
def test_published_sizes(size):
    cls, name, count = SIZES[size]
    assert cls.from_size(name).count_params() == count
    keras.backend.clear_session()


@pytest.mark.slow
def test_published_size_of_the_vision_transformer():
    backbone = models.VisionTransformer.from_size("base")
    assert models.classifier(backbone, 1000).count_params() == 86_567_656


@pytest.mark.parametrize("size", ["bert-tiny", "gpt2"])
def test_arithmetic_and_models_agree(size):
    cls, name = (models.Bert, "tiny") if size == "bert-tiny" else (models.GPT, "gpt2")
    shrunk = {"vocabulary_size": 11, "max_sequence_length": 9}
    if size == "gpt2":  # of the same wiring, with fewer layers
        shrunk["num_layers"] = 1
    model = cls.from_size(name, **shrunk)
    full = (sizes.BERT_SIZES if cls is models.Bert else sizes.GPT_SIZES)[name]
    rows = full["vocabulary_size"] + full["max_sequence_length"] - 20
    block = sum(int(np.prod(w.shape)) for w in model.blocks[0].weights)
    missing = full["num_layers"] - model.num_layers
    expected = model.count_params() + rows * model.hidden_dim + missing * block
    assert models.parameter_count(size) == expected


def test_unknown_sizes_are_refused():
    for make in (models.Bert.from_size, models.GPT.from_size, models.parameter_count):
        with pytest.raises(ValueError, match="`size` must be one of .* got 'huge2'"):
            make("huge2")


def test_a_named_size_can_be_changed():
    model = models.Bert.from_size("tiny", vocabulary_size=9, num_layers=1, dropout=0.0)
    assert (model.vocabulary_size, model.num_layers, model.dropout) == (9, 1, 0.0)
    assert model.hidden_dim == 128


@pytest.mark.parametrize("cls", [models.Bert, models.GPT])
def test_optional_inputs_may_be_missing(cls):
    model, ids = randomize(cls(**TEXT)), token_ids(2, 5)
    whole = segmented(2, 5) if cls is models.Bert else text(2, 5)
    whole["token_ids"] = ids
    whole["padding_mask"] = np.ones((2, 5), bool)
    if "segment_ids" in whole:
        whole["segment_ids"] = np.zeros((2, 5), "int32")
    expected = keras.tree.flatten(to_numpy(model(whole)))
    for given in (ids, {"token_ids": ids}):
        for run in (model, lambda x: model.predict(x, verbose=0)):
            for actual, wanted in zip(keras.tree.flatten(run(given)), expected):
                assert_near(actual, wanted)
    inputs = keras.Input((None,), dtype="int32")
    nested = keras.Model(inputs, model({"token_ids": inputs}))
    for actual, wanted in zip(keras.tree.flatten(nested(ids)), expected):
        assert_near(actual, wanted)


@pytest.mark.parametrize("cls", [models.Bert, models.GPT])
def test_unknown_inputs_are_refused(cls):
    model, ids = cls(**TEXT), token_ids(2, 5)
    with pytest.raises(ValueError, match="got the keys .*token_type_ids"):
        model({"token_ids": ids, "token_type_ids": ids})
    with pytest.raises(ValueError, match="with `token_ids`.*got the keys"):
        model({"padding_mask": ids > 0})
    with pytest.raises(ValueError, match="got the keys .*token_type_ids"):
        symbols = keras.Input((None,), dtype="int32")
        model({"token_ids": symbols, "token_type_ids": symbols})


def test_the_pretrainer_completes_its_inputs_too():
    model, ids = models.BertPretrainer(randomize(models.Bert(**TEXT))), token_ids(2, 5)
    zeros = np.zeros_like(ids)
    whole = {"token_ids": ids, "segment_ids": zeros, "padding_mask": ids > 0}
    expected, actual = model(whole), model(ids)
    for key in ("token_logits", "next_sentence_logits"):
        assert_near(actual[key], expected[key])


@pytest.mark.parametrize("name", ["bert", "gpt", "seq2seq"])
def test_lengths_past_the_limit_are_refused(name):  # FAULTS O25
    cls, config, make = PLAIN[name]
    model = cls(**config)
    model(make(2, 14))
    long = keras.tree.map_structure(lambda x: np.concatenate([x, x], 1), make(2, 14))
    with pytest.raises(ValueError, match="has length .* `max_sequence_length` is 16"):
        model(long)
    if name != "bert":
        with pytest.raises(ValueError, match="`max_length` is 17"):
            context = ops.zeros((2, 3, 8)) if name == "seq2seq" else None
            model.init_cache(2, 17, context)


@pytest.mark.parametrize("name", ["bert", "gpt", "seq2seq"])
def test_heads_that_do_not_divide_are_refused(name):
    cls, config, _ = PLAIN[name]
    with pytest.raises(ValueError, match="`num_heads` must divide the width.*got 3"):
        cls(**{**config, "num_heads": 3})


@pytest.mark.parametrize("cls", [models.Bert, models.GPT])
def test_values_are_cycled_over_the_layers(cls):
    model = cls(**{**TEXT, "num_layers": 3}, **VALUES)
    windows = [block.attention.window for block in model.blocks]
    assert windows == [3, None, 3]
    assert all(block.feed_forward.intermediate_dim == 5 for block in model.blocks)
    again = cls.from_config(model.get_config())
    assert [block.attention.window for block in again.blocks] == windows


@pytest.mark.parametrize("case", [CASES[0], CASES[3]], ids=label)
def test_a_frozen_model_stays_frozen_inside_a_classifier(case, tmp_path):
    backbone = case.make(trainable=False)
    assert not backbone.trainable_weights
    model = models.classifier(backbone, 3)
    assert len(model.trainable_weights) == 2
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert len(loaded.trainable_weights) == 2


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("cls", [models.Bert, models.VisionTransformer])
def test_classifiers_give_float32_logits(cls, policy):
    config = TEXT if cls is models.Bert else PLAIN["vit"][1]
    model = models.classifier(cls(**config, dtype=policy), 5, dropout=0.1, name="mine")
    inputs = segmented(2, 5) if cls is models.Bert else normal(2, 4, 4, 3)
    logits = model(inputs)
    assert logits.shape == (2, 5) and model.name == "mine"
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert model.layers[-1].name == "logits"


def test_a_classifier_pools_the_mean_of_real_tokens(tmp_path):
    model = randomize(models.classifier(models.Bert(**TEXT), 3, pooling="mean"))
    given = segmented(2, 5)
    states = to_numpy(model.backbone(given)["sequence_output"])
    real = given["padding_mask"][:, :, None]
    pooled = (states * real).sum(axis=1) / real.sum(axis=1)
    kernel, bias = model.layers[-1].get_weights()
    assert_near(model(given), pooled @ kernel + bias)
    model.save(tmp_path / "model.keras")
    assert_near(keras.models.load_model(tmp_path / "model.keras")(given), model(given))


def test_a_classifier_needs_two_classes():
    with pytest.raises(ValueError, match="`num_classes` must be at least 2, got 1"):
        models.classifier(models.Bert(**TEXT), 1)
    with pytest.raises(ValueError, match="\"token_and_mean\", got 'max'"):
        models.classifier(models.Bert(**TEXT), 2, pooling="max")


def test_a_class_survives_and_a_clone_does_not():
    model = randomize(models.GPT(**TEXT))
    again = models.GPT.from_config(model.get_config())
    again.set_weights(model.get_weights())
    assert type(again) is models.GPT
    assert_near(again(token_ids(2, 5)), model(token_ids(2, 5)), atol=1e-6)
    assert type(keras.models.clone_model(model)) is not models.GPT  # as the docs say


def test_layers_of_a_model_are_initialised_each_by_itself():
    model = models.GPT(**TEXT)
    kernels = [block.attention.query.kernel for block in model.blocks]
    assert differs(kernels[0], kernels[1], atol=1e-6)
