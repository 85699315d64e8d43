"""The base Transformer in four libraries: the contenders with beam search.

A contender takes a `shape` (see `benchmarks.generation.BASE`), `batch`, source
`length`, `new` tokens, `beams` and `threads`, and returns the function that is timed.
"""

import tempfile

from benchmarks.decoders import fill_block, fill_linear, fill_norm, matrix, prompts

START = 2  # a token like any other: no library may stop


def ours(shape, batch, length, new, beams, threads):
    """keras_tfm, `generate` with `BeamSearch`."""
    import numpy as np

    from keras_tfm import models
    from keras_tfm.generation import BeamSearch, generate

    model = models.Seq2SeqTransformer(
        shape["vocabulary"], shape["layers"], shape["heads"], shape["width"],
        4 * shape["width"], max_sequence_length=max(length, new + 1),
    )  # fmt: skip
    inputs = {
        "source_token_ids": prompts(shape["vocabulary"], batch, length),
        "target_token_ids": np.full((batch, 1), START, "int32"),
    }
    return lambda: generate(model, inputs, new, BeamSearch(beams))


def keras_hub(shape, batch, length, new, beams, threads, jit=True):
    """KerasHub, `BartSeq2SeqLM.generate` with `BeamSampler`."""
    import keras_hub as hub
    import numpy as np

    backbone = hub.models.BartBackbone(
        shape["vocabulary"], shape["layers"], shape["heads"], shape["width"],
        4 * shape["width"], max_sequence_length=max(length, new + 1),
    )  # fmt: skip
    model = hub.models.BartSeq2SeqLM(backbone, preprocessor=None)
    sampler = hub.samplers.BeamSampler(num_beams=beams)
    model.compile(sampler=sampler, jit_compile=jit)
    source = prompts(shape["vocabulary"], batch, length)
    begun = np.zeros((batch, new + 1), "int32")
    begun[:, 0] = START
    inputs = {
        "encoder_token_ids": source,
        "encoder_padding_mask": np.ones_like(source),
        "decoder_token_ids": begun,
        "decoder_padding_mask": (begun > 0).astype("int32"),
    }
    return lambda: model.generate(inputs, stop_token_ids=None)


def transformers(shape, batch, length, new, beams, threads):
    """Transformers on PyTorch, `generate` of a BART."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    torch.set_num_threads(threads)
    config = BartConfig(
        vocab_size=shape["vocabulary"], d_model=shape["width"],
        encoder_layers=shape["layers"], decoder_layers=shape["layers"],
        encoder_attention_heads=shape["heads"], decoder_attention_heads=shape["heads"],
        encoder_ffn_dim=4 * shape["width"], decoder_ffn_dim=4 * shape["width"],
        max_position_embeddings=max(length, new + 1), pad_token_id=0, bos_token_id=None,
        eos_token_id=None, forced_eos_token_id=None, decoder_start_token_id=START,
    )  # fmt: skip
    model = BartForConditionalGeneration(config).eval()
    source = prompts(shape["vocabulary"], batch, length)
    ids = torch.tensor(source.astype("int64"))
    mask = torch.ones_like(ids)

    def run():
        made = model.generate(
            ids, attention_mask=mask, num_beams=beams, do_sample=False,
            max_new_tokens=new, min_new_tokens=new,
        )  # fmt: skip
        assert made.shape == (batch, new + 1)

    return run


def ctranslate2(shape, batch, length, new, beams, threads, kind="float32"):
    """CTranslate2, `translate_batch`."""
    import ctranslate2 as ct2

    layers = shape["layers"], shape["layers"]
    spec = ct2.specs.TransformerSpec.from_config(layers, shape["heads"], pre_norm=False)
    _fill(spec, shape, max(length, new + 1))
    names = [f"t{i}" for i in range(shape["vocabulary"])]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.bos_token = spec.config.decoder_start_token = f"t{START}"
    spec.config.eos_token = spec.config.unk_token = "t0"
    spec.config.add_source_eos = spec.config.add_source_bos = False
    spec.validate()
    spec.optimize(quantization=None if kind == "float32" else kind)
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        translator = ct2.Translator(
            folder, compute_type=kind, inter_threads=1, intra_threads=threads
        )
    rows = [
        [f"t{i}" for i in row] for row in prompts(shape["vocabulary"], batch, length)
    ]

    def run():
        made = translator.translate_batch(
            rows, beam_size=beams, max_decoding_length=new, min_decoding_length=new
        )
        assert all(len(row.hypotheses[0]) == new for row in made)

    return run


def _fill(spec, shape, positions):
    """Random weights of the base Transformer's shapes."""
    width = shape["width"]
    table = matrix(shape["vocabulary"], width)
    spec.encoder.embeddings[0].weight = table
    spec.decoder.embeddings.weight = spec.decoder.projection.weight = table
    for part in (spec.encoder, spec.decoder):
        part.position_encodings.encodings = matrix(positions, width)
    for layer in (*spec.encoder.layer, *spec.decoder.layer):
        fill_block(layer, width)
    for layer in spec.decoder.layer:
        fill_norm(layer.attention.layer_norm, width)
        fill_linear(layer.attention.linear[0], width, width)
        fill_linear(layer.attention.linear[1], 2 * width, width)
        fill_linear(layer.attention.linear[2], width, width)
