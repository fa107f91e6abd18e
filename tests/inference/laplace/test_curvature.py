"""The pass over the data: against the Gauss-Newton matrix by brute force, for layers of every kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.inference.laplace.curvature import observed_precision
from bayesprop.rng import Rng

from ..conftest import Problem, normal, small_network


class Recurrent(nn.Module):
    """A native LSTM, which vmap cannot batch."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(2, 3, batch_first=True), nn.Linear(3, 3)

    def forward(self, sequence: Tensor) -> Tensor:
        return self.head(self.cells(sequence)[0][:, -1])


class Attention(nn.Module):
    """One head that looks at four places."""

    def __init__(self) -> None:
        super().__init__()
        self.look, self.head = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 3)

    def forward(self, sequence: Tensor) -> Tensor:
        return self.head(self.look(sequence, sequence, sequence, need_weights=False)[0].mean(1))


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3))


NETWORKS = {
    "dense": (lambda: small_network(3, 3), (3,)),
    "convolution": (convolutional, (2, 6)),
    "lstm": (Recurrent, (5, 2)),
    "attention": (Attention, (4, 4)),
}


def made(name: str, **options: Any) -> Problem:
    """Eleven rows of three classes; statistics of BatchNorm that are not those of a fresh layer."""
    make, shape = NETWORKS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = make().double()
    targets = torch.arange(11) % 3
    settings = {"likelihood": likelihoods.Categorical(), "prior": priors.Normal(), **options}
    problem = Problem(network, normal(11, *shape), targets, **settings)
    for buffer in problem.model.buffers.values():
        if buffer.is_floating_point():
            buffer.add_(0.3)
    return problem


def pass_over(problem: Problem, theta: Tensor, columns: Tensor, *, diagonal: bool = False, rows: int = 4):
    """Minibatches of four rows, the last one filled up from the first."""
    model, count = problem.model, len(problem.inputs)
    order = torch.arange(-(-count // rows) * rows) % count

    def epoch():
        for part in order.split(rows):
            inputs, targets = (t[part].expand(len(theta), *t[part].shape) for t in (problem.inputs, problem.targets))
            yield bp.model.Batch(inputs, targets, count)

    buffers = model.initial_buffers(len(theta))
    return observed_precision(model, theta, buffers, epoch, Rng.create(0), columns, diagonal=diagonal)


def outputs_at(problem: Problem, theta: Tensor) -> Tensor:
    model = problem.model
    model.set_mode(False)
    return model.forward(model.weights(theta), {n: b.clone() for n, b in model.buffers.items()}, problem.inputs)


def brute_force(problem: Problem, theta: Tensor) -> Tensor:
    """sum_i J^T (diag(p) - p p^T) J, with the Jacobian of all outputs by plain backward passes."""
    leaf = theta.clone().requires_grad_(True)
    outputs = outputs_at(problem, leaf)
    rows = [torch.autograd.grad(o, leaf, retain_graph=True, materialize_grads=True)[0] for o in outputs.flatten()]
    derivative = torch.stack(rows).reshape(*outputs.shape, -1)
    p = outputs.detach().softmax(1)
    fisher = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    return torch.einsum("nka,nkj,njb->ab", derivative, fisher, derivative)


@pytest.mark.parametrize("name", list(NETWORKS))
def test_the_matrix_is_that_of_brute_force(name):
    problem = made(name)
    assert problem.model.vectorised == (name != "lstm")
    size = problem.model.layout.size
    theta = 0.5 * normal(2, size, seed=4)
    found, value = pass_over(problem, theta, torch.arange(size))
    for particle in range(2):
        assert_close(found[particle], brute_force(problem, theta[particle]), rtol=1e-9, atol=1e-11)
        outputs = outputs_at(problem, theta[particle])
        expected = -nn.functional.cross_entropy(outputs, problem.targets, reduction="sum")
        assert_close(value[particle], expected, rtol=1e-10, atol=0.0)
    diagonal, again = pass_over(problem, theta, torch.arange(size), diagonal=True)
    assert_close(diagonal, found.diagonal(dim1=1, dim2=2), rtol=1e-9, atol=1e-12)
    assert_close(again, value, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("name", ["dense", "lstm"])
def test_some_columns_are_a_part_of_the_matrix(name):
    problem = made(name)
    size = problem.model.layout.size
    theta, columns = 0.5 * normal(1, size, seed=4), torch.tensor([1, size - 2, size - 7])
    part, _ = pass_over(problem, theta, columns)
    whole, _ = pass_over(problem, theta, torch.arange(size))
    assert_close(part[0], whole[0][columns][:, columns], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    ("likelihood", "targets"),
    [
        (likelihoods.Gaussian(0.3), normal(11, 3, seed=8)),
        (likelihoods.Categorical(), torch.arange(11) % 3),
        (likelihoods.Poisson(), normal(11, 3, seed=8).abs().round()),
        (likelihoods.Bernoulli(), (normal(11, 3, seed=8) > 0).long()),
    ],
)
def test_where_the_network_is_linear_it_is_the_hessian(likelihood, targets):
    problem = Problem(nn.Linear(3, 3).double(), normal(11, 3), targets, likelihood=likelihood)
    theta = 0.5 * normal(1, 12, seed=4)

    def negative(row: Tensor) -> Tensor:
        return -likelihood.log_prob(outputs_at(problem, row), targets, {}).sum()

    expected = torch.autograd.functional.hessian(negative, theta[0])
    found, value = pass_over(problem, theta, torch.arange(12))
    assert_close(found[0], expected, rtol=1e-10, atol=1e-10)
    assert_close(value[0], -negative(theta[0]), rtol=1e-12, atol=0.0)


def test_scales_of_a_hierarchical_prior_move_the_outputs_too():
    """Non-centred: a weight is its column times a scale, which is a column of its own."""
    problem = made("dense", prior=priors.Normal(scale=priors.HalfNormal(1.0)))
    size = problem.model.layout.size
    assert size > problem.model.layout.random
    theta = 0.5 * normal(1, size, seed=4)
    found, _ = pass_over(problem, theta, torch.arange(size))
    assert_close(found[0], brute_force(problem, theta[0]), rtol=1e-9, atol=1e-12)
    assert float(found[0].diagonal()[problem.model.layout.random :].min()) > 0.0


def test_a_stream_that_brings_fewer_rows_is_scaled():
    problem = made("dense")
    theta = 0.5 * normal(1, 31, seed=4)
    batch = bp.model.Batch(problem.inputs[None, :5], problem.targets[None, :5], 20)
    found, value = observed_precision(
        problem.model, theta, {}, lambda: iter([batch]), Rng.create(0), torch.arange(31), diagonal=True
    )
    five = bp.model.Batch(problem.inputs[None, :5], problem.targets[None, :5], 5)
    expected, alone = observed_precision(
        problem.model, theta, {}, lambda: iter([five]), Rng.create(0), torch.arange(31), diagonal=True
    )
    assert_close(found, 4.0 * expected, rtol=1e-12, atol=0.0)
    assert_close(value, 4.0 * alone, rtol=1e-12, atol=0.0)
