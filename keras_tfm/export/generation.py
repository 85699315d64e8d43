"""Generation without Python: the whole decoding loop as a SavedModel or LiteRT file.

Letters: B batch, S source length, T prompt length, M tokens of the longest row, n
results a prompt.
"""

import pathlib

import keras

from keras_tfm.export import precision, signatures
from keras_tfm.export.litert import check_quantize, convert_function
from keras_tfm.export.saved_model import track_resources, write_archive
from keras_tfm.export.staging import staged_file
from keras_tfm.export.text import Text
from keras_tfm.generation.decoder import Decoder
from keras_tfm.generation.prompts import room_of
from keras_tfm.generation.strategies import Greedy


def generation_to_saved_model(
    model,
    path,
    tokenizer,
    strategy=None,
    max_length=128,
    processors=(),
    stop_token_ids=(),
    start_token_id=None,
):
    """Write a generator that takes strings and gives strings, as a SavedModel.

    The folder needs TensorFlow only, and `tensorflow_text` where the tokenizer does;
    its README.md says so. The signature "serving_default" takes `text` (B,), any B;
    "with_seed" takes a `seed` too, and is there if the strategy draws at random.
    Both give

    - `text` string (B,), the continuation (with `num_return_sequences` (B, n)),
    - `token_ids` int32 (B, n, M), prompts and continuations, padded on the left,
    - `scores` float32 (B, n), see `keras_tfm.generation.Generated`.

    A decoder-only model goes on with the text; an encoder-decoder reads it as the
    source, cut to the model's length. A prompt without a token, or one that leaves no
    room for a new one, ends the call with an error that says so. All prompts of a
    batch get M minus the longest prompt's length new tokens.

    Args:
        model: such as `GPT` or `Seq2SeqTransformer`.
        path: str or path of the folder; a SavedModel there is replaced.
        tokenizer: has `tokenize` and `detokenize` made of TensorFlow operations.
        strategy: `Greedy()` unless given.
        max_length: int M, prompt and new tokens together; for an encoder-decoder
            the target with its start token.
        processors: callables, see `keras_tfm.generation.generate`.
        stop_token_ids: ints, which end a text and are no part of it.
        start_token_id: int, with which the target of an encoder-decoder begins; None
            for a decoder-only model. The source ends with the first of
            `stop_token_ids`.

    Returns: `pathlib.Path` of the folder.

    Raises:
        ValueError: more tokens than the model has positions, an encoder-decoder
            without a start and a stop token, a `path` that holds other files.
        OSError: the folder could not be written.

    Example:
        >>> tokenizer = keras_tfm.data.train_characters("to be or not to be")
        >>> model = keras_tfm.models.GPT(
        ...     tokenizer.vocabulary_size(), num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=32, max_sequence_length=16,
        ... )
        >>> folder = keras_tfm.export.generation_to_saved_model(
        ...     model, "writer", tokenizer, max_length=16
        ... )
        >>> outputs = keras_tfm.export.run_file(folder, {"text": ["to", "not t"]})
        >>> outputs["text"].shape, outputs["token_ids"].shape
        ((2,), (2, 1, 16))
    """
    import tensorflow as tf

    signatures.require_tensorflow()
    loop = _Loop(
        model, strategy, max_length, processors, stop_token_ids, start_token_id
    )
    text = Text(tokenizer, stop_token_ids, start_token_id)
    pad_id = getattr(model, "pad_token_id", 0)
    text.read(tf.constant(["a", "b"]))  # tables that are made at the first use

    def serve(inputs):
        rows = text.read(inputs["text"])  # ragged (B, T)
        if loop.encodes:
            given = {"source_token_ids": text.source(rows, room_of(model), pad_id)}
        else:
            ids = text.pad_left(rows)
            given = {"token_ids": ids, "padding_mask": text.mask_left(rows)}
        seed = inputs.get("seed", tf.constant(loop.seed, tf.int32))
        results, start = loop.run({**given, "seed": seed}, check=True)
        several = getattr(loop.strategy, "num_return_sequences", None) is not None
        written = text.write(results["token_ids"][:, :, start:])
        return {**results, "text": written if several else written[:, 0]}

    archive = keras.export.ExportArchive()
    archive.track(model)
    spec = {"text": tf.TensorSpec((None,), tf.string, name="text")}
    archive.add_endpoint("serving_default", serve, [spec])
    if hasattr(loop.strategy, "seed"):
        seed = {"seed": tf.TensorSpec((), tf.int32, name="seed")}
        archive.add_endpoint("with_seed", serve, [{**spec, **seed}])
    track_resources(archive, tokenizer)
    write_archive(archive, path)
    return pathlib.Path(path)


def generation_to_litert(
    model,
    path,
    strategy=None,
    max_length=128,
    processors=(),
    stop_token_ids=(),
    start_token_id=None,
    quantize=None,
    batch_size=None,
    length=None,
):
    """Write a generator as a .tflite file of built-in operations only.

    The signature "serving_default" takes, for a decoder-only model, `token_ids` int32
    and `padding_mask` bool (B, T), padded on the left; for an encoder-decoder
    `source_token_ids` int32 (B, S), padded with the model's `pad_token_id`; and
    `seed`, an int32 scalar, where the strategy draws at random. It gives `token_ids`
    int32 (B, n, M) and `scores` float32 (B, n), the tokens of
    `keras_tfm.generation.generate`. A prompt of M tokens or more gets no new ones.

    A model in mixed precision is converted through its float32 twin.

    Args:
        model: such as `GPT` or `Seq2SeqTransformer`.
        path: str or path of the file; a file there is replaced.
        strategy: `Greedy()` unless given.
        max_length: int M, prompt and new tokens together; for an encoder-decoder
            the target with its start token.
        processors: callables, see `keras_tfm.generation.generate`.
        stop_token_ids: ints.
        start_token_id: int, with which the target of an encoder-decoder begins.
        quantize: None, "float16" or "dynamic", see `to_litert`.
        batch_size: int B that the file accepts; None: any.
        length: int T or S that the file accepts; None: any.

    Returns: `pathlib.Path` of the file.

    Raises:
        ValueError: as `generation_to_saved_model`; a model quantized by Keras; another
            `quantize`; an operation that LiteRT does not have.
        OSError: the file could not be written.

    Example:
        >>> model = keras_tfm.models.GPT(
        ...     vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=32, max_sequence_length=16,
        ... )
        >>> path = keras_tfm.export.generation_to_litert(
        ...     model, "writer.tflite", max_length=16
        ... )
        >>> inputs = {"token_ids": [[5, 7]], "padding_mask": [[True, True]]}
        >>> keras_tfm.export.run_file(path, inputs)["token_ids"].shape
        (1, 1, 16)
    """
    import tensorflow as tf

    signatures.require_tensorflow()
    check_quantize(model, quantize, (None, "float16", "dynamic"))
    model = precision.float32_model(model)
    loop = _Loop(
        model, strategy, max_length, processors, stop_token_ids, start_token_id
    )
    shape = (batch_size, length)
    names = {"token_ids": tf.int32, "padding_mask": tf.bool}
    if loop.encodes:
        names = {"source_token_ids": tf.int32}
    specs = {
        name: tf.TensorSpec(shape, kind, name=name) for name, kind in names.items()
    }
    if hasattr(loop.strategy, "seed"):
        specs["seed"] = tf.TensorSpec((), tf.int32, name="seed")

    def serve(inputs):
        return loop.run({"seed": tf.constant(0, tf.int32), **inputs})[0]

    content = convert_function(model, serve, specs, quantize)
    with staged_file(path) as file:
        file.write_bytes(content)
    return pathlib.Path(path)


class _Loop:
    """The decoding loop of an exported file."""

    def __init__(
        self, model, strategy, max_length, processors, stop_token_ids, start_token_id
    ):
        self.encodes = hasattr(model, "encode")
        if self.encodes and (start_token_id is None or not stop_token_ids):
            raise ValueError(
                "An encoder-decoder needs `start_token_id` and `stop_token_ids`, got "
                f"{start_token_id} and {stop_token_ids}."
            )
        room = room_of(model)
        if max_length < 2 or (room is not None and max_length > room):
            raise ValueError(
                f"`max_length` must be from 2 to {room or 'any number'}, the model's "
                f"positions, got {max_length}."
            )
        self.strategy = Greedy() if strategy is None else strategy
        if self.strategy.decoder is not Decoder:
            raise ValueError(
                "`strategy` must be Greedy, Sample or BeamSearch in a file, got "
                f"{self.strategy}."
            )
        self.seed = getattr(self.strategy, "seed", 0)
        self.max_length, self.start_token_id = max_length, start_token_id
        # One more: prompts of unknown length get a column of padding, so that there
        # is always something to read before the last token.
        self.extra = 0 if self.encodes else 1
        self.decoder = Decoder(
            model,
            max_length + self.extra,
            self.strategy,
            processors,
            tuple(int(i) for i in stop_token_ids),
        )
        self.decoder.packed = False  # as LiteRT wants it

    def run(self, inputs, check=False):
        """Generate: `token_ids`, `scores`, and where the new tokens begin."""
        import tensorflow as tf

        inputs = dict(inputs)
        if self.encodes:
            batch = tf.shape(inputs["source_token_ids"])[0]
            inputs["token_ids"] = tf.fill([batch, 1], self.start_token_id)
            inputs["padding_mask"] = tf.fill([batch, 1], True)
            start = 1
        else:
            start = tf.shape(inputs["token_ids"])[1]
            if check:
                inputs |= self._checked(inputs, start)
            for name in ("token_ids", "padding_mask"):
                inputs[name] = tf.pad(inputs[name], [[0, 0], [1, 0]])
        inputs["limit"] = tf.convert_to_tensor(self.max_length - start, tf.int32)
        fixed, moving = self.decoder.start(inputs)
        moving = self.decoder.advance(fixed, moving, inputs["limit"])
        results = self.decoder.finish(fixed, moving)
        token_ids = results["token_ids"][:, :, self.extra :]
        return {"token_ids": token_ids, "scores": results["scores"]}, start

    def _checked(self, inputs, length):
        """Ids and mask that nothing can read before the checks have passed."""
        import tensorflow as tf

        fits = tf.debugging.assert_less(
            length,
            self.max_length,
            message=f"A text has as many tokens as the row, {self.max_length}, or more",
        )
        real = tf.reduce_all(tf.reduce_any(inputs["padding_mask"], axis=1))
        filled = tf.debugging.Assert(real, ["A text has no token to go on from."])
        with tf.control_dependencies([fits, filled]):
            return {n: tf.identity(inputs[n]) for n in ("token_ids", "padding_mask")}
