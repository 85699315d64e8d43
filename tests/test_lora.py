"""Adapters: NumPy's formula, what is trained, merged and taken apart again."""

import keras
import numpy as np
import pytest

from keras_tfm import generation, models, training
from keras_tfm.training import adapters
from tests.laws import EAGER, assert_near, quantize, to_numpy, token_ids

B, T, V, D, F, L, C, R = 6, 5, 31, 8, 12, 3, 4, 2
SIZES = {"num_heads": 2, "hidden_dim": D, "intermediate_dim": F, "dropout": 0.0}
IDS, LABELS = token_ids(B, T), np.arange(B) % C


def bert(dtype=None):
    backbone = models.Bert(V, L, max_sequence_length=16, dtype=dtype, **SIZES)
    return models.classifier(backbone, C)


def gpt(dtype=None):
    return models.GPT(V, L, max_sequence_length=16, dtype=dtype, **SIZES)


def fit(model, epochs=20, rate=0.02, labels=LABELS):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(rate), loss, **EAGER)
    return model.fit(IDS, labels, epochs=epochs, verbose=0).history["loss"]


def paths(weights):
    return [weight.path for weight in weights]


def kernels_of(model):
    """Every weight but the factors, bit by bit."""
    return {
        weight.path: np.array(to_numpy(weight))
        for weight in model.weights
        if "lora_kernel" not in weight.path
    }


def assert_equal(one, other, but=()):
    assert one.keys() == other.keys()
    moved = {name for name in one if not np.array_equal(one[name], other[name])}
    assert moved == set(but)


def randomize_adapters(model):
    rng = np.random.default_rng(5)
    for layer in adapters.adapted(model).values():
        for weight in (layer.lora_kernel_a, layer.lora_kernel_b):
            weight.assign(rng.normal(size=weight.shape))


def test_nothing_changes_at_first_and_only_adapters_are_trained(capsys):
    model = bert()
    before = to_numpy(model(IDS))
    count = training.add_lora(model, rank=R)
    assert_near(model(IDS), before, atol=0)
    factors = L * 2 * (D * R + R * D)  # query and value of each block
    assert count.trainable == factors
    assert count.total == model.count_params()
    assert capsys.readouterr().out == f"{count}\n"
    assert str(count).startswith(f"{factors:,} of {count.total:,} parameters are")
    assert count.percent == pytest.approx(100 * factors / count.total)
    assert paths(model.trainable_weights) == [
        f"block_{i}/attention/{part}/lora_kernel_{factor}"
        for i in range(L)
        for part in ("query", "value")
        for factor in "ab"
    ]


@pytest.mark.parametrize("build", [bert, gpt])
def test_fit_moves_adapters_and_heads_alone(build):
    model = build()
    before = kernels_of(model)
    train = ("logits", "pooler") if build is bert else ("final_norm",)
    training.add_lora(model, rank=R, train=train, verbose=False)
    loss = fit(model, labels=LABELS if build is bert else IDS)
    assert loss[-1] < 0.99 * loss[0]
    heads = [name for name in before if name.split("/")[0] in train]
    assert heads
    assert_equal(before, kernels_of(model), but=heads)
    for layer in adapters.adapted(model).values():
        assert np.any(to_numpy(layer.lora_kernel_b))


def test_numbers_are_those_of_the_formula():
    """A model whose kernels are W + scale A B, made with NumPy."""
    model, plain = bert(), bert()
    plain.set_weights(model.get_weights())
    training.add_lora(model, rank=R, alpha=5.0, targets=".*", verbose=False)
    randomize_adapters(model)
    twins = adapters.projections(plain)
    assert len(twins) == 6 * L + 2  # q, k, v, output, up, down; pooler, logits
    for path, layer in adapters.adapted(model).items():
        a, b = to_numpy(layer.lora_kernel_a), to_numpy(layer.lora_kernel_b)
        twins[path].kernel.assign(to_numpy(twins[path].kernel) + 5.0 / R * a @ b)
    assert_near(model(IDS), plain(IDS), atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("build", [bert, gpt])
def test_merge_and_unmerge(build, dtype):
    model = build(dtype)
    plain_weights, before = len(model.weights), kernels_of(model)
    training.add_lora(model, rank=R, alpha=4.0, verbose=False)
    randomize_adapters(model)
    expected = model.predict(IDS, verbose=0)
    trained = paths(model.trainable_weights)
    training.merge_lora(model)
    tolerance = 1e-5 if dtype == "float32" else 0.1
    assert_near(model.predict(IDS, verbose=0), expected, atol=tolerance)
    assert len(model.weights) == plain_weights and not model.trainable_weights
    training.unmerge_lora(model)
    assert_equal(before, kernels_of(model))
    assert paths(model.trainable_weights) == trained
    assert_near(model.predict(IDS, verbose=0), expected, atol=0)


def test_training_goes_on_after_unmerge():
    model = bert()
    training.add_lora(model, rank=R, train="logits", verbose=False)
    first = fit(model, epochs=5)
    training.merge_lora(model)
    assert paths(model.trainable_weights) == ["logits/kernel", "logits/bias"]
    training.unmerge_lora(model)
    before = kernels_of(model)
    assert fit(model, epochs=10)[-1] < first[-1]
    assert_equal(before, kernels_of(model), but=["logits/kernel", "logits/bias"])


def test_merged_model_is_saved_as_a_plain_one(tmp_path):
    model = bert()
    training.add_lora(model, rank=R, targets=(".*",), verbose=False)
    randomize_adapters(model)
    expected = to_numpy(model(IDS))
    training.merge_lora(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_near(loaded(IDS), expected, atol=1e-4)
    assert not adapters.adapted(loaded) and len(loaded.weights) == len(bert().weights)
    model.trainable = False
    model.save(tmp_path / "frozen.keras")
    assert not keras.models.load_model(tmp_path / "frozen.keras").trainable_weights


def test_saved_with_adapters_on_is_a_plain_model_of_the_same_numbers(tmp_path):
    model = bert()
    training.add_lora(model, rank=R, verbose=False)
    randomize_adapters(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_near(loaded(IDS), model(IDS), atol=1e-5)
    assert not adapters.adapted(loaded)


@pytest.mark.tensorflow
def test_backup_goes_on_learning(tmp_path):
    """Keras alone zeroes both factors when it restores, for ever."""

    def run(epochs, stop=None):
        keras.utils.set_random_seed(0)
        model = bert()
        training.add_lora(model, rank=R, seed=1, verbose=False)
        model.compile(
            keras.optimizers.Adam(0.02),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            **EAGER,
        )
        backup = keras.callbacks.BackupAndRestore(
            tmp_path / f"backup_{stop}", delete_checkpoint=False
        )
        model.fit(IDS, LABELS, 3, epochs, 0, [backup], shuffle=False)
        return model

    run(2, stop=True)
    resumed, straight = run(4, stop=True), run(4)
    for one, other in zip(resumed.weights, straight.weights):
        assert_near(one, other, atol=1e-6)
    assert_equal(kernels_of(resumed), kernels_of(straight))


def test_compiled_numbers_follow(tmp_path):
    """No graph of before is run after a change."""
    model = gpt()
    before = model.predict(IDS, verbose=0)
    training.add_lora(model, rank=R, verbose=False)
    randomize_adapters(model)
    changed = model.predict(IDS, verbose=0)
    assert np.max(np.abs(changed - before)) > 0.01
    ids = generation.generate(model, IDS, max_new_tokens=4)
    training.merge_lora(model)
    assert_near(model.predict(IDS, verbose=0), changed, atol=1e-5)
    again = generation.generate(model, IDS, max_new_tokens=4)
    np.testing.assert_array_equal(again, ids)


def test_cached_decoding_has_the_adapter():
    """One row at a time, the path that multiplies in parts."""
    model = gpt()
    training.add_lora(model, rank=R, targets=".*", verbose=False)
    randomize_adapters(model)
    full, cache, rows = to_numpy(model(IDS[:1])), model.init_cache(1, T), []
    for t in range(T):
        index = keras.ops.convert_to_tensor(t, "int32")
        logits, cache = model.call_with_cache(IDS[:1, t : t + 1], cache, index)
        rows.append(to_numpy(logits))
    assert_near(np.concatenate(rows, axis=1), full, atol=1e-4)


def test_targets_by_name_and_by_expression():
    def found(targets):
        model = bert()
        training.add_lora(model, rank=R, targets=targets, verbose=False)
        return sorted(adapters.adapted(model))

    assert found("query") == [f"block_{i}/attention/query" for i in range(L)]
    assert found("block_1/.*") == [
        *(f"block_1/attention/{part}" for part in ("key", "output", "query", "value")),
        "block_1/feed_forward/down",
        "block_1/feed_forward/up",
    ]
    assert found(["block_2/attention/key", "pooler"]) == [
        "block_2/attention/key",
        "pooler",
    ]


def test_keras_own_attention():
    inputs = keras.Input((T, D))
    outputs = keras.layers.MultiHeadAttention(2, 4, name="attention")(inputs, inputs)
    model = keras.Model(inputs, outputs)
    x = np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")
    training.add_lora(model, rank=R, verbose=False)
    assert sorted(adapters.adapted(model)) == ["attention/query", "attention/value"]
    randomize_adapters(model)
    expected = to_numpy(model(x))
    training.merge_lora(model)
    assert_near(model(x), expected, atol=1e-4)


def test_seed_decides_the_factors():
    def factors(seed):
        model = bert()
        training.add_lora(model, rank=R, seed=seed, verbose=False)
        return [to_numpy(x.lora_kernel_a) for x in adapters.adapted(model).values()]

    one, same, other = factors(1), factors(1), factors(9)
    for a, b, c in zip(one, same, other):
        np.testing.assert_array_equal(a, b)
        assert np.all(a != c)
    assert np.all(one[0] != one[1])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"targets": "attention/queries"}, "no projection is called 'attention/quer"),
        ({"targets": ()}, "no projection is called ''; there are block_0/attention/q"),
        ({"rank": 0}, r"from 1 to 8 for the kernel \(8, 8\) of block_0/attention/q"),
        ({"rank": 9}, "`rank` must be an int from 1 to 8"),
        ({"rank": 2.0}, "`rank` must be an int"),
        ({"rank": C + 1, "targets": "logits"}, r"kernel \(8, 4\) of logits, got 5"),
        ({"train": "head"}, "`train`: no layer with weights is called 'head'; the mod"),
    ],
)
def test_wrong_arguments_leave_the_model_as_it_was(arguments, words):
    model = bert()
    trained = paths(model.trainable_weights)
    with pytest.raises(ValueError, match=words):
        training.add_lora(model, verbose=False, **{"rank": R, **arguments})
    assert not adapters.adapted(model) and paths(model.trainable_weights) == trained


def test_wrong_states():
    with pytest.raises(ValueError, match="must be built"):
        training.add_lora(keras.Sequential([keras.layers.Dense(3)]))
    model = bert()
    with pytest.raises(ValueError, match="must have adapters"):
        training.merge_lora(model)
    with pytest.raises(ValueError, match="must be merged"):
        training.unmerge_lora(model)
    training.add_lora(model, rank=R, verbose=False)
    with pytest.raises(ValueError, match="adapters already"):
        training.add_lora(model, rank=R)
    training.merge_lora(model)
    with pytest.raises(ValueError, match="`unmerge_lora` first"):
        training.add_lora(model, rank=R)


@pytest.mark.tensorflow
def test_quantized_layers_are_refused():
    model = bert()
    quantize(model)
    with pytest.raises(ValueError, match="block_0/attention/query is"):
        training.add_lora(model, rank=R)
