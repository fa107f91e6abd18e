"""What is published of the grid: its axes, and that source 000 could not afford it. No result of a setting is."""

from __future__ import annotations

from bayesprop.experiments.values import Published

__all__ = ["EPOCHS_PER_HOUR", "SETTINGS"]

# The product of the paper's axes; the number itself stands in source 000.
SETTINGS = Published(324, "source 000, section 3.1; the product of the axes of Blundell et al. 2015, section 5.1", "S")
EPOCHS_PER_HOUR = Published(75, "source 000, section 3.1: one setting of 400 units, 2 samples, on a P100", "S")
