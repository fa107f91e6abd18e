"""Outputs in pieces: the same numbers whatever the budgets are, and never more of them than agreed."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.data import Scaling
from bayesprop.errors import ConfigurationError, DataError
from bayesprop.posteriors.outputs import check_features, checked_draws
from bayesprop.prediction import Prediction

from .conftest import MODELS

BUDGETS = [(1, 1), (1, 10**9), (10**9, 1), (150, 60), (400, 400)]


@pytest.fixture
def budgets(monkeypatch):
    """Sets how many sampled weights and how many outputs of a layer may exist at a time."""

    def set_to(weights: int, activations: int) -> None:
        monkeypatch.setattr("bayesprop.posteriors.outputs.WEIGHT_BUDGET", weights)
        monkeypatch.setattr("bayesprop.posteriors.outputs.ACTIVATION_BUDGET", activations)
        monkeypatch.setattr("bayesprop.posteriors.outputs.CACHED", activations)

    return set_to


def joined(source) -> tuple[Tensor, dict[str, Tensor]]:
    """All rows of a pass, in order; the latents, which are the same in every piece."""
    pieces = list(source())
    starts = [rows.start for rows, _, _ in pieces]
    assert starts == [0, *(rows.stop for rows, _, _ in pieces[:-1])]
    for _, _, latents in pieces:
        assert_close(latents, pieces[0][2], rtol=0.0, atol=0.0)
    return torch.cat([found for _, found, _ in pieces], dim=1), pieces[0][2]


@pytest.mark.parametrize("name", list(MODELS))
def test_outputs_are_those_of_each_draw_in_order(model, gaussian, rows, name):
    posterior, inputs = gaussian(model(name), 2), rows(name)
    found, latents = joined(posterior.outputs(inputs, 3, seed=5))
    theta = posterior.draw(posterior.rng(5), 3)
    assert found.shape == (6, 6, 2)
    for lane, (particle, draw) in enumerate((p, s) for p in range(2) for s in range(3)):
        expected = posterior.network_with(theta[particle, draw], particle)(inputs).detach()
        assert_close(found[lane], expected, rtol=1e-12, atol=1e-13)
    assert latents.keys() == {latent.name for latent in posterior.model.likelihood.latents}
    for latent, value in latents.items():
        block = posterior.model.layout.block(latent)
        assert_close(value, theta[..., block.start].flatten().exp(), rtol=1e-14, atol=0.0)


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize(("weights", "activations"), BUDGETS)
def test_budgets_change_no_number(model, gaussian, rows, budgets, name, weights, activations):
    posterior, inputs = gaussian(model(name), 2), rows(name, 11)
    large, their_latents = joined(posterior.outputs(inputs, 7, seed=1))
    budgets(weights, activations)
    small, latents = joined(posterior.outputs(inputs, 7, seed=1))
    # Matrix products of other shapes round differently in the last digit.
    assert_close(small, large, rtol=1e-12, atol=1e-13)
    assert_close(latents, their_latents, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("name", ["noise", "words"])
def test_statistics_of_a_prediction_do_not_depend_on_budgets(model, gaussian, rows, budgets, name):
    posterior, inputs, targets = gaussian(model(name)), rows(name, 11), torch.zeros(11, 2)
    large = posterior.predict(inputs, 9)
    expected = [large.mean, large.std, large.epistemic, large.quantile(0.9), large.log_prob(targets)]
    budgets(120, 60)
    small = Prediction(posterior.outputs(inputs, 9), posterior.model.likelihood, inputs_length=11, draws=9, budget=0)
    found = [small.mean, small.std, small.epistemic, small.quantile(0.9), small.log_prob(targets)]
    assert_close(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("weights", [40, 120, 10**9])
@pytest.mark.parametrize("widest", [2, 16])
def test_memory_is_bounded_whatever_the_numbers_of_rows_and_draws(gaussian, budgets, monkeypatch, weights, widest):
    """A million rows and a hundred draws in small: 200 rows, 10 draws, 2 outputs and a budget of 60 numbers.

    Counted are the weights that are sampled at once, what a layer puts out at once and what the source yields at once.
    The outputs of all draws are joined from several groups, and they count.
    """
    network = nn.Sequential(nn.Linear(3, widest), nn.Linear(widest, 2)).double()
    posterior = gaussian(bp.Model(network, likelihood=likelihoods.Gaussian(0.5)))
    inputs = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected, _ = joined(posterior.outputs(inputs, 10))
    size = posterior.model.layout.size
    sampled, shown, draw, evaluate = [], [], posterior.draw, posterior.model.outputs
    monkeypatch.setattr(posterior, "draw", lambda *a, **k: sampled.append(draw(*a, **k)) or sampled[-1])
    monkeypatch.setattr(posterior.model, "outputs", lambda *a, **k: shown.append(evaluate(*a, **k)) or shown[-1])
    budgets(weights, 60)
    yielded = [found.numel() for _, found, _ in posterior.outputs(inputs, 10)()]
    assert all(theta.numel() <= max(weights, size) for theta in sampled)
    assert max(yielded) <= 60
    assert max(widest * found.shape[1] * found.shape[2] for found in shown) <= 60
    assert sum(yielded) == 200 * 10 * 2
    found, _ = joined(posterior.outputs(inputs, 10))
    assert_close(found, expected, rtol=1e-12, atol=1e-13)


def test_a_piece_that_nobody_holds_is_gone_when_the_next_one_is_made(model, gaussian, rows, budgets, monkeypatch):
    posterior = gaussian(model("plain"))
    yielded: list[weakref.ref[Tensor]] = []
    alive: list[int] = []
    evaluate = posterior.model.outputs

    def looking(*arguments, **options):
        alive.append(sum(piece() is not None for piece in yielded))
        return evaluate(*arguments, **options)

    monkeypatch.setattr(posterior.model, "outputs", looking)
    budgets(10**9, 40)
    for _, found, _ in posterior.outputs(rows("plain", 12), 4)():
        yielded.append(weakref.ref(found))
        del found
    assert alive == [0, 0, 0]


def test_every_pass_gives_the_same_numbers(model, gaussian, rows, budgets):
    budgets(100, 50)
    source = gaussian(model("scales")).outputs(rows("scales", 9), 5)
    assert_close(joined(source), joined(source), rtol=0.0, atol=0.0)


def test_nothing_is_recorded_for_gradients(model, gaussian, rows):
    posterior = gaussian(model("plain"))
    found, _ = joined(posterior.outputs(rows("plain").requires_grad_(), 2))
    assert not found.requires_grad


def test_the_network_is_in_evaluation_mode(gaussian, rows):
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.9), nn.Linear(4, 1)).double()
    posterior = gaussian(bp.Model(network, likelihood=likelihoods.Gaussian(0.5)))
    posterior.model.set_mode(True)
    whole, _ = joined(posterior.outputs(rows("noise", 8), 2))
    assert torch.count_nonzero(whole) == whole.numel()
    assert posterior.buffers["1.num_batches_tracked"].item() == 0


class AlwaysDropout(nn.Module):
    """Monte-Carlo dropout: it draws from torch's generator also when it predicts."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.layer(x), 0.5, training=True)


def test_a_network_that_draws_when_it_predicts_leaves_the_global_generator_alone(gaussian, rows):
    posterior, inputs = (
        gaussian(bp.Model(AlwaysDropout().double(), likelihood=likelihoods.Gaussian(0.5))),
        rows("plain", 40),
    )
    posterior.model.probe(inputs, None)
    assert posterior.model.draws_globally
    before = torch.get_rng_state()
    source = posterior.outputs(inputs, 3)
    first, _ = joined(source)
    torch.rand(1)
    again, _ = joined(source)
    assert_close(again, first, rtol=0.0, atol=0.0)
    dropped = first.numel() - torch.count_nonzero(first).item()
    assert 20 < dropped < 100  # 60 of 120 expected, with a standard deviation of 5.5
    torch.set_rng_state(before)
    joined(source)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("inputs", "shown"),
    [(torch.zeros(4, 5), "5] torch.float64"), ((torch.zeros(4, 3), torch.zeros(4, 2)), "2] torch.float64')")],
    ids=["too wide", "one too many"],
)
def test_inputs_that_the_network_cannot_take_are_refused_before_the_first_pass(model, gaussian, inputs, shown):
    with pytest.raises(DataError, match="the network cannot take these inputs") as caught:
        gaussian(model("plain")).predict(inputs)
    (received,) = (line for line in str(caught.value).splitlines() if line.startswith("  received: inputs "))
    assert received.endswith(shown)
    assert "expected: rows like those of training" in str(caught.value)


def test_an_output_that_is_no_tensor_keeps_its_own_message(gaussian, rows):
    posterior = gaussian(bp.Model(nn.LSTM(3, 2).double(), likelihood=likelihoods.Gaussian(0.5)))
    with pytest.raises(DataError, match="the network must return one tensor") as caught:
        posterior.predict(rows("plain"))
    assert "write: bp.Model(network, output=lambda result: result[0], ...)" in str(caught.value)


def test_draws_are_counted(model):
    assert checked_draws(7, "posterior.sample(draws=100)") == 7
    with pytest.raises(ConfigurationError, match="elbo: draws must be at least 1") as caught:
        checked_draws(0, "bp.elbo(posterior, data, draws=16)")
    assert "write: bp.elbo(posterior, data, draws=16)" in str(caught.value)


def test_features_are_those_that_were_standardised():
    one, scaling = torch.ones(()), Scaling(torch.zeros(3), torch.ones(3), torch.zeros(()), torch.ones(()))
    check_features(torch.zeros(5, 3), scaling)
    check_features({"x": torch.zeros(5, 1)}, scaling)  # several inputs are never standardised
    check_features(torch.zeros(5, 1), Scaling(0 * one, one, 0 * one, one))
    with pytest.raises(DataError, match="another shape") as caught:
        check_features(torch.zeros(5, 1), scaling)
    assert "expected: inputs [5, 3]" in str(caught.value)
