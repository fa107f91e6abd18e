"""What others found when they removed weights: test error in percent by the share that was removed."""

from __future__ import annotations

from collections.abc import Mapping

from bayesprop.experiments.values import Published

__all__ = ["BEST_EVER", "OTHERS", "PAPER", "SOURCE"]

TABLE_2 = "Blundell et al. 2015, table 2"
REPORT = "source 000, table 1"


def _row(source: str, mark: str, values: Mapping[float, float]) -> dict[float, Published]:
    return {share: Published(value, source, mark) for share, value in values.items()}


# By signal to noise, 1200 units, the network at the end of its training. Text and caption: 75 % lie in the lower mode.
PAPER = _row(TABLE_2, "P", {0.0: 1.24, 0.5: 1.24, 0.75: 1.24, 0.95: 1.29, 0.98: 1.39})
BEST_EVER = Published(1.12, "Blundell et al. 2015, footnote 2", "P")

# 400 units, mixture of scales 1 and exp(-6); "naive" is by the size of the means.
SOURCE = {
    "magnitude": _row(REPORT, "S", {0.0: 2.03, 0.25: 2.41, 0.5: 5.33, 0.75: 30.67, 0.95: 63.11}),
    "signal_to_noise": _row(REPORT, "S", {0.0: 2.03, 0.25: 2.59, 0.5: 5.89, 0.75: 41.05, 0.95: 82.50}),
}

# By signal to noise: (who, network) -> shares.
OTHERS = {
    ("Antoran, mixture prior, 1200 units", "github.com/JavierAntoran/Bayesian-Neural-Networks"): _row(
        "github.com/JavierAntoran/Bayesian-Neural-Networks", "R", {0.0: 2.61, 0.99: 2.56}
    ),
    ("saxena-mayur, 400 units", "github.com/saxena-mayur/Weight-Uncertainty-in-Neural-Networks"): _row(
        "github.com/saxena-mayur/Weight-Uncertainty-in-Neural-Networks",
        "R",
        {0.0: 1.75, 0.5: 1.77, 0.75: 1.76, 0.95: 2.61, 0.98: 13.8},
    ),
    ("saxena-mayur, 1200 units", "github.com/saxena-mayur/Weight-Uncertainty-in-Neural-Networks"): _row(
        "github.com/saxena-mayur/Weight-Uncertainty-in-Neural-Networks", "R", {0.5: 3.84, 0.75: 19.3, 0.95: 82.4}
    ),
    ("gluon, one hidden layer of 400", "mxnet-the-straight-dope, chapter 18"): _row(
        "mxnet-the-straight-dope, chapter 18", "R", {0.0: 2.25, 0.5: 2.44, 0.75: 3.98, 0.95: 27.4, 0.99: 62.5}
    ),
}
