"""The image recipe on slices of real images: trains, stops, goes on, exports."""

import json

import keras
import numpy as np
import pytest

from keras_tfm import checkpoints, data, export, models
from recipes import flags, vit_cifar

pytestmark = pytest.mark.tensorflow

TINY = {
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "batch_size": 64,
    "jit": "off",
}
FILES = {
    "README.md",
    "attention.png",
    "config.json",
    "curves.png",
    "history.jsonl",
    "logs",
    "metrics.json",
    "model.keras",
    "model.tflite",
    "saved_model",
}


def configure(**given):
    return flags.configure(vit_cifar.Config, vit_cifar.PRESETS, **{**TINY, **given})


def test_digits(tmp_path, capsys):
    config = configure(
        output_dir=str(tmp_path), epochs=10, hidden_dim=32, learning_rate=5e-3
    )
    metrics = vit_cifar.run(config)
    history = json.loads((tmp_path / "metrics.json").read_text())["history"]
    assert history["loss"][-1] < 0.8 * history["loss"][0]
    assert metrics["test_accuracy"] > 3 * metrics["baseline_majority_class"]
    assert metrics["baseline_majority_class"] == pytest.approx(0.1, abs=0.01)
    assert {path.name for path in tmp_path.iterdir()} == FILES
    printed = capsys.readouterr().out
    assert "test image 7" in printed and "saved_model: predictions agree" in printed

    # The files alone give the model's answers, from raw pixels in [0, 1].
    _, (images, truth) = data.load_digits(seed=0)
    inputs = {"images": (images / 255).astype("float32")}
    answers = export.run_file(tmp_path / "saved_model", inputs, "predict")
    labels = np.array([int(label) for label in answers["label"]])
    assert (labels == truth).mean() == pytest.approx(metrics["test_accuracy"])
    np.testing.assert_allclose(answers["probabilities"].sum(-1), 1, atol=1e-5)
    logits = export.run_file(tmp_path / "model.tflite", inputs)["logits"]
    assert (logits.argmax(-1) == labels).mean() > 0.995
    model = keras.models.load_model(tmp_path / "model.keras")
    pixels = inputs["images"]
    np.testing.assert_allclose(model.predict(pixels, verbose=0), logits, atol=1e-4)

    # The same command again says that all is done, and touches nothing.
    before = (tmp_path / "metrics.json").read_bytes()
    argv = ["--output-dir", str(tmp_path)]
    assert vit_cifar.main(argv) == 2
    assert "holds a finished run" in capsys.readouterr().err
    assert (tmp_path / "metrics.json").read_bytes() == before


@pytest.fixture
def init(tmp_path):
    """A folder as of a pretrained DINOv2, of 8 x 8 colour images."""
    keras.utils.set_random_seed(0)
    model = models.VisionTransformer(8, 4, 1, 2, 16, 32, layer_scale=1.0)
    checkpoints.save_pretrained(model, tmp_path / "init")
    return tmp_path / "init"


def test_probe_of_a_pretrained_model(init, tmp_path, capsys):
    out = tmp_path / "out"
    config = configure(
        init=str(init),
        image_size=16,  # another than the checkpoint's
        examples=500,
        epochs=40,
        learning_rate=1e-2,
        output_dir=str(out),
    )
    metrics = vit_cifar.run(config)
    assert metrics["test_accuracy"] > 3 * metrics["baseline_majority_class"]
    assert {path.name for path in out.iterdir()} == FILES
    printed = capsys.readouterr().out
    assert "Features of 475 train images" in printed
    # The head went into the model, the backbone is as it was, the files agree.
    model = keras.models.load_model(out / "model.keras")
    backbone = model.get_layer("logits").backbone
    before = checkpoints.load_pretrained(init, image_size=16)
    for one, other in zip(backbone.weights, before.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    _, (images, truth) = data.load_digits(seed=0)
    inputs = (images / 255).astype("float32")
    logits = export.run_file(out / "model.tflite", {"images": inputs})["logits"]
    accuracy = (logits.argmax(-1) == truth).mean()
    assert accuracy == pytest.approx(metrics["test_accuracy"], abs=0.01)


@pytest.mark.long
def test_fine_tuning_a_pretrained_model(init, tmp_path):
    statistics = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (init / "preprocessor_config.json").write_text(json.dumps(statistics))
    out = tmp_path / "out"
    config = configure(
        init=str(init),
        fine_tune=1,
        image_size=8,
        examples=200,
        epochs=1,
        output_dir=str(out),
    )
    assert 0 <= vit_cifar.run(config)["test_accuracy"] <= 1
    model = keras.models.load_model(out / "model.keras")
    grey = np.full((1, 8, 8, 1), 0.75, "float32")
    normalised = keras.Model(model.input, model.layers[-2].output)(grey)
    np.testing.assert_allclose(normalised, np.ones((1, 8, 8, 3)), atol=1e-5)
    before = checkpoints.load_pretrained(init)
    kernel = before.get_layer("block_0").feed_forward.up.kernel
    backbone = model.get_layer("logits").backbone
    trained = backbone.get_layer("block_0").feed_forward.up.kernel
    assert np.abs(np.asarray(trained) - np.asarray(kernel)).max() > 5e-5


@pytest.mark.long
def test_mixed_images_train_on_one_hot_labels(tmp_path):
    config = configure(
        output_dir=str(tmp_path),
        examples=200,
        epochs=1,
        mix="cutmix",
        mixed_precision="bfloat16",
    )
    assert 0 <= vit_cifar.run(config)["test_accuracy"] <= 1
    model = keras.models.load_model(tmp_path / "model.keras")
    backbone = model.get_layer("logits").layers[1]
    assert backbone.dtype_policy.name == "mixed_bfloat16"


@pytest.mark.long
def test_folder_of_images(tmp_path):
    rng = np.random.default_rng(0)
    for name, level in (("dark", 40), ("light", 200)):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(20):
            pixels = np.clip(rng.normal(level, 20, (12, 9, 3)), 0, 255)
            path = tmp_path / "images" / name / f"{number}.png"
            keras.utils.save_img(path, pixels, scale=False)
    config = configure(
        dataset=f"folder:{tmp_path / 'images'}",
        output_dir=str(tmp_path / "out"),
        image_size=8,
        patch_size=4,
        shift=1,
        epochs=8,
        batch_size=8,
        learning_rate=1e-2,
    )
    assert config.flip == 1  # the preset of folder:
    assert vit_cifar.run(config)["test_accuracy"] == 1.0


def test_slice_of_cifar10(tfds_dir, tmp_path):
    config = configure(
        dataset="cifar10", data_dir=str(tfds_dir), examples=300, epochs=1
    )
    parts, names = vit_cifar.load(config)
    images, labels = parts["train"]
    assert images.shape == (286, 32, 32, 3) and images.dtype == "uint8"
    assert len(parts["validation"][1]) == 14 and len(parts["test"][1]) == 10_000
    assert names[:3] == ["airplane", "automobile", "bird"] and len(names) == 10
    model = vit_cifar.build(config, images, len(names))
    assert tuple(model.output.shape) == (None, 10) and config.patch_size == 4
    # The model standardises its inputs itself.
    x = model.layers[1](images / 255.0)
    np.testing.assert_allclose(np.mean(x, axis=(0, 1, 2)), 0, atol=1e-3)
    np.testing.assert_allclose(np.std(x, axis=(0, 1, 2)), 1, atol=1e-3)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--dataset no_such_set", "no_such_set"),
        ("--dataset folder:no/such/folder", "no/such/folder is not a folder"),
        ("--num-heads 3", "num_heads"),
        ("--patch-size 3", "`patch_size` must divide `image_size`"),
        ("--shift 8", "`crop_padding` must be in [0, 8), got 8"),
        ("--activation none", "none"),
        ("--epochs 0", "--epochs must be positive"),
        ("--init no/such/folder", "neither a file nor a folder"),
    ],
)
def test_wrong_settings_end_in_one_line(argv, words, tmp_path, capsys):
    code = vit_cifar.main([*argv.split(), "--output-dir", str(tmp_path / "out")])
    error = capsys.readouterr().err.strip()
    assert code == 2 and words in error and len(error.splitlines()) == 1
