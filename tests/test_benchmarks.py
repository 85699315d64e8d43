"""Contenders of the benchmarks: their turns, their failures, their tables."""

import argparse
import json
import time

import numpy as np
import pytest

from benchmarks import pairing, products
from benchmarks.steps import parser, some_of


def pause(milliseconds, threads):
    """A contender that does nothing for a while."""

    def run():
        time.sleep(milliseconds / 1000)

    run.notes = {"threads": threads}
    return run


def broken(threads):
    """A contender that cannot begin."""
    raise ValueError("no such peer")


def test_contenders_take_turns_and_a_broken_one_says_why(tmp_path, capsys):
    this = "tests.test_benchmarks"
    held = np.ones(2**27, "uint8")  # 128 MiB of this process are none of theirs
    short, long, none = pairing.compare(
        [
            pairing.Contender("short", f"{this}:pause", {"milliseconds": 5}),
            pairing.Contender("long", f"{this}:pause", {"milliseconds": 50}, threads=1),
            pairing.Contender("none", f"{this}:broken", {}),
        ],
        repeats=3,
    )
    assert 0.005 <= short["median"] < 0.05 <= long["median"]
    assert (short["notes"], long["notes"]) == ({"threads": 2}, {"threads": 1})
    assert max(short["peak"], long["peak"]) < 64 < held.nbytes / 2**20
    assert none == {"name": "none", "failure": "ValueError: no such peer"}

    rows = [{"contender": "short", "seconds": 0.25}, {"contender": "none"}]
    pairing.write("pauses", {"all": rows}, tmp_path)
    assert "| contender | seconds |\n| --- | --- |\n| short | 0.25 |" in (
        capsys.readouterr().out
    )
    assert json.loads((tmp_path / "pauses.json").read_text())["tables"] == {"all": rows}
    assert (tmp_path / "pauses.png").stat().st_size > 1000


@pytest.mark.tensorflow
@pytest.mark.parametrize("cross", [False, True])
def test_products_are_those_of_every_matrix(cross):
    shape = {"vocabulary": 7, "layers": 2, "width": 4}
    # Averages of ones are ones; their sum with the table's ones is the width.
    outputs = products.xla(shape, rows=3, cross=cross, threads=1)()
    np.testing.assert_allclose(outputs, np.full((3, 7), 4.0), rtol=1e-6)
    sizes = products.sizes(shape, cross)
    assert len(sizes) == 2 * (6 if cross else 4)
    weights = 4 * 4 * (12 + 2 * cross)
    assert sum(rows * columns for rows, columns in sizes) == 2 * weights


def test_a_table_that_is_not_there_is_one_line(capsys):
    assert some_of("a,b,c")("c,a") == ["c", "a"]
    with pytest.raises(argparse.ArgumentTypeError, match="'d' is not of a,b,c"):
        some_of("a,b,c")("a,d")
    with pytest.raises(SystemExit):
        parser("", "greedy,limits").parse_args(["--tables", "speed"])
    assert "'speed' is not of greedy,limits" in capsys.readouterr().err
