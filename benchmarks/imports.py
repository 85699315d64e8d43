"""How long it takes to import, each time in a new process.

    python -m benchmarks.imports

`import keras_tfm` is to add less than 0.3 s to `import keras`.
"""

import subprocess
import sys

from benchmarks.pairing import write
from benchmarks.steps import parser

MODULES = ("keras", "keras_tfm", "keras_hub", "transformers", "timm")


def seconds(module):
    """Time of one import, without the start of Python.

    Args:
        module: str.

    Returns: float, or str why not.
    """
    code = f"import time; t = time.perf_counter(); import {module}"
    words = [sys.executable, "-c", f"{code}; print('@', time.perf_counter() - t)"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    return float(done.stdout.split("@")[-1])


def main():
    """Run from the command line."""
    given = parser(__doc__, "imports").parse_args()
    times = {module: [] for module in MODULES}
    for round_number in range(given.repeats + 1):
        for module in MODULES:
            took = seconds(module)
            if round_number:  # the first fills the caches
                times[module].append(took)
    rows = []
    for module, took in times.items():
        numbers = sorted(t for t in took if isinstance(t, float))
        median = numbers[len(numbers) // 2] if numbers else took[0]
        rows.append({"import": module, "seconds": median})
    write("imports", {"imports": rows}, given.output_dir)


if __name__ == "__main__":
    main()
