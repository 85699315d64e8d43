"""What attention with global tokens refuses: it is for encoders."""

from keras_tfm.layers.values import refuse


def refuse_in_encoder(
    layer, context=None, context_mask=None, positions=None, use_causal_mask=False
):
    """Refuse what attention with global tokens cannot honour.

    Args:
        layer: the layer.
        context: call argument, as all that follow.
        context_mask: bool tensor or None.
        positions: int tensor or None.
        use_causal_mask: bool.
    """
    why = "it is attention within one sequence"
    refuse(layer, why, context=context, context_mask=context_mask)
    refuse(layer, "add them to the embeddings", positions=positions)
    why = "what is global sees all; use SlidingWindowAttention"
    refuse(layer, why, use_causal_mask=use_causal_mask)
