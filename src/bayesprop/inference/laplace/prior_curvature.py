"""The prior's part of a Laplace approximation: its second derivative at the mode, and how strong it should be.

With the Gauss-Newton matrix G of the log-likelihood, the prior's precision H = diag(-d^2 log p(theta_i) / d theta_i^2),
M columns and the mode theta*,

    log p(D | a) = log p(D | theta*) + log p(theta* | a) + (M / 2) log 2 pi - (1 / 2) log det(G + a H)            (1)

where a factor a multiplies the precision of a normal prior, and theta* is held (MacKay 1992; Immer et al. 2021). With
the eigenvalues l_i of H^-1/2 G H^-1/2 and q = sum_i H_ii (theta*_i - loc_i)^2 its derivative by log a is

    (1 / 2) [sum_i l_i / (l_i + a) - a q],                                                                        (2)

which falls in a from the number of columns that the data determine to minus infinity: there is one maximum, and it is
found by bisection.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.model import Model

__all__ = ["check_kronecker_prior", "check_prior", "log_prior_of", "prior_precision", "strongest_factor", "unexplained"]

LOWEST, HIGHEST = math.log(1e-8), math.log(1e8)  # where a factor on the precision is looked for


def check_prior(model: Model, columns: Tensor, *, scaled: bool) -> None:
    """Refuse priors without a second derivative, with one that is no diagonal matrix, and, where their precision is to
    be scaled, those that have no precision."""
    chosen = set(columns.tolist())
    for group in model.bound_prior.groups:
        places = range(model.layout.random)[group.columns] if isinstance(group.columns, slice) else group.columns.values
        if not chosen & set(places if isinstance(places, range) else places.flatten().tolist()):
            continue
        family = group.density.name
        if family == "laplace":
            raise ConfigurationError(
                "a Laplace approximation needs the curvature of the prior",
                received="a Laplace (double exponential) prior, whose density is straight on both sides of a kink",
                expected="a prior with a second derivative: Normal, StudentT, ScaleMixture",
                write="bp.Model(network, prior=bp.priors.Normal(scale=1.0), ...)  # or BayesByBackprop()",
            )
        if any(factor.centred for factor in group.factors):
            raise ConfigurationError(
                "a Laplace approximation needs a mode, and a centred hierarchical prior has none: scale and weights "
                "shrink to zero together",
                received=f"a centred {family} prior whose scale is learnt",
                expected="the non-centred form, which is what hierarchical priors are unless asked otherwise",
                write="bp.priors.HalfNormal(1.0)  # without centred=True",
            )
        if scaled and (family != "normal" or group.factors):
            raise ConfigurationError(
                "Laplace(prior_precision=...) scales the precision of a normal prior",
                received=f"a {family} prior" + (" whose scale is learnt already" if group.factors else ""),
                expected="Normal with a fixed scale for all weights",
                write="Laplace(MAP())  # with the prior as it is",
            )


def check_kronecker_prior(model: Model) -> None:
    """Refuse priors whose precision differs within a parameter, or whose scale is learnt: a Kronecker product plus a
    diagonal has the product's eigenvectors only if the diagonal is one number."""
    faults = []
    if model.bound_prior.latents:
        faults.append("a prior whose scale is learnt")
    families = sorted({group.density.name for group in model.bound_prior.groups} - {"normal", "flat"})
    if families:
        faults.append(f"a {families[0]} prior, whose curvature depends on the weight")
    if not faults:
        precision = prior_precision(model, torch.zeros(1, model.layout.size, dtype=model.dtype, device=model.device))[0]
        uneven = [b.name for b in model.layout.of_kind("random") if precision[b.columns].unique().numel() > 1]
        faults += [f"a prior whose scale differs within {name}" for name in uneven[:1]]
    if faults:
        raise ConfigurationError(
            'Laplace(hessian="kron") needs a prior with one precision for each parameter',
            received=faults[0],
            expected="Normal with a number as scale, for all parameters or for patterns of them",
            write='Laplace(MAP(), hessian="diagonal")  # or "full", "last_layer"',
        )


def prior_precision(model: Model, theta: Tensor) -> Tensor:
    """-d^2 log p / d theta_i^2 of all columns with a distribution (particles, W), for priors that are products."""
    leaf = theta[:, : model.layout.latent].detach().requires_grad_(True)
    with torch.enable_grad():
        (score,) = torch.autograd.grad(model.log_prior(leaf).sum(), leaf, create_graph=True, materialize_grads=True)
        if not score.requires_grad:
            return torch.zeros_like(leaf)
        (curvature,) = torch.autograd.grad(score.sum(), leaf, materialize_grads=True)
    return -curvature.detach()


def log_prior_of(model: Model, theta: Tensor, columns: Tensor) -> Tensor:
    """log p(theta) of these columns alone (particles,), float64: all columns that have a distribution, or some of the
    weights."""
    if len(columns) == model.layout.latent:
        return model.log_prior(theta).double()
    prior, found = model.bound_prior, torch.zeros(len(theta), dtype=torch.float64, device=theta.device)
    chosen = torch.zeros(model.layout.random, dtype=torch.bool, device=theta.device)
    chosen[columns] = True
    for group in prior.groups:
        inside = group.read(chosen.to(theta.dtype))
        found += (group.log_density(theta) * inside).double().sum(-1)
    return found


def unexplained(model: Model, theta: Tensor, precision: Tensor, columns: Tensor) -> Tensor:
    """q of equation (2), (particles,), for normal priors: of those H (theta - loc) is minus the score."""
    score = model.bound_prior.score(theta[:, : model.layout.latent])[:, columns].double()
    return (score.square() / precision[:, columns].double()).sum(1)


def strongest_factor(eigenvalues: Tensor, quadratic: Tensor) -> Tensor:
    """The factor a (particles,) at which (2) is zero, within [1e-8, 1e8], from l (particles, M) and q (particles,)."""
    values = eigenvalues.clamp_min(0.0)
    low, high = torch.full_like(quadratic, LOWEST), torch.full_like(quadratic, HIGHEST)
    for _ in range(80):
        middle = 0.5 * (low + high)
        factor = middle.exp()
        rising = (values / (values + factor[:, None])).sum(1) > factor * quadratic
        low, high = torch.where(rising, middle, low), torch.where(rising, high, middle)
    return (0.5 * (low + high)).exp()
