"""Golden checkpoints of tiny encoder-decoders from Hugging Face Transformers.

    python tests/reference/pretrained_seq2seq.py
    python tests/reference/pretrained_seq2seq.py FOLDER    load what we wrote there

Needs torch and transformers; writes tests/golden/pretrained/seq2seq.npz, which
tests/test_pretrained_seq2seq.py reads without either. For every case: the files of
its folder as bytes, ids, logits at two paddings of source and target, and what greedy
search and beam search give. With a folder it loads every checkpoint in it, and says
whether a key is missing or unexpected.
"""

import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers as hf

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "pretrained" / "seq2seq.npz"
S, T, PADDING, NEW = 9, 6, 3, 8
SIZES = {
    "vocab_size": 37,
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 24,
}
PLAIN = {"forced_eos_token_id": None}
MARIAN = {
    **SIZES,
    "pad_token_id": 36,
    "decoder_start_token_id": 36,
    "eos_token_id": 0,
    "activation_function": "swish",
    "scale_embedding": True,
}
APART = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 37}
MBART = {"decoder_start_token_id": 5, "activation_function": "relu"}
FORCED = {
    "forced_bos_token_id": 9,
    "forced_eos_token_id": 2,
    "no_repeat_ngram_size": 2,
    "min_length": 4,
}
# Class, config, seed of the weights, what the folder asks of generation.
CASES = {
    "marian": (
        hf.MarianMTModel,
        hf.MarianConfig(**MARIAN),
        12,
        {"bad_words_ids": [[36]], "forced_eos_token_id": 0},
    ),
    "marian_apart": (
        hf.MarianMTModel,
        hf.MarianConfig(**MARIAN, **APART),
        19,
        PLAIN,
    ),
    "bart": (
        hf.BartForConditionalGeneration,
        hf.BartConfig(**SIZES, activation_dropout=0.1),
        20,
        FORCED,
    ),
    "mbart": (
        hf.MBartForConditionalGeneration,
        hf.MBartConfig(**SIZES, **MBART, scale_embedding=True),
        15,
        PLAIN,
    ),
}


def random_weights(model, seed):
    """Random numbers in every weight, biases and norms too.

    Kernels are large beside embeddings and biases, so that what comes next depends on
    what stands before: else each token would follow itself.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            continue  # waves
        noise = torch.randn(weight.shape, generator=generator)
        is_kernel = weight.ndim == 2 and "embed" not in name and "shared" not in name
        is_norm = "norm" in name and name.endswith("weight")
        scale = 0.7 if is_kernel else 0.3 if weight.ndim == 2 else 0.1
        weight.data = (1.0 if is_norm else 0.0) + scale * noise
    bias = model.final_logits_bias
    bias.copy_(0.3 * torch.randn(bias.shape, generator=generator))
    return model.eval()


def inputs_of(config):
    """Sources with padding at the end of one row; targets with the start token."""
    random = np.random.default_rng(0)
    ids = {
        "source": random.integers(6, 36, size=(2, S)),
        "target": random.integers(6, 36, size=(2, T)),
    }
    ids["source"][1, -2:] = config.pad_token_id
    ids["target"][:, 0] = config.decoder_start_token_id
    return ids


def padded(ids, count, pad_id):
    """More padding at the end."""
    return np.pad(ids, ((0, 0), (0, count)), constant_values=pad_id)


def outputs_of(model, ids):
    """Logits at two paddings, and what is generated."""
    config, arrays = model.config, {}
    for kind, count in (("plain", 0), ("padded", PADDING)):
        both = {k: padded(v, count, config.pad_token_id) for k, v in ids.items()}
        source = torch.tensor(both["source"])
        with torch.no_grad():
            logits = model(
                input_ids=source,
                attention_mask=(source != config.pad_token_id).long(),
                decoder_input_ids=torch.tensor(both["target"]),
            ).logits
        arrays[f"{kind}/logits"] = logits[:, :T].numpy()
    source = torch.tensor(ids["source"])
    for kind, beams in (("greedy", 1), ("beam", 3)):
        made = model.generate(
            source,
            attention_mask=(source != config.pad_token_id).long(),
            num_beams=beams,
            early_stopping="never" if beams > 1 else None,
            do_sample=False,
            max_new_tokens=NEW,
        )
        arrays[kind] = padded(
            made.numpy(), NEW + 1 - made.shape[1], config.pad_token_id
        )
    return arrays


def make(cls, config, seed, options):
    """A model with random weights, that asks for something when it generates."""
    config._attn_implementation = "eager"
    model = random_weights(cls(config), seed)
    for name, value in options.items():
        setattr(model.generation_config, name, value)
    return model


def main():
    """Build all models, run them and write the file."""
    arrays = {}
    for name, case in CASES.items():
        model = make(*case)
        ids = inputs_of(model.config)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            for path in pathlib.Path(folder).iterdir():
                content = np.frombuffer(path.read_bytes(), "uint8")
                arrays[f"{name}/files/{path.name}"] = content
        found = {**ids, **outputs_of(model, ids)}
        arrays.update((f"{name}/{key}", array) for key, array in found.items())
    GOLDEN.parent.mkdir(exist_ok=True)
    np.savez_compressed(GOLDEN, **arrays)


def check(folder):
    """Load every checkpoint below a folder, and print what does not fit."""
    for path in sorted(pathlib.Path(folder).glob("*/config.json")):
        config = hf.AutoConfig.from_pretrained(path.parent)
        model, info = getattr(hf, config.architectures[0]).from_pretrained(
            path.parent, output_loading_info=True
        )
        wrong = {key: sorted(names) for key, names in info.items() if names}
        print(path.parent.name, type(model).__name__, wrong or "as it should be")


if __name__ == "__main__":
    check(sys.argv[1]) if len(sys.argv) > 1 else main()
