"""Contenders in processes of their own, which take turns.

A contender is a function that prepares everything and returns `run()`, which does the
work once. Each lives in its own process, so that libraries do not share threads or
memory; one works while the others wait, and they go round in turn, so that a slow
moment of the machine hits all alike.
"""

import argparse
import contextlib
import importlib
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from importlib import metadata

ROOT = pathlib.Path(__file__).parents[1]
MARK = "@@ "


class Contender:
    """A contender in its process.

    Args:
        name: str, for the table.
        function: str, "module:function".
        settings: dict, the function's keyword arguments.
        threads: int, for whatever library it uses.
        environment: dict of further variables, such as `KERAS_BACKEND`.
    """

    def __init__(self, name, function, settings, threads=2, environment=None):
        self.name, self.seconds, self.failure, self.peak = name, [], None, 0
        self.notes = {}
        limits = {
            key: str(threads)
            for key in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
        }
        words = [sys.executable, "-m", "benchmarks.pairing", function]
        self.process = subprocess.Popen(
            [*words, json.dumps({**settings, "threads": threads})],
            cwd=ROOT,
            env={
                **os.environ,
                "TF_CPP_MIN_LOG_LEVEL": "3",
                **limits,
                **(environment or {}),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def turn(self):
        """Do the work once; keep the seconds."""
        if self.failure is None:
            with contextlib.suppress(BrokenPipeError):  # killed: the answer says so
                self.process.stdin.write("go\n")
                self.process.stdin.flush()
            answer = self._answer()
            if answer is not None:
                self.seconds.append(answer["seconds"])
                self.peak, self.notes = answer["peak"], answer["notes"]

    def close(self):
        """End the process."""
        self.process.communicate()

    def _answer(self):
        for line in self.process.stdout:
            if line.startswith(MARK):
                return json.loads(line[len(MARK) :])
        lines = self.process.stderr.read().strip().splitlines()
        self.failure = lines[-1] if lines else "ended without a word"
        return None


def compare(contenders, repeats=5):
    """Let contenders work in turn.

    Args:
        contenders: list of `Contender`.
        repeats: int, rounds that count, after one that does not.

    Returns: list of dicts: `name`, `median`, `spread` (half the range between the
        fastest and the slowest, of the median), `peak` (most memory that the work
        took beyond what was there before, in MiB), `notes` (a dict that `run` has, if
        any), or `failure`.
    """
    for round_number in range(repeats + 1):
        for contender in contenders:
            contender.turn()
            if round_number == 0:
                contender.seconds.clear()
    results = []
    for contender in contenders:
        contender.close()
        if contender.failure is not None:
            results.append({"name": contender.name, "failure": contender.failure})
            continue
        median = statistics.median(contender.seconds)
        spread = (max(contender.seconds) - min(contender.seconds)) / 2 / median
        numbers = {"median": median, "spread": spread, "peak": contender.peak}
        numbers["notes"] = contender.notes
        results.append({"name": contender.name, **numbers})
    return results


def race(module, contenders, settings, threads, repeats):
    """`compare` the functions of a module.

    Args:
        module: str, in benchmarks/.
        contenders: list of (name, function, further settings).
        settings: dict that all are given.
        threads: int.
        repeats: int.

    Returns: list of dicts, see `compare`.
    """
    return compare(
        [
            Contender(name, f"benchmarks.{module}:{f}", {**settings, **more}, threads)
            for name, f, more in contenders
        ],
        repeats,
    )


def write(name, tables, folder):
    """Write tables as Markdown and JSON and draw their seconds, and print them.

    Args:
        name: str, of the files.
        tables: dict from titles to lists of dicts of numbers and strings.
        folder: str or path.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    record = {"machine": machine(), "tables": tables}
    (folder / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
    lines = [f"# {name}", "", ", ".join(f"{k} {v}" for k, v in machine().items()), ""]
    for title, rows in tables.items():
        columns = list(dict.fromkeys(key for row in rows for key in row))
        lines += [f"## {title}", "", f"| {' | '.join(columns)} |"]
        lines.append(f"|{' --- |' * len(columns)}")
        for row in rows:
            cells = [_cell(row.get(column, "")) for column in columns]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    text = "\n".join(lines)
    (folder / f"{name}.md").write_text(text)
    _draw_bars({k: v for k, v in tables.items() if _seconds(v)}, folder / f"{name}.png")
    print(text)


def _seconds(rows):
    """(contender, seconds) of the rows that have a number of them."""
    first = next(iter(rows[0]), "") if rows else ""
    pairs = [(str(row.get(first, "")), row.get("seconds")) for row in rows]
    return [pair for pair in pairs if isinstance(pair[1], float)]


def _draw_bars(tables, path):
    """One panel of bars for each table of seconds."""
    if not tables:
        return
    import matplotlib.pyplot as plt

    size = sum(len(rows) + 2 for rows in tables.values()) * 0.3
    figure, axes = plt.subplots(
        len(tables), 1, figsize=(8, size), squeeze=False, layout="constrained"
    )
    for axis, (title, rows) in zip(axes[:, 0], tables.items()):
        names, seconds = zip(*_seconds(rows))
        axis.barh(range(len(names)), seconds)
        axis.set_yticks(range(len(names)), names)
        axis.invert_yaxis()
        axis.set(title=title, xlabel="seconds")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def machine():
    """What the numbers depend on: processor, cores, versions."""
    model = platform.processor() or platform.machine()
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    found = {"processor": model, "cores": os.cpu_count()}
    for package in (
        "keras-tfm", "keras", "tensorflow", "keras-hub", "torch", "transformers",
        "ctranslate2", "timm", "onnxruntime", "ai-edge-litert",
    ):  # fmt: skip
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _cell(value):
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main():
    """Be a contender: prepare, then work once for every line on standard input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("function")
    parser.add_argument("settings", type=json.loads)
    given = parser.parse_args()
    module, _, function = given.function.partition(":")
    run = getattr(importlib.import_module(module), function)(**given.settings)
    before = _memory()
    run()
    print(MARK + "null", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        run()
        answer = {
            "seconds": time.perf_counter() - start,
            "peak": _memory("VmHWM") - before,
        }
        answer["notes"] = getattr(run, "notes", {})
        print(MARK + json.dumps(answer), flush=True)


def _memory(line="VmRSS"):
    """MiB that this process holds; with "VmHWM" the most that it ever held."""
    for text in pathlib.Path("/proc/self/status").read_text().splitlines():
        if text.startswith(f"{line}:"):
            return int(text.split()[1]) / 1024


if __name__ == "__main__":
    main()
