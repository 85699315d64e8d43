"""Train a BERT to sort texts into classes: a small one, or a pretrained one further.

    python -m recipes.bert_classification        which Python module does this describe?
    python -m recipes.bert_classification --dataset glue/sst2 --data-dir FOLDER
    python -m recipes.bert_classification --dataset csv:reviews.csv
    python -m recipes.bert_classification --dataset glue/mrpc --init FOLDER --lora 8

--init names a BERT in the reference library's layout, --lora trains adapters alone.
A csv file has a header with the columns text and label (see --text-column).
Reference runs: docs/recipes/bert_classification.md (command, machine, time, result).
"""

import dataclasses
import sys

import numpy as np

from keras_tfm import data, models, training
from recipes import artifacts, classifiers, flags, pretrained, session
from recipes.flags import option

PRESETS = {
    "python-docs": {},
    "glue/sst2": {
        "vocabulary_size": 10000, "max_length": 64, "batch_size": 64, "epochs": 4,
        "learning_rate": 5e-4, "dropout": 0.4, "drop_words": 0.4,
    },
    "imdb_reviews": {
        "vocabulary_size": 10000, "max_length": 256, "batch_size": 32, "epochs": 3,
        "learning_rate": 1e-3, "split": "test", "dropout": 0.3, "drop_words": 0.15,
    },
    "--init": {
        "batch_size": 32, "epochs": 3, "learning_rate": 5e-5, "pooling": "mean",
        "dropout": 0.1, "drop_words": 0.0, "label_smoothing": 0.0, "weight_decay": 0.01,
    },
    "--init --lora": {"learning_rate": 5e-4},
    "glue/sst2 --init": {
        "max_length": 64, "batch_size": 64, "epochs": 3, "learning_rate": 1e-4,
        "drop_words": 0.15, "ema": 0.998,
    },
    "glue/sst2 --init --lora": {"learning_rate": 1e-3},
    "glue/mrpc --init": {"max_length": 128, "epochs": 5, "learning_rate": 1e-4},
    "glue/mrpc --init --lora": {"epochs": 10, "learning_rate": 1e-3},
    "glue/rte --init": {"max_length": 192, "epochs": 6, "learning_rate": 1e-4},
    "glue/rte --init --lora": {"epochs": 10, "learning_rate": 1e-3},
}  # fmt: skip
PAIRS = ("glue/mrpc", "glue/rte", "glue/wnli")


@dataclasses.dataclass
class Config(flags.Common):
    """Every number of the run."""

    dataset: str = option("python-docs", "python-docs, a TFDS name, or csv:FILE")
    init: str = option("", "a pretrained BERT: a folder, or a name on the hub")
    lora: int = option(0, "with --init: rank of adapters to train, 0 trains all")
    lora_targets: str = option(r"block_\d+/.*", "expression, layers with an adapter")
    split: str = option("validation", "TFDS split to evaluate on")
    text_column: str = option("text", "csv column of the texts")
    label_column: str = option("label", "csv column of the classes")
    epochs: int = option(10, "passes over the training texts")
    batch_size: int = option(32, "texts a step")
    learning_rate: float = option(1e-3, "highest learning rate, after the warm-up")
    vocabulary_size: int = option(4000, "WordPiece tokens, learned from the texts")
    max_length: int = option(64, "longest text in tokens; longer ones are cut")
    num_layers: int = option(2, "encoder blocks")
    num_heads: int = option(4, "attention heads")
    hidden_dim: int = option(128, "width of the model")
    intermediate_dim: int = option(256, "inner width of the feed-forward")
    pooling: str = option("backbone", "first token or mean", ("backbone", "mean"))
    dropout: float = option(0.2, "rate of dropped numbers")
    drop_words: float = option(0.1, "rate of masked words, in training only")
    label_smoothing: float = option(0.1, "share of the target spread over all classes")
    weight_decay: float = option(0.05, "of matrices; norms and biases are left alone")
    jit: str = option("off", "compile the step with XLA, slow at first", flags.JIT)


def load(config):
    """Read texts and classes: (texts, labels) to train and to evaluate on, names."""
    kind, path = data.parse_source(config.dataset)
    if config.dataset == "python-docs":
        *train, names = data.python_docs_classification(split="train")
        *held_out, _ = data.python_docs_classification(split="validation")
    elif kind == "csv":
        texts, labels, names = data.read_csv_classification(
            path, config.text_column, config.label_column
        )
        parts = data.split_indices(len(labels), 0.1, config.seed, labels)
        train, held_out = (([texts[i] for i in p], labels[p]) for p in parts)
    else:
        name, folder = config.dataset, config.data_dir or None
        pairs = name in PAIRS
        read = data.load_pair_classification if pairs else data.load_text_classification
        split = f"train[:{config.examples}]" if config.examples else "train"
        *train, names = read(name, split, folder)
        *held_out, _ = read(name, config.split, folder)
    chosen = classifiers.choose(len(train[1]), config)
    train = [train[0][i] for i in chosen], train[1][chosen]
    return train, held_out, names


def build(config, vocabulary_size, num_classes):
    """The model: token ids in, logits out."""
    backbone = pretrained.build_backbone(config, vocabulary_size)
    model = models.classifier(backbone, num_classes, config.dropout, config.pooling)
    if config.lora:
        training.add_lora(
            model, config.lora, config.lora_targets, train="logits", seed=config.seed
        )
    return model


def run(config):
    """Train, evaluate and export; return the final numbers."""
    folder = session.start(config)
    (texts, labels), (held_out, truth), names = load(config)
    words = [t for x in texts for t in ((x,) if isinstance(x, str) else x)]
    tokenizer = pretrained.make_tokenizer(config, words, folder)
    options = {
        "tokenizer": tokenizer, "max_length": config.max_length,
        "batch_size": config.batch_size, "seed": config.seed,
    }  # fmt: skip
    train = data.classification_dataset(texts, labels, training=True, **options)
    held = data.classification_dataset(held_out, truth, **options)
    cut = data.count_cut_texts(texts, tokenizer, config.max_length)
    print(f"{cut} of {len(texts)} texts are longer than {config.max_length} tokens.")
    if config.drop_words:
        train = train.map(classifiers.word_dropper(tokenizer, config.drop_words))

    model = build(config, tokenizer.vocabulary_size(), len(names))
    classifiers.compile_classifier(model, config, len(train))
    history = session.fit(model, config, train, held)
    metrics = classifiers.evaluate(model, held, "validation", labels, truth)
    if config.lora:
        metrics["trained_percent"] = training.count_parameters(model).percent
        training.save_lora(model, folder / "adapters.npz")
        training.merge_lora(model)
        classifiers.compile_classifier(model, config, len(train))  # of fewer variables

    some = np.random.default_rng(0).permutation(len(truth))[:6]
    few = [as_line(held_out[i]) for i in some]
    pairs = not isinstance(held_out[0], str)
    read = classifiers.text_reader(tokenizer, config.max_length, pairs)
    features = read(np.array(few, object))
    classifiers.show(model, features, truth[some], names, [_short(t) for t in few])
    classifiers.draw_attention(folder, model, tokenizer, features)
    name = classifiers.name_classes(names)
    parity = artifacts.export_all(model, folder, features, read, name)
    card = classifiers.card(
        f"A {'pretrained' if config.init else 'small'} BERT, trained on "
        f"{config.dataset}",
        names, len(labels), len(truth),
        use="The SavedModel's signature `predict_text` takes strings `text` (B,), "
        f"{'two texts with a tab between, ' * pairs}reads the first "
        f"{config.max_length} tokens and gives `label` and `probabilities`; its "
        "README.md says what its reader must import. The other files take ids that "
        f"{pretrained.describe_tokenizer(config)} makes."
        + " `adapters.npz`: LoRA alone, for `training.load_lora`." * bool(config.lora),
    )  # fmt: skip
    return artifacts.finish(config, model, history, metrics, card, parity)


def as_line(text):
    """A text, or the two of a pair with a tab between, as the SavedModel reads it."""
    return text if isinstance(text, str) else "\t".join(text)


def _short(text):
    return " ".join(text.split())[:90]


def main(argv=None):
    """Run from the command line; return the exit code."""
    return session.main(run, Config, PRESETS, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
