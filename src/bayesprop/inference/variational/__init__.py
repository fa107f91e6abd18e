"""Variational inference: a tractable family, brought as near to the posterior as its ELBO says."""

from bayesprop.inference.variational.bayes_by_backprop import BayesByBackprop

__all__ = ["BayesByBackprop"]
