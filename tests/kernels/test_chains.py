"""Native trajectories: rows in blocks, and one layer whose log joint and gradient are known."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from bayesprop.kernels import chains
from bayesprop.kernels.chains import BLOCK
from bayesprop.kernels.dense import Layer, Stack
from bayesprop.kernels.small_stack import Joint


def test_the_reason_is_one_sentence(native_code):
    assert chains.library() is chains.library()
    assert chains.library().reason.startswith("native code, compiled with")


def test_rows_in_blocks():
    rows = torch.arange(2 * 300 * 3).reshape(2, 300, 3).double()
    found = chains.in_blocks(rows)
    assert found.shape == (2, 2, 3, BLOCK)
    assert found.dtype == torch.float32
    assert_close(found[1, 0, 2], rows[1, :BLOCK, 2].float())
    assert_close(found[1, 1, 0, :44], rows[1, BLOCK:, 0].float())
    assert not bool(found[:, 1, :, 44:].any())
    assert len(chains.in_blocks(rows[:1].expand(5, -1, -1))) == 1


def linear(likelihood: str, noise_column: int = -1) -> Joint:
    """y = w x + b with N(0.2, 1 / 4) on the weight and a scale e^t in column 2 on the bias."""
    stack = Stack((Layer(0, 1, 1, 1),))
    columns = 3 if noise_column < 0 else 4
    latents = ((2, 0, 2.0), (3, 1, 0.5))[: columns - 2]
    return Joint(
        stack,
        columns,
        torch.tensor([0.2, 0.0]),
        torch.tensor([4.0, 1.0]),
        torch.tensor([0.0, 0.3]),
        torch.tensor([-1, 2], dtype=torch.int32),
        latents,
        likelihood,
        0.7,
        noise_column,
    )


def expected(likelihood: str, x: torch.Tensor, rows: torch.Tensor, targets: torch.Tensor, learnt: bool):
    """The log joint of one chain by torch.distributions, float64."""
    d = torch.distributions
    outputs = x[0] * rows + 0.3 + x[2].exp() * x[1]
    value = d.Normal(0.2, 0.5).log_prob(x[0]) + d.Normal(0.0, 1.0).log_prob(x[1])
    value = value + d.HalfNormal(2.0).log_prob(x[2].exp()) + x[2]
    scale = torch.tensor(0.7).double()
    if learnt:
        scale = x[3].exp()
        value = value + d.HalfCauchy(0.5).log_prob(scale) + x[3]
    if likelihood == "Gaussian":
        return value + d.Normal(outputs, scale).log_prob(targets).sum()
    return value + d.Bernoulli(logits=outputs).log_prob(targets).sum()


@pytest.mark.parametrize(("likelihood", "learnt"), [("Gaussian", False), ("Gaussian", True), ("Bernoulli", False)])
def test_the_log_joint_of_one_layer(native_code, likelihood: str, learnt: bool):
    """300 rows, more than a block of them. Sums of float32 terms: 1e-5 of the value."""
    joint = linear(likelihood, 3 if learnt else -1)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(300, 1, generator=generator)
    targets = torch.randn(300, 1, generator=generator)
    targets = (targets > 0).float() if likelihood == "Bernoulli" else targets
    theta = 0.5 * torch.randn(2, joint.columns, generator=generator)
    gradient, momentum, scale = torch.empty_like(theta), torch.zeros_like(theta), torch.ones_like(theta)
    places = [chains.in_blocks(t[None]) for t in (rows, targets)]
    value, data_term = chains.trajectory(joint, *places, 300, theta.clone(), gradient, momentum, scale, 0.1, 0)
    for chain in range(2):
        leaf = theta[chain].double().requires_grad_(True)
        known = expected(likelihood, leaf, rows[:, 0].double(), targets[:, 0].double(), learnt)
        (slope,) = torch.autograd.grad(known, leaf)
        assert float(value[chain]) == pytest.approx(known.item(), rel=1e-5)
        assert_close(gradient[chain].double(), slope, rtol=1e-4, atol=1e-3)
    assert bool((data_term < value + 10.0).all())
    assert math.isfinite(float(data_term.sum()))


def test_a_chain_far_away_is_not_finite_and_stops_nobody(native_code):
    joint = linear("Gaussian")
    theta = torch.tensor([[1e30, 0.0, 0.0], [0.1, 0.0, 0.0]])
    gradient, momentum, scale = torch.zeros_like(theta), torch.zeros_like(theta), torch.ones_like(theta)
    rows = chains.in_blocks(torch.ones(1, 5, 1))
    value, _ = chains.trajectory(joint, rows, rows, 5, theta, gradient, momentum, scale, 0.1, 0)
    assert not -1e30 < float(value[0]) < 1e30
    assert math.isfinite(float(value[1]))
