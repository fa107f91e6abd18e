"""Two ways in which mean-field inference fails quietly, looked for after every fit.

*Collapse*: a layer's posterior is its prior; the data never spoke through it. The KL of its weights is then about zero.
*The linear optimum*: a network that says hardly more than a linear model of its inputs, although there is more to say.
On two moons a small network that starts with wide posteriors ends there more often than not; the ELBO is far below that
of the good optimum, so that several starts find out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bayesprop.data import Data
from bayesprop.layout import Block
from bayesprop.posteriors import DiagonalGaussian, Posterior
from bayesprop.priors.constants import Vector
from bayesprop.rng import Rng, Stream

if TYPE_CHECKING:
    from bayesprop.model import Model

__all__ = ["collapsed_layers", "examine", "held_out_scores", "random_features"]

COLLAPSED = 0.05  # nats a weight: a posterior at its prior but for a change of the standard deviation by a quarter
ROWS = 2000  # looked at by the simple models, which need ten rows a feature to be more than a memory of them
LEAST = 10  # rows, below which nothing is compared
FEATURES = 50  # random ones
WORSE = 1.0  # nats for each row by which a simpler model must beat a network: less is a fit that is short or cautious
CERTAIN = 4.0  # standard errors by which random features must beat the inputs alone before anything is said


@torch.no_grad()
def collapsed_layers(posterior: Posterior) -> list[str]:
    """Weight matrices whose posterior has become their prior: no row of them has 0.05 nats of KL a weight.

    A row holds the weights into one unit. A layer of which most units are switched off is a smaller layer that works,
    which mean-field inference often finds, and no collapse.

    Under a flat prior, which is no distribution, nothing can collapse. Neither can it to a prior that has a location of
    its own for each weight: such a prior was learnt, and staying near it is what it asks for.
    """
    if "log_density" not in posterior.capabilities:
        return []
    model = posterior.model
    mean, std = posterior.moments()
    flat, location = _flat_columns(model), _locations(model)
    random = model.layout.random
    per_column = model.bound_prior.kl_columns(mean[:, :random], std[:, :random])
    prior_std = model.bound_prior.prior_std() if per_column is None else None
    prior_std = None if prior_std is None else prior_std.to(std)
    found = []
    for block in model.layout.of_kind("random"):
        columns = block.columns
        learnt = bool((location[columns] != location[columns.start]).any())
        if len(block.shape) < 2 or bool(flat[columns].any()) or learnt:
            continue
        if per_column is not None:
            collapsed = bool((_by_unit(per_column[:, columns], block) < COLLAPSED).all())
        elif prior_std is not None and bool(torch.isfinite(prior_std[columns]).all()):
            # No closed form: the same statement by moments, |mean| and |log ratio of deviations| both small.
            ratio = _by_unit((std[:, columns] / prior_std[columns]).log().abs(), block)
            square = _by_unit((mean[:, columns] / prior_std[columns]).square(), block)
            collapsed = bool(((ratio < 0.2) & (square < 2 * COLLAPSED)).all())
        else:
            collapsed = False
        if collapsed:
            found.append(block.name)
    return found


def _by_unit(columns: Tensor, block: Block) -> Tensor:
    """Means over the particles and over each row of one parameter: (particles, columns) to (rows,)."""
    return columns.mean(0).reshape(block.shape[0], -1).mean(1)


def _flat_columns(model: Model) -> Tensor:
    """Which random columns have a flat prior, (W,)."""
    found = torch.zeros(model.layout.random, dtype=torch.bool)
    for group in model.bound_prior.groups:
        if group.density.name == "flat":
            found[group.columns if isinstance(group.columns, slice) else group.columns.values] = True
    return found


def _locations(model: Model) -> Tensor:
    """Where the prior of each random column lies, (W,); of several particles, that of the first."""
    found = torch.zeros(model.layout.random, dtype=torch.float64)
    for group in model.bound_prior.groups:
        location = group.arguments.get("loc", 0.0)
        values = torch.atleast_2d(location.values)[0].double().cpu() if isinstance(location, Vector) else location
        found[group.columns if isinstance(group.columns, slice) else group.columns.values] = values
    return found


def random_features(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """(inputs, inputs and tanh units): rows of standardised inputs (n, F), and (n, F + 50) with a random hidden layer.

    The units are tanh(2 w.x / sqrt(F) + b) with w and b standard normal: bent within the data, but no memory of them.
    """
    flat = inputs.reshape(len(inputs), -1).double()
    flat = (flat - flat.mean(0)) / flat.std(0).clamp_min(1e-8)
    rng = Rng.create(0, device=flat.device)
    weights = rng.normal((flat.shape[1] + 1) * FEATURES, Stream.INITIAL, dtype=torch.float64).reshape(-1, FEATURES)
    return flat, torch.cat((flat, torch.tanh(2.0 * flat @ weights[1:] / math.sqrt(flat.shape[1]) + weights[0])), dim=1)


def held_out_scores(model: Model, features: Tensor, targets: Tensor, width: torch.Size) -> Tensor:
    """Log-likelihood of each row under a model that is linear in `features`, with this model's likelihood: (n,).

    `width` is the shape of one row of the network's outputs. Each half of the rows is scored by the model of the other
    half: one with many features remembers its own rows, and would look better than any network that has learnt
    something.
    """
    order = Rng.create(0, device=features.device).permutation(len(features), Stream.SPLIT)[0]
    scores = torch.empty(len(features), dtype=torch.float64, device=features.device)
    for train, test in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        scores[test] = _score(model, width, (features[train], targets[train]), (features[test], targets[test]))
    return scores


def _score(model: Model, width: torch.Size, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> Tensor:
    """The linear model of some rows, slightly regularised and found by L-BFGS, on others."""
    weights = torch.zeros(train[0].shape[1] + 1, math.prod(width), dtype=torch.float64, device=train[0].device)
    latents = model.likelihood.latents
    columns = [torch.full((h.size,), h.initial_column(), dtype=torch.float64, device=weights.device) for h in latents]
    leaves = [leaf.requires_grad_(True) for leaf in (weights, *columns)]
    optimizer = torch.optim.LBFGS(leaves, max_iter=100, line_search_fn="strong_wolfe")

    def value(features: Tensor, targets: Tensor) -> Tensor:
        out = (features @ weights[:-1] + weights[-1]).reshape(len(features), *width)
        named = {latent.name: latent.constrain(c) for latent, c in zip(latents, columns, strict=True)}
        return model.likelihood.log_prob(out, targets, named)

    def closure() -> float:
        optimizer.zero_grad()
        loss = 1e-3 * weights[:-1].square().sum() - value(*train).mean()
        loss.backward()
        return float(loss.detach())

    with torch.enable_grad():
        optimizer.step(closure)
    with torch.no_grad():
        return value(*test)


def _little_learnt(posterior: Posterior, data: Data) -> str:
    """The warning about a fit that a much simpler model beats; "" if there is none.

    The network is scored on rows that it has seen, the simple models on rows that they have not: whoever loses with
    that advantage has learnt little. First a model that says the same of every row, then one that is linear in the
    inputs. Where random features beat the inputs alone there is more to say than a linear model can, and the network
    should have found at least half of it.
    """
    model = posterior.model
    if posterior.particles > 1:
        return ""
    rows = Rng.create(0, device=data.device).permutation(data.num_data, Stream.SPLIT)[0, :ROWS]
    inputs, targets = data.inputs[rows], data.targets[rows]  # type: ignore[index]
    if len(inputs) < LEAST:
        return ""
    width = next(iter(posterior.outputs(inputs[:2], 1)()))[1].shape[2:]
    reached = posterior.predict(inputs, 32, original_scale=False).log_prob(targets).double()
    mean = float(reached.mean())
    constant = held_out_scores(model, inputs.new_zeros(len(inputs), 0, dtype=torch.float64), targets, width)
    advice = "This fit is not finished, has diverged or sits in a poor optimum: try more epochs, "
    if _beyond_doubt(constant - reached - WORSE):
        return (
            "the fit is worse than saying the same of every row: its mean log-likelihood on the training data is "
            f"{mean:.4f}, that of a constant {float(constant.mean()):.4f}. {advice}a smaller learning rate, "
            "bp.Data(X, y, standardize=True) for inputs far from unit scale, or starts=8."
        )
    depth = sum(1 for block in model.layout.blocks if len(block.shape) >= 2)
    if depth < 2 or len(inputs) < 10 * inputs[0].numel():
        return ""
    flat, more = random_features(inputs)
    linear, bent = (held_out_scores(model, features, targets, width) for features in (flat, more))
    gaussian = isinstance(posterior, DiagonalGaussian)
    advice += 'BayesByBackprop(initial_mean="fan_in", initial_scale=0.01), ' if gaussian else "another learning rate, "
    advice += "or starts=8."
    if _beyond_doubt(linear - reached - WORSE):
        return (
            "the fit is worse than a linear model of its inputs: its mean log-likelihood on the training data is "
            f"{mean:.4f}, that of a linear model {float(linear.mean()):.4f}. {advice}"
        )
    gain = float((bent - linear).mean())
    if not _beyond_doubt(bent - linear) or mean >= float(linear.mean()) + 0.5 * gain:
        return ""
    return (
        "the network has learnt little that a linear model does not know: its mean log-likelihood on the training data "
        f"is {mean:.4f}, that of a linear model {float(linear.mean()):.4f}, and with {FEATURES} random units "
        f"{float(bent.mean()):.4f}. {advice}"
    )


def _beyond_doubt(advantage: Tensor) -> bool:
    """Whether the mean advantage (nats for each row) is more than noise. A row counts for ten nats at most: one
    outlier must neither decide nor, by the spread that it brings, hide what all other rows say."""
    advantage = advantage.nan_to_num(nan=10.0).clamp(-10.0, 10.0)
    return float(advantage.mean()) > CERTAIN * float(advantage.std()) / math.sqrt(len(advantage))


def examine(posterior: Posterior, data: Data | None) -> list[str]:
    """Warnings about this fit, in words that say what to try.

    `data` are in the model's own scale; None skips the second look.
    """
    messages = []
    collapsed = collapsed_layers(posterior)
    if collapsed:
        messages.append(
            f"{', '.join(collapsed)}: the posterior has collapsed to the prior, the data do not speak through these "
            "weights. Train longer, start narrower with BayesByBackprop(initial_scale=0.01), use a narrower prior, or "
            "starts=8 to compare several starts."
        )
    if data is not None and isinstance(data.inputs, Tensor) and data.inputs.is_floating_point():
        little = _little_learnt(posterior, data)
        messages += [little] if little else []
    return messages
