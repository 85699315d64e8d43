"""What the machine allows a generating Transformer: rates of reading."""

import threading
import time

import numpy as np


def copy_bandwidth(threads=2, gigabytes=1.0):
    """Bytes read and written a second when large arrays are copied.

    Args:
        threads: int.
        gigabytes: float, of the arrays together.
    """
    count = int(gigabytes * 2**30 / 4 / threads)
    pairs = [
        (np.ones(count, "float32"), np.empty(count, "float32")) for _ in range(threads)
    ]

    def copy():
        workers = [
            threading.Thread(target=np.copyto, args=(to, source))
            for source, to in pairs
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    return 2 * 4 * count * threads / _best(copy)


def read_bandwidth(threads=2, gigabytes=1.0):
    """Bytes read a second by a large matrix times a vector, in PyTorch.

    Args:
        threads: int.
        gigabytes: float, of the matrix.
    """
    import torch

    torch.set_num_threads(threads)
    matrix = torch.ones(int(gigabytes * 2**30 / 4 / 1024), 1024)
    vector = torch.ones(1024)
    return 4 * matrix.numel() / _best(lambda: torch.mv(matrix, vector))


def weights_read(shape):
    """Bytes of float32 weights that a token of batch 1 has to read, of a GPT.

    Args:
        shape: dict of `vocabulary`, `layers`, `width`.
    """
    width = shape["width"]
    block = 12 * width * width + 13 * width
    return 4 * (shape["layers"] * block + 2 * width + shape["vocabulary"] * width)


def limits(gpt, threads):
    """Rows of a table: rates of the machine and the tokens a second that follow.

    Args:
        gpt: dict, shape of the decoder of batch 1.
        threads: int.
    """
    read = read_bandwidth(threads)
    rates = {
        "copying, GB/s read and written": copy_bandwidth(threads) / 1e9,
        "reading, GB/s": read / 1e9,
        "tokens/s at batch 1, float32 weights read once each": read / weights_read(gpt),
        "the same, int8": 4 * read / weights_read(gpt),
    }
    return [{"limit": name, "rate": rate} for name, rate in rates.items()]


def _best(run, repeats=5):
    """Seconds of the fastest of some runs, after one that does not count."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])
