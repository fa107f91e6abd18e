"""Priors that know something: yesterday's posterior, or the weights of a network that was trained before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor, nn

from bayesprop.distributions import arguments
from bayesprop.distributions.elementwise import Number
from bayesprop.distributions.hyperpriors import Hyperprior, Product
from bayesprop.errors import ConfigurationError
from bayesprop.layout import Layout
from bayesprop.priors.elementwise import Normal
from bayesprop.priors.prior import Prior, Scale

__all__ = ["Moments", "from_posterior", "pretrained", "relative_size"]


class _HasLayout(Protocol):
    @property
    def layout(self) -> Layout: ...


class Moments(Protocol):
    """A posterior that knows mean and standard deviation of each random parameter, in the parameter's shape."""

    @property
    def model(self) -> _HasLayout: ...
    def mean(self, name: str) -> Tensor: ...
    def std(self, name: str) -> Tensor: ...


def from_posterior(posterior: Moments) -> Mapping[str, Prior]:
    """The posterior of one data set as the prior of the next: name -> Normal(posterior mean, posterior std).

    With it, Bayes' rule is applied task by task (variational continual learning, Nguyen et al. 2018):
    `Model(net, prior=priors.from_posterior(posterior), ...)`. Correlations that the posterior may have are left behind,
    and with them the scales of a hierarchical prior: what is carried over are the moments of the weights themselves.
    """
    found: dict[str, Prior] = {}
    for block in posterior.model.layout.of_kind("random"):
        mean, std = posterior.mean(block.name), posterior.std(block.name)
        if tuple(mean.shape) != block.shape:
            raise ConfigurationError(
                "from_posterior needs one posterior, not a population",
                received=f"a mean of shape {list(mean.shape)} for {block.name}, which has shape {list(block.shape)}",
                expected="a posterior with one particle",
                write="priors.from_posterior(posterior.member(0))",
            )
        if not bool((std > 0).all()):
            raise ConfigurationError(
                f"from_posterior: {block.name} has no spread, so it cannot be the prior of anything",
                received="a posterior standard deviation of 0",
                expected="a posterior with a positive standard deviation for every weight",
                write="priors.pretrained(network, scale=0.1)  # a prior around point estimates",
            )
        found[block.name] = Normal(loc=mean.detach().clone(), scale=std.detach().clone())
    return found


def pretrained(
    network_or_state_dict: nn.Module | Mapping[str, Tensor],
    scale: float | Hyperprior | Product = 1.0,
    *,
    relative_scale: float | None = None,
) -> Mapping[str, Prior]:
    """A normal prior around weights that were trained before: name -> Normal(loc=weights, scale=scale).

    With `relative_scale` d the scale of each weight is d |weight| (MOPED, Krishnan et al. 2020), and at least a tenth
    of d times the root mean square of its parameter, so that a weight that happens to be zero can still move; `scale`
    is then that of parameters that are all zero. `BayesByBackprop(initial_mean="network", relative_initial_scale=d)`
    starts the posterior in the same way.

    The weights are copied, so that training the network further does not move the prior. A state dict holds buffers
    too; `bind` passes over them, and over parameters that are not random, where it is told their names.
    """
    named: Mapping[str, Any]
    if isinstance(network_or_state_dict, nn.Module):
        named = dict(network_or_state_dict.named_parameters())
    elif isinstance(network_or_state_dict, Mapping):
        named = network_or_state_dict
    else:
        raise ConfigurationError(
            "pretrained needs the weights to put the prior around",
            received=f"a {type(network_or_state_dict).__name__}",
            expected="a torch.nn.Module or its state_dict()",
            write="priors.pretrained(network, scale=1.0)",
        )
    weights = {n: w.detach() for n, w in named.items() if isinstance(w, Tensor) and w.is_floating_point()}
    relative: Number | None = None
    if relative_scale is not None:
        relative = arguments.positive(
            "pretrained", "relative_scale", relative_scale, write="priors.pretrained(network, relative_scale=0.1)"
        )

    def scale_of(weight: Tensor) -> Scale:
        if relative is None or not bool(weight.any()):
            return scale
        return relative * relative_size(weight)

    return {name: Normal(loc=weight.clone(), scale=scale_of(weight)) for name, weight in weights.items()}


def relative_size(weight: Tensor) -> Tensor:
    """|weight|, and at least a tenth of the root mean square of all of them."""
    return weight.abs().clamp_min(0.1 * float(weight.double().square().mean().sqrt()))
