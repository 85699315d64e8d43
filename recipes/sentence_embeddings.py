"""Find the texts that mean the same: a vector for each, the nearest first.

    python -m recipes.sentence_embeddings            learns from Python's docstrings
    python -m recipes.sentence_embeddings --init FOLDER --dataset text:notes.txt
    python -m recipes.sentence_embeddings --mode search --query "remove a file"

With --init an encoder is loaded and used as it is (--fine-tune 1 trains it further).
A text file has a text on each line; a tsv file has pairs of the same meaning, too.
Reference runs: docs/recipes/sentence_embeddings.md (command, machine, time, result).
"""

import dataclasses
import sys

import keras
import numpy as np

from keras_tfm import data, models, training
from recipes import artifacts, classifiers, flags, pretrained, retrieval, session
from recipes.flags import option

PRESETS = {
    "python-docs": {},
    "text": {"epochs": 10, "vocabulary_size": 4000},
    "--init": {
        "max_length": 128, "batch_size": 32, "learning_rate": 2e-5, "epochs": 1,
        "drop_words": 0.0, "temperature": 0.05,
    },
}  # fmt: skip
QUERIES = {  # asked where the data is not the user's own
    "python-docs": (
        "delete a folder and everything in it",
        "wait until all threads are done",
        "change text to lower case",
    ),
}
INDEX = "index.npz"


@dataclasses.dataclass
class Config(flags.Common):
    """Every number of the run."""

    dataset: str = option("python-docs", "python-docs, text:FILE or tsv:FILE")
    init: str = option("", "a pretrained encoder: a folder, or a name on the hub")
    fine_tune: int = option(0, "1: train the encoder of --init, too")
    query: str = option("", "what to look for; else a few examples")
    top: int = option(3, "lines shown for a query")
    mode: str = option(
        "train", "search: look for --query in a finished run", ("train", "search")
    )
    epochs: int = option(4, "passes over the training pairs")
    batch_size: int = option(
        64, "pairs a step; the others of a batch are the wrong ones"
    )
    learning_rate: float = option(1e-3, "highest learning rate, after the warm-up")
    temperature: float = option(0.1, "small ones tell the nearest texts apart")
    vocabulary_size: int = option(6000, "WordPiece tokens, learned from the texts")
    max_length: int = option(64, "longest text in tokens; longer ones are cut")
    num_layers: int = option(2, "encoder blocks")
    num_heads: int = option(4, "attention heads")
    hidden_dim: int = option(128, "width of the model, and of the vectors")
    intermediate_dim: int = option(256, "inner width of the feed-forward")
    pooling: str = option("mean", "of the tokens' outputs", ("mean", "first"))
    dropout: float = option(0.1, "rate of dropped numbers")
    drop_words: float = option(0.3, "rate of masked words, in training only")
    weight_decay: float = option(0.05, "of matrices; norms and biases are left alone")

    @property
    def trains(self):
        """Whether there is anything to train."""
        return not self.init or bool(self.fine_tune)


def load(config):
    """Read pairs to train on, pairs to evaluate on, and the lines to search."""
    kind, path = data.parse_source(config.dataset)
    if config.dataset == "python-docs":
        train, held_out = map(data.python_docs_pairs, ("train", "validation"))
        lines = [text for text, _ in data.python_docs_paragraphs()]
        known = "\n".join(" ".join(pair) for pair in held_out)
        train = [(first, second) for first, second in train if second not in known]
        train += retrieval.halves([line for line in lines if line not in known])
    elif kind in ("text", "tsv"):
        if kind == "text":
            lines = [line.strip() for line in data.read_text(path).splitlines()]
            lines = list(dict.fromkeys(line for line in lines if line))
            pairs = retrieval.halves(lines)
        else:
            pairs = data.read_tsv_pairs(path)
            lines = list(dict.fromkeys(second for _, second in pairs))
        parts = data.split_indices(len(pairs), 0.1, config.seed)
        train, held_out = ([pairs[i] for i in part] for part in parts)
    else:
        raise data.DataError(
            f"'{config.dataset}' is unknown: python-docs, text:FILE or tsv:FILE."
        )
    if not train or not held_out:
        raise data.DataError(f"{config.dataset} has too few texts, or too short ones.")
    return train[: config.examples or None], held_out, lines


def build(config, vocabulary_size):
    """The model: token ids in, vectors of length 1 out."""
    backbone = pretrained.build_backbone(config, vocabulary_size)
    return models.SentenceEncoder(backbone, config.pooling)


def compile_model(model, config, steps):
    """AdamW with a warm-up over a tenth of all steps, then half a cosine."""
    total = steps * config.epochs
    optimizer = keras.optimizers.AdamW(
        training.cosine_warmup(config.learning_rate, total // 10, total),
        weight_decay=config.weight_decay,
        clipnorm=1.0,
        **config.optimizer_options,
    )
    model.compile(
        training.exclude_norms_and_biases(optimizer, model),
        training.ContrastiveLoss(config.temperature),
        jit_compile=config.jit_compile,
    )


def fit(model, config, tokenizer, train, held_out):
    """Train on the pairs; nothing with an encoder that is used as it is."""
    if not config.trains:
        return {"seconds": [0.0]}
    options = {
        "tokenizer": tokenizer, "max_length": config.max_length,
        "batch_size": config.batch_size, "seed": config.seed,
    }  # fmt: skip
    train = data.text_pairs_dataset(train, training=True, **options)
    compile_model(model, config, len(train))
    if config.drop_words:
        train = train.map(classifiers.word_dropper(tokenizer, config.drop_words))
    held_out = data.text_pairs_dataset(held_out, **options)
    return session.fit(model, config, train, held_out)


def search(config):
    """Look for the query in the index of a finished run."""
    folder = session.folder_of(config)
    if not (folder / session.METRICS).exists() or not config.query:
        raise ValueError(
            f"--mode search needs --query and a finished run, in {folder} unless "
            "--output-dir names another."
        )
    with np.load(folder / INDEX) as index:
        lines, vectors = index["lines"], index["vectors"]
    query = retrieval.run_strings(folder / "saved_model", [config.query])
    retrieval.show([config.query], query, lines, vectors, config.top)


def run(config):
    """Train or load, measure, index, search and export; return the final numbers."""
    if config.mode == "search":
        return search(config)
    folder = session.start(config)
    train, held_out, lines = load(config)
    texts = [text for pair in train for text in pair]
    tokenizer = pretrained.make_tokenizer(config, texts, folder)
    model = build(config, tokenizer.vocabulary_size())

    def encode(texts):
        return retrieval.encode(model, tokenizer, texts, config.max_length)

    metrics = {
        "baseline_random_recall_at_10": min(10 / len(held_out), 1.0),
        "baseline_words_recall_at_10": retrieval.recall_of_words(tokenizer, held_out),
    }
    name = "baseline_untrained" if config.trains else "validation"
    metrics |= retrieval.recall(encode, held_out, name)
    history = fit(model, config, tokenizer, train, held_out)
    if config.trains:
        metrics |= retrieval.recall(encode, held_out, "validation")

    vectors = encode(lines)
    np.savez(folder / INDEX, lines=np.array(lines), vectors=vectors)
    queries = [config.query] if config.query else list(
        QUERIES.get(config.dataset, [first for first, _ in held_out[:3]])
    )  # fmt: skip
    retrieval.show(queries, encode(queries), lines, vectors, config.top)
    read = classifiers.text_reader(tokenizer, config.max_length)
    features = read(np.array(queries, object))
    classifiers.draw_attention(folder, model, tokenizer, features)
    parity = artifacts.export_all(
        model, folder, features, read, lambda vectors: {"vectors": vectors}
    )
    few = [*queries, *lines[:32]]
    from_file = retrieval.run_strings(folder / "saved_model", few)
    difference = float(np.max(np.abs(from_file - encode(few))))
    print(f"  strings in, vectors out: largest difference {difference:.2g}")
    metrics["difference_from_strings"] = difference
    card = {
        "title": f"A sentence encoder for {config.dataset}",
        "task": "Gives a text a vector of length 1; the dot product of two is high if "
        "the texts mean the same. Recall at 10: the share of held-out texts whose "
        f"partner is among the nearest 10 of {len(held_out):,}.",
        "data": f"{len(train) if config.trains else 0:,} pairs to train and "
        f"{len(held_out):,} to evaluate on; {len(lines):,} texts in {INDEX}.",
        "use": "The SavedModel's signature `predict_text` takes strings `text` (B,), "
        f"reads the first {config.max_length} tokens, and gives `vectors`; "
        f"its README.md says what its reader must import. {INDEX} holds `lines` and "
        "their `vectors`; `--mode search --query TEXT` looks in it. The other files "
        f"take ids that {pretrained.describe_tokenizer(config)} makes.",
        "limits": "Near means near in the kind of text it was trained on.",
    }
    return artifacts.finish(config, model, history, metrics, card, parity)


def main(argv=None):
    """Run from the command line; return the exit code."""
    return session.main(run, Config, PRESETS, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
