"""What pixels a vision checkpoint was trained with."""

from keras_tfm.checkpoints.source import fields_beside, open_source

# Of ImageNet, which all but a few have seen.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def image_statistics(path_or_name):
    """Mean and deviation by which a vision checkpoint wants its images normalised.

    Args:
        path_or_name: see `load_pretrained`.

    Returns: pair of tuples, one float a channel, for pixels in [0, 1]: those of the
        `preprocessor_config.json` beside the weights, else ImageNet's.

    Raises:
        CheckpointError: (a `ValueError`) see `load_pretrained`; a
            `preprocessor_config.json` that is not JSON.
    """
    config = open_source(path_or_name).config
    fields = fields_beside(config, "preprocessor_config.json")
    if not fields.get("do_normalize", True):
        return (0.0,) * len(MEAN), (1.0,) * len(STD)
    return tuple(fields.get("image_mean", MEAN)), tuple(fields.get("image_std", STD))
