"""SmolLM2-135M as a LiteRT file beside llama.cpp: tokens a second, and perplexity.

    python -m benchmarks.smollm2 FILE.gguf --data-dir FOLDER
    python -m benchmarks.smollm2 FILE.gguf --data-dir FOLDER --windows 2 --repeats 1

Tables: greedy (prompt 32 + 96 new tokens of real text, batch 1; contenders take
turns), perplexity on windows of gutenberg_books (a TFDS name, in --data-dir), and
what each file takes: bytes, seconds and memory to make.
Needs ".[benchmarks]" and llama-cpp-python. Q8_0 is made of the file's own numbers.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks import pairing

KINDS = {"float32": None, "int8": "dynamic"}
PROMPT, NEW, PROMPTS = 32, 96, 4


# What the files are made by, each in a process of its own.


def convert(source, target, kind, task):
    """Write a LiteRT file of a GGUF file: the decoding loop, or the logits."""
    from keras_tfm import checkpoints, export

    model = checkpoints.load_pretrained(source)
    quantize, task = KINDS[kind], int(task)
    if task:  # windows of that length
        export.to_litert(model, target, quantize, batch_size=1, length=task)
    else:
        export.generation_to_litert(
            model, target, max_length=PROMPT + NEW, quantize=quantize,
            batch_size=1, length=PROMPT,
        )  # fmt: skip


def requantize(source, target, kind, task):
    """Write a GGUF file in Q8_0."""
    import llama_cpp

    settings = llama_cpp.llama_model_quantize_default_params()
    settings.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0
    settings.allow_requantize = True
    names = str(source).encode(), str(target).encode()
    assert llama_cpp.llama_model_quantize(*names, settings) == 0


def make(function, source, target, kind="", task=0):
    """Run one of the above; return bytes, seconds and peak memory."""
    words = [function, str(source), str(target), kind, str(task)]
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "benchmarks.smollm2", *words])
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(words)} failed.")
    return {
        "file": pathlib.Path(target).name,
        "MB": pathlib.Path(target).stat().st_size / 1e6,
        "seconds to make": time.perf_counter() - start,
        "peak GB": usage.ru_maxrss / 2**20,
    }


# Contenders: each goes on with the same prompts.


def litert(file, prompts, new, threads):
    """keras_tfm, the decoding loop as a LiteRT file."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(file), num_threads=threads)
    run = interpreter.get_signature_runner("serving_default")
    rows = [np.array([prompt], "int32") for prompt in prompts]
    mask = np.ones(rows[0].shape, bool)

    def go():
        made = [run(token_ids=row, padding_mask=mask)["token_ids"] for row in rows]
        assert made[0].shape[-1] == len(prompts[0]) + new

    return go


class Llama:
    """llama.cpp, its C interface: no Python beside the loop over tokens."""

    def __init__(self, file, threads, length):
        import llama_cpp

        self.api = llama_cpp
        quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        self.quiet = quiet  # the library keeps a pointer
        llama_cpp.llama_log_set(quiet, None)
        llama_cpp.llama_backend_init()
        settings = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(str(file).encode(), settings)
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = settings.n_batch = settings.n_ubatch = max(256, length)
        settings.n_threads = settings.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, settings)
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.size = llama_cpp.llama_vocab_n_tokens(vocabulary)

    def forget(self):
        """Begin a new text."""
        self.position = 0
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)

    def read(self, tokens, every=False):
        """Logits (1 or T, V) after the last token or each of them."""
        batch = self.api.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, self.position + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = every or i == len(tokens) - 1
        assert self.api.llama_decode(self.context, batch) == 0
        self.api.llama_batch_free(batch)
        self.position += len(tokens)
        logits = self.api.llama_get_logits(self.context)
        count = len(tokens) if every else 1
        return np.ctypeslib.as_array(logits, (count, self.size))


def llama_cpp(file, prompts, new, threads):
    """llama.cpp, greedy."""
    model = Llama(file, threads, len(prompts[0]) + new)

    def go():
        for prompt in prompts:
            model.forget()
            token = int(model.read(prompt)[-1].argmax())
            for _ in range(new - 1):
                token = int(model.read([token])[-1].argmax())

    return go


# Perplexity: every window is a text of its own.


def perplexity(logits_of, windows):
    """exp of the mean surprise of each token but the first of its window."""
    losses = []
    for window in windows:
        logits = np.asarray(logits_of(window)[:-1], "float64")
        top = logits.max(-1, keepdims=True)
        norm = np.log(np.exp(logits - top).sum(-1)) + top[:, 0]
        losses.append(norm - logits[np.arange(len(window) - 1), window[1:]])
    return float(np.exp(np.mean(losses)))


def litert_logits(file, threads):
    """A function from ids to logits (T, V)."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(file), num_threads=threads)
    run = interpreter.get_signature_runner("serving_default")

    def logits_of(ids):
        ids = np.asarray([ids], "int32")
        made = run(token_ids=ids, padding_mask=np.ones(ids.shape, bool))
        return made["logits"][0]

    return logits_of


def llama_logits(file, threads, length):
    """The same of llama.cpp."""
    model = Llama(file, threads, length)

    def logits_of(ids):
        model.forget()
        return model.read([int(i) for i in ids], every=True)

    return logits_of


def book_tokens(file, folder, count):
    """The first tokens of the test books."""
    from keras_tfm import checkpoints, data

    text = data.load_text("gutenberg_books", "test", folder)[: 8 * count]
    ids = data.encode(checkpoints.load_tokenizer(file), [text])[0]
    assert len(ids) >= count, f"the text has {len(ids)} tokens only"
    return [int(i) for i in ids[:count]]


def race(files, prompts, threads, repeats):
    """Tokens a second of all contenders, in turn."""
    same = {"prompts": prompts, "new": NEW}
    contenders = [(n, f, {"file": str(file)}) for n, f, file in files]
    rows, results = [], pairing.race("smollm2", contenders, same, threads, repeats)
    mine = results[0].get("median")
    for result in results:
        row = {"contender": result["name"]}
        if "failure" in result:
            rows.append({**row, "tokens/s": result["failure"]})
            continue
        rate = len(prompts) * NEW / result["median"]
        row |= {"tokens/s": rate, "spread": f"{result['spread']:.0%}"}
        if mine:
            row["times keras_tfm int8"] = f"{mine / result['median']:.2f}"
        rows.append(row)
    return rows


def main():
    """Run from the command line."""
    if len(sys.argv) > 1 and sys.argv[1] in ("convert", "requantize"):
        return globals()[sys.argv[1]](*sys.argv[2:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", help="SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--data-dir", default=None, help="folder of TFDS data sets")
    parser.add_argument("--windows", type=int, default=32, help="of the perplexity")
    parser.add_argument("--length", type=int, default=256, help="tokens of a window")
    parser.add_argument("--repeats", type=int, default=5, help="rounds that count")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each")
    parser.add_argument("--files", default=None, help="keep and reuse the files there")
    parser.add_argument("--output-dir", default="outputs/benchmarks", help="for tables")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = tables(given, pathlib.Path(given.files or temporary))
    pairing.write("smollm2", found, given.output_dir)


def tables(given, folder):
    """All tables."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []

    def file(name, function, *more):
        path = folder / name
        if not path.exists():
            made.append(make(function, given.file, path, *more))
        return path

    loop = file("greedy_int8.tflite", "convert", "int8", 0)
    q8 = file("Q8_0.gguf", "requantize")
    logits = {
        f"keras_tfm LiteRT {kind}": file(
            f"logits_{kind}.tflite", "convert", kind, given.length
        )
        for kind in ("int8", "float32")
    }
    count = max(given.windows * given.length, PROMPTS * PROMPT)
    ids = book_tokens(given.file, given.data_dir, count)
    prompts = [ids[i * PROMPT : (i + 1) * PROMPT] for i in range(PROMPTS)]
    llamas = {"llama.cpp Q4_1": given.file, "llama.cpp Q8_0": q8}
    contenders = [("keras_tfm LiteRT int8", "litert", loop)]
    contenders += [(name, "llama_cpp", path) for name, path in llamas.items()]
    windows = np.array(ids[: given.windows * given.length]).reshape(-1, given.length)
    quality = [
        {
            "model": name,
            "perplexity": perplexity(litert_logits(path, given.threads), windows),
        }
        for name, path in logits.items()
    ]
    for name, path in llamas.items():
        logits_of = llama_logits(path, given.threads, given.length)
        quality.append({"model": name, "perplexity": perplexity(logits_of, windows)})
    title = f"greedy, batch 1, prompt {PROMPT} + {NEW} new tokens, {PROMPTS} texts"
    return {
        title: race(contenders, prompts, given.threads, given.repeats),
        f"perplexity, {len(windows)} windows of {given.length} tokens": quality,
        "files made": made,
    }


if __name__ == "__main__":
    main()
