"""Layers of other libraries beside the long-sequence family: one forward and backward.

Of Transformers, and of the TensorFlow Model Garden (tf-models-official with tf_keras).
"""

import importlib.util

import numpy as np

from benchmarks.steps import gradient_run

WIDTH, HEADS, WINDOW = 512, 8, 128


def inputs_of(length):
    """Random inputs, float32 (1, length, WIDTH)."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((1, length, WIDTH)).astype("float32")


def garden_big_bird(length, threads):
    """TF Model Garden, `BigBirdAttention`, blocks of 64, with XLA."""
    module = _garden("bigbird_attention")
    layer = module.BigBirdAttention(
        num_heads=HEADS, key_dim=WIDTH // HEADS, num_rand_blocks=3,
        from_block_size=64, to_block_size=64, max_rand_mask_length=length,
    )  # fmt: skip
    masks = module.BigBirdMasks(64)

    def forward(x):
        return layer(x, x, attention_mask=masks(x, x[..., 0] > -1e9))

    return _garden_run(layer, forward, length)


def garden_performer(length, threads):
    """TF Model Garden, `KernelAttention`, as many random features as ours, with XLA."""
    from keras_tfm.layers.kernel_features import default_num_features

    size = WIDTH // HEADS
    layer = _garden("kernel_attention").KernelAttention(
        num_heads=HEADS, key_dim=size, feature_transform="exp",
        num_random_features=default_num_features(size),
    )  # fmt: skip
    return _garden_run(layer, lambda x: layer(x, x), length)


def _garden(name):
    """A file of the package alone: the whole wants what a layer does not need."""
    package = importlib.util.find_spec("official")
    if package is None:
        raise ModuleNotFoundError(
            "This peer needs `pip install --no-deps tf-models-official tf_keras`."
        )
    [root] = package.submodule_search_locations
    path = f"{root}/nlp/modeling/layers/{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _garden_run(layer, forward, length):
    import tensorflow as tf

    forward(tf.constant(inputs_of(length)))
    return gradient_run(forward, inputs_of(length), layer.trainable_weights, jit=True)


def longformer(length, threads):
    """Transformers, `LongformerSelfAttention`, one global token."""
    from transformers.models.longformer import modeling_longformer as module

    config = module.LongformerConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        attention_window=[2 * WINDOW],
        attention_probs_dropout_prob=0.0,
    )
    layer = module.LongformerSelfAttention(config, 0)
    return _torch_run(
        lambda x, mask: layer(
            x,
            attention_mask=mask,
            is_index_masked=mask < 0,
            is_index_global_attn=mask > 0,
            is_global_attn=True,
        )[0],
        length,
        threads,
        global_tokens=1,
    )


def big_bird(length, threads):
    """Transformers, `BigBirdBlockSparseAttention`, blocks of 64."""
    from transformers.models.big_bird import modeling_big_bird as module

    config = module.BigBirdConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, block_size=64,
        num_random_blocks=3, max_position_embeddings=length,
    )  # fmt: skip
    layer = module.BigBirdBlockSparseAttention(config).eval()
    make = module.BigBirdModel.create_masks_for_block_sparse_attn

    def forward(x, mask):
        real = (mask >= 0).float()
        blocked, band, from_mask, to_mask = make(real, 64)
        return layer(
            x,
            band_mask=band,
            from_mask=from_mask,
            to_mask=to_mask,
            from_blocked_mask=blocked,
            to_blocked_mask=blocked,
        )[0]

    return _torch_run(forward, length, threads)


def reformer(length, threads):
    """Transformers, `LSHSelfAttention`, as ours: four rounds, 64 to either side."""
    from transformers.models.reformer import modeling_reformer as module

    config = module.ReformerConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, attention_head_size=64,
        num_hashes=4, lsh_attn_chunk_length=64, lsh_num_chunks_before=1,
        lsh_num_chunks_after=1, num_buckets=64, is_decoder=False, attn_layers=["lsh"],
    )  # fmt: skip
    layer = module.LSHSelfAttention(config)
    return _torch_run(lambda x, mask: layer(x)[0], length, threads)


def mamba(length, threads):
    """Transformers, `MambaMixer` without CUDA kernels."""
    from transformers.models.mamba import modeling_mamba as module

    config = module.MambaConfig(hidden_size=WIDTH, state_size=16, num_hidden_layers=1)
    layer = module.MambaMixer(config, 0)
    return _torch_run(lambda x, mask: layer(x), length, threads)


def _torch_run(forward, length, threads, global_tokens=0):
    """Forward and backward; the mask is 0 for plain, above it for global tokens."""
    import torch

    torch.set_num_threads(threads)
    x = torch.tensor(inputs_of(length), requires_grad=True)
    mask = torch.zeros(1, length)
    mask[:, :global_tokens] = 1.0

    def run():
        (forward(x, mask) ** 2).mean().backward()

    return run
