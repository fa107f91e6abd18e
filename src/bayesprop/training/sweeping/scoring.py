"""A setting's score: its predictions on validation data, by the numbers that `fit` reports."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bayesprop.metrics import error, root_mean_squared_error
from bayesprop.posteriors import Posterior

__all__ = ["fault", "score"]


@torch.no_grad()
def score(posterior: Posterior, held_out: tuple[Any, Tensor], draws: int) -> tuple[float, float]:
    """NLL per example in nats, and the error rate (RMSE for quantities), from the same noise for every setting."""
    inputs, targets = held_out
    prediction = posterior.predict(inputs, draws, original_scale=False)
    nll = -float(prediction.log_prob(targets).double().mean())
    if posterior.model.likelihood.task == "classification":
        return nll, float(error(prediction.mean, targets))
    return nll, float(root_mean_squared_error(prediction.mean, targets))


def fault(posterior: Posterior, first_bad: int, nll: float | None = None) -> str:
    """Why a setting is out of the race, whatever the others do; "" if nothing is wrong with it."""
    if first_bad < 2**62:
        return f"diverged: the log-likelihood was not finite first at step {first_bad}"
    broken = [name for name, tensor in posterior.tensors().items() if not bool(torch.isfinite(tensor).all())]
    if broken:
        return f"diverged: {' and '.join(broken)} of the posterior are not finite"
    if nll is not None and not math.isfinite(nll):
        return f"diverged: the validation NLL is {nll}"
    return ""
