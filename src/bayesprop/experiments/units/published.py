"""Results of source 004 (a notebook of the seminar "Neue Entwicklungen im Deep Learning", winter 2020/21); percent."""

from __future__ import annotations

from bayesprop.experiments.values import Published

__all__ = ["BASELINES", "LONG", "ORIGINAL", "SECONDS_PER_EPOCH", "TABLE"]

SOURCE = "source 004, its table of results"
NOTEBOOK = "source 004, printed by its Keras cells"
PAPER = "Blundell et al. 2015, table 1"

# (data set, units of each hidden layer)
TABLE: dict[tuple[str, int], Published] = {
    **{
        ("mnist", width): Published(value, SOURCE, "S")
        for width, value in zip((200, 400, 800, 1200), (2.51, 2.33, 2.16, 2.76), strict=True)
    },
    **{
        ("fashion_mnist", width): Published(value, SOURCE, "S")
        for width, value in zip((200, 400, 800), (12.63, 13.2, 12.81), strict=True)
    },
}
LONG = Published(1.63, SOURCE + ", 228 epochs", "S")
ORIGINAL = {
    width: Published(value, PAPER, "P") for width, value in zip((400, 800, 1200), (1.82, 1.99, 2.04), strict=True)
}
BASELINES = {
    "sgd": Published(100.0 - 98.25999736785889, NOTEBOOK, "S"),
    "dropout": Published(100.0 - 98.48999977111816, NOTEBOOK, "S"),
}
SECONDS_PER_EPOCH = Published(112.0, "source 004, on a processor of Colab", "S")
