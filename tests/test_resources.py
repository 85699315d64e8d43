import functools

import keras
import pytest

from keras_tfm.export.resources import find_resources

pytestmark = pytest.mark.tensorflow
LOOKUP = keras.layers.Identity(name="global")


def table():
    import tensorflow as tf

    pairs = tf.lookup.KeyValueTensorInitializer(["a"], [1])
    return tf.lookup.StaticHashTable(pairs, 0)


def helper(text):
    return LOOKUP(text)


class Plain:
    def __init__(self, part):
        self.parts = {"one": [part]}

    def __call__(self, text):
        return self.parts["one"][0](text)

    def method(self, text):
        return text


def test_found_wherever_a_function_keeps_it():
    import tensorflow as tf

    part = keras.layers.Identity()
    functions = [
        part,
        lambda text: part(text),
        lambda texts: [part(text) for text in texts],
        functools.partial(lambda layer, text: layer(text), part),
        functools.partial(lambda text, layer: layer(text), layer=part),
        Plain(part),
        Plain(part).method,
        tf.function(lambda text: part(text)),
        (part, part),
    ]
    for function in functions:
        assert find_resources(function) == [part]


def test_globals_are_followed_through_other_functions():
    assert find_resources(lambda text: helper(text)) == [LOOKUP]
    assert find_resources(helper) == [LOOKUP]


def test_tables_and_modules():
    import tensorflow as tf

    lookup, module = table(), tf.Module()
    assert find_resources(lookup.lookup) == [lookup]
    assert find_resources([module, lookup]) == [module, lookup]


def test_nothing_in_plain_functions():
    assert find_resources(len) == []
    assert find_resources(lambda text: text) == []
    assert find_resources(None) == []


def test_a_name_that_is_not_assigned_yet():
    def function():
        return later

    assert find_resources(function) == []
    later = keras.layers.Identity()
    assert find_resources(function) == [later]
