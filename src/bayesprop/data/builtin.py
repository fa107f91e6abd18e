"""Data that need no download: what scikit-learn carries with it."""

from __future__ import annotations

import numpy as np

from bayesprop.data.data import Data
from bayesprop.errors import DataError

__all__ = ["digits"]


def digits() -> Data:
    """1,797 handwritten digits of 8 x 8 pixels: inputs float32 (1797, 64) between 0 and 1, targets 0 to 9.

    The pixels count 0 to 16 in scikit-learn's `load_digits` and are divided by 16 here.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DataError(
            "the digits come with scikit-learn, which is not installed",
            expected='the extra "data"',
            write="pip install 'bayesprop[data]'",
        ) from error
    pixels, labels = load_digits(return_X_y=True)
    return Data((pixels / 16).astype(np.float32), labels.astype(np.int64))
