"""What is reported at the end of an epoch: the ELBO in nats for the full data, and scores on validation data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayesprop.data import Data, Stream
from bayesprop.metrics import error, root_mean_squared_error
from bayesprop.model import Batch, Model
from bayesprop.posteriors import Posterior

__all__ = ["elbo", "kl_to_prior", "validation_scores"]


def kl_to_prior(posterior: Posterior, draws: int | None = None) -> Tensor | None:
    """KL(q || prior) in nats for each particle, if this posterior knows it; few draws for large networks."""
    known = getattr(posterior, "kl", None)
    if known is None:
        return None
    columns = posterior.model.layout.size * posterior.particles
    return known(draws or max(1, min(32, 4_000_000 // columns)))


@torch.no_grad()
def expected_log_likelihood(posterior: Posterior, inputs: Any, targets: Tensor, draws: int, rows: int = 4096) -> Tensor:
    """E_q sum_i log p(y_i | x_i, w) over all rows, one number a particle; the network is in evaluation mode."""
    model: Model = posterior.model
    model.set_mode(False)
    theta = posterior.draw(posterior.rng(0), draws)
    total = torch.zeros(posterior.particles, dtype=torch.float64, device=model.device)
    leaves = torch.utils._pytree.tree_map
    for start in range(0, targets.shape[0], rows):
        part = slice(start, start + rows)

        def widen(tensor: Tensor, part: slice = part) -> Tensor:
            return tensor[part].unsqueeze(0).expand(posterior.particles, *tensor[part].shape)

        batch = Batch(leaves(widen, inputs), widen(targets), targets.shape[0])
        total += model.log_likelihood(theta, posterior.buffers, batch).double().mean(1)
    return total


def elbo(posterior: Posterior, data: Any, *, draws: int = 16) -> Tensor:
    """E_q log p(D | w) - KL(q || prior) in nats for the full data, one number a particle; higher is better.

    Never rescaled and not divided by anything: two fits of the same data and model can be compared by it.
    """
    from bayesprop.data import as_data

    posterior.needs("log_density", "the ELBO")
    found = as_data(data)
    model = posterior.model
    inputs, targets = _tensors(found, model, posterior.context.scaling)
    divergence = kl_to_prior(posterior)
    assert divergence is not None
    return expected_log_likelihood(posterior, inputs, targets, draws) - divergence


def _tensors(data: Data | Stream, model: Model, scaling: Any) -> tuple[Any, Tensor]:
    """Inputs and targets of all rows as the model takes them."""
    if isinstance(data, Stream):
        parts = list(data.epoch(0))
        inputs = torch.utils._pytree.tree_map(lambda *tensors: torch.cat(tensors), *[part[0] for part in parts])
        targets = torch.cat([part[1] for part in parts])
    else:
        inputs, targets = data.inputs, data.targets
    if scaling is not None and getattr(data, "scaling", None) is None:
        inputs, targets = scaling.scale_inputs(inputs), scaling.scale_targets(targets)
    return model.prepare_inputs(inputs), model.likelihood.encode(targets).to(model.device)


def validation_scores(posterior: Posterior, data: Data | Stream, draws: int) -> dict[str, float]:
    """NLL per example, error rate (or RMSE) and the share of the uncertainty that is epistemic."""
    inputs, targets = _tensors(data, posterior.model, None)
    prediction = posterior.predict(inputs, draws, original_scale=False)
    negative = -float(prediction.log_prob(targets).double().mean())
    share = float(prediction.epistemic.double().mean() / prediction.total.double().mean().clamp_min(1e-30))
    scores = {"validation_nll": negative, "epistemic_share": share}
    if posterior.model.likelihood.task == "classification":
        scores["validation_error"] = float(error(prediction.mean, targets))
    else:
        scores["validation_rmse"] = float(root_mean_squared_error(prediction.mean, targets))
    return scores
