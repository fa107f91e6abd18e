"""The methods that are asked about the gap: settings that suit a hundred rows and one small network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bayesprop import inference
from bayesprop.experiments.regression.settings import RegressionSettings
from bayesprop.inference.method import Method
from bayesprop.random_weights import LocalReparameterization

__all__ = ["GAP", "GapMethod"]

Steps = Callable[[RegressionSettings], int | None]


def _training(settings: RegressionSettings) -> int | None:
    return settings.steps


def _chain(settings: RegressionSettings) -> int | None:
    return settings.chain_steps


def _own(_settings: RegressionSettings) -> int | None:
    """The method knows by itself how many."""
    return None


@dataclass(frozen=True)
class GapMethod:
    """What it is called, how it is made, and how many steps it takes; `whole` says that it takes all rows by itself."""

    title: str
    make: Callable[[RegressionSettings], Method[Any]]
    steps: Steps = _training
    whole: bool = False


def _hmc(settings: RegressionSettings) -> Method[Any]:
    return inference.HMC(settings.hmc_samples, settings.hmc_warm_up, chains=settings.hmc_chains)


def _laplace(hessian: Any) -> Method[Any]:
    return inference.Laplace(inference.MAP(1e-2), hessian)


# All rows are one minibatch, so that a step is an epoch.
GAP: dict[str, GapMethod] = {
    "hmc": GapMethod("HMC", _hmc, _own, whole=True),
    "bayes-by-backprop": GapMethod("Bayes by Backprop", lambda s: inference.BayesByBackprop(1e-2)),
    "local-reparameterization": GapMethod(
        "Bayes by Backprop, local reparameterisation",
        lambda s: inference.BayesByBackprop(1e-2, estimator=LocalReparameterization(4)),
    ),
    "advi": GapMethod("ADVI, full covariance", lambda s: inference.ADVI(learning_rate=1e-2, samples=4)),
    "ivon": GapMethod("IVON", lambda s: inference.IVON()),
    "graves": GapMethod("Graves", lambda s: inference.Graves(1e-2)),
    "dvi": GapMethod("DVI", lambda s: inference.DVI(learning_rate=1e-2)),
    "flow": GapMethod("Normalizing flow", lambda s: inference.Flow()),
    "boosting": GapMethod("Boosting, three Gaussians", lambda s: inference.Boosting(learning_rate=1e-2)),
    "functional": GapMethod("Functional VI", lambda s: inference.FunctionalVI(learning_rate=1e-2)),
    "mc-dropout": GapMethod("MC dropout, rate 0.1", lambda s: inference.MCDropout(1e-2, rate=0.1)),
    "concrete-dropout": GapMethod("Concrete dropout", lambda s: inference.ConcreteDropout(1e-2)),
    "gaussian-dropout": GapMethod("Variational Gaussian dropout", lambda s: inference.GaussianDropout(1e-2)),
    "sparse-dropout": GapMethod("Sparse variational dropout", lambda s: inference.SparseVariationalDropout(1e-2)),
    "laplace-full": GapMethod("Laplace, full", lambda s: _laplace("full")),
    "laplace-kronecker": GapMethod("Laplace, Kronecker", lambda s: _laplace("kron")),
    "laplace-diagonal": GapMethod("Laplace, diagonal", lambda s: _laplace("diagonal")),
    "laplace": GapMethod("Laplace, last layer", lambda s: _laplace("last_layer")),
    "swag": GapMethod("SWAG", lambda s: inference.SWAG(1e-4)),
    "sgld": GapMethod("SGLD", lambda s: inference.SGLD(1e-4, chains=4), _chain),
    "psgld": GapMethod("pSGLD", lambda s: inference.PSGLD(1e-3, chains=4), _chain),
    "sghmc": GapMethod("SGHMC", lambda s: inference.SGHMC(1e-3, chains=4), _chain),
    "ensemble": GapMethod("Deep ensemble of 10", lambda s: inference.DeepEnsemble(inference.MAP(1e-2), 10)),
    "nngp": GapMethod("NNGP (infinitely wide)", lambda s: inference.NNGP(), _own, whole=True),
    "deep-kernel": GapMethod("Deep kernel", lambda s: inference.DeepKernel()),
    "map": GapMethod("MAP", lambda s: inference.MAP(1e-2)),
}
