"""Train an encoder-decoder Transformer to translate sentences.

    python -m recipes.translation                       number words, English to German
    python -m recipes.translation --dataset multi30k/en-de --data-dir FOLDER
    python -m recipes.translation --dataset tsv:pairs.tsv

A tsv file has a sentence, a tab and its translation on each line.
Reference runs: docs/recipes/translation.md (command, machine, time, result).
"""

import csv
import dataclasses
import sys

import keras
import numpy as np

from keras_tfm import data, generation, models, training, visualize
from recipes import artifacts, flags, session, writing
from recipes.flags import option

PRESETS = {
    "number_words": {},
    "multi30k/en-de": {  # Transformer-Tiny
        "vocabulary_size": 4000, "lowercase": 1, "max_length": 48, "num_layers": 4,
        "dropout": 0.15, "epochs": 35, "learning_rate": 3e-3, "warmup_steps": 1000,
        "batch_size": 128, "jit": "on",
    },
    "tatoeba_en_zh": {
        "vocabulary_size": 6000, "lowercase": 1, "max_length": 48, "num_layers": 4,
        "dropout": 0.1, "epochs": 15, "learning_rate": 3e-3, "warmup_steps": 1000,
        "batch_size": 128, "jit": "on",
    },
    "tsv": {"vocabulary_size": 4000, "dropout": 0.1, "epochs": 30},
}  # fmt: skip

# Lengths that batches are padded to; XLA compiles the step once for each.
BUCKETS = (8, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256)


@dataclasses.dataclass
class Config(flags.Common):
    """All numbers of a run."""

    dataset: str = option(
        "number_words",
        "number_words; a TFDS set of sentence pairs, such as multi30k/en-de or "
        "tatoeba_en_zh; tsv:FILE",
    )
    epochs: int = option(3, "passes over the training data")
    batch_size: int = option(64, "sentence pairs a step")
    learning_rate: float = option(2e-3, "highest learning rate")
    warmup_steps: int = option(200, "steps from 0 to the highest rate")
    vocabulary_size: int = option(200, "sub-words, of both languages together")
    lowercase: int = option(0, "1 makes all texts lower case")
    max_length: int = option(64, "longest sentence in tokens, longer ones are cut")
    num_layers: int = option(2, "encoder blocks, and as many decoder blocks")
    num_heads: int = option(4, "attention heads")
    hidden_dim: int = option(128, "width of the model")
    intermediate_dim: int = option(256, "inner width of the feed-forward")
    norm_position: str = option("pre", "of the blocks' norms", ("pre", "post"))
    dropout: float = option(0.0, "rate on embeddings and branches")
    label_smoothing: float = option(0.1, "probability spread over all tokens")
    num_beams: int = option(5, "of the search that is scored beside greedy, 1 for none")
    length_penalty: float = option(1.0, "of that search, above 0 favours long answers")
    mode: str = option(
        "train",
        "evaluate: score a finished run again; talk: translate what you type",
        ("train", "evaluate", "talk"),
    )


def load(config):
    """Read sentence pairs: "train", "validation" and "test", lists of (str, str)."""
    kind, path = data.parse_source(config.dataset)
    names = ("train", "validation", "test")
    if config.dataset == "number_words":
        parts = [
            data.number_word_pairs(count, config.seed, split=name)
            for name, count in zip(names, (20_000, 500, 1000))
        ]
    elif kind == "tsv":
        parts = cut(data.read_tsv_pairs(path), config.seed)
    else:
        folder = config.data_dir or None
        parts = [data.load_translation(config.dataset, name, folder) for name in names]
    if config.lowercase:
        parts = [[(a.lower(), b.lower()) for a, b in part] for part in parts]
    pairs = dict(zip(names, parts))
    pairs["train"] = pairs["train"][: config.examples or None]
    return pairs


def cut(pairs, seed):
    """Hold out a tenth for validation and a tenth for the test."""
    rest, test = data.split_indices(len(pairs), 0.1, seed)
    train, validation = data.split_indices(len(rest), 0.1, seed)
    return [[pairs[i] for i in part] for part in (rest[train], rest[validation], test)]


def build(config, vocabulary_size):
    """The model, every number from `config`."""
    return models.Seq2SeqTransformer(
        vocabulary_size,
        config.num_layers,
        config.num_heads,
        config.hidden_dim,
        config.intermediate_dim,
        config.max_length,
        dropout=config.dropout,
        norm_position=config.norm_position,
        remat=bool(config.remat),
        dtype=config.policy,
    )


def compile_model(model, config, steps):
    """Adam with a warm-up, then half a cosine, on smoothed cross-entropy."""
    total = steps * config.epochs
    schedule = training.cosine_warmup(
        config.learning_rate, min(config.warmup_steps, total // 4), total
    )
    model.compile(
        keras.optimizers.Adam(
            schedule,
            beta_2=0.98,
            global_clipnorm=1.0,
            **config.optimizer_options,
        ),
        training.SmoothedCrossentropy(label_smoothing=config.label_smoothing),
        jit_compile=config.jit_compile,
    )


def translate(model, tokenizer, texts, max_length, strategy=None, batch_size=128):
    """Translations of a list of texts, greedy ones unless told otherwise."""
    ids = data.special_ids(tokenizer)
    rows = data.encode_for_translation(texts, tokenizer, max_length)
    order = np.argsort([len(row) for row in rows], kind="stable")
    outputs = [""] * len(texts)
    for at in range(0, len(order), batch_size):
        numbers = order[at : at + batch_size]
        inputs = {
            "source_token_ids": data.pad_rows([rows[n] for n in numbers], max_length),
            "target_token_ids": np.full((len(numbers), 1), ids["start"]),
        }
        made = generation.generate(
            model, inputs, max_length - 1, strategy, stop_token_ids=[ids["end"]]
        )
        for number, text in zip(numbers, data.decode(tokenizer, made[:, 1:])):
            outputs[number] = text
    return outputs


def score(name, outputs, references, lowercase):
    """Exact match, BLEU and chrF of translations, after `name`_."""
    right = [a == b for a, b in zip(outputs, references)]
    metrics = {f"{name}_exact_match": float(np.mean(right))}
    for measure in ("bleu", "chrf"):
        corpus = getattr(training, f"corpus_{measure}")
        metrics[f"{name}_{measure}"] = corpus(outputs, references, lowercase).score
    return metrics


def evaluate(model, tokenizer, config, pairs):
    """Print some translations, write and score all: greedy, by beams, of no model."""
    sources, references = map(list, zip(*pairs))
    outputs = translate(model, tokenizer, sources, config.max_length)
    for source, reference, output in zip(sources[:6], references, outputs):
        print(f"  source     {source}\n  reference  {reference}")
        print(f"  model      {output}\n")
    scored = {"test": outputs}
    if config.num_beams > 1:
        beams = generation.BeamSearch(config.num_beams, config.length_penalty)
        limit = config.max_length
        scored["beam"] = translate(model, tokenizer, sources, limit, beams)
    folder = session.folder_of(config)
    with open(folder / "translations.tsv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, delimiter="\t")
        table.writerow(["source", "reference", *scored])
        table.writerows(zip(sources, references, *scored.values()))
    scored["baseline_copy"] = sources
    metrics = {}
    for name, texts in scored.items():
        metrics |= score(name, texts, references, bool(config.lowercase))
    return metrics


def revisit(config):
    """Evaluate a finished run again, or translate what a person types."""
    model, tokenizer = writing.load_finished(config)
    if config.mode == "evaluate":
        metrics = evaluate(model, tokenizer, config, load(config)["test"])
        print("  ".join(f"{name} {value:.4g}" for name, value in metrics.items()))
        return metrics
    ids = data.special_ids(tokenizer)

    def answer(text):
        text = text.lower() if config.lowercase else text
        rows = data.encode_for_translation([text], tokenizer, config.max_length)
        steps = generation.stream(
            model,
            {"source_token_ids": rows, "target_token_ids": [[ids["start"]]]},
            config.max_length - 1,
            stop_token_ids=[ids["end"]],
            detokenize=lambda rows: data.decode(tokenizer, rows),
        )
        return (piece for (piece,) in steps)

    return writing.talk(answer)


def run(config):
    """Train, evaluate and export; return the final numbers."""
    if config.mode != "train":
        return revisit(config)
    folder = session.start(config)
    pairs = load(config)
    words = [text for pair in pairs["train"] for text in pair]
    tokenizer = data.train_sentencepiece(words, config.vocabulary_size)
    data.save_tokenizer(tokenizer, folder / "tokenizer.json")
    train, validation = (
        data.translation_dataset(
            *zip(*pairs[name]), tokenizer, max_length=config.max_length,
            batch_size=config.batch_size, training=name == "train",
            buckets=[n for n in BUCKETS if n <= config.max_length], seed=config.seed,
        )
        for name in ("train", "validation")
    )  # fmt: skip
    model = build(config, tokenizer.vocabulary_size())
    compile_model(model, config, len(train))
    history = session.fit(model, config, train, validation)

    metrics = evaluate(model, tokenizer, config, pairs["test"])
    sources, references = map(list, zip(*pairs["test"]))
    few = data.translation_dataset(
        sources[:8], references[:8], tokenizer, max_length=config.max_length
    )
    few = {name: ids.numpy() for name, ids in next(iter(few))[0].items()}
    _draw(folder, model, tokenizer, few)
    parity = artifacts.export_all(model, folder, few)
    ids = data.special_ids(tokenizer)
    starts = np.full((len(few["source_token_ids"]), 1), ids["start"])
    parity |= writing.export_generators(
        model, folder, tokenizer, sources[:8],
        {"source_token_ids": few["source_token_ids"], "target_token_ids": starts},
        max_length=config.max_length, strategy=generation.BeamSearch(config.num_beams),
        start_token_id=ids["start"], stop_token_ids=[ids["end"]],
    )  # fmt: skip
    card = {
        "title": f"A small Transformer, trained to translate on {config.dataset}",
        "task": "Translates a sentence; `test` scores are those of greedy translations "
        f"of the test sentences, `beam` those of {config.num_beams} beams, "
        "`baseline_copy` those of the sources.",
        "data": f"{len(pairs['train']):,} training and {len(sources):,} test pairs"
        f"{', lower-cased' * bool(config.lowercase)}.",
        "use": "`recipes.translation.translate(model, tokenizer, texts, max_length)`, "
        "the tokenizer by `keras_tfm.data.load_tokenizer`. The exported files take "
        "`source_token_ids` and `target_token_ids`, the target so far with the start "
        "token first, and give the logits of each next token; `generator/` and "
        "`generator.tflite` translate.",
        "limits": "Knows the words and the style of its training pairs, no others.",
    }
    return artifacts.finish(config, model, history, metrics, card, parity)


def _draw(folder, model, tokenizer, inputs):
    """Which source tokens the last decoder block reads for each target token."""
    one = {name: ids[:1, : np.count_nonzero(ids[0])] for name, ids in inputs.items()}
    weights = list(visualize.attention_scores(model, one).values())[-1][0]  # (N, T, S)
    columns, rows = (
        [tokenizer.id_to_token(int(i)) for i in one[f"{side}_token_ids"][0]]
        for side in ("source", "target")
    )
    visualize.attention_map(weights, rows, columns, path=folder / "attention.png")


def main(argv=None):
    """Run from the command line; return the exit code."""
    return session.main(run, Config, PRESETS, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
