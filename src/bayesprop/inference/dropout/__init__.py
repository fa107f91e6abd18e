"""Multiplicative noise as a posterior: dropout, with rates that are given or learnt."""

from bayesprop.inference.dropout.concrete_dropout import ConcreteDropout
from bayesprop.inference.dropout.gaussian_dropout import GaussianDropout
from bayesprop.inference.dropout.mc_dropout import MCDropout
from bayesprop.inference.dropout.sparse_variational_dropout import SparseVariationalDropout

__all__ = ["ConcreteDropout", "GaussianDropout", "MCDropout", "SparseVariationalDropout"]
