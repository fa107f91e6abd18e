"""Weights that are distributions, given to any network in the place of its parameters.

A network is looked at once per mode, and gets new weights for every forward pass:

    uses = trace(call, weights)                                         # who uses which weight
    plan = make_plan(estimator, uses)                                   # how each is evaluated, and why
    weights = randomize(plan, estimator, means, scales, noises, source) # of one forward pass
    torch.func.functional_call(network, weights, inputs)
"""

from bayesprop.random_weights.draw import NoiseSource
from bayesprop.random_weights.estimators import Estimator, Flipout, LocalReparameterization, SharedWeights
from bayesprop.random_weights.masked import Masks, bernoulli, mask
from bayesprop.random_weights.own_dropout import dropout_modules, elsewhere, seeded, silent
from bayesprop.random_weights.plan import Evaluation, Use, make_plan, randomize, trace
from bayesprop.random_weights.random_weight import RandomWeight
from bayesprop.random_weights.units import Inputs, input_units, unit_of_column

__all__ = [
    "Estimator",
    "Evaluation",
    "Flipout",
    "Inputs",
    "LocalReparameterization",
    "Masks",
    "NoiseSource",
    "RandomWeight",
    "SharedWeights",
    "Use",
    "bernoulli",
    "dropout_modules",
    "elsewhere",
    "input_units",
    "make_plan",
    "mask",
    "randomize",
    "seeded",
    "silent",
    "trace",
    "unit_of_column",
]
