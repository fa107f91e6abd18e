"""Sweeps: the settings of a grid as one population, of which the best are returned."""

from bayesprop.training.sweeping.sweep import sweep
from bayesprop.training.sweeping.table import Row, Sweep

__all__ = ["Row", "Sweep", "sweep"]
