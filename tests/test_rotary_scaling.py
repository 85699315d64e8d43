import json
import pathlib

import numpy as np
import pytest
from keras import ops

from keras_tfm.layers.rotary_embedding import RotaryEmbedding
from keras_tfm.layers.rotary_scaling import (
    SCALINGS,
    check_scaling,
    rotary_attention_factor,
    rotary_frequencies,
)

# Made by tests/reference/rotary_scaling.py with Hugging Face Transformers.
GOLDEN = np.load(pathlib.Path(__file__).parent / "golden" / "rotary_scaling.npz")
CASES = sorted({key.split("/")[0] for key in GOLDEN.files if "/" in key})
LENGTHS = [int(length) for length in GOLDEN["lengths"]]
KEY_DIM = GOLDEN["queries"].shape[-1]
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LONGROPE = {
    "type": "longrope",
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "short_factor": (1, 1.5),
    "long_factor": np.array([2.0, 3.0]),
}


def scaling_of(name):
    return json.loads(str(GOLDEN[f"{name}/scaling"]))


def test_every_type_has_a_case():
    assert {scaling_of(name)["type"] for name in CASES} == set(SCALINGS)


@pytest.mark.parametrize("name", CASES)
def test_frequencies(name):
    scaling = check_scaling(scaling_of(name))
    expected_factor = GOLDEN[f"{name}/attention_factor"]
    np.testing.assert_allclose(rotary_attention_factor(scaling), expected_factor)
    for length, expected in zip(LENGTHS, GOLDEN[f"{name}/frequencies"]):
        found = rotary_frequencies(KEY_DIM, 10000.0, scaling, length)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        tensor = rotary_frequencies(KEY_DIM, 10000.0, scaling, ops.array(length))
        np.testing.assert_allclose(tensor, expected, rtol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_rotation(name):
    layer, queries = RotaryEmbedding(scaling=scaling_of(name)), GOLDEN["queries"]
    for length in LENGTHS:
        outputs = layer(queries, positions=np.array([0, 7, length - 1]))
        # The reference's own frequencies are float32: 1e-7 of up to 1000 radians.
        np.testing.assert_allclose(
            outputs, GOLDEN[f"{name}/rotated_{length}"], atol=1e-5 + 1e-7 * length
        )


def test_plain():
    expected = 100.0 ** -(np.arange(3) / 3)
    np.testing.assert_allclose(rotary_frequencies(6, 100.0), expected)
    assert rotary_attention_factor() == rotary_attention_factor(None) == 1.0
    assert check_scaling(None) is None


def test_within_the_original_length():
    plain = rotary_frequencies(4)
    dynamic = {**YARN, "type": "dynamic"}
    for length in (None, 1, 32):
        found = rotary_frequencies(4, scaling=dynamic, length=length)
        np.testing.assert_array_equal(found, plain)
    found = rotary_frequencies(4, scaling=dynamic, length=33)
    assert found[0] == 1 and found[1] < plain[1]
    found = rotary_frequencies(4, scaling=check_scaling(LONGROPE))
    np.testing.assert_allclose(found, plain / [1, 1.5])
    # One pair alone has the frequency 1, however long the text.
    found = rotary_frequencies(2, scaling=dynamic, length=1000)
    np.testing.assert_array_equal(found, [1.0])


def test_check_scaling_copies():
    scaling = check_scaling(LONGROPE)
    assert scaling["long_factor"] == [2.0, 3.0] and scaling is not LONGROPE
    assert scaling["short_factor"] == [1.0, 1.5]
    assert check_scaling(json.loads(json.dumps(scaling))) == scaling
    full = {**YARN, "truncate": False, "mscale": None, "beta_fast": 16}
    assert check_scaling(full) == full


def without(scaling, key):
    return {k: v for k, v in scaling.items() if k != key}


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ("yarn", "`scaling` must be a dict or None, got 'yarn'"),
        ({"factor": 2.0}, r'`scaling\["type"\]` must be one of .*, got None'),
        ({"type": "ntk", "factor": 2.0}, r"\['dynamic', .*'yarn'\], got 'ntk'"),
        (without(YARN, "factor"), 'type "yarn" needs .*factor.*, got'),
        ({**YARN, "beta": 1}, 'type "yarn" needs .*, got .*beta'),
        ({"type": "linear", "factor": 2.0, "mscale": 1}, 'type "linear" needs'),
        (without({**YARN, "type": "llama3"}, "x"), 'type "llama3" needs'),
        (without(LONGROPE, "factor"), "needs `factor` or `attention_factor`"),
        (
            {**YARN, "type": "llama3", "low_freq_factor": 4, "high_freq_factor": 4},
            "needs 0 < low_freq_factor < high_freq_factor, got 4 and 4",
        ),
        ({**YARN, "factor": 0.0}, r'`scaling\["factor"\]` must be > 0, got 0.0'),
    ],
)
def test_errors(scaling, message):
    with pytest.raises(ValueError, match=message):
        RotaryEmbedding(scaling=scaling)
