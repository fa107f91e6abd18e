"""What all posteriors have in common: moments by name, draws by name, capabilities, predictions in the user's units."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import LogNormal
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, posteriors, priors
from bayesprop.data import Scaling
from bayesprop.errors import CapabilityError, ConfigurationError, DataError
from bayesprop.posteriors import Context, Posterior
from bayesprop.posteriors.posterior import posterior_classes

from .conftest import MODELS


class Opaque(Posterior):
    """It can be drawn from, and says nothing else."""

    def __init__(self, inner: Posterior) -> None:
        super().__init__(inner.model, inner.buffers, inner.context)
        self.inner = inner

    def tensors(self):
        return self.inner.tensors()

    @classmethod
    def from_tensors(cls, model, tensors, buffers, context):
        return cls(posteriors.DiagonalGaussian.from_tensors(model, tensors, buffers, context))

    def draw(self, rng, draws, first=0):
        return self.inner.draw(rng, draws, first)


def test_package():
    """Every kind of posterior that a method can end in is reached from here."""
    kinds = {
        name
        for name, cls in posterior_classes().items()
        if cls.__module__.startswith("bayesprop.posteriors.") and not inspect.isabstract(cls)
    }
    assert len(kinds) > 5
    assert set(posteriors.__all__) >= kinds | {"Context", "Posterior", "load"}


# -- moments ----------------------------------------------------------------------------------------------------------


def test_centred_weights_and_point_estimates_are_their_columns(model, gaussian):
    posterior = gaussian(model("points"), 2)
    layout, (mean, std) = posterior.model.layout, posterior.moments()
    blocks = layout.of_kind("random", "point")
    assert [block.name for block in blocks] == ["0.weight", "0.bias", "1.weight", "1.bias", "3.weight"]
    for block in blocks:
        assert_close(posterior.mean(block.name), mean[:, block.columns].reshape(2, *block.shape), rtol=0.0, atol=0.0)
        assert_close(posterior.std(block.name), std[:, block.columns].reshape(2, *block.shape), rtol=0.0, atol=0.0)
    assert torch.count_nonzero(posterior.std("3.weight")) == 0
    assert torch.count_nonzero(std[:, : layout.latent]) == std[:, : layout.latent].numel()


def test_one_particle_has_no_particle_axis(model, gaussian):
    posterior = gaussian(model("points"))
    assert posterior.mean("0.weight").shape == posterior.std("0.weight").shape == (4, 3)
    assert posterior.mean("likelihood.scale").shape == ()
    assert posterior.mean().shape == posterior.std().shape == (1, posterior.model.layout.size)


def test_scales_are_log_normal(model, gaussian):
    posterior = gaussian(model("scales"), 2)
    (mean, std), latents = posterior.moments(), posterior.model.layout.of_kind("latent")
    assert len(latents) == 8  # of one layer; of four parameters and two layers under the horseshoe; of the noise
    for block in latents:
        expected = LogNormal(mean[:, block.columns], std[:, block.columns])
        found = posterior.mean(block.name), posterior.std(block.name)
        shape = (2, *block.shape)
        assert_close(found[0], expected.mean.reshape(shape), rtol=1e-12, atol=0.0)
        assert_close(found[1], expected.stddev.reshape(shape), rtol=1e-12, atol=0.0)


@pytest.mark.statistical
@pytest.mark.parametrize("name", list(MODELS))
def test_moments_by_name_are_those_of_the_samples(model, gaussian, name):
    """Weights with a non-centred prior included, which are products of a normal and log-normals.

    Tolerance: 5 standard errors, estimated from the same 20 000 samples: of a mean s / sqrt(n), of a variance
    sqrt((m4 - s^4) / n) with the fourth central moment m4.
    """
    posterior, count = gaussian(model(name)), 20_000
    samples = posterior.sample(count, seed=1)
    assert samples.keys() == {block.name for block in posterior.model.layout.blocks}
    for parameter, drawn in samples.items():
        assert drawn.shape == (count, *posterior.model.layout.block(parameter).shape)
        mean, variance = posterior.mean(parameter), posterior.std(parameter).square()
        deviation = drawn - drawn.mean(0)
        spread = deviation.square().mean(0)
        fourth = (deviation**4).mean(0)
        rounding = 1e-12 * (1.0 + mean.abs())  # where nothing is random
        assert ((drawn.mean(0) - mean).abs() <= 5.0 * (spread / count).sqrt() + rounding).all()
        error = ((fourth - spread**2).clamp_min(0.0) / count).sqrt()
        assert ((spread - variance).abs() <= 5.0 * error + rounding).all()


def test_a_padding_row_is_the_networks_own(model, gaussian):
    for particles in (1, 2):
        posterior = gaussian(model("words"), particles)
        assert_close(
            posterior.mean("words.weight")[..., 0, :], torch.full((3,), 7.0).double().expand(*[2] * (particles > 1), 3)
        )
        assert torch.count_nonzero(posterior.std("words.weight")[..., 0, :]) == 0
        assert torch.count_nonzero(posterior.std("words.weight")) == particles * 12


def test_a_tied_parameter_has_two_names(model, gaussian):
    posterior = gaussian(model("words"))
    assert_close(posterior.mean("again.weight"), posterior.mean("head.weight"), rtol=0.0, atol=0.0)


def test_an_unknown_name_is_refused_with_a_better_one(model, gaussian):
    with pytest.raises(ConfigurationError, match=r"no parameter is called '0.wieght'. Did you mean '0.weight'\?"):
        gaussian(model("points")).mean("0.wieght")


# -- samples ----------------------------------------------------------------------------------------------------------


def test_samples_are_draws_by_name(model, gaussian):
    posterior = gaussian(model("scales"), 2)
    theta = posterior.draw(posterior.rng(3), 5).flatten(0, 1)
    samples = posterior.sample(5, seed=3)
    (loc, scale), block = (0.3, samples["prior.scale[0]"]), posterior.model.layout.block("0.weight")
    assert_close(scale, theta[:, posterior.model.layout.block("prior.scale[0]").start].exp(), rtol=1e-14, atol=0.0)
    expected = loc + scale[:, None, None] * theta[:, block.columns].reshape(10, 4, 3)
    assert_close(samples["0.weight"], expected, rtol=1e-13, atol=0.0)
    assert_close(posterior.sample(2, seed=3)["0.weight"][:2], samples["0.weight"][:2], rtol=0.0, atol=0.0)


@pytest.mark.parametrize("draws", [0, -3, 2.0, "many", None, False, torch.tensor(2.5)])
@pytest.mark.parametrize(
    ("verb", "line"), [("sample", "posterior.sample(draws=100)"), ("predict", "posterior.predict(x, draws=100)")]
)
def test_a_number_of_draws_is_a_whole_number(model, gaussian, rows, verb, line, draws):
    posterior = gaussian(model("plain"))
    call = {"sample": posterior.sample, "predict": lambda n: posterior.predict(rows("plain"), n)}[verb]
    with pytest.raises(ConfigurationError, match=f"{verb}: draws must be at least 1") as caught:
        call(draws)
    assert f"received: {draws!r}" in str(caught.value)
    assert f"write: {line}" in str(caught.value)


def test_integers_of_numpy_are_whole_numbers(model, gaussian, rows):
    posterior = gaussian(model("plain"))
    assert len(posterior.sample(np.int64(3))["weight"]) == 3
    assert posterior.predict(rows("plain"), np.int32(4)).num_draws == 4


# -- capabilities -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "purpose"),
    [
        (lambda p: p.mean(), "mean and std"),
        (lambda p: p.std("0.weight"), "mean and std"),
        (lambda p: p.at_mean(), r"at_mean\(\)"),
        (lambda p: p.mean_network(), r"mean_network\(\)"),
    ],
)
def test_what_a_posterior_cannot_do_is_refused_with_those_that_can(model, gaussian, call, purpose):
    with pytest.raises(
        CapabilityError, match=f"{purpose} needs moments, which a Opaque posterior does not have"
    ) as caught:
        call(Opaque(gaussian(model("points"))))
    able = str(caught.value).partition("expected: one of ")[2].split(", ")
    assert {"Delta", "DiagonalGaussian"} <= set(able)
    assert "Opaque" not in able
    assert "received: capabilities []" in str(caught.value)


def test_drawing_is_enough_to_predict(model, gaussian, rows):
    inner = gaussian(model("points"))
    assert_close(
        Opaque(inner).predict(rows("points"), 5).mean, inner.predict(rows("points"), 5).mean, rtol=0.0, atol=0.0
    )


def test_a_file_refers_to_a_posterior_by_its_class():
    known = posterior_classes()
    assert known["DiagonalGaussian"] is posteriors.DiagonalGaussian
    assert known["Delta"] is posteriors.Delta
    assert known["Opaque"] is Opaque


# -- predictions ------------------------------------------------------------------------------------------------------


def scaled(model, gaussian) -> Posterior:
    """Fitted, as it claims, to inputs of mean 10 and deviation 2 and targets of mean 100 and deviation 20."""
    posterior = gaussian(bp.Model(nn.Linear(3, 1).double(), likelihood=likelihoods.Gaussian(0.5)))
    ten, hundred = torch.tensor([10.0, 10.0, 10.0]).double(), torch.tensor(100.0).double()
    posterior.context.scaling = Scaling(ten, ten / 5.0, hundred, hundred / 5.0)
    return posterior


def test_predictions_are_in_the_units_of_the_data(model, gaussian, rows):
    posterior, inputs = scaled(model, gaussian), 10.0 + 2.0 * rows("plain")
    ours = posterior.predict(rows("plain"), 9, original_scale=False)
    theirs = posterior.predict(inputs, 9)
    assert_close(theirs.mean, 100.0 + 20.0 * ours.mean, rtol=1e-12, atol=0.0)
    assert_close(theirs.std, 20.0 * ours.std, rtol=1e-12, atol=0.0)
    assert_close(
        theirs.log_prob(100.0 + 20.0 * ours.mean), ours.log_prob(ours.mean) - math.log(20.0), rtol=1e-12, atol=0.0
    )
    for same in (inputs.numpy(), inputs.tolist(), bp.Data(inputs, torch.zeros(6), standardize="inputs")):
        assert_close(posterior.predict(same, 9).mean, theirs.mean, rtol=1e-6, atol=0.0)


def test_inputs_of_another_width_do_not_broadcast(model, gaussian):
    with pytest.raises(DataError, match="another shape than those of training") as caught:
        scaled(model, gaussian).predict(torch.zeros(4, 1))
    assert "received: inputs [4, 1]" in str(caught.value)
    assert "expected: inputs [4, 3]" in str(caught.value)


def test_classes_are_told_by_their_names(gaussian, rows):
    posterior = gaussian(bp.Model(nn.Linear(3, 2).double(), likelihood=likelihoods.Categorical()))
    posterior.context.classes = ["cat", "dog"]
    prediction = posterior.predict(rows("plain"), 5)
    names = np.asarray(["cat", "dog"])[prediction.mean.argmax(1)]
    assert prediction.label.tolist() == names.tolist()
    numbers = posterior.predict(rows("plain"), 5, original_scale=False).label
    assert_close(numbers, prediction.mean.argmax(1))


def test_the_same_seed_gives_the_same_draws(model, gaussian, rows):
    posterior = gaussian(model("noise"))
    draws = posterior.predict(rows("noise"), 5, seed=2).draws
    assert_close(posterior.predict(rows("noise"), 9, seed=2).draws[:5], draws, rtol=1e-12, atol=1e-14)
    assert not torch.equal(posterior.predict(rows("noise"), 5, seed=3).draws, draws)


# -- a word about itself ----------------------------------------------------------------------------------------------


def test_repr(model, gaussian):
    posterior = gaussian(model("points"), 3)
    posterior.context = Context(num_data=1234)
    assert repr(posterior) == (
        "DiagonalGaussian(16 random weights, 1 latents, 16 point estimates, 3 particles; fitted to 1,234 examples)"
    )
    alone = gaussian(bp.Model(nn.Linear(2, 1), likelihood=likelihoods.Poisson(), prior=priors.Normal()))
    assert repr(alone) == "DiagonalGaussian(3 random weights; fitted to 0 examples)"
