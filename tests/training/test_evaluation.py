"""The ELBO: in nats, for the full data, never rescaled; and the numbers of an epoch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.data import Data, Stream
from bayesprop.errors import CapabilityError, ConfigurationError, DataError
from bayesprop.posteriors import DiagonalGaussian
from bayesprop.training.evaluation import elbo, expected_log_likelihood, kl_to_prior, prepared, report


@pytest.fixture
def gaussian():
    """A Gaussian over the columns of a model, in float64, with deviations of about 0.2."""

    def make(model: bp.Model, particles: int = 1) -> DiagonalGaussian:
        generator = torch.Generator().manual_seed(4)
        mean = torch.randn(particles, model.layout.size, generator=generator, dtype=torch.float64)
        std = 0.1 + 0.2 * torch.rand(particles, model.layout.latent, generator=generator, dtype=torch.float64)
        return DiagonalGaussian(model, mean, std, model.initial_buffers(particles))

    return make


def exact(posterior: DiagonalGaussian, inputs: Tensor, targets: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """E_q sum_i log N(y_i | w.x_i + b, scale^2) and KL(q || N(0, 1)) of a linear network, for each particle.

    f(x) is Gaussian with mean m.x + m_b and variance s^2.x^2 + s_b^2 under q, and the variance adds to the square.
    """
    mean, std = posterior.moments()
    center = mean[:, :3] @ inputs.T + mean[:, 3:]
    spread = std[:, :3].square() @ inputs.square().T + std[:, 3:].square()
    data_term = (
        -0.5 * ((targets - center).square() + spread) / scale**2 - math.log(scale) - 0.5 * math.log(2.0 * math.pi)
    )
    one = torch.ones_like(mean)
    return data_term.sum(1), kl_divergence(Normal(mean, std), Normal(0.0 * one, one)).sum(1)


# -- elbo -------------------------------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_the_elbo_of_a_linear_network_is_the_closed_form(model, gaussian, pair):
    """Five standard errors of 4000 draws of the data term, which is a square of a Gaussian; the KL is exact."""
    posterior, (inputs, targets) = gaussian(model("linear"), 2), pair()
    data_term, divergence = exact(posterior, inputs, targets, 0.3)
    assert_close(kl_to_prior(posterior), divergence, rtol=1e-12, atol=0.0)
    outputs = torch.cat([part for _, part, _ in posterior.outputs(inputs, 4000)()], dim=1)
    each = Normal(outputs[..., 0], 0.3).log_prob(targets).sum(1).reshape(2, 4000)
    error = each.std(1) / math.sqrt(4000)
    found = bp.elbo(posterior, (inputs, targets), draws=4000)
    assert ((found - (data_term - divergence)).abs() < 5.0 * error).all()
    assert (error < 0.02 * data_term.abs()).all()


def test_the_data_term_is_the_mean_over_draws_of_the_sum_over_rows(model, gaussian, pair):
    posterior, (inputs, targets) = gaussian(model("norm"), 2), pair()
    theta = posterior.draw(posterior.rng(0), 5)
    expected = torch.zeros(2, dtype=torch.float64)
    for particle in range(2):
        for draw in range(5):
            network = posterior.network_with(theta[particle, draw], particle)
            expected[particle] += Normal(network(inputs)[:, 0].detach(), 0.3).log_prob(targets).sum() / 5
    assert_close(expected_log_likelihood(posterior, inputs, targets, 5), expected, rtol=1e-12, atol=0.0)
    assert_close(elbo(posterior, (inputs, targets), draws=5), expected - posterior.kl(), rtol=1e-12, atol=0.0)


def test_twice_the_data_have_twice_the_data_term(model, gaussian, pair):
    posterior, (inputs, targets) = gaussian(model("tanh")), pair()
    divergence = posterior.kl()
    once, twice = (bp.elbo(posterior, (inputs.repeat(n, 1), targets.repeat(n)), draws=6) for n in (1, 2))
    assert_close(twice + divergence, 2.0 * (once + divergence), rtol=1e-12, atol=0.0)


def test_all_kinds_of_data_have_the_same_elbo(model, gaussian, pair):
    posterior, (inputs, targets) = gaussian(model("tanh")), pair()
    expected = bp.elbo(posterior, (inputs, targets), draws=6)
    dataset = TensorDataset(inputs, targets)
    for data in ((inputs.numpy(), targets.numpy()), dataset, DataLoader(dataset, batch_size=7), Data(inputs, targets)):
        assert_close(bp.elbo(posterior, data, draws=6), expected, rtol=1e-12, atol=0.0)
    for standardize in (True, "inputs", "targets"):
        scaled = Data(inputs, targets, standardize=standardize)
        assert_close(bp.elbo(posterior, scaled, draws=6), expected, rtol=1e-10, atol=0.0)


def test_densities_are_those_of_the_standardised_targets(model, gaussian, pair):
    posterior, (inputs, targets) = gaussian(model("tanh")), pair()
    scaled = Data(5.0 + 2.0 * inputs, 100.0 + 10.0 * targets, standardize=True)
    unscaled = bp.elbo(posterior, (scaled.inputs, scaled.targets), draws=6)
    posterior.context.scaling = scaled.scaling
    for data in (scaled, scaled.original()):
        assert_close(bp.elbo(posterior, data, draws=6), unscaled, rtol=1e-10, atol=0.0)


def test_what_the_elbo_refuses(model, gaussian, pair):
    posterior = gaussian(model("tanh"))
    with pytest.raises(ConfigurationError, match="elbo: draws must be at least 1") as caught:
        bp.elbo(posterior, pair(), draws=0)
    assert r"write: bp.elbo(posterior, data, draws=16)" in str(caught.value)
    with pytest.raises(CapabilityError, match="the ELBO needs log_density"):
        bp.elbo(posterior.at_mean(), pair())


def test_divergence_of_a_large_network_takes_fewer_draws(model, gaussian, monkeypatch):
    posterior, asked = gaussian(model("tanh")), []
    monkeypatch.setattr(posterior, "kl", asked.append)
    kl_to_prior(posterior)
    kl_to_prior(posterior, 7)
    monkeypatch.setattr(type(posterior), "particles", 100_000)
    kl_to_prior(posterior)
    monkeypatch.setattr(type(posterior), "particles", 10_000_000)
    kl_to_prior(posterior)
    assert asked == [32, 7, 4_000_000 // (21 * 100_000), 1]
    assert kl_to_prior(gaussian(model("tanh")).at_mean()) is None


# -- what fit reports --------------------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("batch_size", [None, 10, 5, 1, "loader"])
def test_the_reported_elbo_does_not_depend_on_the_batch_size(fit, model, method, pair, batch_size):
    """A rate of 1e-300 leaves q where it starts, so that each epoch reports an independent estimate of one number.

    It is the exact ELBO, in nats for the full data: the divergence to rounding, the data term to five standard errors
    of the mean of the epochs. Batches of 5 rows do not divide 24: the last one takes a row of the first.
    """
    made, (inputs, targets) = model("linear"), pair()
    data = DataLoader(TensorDataset(inputs, targets), batch_size=6, shuffle=True) if batch_size == "loader" else None
    epochs = {None: 200, 10: 100, 5: 80, 1: 30, "loader": 60}[batch_size]
    how = method(learning_rate=1e-300, optimizer="sgd", initial_scale=0.2, temperature=0.5, kl_weights="geometric")
    posterior = fit(made, data, how, batch_size=None if data else batch_size, epochs=epochs, report_every=1)
    data_term, divergence = (float(term) for term in exact(posterior, inputs, targets, 0.3))
    history = posterior.context.history
    assert len(history) == epochs
    found = torch.tensor([entry["log_likelihood"] for entry in history], dtype=torch.float64)
    error = float(found.std()) / math.sqrt(epochs)
    assert abs(float(found.mean()) - data_term) < 5.0 * error
    assert error < 0.05 * abs(data_term)
    for entry in history:
        # Neither temperature nor schedule of the KL is in it.
        assert entry["kl"] == pytest.approx(divergence, rel=1e-10)
        assert entry["elbo"] == pytest.approx(entry["log_likelihood"] - entry["kl"], rel=1e-12)


def test_a_report_is_about_the_particle_with_the_best_elbo(model, gaussian, pair):
    posterior, held_out = gaussian(model("tanh"), 3), pair(seed=9)
    divergence = posterior.kl()
    data_term = torch.tensor([-10.0, -5.0, math.nan], dtype=torch.float64) + divergence
    found = report(posterior, data_term, held_out)
    assert found["elbo"] == pytest.approx(-5.0, abs=1e-9)
    assert found["kl"] == float(divergence[1])
    assert found["log_likelihood"] == float(data_term[1])
    prediction = posterior.member(1).predict(held_out[0], 16)
    assert found["validation_nll"] == pytest.approx(-float(prediction.log_prob(held_out[1]).mean()), rel=1e-12)
    error = (prediction.mean - held_out[1]).square().mean().sqrt()
    assert found["validation_rmse"] == pytest.approx(float(error), rel=1e-12)
    share = prediction.epistemic.mean() / prediction.total.mean()
    assert found["epistemic_share"] == pytest.approx(float(share), rel=1e-12)
    assert set(found) == {"log_likelihood", "kl", "elbo", "validation_nll", "validation_rmse", "epistemic_share"}


def test_a_report_without_a_divergence_has_the_data_term_alone(model, gaussian):
    assert report(gaussian(model("tanh"), 2).at_mean(), torch.tensor([-3.0, -2.0]), None) == {"log_likelihood": -2.0}


def test_classes_have_an_error_rate(gaussian):
    posterior = gaussian(bp.Model(nn.Linear(3, 2).double(), likelihood=likelihoods.Categorical()))
    inputs, labels = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double(), torch.arange(50) % 2
    found = report(posterior, torch.zeros(1), (inputs, labels))
    wrong = (posterior.predict(inputs, 16).mean.argmax(1) != labels).double().mean()
    assert found["validation_error"] == pytest.approx(float(wrong), abs=1e-12)
    assert "validation_rmse" not in found


# -- rows as the model takes them --------------------------------------------------------------------------------------


def test_rows_are_prepared_as_in_training(model, pair):
    made, (inputs, targets) = model("tanh", torch.float32), pair()
    training = Data(inputs, targets, standardize=True)
    expected = training.inputs.float(), training.targets
    other = Data(inputs, targets, standardize="inputs")  # measured by itself, on the same rows
    for data in (
        training,
        Data(inputs, targets),
        other,
        Stream([(inputs[:9], targets[:9]), (inputs[9:], targets[9:])], 24),
    ):
        found = prepared(data, made, training.scaling, None)
        assert found[0].dtype == torch.float32
        assert_close(found[0], expected[0], rtol=1e-5, atol=1e-6)
        assert_close(found[1].double(), expected[1].double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("standardize", [True, "inputs"])
def test_inputs_of_another_width_do_not_broadcast(model, gaussian, pair, standardize):
    posterior, (inputs, targets) = gaussian(model("linear")), pair()
    posterior.context.scaling = Data(inputs, targets, standardize=standardize).scaling
    with pytest.raises(DataError, match="the inputs have another shape than those of training") as caught:
        bp.elbo(posterior, (inputs[:, :1], targets))
    assert "received: inputs [24, 1]" in str(caught.value)


@pytest.mark.parametrize("shape", [(24, 2), (24, 3), (24, 1, 2)])
def test_targets_of_another_shape_do_not_broadcast(gaussian, pair, shape):
    """Training had three targets a row, or one."""
    inputs, targets = pair()
    width = 1 if shape == (24, 3) else 3
    posterior = gaussian(bp.Model(nn.Linear(3, width).double(), likelihood=likelihoods.Gaussian(0.3)))
    three = torch.stack([targets + i for i in range(width)], dim=1)
    posterior.context.scaling = Data(inputs, three.squeeze(1), standardize="targets").scaling
    with pytest.raises(DataError, match="the targets have another shape than those of training") as caught:
        bp.elbo(posterior, (inputs, torch.zeros(shape)))
    assert f"received: targets {list(shape)}" in str(caught.value)
    assert f"expected: targets {[24] if width == 1 else [24, 3]}" in str(caught.value)
    assert bp.elbo(posterior, (inputs, three), draws=2).shape == (1,)


def test_labels_are_numbered_as_in_training(model):
    made = bp.Model(nn.Linear(1, 3), likelihood=likelihoods.Categorical())
    data = Data([[0.0], [1.0]], ["dog", "ant"])  # by itself: ant 0, dog 1
    assert prepared(data, made, None, ["ant", "cat", "dog"])[1].tolist() == [2, 0]
    with pytest.raises(DataError, match="the training data have no classes") as caught:
        prepared(data, made, None, None)
    assert "received: labels such as 'ant'" in str(caught.value)
    with pytest.raises(DataError, match="'ant' at row 1 is not one of the classes"):
        prepared(data, made, None, ["cat", "dog"])


def test_several_inputs_in_a_stream_stay_apart(pair):
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.layer(x + y)

    made, (inputs, targets) = (
        bp.Model(Sum().double(), likelihood=likelihoods.Gaussian(0.3), prior=priors.Normal()),
        pair(),
    )
    stream = Stream([((inputs[:5], inputs[:5]), targets[:5]), ((inputs[5:], inputs[5:]), targets[5:])], 24)
    found, _ = prepared(stream, made, None, None)
    assert isinstance(found, tuple)
    assert_close(found, (inputs, inputs), rtol=0.0, atol=0.0)
