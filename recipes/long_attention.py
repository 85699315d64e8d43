"""Attention of long sequences by name, for recipes and benchmarks."""

from keras_tfm import layers

ATTENTIONS = {
    "dense": lambda heads, length, window: layers.MultiHeadAttention(
        heads, implementation="dense"
    ),
    "blockwise": lambda heads, length, window: layers.MultiHeadAttention(
        heads, implementation="blockwise"
    ),
    "window": lambda heads, length, window: layers.SlidingWindowAttention(
        heads, window
    ),
    "longformer": lambda heads, length, window: layers.LongformerAttention(
        heads, window
    ),
    "bigbird": lambda heads, length, window: layers.BigBirdAttention(
        heads, block_size=window // 2
    ),
    "performer": lambda heads, length, window: layers.PerformerAttention(heads),
    "linformer": lambda heads, length, window: layers.LinformerAttention(
        heads, max_length=length, rank=window
    ),
    "lsh": lambda heads, length, window: layers.LSHAttention(heads),
    "mamba": lambda heads, length, window: layers.MambaMixer(),
    "mamba2": lambda heads, length, window: layers.Mamba2Mixer(2 * heads),
}
# Those that see no later position, on request.
CAUSAL = "dense", "blockwise", "window", "performer", "lsh", "mamba", "mamba2"
