"""Variational inference: a tractable family, brought as near to the posterior as its ELBO says."""

from bayesprop.inference.variational.advi import ADVI
from bayesprop.inference.variational.bayes_by_backprop import BayesByBackprop
from bayesprop.inference.variational.boosting import Boosting
from bayesprop.inference.variational.deterministic import DVI
from bayesprop.inference.variational.flow import Flow
from bayesprop.inference.variational.graves import Graves
from bayesprop.inference.variational.ivon import IVON

__all__ = ["ADVI", "DVI", "IVON", "BayesByBackprop", "Boosting", "Flow", "Graves"]
