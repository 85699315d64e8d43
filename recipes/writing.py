"""What the recipes that write text share: finished runs, generator files, talking."""

import json

import keras

from keras_tfm import checkpoints, data, export, training
from recipes import session

GENERATOR = "generator", "generator.tflite"


def load_finished(config):
    """Read the model and the tokenizer of a finished run.

    Args:
        config: a `Config`.

    Returns: pair of `keras.Model` and tokenizer.

    Raises:
        ValueError: the folder holds no finished run.
    """
    folder = session.folder_of(config)
    if not (folder / session.METRICS).exists():
        raise ValueError(
            f"{folder} holds no finished run. Train one first, with the same flags and "
            "--mode train."
        )
    model = keras.models.load_model(folder / "model.keras")
    read = checkpoints if getattr(config, "init", "") else data
    return model, read.load_tokenizer(folder / "tokenizer.json")


def has_finished(config):
    """Whether the folder holds a finished run that began with the same `--init`.

    Args:
        config: a `Config` with `init`.
    """
    path = session.folder_of(config) / session.METRICS
    if not path.exists():
        return False
    return json.loads(path.read_text())["config"].get("init", "") == config.init


def load_pretrained(config):
    """Read the model and the tokenizer that `--init` names.

    Args:
        config: a `Config` with `init`, `context` and `dropout`.

    Returns: pair of `GPT` and tokenizer.

    Raises:
        ValueError: no checkpoint, one that does not write, or one whose positions
            end before `--context`.
    """
    tokenizer = checkpoints.load_tokenizer(config.init)
    model = checkpoints.load_pretrained(
        config.init,
        dtype=config.policy,
        remat=bool(config.remat),
        dropout=config.dropout,
    )
    if not hasattr(model, "init_cache"):
        raise ValueError(f"--init {config.init} is no decoder: it writes no text.")
    if config.context > model.max_sequence_length:
        raise ValueError(
            f"--context may be {model.max_sequence_length} at most for {config.init}, "
            f"got {config.context}."
        )
    return model, tokenizer


def save_tuned(model, tokenizer, folder, config):
    """Write what fine-tuning made: adapters, if any, and a checkpoint.

    Adapters are merged into the model.

    Args:
        model: `GPT`.
        tokenizer: that of the run.
        folder: `pathlib.Path` of the results.
        config: a `Config` with `lora`.
    """
    if config.lora:
        training.save_lora(model, folder / "adapters.npz")
        training.merge_lora(model)
        model.optimizer, model.compiled = None, False  # of the adapters' variables
    checkpoints.save_pretrained(model, folder / "checkpoint")
    checkpoints.save_tokenizer(tokenizer, folder / "checkpoint")


def talk(answer):
    """Answer the lines that a person types, until an empty one.

    Args:
        answer: function from a str to an iterable of pieces of text.
    """
    print("Type a text, an empty line ends.")
    while True:
        try:
            line = input("> ")
        except EOFError:
            line = ""
        if not line:
            return
        try:
            for piece in answer(line):
                print(piece, end="", flush=True)
            print()
        except ValueError as error:
            print(f"error: {error}")


def export_generators(model, folder, tokenizer, texts, prompts, **settings):
    """Write generators as SavedModel and LiteRT, and let the files write.

    Args:
        model: the trained `keras.Model`.
        folder: `pathlib.Path` of the results.
        tokenizer: that of the run.
        texts: list of str to go on with, or to translate.
        prompts: the same as ids, see `keras_tfm.export.check_generation`.
        **settings: of `keras_tfm.export.generation_to_saved_model`.

    Returns: dict, for which share of how many prompts each file makes the model's
        tokens.
    """
    start = {"start_token_id": settings.pop("start_token_id", None)}
    saved, litert = (folder / name for name in GENERATOR)
    export.generation_to_saved_model(model, saved, tokenizer, **settings, **start)
    export.generation_to_litert(model, litert, **settings, **start)
    for text, made in zip(texts, export.run_file(saved, {"text": texts})["text"]):
        print(f"  {text} -> {made.decode('utf-8', 'replace')}")
    results = {}
    for path in (saved, litert):
        parity = export.check_generation(model, path, prompts, texts=texts, **settings)
        print(f"  {parity}")
        share = parity.agreeing / parity.prompts
        results[path.name] = {"agreement": share, "prompts": parity.prompts}
    return results
