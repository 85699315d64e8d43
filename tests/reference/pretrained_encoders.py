"""Golden outputs of tiny encoders of every family from Hugging Face Transformers.

    python tests/reference/pretrained_encoders.py

Needs torch and transformers; writes tests/golden/pretrained/<family>.npz, which
tests/test_pretrained_encoders.py reads without either. A file holds `config`, JSON;
`prefix`, of the backbone's names in a model with a head; `arrays/<name without it>`,
everything that any of the family's classes saves; ids, segments and masks of two texts
padded on the right and on the left; and for every class `names/<class>`, what it
saves, and `<side>/<class>/<output>`.
"""

import json
import pathlib
import tempfile
import zlib

import numpy as np
import safetensors.numpy
import torch
import transformers

FOLDER = pathlib.Path(__file__).parents[1] / "golden" / "pretrained"
SIZES = {
    "vocab_size": 37,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "hidden_size": 12,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "hidden_dropout_prob": 0.2,
    "attention_probs_dropout_prob": 0.3,
    "num_labels": 5,
}
DISTILBERT = {
    "vocab_size": 37,
    "n_layers": 3,
    "n_heads": 3,
    "dim": 12,
    "hidden_dim": 20,
    "max_position_embeddings": 16,
    "num_labels": 5,
}
FAMILIES = {
    "bert": (
        transformers.BertConfig(**SIZES, layer_norm_eps=1e-5, hidden_act="gelu_new"),
        "Model ForPreTraining ForMaskedLM ForSequenceClassification",
    ),
    "roberta": (
        transformers.RobertaConfig(**SIZES, type_vocab_size=1, layer_norm_eps=1e-6),
        "Model ForMaskedLM ForSequenceClassification",
    ),
    "distilbert": (
        transformers.DistilBertConfig(**DISTILBERT, activation="relu"),
        "Model ForMaskedLM ForSequenceClassification",
    ),
    "albert": (
        transformers.AlbertConfig(
            **{**SIZES, "num_labels": 2}, embedding_size=8, num_hidden_groups=2
        ),
        "Model ForPreTraining ForMaskedLM ForSequenceClassification",
    ),
    "electra": (
        transformers.ElectraConfig(
            **SIZES, embedding_size=8, hidden_act="gelu_pytorch_tanh"
        ),
        "Model ForMaskedLM ForPreTraining ForSequenceClassification",
    ),
}


def random_weights(model, prefix):
    """Random numbers that hang on the name alone, without the backbone's prefix."""
    for name, weight in model.named_parameters():
        name = name.removeprefix(prefix)
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        center = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
        noise = 0.3 * rng.standard_normal(tuple(weight.shape))
        weight.data = torch.tensor(center + noise, dtype=torch.float32)
    return model.eval()


def texts(pad):
    """Ids, segments and mask of two texts on each side; padding has its own id."""
    rng = np.random.default_rng(0)
    ids = rng.integers(2, 37, (2, 7))
    segments = np.array([[0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0]])
    right = np.array([[1] * 7, [1] * 4 + [0] * 3])
    left = np.fliplr(right).copy()
    for side, mask, roll in (("right", right, 0), ("left", left, 3)):
        moved = np.stack([ids[0], np.roll(ids[1], roll)])
        kinds = np.stack([segments[0], np.roll(segments[1], roll)])
        yield side, np.where(mask, moved, pad), kinds * mask, mask


def saved(model):
    """The arrays that the library itself writes."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return safetensors.numpy.load_file(f"{folder}/model.safetensors")


def write(family, config, endings):
    """Run every class of a family and write its file."""
    config._attn_implementation = "eager"
    golden, base = {}, type(config).__name__.removesuffix("Config")
    kinds = getattr(config, "type_vocab_size", 1)
    for ending in endings.split():
        model = getattr(transformers, base + ending)(config)
        prefix = f"{model.base_model_prefix}."
        arrays = saved(random_weights(model, prefix))
        golden["prefix"] = np.array(prefix)
        for name, array in arrays.items():
            golden[f"arrays/{name.removeprefix(prefix)}"] = array
        golden[f"names/{base}{ending}"] = np.array(sorted(arrays))
        for side, ids, segments, mask in texts(config.pad_token_id):
            inputs = {"input_ids": ids, "attention_mask": mask}
            if kinds > 1:
                inputs["token_type_ids"] = segments
            with torch.no_grad():
                outputs = model(**{k: torch.tensor(v) for k, v in inputs.items()})
            golden.update({f"{side}/{k}": v for k, v in inputs.items()})
            for name, value in outputs.items():
                golden[f"{side}/{base}{ending}/{name}"] = value.numpy()
    golden["config"] = np.array(json.dumps(config.to_dict()))
    FOLDER.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(FOLDER / f"{family}.npz", **golden)


if __name__ == "__main__":
    for name, (settings, classes) in FAMILIES.items():
        write(name, settings, classes)
