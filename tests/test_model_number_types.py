"""Networks of float64, float32 and bfloat16: theta is at least float32, and the network sees its own type."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import bayesprop as bp
from bayesprop import inference, likelihoods
from bayesprop.inference.starting_point import starting_means
from bayesprop.model import Batch, Model
from bayesprop.rng import Rng

HALF = likelihoods.Gaussian(scale=0.5)


def _numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def _batch(inputs: Tensor, targets: Tensor) -> Batch:
    return Batch(inputs[None], targets[None], num_data=targets.shape[0])


@pytest.mark.parametrize(
    ("network_dtype", "theta_dtype", "tolerance"),
    [
        (torch.float64, torch.float64, 1e-12),
        (torch.float32, torch.float32, 1e-5),
        # 8 bits of mantissa in each of three layers: errors of some percent of the largest number.
        (torch.bfloat16, torch.float32, 0.05),
    ],
    ids=["float64", "float32", "bfloat16"],
)
def test_theta_is_at_least_float32(network_dtype, theta_dtype, tolerance):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).to(network_dtype)
    model = Model(network, likelihood=likelihoods.Gaussian())
    assert model.dtype == theta_dtype
    theta = starting_means(model, Rng.create(0))
    assert theta.dtype == theta_dtype
    inputs, targets = model.prepare_inputs(_numbers(6, 3, dtype=torch.float64)), _numbers(6, dtype=torch.float64)
    assert inputs.dtype == network_dtype
    assert model.weights(theta[:, None])["0.weight"].dtype == network_dtype
    assert model.outputs(theta[:, None], {}, inputs).dtype == network_dtype
    leaf = theta[:, None].requires_grad_()
    value = model.log_joint(leaf, {}, _batch(inputs, targets))
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    assert (value.dtype, gradient.dtype) == (theta_dtype, theta_dtype)

    wide = Model(network.double(), likelihood=likelihoods.Gaussian())
    exact = theta[:, None].double().requires_grad_()
    reference = wide.log_joint(exact, {}, _batch(wide.prepare_inputs(inputs), targets))
    (slope,) = torch.autograd.grad(reference.sum(), exact)
    torch.testing.assert_close(value.double(), reference, rtol=tolerance, atol=0)
    assert (gradient.double() - slope).abs().max() < tolerance * slope.abs().max()


def test_a_bfloat16_network_learns_steps_that_bfloat16_cannot_hold():
    """Adam's steps of 1e-4 are less than half of what a bfloat16 near 1 can tell apart: only in float32 they add up.

    After 20 equal steps the mean has moved by 20e-4, where bfloat16 would still hold 1.
    """
    network = nn.Linear(1, 1, bias=False).to(torch.bfloat16)
    nn.init.ones_(network.weight)
    model = Model(network, likelihood=HALF)
    method = inference.BayesByBackprop(
        learning_rate=1e-4, schedule=inference.Constant(), initial_mean="network", initial_scale=1e-6
    )
    data = torch.ones(4, 1), torch.full((4,), 9.0)
    posterior = bp.fit(model, data, method, epochs=20, batch_size=None, progress=False)
    mean = posterior.mean("weight")
    assert mean.dtype == torch.float32
    torch.testing.assert_close(mean, torch.full((1, 1), 1.0 + 20e-4), rtol=1e-5, atol=0)
