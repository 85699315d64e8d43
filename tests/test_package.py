"""The package as a whole: light to import, complete, registered under its name."""

import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys

import keras
import pytest

import keras_tfm
from tests.sources import ROOT, public_objects, sub_packages

PROMISED = {
    "layers": """causal_mask sliding_window_mask padding_mask combine_masks
        sinusoidal_table SinusoidalPositionEncoding LearnedPositionEmbedding
        PositionEmbedding2D RotaryEmbedding RelativePositionBias AlibiBias
        scaled_dot_product_attention MultiHeadAttention FeedForward GatedFeedForward
        MixtureOfExperts TransformerEncoderBlock TransformerDecoderBlock
        PatchEmbedding ClassToken DropPath LayerScale""",
    "models": """Bert BertPretrainer GPT ReplacedTokenDetector Seq2SeqTransformer
        VisionTransformer classifier""",
    "generation": """generate stream score Greedy Sample BeamSearch
        RepetitionPenalty NoRepeatNGram MinLength ForcedToken SuppressTokens OneOf
        Contrastive Speculative""",
    "export": """to_saved_model to_litert check_parity generation_to_saved_model
        generation_to_litert""",
    "visualize": "attention_map training_curves position_table similarity",
}
HEAVY = """tensorflow jax torch matplotlib keras_hub keras_nlp tensorflow_datasets
    tensorflow_text sklearn tokenizers sentencepiece sacrebleu num2words PIL
    safetensors ai_edge_litert gguf""".split()
NEVER_SAVED = {"Compiled", "Generator", "Start", "Advance", "Scorer"}
MEASURE = """
import sys, time
import keras
before, start = set(sys.modules), time.process_time()
import keras_tfm
seconds = time.process_time() - start
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(seconds, *sorted(new))
"""


def measure(backend):
    """CPU seconds that `import keras_tfm` adds to `import keras`, and what came in."""
    printed = subprocess.run(
        [sys.executable, "-c", MEASURE],
        env={**os.environ, "KERAS_BACKEND": backend},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return float(printed[0]), set(printed[1:])


def test_import_is_light():
    runs = [measure(keras.backend.backend()) for _ in range(2)]
    assert min(seconds for seconds, _ in runs) < 0.3
    assert not runs[0][1] & set(HEAVY)


def test_import_brings_no_tensorflow():
    pytest.importorskip("jax", reason="the jax backend shows it, and is not here")
    _, modules = measure("jax")
    assert "tensorflow" not in modules


@pytest.mark.parametrize("package", PROMISED)
def test_promised_names(package):
    module = importlib.import_module(f"keras_tfm.{package}")
    assert not set(PROMISED[package].split()) - set(module.__all__)
    assert getattr(keras_tfm, package) is module


@pytest.mark.parametrize("package", sub_packages())
def test_all_is_true(package):
    module = sub_packages()[package]
    assert len(module.__all__) == len(set(module.__all__))
    assert all(hasattr(module, name) for name in module.__all__)


def all_classes():
    """Classes defined anywhere in keras_tfm, with what Keras would write for them."""
    names = [
        module.name
        for module in pkgutil.walk_packages(keras_tfm.__path__, "keras_tfm.")
    ]
    return {
        cls
        for name in names
        for cls in vars(importlib.import_module(name)).values()
        if inspect.isclass(cls) and cls.__module__.startswith("keras_tfm.")
    }


def test_registered_under_the_package_name():
    # FAULTS O43: two classes under each other's name; O46: classes to be hand-passed.
    public = {thing for _, thing in public_objects() if inspect.isclass(thing)}
    saved = {
        cls
        for cls in all_classes()
        if cls.__name__ not in NEVER_SAVED
        if issubclass(cls, keras.layers.Layer)
        or (cls in public and hasattr(cls, "get_config"))
    }
    assert len(saved) > 20
    for cls in saved:
        name = f"keras_tfm>{cls.__name__}"
        assert keras.saving.get_registered_name(cls) == name
        assert keras.saving.get_registered_object(name) is cls


def test_public_functions_that_configs_name():
    # An activation or initializer of ours would be written by its registered name.
    for name, thing in public_objects():
        if inspect.isfunction(thing):
            assert thing.__name__ == name.rpartition(".")[2]


def test_one_version():
    setup = (ROOT / "setup.py").read_text("utf-8")
    version = re.search(r'version="([^"]+)"', setup).group(1)
    assert keras_tfm.__version__ == version
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text("utf-8")
