"""Choosing: the best epoch on validation data, the best of several starts by ELBO; and refusing what is not finite."""

from __future__ import annotations

import os
from typing import Any

import torch

from bayesprop.data import Data
from bayesprop.errors import DivergenceError
from bayesprop.inference.method import state_tensors
from bayesprop.inference.point import MAP
from bayesprop.inference.variational import BayesByBackprop
from bayesprop.posteriors import Posterior
from bayesprop.training.checkpoint import Progress
from bayesprop.training.evaluation import expected_log_likelihood, kl_to_prior
from bayesprop.training.source import Source

__all__ = ["best_start", "check_finite", "exhausted", "keep_best"]


def keep_best(now: Progress, metrics: dict[str, Any]) -> None:
    """Remember the state if its validation NLL is the best so far."""
    score = metrics["validation_nll"]
    if score < now.best_score:
        now.best_score, now.best_epoch = score, now.epoch
        now.best = {name: tensor.clone() for name, tensor in state_tensors(now.state).items()}


def exhausted(now: Progress, patience: int | None) -> bool:
    """Whether `patience` epochs went by without a better state. A resumed training asks this first: it may be over."""
    return patience is not None and now.epoch - 1 - now.best_epoch >= patience


def check_finite(posterior: Posterior, now: Progress, checkpoint: str | os.PathLike[str] | None) -> None:
    """Raise if every particle has diverged, and say in which term and at which step it began."""
    weights_fine = torch.stack([torch.isfinite(t).flatten(1).all(1) for t in posterior.tensors().values()]).all(0)
    values_fine = now.first_bad == 2**62
    if bool((weights_fine & values_fine).any()):
        return
    step = int(now.first_bad.min())
    if step < 2**62:
        term = f"the data term (the log-likelihood of the minibatch) was not finite first at step {step}"
    else:
        broken = [name for name, t in posterior.tensors().items() if not bool(torch.isfinite(t).all())]
        term = f"the KL term: {' and '.join(broken)} of the posterior are not finite, the data term was until now"
    kept = f"; {checkpoint} holds the last good state" if checkpoint is not None and os.path.exists(checkpoint) else ""
    raise DivergenceError(
        f"training diverged in epoch {now.epoch + 1}, at or before step {now.step}",
        received=term + kept,
        expected="finite numbers: most often the learning rate is too large, or inputs are far from unit scale",
        write=f"{_slower(posterior.context.method)}  # and bp.Data(X, y, standardize=True)",
    )


def _slower(method: Any) -> str:
    """A line with a tenth of the method's learning rate."""
    while hasattr(method, "base"):  # an ensemble of it
        method = method.base
    rate = getattr(method, "learning_rate", None)
    if method is None or isinstance(method, BayesByBackprop) or rate is None:
        return "BayesByBackprop(learning_rate=1e-4, clip_norm=1.0)"
    return f"{type(method).__name__}(learning_rate={0.1 * float(torch.as_tensor(rate).min()):g})"


@torch.no_grad()
def best_start(posterior: Posterior, source: Source) -> Posterior:
    """The particle with the highest ELBO (nats, full data); all ELBOs are kept in the last entry of the history.

    Points have none: of MAP it is the one with the highest log joint, of maximum likelihood that with the highest
    log-likelihood.
    """
    if isinstance(source.data, Data):
        data_term = expected_log_likelihood(posterior, source.data.inputs, source.data.targets, draws=32)
    else:
        model = posterior.model
        data_term = torch.zeros(posterior.particles, dtype=torch.float64, device=model.device)
        for inputs, targets in source.data.epoch(0):
            encoded = model.likelihood.encode(targets).to(model.device)
            data_term += expected_log_likelihood(posterior, model.prepare_inputs(inputs), encoded, draws=32)
    divergence = kl_to_prior(posterior, draws=32)
    objective = data_term if divergence is None else data_term - divergence.double()
    if isinstance(posterior.context.method, MAP):
        objective = objective + posterior.model.log_prior(posterior.moments()[0]).double()
    objective = torch.nan_to_num(objective, nan=-torch.inf)
    best = int(objective.argmax())
    chosen = posterior.member(best)
    if not chosen.context.history:  # it ended before the first report
        chosen.context.history.append({})
    chosen.context.history[-1] |= {"start_elbos": objective.tolist(), "best_start": best}
    return chosen
