"""What the recipes that sort things into classes share.

Letters: B batch, T length, C num_classes.
"""

import keras
import numpy as np

from keras_tfm import data, training, visualize


def choose(count, config):
    """Choose the training examples: all, or `config.examples` at random.

    Args:
        count: int, how many there are.
        config: a `Config`.

    Returns: int array of their numbers.
    """
    if not 0 < config.examples < count:
        return np.arange(count)
    return np.random.default_rng(config.seed).permutation(count)[: config.examples]


def compile_classifier(model, config, steps, one_hot=False):
    """Compile with AdamW, a warm-up over a tenth of all steps, then half a cosine.

    Args:
        model: `keras.Model` with logits (B, C).
        config: a `Config` with `weight_decay` and `label_smoothing`.
        steps: int, batches an epoch.
        one_hot: bool, labels are float (B, C), as for mixed images, not int (B,).
    """
    total = steps * config.epochs
    schedule = training.cosine_warmup(config.learning_rate, total // 10, total)
    optimizer = keras.optimizers.AdamW(
        schedule,
        weight_decay=config.weight_decay,
        clipnorm=1.0,
        **config.optimizer_options,
    )
    loss, metric = training.SmoothedCrossentropy, training.MaskedAccuracy()
    if one_hot:
        loss = keras.losses.CategoricalCrossentropy
        metric = keras.metrics.CategoricalAccuracy(name="accuracy")
    model.compile(
        training.exclude_norms_and_biases(optimizer, model),
        loss(from_logits=True, label_smoothing=config.label_smoothing),
        metrics=[metric],
        jit_compile=config.jit_compile,
    )


def evaluate(model, dataset, split, train_labels, labels):
    """Measure a classifier and the baseline, the most frequent class of the training.

    Args:
        model: a compiled `keras.Model`.
        dataset: `tf.data.Dataset` to measure on.
        split: str, what the numbers' names begin with.
        train_labels: int (n,).
        labels: int (m,), those of `dataset`.

    Returns: dict of float.
    """
    results = model.evaluate(dataset, return_dict=True)
    return {
        f"{split}_accuracy": results["accuracy"],
        f"{split}_loss": results["loss"],
        "baseline_majority_class": data.majority_baseline(train_labels, labels),
    }


def show(model, inputs, truth, class_names, titles):
    """Print a few predictions for a person to read.

    Args:
        model: `keras.Model` with logits (B, C).
        inputs: its inputs, B rows.
        truth: int (B,).
        class_names: list of str.
        titles: list of B str, what each row shows.
    """
    logits = model.predict_on_batch(inputs)
    probabilities = keras.ops.convert_to_numpy(keras.ops.softmax(logits))
    for title, label, row in zip(titles, truth, probabilities):
        best = int(row.argmax())
        verdict = "right" if best == label else f"it is {class_names[label]}"
        print(f"  {title}\n    {class_names[best]} ({row[best]:.0%} sure), {verdict}")


def card(title, class_names, trained, evaluated, use):
    """Fill in what the model card says of every classifier.

    Args:
        title: str.
        class_names: list of str.
        trained: int, examples to train on.
        evaluated: int, examples to evaluate on.
        use: str, how to run the files.

    Returns: dict for `artifacts.finish`.
    """
    return {
        "title": title,
        "task": f"Tells {len(class_names)} classes apart: {', '.join(class_names)}.",
        "data": f"{trained:,} examples to train and {evaluated:,} to evaluate on.",
        "use": use,
        "limits": "It answers with one of its classes whatever it is given, and knows "
        "nothing but the kind of data it was trained on.",
    }


def name_classes(class_names):
    """Make the end of an exported classifier: logits to a label and probabilities.

    Args:
        class_names: list of str.

    Returns: function for `to_saved_model(postprocess=...)`.
    """
    import tensorflow as tf

    names = tf.constant(class_names)

    def postprocess(logits):
        label = tf.gather(names, tf.argmax(logits, axis=-1))  # (B,)
        return {"label": label, "probabilities": tf.nn.softmax(logits)}

    return postprocess


def text_reader(tokenizer, max_length, pairs=False):
    """Make the start of an exported classifier: strings to the inputs of a `Bert`.

    Args:
        tokenizer: one with a start and an end token, of TensorFlow operations.
        max_length: int, longest row; longer texts are cut, of a pair the longer one.
        pairs: bool, each string is two texts with a tab between.

    Returns: function for `to_saved_model(preprocess=...)`, the same numbers as
        `data.classification_dataset`.
    """
    import tensorflow as tf

    ids = data.special_ids(tokenizer)

    @tf.function(input_signature=[tf.TensorSpec([None], "string")])
    def preprocess(texts):
        parts = tf.RaggedTensor.from_tensor(texts[:, tf.newaxis])
        if pairs:
            parts = tf.strings.split(texts, "\t", maxsplit=1)  # (B, 1 or 2)
        paired = parts.row_lengths() > 1  # (B,)
        parts = parts.to_tensor("", shape=[None, 2])
        first, second = (tokenizer.tokenize(parts[:, i]) for i in (0, 1))
        ends = tf.where(paired, 2, 1)
        first, second = _cut(first, second, max_length - 1 - ends)
        column = tf.zeros_like(texts, "int32")[:, tf.newaxis]  # (B, 1)
        end = tf.RaggedTensor.from_tensor(column + ids["end"])
        last = tf.ragged.boolean_mask(end, paired[:, tf.newaxis])
        begin = tf.concat([column + ids["start"], first, end], axis=1)  # segment 0
        rows = tf.concat([begin, second, last], axis=1)
        token_ids = rows.to_tensor(ids["pad"])  # (B, T)
        place = tf.range(tf.shape(token_ids)[1], dtype="int64")  # (T,)
        padding_mask = place < rows.row_lengths()[:, tf.newaxis]
        behind = place >= begin.row_lengths()[:, tf.newaxis]
        return {
            "token_ids": token_ids,
            "segment_ids": tf.cast(behind & padding_mask, "int32"),
            "padding_mask": padding_mask,
        }

    return preprocess


def _cut(first, second, room):
    """Shorten the longer of two ragged texts, as `data.truncate_pair` does."""
    import tensorflow as tf

    one, two = first.row_lengths(), second.row_lengths()  # (B,)
    room = tf.cast(room, "int64")
    one_keeps = tf.minimum(one, tf.maximum(room - two, (room + 1) // 2))
    two_keeps = tf.minimum(two, room - one_keeps)
    return (_begin(first, one_keeps), _begin(second, two_keeps))


def _begin(rows, lengths):
    """The first `lengths` (B,) tokens of ragged rows."""
    import tensorflow as tf

    place = tf.ragged.range(rows.row_lengths())
    kept = place < lengths[:, tf.newaxis]
    return tf.ragged.boolean_mask(rows, kept)


def draw_attention(folder, model, tokenizer, features):
    """Draw what the tokens of one text look at in the last block: attention.png.

    Args:
        folder: `pathlib.Path` of the results.
        model: `keras.Model` over a `Bert`.
        tokenizer: that of the model.
        features: its inputs, the first row of which is drawn.
    """
    length = int(np.sum(features["padding_mask"][0]))
    one = {name: value[:1, :length] for name, value in features.items()}
    weights = list(visualize.attention_scores(model, one).values())[-1][0]
    tokens = [tokenizer.id_to_token(int(i)) for i in one["token_ids"][0]]
    visualize.attention_map(weights, tokens, path=folder / "attention.png")


def word_dropper(tokenizer, rate, seed=0):
    """Make a `map` function that hides some words, others in each pass.

    Args:
        tokenizer: one with a mask token, after which the words begin.
        rate: float in [0, 1).
        seed: int.

    Returns: function of (features, labels) that replaces ids by the mask's.
    """
    import tensorflow as tf

    mask_id = data.special_ids(tokenizer)["mask"]

    def drop(features, labels):
        token_ids = features["token_ids"]
        hidden = tf.random.uniform(tf.shape(token_ids), seed=seed) < rate
        hidden &= token_ids > mask_id
        return {**features, "token_ids": tf.where(hidden, mask_id, token_ids)}, labels

    return drop
