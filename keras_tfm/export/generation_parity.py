"""Compare a model's generated tokens with those of its exported file.

Letters: B batch, T prompt length, M tokens of the longest row.
"""

import dataclasses
import pathlib

import numpy as np

from keras_tfm.export.parity import run_file
from keras_tfm.generation import generate_with_scores


@dataclasses.dataclass(frozen=True)
class GenerationParity:
    """How many prompts a file continues as the model does.

    Args:
        agreeing: int.
        prompts: int.
        path: str, the file.
    """

    agreeing: int
    prompts: int
    path: str

    def __str__(self):
        """One line for a person."""
        return (
            f"{pathlib.Path(self.path).name}: the same tokens for {self.agreeing} of "
            f"{self.prompts} prompts"
        )


def check_generation(
    model,
    path,
    prompts,
    strategy=None,
    max_length=128,
    processors=(),
    stop_token_ids=(),
    padding_mask=None,
    texts=None,
):
    """Run a model and its exported generator on the same prompts and compare.

    Args:
        model: the model that was exported.
        path: str or path of what `generation_to_saved_model` or
            `generation_to_litert` wrote.
        prompts: int (B, T), padded on the left; for an encoder-decoder a dict as for
            `keras_tfm.generation.generate`.
        strategy: that of the export, as all that follow.
        max_length: int M.
        processors: callables.
        stop_token_ids: ints.
        padding_mask: bool (B, T), all real unless given.
        texts: list of B str, the prompts as a SavedModel takes them.

    Returns: `GenerationParity`, which prints as one line.

    Raises:
        ValueError: the file is missing, foreign or does not accept these prompts.
    """
    encodes = isinstance(prompts, dict)
    ids = np.asarray(prompts["target_token_ids"] if encodes else prompts, "int32")
    if pathlib.Path(path).is_dir():
        inputs = {"text": texts}
    elif encodes:
        inputs = {"source_token_ids": prompts["source_token_ids"]}
    else:
        mask = np.ones(ids.shape, bool) if padding_mask is None else padding_mask
        inputs = {"token_ids": ids, "padding_mask": mask}
    if hasattr(strategy, "seed") and "text" not in inputs:
        inputs["seed"] = np.array(strategy.seed, "int32")
    made = run_file(path, inputs)["token_ids"][:, 0]
    expected = generate_with_scores(
        model,
        prompts,
        max_length - ids.shape[1],
        strategy,
        processors,
        stop_token_ids,
        padding_mask,
    ).token_ids[:, 0]
    same = (made == expected).all(axis=1)
    return GenerationParity(int(same.sum()), len(same), str(path))
