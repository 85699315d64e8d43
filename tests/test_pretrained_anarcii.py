"""Real encoder-decoders that no family has, through a map of their own.

The package anarcii numbers the amino acids of antibodies. Its logits in float32 hang
on the order of sums: the reference is up to 4e-3 from itself in float64, and up to 2e-3
from itself in float32 on another machine. So the map is judged in float64.
"""

import functools
import json

import numpy as np
import pytest

from keras_tfm import generation, models
from keras_tfm.checkpoints.pytorch_arrays import read_pytorch
from keras_tfm.checkpoints.report import match
from keras_tfm.checkpoints.weight_map import (
    LINEAR,
    Entry,
    linear,
    norm,
    part_of,
    read_weight,
)
from tests.laws import HAS_FLOAT64, assert_near, to_numpy
from tests.real_weights import golden, package_folder
from tests.sources import ROOT

PATH = ROOT / "tests" / "golden" / "pretrained" / "anarcii.npz"
NAMES = ("antibody_4_1", "antibody_4_2", "shark_4_2", "tcr_4_1", "tcr_4_2")


@functools.cache
def recorded():
    with np.load(PATH) as file:
        return dict(file)


def torch_attention(ours, theirs):
    """Queries, keys and values in one array, as in PyTorch's own attention."""
    for index, name in enumerate(("query", "key", "value")):
        kernel = part_of(index, 3, layout=LINEAR)
        yield Entry(f"{ours}/{name}/kernel", f"{theirs}.in_proj_weight", kernel)
        yield Entry(f"{ours}/{name}/bias", f"{theirs}.in_proj_bias", part_of(index, 3))
    yield from linear(f"{ours}/output", f"{theirs}.out_proj")


def numbering_entries():
    """The map of the encoder-decoders of the package anarcii, which no family has."""
    for side, prefix in (("encoder", ""), ("decoder", "target_")):
        ours, theirs = f"{side}_block_{{i}}", f"{side}.layers.{{i}}"
        embedding = f"{prefix}token_embedding/embeddings"
        yield Entry(embedding, f"{side}.tok_embedding.weight")
        yield Entry(f"{prefix}position_embedding/table", f"{side}.pos_embedding.weight")
        parts = [("attention", "self_attention", "self_attn")]
        if side == "decoder":
            parts.append(("cross_attention", "encoder_attention", "enc_attn"))
        for part, name, short in parts:
            yield from torch_attention(
                f"{ours}/{part}", f"{theirs}.{name}.multihead_attn"
            )
            yield from norm(
                f"{ours}/{part}_residual/norm_after", f"{theirs}.{short}_layer_norm"
            )
        feed_forward = f"{theirs}.positionwise_feedforward"
        yield from linear(f"{ours}/feed_forward/up", f"{feed_forward}.fc_1")
        yield from linear(f"{ours}/feed_forward/down", f"{feed_forward}.fc_2")
        yield from norm(
            f"{ours}/feed_forward_residual/norm_after", f"{theirs}.ff_layer_norm"
        )
    yield Entry("output_head/kernel", "decoder.fc_out.weight", LINEAR)
    yield Entry("logits_bias/bias", "decoder.fc_out.bias")


def load(name, dtype):
    """A model of the package: learned positions, post-norm, a head of its own."""
    kind, heads, num_layers = name.split("_")
    stem = package_folder("anarcii") / "models" / kind / f"{name}_128_512"
    config = json.loads(stem.with_suffix(".json").read_text())
    model = models.Seq2SeqTransformer(
        config["INPUT_DIM"],
        int(num_layers),
        int(heads),
        config["HID_DIM"],
        4 * config["HID_DIM"],
        max_sequence_length=210,
        target_vocabulary_size=config["OUTPUT_DIM"],
        pad_token_id=config["SRC_PAD_IDX"],
        position="learned",
        tie_embeddings=False,
        logits_bias=True,
        dtype=dtype,
    )
    arrays = read_pytorch(stem.with_suffix(".pt"))
    report = match(model, arrays, tuple(numbering_entries()))
    assert not report.missing and not report.unused
    for weight in model.weights:
        if weight.path in report.used:
            weight.assign(read_weight(report.used[weight.path], arrays))
    return model


def teacher_forced(model):
    names = "source", "target"
    inputs = {f"{name}_token_ids": recorded()[name].astype("int32") for name in names}
    return to_numpy(model(inputs))


@pytest.mark.skipif(not HAS_FLOAT64, reason="the backend has no float64")
@pytest.mark.parametrize("name", NAMES)
def test_logits(name):
    logits = teacher_forced(load(name, "float64"))
    assert_near(logits, recorded()[f"{name}/logits"], atol=5e-5)


def test_float32_is_as_near_as_the_reference():
    exact = recorded()["antibody_4_2/logits"]
    theirs = np.abs(golden("anarcii_antibody")["logits"] - exact).max()
    ours = np.abs(teacher_forced(load("antibody_4_2", "float32")) - exact).max()
    assert ours < 2 * theirs


def test_numbers_of_an_antibody():
    source, numbers = (recorded()[k].astype("int32") for k in ("heavy", "numbers"))
    model = load("antibody_4_2", "float32")
    prompt = {"source_token_ids": source, "target_token_ids": numbers[:, :1]}
    new = numbers.shape[1] - 1
    made = generation.generate(model, prompt, new, stop_token_ids=(2,))
    np.testing.assert_array_equal(made, numbers)
