"""The one error that reading data raises."""


class DataError(ValueError):
    """Data that cannot be read: the message is one line that says what and why.

    Raised for a missing or empty file, a column or class that is not there, an
    unknown data set, and a set that has no local copy while no network is there.
    """
