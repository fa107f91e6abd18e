"""Layers that the data do not reach, and networks that know no more than a line."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import nn

import bayesprop as bp
from bayesprop import diagnostics, inference, likelihoods, priors
from bayesprop.diagnostics.health import held_out_scores, random_features
from bayesprop.errors import BayespropWarning
from bayesprop.rng import Rng, Stream

CATEGORICAL = likelihoods.Categorical()


def network(inputs: int = 2, outputs: int = 2) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, outputs))


def method(learning_rate=0.02, initial_scale=0.02, **settings):
    return bp.inference.BayesByBackprop(
        learning_rate=learning_rate,
        optimizer="adam",
        estimator=bp.random_weights.SharedWeights(samples=1),
        initial_mean="fan_in",
        initial_scale=initial_scale,
        schedule=bp.inference.Constant(),
        kl_weights="uniform",
        **settings,
    )


def fit(data, net, likelihood=CATEGORICAL, how=None, *, prior=None, epochs=40, batch_size=100, seed=0, starts=1):
    """(posterior, what was warned about)."""
    model = bp.Model(net, likelihood=likelihood, prior=prior or priors.Normal(scale=1.0))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        posterior = bp.fit(
            model,
            data,
            how or method(),
            epochs=epochs,
            batch_size=batch_size,
            seed=seed,
            starts=starts,
            report_every=epochs,
            progress=False,
        )
    assert all(warning.category is BayespropWarning for warning in heard)
    return posterior, [str(warning.message) for warning in heard]


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# -- collapse ----------------------------------------------------------------------------------------------------------


def test_layers_collapse_under_a_huge_temperature():
    data = bp.data.two_moons(100, noise=0.1, seed=0)
    hot = method(learning_rate=0.1, temperature=1000.0)
    posterior, said = fit(data, network(), how=hot, epochs=60, batch_size=None)
    assert diagnostics.collapsed_layers(posterior) == ["0.weight", "2.weight", "4.weight"]
    message = next(text for text in said if "collapsed" in text)
    assert message.startswith("0.weight, 2.weight, 4.weight: the posterior has collapsed to the prior")
    for advice in ("Train longer", "BayesByBackprop(initial_scale=0.01)", "a narrower prior", "starts=8"):
        assert advice in message


def test_a_layer_collapses_on_noise():
    """Targets that have nothing to do with the inputs: the last layer closes, and what is behind it has nothing to
    say."""
    data = numbers(50, 2), 0.1 * numbers(50, seed=1)
    likelihood = likelihoods.Gaussian(scale=1.0)
    posterior, said = fit(data, network(outputs=1), likelihood, method(learning_rate=0.05), epochs=200, batch_size=None)
    assert diagnostics.collapsed_layers(posterior) == ["0.weight", "2.weight"]
    assert len(said) == 1
    assert said[0].startswith("0.weight, 2.weight: the posterior has collapsed to the prior")


def test_a_healthy_fit_is_not_named():
    data = numbers(200, 2)
    targets = torch.sin(2.0 * data[:, 0]) + data[:, 1]
    posterior, said = fit((data, targets), network(outputs=1), likelihoods.Gaussian(scale=0.2), epochs=60)
    assert diagnostics.collapsed_layers(posterior) == []
    assert said == []


# -- the linear optimum ------------------------------------------------------------------------------------------------

MOONS = bp.data.two_moons(1000, noise=0.2, seed=0)


def error(posterior):
    fresh = bp.data.two_moons(1000, noise=0.2, seed=1)
    return float((posterior.predict(fresh.inputs, draws=50).label != fresh.targets).float().mean())


def test_a_good_fit_of_two_moons_is_silent():
    posterior, said = fit(MOONS, network(), epochs=60)
    assert error(posterior) < 0.06  # a linear model has 0.12
    assert said == []


def test_a_fit_of_two_moons_in_the_linear_optimum_is_not():
    wide = method(initial_scale=1.0)
    posterior, said = fit(MOONS, network(), how=wide, epochs=60)
    assert error(posterior) > 0.10
    assert len(said) == 1
    message = said[0]
    assert message.startswith("the network has learnt little that a linear model does not know")
    for advice in ("more epochs", 'BayesByBackprop(initial_mean="fan_in", initial_scale=0.01)', "starts=8"):
        assert advice in message
    # What the message says to write helps.
    better, silence = fit(MOONS, network(), how=method(initial_scale=0.01), epochs=60)
    assert error(better) < 0.06
    assert silence == []
    assert float(bp.elbo(better, MOONS, draws=16)) > float(bp.elbo(posterior, MOONS, draws=16)) + 100.0


def test_a_fit_that_is_not_finished_is_not_silent():
    posterior, said = fit(MOONS, network(), how=method(learning_rate=1e-3), epochs=20)
    assert error(posterior) > 0.10
    assert len(said) == 1
    assert "more epochs" in said[0]


def centred(mean, net, likelihood):
    """A posterior of next to no width around one row of theta."""
    model = bp.Model(net, likelihood=likelihood)
    std = torch.full((1, model.layout.latent), 1e-4)
    return bp.posteriors.DiagonalGaussian(model, mean[None], std, model.initial_buffers(1))


@pytest.mark.parametrize("rows", [9, 10, 200])
def test_a_fit_that_is_worse_than_a_constant(rows):
    """y is noise of deviation 1: a constant scores -1.42 nats a row, 10 x far less. Nine rows are too few."""
    inputs = numbers(rows, 1)
    data = bp.Data(inputs, numbers(rows, seed=1))
    posterior = centred(torch.tensor([10.0, 0.0]), nn.Linear(1, 1), likelihoods.Gaussian(scale=1.0))
    messages = diagnostics.examine(posterior, data)
    if rows < 10:
        assert messages == []
    else:
        assert len(messages) == 1
        assert messages[0].startswith("the fit is worse than saying the same of every row: its mean log-likelihood")
        assert "a smaller learning rate" in messages[0]
    off = centred(torch.tensor([0.0, 1.2]), nn.Linear(1, 1), likelihoods.Gaussian(scale=1.0))
    assert diagnostics.examine(off, data) == []  # worse by 1.2^2 / 2 = 0.7 nats: less than a nat is not called bad


def test_a_fit_that_is_worse_than_its_own_linear_part():
    """y = 3 x: the network says 0.5 everywhere, which a constant does no better, and a line by far."""
    inputs = numbers(300, 1)
    net = nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 1))
    posterior = centred(torch.tensor([*[0.0] * 9, 0.5]), net, likelihoods.Gaussian(scale=1.0))
    messages = diagnostics.examine(posterior, bp.Data(inputs, 3.0 * inputs[:, 0]))
    assert len(messages) == 1
    assert messages[0].startswith("the fit is worse than a linear model of its inputs: its mean log-likelihood")
    assert messages[0].endswith(
        'try more epochs, BayesByBackprop(initial_mean="fan_in", initial_scale=0.01), or starts=8.'
    )


def test_half_of_what_there_is_to_find_is_enough():
    """One good fit whose logits are shrunk step by step: from the mean network's likelihood down to a coin's."""
    posterior, _ = fit(MOONS, network(), epochs=60)
    model, mean = posterior.model, posterior.mean()
    features = random_features(MOONS.inputs)
    linear, bent = (float(held_out_scores(model, f, MOONS.targets, torch.Size([2])).mean()) for f in features)
    assert bent > linear + 0.1
    found = []
    for share in (1.0, 0.5, 0.4, 0.35, 0.3, 0.25, 0.2, 0.0):
        shrunk = mean.clone()
        for name in ("4.weight", "4.bias"):
            shrunk[:, model.layout.by_name[name].columns] *= share
        weaker = bp.posteriors.DiagonalGaussian(model, shrunk, torch.full_like(shrunk, 1e-6), {})
        reached = float(weaker.predict(MOONS.inputs, draws=2).log_prob(MOONS.targets).mean())
        found.append((reached, [text for text in diagnostics.examine(weaker, MOONS) if "linear" in text]))
    half = 0.5 * (linear + bent)
    assert all(bool(messages) is (reached < half) for reached, messages in found)
    assert len([reached for reached, _ in found if reached > half]) >= 2
    assert len([reached for reached, _ in found if linear < reached < half]) >= 1


LINEAR = {
    "regression": (likelihoods.Gaussian(scale=0.3), lambda f: f + 0.3 * numbers(len(f), seed=3)),
    "classes": (CATEGORICAL, lambda f: (torch.sigmoid(2.0 * f) > torch.rand(len(f), generator=coin())).long()),
    "separable classes": (CATEGORICAL, lambda f: (f > 0).long()),
    "counts": (likelihoods.Poisson(), lambda f: torch.poisson((0.3 * f).exp(), generator=coin())),
    "noise": (likelihoods.Gaussian(scale=1.0), lambda f: numbers(len(f), seed=4)),
}


def coin():
    return torch.Generator().manual_seed(5)


@pytest.mark.parametrize("rows", [100, 1000])
@pytest.mark.parametrize("name", LINEAR)
def test_no_false_alarm_where_there_is_nothing_but_a_line(name, rows):
    """A network can do no better than a linear model there; that is no fault of it."""
    likelihood, targets = LINEAR[name]
    inputs = numbers(rows, 3, seed=6)
    data = inputs, targets(inputs @ torch.tensor([1.0, -1.0, 0.5]))
    outputs = 2 if likelihood is CATEGORICAL else 1
    _, said = fit(data, network(3, outputs), likelihood, epochs=max(10, 2000 // rows))
    assert [text for text in said if "linear" in text] == []


@pytest.mark.parametrize(
    ("data", "net", "reason"),
    [
        (MOONS, nn.Linear(2, 2), "a linear model is what was asked for"),
        (MOONS.rows(slice(19)), network(), "fewer than ten rows a feature"),
        ((MOONS.inputs.round().long(), MOONS.targets), nn.Sequential(nn.Embedding(9, 2), nn.Flatten()), "indices"),
        (({"input": MOONS.inputs}, MOONS.targets), network(), "inputs by name"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_where_there_is_no_linear_model_to_compare_with(data, net, reason):
    if reason == "indices":
        data = (data[0] - data[0].min(), data[1])
        net = nn.Sequential(*net, nn.Linear(4, 2))
    _, said = fit(data, net, how=method(learning_rate=1e-3, initial_scale=0.1), epochs=2)
    assert said == []


def test_populations_and_streams_are_not_examined():
    posterior, said = fit(MOONS, network(), how=method(initial_scale=1.0), epochs=60)
    assert len(said) == 1
    pair = bp.posteriors.DiagonalGaussian(
        posterior.model, *(t.expand(2, -1) for t in posterior.tensors().values()), posterior.model.initial_buffers(2)
    )
    assert len(diagnostics.examine(posterior, MOONS)) == 1
    assert diagnostics.examine(pair, MOONS) == []
    assert diagnostics.examine(posterior, None) == []


# -- what the comparison is made of ------------------------------------------------------------------------------------


def test_held_out_scores_are_those_of_ridge_regression():
    """For Gaussian noise of scale s the weights solve (Z'Z / n + 2 s^2 r I) W = Z'y / n, intercept free."""
    rows, scale = 60, 0.5
    inputs, noise = numbers(rows, 3).double(), 0.5 * numbers(rows, seed=1).double()
    targets = inputs @ torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64) + 2.0 + noise
    model = bp.Model(network(3, 1), likelihood=likelihoods.Gaussian(scale=scale), prior=priors.Normal(scale=1.0))
    found = held_out_scores(model, inputs, targets, torch.Size([1]))
    order = Rng.create(0).permutation(rows, Stream.SPLIT)[0]
    expected = torch.empty(rows, dtype=torch.float64)
    for train, test in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        design = torch.cat((inputs[train], torch.ones(len(train), 1, dtype=torch.float64)), dim=1)
        penalty = 2.0 * scale**2 * 1e-3 * torch.diag(torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64))
        weights = torch.linalg.solve(design.T @ design / len(train) + penalty, design.T @ targets[train] / len(train))
        residual = targets[test] - (inputs[test] @ weights[:3] + weights[3])
        expected[test] = -0.5 * (residual / scale).square() - math.log(scale) - 0.5 * math.log(2.0 * math.pi)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_features_that_are_only_remembered_do_not_count():
    """With as many features as rows, a model explains every row that it has seen, and none that it has not."""
    targets = numbers(100, seed=1)
    model = bp.Model(network(1, 1), likelihood=likelihoods.Gaussian(scale=1.0), prior=priors.Normal(scale=1.0))
    few, many = (
        held_out_scores(model, numbers(100, width, seed=2).double(), targets, torch.Size([1])) for width in (1, 80)
    )
    assert float(many.mean()) < float(few.mean()) - 0.1


def test_a_learnt_noise_scale_is_fitted_along():
    inputs = numbers(400, 1).double()
    targets = inputs[:, 0] + 0.1 * numbers(400, seed=1)
    likelihood = likelihoods.Gaussian(scale=priors.HalfNormal(1.0))
    model = bp.Model(network(1, 1), likelihood=likelihood, prior=priors.Normal(scale=1.0))
    found = float(held_out_scores(model, inputs, targets, torch.Size([1])).mean())
    # The mean log-density of N(0, 0.1^2) at its own draws; 400 of them have a standard error of 0.035.
    assert found == pytest.approx(-math.log(0.1) - 0.5 * math.log(2.0 * math.pi) - 0.5, abs=0.2)


def test_random_features():
    inputs = torch.cat((5.0 + 3.0 * numbers(50, 2), torch.full((50, 1), 7.0)), dim=1)
    state = torch.get_rng_state()
    flat, more = random_features(inputs)
    torch.testing.assert_close(torch.get_rng_state(), state, rtol=0.0, atol=0.0)
    assert flat.shape == (50, 3)
    assert more.shape == (50, 53)
    torch.testing.assert_close(more[:, :3], flat, rtol=0.0, atol=0.0)
    torch.testing.assert_close(flat[:, :2].mean(0), torch.zeros(2, dtype=torch.float64), rtol=0.0, atol=1e-6)
    torch.testing.assert_close(flat[:, :2].std(0), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(flat[:, 2], torch.zeros(50, dtype=torch.float64), rtol=0.0, atol=1e-6)
    # Bent: most units leave the straight part of tanh on some rows, and few are the same everywhere.
    assert float((more[:, 3:].abs().amax(0) > 0.7).double().mean()) > 0.8
    assert float((more[:, 3:].std(0) > 0.2).double().mean()) > 0.8
    torch.testing.assert_close(random_features(100.0 * inputs)[1], more, rtol=1e-5, atol=1e-5)


def test_the_advice_names_no_other_method():
    """A point estimate that is no better than a constant is not told to be a Gaussian."""
    data = bp.data.two_moons(num_data=100)
    with pytest.warns(bp.errors.BayespropWarning, match="This fit is not finished") as caught:
        bp.fit(bp.Model(network(), likelihood=CATEGORICAL), data, inference.MAP(1e-9), epochs=1, seed=0, progress=False)
    assert len(caught) == 1
    assert "BayesByBackprop" not in str(caught[0].message)
    assert "starts=8" in str(caught[0].message)
