"""Named arrays of a checkpoint, read when they are asked for.

A reader is a mapping from name to NumPy array that also knows shapes without
reading: `len`, `in`, iteration over names, `reader[name]`, `reader.shape_of(name)`.
"""

import collections.abc


class Arrays(collections.abc.Mapping):
    """A mapping from name to array made of two functions.

    Args:
        shapes: dict from name to tuple.
        read: function of a name that gives the array.
    """

    def __init__(self, shapes, read):
        self.shapes = dict(shapes)
        self._read = read

    def __getitem__(self, name):
        if name not in self.shapes:
            raise KeyError(name)
        return self._read(name)

    def __contains__(self, name):
        return name in self.shapes

    def __iter__(self):
        return iter(self.shapes)

    def __len__(self):
        return len(self.shapes)

    def shape_of(self, name):
        """Shape of an array, without reading it.

        Args:
            name: str.
        """
        return self.shapes[name]

    def renamed(self, rename):
        """The same arrays under other names.

        Args:
            rename: function from a name to the new one.
        """
        old = {rename(name): name for name in self.shapes}
        shapes = {new: self.shapes[name] for new, name in old.items()}
        return Arrays(shapes, lambda new: self._read(old[new]))


def joined(parts):
    """Several readers as one, as with a checkpoint in several files.

    Args:
        parts: list of `Arrays`.
    """
    owner = {name: part for part in parts for name in part}
    shapes = {name: part.shape_of(name) for name, part in owner.items()}
    return Arrays(shapes, lambda name: owner[name][name])
