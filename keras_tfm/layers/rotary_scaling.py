"""Frequencies of rotary positions, and how to stretch them to longer texts.

Every scaling is a JSON dict: `type`, and the numbers that type needs under the
names that published model configurations use. Letters: R rotated width.
"""

import math

import keras
import numpy as np
from keras import ops

_STRETCH = {"factor", "original_max_position_embeddings"}
# type: (keys it needs, keys it may have)
SCALINGS = {
    "linear": ({"factor"}, set()),
    "dynamic": (_STRETCH, set()),
    "yarn": (
        _STRETCH,
        {
            "beta_fast",
            "beta_slow",
            "attention_factor",
            "mscale",
            "mscale_all_dim",
            "truncate",
        },
    ),
    "longrope": (
        {"short_factor", "long_factor", "original_max_position_embeddings"},
        {"factor", "attention_factor"},
    ),
    "llama3": (_STRETCH | {"low_freq_factor", "high_freq_factor"}, set()),
}


def check_scaling(scaling):
    """A plain copy of a scaling dict, ready for JSON, or None.

    Args:
        scaling: dict with `type` and the keys of that type, or None.

    Returns: a new dict, its sequences as lists of floats; None for None.

    Raises:
        ValueError: the type is unknown, or a key is missing or unknown to it.
    """
    if scaling is None:
        return None
    if not isinstance(scaling, dict):
        raise ValueError(f"`scaling` must be a dict or None, got {scaling!r}.")
    kind = scaling.get("type")
    if kind not in SCALINGS:
        raise ValueError(
            f'`scaling["type"]` must be one of {sorted(SCALINGS)}, got {kind!r}.'
        )
    needed, optional = SCALINGS[kind]
    given = set(scaling) - {"type"}
    if needed - given or given - needed - optional:
        raise ValueError(
            f'`scaling` of type "{kind}" needs {sorted(needed)} and may have '
            f"{sorted(optional)}, got {sorted(given)}."
        )
    if kind == "longrope" and not given & optional:
        raise ValueError(
            '`scaling` of type "longrope" needs `factor` or `attention_factor`.'
        )
    for key in sorted(given & _STRETCH):
        if not scaling[key] > 0:
            raise ValueError(f'`scaling["{key}"]` must be > 0, got {scaling[key]}.')
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        if not 0 < low < high:
            raise ValueError(
                "`scaling` needs 0 < low_freq_factor < high_freq_factor, got "
                f"{low} and {high}."
            )
    return {key: _plain(value) for key, value in scaling.items()}


def _plain(value):
    """A number or string as it is, any sequence as a list of floats."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return [float(number) for number in value]


def rotary_frequencies(rotary_dim, max_wavelength=10000.0, scaling=None, length=None):
    """Angle per position of every rotated pair.

    Args:
        rotary_dim: int R, even, the rotated width.
        max_wavelength: float above 0, the base of the wavelengths.
        scaling: a scaling dict, or None.
        length: int or scalar tensor, the current length (largest position + 1);
            read by the types "dynamic" and "longrope" only, which take None for
            a text within the original length.

    Returns: (R / 2,) in radians; a NumPy float64 array, or a float tensor if it
        depends on a `length` that is a tensor.

    References: Su et al. 2021, arXiv:2104.09864; position interpolation: Chen et
        al. 2023, arXiv:2306.15595; YaRN: Peng et al. 2023, arXiv:2309.00071;
        LongRoPE: Ding et al. 2024, arXiv:2402.13753; Llama 3: Grattafiori et al.
        2024, sec. 3.4.2, arXiv:2407.21783.
    """
    base = float(max_wavelength) ** (-np.arange(0, rotary_dim, 2) / rotary_dim)
    if scaling is None:
        return base
    kind = scaling["type"]
    if kind == "linear":
        return base / scaling["factor"]
    if kind == "dynamic":
        return _dynamic(base, scaling, length)
    if kind == "yarn":
        return _yarn(base, scaling, max_wavelength)
    if kind == "longrope":
        return _longrope(base, scaling, length)
    return _llama3(base, scaling)


def rotary_attention_factor(scaling=None):
    """What the scaling multiplies rotated queries and keys with.

    Args:
        scaling: a scaling dict, or None.

    Returns: float; 1.0 except for "yarn" and "longrope".
    """
    kind = None if scaling is None else scaling["type"]
    if kind not in ("yarn", "longrope"):
        return 1.0
    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])
    factor = scaling["factor"]
    if kind == "longrope":
        original = scaling["original_max_position_embeddings"]
        return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor, original))
    mscale, all_dims = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if mscale and all_dims:
        return _magnitude(factor, mscale) / _magnitude(factor, all_dims)
    return _magnitude(factor, 1.0)


def _magnitude(factor, mscale):
    """YaRN's correction for the entropy of attention over a longer text."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _dynamic(base, scaling, length):
    """Raise the wavelength base with the length, once past the original one."""
    if length is None:
        return base
    factor = scaling["factor"]
    original = scaling["original_max_position_embeddings"]
    pairs = np.arange(len(base))
    # The base's own exponent R / (R - 2), times -2i / R for pair i.
    exponents = -pairs / max(len(base) - 1, 1)
    if isinstance(length, (int, float)):
        stretch = factor * max(length, original) / original - (factor - 1)
        return base * stretch**exponents
    dtype = keras.backend.result_type(length.dtype, "float32")
    length = ops.maximum(ops.cast(length, dtype), float(original))
    stretch = length * (factor / original) - (factor - 1.0)
    return ops.cast(base, dtype) * ops.power(stretch, ops.cast(exponents, dtype))


def _longrope(base, scaling, length):
    """Searched factors for each pair, one set for short and one for long texts."""
    short, long = (
        base / np.asarray(scaling[key]) for key in ("short_factor", "long_factor")
    )
    if length is None:
        return short
    past = length > scaling["original_max_position_embeddings"]
    if isinstance(length, (int, float)):
        return long if past else short
    dtype = keras.backend.result_type(length.dtype, "float32")
    return ops.where(past, ops.cast(long, dtype), ops.cast(short, dtype))


def _yarn(base, scaling, max_wavelength):
    """Leave fast pairs alone, slow the slow ones by `factor`, ramp in between."""
    rotary_dim = 2 * len(base)
    original = scaling["original_max_position_embeddings"]

    def pair_with(turns):
        """Pair (a real number) that turns that often in the original length."""
        octaves = math.log(original / (turns * 2 * math.pi))
        return rotary_dim * octaves / (2 * math.log(max_wavelength))

    low = pair_with(scaling.get("beta_fast") or 32)
    high = pair_with(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary_dim - 1)
    width = (high - low) or 0.001
    slowed = np.clip((np.arange(len(base)) - low) / width, 0, 1)
    return base * (1 - slowed) + base / scaling["factor"] * slowed


def _llama3(base, scaling):
    """Keep short wavelengths, slow long ones by `factor`, blend in between."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * base / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return base * kept + base / scaling["factor"] * (1 - kept)
