"""Ensembles: several fits of one model, mixed equally. Members are particles of one training."""

from bayesprop.inference.ensembles.deep_ensemble import DeepEnsemble
from bayesprop.inference.ensembles.prior_function import PriorFunction

__all__ = ["DeepEnsemble", "PriorFunction"]
