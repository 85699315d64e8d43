"""Generation beside KerasHub, Transformers and CTranslate2.

    python -m benchmarks.generation                 GPT-2 124M, prompt 32, 96 new tokens
    python -m benchmarks.generation --tiny 1        seconds instead of minutes

Peers: pip install -e ".[benchmarks]"; one that is not installed is left out, by name.
All models have random weights of the same shapes, so every library makes all tokens.
"""

import argparse
import os
import tempfile
import threading
import time

import numpy as np

from benchmarks.pairing import Contender, compare, write

GPT2 = {"vocabulary": 50257, "layers": 12, "heads": 12, "width": 768}
TINY = {"vocabulary": 300, "layers": 2, "heads": 2, "width": 64}


def prompts(vocabulary, batch, length):
    """The same random prompts for all."""
    rng = np.random.default_rng(0)
    return rng.integers(1, vocabulary, (batch, length)).astype("int32")


def _gpt(shape, positions):
    from keras_tfm import models

    return models.GPT(
        shape["vocabulary"], shape["layers"], shape["heads"], shape["width"],
        4 * shape["width"], max_sequence_length=positions,
    )  # fmt: skip


def ours(shape, batch, length, new, threads):
    """keras_tfm, `generate`."""
    from keras_tfm.generation import generate

    model, ids = _gpt(shape, length + new), prompts(shape["vocabulary"], batch, length)
    return lambda: generate(model, ids, new)


def our_litert(shape, batch, length, new, threads, quantize=None):
    """keras_tfm, the whole loop as a LiteRT file."""
    from ai_edge_litert.interpreter import Interpreter

    from keras_tfm.export import generation_to_litert

    model, ids = _gpt(shape, length + new), prompts(shape["vocabulary"], batch, length)
    with tempfile.TemporaryDirectory() as folder:
        path = generation_to_litert(
            model, f"{folder}/model.tflite", max_length=length + new,
            quantize=quantize, batch_size=batch, length=length,
        )  # fmt: skip
        interpreter = Interpreter(str(path), num_threads=threads)
        run = interpreter.get_signature_runner("serving_default")
        mask = np.ones(ids.shape, bool)
        run(token_ids=ids, padding_mask=mask)
    return lambda: run(token_ids=ids, padding_mask=mask)


def keras_hub(shape, batch, length, new, threads, jit=True):
    """KerasHub, `GPT2CausalLM.generate`."""
    import keras_hub as hub

    backbone = hub.models.GPT2Backbone(
        shape["vocabulary"], shape["layers"], shape["heads"], shape["width"],
        4 * shape["width"], max_sequence_length=length + new,
    )  # fmt: skip
    model = hub.models.GPT2CausalLM(backbone, preprocessor=None)
    model.compile(sampler="greedy", jit_compile=jit)
    ids = prompts(shape["vocabulary"], batch, length)
    room = ((0, 0), (0, new))
    inputs = {
        "token_ids": np.pad(ids, room),
        "padding_mask": np.pad(np.ones(ids.shape, "int32"), room),
    }
    return lambda: model.generate(inputs, stop_token_ids=None)


def _gpt2_torch(shape, positions):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=shape["vocabulary"], n_layer=shape["layers"], n_head=shape["heads"],
        n_embd=shape["width"], n_positions=positions, bos_token_id=0, eos_token_id=None,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval()


def transformers(shape, batch, length, new, threads):
    """Transformers on PyTorch, `generate`."""
    import torch

    torch.set_num_threads(threads)
    model = _gpt2_torch(shape, length + new)
    ids = torch.tensor(prompts(shape["vocabulary"], batch, length).astype("int64"))
    mask = torch.ones_like(ids)

    def run():
        made = model.generate(
            ids, attention_mask=mask, max_new_tokens=new, min_new_tokens=new,
            do_sample=False, pad_token_id=0,
        )  # fmt: skip
        assert made.shape[1] == length + new

    return run


def ctranslate2(shape, batch, length, new, threads, kind="float32"):
    """CTranslate2, `generate_batch`."""
    import ctranslate2 as ct2

    spec = ct2.specs.TransformerDecoderModelSpec.from_config(
        shape["layers"], shape["heads"], pre_norm=True,
        activation=ct2.specs.Activation.GELUTanh,
    )  # fmt: skip
    _fill(spec, shape, length + new)
    spec.register_vocabulary([f"t{i}" for i in range(shape["vocabulary"])])
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = "t0"
    spec.validate()
    spec.optimize(quantization=None if kind == "float32" else kind)
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        generator = ct2.Generator(
            folder, compute_type=kind, inter_threads=1, intra_threads=threads
        )
    rows = [
        [f"t{i}" for i in row] for row in prompts(shape["vocabulary"], batch, length)
    ]
    return lambda: generator.generate_batch(
        rows, max_length=new, min_length=new, beam_size=1, sampling_topk=1,
        include_prompt_in_result=False,
    )  # fmt: skip


def _fill(spec, shape, positions):
    """Random weights of GPT-2's shapes in CTranslate2's specification."""
    rng, width = np.random.default_rng(1), shape["width"]

    def matrix(*size):
        return (0.02 * rng.standard_normal(size)).astype("float32")

    def linear(part, outputs, inputs):
        part.weight, part.bias = matrix(outputs, inputs), matrix(outputs)

    def norm(part):
        part.gamma, part.beta = np.ones(width, "float32"), np.zeros(width, "float32")

    decoder = spec.decoder
    decoder.embeddings.weight = matrix(shape["vocabulary"], width)
    decoder.scale_embeddings = False
    decoder.position_encodings.encodings = matrix(positions, width)
    decoder.projection.weight = decoder.embeddings.weight
    norm(decoder.layer_norm)
    for layer in decoder.layer:
        norm(layer.self_attention.layer_norm)
        linear(layer.self_attention.linear[0], 3 * width, width)
        linear(layer.self_attention.linear[1], width, width)
        norm(layer.ffn.layer_norm)
        linear(layer.ffn.linear_0, 4 * width, width)
        linear(layer.ffn.linear_1, width, 4 * width)


def copy_bandwidth(threads=2, gigabytes=1.0):
    """Bytes read and written a second when large arrays are copied."""
    count = int(gigabytes * 2**30 / 4 / threads)
    pairs = [
        (np.ones(count, "float32"), np.empty(count, "float32")) for _ in range(threads)
    ]
    best = float("inf")
    for _ in range(5):
        workers = [
            threading.Thread(target=np.copyto, args=(to, source))
            for source, to in pairs
        ]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = min(best, time.perf_counter() - start)
    return 2 * 4 * count * threads / best


def greedy_table(shape, batch, length, new, threads, repeats):
    """Tokens a second of all contenders, and ours as a multiple of theirs."""
    settings = {"shape": shape, "batch": batch, "length": length, "new": new}
    contenders = [
        ("keras_tfm", "ours", {}),
        ("keras_tfm LiteRT float32", "our_litert", {}),
        ("keras_tfm LiteRT int8", "our_litert", {"quantize": "dynamic"}),
        ("KerasHub jit", "keras_hub", {"jit": True}),
        ("KerasHub graph", "keras_hub", {"jit": False}),
        ("Transformers", "transformers", {}),
        ("CTranslate2 float32", "ctranslate2", {}),
        ("CTranslate2 int8", "ctranslate2", {"kind": "int8"}),
    ]
    results = compare(
        [
            Contender(name, f"benchmarks.generation:{f}", {**settings, **more}, threads)
            for name, f, more in contenders
        ],
        repeats,
    )
    mine = results[0]["median"]
    rows = []
    for result in results:
        if "failure" in result:
            rows.append({"contender": result["name"], "tokens/s": result["failure"]})
            continue
        rows.append(
            {
                "contender": result["name"],
                "tokens/s": batch * new / result["median"],
                "spread": f"{result['spread']:.0%}",
                "keras_tfm is": f"{result['median'] / mine:.2f} times",
            }
        )
    return rows


def main():
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", type=int, default=0, help="1: a toy model")
    parser.add_argument("--batches", default="1,8", help="batch sizes")
    parser.add_argument("--prompt", type=int, default=32, help="tokens of a prompt")
    parser.add_argument("--new", type=int, default=96, help="new tokens")
    parser.add_argument("--repeats", type=int, default=5, help="rounds that count")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each")
    parser.add_argument("--output-dir", default="outputs/benchmarks", help="for files")
    given = parser.parse_args()
    shape, tables = TINY if given.tiny else GPT2, {}
    for batch in map(int, given.batches.split(",")):
        title = f"greedy, batch {batch}, prompt {given.prompt} + {given.new} new"
        tables[title] = greedy_table(
            shape, batch, given.prompt, given.new, given.threads, given.repeats
        )
    bandwidth = copy_bandwidth(given.threads)
    tables["copy bandwidth"] = [{"GB/s, read and written": bandwidth / 1e9}]
    write("generation", tables, given.output_dir)


if __name__ == "__main__":
    main()
