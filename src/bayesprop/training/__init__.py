"""Training: the loop that drives every method, and the race of many settings."""

from bayesprop.training.evaluation import elbo
from bayesprop.training.fit import fit
from bayesprop.training.sweeping import Sweep, sweep

__all__ = ["Sweep", "elbo", "fit", "sweep"]
