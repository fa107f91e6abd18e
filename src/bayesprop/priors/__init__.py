"""Densities over the weights of a network. A model takes one of them, or a mapping from patterns to them.

    priors.Normal(scale=0.1)                                        one prior for all weights
    {"head.*": priors.Laplace(), "*": priors.Normal()}              by pattern; the first match wins
    priors.Normal(scale=priors.HalfCauchy(1.0, shared="layer"))     a scale that is learnt
    priors.Horseshoe(global_scale=0.1)                              a scale for every weight
    priors.from_posterior(posterior), priors.pretrained(network)    what is known already

`bind` turns what was written into a `BoundPrior` over the columns of a layout.
"""

from bayesprop.distributions.elementwise import Family
from bayesprop.distributions.hyperpriors import Gamma, HalfCauchy, HalfNormal, Hyperprior, InverseGamma, Product
from bayesprop.priors.binding import bind
from bayesprop.priors.bound import BoundPrior
from bayesprop.priors.elementwise import Cauchy, Flat, Laplace, Normal, ScaleMixture, StudentT
from bayesprop.priors.hierarchical import Horseshoe
from bayesprop.priors.prior import Prior
from bayesprop.priors.transfer import from_posterior, pretrained

__all__ = [
    "BoundPrior",
    "Cauchy",
    "Family",
    "Flat",
    "Gamma",
    "HalfCauchy",
    "HalfNormal",
    "Horseshoe",
    "Hyperprior",
    "InverseGamma",
    "Laplace",
    "Normal",
    "Prior",
    "Product",
    "ScaleMixture",
    "StudentT",
    "bind",
    "from_posterior",
    "pretrained",
]
