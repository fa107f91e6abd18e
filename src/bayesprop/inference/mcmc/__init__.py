"""Markov chains that look at all rows and are corrected for their steps: samples of the posterior itself."""

from bayesprop.inference.mcmc.hmc import HMC

__all__ = ["HMC"]
