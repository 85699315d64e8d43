"""Beam search and processors against Hugging Face Transformers' numbers.

tests/reference/beams.py made them, on the weights of tests/golden/gpt2.npz.
"""

import ast

import keras
import numpy as np
import pytest

from keras_tfm import models
from keras_tfm.generation import (
    BeamSearch,
    Greedy,
    MinLength,
    NoRepeatNGram,
    RepetitionPenalty,
    SuppressTokens,
    generate_with_scores,
)
from tests.sources import ROOT
from tests.test_gpt import CONFIG, their_value

NEW, STOP = 7, 5
PROCESSORS = {
    "no_repeat_ngram_size": NoRepeatNGram,
    "min_new_tokens": MinLength,
    "repetition_penalty": RepetitionPenalty,
    "suppress_tokens": SuppressTokens,
}


def reference_settings():
    """SETTINGS as the reference script builds them, without its imports."""
    path = ROOT / "tests" / "reference" / "beams.py"
    module = ast.parse(path.read_text(encoding="utf-8"))
    wanted = [
        node for node in module.body
        if isinstance(node, (ast.Assign, ast.AugAssign))
        and "SETTINGS" in ast.dump(node)
    ]  # fmt: skip
    names = {}
    exec(compile(ast.Module(wanted, []), str(path), "exec"), names)
    return names["SETTINGS"]


SETTINGS = reference_settings()


@pytest.fixture(scope="module")
def gpt2():
    golden = np.load(ROOT / "tests" / "golden" / "gpt2.npz")
    model = models.GPT(**CONFIG)
    for weight in model.weights:
        weight.assign(their_value(golden, weight.path))
    if keras.backend.backend() == "tensorflow":
        model.jit_compile = False  # 22 loops, each ready in half the time
    return model, golden["token_ids"], golden["padding_mask"]


@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_equals_the_reference(gpt2, number):
    model, ids, mask = gpt2
    golden, setting = np.load(ROOT / "tests" / "golden" / "beams.npz"), SETTINGS[number]
    width, strategy = setting["num_beams"], Greedy()
    if width > 1:
        strategy = BeamSearch(
            width,
            setting.get("length_penalty", 1.0),
            setting["early_stopping"] is True,
            num_return_sequences=width,
        )
    processors = [make(setting[k]) for k, make in PROCESSORS.items() if k in setting]
    found = generate_with_scores(
        model, ids, NEW, strategy, processors, [STOP], padding_mask=mask
    )
    new = found.token_ids[:, :, ids.shape[1] :]
    # Their processors count the ids below the padding mask, ours do not.
    rows = slice(1) if processors else slice(2)
    np.testing.assert_array_equal(new[rows], golden[f"tokens_{number}"][rows])
    if width > 1:
        scores = golden[f"scores_{number}"][rows]
        np.testing.assert_allclose(found.scores[rows], scores, atol=1e-4)
