"""Small made-up data whose right answer can be seen in a picture. All are functions of their arguments alone."""

from __future__ import annotations

import numpy as np

from bayesprop.data.data import Data
from bayesprop.errors import ConfigurationError

__all__ = ["blundell_curve", "gap_regression", "two_moons"]


def two_moons(num_data: int = 200, noise: float = 0.1, seed: int = 0) -> Data:
    """Two interleaved half circles, one per class: inputs float32 (N, 2), targets 0 and 1.

        class 0: (cos t, sin t)        class 1: (1 - cos t, 1/2 - sin t)        t uniform on [0, pi]                 (1)

    plus normal noise with standard deviation `noise` on both coordinates. Class 0 has the larger half of an odd number.
    """
    generator = np.random.default_rng(_checked(num_data, seed))
    labels = np.arange(num_data) % 2
    angle = generator.uniform(0.0, np.pi, num_data)
    side = 1.0 - 2.0 * labels
    points = np.stack([labels + side * np.cos(angle), labels / 2 + side * np.sin(angle)], axis=1)
    points += noise * generator.standard_normal(points.shape)
    return Data(points.astype(np.float32), labels.astype(np.int64))


def blundell_curve(num_data: int = 200, seed: int = 0) -> Data:
    """The regression curve of Blundell et al. (2015, arXiv:1505.05424), section 5.2: inputs (N, 1), targets (N,).

        y = x + 0.3 sin(2 pi (x + e)) + 0.3 sin(4 pi (x + e)) + e,      x uniform on [0, 0.5]                      (2)

    The paper writes e ~ N(0, 0.02) and does not say what 0.02 is. Here it is a standard deviation: a variance of 0.02
    would be a deviation of 0.14, which moves x by a quarter of a wave of the faster sine and leaves no curve to learn.
    The one e of an example is used in all three places. The paper gives neither N nor a range of x; the points in its
    figure 5 lie between about 0 and 0.5, and the axis goes from -0.25 to 1.25.
    """
    generator = np.random.default_rng(_checked(num_data, seed))
    x = generator.uniform(0.0, 0.5, num_data)
    e = 0.02 * generator.standard_normal(num_data)
    y = x + 0.3 * np.sin(2 * np.pi * (x + e)) + 0.3 * np.sin(4 * np.pi * (x + e)) + e
    return Data(x[:, None].astype(np.float32), y.astype(np.float32))


def gap_regression(num_data: int = 100, seed: int = 0) -> Data:
    """Two clusters with nothing in between, where an honest posterior is uncertain: inputs (N, 1), targets (N,).

        y = cos(4 x + 0.8) + e,   e ~ N(0, 0.1^2),   x uniform on [-1, -0.7] or on [0.5, 1], half of the rows each   (3)

    This is the test of Foong et al. (2019, arXiv:1906.11537) for "in-between" uncertainty.
    """
    generator = np.random.default_rng(_checked(num_data, seed))
    left = np.arange(num_data) % 2 == 0
    x = np.where(left, generator.uniform(-1.0, -0.7, num_data), generator.uniform(0.5, 1.0, num_data))
    y = np.cos(4 * x + 0.8) + 0.1 * generator.standard_normal(num_data)
    return Data(x[:, None].astype(np.float32), y.astype(np.float32))


def _checked(num_data: int, seed: int) -> int:
    """The seed, after a look at both numbers."""
    if num_data < 1 or seed < 0:
        raise ConfigurationError(
            "made-up data need at least one row and a seed",
            received=f"num_data={num_data}, seed={seed}",
            expected="num_data of at least 1 and seed of at least 0",
        )
    return seed
