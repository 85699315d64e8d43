"""BART and mBART checkpoints: names, layouts and config fields."""

import functools

from keras_tfm.checkpoints import encoder_decoders
from keras_tfm.checkpoints.family import Family, Task
from keras_tfm.checkpoints.marian import BIAS
from keras_tfm.checkpoints.roberta import rows_from
from keras_tfm.checkpoints.weight_map import Entry, norm
from keras_tfm.models import Seq2SeqTransformer

ROWS = rows_from(2)  # before the first position come two that no model reads
ENDS = (
    Entry("position_embedding/table", "encoder.embed_positions.weight", ROWS),
    Entry("target_position_embedding/table", "decoder.embed_positions.weight", ROWS),
    *norm("embedding_norm", "encoder.layernorm_embedding"),
    *norm("target_embedding_norm", "decoder.layernorm_embedding"),
    *norm("encoder_norm", "encoder.layer_norm"),
    *norm("decoder_norm", "decoder.layer_norm"),
)


def entries(config, _backbone, norm_position):
    """The `Entry`s of a model; see `Family`."""
    blocks = encoder_decoders.block_entries(norm_position)
    return (*encoder_decoders.embedding_entries(config), *ENDS, *blocks)


def build(config, norm_position, **changes):
    """A `Seq2SeqTransformer` with the sizes of a config; see `Family`."""
    pre = norm_position == "pre"
    config.refuse_other(
        normalize_before=pre,
        normalize_embedding=True,
        add_final_layer_norm=pre,
        static_position_embeddings=False,
    )
    fields = {
        **encoder_decoders.fields_of(config),
        "norm_position": norm_position,
        "position": "learned",
        "embedding_norm": True,
    }
    return Seq2SeqTransformer(**{**fields, **changes})


def _family(name, norm_position):
    wiring = {"norm_position": norm_position}
    names = f"{name}ForConditionalGeneration", f"{name}Model"
    return Family(
        model_types=(name.lower(),),
        build=functools.partial(build, **wiring),
        entries=functools.partial(entries, **wiring),
        tasks={"backbone": Task(names, prefix="model.", entries=(BIAS,))},
        optional=("logits_bias/bias",),
        redundant=encoder_decoders.COPIES,
    )


BART, MBART = _family("Bart", "post"), _family("MBart", "pre")
