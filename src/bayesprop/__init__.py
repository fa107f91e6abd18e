"""bayesprop: any PyTorch network as a Bayesian neural network.

model = bp.Model(network, likelihood=bp.likelihoods.Categorical())
posterior = bp.fit(model, (X, y), epochs=100)
prediction = posterior.predict(X_new)
"""

from bayesprop import (
    data,
    decisions,
    diagnostics,
    errors,
    inference,
    likelihoods,
    metrics,
    posteriors,
    priors,
    random_weights,
    report,
)
from bayesprop.data import Data
from bayesprop.inference import methods
from bayesprop.model import Model
from bayesprop.posteriors import load
from bayesprop.training import elbo, fit, sweep
from bayesprop.training import observers as observers

__version__ = "0.1.0"

__all__ = [
    "Data",
    "Model",
    "data",
    "decisions",
    "diagnostics",
    "elbo",
    "errors",
    "fit",
    "inference",
    "likelihoods",
    "load",
    "methods",
    "metrics",
    "observers",
    "posteriors",
    "priors",
    "random_weights",
    "report",
    "sweep",
]
