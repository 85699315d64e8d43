"""Train a small GPT to go on with a text, or go on with a pretrained one.

    python -m recipes.gpt_generation                       (writes like Python's manual)
    python -m recipes.gpt_generation --dataset tiny_shakespeare --data-dir FOLDER
    python -m recipes.gpt_generation --dataset text:book.txt --prompt "Once "
    python -m recipes.gpt_generation --init FOLDER --mode talk      (a pretrained model)
    python -m recipes.gpt_generation --init FOLDER --lora 8         (fine-tunes it)

Losses are in nats per token, on the held-out end of the text.
Reference runs: docs/recipes/gpt_generation.md (command, machine, time, loss).
"""

import dataclasses
import sys

import keras
import numpy as np

from keras_tfm import checkpoints, data, generation, layers, models, training, visualize
from recipes import artifacts, flags, session, writing
from recipes.flags import option
from recipes.long_attention import ATTENTIONS

PRESETS = {
    "tiny_shakespeare": {
        "tokenizer": "characters", "context": 128, "num_layers": 4, "num_heads": 6,
        "hidden_dim": 192, "dropout": 0.1, "epochs": 12, "steps": 250,
        "learning_rate": 2e-3, "beta_2": 0.99, "prompt": "ROMEO:", "jit": "on",
    },
    "nanogpt-cpu": {  # the published setting of nanoGPT for a CPU
        "dataset": "tiny_shakespeare", "tokenizer": "characters", "context": 64,
        "position": "learned", "num_layers": 4, "num_heads": 4, "hidden_dim": 128,
        "batch_size": 12, "epochs": 8, "steps": 250, "learning_rate": 1e-3,
        "beta_2": 0.99, "prompt": "ROMEO:", "jit": "on",
    },
    "gutenberg_books": {"vocabulary_size": 4000, "epochs": 20},
    "--init": {
        "context": 128, "batch_size": 4, "steps": 50, "epochs": 2,
        "learning_rate": 5e-5, "weight_decay": 0.01, "prompt": "The", "new_tokens": 60,
    },
    "--init --lora": {"learning_rate": 5e-4},
}  # fmt: skip


@dataclasses.dataclass
class Config(flags.Common):
    """Every number of the run; the defaults are those for python-docs."""

    dataset: str = option("python-docs", "python-docs, a TFDS name, or text:PATH")
    init: str = option("", "pretrained decoder: a folder, a file, a name on the hub")
    lora: int = option(0, "rank of adapters to train beside --init, 0 for all weights")
    examples: int = option(0, "use only so many training characters, 0 for all")
    tokenizer: str = option(
        "byte-pair", "what a token is", ("byte-pair", "characters", "bytes")
    )
    vocabulary_size: int = option(1000, "tokens, for byte-pair")
    context: int = option(64, "tokens that the model sees at once")
    attention: str = option(
        "multi-head",
        "how tokens see others; mamba: blocks without feed-forward or positions, so "
        "that two have the size of one other",
        ("multi-head", "mamba", "mamba2"),
    )
    position: str = option("rotary", "how it knows order", ("rotary", "learned"))
    num_layers: int = option(4, "blocks")
    num_heads: int = option(4, "attention heads")
    hidden_dim: int = option(128, "width of the model; the feed-forward is 4 times it")
    dropout: float = option(0.0, "rate on embeddings and branches")
    epochs: int = option(3, "validations, one every so many steps")
    steps: int = option(250, "steps an epoch, each on new random windows of the text")
    batch_size: int = option(16, "windows a step")
    learning_rate: float = option(2e-3, "highest, after 100 steps; ends at a tenth")
    beta_2: float = option(0.99, "decay of Adam's second moment")
    weight_decay: float = option(0.1, "of matrices; norms and biases are left alone")
    prompt: str = option("The ", "what the printed samples go on with")
    new_tokens: int = option(1000, "of the printed samples, up to the context's end")
    temperature: float = option(0.8, "of the printed samples: 0 is greedy")
    mode: str = option(
        "train", "talk: go on with what you type, in a finished run", ("train", "talk")
    )


def load(config):
    """Read the text: training part, validation part (the last tenth of one text)."""
    kind, path = data.parse_source(config.dataset)
    folder = config.data_dir or None
    if config.dataset == "python-docs":
        parts = [data.python_docs_text(part) for part in ("train", "validation")]
    elif kind == "text" or config.dataset == "tiny_shakespeare":
        names = ("train", "validation", "test")  # together the whole text
        text = data.read_text(path) if kind == "text" else "".join(
            data.load_text(config.dataset, name, folder) for name in names
        )  # fmt: skip
        parts = text[: int(0.9 * len(text))], text[int(0.9 * len(text)) :]
    else:
        names = ("train", "validation")
        parts = [data.load_text(config.dataset, name, folder) for name in names]
    return parts[0][: config.examples or None], parts[1]


def start_with(config, text):
    """The model and its tokenizer: fresh ones, or those of `--init`."""
    if config.lora and not config.init:
        raise ValueError("--lora needs --init: a fresh model is trained as a whole.")
    if not config.init:
        tokenizer = make_tokenizer(config, text)
        return build(config, tokenizer.vocabulary_size()), tokenizer
    model, tokenizer = writing.load_pretrained(config)
    if config.lora:
        training.add_lora(model, config.lora, seed=config.seed)
    return model, tokenizer


def stops(config, tokenizer):
    """The tokens that end a text: those of a pretrained model, a fresh one has none."""
    end = tokenizer.special_ids["end"] if config.init else None
    return () if end is None else (end,)


def make_tokenizer(config, text):
    """The tokenizer, learned from the training text."""
    if config.tokenizer == "bytes":
        return data.byte_tokenizer()
    if config.tokenizer == "characters":
        return data.train_characters(text)
    return data.train_byte_pair(text.splitlines(keepends=True), config.vocabulary_size)


def build(config, vocabulary_size):
    """The model, every number from `config`."""
    inner, position = 4 * config.hidden_dim, None
    if config.attention == "multi-head":
        rotary = layers.RotaryEmbedding() if config.position == "rotary" else None
        attention = layers.MultiHeadAttention(config.num_heads, rotary=rotary)
        position = None if rotary else "learned"
    else:
        inner = None
        attention = ATTENTIONS[config.attention](config.num_heads, config.context, 0)
    return models.GPT(
        vocabulary_size, config.num_layers, config.num_heads, config.hidden_dim,
        inner, config.context, dropout=config.dropout, position=position,
        dtype=config.policy, remat=bool(config.remat), attention=attention,
    )  # fmt: skip


def compile_model(model, config):
    """AdamW with a warm-up, then half a cosine, and gradients of norm 1 at most."""
    total, peak = config.steps * config.epochs, config.learning_rate
    optimizer = keras.optimizers.AdamW(
        training.cosine_warmup(peak, min(100, total // 4), total, end=peak / 10),
        beta_2=config.beta_2,
        weight_decay=config.weight_decay,
        global_clipnorm=1.0,
        **config.optimizer_options,
    )
    model.compile(
        training.exclude_norms_and_biases(optimizer, model),
        training.SmoothedCrossentropy(),
        jit_compile=config.jit_compile,
    )


def unigram_loss(train, validation, vocabulary_size):
    """Nats per token of a model that knows how frequent each token is, and no more."""
    counts = np.bincount(train, minlength=vocabulary_size) + 1.0
    return float(-np.mean(np.log(counts / counts.sum())[validation]))


def encode_prompt(tokenizer, text, context):
    """Ids of a prompt, with room for an answer."""
    prompt = data.encode(tokenizer, [text])[0]
    if not 0 < len(prompt) < context:
        raise ValueError(
            f"--prompt must be 1 to {context - 1} tokens long (--context is "
            f"{context}), got {len(prompt)}."
        )
    return prompt


def sample(model, tokenizer, config, count=3):
    """A few texts that begin with the prompt."""
    prompt = encode_prompt(tokenizer, config.prompt, config.context)
    new = min(config.new_tokens, config.context - len(prompt))
    strategy = generation.Sample(config.temperature, seed=config.seed)
    prompts = np.tile(prompt, (count, 1))
    end = {"stop_token_ids": stops(config, tokenizer)}
    made = generation.generate(model, prompts, new, strategy, **end)
    return data.decode(tokenizer, made)


def talk(config):
    """Go on with what a person types, token by token."""
    fresh = config.init and not writing.has_finished(config)
    read = writing.load_pretrained if fresh else writing.load_finished
    model, tokenizer = read(config)
    strategy = generation.Sample(config.temperature, seed=config.seed)

    def answer(text):
        prompt = encode_prompt(tokenizer, text, config.context)
        new = min(config.new_tokens, config.context - len(prompt))
        steps = generation.stream(
            model, prompt[None], new, strategy,
            stop_token_ids=stops(config, tokenizer),
            detokenize=lambda rows: data.decode(tokenizer, rows),
        )  # fmt: skip
        return (piece for (piece,) in steps)

    writing.talk(answer)


def run(config):
    """Train, evaluate and export; return the final numbers."""
    if config.mode == "talk":
        return talk(config)
    folder = session.start(config)
    parts = load(config)
    model, tokenizer = start_with(config, parts[0])
    prompt = encode_prompt(tokenizer, config.prompt, config.context)
    if config.init:
        checkpoints.save_tokenizer(tokenizer, folder)
    else:
        data.save_tokenizer(tokenizer, folder / "tokenizer.json")
    size = tokenizer.vocabulary_size()
    ids, held_out = (
        np.concatenate(data.encode(tokenizer, part.splitlines(keepends=True)))
        for part in parts
    )
    train = data.random_windows_dataset(
        ids, config.context, config.batch_size, config.steps, config.seed
    )
    rows = config.batch_size if config.init else 64
    validation = data.language_model_dataset(held_out, config.context, batch_size=rows)
    compile_model(model, config)
    before = model.evaluate(validation, verbose=0) if config.init else None
    history = session.fit(model, config, train, validation)
    loss, baseline = history["val_loss"][-1], unigram_loss(ids, held_out, size)
    bits = len(held_out) / len(parts[1]) / np.log(2)  # nats per token to bits per char
    metrics = {
        "validation_loss": loss,
        "validation_perplexity": float(np.exp(loss)),
        "validation_bits_per_character": loss * bits,
        "baseline_unigram_loss": baseline,
        "baseline_unigram_perplexity": float(np.exp(baseline)),
    }
    if config.init:
        metrics["baseline_pretrained_loss"] = before
        writing.save_tuned(model, tokenizer, folder, config)
    for text in sample(model, tokenizer, config):
        print(f"--- {text}\n")
    few = {"token_ids": held_out[:24].reshape(1, -1)}
    few["padding_mask"] = np.ones(few["token_ids"].shape, bool)
    if config.init or config.attention == "multi-head":
        weights = list(visualize.attention_scores(model, few).values())[-1][0]
        labels = data.decode(tokenizer, few["token_ids"].T)
        visualize.attention_map(weights, labels, path=folder / "attention.png")
    parity = artifacts.export_all(model, folder, few)
    parity |= writing.export_generators(
        model, folder, tokenizer, [config.prompt], prompt[None],
        max_length=config.context,
        strategy=generation.Sample(config.temperature, seed=config.seed),
        stop_token_ids=stops(config, tokenizer),
    )  # fmt: skip
    card = {
        "title": f"{config.init or 'A small GPT'}, trained on {config.dataset}",
        "task": "Goes on with a text, token by token. Losses are in nats per token.",
        "data": f"{len(parts[0]):,} characters ({len(ids):,} tokens) for training, "
        f"{len(parts[1]):,} ({len(held_out):,}) for validation.",
        "use": "`keras_tfm.generation.generate`, the tokenizer by "
        f"`keras_tfm.{'checkpoints' if config.init else 'data'}.load_tokenizer`. "
        "`generator/` goes on with strings, "
        "`generator.tflite` with ids; the others give logits.",
        "limits": "Writes in the manner of its training text and means nothing by it.",
    }
    return artifacts.finish(config, model, history, metrics, card, parity)


def main(argv=None):
    """Run from the command line; return the exit code."""
    return session.main(run, Config, PRESETS, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
