"""GPT-2 in four libraries, greedy: the contenders of `benchmarks.generation`.

A contender takes a `shape` (see `benchmarks.generation.GPT2`), `batch`, prompt
`length`, `new` tokens and `threads`, and returns the function that is timed.
"""

import tempfile

import numpy as np


def prompts(vocabulary, batch, length):
    """The same random prompts for all."""
    rng = np.random.default_rng(0)
    return rng.integers(1, vocabulary, (batch, length)).astype("int32")


def gpt(shape, positions):
    """Our model."""
    from keras_tfm import models

    return models.GPT(
        shape["vocabulary"], shape["layers"], shape["heads"], shape["width"],
        4 * shape["width"], max_sequence_length=positions,
    )  # fmt: skip


def ours(shape, batch, length, new, threads):
    """keras_tfm, `generate`."""
    from keras_tfm.generation import generate

    model, ids = gpt(shape, length + new), prompts(shape["vocabulary"], batch, length)
    return lambda: generate(model, ids, new)


def our_litert(shape, batch, length, new, threads, quantize=None):
    """keras_tfm, the whole loop as a LiteRT file."""
    from ai_edge_litert.interpreter import Interpreter

    from keras_tfm.export import generation_to_litert

    model, ids = gpt(shape, length + new), prompts(shape["vocabulary"], batch, length)
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
    width, decoder = shape["width"], spec.decoder
    decoder.embeddings.weight = matrix(shape["vocabulary"], width)
    decoder.scale_embeddings = False
    decoder.position_encodings.encodings = matrix(positions, width)
    decoder.projection.weight = decoder.embeddings.weight
    fill_norm(decoder.layer_norm, width)
    for layer in decoder.layer:
        fill_block(layer, width)


def matrix(*size):
    """Random float32 numbers of a fresh model's size."""
    rng = np.random.default_rng(1)
    return (0.02 * rng.standard_normal(size)).astype("float32")


def fill_linear(part, outputs, inputs):
    """Random weights of a linear layer in CTranslate2's specification."""
    part.weight, part.bias = matrix(outputs, inputs), matrix(outputs)


def fill_norm(part, width):
    """The weights of a fresh layer norm."""
    part.gamma, part.beta = np.ones(width, "float32"), np.zeros(width, "float32")


def fill_block(layer, width):
    """Random weights of self-attention and feed-forward."""
    fill_norm(layer.self_attention.layer_norm, width)
    fill_linear(layer.self_attention.linear[0], 3 * width, width)
    fill_linear(layer.self_attention.linear[1], width, width)
    fill_norm(layer.ffn.layer_norm, width)
    fill_linear(layer.ffn.linear_0, 4 * width, width)
    fill_linear(layer.ffn.linear_1, width, 4 * width)
