"""Table 1 and figure 2 of the paper, and what re-implementations got for the same networks; test error in percent."""

from __future__ import annotations

from bayesprop.experiments.values import Published

__all__ = ["FIGURE", "OTHERS", "TABLE"]

PAPER = "Blundell et al. 2015, table 1"
FIGURE_2 = "Blundell et al. 2015, figure 2, from its vector paths, ± 0.01"
OXFORD = "github.com/JINKEHE/BayesByBackprop, stored test accuracies, last epoch"
SAXENA = "github.com/saxena-mayur/Weight-Uncertainty-in-Neural-Networks"

# (row, units of each hidden layer)
TABLE: dict[tuple[str, int], Published] = {
    (row, width): Published(value, PAPER, "P")
    for row, values in {
        "sgd": (1.83, 1.84, 1.88),
        "dropout": (1.51, 1.33, 1.36),
        "gaussian": (1.82, 1.99, 2.04),
        "mixture": (1.36, 1.34, 1.32),
    }.items()
    for width, value in zip((400, 800, 1200), values, strict=True)
}

OTHERS: dict[tuple[str, int], tuple[Published, ...]] = {
    ("mixture", 1200): (Published(1.33, OXFORD, "C"), Published(1.58, SAXENA, "R")),
    ("mixture", 800): (Published(1.71, SAXENA, "R"),),
    ("mixture", 400): (
        Published(1.75, SAXENA, "R"),
        Published(2.03, "source 000, a mixture of 1 and exp(-6)", "S"),
    ),
    ("gaussian", 400): (Published(1.69, "source 000, Gaussian of scale 1", "S"),),
    ("sgd", 1200): (Published(1.67, OXFORD, "C"), Published(1.94, SAXENA, "R")),
    ("sgd", 800): (Published(1.96, SAXENA, "R"),),
    ("sgd", 400): (Published(2.11, SAXENA, "R"),),
    ("dropout", 1200): (Published(1.30, OXFORD, "C"), Published(1.27, SAXENA, "R")),
    ("dropout", 800): (Published(1.36, SAXENA, "R"),),
    ("dropout", 400): (Published(1.54, SAXENA, "R"),),
}

# Mean test error of 1200 units over these epochs: (first, last) -> value.
FIGURE: dict[str, dict[tuple[int, int], Published]] = {
    row: {
        epochs: Published(value, FIGURE_2, "F")
        for epochs, value in zip(((100, 150), (250, 300), (500, 550), (550, 600)), values, strict=True)
    }
    for row, values in {
        "mixture": (1.57, 1.45, 1.32, 1.32),
        "dropout": (1.44, 1.42, 1.41, 1.39),
        "sgd": (1.87, 1.86, 1.85, 1.85),
    }.items()
}
