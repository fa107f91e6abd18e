"""Training: the loop that drives every method."""

from bayesprop.training.evaluation import elbo
from bayesprop.training.fit import fit

__all__ = ["elbo", "fit"]
