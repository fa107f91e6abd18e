"""How targets depend on the outputs of a network: one likelihood per file."""

from bayesprop.likelihoods.bernoulli import Bernoulli
from bayesprop.likelihoods.categorical import Categorical
from bayesprop.likelihoods.from_distribution import FromDistribution
from bayesprop.likelihoods.gaussian import Gaussian
from bayesprop.likelihoods.heteroscedastic_gaussian import HeteroscedasticGaussian
from bayesprop.likelihoods.likelihood import Likelihood
from bayesprop.likelihoods.poisson import Poisson
from bayesprop.likelihoods.student_t import StudentT

__all__ = [
    "Bernoulli",
    "Categorical",
    "FromDistribution",
    "Gaussian",
    "HeteroscedasticGaussian",
    "Likelihood",
    "Poisson",
    "StudentT",
]
