"""Posteriors: what beliefs are after the data. Every method ends here, every consumer starts here."""

from bayesprop.posteriors.active_dropout import ActiveDropout
from bayesprop.posteriors.bernoulli_dropout import BernoulliDropout
from bayesprop.posteriors.deep_kernel import DeepKernelProcess
from bayesprop.posteriors.delta import Delta
from bayesprop.posteriors.diagonal_gaussian import DiagonalGaussian
from bayesprop.posteriors.files import load
from bayesprop.posteriors.full_gaussian import FullGaussian
from bayesprop.posteriors.gaussian_mixture import GaussianMixture
from bayesprop.posteriors.gaussian_process import GaussianProcess
from bayesprop.posteriors.kronecker_gaussian import KroneckerGaussian
from bayesprop.posteriors.low_rank_gaussian import LowRankGaussian
from bayesprop.posteriors.multiplicative_gaussian import MultiplicativeGaussian
from bayesprop.posteriors.normalizing_flow import NormalizingFlow
from bayesprop.posteriors.posterior import Context, Posterior
from bayesprop.posteriors.pruned_gaussian import PrunedGaussian
from bayesprop.posteriors.samples import Samples

__all__ = [
    "ActiveDropout",
    "BernoulliDropout",
    "Context",
    "DeepKernelProcess",
    "Delta",
    "DiagonalGaussian",
    "FullGaussian",
    "GaussianMixture",
    "GaussianProcess",
    "KroneckerGaussian",
    "LowRankGaussian",
    "MultiplicativeGaussian",
    "NormalizingFlow",
    "Posterior",
    "PrunedGaussian",
    "Samples",
    "load",
]
