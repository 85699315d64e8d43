"""The one error that reading and writing checkpoints raises."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be read or written: one line, naming file and array.

    Raised for a missing or cut file, an unknown architecture, arrays that do not
    fit, a pickle with code in it, and a quantisation that is not supported.
    """
