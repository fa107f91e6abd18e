"""What is reported at the end of an epoch: the ELBO in nats for the full data, and scores on validation data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesprop.data import Data, Scaling, Stream, as_data, encode_labels
from bayesprop.errors import DataError
from bayesprop.metrics import error, root_mean_squared_error
from bayesprop.model import Model
from bayesprop.posteriors import Posterior, PrunedGaussian
from bayesprop.posteriors.outputs import check_features, checked_draws

__all__ = ["elbo", "expected_log_likelihood", "kl_to_prior", "prepared", "report"]


def prepared(data: Data | Stream, model: Model, scaling: Scaling | None, classes: Any) -> tuple[Any, Tensor]:
    """All rows as a model takes them that was trained with this scaling and these classes, on its device.

    Data that were standardised by themselves, or whose labels were numbered by themselves, are brought back first.
    """
    if isinstance(data, Stream):
        parts = list(data.epoch(0))
        inputs = pytree.tree_map(lambda *tensors: torch.cat(tensors), *[part[0] for part in parts])
        targets, own_scaling = torch.cat([part[1] for part in parts]), None
    else:
        inputs, targets, own_scaling = data.inputs, data.targets, data.scaling
    if own_scaling is not scaling:
        if isinstance(data, Data):
            inputs, targets = data.original()
        if scaling is not None:
            here = scaling.to(targets.device)
            check_features(inputs, here)
            _check_targets(targets, here)
            inputs, targets = here.scale_inputs(inputs), here.scale_targets(targets)
    if data.classes is not None and classes is None:
        raise DataError(
            "the training data have no classes",
            received=f"labels such as {data.classes[0]!r}",
            expected="the same kind of targets as in training",
        )
    if data.classes != classes:
        labels = targets if data.classes is None else [data.classes[i] for i in targets.reshape(-1).tolist()]
        targets = encode_labels(labels, classes).reshape(targets.shape)
    return model.prepare_inputs(inputs), model.likelihood.encode(targets).to(model.device)


def _check_targets(targets: Tensor, scaling: Scaling) -> None:
    """Refuse targets of another shape than those that were standardised: they could broadcast without a word."""
    row, trained = ([size for size in shape if size != 1] for shape in (targets.shape[1:], scaling.target_mean.shape))
    if scaling.scales_targets and row != trained:
        raise DataError(
            "the targets have another shape than those of training",
            received=f"targets {list(targets.shape)}",
            expected=f"targets {[targets.shape[0], *scaling.target_mean.shape]}",
        )


def kl_to_prior(posterior: Posterior, draws: int | None = None) -> Tensor | None:
    """KL(q || prior) in nats for each particle, if this posterior knows it; few draws for large networks."""
    known = getattr(posterior, "kl", None)
    if known is None or isinstance(posterior, PrunedGaussian):  # which has columns without a density, and says so
        return None
    columns = posterior.model.layout.size * posterior.particles
    return known(draws or max(1, min(32, 4_000_000 // columns)))


@torch.no_grad()
def expected_log_likelihood(posterior: Posterior, inputs: Any, targets: Tensor, draws: int) -> Tensor:
    """E_q sum_i log p(y_i | x_i, w) over all rows, one number a particle; the network is in evaluation mode."""
    likelihood = posterior.model.likelihood
    total = torch.zeros(posterior.particles, dtype=torch.float64, device=posterior.model.device)
    for rows, outputs, latents in posterior.outputs(inputs, draws)():
        likelihood.check(outputs[0], targets[rows])
        each = torch.func.vmap(likelihood.log_prob, in_dims=(0, None, 0))(outputs, targets[rows], dict(latents))
        total += each.double().sum(1).reshape(posterior.particles, draws).mean(1)
    return total


def elbo(posterior: Posterior, data: Any, *, draws: int = 16) -> Tensor:
    """E_q log p(D | w) - KL(q || prior) in nats for the full data, one number a particle; higher is better.

    Never rescaled and not divided by anything: two fits of the same data and model can be compared by it. `data` are in
    the user's own units; with a scaling, the densities are those of the standardised targets.
    """
    posterior.needs("log_density", "the ELBO")
    draws, context = checked_draws(draws, "bp.elbo(posterior, data, draws=16)"), posterior.context
    inputs, targets = prepared(as_data(data), posterior.model, context.scaling, context.classes)
    divergence = kl_to_prior(posterior)
    assert divergence is not None
    return expected_log_likelihood(posterior, inputs, targets, draws) - divergence


def report(posterior: Posterior, data_term: Tensor, held_out: tuple[Any, Tensor] | None) -> dict[str, Any]:
    """The numbers of one epoch: in nats for the full data, of the particle with the best ELBO."""
    divergence = kl_to_prior(posterior)
    objective = data_term if divergence is None else data_term - divergence
    best = int(torch.nan_to_num(objective, nan=-torch.inf).argmax())
    metrics: dict[str, Any] = {"log_likelihood": float(data_term[best])}
    if divergence is not None:
        metrics |= {"kl": float(divergence[best]), "elbo": float(objective[best])}
    if held_out is not None:
        metrics |= _validation_scores(posterior.member(best), *held_out, draws=16)
    return metrics


def _validation_scores(posterior: Posterior, inputs: Any, targets: Tensor, draws: int) -> dict[str, float]:
    """NLL per example, error rate (or RMSE) and the share of the uncertainty that is epistemic."""
    prediction = posterior.predict(inputs, draws, original_scale=False)
    negative = -float(prediction.log_prob(targets).double().mean())
    share = float(prediction.epistemic.double().mean() / prediction.total.double().mean().clamp_min(1e-30))
    scores = {"validation_nll": negative, "epistemic_share": share}
    if posterior.model.likelihood.task == "classification":
        scores["validation_error"] = float(error(prediction.mean, targets))
    else:
        scores["validation_rmse"] = float(root_mean_squared_error(prediction.mean, targets))
    return scores
