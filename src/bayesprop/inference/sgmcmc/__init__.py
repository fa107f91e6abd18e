"""Markov chains driven by gradients of minibatches: samples of the posterior for the price of training."""

from bayesprop.inference.sgmcmc.cyclical import Cyclical
from bayesprop.inference.sgmcmc.hamiltonian import SGHMC
from bayesprop.inference.sgmcmc.langevin import SGLD
from bayesprop.inference.sgmcmc.preconditioned_langevin import PSGLD

__all__ = ["PSGLD", "SGHMC", "SGLD", "Cyclical"]
