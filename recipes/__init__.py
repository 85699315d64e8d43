"""One page each: a data set in, a trained model with its files out.

Run them from the checkout: `python -m recipes.vit_cifar --help`.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")
