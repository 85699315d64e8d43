"""LinformerAttention against NumPy and dense attention, its laws, its refusals."""

import numpy as np
import pytest
from keras import ops

from keras_tfm import layers
from tests import laws, numpy_layers
from tests.laws import assert_near, normal, randomize, to_numpy

B, T, S, N, D, SOURCE, LENGTH, RANK = 2, 7, 5, 3, 12, 4, 11, 2
SHARING = ["none", "headwise", "key_value"]
sharings = pytest.mark.parametrize("sharing", SHARING)


def make(sharing="none", *shapes, **config):
    config = {"max_length": LENGTH, "rank": RANK, "sharing": sharing, **config}
    layer = layers.LinformerAttention(N, **config)
    layer.build(*(shapes or [(None, None, D)]))
    return randomize(layer)


def reference(layer, x, context=None, keep=None):
    """Outputs, from keys and values mixed token by token."""
    context = x if context is None else context
    keep = np.ones(context.shape[:2], bool) if keep is None else keep
    mixers = [np.broadcast_to(to_numpy(m), (N, LENGTH, RANK)) for m in mixers_of(layer)]
    pair = []
    for projection, mixer in zip((layer.key, layer.value), mixers):
        heads = numpy_layers.dense(projection, context)
        heads = heads.reshape(*context.shape[:2], N, -1)
        mixed = np.zeros((len(context), RANK, N, heads.shape[-1]))
        for b, s in np.argwhere(keep):
            row = np.sum(keep[b, :s])  # how many real tokens stand before it
            mixed[b] += np.einsum("nr,nh->rnh", mixer[:, row], heads[b, s])
        pair.append(mixed)
    query = numpy_layers.dense(layer.query, x).reshape(*x.shape[:2], N, -1)
    heads, weights = numpy_layers.attention(query, *pair)
    heads = heads.reshape(*x.shape[:2], -1)
    return numpy_layers.dense(layer.output_projection, heads), weights


def mixers_of(layer):
    return layer.key_mixer, layer.value_mixer


@sharings
@pytest.mark.parametrize("cross", [False, True])
def test_matches_numpy(sharing, cross):
    context = normal(B, S, SOURCE) if cross else None
    length = S if cross else T
    layer = make(sharing, (B, T, D), (B, S, SOURCE) if cross else (B, T, D))
    x, keep = normal(B, T, D), np.arange(length) % 3 != [[1], [0]]
    outputs, weights = layer(
        x, context=context, padding_mask=keep, return_attention_scores=True
    )
    expected = reference(layer, x, context, keep)
    assert_near(outputs, expected[0])
    assert_near(weights, expected[1])
    assert_near(layer(x, context=context), reference(layer, x, context)[0])


@sharings
def test_identity_projections_equal_dense(sharing):
    layer, x = make(sharing, max_length=T, rank=T), normal(B, T, D)
    for mixer in mixers_of(layer):
        mixer.assign(np.broadcast_to(np.eye(T), mixer.shape))
    dense = layers.MultiHeadAttention(N)
    dense.build(x.shape)
    dense.set_weights(layer.get_weights()[-8:])
    assert [w.path.split("/")[1:] for w in layer.weights[-8:]] == [
        w.path.split("/")[1:] for w in dense.weights
    ]
    actual, expected = (y(x, return_attention_scores=True) for y in (layer, dense))
    assert_near(actual[0], expected[0])
    assert_near(actual[1], expected[1])


def test_sharing():
    assert [tuple(m.shape) for m in mixers_of(make("none"))] == [(N, LENGTH, RANK)] * 2
    one = make("headwise")
    assert [tuple(m.shape) for m in mixers_of(one)] == [(1, LENGTH, RANK)] * 2
    assert one.key_mixer is not one.value_mixer and len(one.weights) == 10
    one = make("key_value")
    assert one.key_mixer is one.value_mixer and len(one.weights) == 9


@sharings
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(sharing, side):  # FAULTS O70
    layer = make(sharing)

    def run(x, mask):
        return to_numpy(layer(x, padding_mask=mask))

    padding = 100 * normal(B, 3, D)
    laws.padding_changes_nothing(run, normal(B, T, D), padding, side)


def test_gradients_know_no_padding():
    layer, x = make(), normal(1, 4, D)
    places = [0, 2, 3, 5]
    padded = 100 * normal(1, T, D)
    padded[:, places] = x
    keep = np.isin(np.arange(T), places)[np.newaxis]

    def padded_loss(padded):
        outputs = layer(padded, padding_mask=keep)
        return ops.sum(ops.where(keep[..., np.newaxis], outputs, 0) ** 2)

    of_x, *of_weights = laws.gradients(lambda x: ops.sum(layer(x) ** 2), x, layer)
    of_padded, *found = laws.gradients(padded_loss, padded, layer)
    assert_near(of_padded[:, places], of_x, atol=1e-4)
    assert not np.any(of_padded[~keep])
    for one, other in zip(found, of_weights):
        assert_near(one, other, atol=1e-4)


def test_shorter_inputs_use_the_first_rows():  # FAULTS O70
    layer, x = make(), normal(B, 3, D)
    expected = layer(x)
    for mixer in mixers_of(layer):
        changed = to_numpy(mixer)
        changed[:, 3:] = 100.0
        mixer.assign(changed)
    assert_near(layer(x), expected)


def test_cached_cross_attention():
    x, context = normal(B, T, D), normal(B, S, SOURCE)
    layer = make("headwise", x.shape, context.shape)
    mask = np.arange(S) < [[S], [S - 3]]
    full = to_numpy(layer(x, context=context, padding_mask=mask))
    laws.cached_equals_full(layer, x, full, T, context, context_padding_mask=mask)


def test_rows_without_a_key_give_the_bias():
    layer, x = make(), normal(B, T, D)
    mask = np.array([[1] * T, [0] * T], bool)
    bias = to_numpy(layer.output_projection.bias)
    laws.masked_rows_are_empty(layer, x, {"padding_mask": mask}, ~mask, bias)


def test_every_argument_counts():
    x, context = normal(B, T, D), normal(B, S, D)
    keep, seen = np.arange(T) < [[3], [T]], np.arange(S) < [[3], [S]]
    laws.every_argument_counts(
        make(attention_dropout=0.5),
        x,
        {
            "context": context,
            "padding_mask": keep,
            "return_attention_scores": True,
            "training": True,
            "mask": keep,
            "inputs_mask": keep,
            "context_mask": (seen, {"context": context}),
        },
        refused={
            "attention_mask": np.ones((T, T), bool),
            "attention_bias": normal(N, T, T),
            "positions": np.arange(T),
            "use_causal_mask": True,  # FAULTS O70
        },
    )


@pytest.mark.tensorflow
def test_no_tensor_grows_with_the_square_of_the_length():  # FAULTS O67
    layer = make(max_length=4096)
    largest = [laws.largest_tensor(layer, (1, length, D)) for length in (1024, 4096)]
    assert largest[1] <= 4.2 * largest[0]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_heads": 0}, "`num_heads` must be positive, got 0"),
        ({"rank": 12}, "`rank` must be in 1 ... `max_length`, got 12 and 11"),
        ({"rank": 0}, "`rank` must be in 1 ... `max_length`, got 0 and 11"),
        ({"sharing": "layerwise"}, "`sharing` must be \"none\", .* got 'layerwise'"),
        ({"max_length": 6}, "at most `max_length` 6, got 7"),
    ],
)
def test_refused(config, message):
    config = {"num_heads": N, "max_length": LENGTH, "rank": RANK, **config}
    with pytest.raises(ValueError, match=message):
        layers.LinformerAttention(**config)(normal(B, T, D))


def test_no_cache_without_a_context():
    with pytest.raises(ValueError, match="is not causal"):
        make().init_cache(B, T)
    block = layers.TransformerDecoderBlock(
        layers.LinformerAttention(N, LENGTH, RANK), layers.FeedForward(4)
    )
    with pytest.raises(ValueError, match="takes no `use_causal_mask`"):
        block(normal(B, T, D))
