"""Two ways in which mean-field inference fails quietly, looked for after every fit.

*Collapse*: a layer's posterior is its prior; the data never spoke through it. The KL of its weights is then about zero.
*The linear optimum*: a network that does no better than a linear model on the same inputs. On two moons most starts of
a small network end there; their ELBO is far below that of the good optimum, so several starts find out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bayesprop.data import Data
from bayesprop.posteriors import Posterior
from bayesprop.rng import Rng, Stream
from bayesprop.rng import Rng, Stream

if TYPE_CHECKING:
    from bayesprop.model import Model

__all__ = ["collapsed_layers", "examine", "linear_log_likelihood"]

COLLAPSED = 0.05  # nats a weight: a posterior at its prior but for a change of the standard deviation by a quarter
ROWS = 2000  # looked at by the linear models, which need ten rows a feature to be more than a memory of them


@torch.no_grad()
def collapsed_layers(posterior: Posterior) -> list[str]:
    """Weight matrices whose posterior has become their prior: less than 0.05 nats of KL a weight, layer by layer."""
    if "log_density" not in posterior.capabilities:
        return []
    model = posterior.model
    mean, std = posterior.moments()
    random = model.layout.random
    per_column = model.bound_prior.kl_columns(mean[:, :random], std[:, :random])
    prior_std = model.bound_prior.prior_std()
    prior_std = None if prior_std is None else prior_std.to(std)
    found = []
    for block in model.layout.of_kind("random"):
        if len(block.shape) < 2:
            continue
        columns = block.columns
        if per_column is not None:
            collapsed = float(per_column[:, columns].mean()) < COLLAPSED
        elif prior_std is not None and bool(torch.isfinite(prior_std[columns]).all()):
            # No closed form: the same statement by moments, |mean| and |log ratio of deviations| both small.
            ratio = (std[:, columns] / prior_std[columns]).log().abs().mean()
            collapsed = (
                float(ratio) < 0.2 and float((mean[:, columns] / prior_std[columns]).square().mean()) < 2 * COLLAPSED
            )
        else:
            collapsed = False
        if collapsed:
            found.append(block.name)
    return found


def linear_log_likelihood(model: Model, inputs: Tensor, targets: Tensor) -> float:
    """Mean log-likelihood of linear models (slightly regularised) with this likelihood, by L-BFGS.

    Each half of the rows is scored by the model of the other half: a linear model with many features remembers its own
    rows, and then looks better than any network that has learnt something.
    """
    flat = inputs.reshape(len(inputs), -1).double()
    flat = (flat - flat.mean(0)) / flat.std(0).clamp_min(1e-8)
    with torch.no_grad():
        theta = torch.zeros(1, 1, model.layout.size, dtype=model.dtype, device=model.device)
        width = model.outputs(theta, model.initial_buffers(1), inputs[:2])[0, 0].shape[1:]
    order = Rng.create(0, device=flat.device).permutation(len(flat), Stream.SPLIT)[0]
    halves = order[::2], order[1::2]
    scores = [
        len(test) * _held_out(model, width, (flat[train], targets[train]), (flat[test], targets[test]))
        for train, test in (halves, halves[::-1])
    ]
    return sum(scores) / len(flat)


def _held_out(model: Model, width: torch.Size, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> float:
    """The score of the linear model of some rows on others; `width` is the shape of one row of outputs."""
    weights = torch.zeros(train[0].shape[1] + 1, math.prod(width), dtype=torch.float64, device=train[0].device)
    latents = model.likelihood.latents
    columns = [torch.full((h.size,), h.initial_column(), dtype=torch.float64, device=weights.device) for h in latents]
    leaves = [leaf.requires_grad_(True) for leaf in (weights, *columns)]
    optimizer = torch.optim.LBFGS(leaves, max_iter=100, line_search_fn="strong_wolfe")

    def value(flat: Tensor, targets: Tensor) -> Tensor:
        out = (flat @ weights[:-1] + weights[-1]).reshape(len(flat), *width)
        named = {latent.name: latent.constrain(c) for latent, c in zip(latents, columns, strict=True)}
        return model.likelihood.log_prob(out, targets, named).mean()

    def closure() -> float:
        optimizer.zero_grad()
        loss = 1e-4 * weights[:-1].square().sum() - value(*train)
        loss.backward()
        return float(loss.detach())

    with torch.enable_grad():
        optimizer.step(closure)
    with torch.no_grad():
        return float(value(*test))


def examine(posterior: Posterior, data: Data | None) -> list[str]:
    """Warnings about this fit, in words that say what to try.

    `data` are in the model's own scale; None skips the second look.
    """
    messages = []
    collapsed = collapsed_layers(posterior)
    if collapsed:
        messages.append(
            f"{', '.join(collapsed)}: the posterior has collapsed to the prior, the data do not speak through these "
            "weights. Train longer, start narrower (initial_scale=0.01), use a narrower prior, or starts=8 to compare "
            "several starts."
        )
    model = posterior.model
    if data is None or not isinstance(data.inputs, Tensor) or not data.inputs.is_floating_point():
        return messages
    depth = sum(1 for block in model.layout.blocks if len(block.shape) >= 2)
    if depth < 2 or posterior.particles > 1 or min(ROWS, data.num_data) < 10 * data.inputs[0].numel():
        return messages
    # The linear models are scored on rows that they have not seen, the network on rows that it has: whoever loses with
    # that advantage has not found what there is.
    rows = Rng.create(0, device=data.device).permutation(data.num_data, Stream.SPLIT)[0, :ROWS]
    inputs, targets = data.inputs[rows], data.targets[rows]
    seen = posterior.predict(inputs, 32, original_scale=False)
    reached = float(seen.log_prob(targets).mean())
    linear = linear_log_likelihood(model, inputs, targets)
    if math.isfinite(linear) and reached < linear + 0.01 * abs(linear):
        messages.append(
            "the network explains the training data no better than a linear model does (mean log-likelihood "
            f"{reached:.4f} against {linear:.4f}). If the data are not linear, this fit sits in a poor optimum: try "
            "starts=8, more epochs or a smaller initial_scale."
        )
    return messages
