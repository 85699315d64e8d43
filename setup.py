"""Packaging of keras_tfm; `recipes` runs from a checkout and is not installed."""

import pathlib

from setuptools import find_packages, setup

CHECKPOINTS = [
    "gguf",
    "huggingface_hub",
    "onnx",
    "safetensors",
    "sentencepiece",
    "tensorflow-text",
]
RECIPES = [
    *CHECKPOINTS,
    "ai-edge-litert",
    "importlib_resources",
    "keras-nlp",
    "matplotlib",
    "num2words",
    "pillow",
    "sacrebleu",
    "scikit-learn",
    "sentencepiece",
    "tensorboard",
    "tensorflow-datasets",
    "tokenizers",
]
TESTS = [
    *RECIPES,
    "jax",
    "pytest",
    "pytest-xdist",
    "ruff",
    "tensorflow-serving-api",
]
BENCHMARKS = [
    *RECIPES,
    "ctranslate2",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "timm",
    "torch",
    "transformers",
]
DOCS = ["matplotlib", "mkdocs-material", "mkdocstrings[python]"]

setup(
    name="keras-tfm",
    version="0.1.0",
    description="Transformer layers, models and recipes for Keras 3.",
    long_description=pathlib.Path(__file__).with_name("README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    author="The keras_tfm authors",
    license="Apache-2.0",
    license_files=["LICENSE"],
    packages=find_packages(include=["keras_tfm", "keras_tfm.*"]),
    python_requires=">=3.11",
    install_requires=["keras>=3.15.1", "tensorflow", "numpy"],
    extras_require={
        "checkpoints": CHECKPOINTS,
        "recipes": RECIPES,
        "tests": TESTS,
        "docs": DOCS,
        "benchmarks": BENCHMARKS,
    },
    classifiers=[
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
