"""A whole step in one call: one weight whose gradients are known, and rows in the forms that come."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import softplus

from bayesprop.kernels import descent
from bayesprop.kernels.dense import Layer, Stack
from bayesprop.kernels.noise import normal
from bayesprop.kernels.small_stack import Joint

PLAIN = (1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0)  # Adam without memory: a step against the gradient's sign


def weight(particles: int = 1) -> Joint:
    """y = w x + b under N(0.2, 1 / 4) and N(0, 1), noise 0.5."""
    numbers = torch.tensor([[0.2, 0.0], [4.0, 1.0]])
    center, precision = (row.repeat(particles, 1) if particles > 1 else row for row in numbers)
    none = torch.full((2,), -1, dtype=torch.int32)
    return Joint(Stack((Layer(0, 1, 1, 1),)), 2, center, precision, torch.zeros(2), none, (), "Gaussian", 0.5)


def state(particles: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(particles, 2, generator=generator)
    return [mean, torch.full((particles, 2), -1.0), *(torch.zeros(particles, 2) for _ in range(4))]


def test_the_reason_is_one_sentence(native_code):
    assert descent.library().reason.startswith("native code, compiled with")


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_first_moments_are_the_gradients(native_code, closed, shared):
    """With beta1 = 0 the first moment is the gradient of the loss: by autograd in double precision, 1e-5."""
    particles, rows, kl = 2, 300, 0.7
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(1 if shared else particles, rows, 1, generator=generator).expand(particles, -1, -1)
    targets, seeds, tensors = inputs.sin(), torch.tensor([3, 2**40 + 1]), state(particles)
    noise = normal(torch.stack((seeds, torch.zeros_like(seeds)), dim=-1), 7, 1, 2)
    mean, rho = (t.double().requires_grad_() for t in tensors[:2])
    value = descent.descend(
        weight(particles), inputs, targets, tensors, seeds, 7, 1,
        adam=[PLAIN] * particles, kl_weights=[kl / rows] * particles, closed_form=closed, value_scale=2.0,
    )  # fmt: skip
    std = softplus(rho)
    w = mean + std * noise.double()
    known = torch.distributions.Normal(w[:, :1, None] * inputs.double() + w[:, 1:, None], 0.5)
    likelihood = known.log_prob(targets.double()).sum((1, 2))
    prior = torch.distributions.Normal(torch.tensor([0.2, 0.0]).double(), torch.tensor([0.5, 1.0]).double())
    q = torch.distributions.Normal(mean, std)
    by = torch.distributions.kl_divergence(q, prior) if closed else -prior.log_prob(w) - std.log()
    loss = (kl * by.sum(1) - likelihood).sum() / rows
    gradients = torch.autograd.grad(loss, (mean, rho))
    torch.testing.assert_close(value.double(), 2.0 * likelihood.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(tensors[2].double(), gradients[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(tensors[4].double(), gradients[1], rtol=1e-5, atol=1e-5)


def test_rows_that_are_not_contiguous(native_code):
    inputs = torch.randn(2, 40, 2, generator=torch.Generator().manual_seed(2))[..., :1]
    found = []
    for rows in (inputs, inputs.contiguous(), inputs.double()):
        tensors = state(2)
        descent.descend(
            weight(), rows, rows.float().sin(), tensors, torch.arange(2), 0, 1,
            adam=[PLAIN] * 2, kl_weights=[0.1] * 2, closed_form=True,
        )  # fmt: skip
        found.append(tensors)
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))
