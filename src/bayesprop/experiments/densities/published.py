"""What can be read off figure 3 of the paper: how high its densities are at zero."""

from __future__ import annotations

from bayesprop.experiments.values import Published

__all__ = ["PEAKS"]

FIGURE_3 = "Blundell et al. 2015, figure 3, read off the drawing"

# Height of the density at its peak, by row; the paper does not say which prior its Bayesian network has.
PEAKS = {
    "mixture": Published(4.0, FIGURE_3, "F", "its samples look like N(0, 0.1)"),
    "dropout": Published(9.0, FIGURE_3, "F"),
    "sgd": Published(15.0, FIGURE_3, "F"),
}
