"""Golden logits of the encoder-decoders of the package anarcii, in float64.

    python tests/reference/pretrained_anarcii.py FOLDER

Needs torch, and the unpacked package in FOLDER; writes
tests/golden/pretrained/anarcii.npz, which tests/test_pretrained_anarcii.py reads. For
every model: teacher-forced logits. For one: how it numbers an antibody.
"""

import contextlib
import importlib.util
import io
import json
import pathlib
import sys

import numpy as np
import torch

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "pretrained" / "anarcii.npz"
NAMES = ("antibody_4_1", "antibody_4_2", "shark_4_2", "tcr_4_1", "tcr_4_2")
LETTERS = "ACDEFGHIKLMNPQRSTVWXY"  # from id 4
# The heavy chain of trastuzumab.
HEAVY = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKN"
    "TAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS"
)
START, END = 1, 2
SOURCE = [[START, *range(5, 25), END]]
TARGET = [[START, *range(10, 26)]]


def load(package, name):
    """A model of the package in float64."""
    path = package / "inference" / "model.py"
    spec = importlib.util.spec_from_file_location("anarcii_model", path)
    code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    kind, heads, num_layers = name.split("_")
    stem = package / "models" / kind / f"{name}_128_512"
    config = json.loads(stem.with_suffix(".json").read_text())
    width = config["HID_DIM"]
    sizes = width, int(num_layers), int(heads), 4 * width, 0.0, "cpu"
    encoder = code.Encoder(config["INPUT_DIM"], *sizes)
    decoder = code.Decoder(config["OUTPUT_DIM"], *sizes)
    pads = config["SRC_PAD_IDX"], config["TRG_PAD_IDX"]
    model = code.S2S(encoder, decoder, *pads, "cpu")
    file = stem.with_suffix(".pt")
    model.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    for side in (encoder, decoder):
        side.scale = torch.sqrt(torch.tensor([float(width)], dtype=torch.float64))
    return model.double().eval()


def logits_of(model, source, target):
    """Teacher-forced logits; the package prints shapes."""
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        return model(torch.tensor(source), torch.tensor(target))[0].numpy()


def number(model, letters):
    """Source and greedy target of an amino acid sequence."""
    source = [[START, *(4 + LETTERS.index(letter) for letter in letters), END]]
    target = [[START]]
    while target[0][-1] != END:
        target[0].append(int(logits_of(model, source, target)[0, -1].argmax()))
    return np.array(source), np.array(target)


def main(package):
    """Run all models and write the file."""
    arrays = {"source": np.array(SOURCE), "target": np.array(TARGET)}
    for name in NAMES:
        logits = logits_of(load(package, name), SOURCE, TARGET)
        arrays[f"{name}/logits"] = logits.astype("float32")
    arrays["heavy"], arrays["numbers"] = number(load(package, "antibody_4_2"), HEAVY)
    np.savez_compressed(GOLDEN, **arrays)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
