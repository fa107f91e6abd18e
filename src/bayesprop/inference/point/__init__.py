"""Point estimates: one value for each weight. The baselines of every comparison, and the base of ensembles."""

from bayesprop.inference.point.maximum_a_posteriori import MAP
from bayesprop.inference.point.maximum_likelihood import MLE

__all__ = ["MAP", "MLE"]
