"""Training a language model without ever holding all its logits.

Letters: B batch, T length, M = B * T positions, V vocabulary size, D width.
"""

import keras
from keras import ops

from keras_tfm.training.linear_crossentropy import linear_crossentropy
from keras_tfm.training.losses import is_real


@keras.saving.register_keras_serializable(package="keras_tfm")
class ChunkedLossModel(keras.Model):
    """A language model made ready for `fit`: its loss is computed chunk by chunk.

    The logits of all positions, float (B, T, V), are the largest tensor of a
    training step, and the loss and its gradient copy them. Here positions with a
    label come first and are cut into chunks; the logits of one chunk are made, turned
    into its loss, forgotten, and made again for the gradient. Chunks without any
    label are skipped: with 15 % of the tokens masked that is most of them.

    The loss is that of `SmoothedCrossentropy`. The language model is trained in
    place: save, export or generate with it, not with this model, whose outputs are
    the states before the logits.

    Args:
        model: a `GPT`, a `Seq2SeqTransformer`, a `BertPretrainer` without next
            sentences, or another functional model of one output, with a symbolic
            tensor `hidden`, float (B, T, D), and a method `output_matrix()`, which
            gives what makes logits of it: float (V, D) and a bias (V,) or None.
        num_chunks: int, into which the positions are cut.
        label_smoothing: float in [0, 1).
        ignore_id: int, the label of a position without a loss, or None.
        **kwargs: `name`, `trainable`.

    Call arguments:
        inputs: what the model takes.
        training: bool.

    Returns: float (B, T, D), the states before the logits.

    Raises:
        ValueError: a model without `hidden` or `output_matrix` or with several outputs,
            `num_chunks` below 1.

    Example:
        >>> gpt = keras_tfm.models.GPT(
        ...     vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=32, max_sequence_length=16,
        ... )
        >>> model = keras_tfm.training.ChunkedLossModel(gpt)
        >>> model.compile("adam")
        >>> ids = np.ones((4, 8), "int32")
        >>> history = model.fit(ids, ids, verbose=0)
    """

    def __init__(
        self, model, num_chunks=16, label_smoothing=0.0, ignore_id=-100, **kwargs
    ):
        if not (hasattr(model, "hidden") and hasattr(model, "output_matrix")):
            raise ValueError(
                "`model` must have `hidden` and `output_matrix`, got a "
                f"{type(model).__name__}."
            )
        if isinstance(model.output, (dict, list, tuple)) and len(model.output) > 1:
            raise ValueError(
                f"`model` must have one output, got {len(model.output)} (a "
                "`BertPretrainer` with next_sentence=False has)."
            )
        if num_chunks < 1:
            raise ValueError(f"`num_chunks` must be at least 1, got {num_chunks}.")
        super().__init__(model.input, model.hidden, **kwargs)
        self.dtype_policy = model.dtype_policy
        self.input_spec = None  # `complete` checks
        self.language_model = model
        self.num_chunks = num_chunks
        self.label_smoothing = label_smoothing
        self.ignore_id = ignore_id

    def call(self, inputs, training=None, mask=None):
        complete = getattr(self.language_model, "complete", lambda inputs: inputs)
        return super().call(complete(inputs), training=training, mask=mask)

    def compute_output_spec(self, inputs, training=None, mask=None):
        return self.output

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """The mean cross-entropy of the positions with a label.

        Args:
            x: the inputs.
            y: int (B, T) labels.
            y_pred: float (B, T, D), what `call` gave.
            sample_weight: float (B, T) or (B, 1), or None.
            training: bool.

        Returns: float32 scalar.
        """
        labels = ops.cast(y, "int32")  # (B, T)
        real = is_real(labels, self.ignore_id)
        weights = ops.cast(real, "float32")
        if sample_weight is not None:
            weights = weights * ops.cast(sample_weight, "float32")
        matrix, bias = self.language_model.output_matrix()
        total = linear_crossentropy(
            ops.reshape(y_pred, (-1, y_pred.shape[-1])),
            ops.convert_to_tensor(matrix),
            ops.zeros(matrix.shape[:1]) if bias is None else bias,
            ops.reshape(labels, (-1,)),
            ops.reshape(weights, (-1,)),
            self.num_chunks,
            self.label_smoothing,
        )
        count = ops.sum(ops.cast(real, "float32"))
        return ops.divide_no_nan(total, count) + sum(self.losses)

    def get_config(self):
        return {
            "name": self.name,
            "trainable": self.trainable,
            "model": keras.saving.serialize_keras_object(self.language_model),
            "num_chunks": self.num_chunks,
            "label_smoothing": self.label_smoothing,
            "ignore_id": self.ignore_id,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        model = keras.saving.deserialize_keras_object(config["model"], custom_objects)
        return cls(**{**config, "model": model})
