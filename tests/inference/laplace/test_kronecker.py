"""Kronecker factors: exact where they should be, the papers' sums for convolutions, and what happens to the rest."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.inference.laplace.curvature import observed_precision
from bayesprop.inference.laplace.kronecker import kronecker_factors, ways
from bayesprop.rng import Rng

from ..conftest import Problem, normal, small_network
from .test_curvature import NETWORKS


def both(problem: Problem, theta: torch.Tensor, **options: Any):
    """Factors, and the whole matrix, of the same data."""
    buffers = problem.model.initial_buffers(theta.shape[0])
    arguments = (problem.model, theta, buffers, lambda: iter([problem.batch(theta.shape[0])]), Rng.create(0))
    held, latents, value = kronecker_factors(*arguments)
    columns = torch.arange(problem.model.layout.latent)
    whole, again = observed_precision(*arguments, columns, diagonal=False)
    assert_close(value, again)
    return held, latents, whole


def product(factors, particle=0):
    right = torch.ones(1, 1).double() if factors.right is None else factors.right[particle]
    return torch.kron(factors.left[particle], right)


def block_of(problem, whole, name, particle=0):
    columns = problem.model.layout.by_name[name].columns
    return whole[particle, columns, columns]


def test_one_row_of_data_is_exact():
    """With one row the sum over rows is one outer product, for weights and biases, of two particles."""
    problem = Problem(small_network(3, 3), normal(1, 3), torch.tensor([1]), likelihood=likelihoods.Categorical())
    held, _, whole = both(problem, 0.5 * normal(2, problem.model.layout.size))
    assert ways(problem.model) == {"0.weight": "layer", "0.bias": "0.weight", "2.weight": "layer", "2.bias": "2.weight"}
    for name, factors in held.items():
        for particle in range(2):
            assert_close(product(factors, particle), block_of(problem, whole, name, particle))


def test_a_linear_network_is_exact_for_all_rows_and_so_are_biases():
    problem = Problem(nn.Linear(3, 2).double(), normal(9, 3), likelihood=likelihoods.Gaussian())
    held, latents, whole = both(problem, 0.5 * normal(1, problem.model.layout.size))
    for name in ("weight", "bias"):
        assert_close(product(held[name]), block_of(problem, whole, name))
    assert_close(latents, torch.tensor([[36.0]]).double())  # 2 for each of 18 targets
    assert_close(whole[0, -1, -1], latents[0, 0])


def made(name: str) -> Problem:
    make, shape = NETWORKS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = make().double()
    targets = torch.arange(7) % 3
    return Problem(network, normal(7, *shape), targets, likelihood=likelihoods.Categorical())


def test_convolutions_are_the_sums_over_patches():
    """Patches by unfold, derivatives by a hook."""
    problem = made("convolution")
    theta = 0.5 * normal(1, problem.model.layout.size)
    held, _, whole = both(problem, theta)
    network = bp.posteriors.Delta(problem.model, theta, problem.model.initial_buffers(1)).mean_network()
    patches = problem.inputs.unfold(2, 3, 1).transpose(1, 2).flatten(2)  # rows, positions, channels x width
    caught = []
    network[0].register_forward_hook(lambda module, inputs, output: caught.append(output))
    logits = network(problem.inputs)
    p = logits.softmax(1).detach()
    left = torch.zeros(3, 3).double()
    for row in range(7):
        root = torch.diag(p[row].sqrt()) - p[row].sqrt()[:, None] * p[row]
        for vector in root:
            (g,) = torch.autograd.grad(logits[row] @ vector, caught[0], retain_graph=True)
            left += g[row] @ g[row].T
    assert_close(held["0.weight"].left[0], left)
    assert_close(held["0.weight"].right[0], torch.einsum("rti,rtj->ij", patches, patches) / (7 * patches.shape[1]))
    assert_close(product(held["0.bias"]), block_of(problem, whole, "0.bias"))
    assert_close(product(held["1.weight"]), block_of(problem, whole, "1.weight"))  # BatchNorm: a vector, exact
    assert ways(problem.model)["1.weight"] == "rows"


@pytest.mark.parametrize("name", ["lstm", "attention"])
def test_what_is_no_layer_keeps_its_trace(name):
    """And vectors have their whole matrix."""
    problem = made(name)
    held, _, whole = both(problem, 0.5 * normal(1, problem.model.layout.size))
    how = ways(problem.model)
    assert "rows" in how.values()
    assert how["head.weight"] == "layer"
    for block in problem.model.layout.of_kind("random"):
        exact, found = block_of(problem, whole, block.name), product(held[block.name])
        if how[block.name] == "rows":
            assert_close(found.trace(), exact.trace())
        if len(block.shape) == 1:
            assert_close(found, exact)
        assert float(torch.linalg.eigvalsh(found).min()) > -1e-12


def test_a_weight_that_is_used_twice():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            return self.layer(torch.tanh(self.layer(x)))

    problem = Problem(Tied().double(), normal(5, 3), torch.arange(5) % 3, likelihood=likelihoods.Categorical())
    held, _, whole = both(problem, 0.5 * normal(1, problem.model.layout.size))
    assert ways(problem.model) == {"layer.weight": "rows", "layer.bias": "rows"}
    assert_close(product(held["layer.weight"]).trace(), block_of(problem, whole, "layer.weight").trace())


def test_minibatches_make_no_difference():
    problem = made("convolution")
    theta, buffers = 0.5 * normal(1, problem.model.layout.size), problem.model.initial_buffers(1)

    def pieces():  # the last one is filled up with rows that were seen
        return iter([problem.batch(1, slice(0, 5)), problem.batch(1, torch.tensor([5, 6, 0, 1, 2]))])

    whole = kronecker_factors(problem.model, theta, buffers, lambda: iter([problem.batch()]), Rng.create(0))
    parts = kronecker_factors(problem.model, theta, buffers, pieces, Rng.create(0))
    assert_close(whole[2], parts[2])
    for name, factors in whole[0].items():
        assert_close(factors.left, parts[0][name].left)
        assert_close(factors.right, parts[0][name].right)
