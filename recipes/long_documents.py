"""Read long documents with any attention, and see what it costs: one table.

    python -m recipes.long_documents              which module are these pages about?
    python -m recipes.long_documents --attention dense,window,performer,mamba
    python -m recipes.long_documents --dataset imdb_reviews --data-dir FOLDER
    python -m recipes.long_documents --dataset gutenberg_books --data-dir FOLDER

Reviews and pages are sorted into classes, books are gone on with (a language model).
Several attentions are trained in turn, each in a process of its own. The table has a
row for each finished run: quality, seconds a step, peak memory.
Reference runs: docs/recipes/long_documents.md (command, machine, time, result).
"""

import dataclasses
import json
import pathlib
import resource
import shlex
import statistics
import subprocess
import sys
import time

import keras
import numpy as np

from keras_tfm import data, models
from recipes import artifacts, classifiers, flags, gpt_generation, session
from recipes.flags import option
from recipes.long_attention import ATTENTIONS, CAUSAL

PRESETS = {
    "python-docs": {},
    "imdb_reviews": {
        "max_length": 1536, "vocabulary_size": 8000, "epochs": 2, "batch_size": 8,
        "split": "test", "dropout": 0.2,
    },
    "gutenberg_books": {
        "max_length": 8192, "vocabulary_size": 2000, "epochs": 3, "batch_size": 1,
        "steps": 100, "split": "validation",
    },
}  # fmt: skip
PAGES, HELD_OUT = 3200, 160  # of python-docs
BOOKS = "gutenberg_books", "tiny_shakespeare", "text"


@dataclasses.dataclass
class Config(flags.Common):
    """Every number of the run."""

    dataset: str = option("python-docs", "python-docs, a TFDS name, csv: or text:FILE")
    attention: str = option("window", f"names with commas, of {', '.join(ATTENTIONS)}")
    window: int = option(64, "positions that a local attention sees to either side")
    split: str = option("test", "TFDS split to evaluate on")
    epochs: int = option(1, "passes over the documents")
    steps: int = option(100, "of books: steps an epoch, on new windows of the text")
    batch_size: int = option(8, "documents a step")
    max_length: int = option(1024, "longest document in tokens; longer ones are cut")
    paragraphs: int = option(24, "of python-docs: paragraphs that make a document")
    vocabulary_size: int = option(2000, "tokens, learned from the texts")
    num_layers: int = option(2, "blocks")
    num_heads: int = option(4, "attention heads")
    hidden_dim: int = option(128, "width of the model")
    intermediate_dim: int = option(256, "inner width of the feed-forward")
    dropout: float = option(0.1, "rate of dropped numbers")
    label_smoothing: float = option(0.0, "share of the target spread over all classes")
    weight_decay: float = option(0.01, "of matrices; norms and biases are left alone")
    jit: str = option("on", "compile the step with XLA", flags.JIT)

    def __post_init__(self):
        super().__post_init__()
        known = CAUSAL if self.writes else tuple(ATTENTIONS)
        for name in self.attention.split(","):
            if name not in known:
                raise ValueError(
                    f"--attention must be of {', '.join(known)} for {self.dataset}, "
                    f"got {name!r}."
                )

    @property
    def writes(self):
        """Whether the text is gone on with, not sorted into classes."""
        return self.dataset in BOOKS or data.parse_source(self.dataset)[0] in BOOKS


def load(config):
    """Read documents: (texts, labels) to train and to evaluate on, class names."""
    kind, path = data.parse_source(config.dataset)
    if config.dataset == "python-docs":
        parts = []
        counts = {"train": config.examples or PAGES, "validation": HELD_OUT}
        for split, count in counts.items():
            texts, labels, names = data.python_docs_classification(split=split)
            parts.append(pages(texts, labels, config.paragraphs, count, config.seed))
        return *parts, names
    if kind == "csv":
        texts, labels, names = data.read_csv_classification(path, "text", "label")
        parts = data.split_indices(len(labels), 0.1, config.seed, labels)
        return *(([texts[i] for i in p], labels[p]) for p in parts), names
    read, folder = data.load_text_classification, config.data_dir or None
    texts, labels, names = read(config.dataset, "train", folder)
    chosen = classifiers.choose(len(labels), config)
    *held_out, _ = read(config.dataset, config.split, folder)
    return ([texts[i] for i in chosen], labels[chosen]), tuple(held_out), names


def pages(texts, labels, paragraphs, count, seed):
    """Documents that speak of one class most: half of the paragraphs are of it.

    The others are of any class, so that a document must be read to its end.

    Args:
        texts: list of str.
        labels: int (n,).
        paragraphs: int, how many a document has.
        count: int, documents.
        seed: int.

    Returns: pair of a list of str and int (count,).
    """
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.arange(count) % (max(labels) + 1))
    made = []
    for label in classes:
        own = rng.choice(np.flatnonzero(labels == label), -(-paragraphs // 2))
        others = rng.choice(len(texts), paragraphs - len(own))
        chosen = rng.permutation(np.concatenate([own, others]))
        made.append("\n".join(texts[i] for i in chosen))
    return made, classes.astype("int32")


class Clock(keras.callbacks.Callback):
    """Measures the steps of training, in seconds."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def on_train_batch_begin(self, batch, logs=None):
        """Start."""
        self.began = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        """Stop."""
        self.seconds.append(time.perf_counter() - self.began)


def attention_of(config):
    """The attention value that `--attention` names."""
    make = ATTENTIONS[config.attention]
    return make(config.num_heads, config.max_length, config.window)


def sort_documents(config, folder):
    """Train a classifier; return it, its inputs, history, metrics, and step times."""
    (texts, labels), (held_out, truth), names = load(config)
    tokenizer = data.train_wordpiece(texts, config.vocabulary_size)
    data.save_tokenizer(tokenizer, folder / "tokenizer.json")
    options = {
        "tokenizer": tokenizer, "max_length": config.max_length,
        "batch_size": config.batch_size, "buckets": [], "seed": config.seed,
    }  # fmt: skip
    train = data.classification_dataset(texts, labels, training=True, **options)
    held = data.classification_dataset(held_out, truth, **options)
    backbone = models.Bert(
        tokenizer.vocabulary_size(), config.num_layers, config.num_heads,
        config.hidden_dim, config.intermediate_dim, dropout=config.dropout,
        max_sequence_length=config.max_length, attention=attention_of(config),
        dtype=config.policy, remat=bool(config.remat),
    )  # fmt: skip
    backbone.get_layer("pooler").trainable = False  # the mean is read
    model = models.classifier(backbone, len(names), config.dropout, "mean")
    classifiers.compile_classifier(model, config, len(train))
    clock = Clock()
    history = session.fit(model, config, train, held, [clock])
    metrics = classifiers.evaluate(model, held, "validation", labels, truth)
    few = next(iter(held.unbatch().batch(2).as_numpy_iterator()))[0]
    return model, few, history, metrics, clock.seconds


def write_books(config, folder):
    """Train a language model; return the same."""
    train, held_out = gpt_generation.load(config)
    tokenizer = data.train_byte_pair(
        train.splitlines(keepends=True), config.vocabulary_size
    )
    data.save_tokenizer(tokenizer, folder / "tokenizer.json")
    ids, held_out = (
        np.concatenate(data.encode(tokenizer, part.splitlines(keepends=True)))
        for part in (train, held_out)
    )
    length, rows = config.max_length, config.batch_size
    train = data.random_windows_dataset(ids, length, rows, config.steps, config.seed)
    held_out = held_out[: 16 * length + 1]
    held = data.language_model_dataset(held_out, length, batch_size=rows)
    size = tokenizer.vocabulary_size()
    model = models.GPT(
        size, config.num_layers, config.num_heads, config.hidden_dim,
        config.intermediate_dim, length, dropout=config.dropout,
        attention=attention_of(config), dtype=config.policy, remat=bool(config.remat),
    )  # fmt: skip
    classifiers.compile_classifier(model, config, len(train))
    clock = Clock()
    history = session.fit(model, config, train, held, [clock])
    metrics = {
        "validation_loss": history["val_loss"][-1],
        "baseline_unigram_loss": gpt_generation.unigram_loss(ids, held_out, size),
    }
    few = {"token_ids": held_out[None, :length]}
    few["padding_mask"] = np.ones(few["token_ids"].shape, bool)
    return model, few, history, metrics, clock.seconds


def run_each(config, names):
    """Run every attention in a process of its own, then print the table."""
    for name in names:
        one = dataclasses.replace(config, attention=name)
        one.output_dir = str(session.folder_of(config) / name)
        words = shlex.split(artifacts.command(one))[1:]
        finished = subprocess.run([sys.executable, *words, "--resume", config.resume])
        if finished.returncode:
            raise ValueError(f"--attention {name} failed, see above.")
    print(table(session.folder_of(config)))


def table(folder):
    """A row for each finished run in the folders of `folder`, as Markdown."""
    rows = []
    for path in sorted(pathlib.Path(folder).glob("*/metrics.json")):
        record = json.loads(path.read_text())
        cells = {
            "attention": record["config"].get("attention", ""),
            **record["metrics"],
        }
        rows.append({k: artifacts.show(v) for k, v in cells.items()})
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [" | ".join(names), " | ".join("---" for _ in names)]
    lines += [" | ".join(row.get(name, "") for name in names) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def run(config):
    """Train, evaluate and export; return the final numbers."""
    names = config.attention.split(",")
    if len(names) > 1:
        return run_each(config, names)
    if not config.output_dir:
        config.output_dir = str(session.folder_of(config) / config.attention)
    folder = session.start(config)
    train = write_books if config.writes else sort_documents
    model, few, history, metrics, seconds = train(config, folder)
    metrics["seconds_a_step"] = statistics.median(seconds or [0.0])
    metrics["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    parity = artifacts.export_all(model, folder, few)
    card = {
        "title": f"{config.attention} attention, trained on {config.dataset}",
        "task": "Goes on with a text." if config.writes else "Tells documents apart.",
        "data": f"Documents of up to {config.max_length:,} tokens.",
        "use": "The files take ids that `tokenizer.json` "
        "(`keras_tfm.data.load_tokenizer`) makes.",
        "limits": "A small model, made to compare attentions.",
    }
    metrics = artifacts.finish(config, model, history, metrics, card, parity)
    print(table(folder.parent))
    return metrics


def main(argv=None):
    """Run from the command line; return the exit code."""
    return session.main(run, Config, PRESETS, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
