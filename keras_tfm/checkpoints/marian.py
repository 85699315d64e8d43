"""Marian checkpoints (translation): names, layouts and config fields."""

from keras_tfm.checkpoints import encoder_decoders
from keras_tfm.checkpoints.family import Family, Task
from keras_tfm.checkpoints.weight_map import ROW, Entry
from keras_tfm.models import Seq2SeqTransformer

BLOCKS = encoder_decoders.block_entries("post")
BIAS = Entry("logits_bias/bias", "final_logits_bias", ROW)
ARGUMENTS = {"norm_position": "post", "position": "sinusoidal_halves"}


def entries(config, _backbone):
    """The `Entry`s of a model; see `Family`."""
    return (*encoder_decoders.embedding_entries(config), *BLOCKS)


def build(config, **changes):
    """A `Seq2SeqTransformer` with the sizes of a config; see `Family`."""
    config.refuse_other(
        normalize_before=False,
        normalize_embedding=False,
        add_final_layer_norm=False,
        static_position_embeddings=True,
    )
    fields = encoder_decoders.fields_of(config)
    return Seq2SeqTransformer(**{**fields, **ARGUMENTS, **changes})


def describe(model):
    """The config of a `Seq2SeqTransformer` of Marian's kind; see `Family`."""
    fields = encoder_decoders.describe(model)
    if fields is None:
        return None
    ours = model.get_config()
    wanted = {**ARGUMENTS, "embedding_norm": False}
    if any(ours[name] != value for name, value in wanted.items()):
        return None
    shared = model.target_vocabulary_size is None
    return {
        **fields,
        "decoder_start_token_id": model.pad_token_id,
        "share_encoder_decoder_embeddings": shared,
        "decoder_vocab_size": model.target_vocabulary_size or model.vocabulary_size,
    }


FAMILY = Family(
    model_types=("marian",),
    build=build,
    entries=entries,
    tasks={
        "backbone": Task(
            ("MarianMTModel", "MarianModel"), prefix="model.", entries=(BIAS,)
        ),
    },
    describe=describe,
    optional=("logits_bias/bias",),
    redundant=(
        *encoder_decoders.COPIES,
        r"(encoder|decoder)\.embed_positions\.weight",  # waves
    ),
)
