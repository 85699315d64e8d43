"""How a layer hands its dtype policy to its parts, and writes theirs down.

A quantized layer keeps the policies of its parts in its own `dtype`: a
`DTypePolicyMap` whose keys are paths relative to the layer ("attention/query").
`part_policy` hands them out in `build`, `owner_dtype` collects them in
`get_config`.
"""

import keras

DTypePolicyMap = keras.dtype_policies.DTypePolicyMap


def part_policy(policy, name):
    """Policy of the part called `name` in a layer whose policy is `policy`.

    Args:
        policy: a Keras dtype policy, or a `DTypePolicyMap` with relative keys.
        name: string, name of the part.

    Returns: a dtype policy; again a map if parts of the part have their own.
    """
    if not isinstance(policy, DTypePolicyMap):
        return policy
    if name in policy:
        return policy[name]
    prefix = f"{name}/"
    inner = {
        key[len(prefix) :]: value
        for key, value in policy.items()
        if key.startswith(prefix)
    }
    if inner:
        return DTypePolicyMap(policy.default_policy, inner)
    return policy.default_policy


def owner_dtype(layer, parts):
    """What `layer` writes as `dtype` into its config.

    Args:
        layer: the owner.
        parts: its sub-layers; None entries are skipped.

    Returns: a serialised dtype policy, a map if any part is quantized.
    """
    base = layer.dtype_policy
    if isinstance(base, DTypePolicyMap):
        base = base.default_policy
    found = {}
    for part in parts:
        written = None if part is None else part.get_config().get("dtype")
        if not isinstance(written, dict):  # an input layer, or a model of the user's
            continue
        policy = keras.dtype_policies.deserialize(written)
        if isinstance(policy, DTypePolicyMap):
            found.update({f"{part.name}/{k}": v for k, v in policy.items()})
        elif policy.quantization_mode is not None:
            found[part.name] = policy
    if found:
        base = DTypePolicyMap(base, found)
    return keras.dtype_policies.serialize(base)
