"""Number words: unlimited exact translation pairs, written by `num2words`.

German turns the last two digits around (21: "einundzwanzig", one-and-twenty), so a
model has to learn word order, and because each pair is exact, so is the score.
"""

import hashlib
import random

KINDS = ("cardinal", "ordinal", "year", "currency")
SPLITS = ("train", "validation", "test")
BUILDING_BLOCKS = 100  # numbers below are always training numbers
LARGEST = {"cardinal": 999_999, "ordinal": 99_999, "year": 2099, "currency": 9_999}


def number_word_pairs(
    count, seed=0, kinds=KINDS, source="en", target="de", split="train"
):
    """Make pairs of a number written out in two languages.

    Numbers are drawn so that each length (one digit, two digits ...) is equally likely.
    Each number belongs to one split by a fixed hash (80 % train, 10 % validation,
    10 % test), so the splits share no number and no pair; numbers below 100, the
    words that all others are made of, belong to the training split. No source text
    comes twice.

    Args:
        count: int, how many pairs.
        seed: int, the same seed gives the same pairs.
        kinds: names out of "cardinal", "ordinal", "year", "currency" (euro and cent).
        source: language code of `num2words`.
        target: language code of `num2words`.
        split: "train", "validation" or "test".

    Returns: list of (source text, target text).

    Raises:
        ValueError: for an unknown kind, split or language, or if there are fewer than
            `count` different pairs.
    """
    kinds = tuple(kinds)
    if not kinds or set(kinds) - set(KINDS):
        raise ValueError(f"`kinds` must be some of {KINDS}, got {kinds}.")
    if split not in SPLITS:
        raise ValueError(f"`split` must be one of {SPLITS}, got {split!r}.")
    rng = random.Random(f"{seed}-{split}")
    pairs, misses = {}, 0
    while len(pairs) < count:
        kind = rng.choice(kinds)
        number = _draw(kind, rng)
        text = None
        if number_split(number) == split:
            text = _words(number, kind, source)
        if text is None or text in pairs:
            misses += 1
            if misses > 50 * count + 10_000:
                raise ValueError(
                    f"`count` must be at most about {len(pairs)} for kinds {kinds} "
                    f"and split {split!r}, got {count}."
                )
            continue
        pairs[text] = _words(number, kind, target)
    return list(pairs.items())


def number_split(number):
    """Name the split that a number belongs to, whatever its kind.

    Args:
        number: int, or float with two decimals for a sum of money.

    Returns: "train", "validation" or "test".
    """
    if number < BUILDING_BLOCKS:
        return "train"
    cents = str(round(number * 100)).encode("ascii")
    bucket = int(hashlib.blake2b(cents, digest_size=4).hexdigest(), 16) % 10
    return {8: "validation", 9: "test"}.get(bucket, "train")


def _draw(kind, rng):
    largest = LARGEST[kind]
    if kind == "year":
        return rng.randint(1000, largest)
    digits = rng.randint(1, len(str(largest)))
    number = rng.randint(0 if digits == 1 else 10 ** (digits - 1), 10**digits - 1)
    if kind == "ordinal":
        return max(number, 1)
    if kind == "currency":
        return number + rng.randint(0, 99) / 100
    return number


def _words(number, kind, language):
    from num2words import num2words

    options = {"currency": "EUR"} if kind == "currency" else {}
    if kind == "currency":
        number = f"{number:.2f}"  # text is exact, a float is not
    try:
        return num2words(number, lang=language, to=kind, **options)
    except NotImplementedError as error:
        raise ValueError(
            f"`source` and `target` must be languages that num2words writes "
            f"as {kind}, got {language!r}."
        ) from error
