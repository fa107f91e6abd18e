"""A finite set of samples: every answer is the one that the set itself gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import bayesprop as bp
import bayesprop.rng
from bayesprop.errors import CapabilityError, ConfigurationError
from bayesprop.posteriors import Samples


def made(model: bp.Model, particles: int = 2, count: int = 5, seed: int = 2) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    theta = 0.5 * torch.randn(particles, count, model.layout.size, generator=generator, dtype=model.dtype)
    return Samples(model, theta, model.initial_buffers(particles))


def rows_of(tensor: Tensor) -> set[tuple[float, ...]]:
    return {tuple(row.tolist()) for row in tensor}


def test_as_many_draws_as_samples_are_all_of_them_once(model):
    posterior = made(model("plain"))
    drawn = posterior.draw(posterior.rng(4), 5)
    for particle in range(2):
        assert rows_of(drawn[particle]) == rows_of(posterior.theta[particle])
    assert not torch.equal(drawn[0], posterior.draw(posterior.rng(5), 5)[0])


def test_a_draw_is_the_same_number_whatever_their_number_is(model):
    posterior = made(model("plain"))
    rng = posterior.rng(0)
    many = posterior.draw(rng, 13)
    assert_close(posterior.draw(rng, 3, 4), many[:, 4:7], rtol=0.0, atol=0.0)
    assert_close(many[:, 5:10], many[:, :5], rtol=0.0, atol=0.0)


@pytest.mark.parametrize("name", ["plain", "noise", "points", "scales", "words"])
def test_moments_by_name_are_those_of_the_values(model, name):
    posterior = made(model(name), particles=1)
    drawn = posterior.sample(5)
    count = 0
    for block in posterior.model.layout.blocks:
        values = drawn[block.name]
        assert values.shape == (5, *block.shape)
        assert posterior.values(block.name).shape == (1, 5, *block.shape)
        assert_close(posterior.mean(block.name), values.mean(0), rtol=1e-12, atol=1e-14)
        assert_close(posterior.std(block.name), values.std(0, correction=0), rtol=1e-12, atol=1e-14)
        count += 1
    assert count == len(posterior.model.layout.blocks) > 1
    assert_close(posterior.mean(), posterior.theta.mean(1), rtol=0.0, atol=0.0)
    assert_close(posterior.std(), posterior.theta.std(1, correction=0), rtol=0.0, atol=0.0)
    assert posterior.values() is posterior.theta


def test_its_centre_has_the_means_of_weights_and_scales(model):
    posterior = made(model("scales"), particles=1)
    centre = posterior.at_mean()
    for block in posterior.model.layout.blocks:
        assert_close(centre.mean(block.name), posterior.mean(block.name), rtol=1e-10, atol=1e-12)


def test_one_sample_has_no_spread(model):
    posterior = made(model("noise"), particles=1, count=1)
    assert_close(posterior.std(), torch.zeros_like(posterior.std()), rtol=0.0, atol=0.0)
    assert posterior.count == 1


def test_predictions_are_means_over_the_samples(model, rows):
    posterior, inputs = made(model("plain")), rows("plain")
    weight, bias = posterior.values("weight"), posterior.values("bias")
    functions = torch.einsum("psof,nf->psno", weight, inputs) + bias[:, :, None]
    prediction = posterior.predict(inputs, draws=10)
    assert prediction.num_draws == 10
    assert_close(prediction.mean, functions.mean((0, 1)), rtol=1e-12, atol=1e-12)
    assert_close(prediction.epistemic, functions.flatten(0, 1).var(0, correction=0), rtol=1e-12, atol=1e-12)


def test_buffers_of_single_samples_go_with_their_weights(model, rows):
    """BatchNorm's statistics: each sample must be evaluated with its own, alone and among others."""
    plain, inputs = made(model("noise"), particles=2, count=3), rows("noise")
    generator = torch.Generator().manual_seed(7)
    mean = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    whole = Samples(plain.model, plain.theta, plain.buffers, sample_buffers={"1.running_mean": mean})
    found = torch.stack([out for _, out, _ in whole.outputs(inputs, 3)()])[0].reshape(2, 3, 6, 2)
    order = whole.rng(0).permutation(3, bp.rng.Stream.PREDICTION)
    for particle in range(2):
        for draw in range(3):
            index = int(order[particle, draw])
            buffers = {n: b[particle : particle + 1] for n, b in plain.buffers.items()}
            buffers["1.running_mean"] = mean[particle, index][None]
            theta = plain.theta[particle, index][None, None]
            plain.model.set_mode(False)
            expected = plain.model.outputs(theta, buffers, inputs)[0, 0]
            assert_close(found[particle, draw], expected, rtol=1e-12, atol=1e-12)


def test_it_is_saved_and_loaded(model, network, rows, tmp_path):
    posterior = made(model("noise"))
    mean = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    posterior.sample_buffers["1.running_mean"] = mean
    posterior.save(tmp_path / "chain.bayes")
    again = bp.load(tmp_path / "chain.bayes", network=network("noise"))
    assert isinstance(again, Samples)
    assert_close(again.theta, posterior.theta, rtol=0.0, atol=0.0)
    assert_close(again.sample_buffers, posterior.sample_buffers, rtol=0.0, atol=0.0)
    assert_close(again.predict(rows("noise"), 6).mean, posterior.predict(rows("noise"), 6).mean, rtol=0.0, atol=0.0)


def test_a_member_is_a_chain_of_its_own(model):
    posterior = made(model("points"), particles=3)
    member = posterior.member(1)
    assert member.theta.shape == (1, 5, posterior.model.layout.size)
    assert_close(member.theta[0], posterior.theta[1], rtol=0.0, atol=0.0)


def test_a_density_is_refused_with_the_reason(model):
    posterior = made(model("plain"))
    with pytest.raises(CapabilityError, match="a finite set of samples has no density") as caught:
        posterior.log_density(posterior.theta)
    assert "inference.SWAG()" in str(caught.value)
    with pytest.raises(CapabilityError, match="the ELBO needs log_density, which a Samples posterior does not have"):
        bp.elbo(posterior, (torch.zeros(3, 3), torch.zeros(3, 2)))


@pytest.mark.parametrize("shape", [(2, 8), (1, 0, 8), (1, 3, 7)])
def test_what_are_no_rows_of_theta_is_refused(model, shape):
    with pytest.raises(ConfigurationError, match="samples are rows of theta") as caught:
        Samples(model("plain"), torch.zeros(shape), {})
    assert f"received: a tensor of shape {list(shape)}" in str(caught.value)
    assert "(particles, samples, 8)" in str(caught.value)


def test_no_prediction_evaluates_a_sample_twice(model, rows):
    """More draws than samples are all samples once; of a network with its own noise each draw is another one."""
    posterior = made(model("plain"))
    whole = posterior.predict(rows("plain"), draws=1000)
    assert whole.num_draws == 10
    assert_close(whole.mean, posterior.predict(rows("plain"), draws=10).mean, rtol=0.0, atol=0.0)
    posterior.model.draws_predicting = True
    assert posterior.predict(rows("plain"), draws=1000).num_draws == 1000


def test_a_trace_has_the_outputs_in_the_order_of_the_chain(model, rows, monkeypatch):
    posterior, inputs = made(model("plain")), 10.0 + 2.0 * rows("plain")
    ten = torch.tensor([10.0, 10.0, 10.0]).double()
    posterior.context.scaling = bp.data.Scaling(ten, ten / 5.0, torch.tensor(0.0), torch.tensor(1.0))
    weight, bias = posterior.values("weight"), posterior.values("bias")
    expected = torch.einsum("psof,nf->psno", weight, rows("plain")) + bias[:, :, None]
    assert_close(posterior.trace(inputs), expected, rtol=1e-9, atol=1e-9)
    monkeypatch.setattr("bayesprop.posteriors.samples.WEIGHT_BUDGET", 32)  # two samples of two chains at a time
    assert_close(posterior.trace(inputs), expected, rtol=1e-9, atol=1e-9)


def test_a_trace_has_the_buffers_of_each_sample(model, rows):
    plain = made(model("noise"), particles=1, count=2)
    mean = torch.randn(1, 2, 4, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    whole = Samples(plain.model, plain.theta, plain.buffers, sample_buffers={"1.running_mean": mean})
    for index in range(2):
        one = Samples(plain.model, plain.theta[:, [index]], {**plain.buffers, "1.running_mean": mean[:, index]})
        assert_close(whole.trace(rows("noise"))[:, index], one.trace(rows("noise"))[:, 0], rtol=1e-12, atol=1e-12)
