"""Mistakes that libraries of this kind have made: networks that become Bayesian, and what they then predict.

The docstring of a test says what goes wrong elsewhere; see `test_bugs_of_others.py`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.rng import Rng


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def bayes(**settings: Any) -> bp.inference.BayesByBackprop:
    named = {
        "learning_rate": 0.01,
        "optimizer": "adam",
        "estimator": bp.random_weights.SharedWeights(samples=1),
        "kl_weights": "uniform",
        "initial_mean": "fan_in",
        "initial_scale": 0.1,
        "schedule": bp.inference.Constant(),
    }
    return bp.inference.BayesByBackprop(**{**named, **settings})


def fit(net: nn.Module, inputs: Any, targets: Tensor | None = None, *, how=None, likelihood=None, **settings: Any):
    """A short fit; without targets, to zeros in the shape of what the network returns."""
    output = settings.pop("output", None)
    if targets is None:
        found = net(inputs)
        targets = torch.zeros_like(found if output is None else output(found)).detach()
    likelihood = likelihood or likelihoods.Gaussian(scale=1.0)
    model = bp.Model(net, likelihood=likelihood, prior=priors.Normal(scale=1.0), output=output)
    settings = {"epochs": 1, "batch_size": 4, "seed": 0, "starts": 1, **settings}
    return bp.fit(model, (inputs, targets), how or bayes(), progress=False, **settings)


def perceptron(inputs: int = 3, outputs: int = 2) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs)).double()


# -- networks of all kinds ---------------------------------------------------------------------------------------------


class Listed(nn.Module):
    """Layers in a list and parameters of its own."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.scales = nn.ParameterList([torch.ones(3), torch.full((3,), 0.5)])

    def forward(self, x):
        for layer, scale in zip(self.layers, self.scales, strict=True):
            x = scale * torch.tanh(layer(x))
        return x


class Tied(nn.Module):
    """An embedding whose weight is that of the last layer."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(6, 3)
        self.decoder = nn.Linear(3, 6, bias=False)
        self.decoder.weight = self.encoder.weight

    def forward(self, x):
        return self.decoder(torch.tanh(self.encoder(x).mean(1)))


def first(result: Any) -> Tensor:
    return result[0]


IMAGES, SERIES = numbers(6, 2, 5, 4), numbers(6, 5, 4)
ZOO: dict[str, tuple[Callable[[], nn.Module], Tensor, Callable[[Any], Tensor] | None]] = {
    "a layer at the root": (lambda: nn.Linear(3, 2), numbers(6, 3), None),
    "output_padding": (lambda: nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1), IMAGES, None),
    "transposed, grouped": (lambda: nn.ConvTranspose1d(4, 2, 3, stride=2, groups=2), SERIES.mT, None),
    "circular padding": (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), IMAGES, None),
    "reflected padding": (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), IMAGES, None),
    "a kernel that is no square": (lambda: nn.Conv2d(2, 3, (3, 1), padding=(1, 0)), IMAGES, None),
    "dilation": (lambda: nn.Conv1d(4, 2, 2, dilation=2), SERIES.mT, None),
    "two layers in both directions": (
        lambda: nn.LSTM(4, 3, num_layers=2, bidirectional=True, batch_first=True),
        SERIES,
        first,
    ),
    "gated": (lambda: nn.GRU(4, 3, batch_first=True), SERIES, first),
    "attention": (
        lambda: nn.TransformerEncoderLayer(4, 2, dim_feedforward=6, dropout=0.0, batch_first=True),
        SERIES,
        None,
    ),
    "normalised": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.LayerNorm(24)),
        IMAGES,
        None,
    ),
    "lists": (Listed, numbers(6, 3), None),
    "tied": (Tied, torch.arange(18).reshape(6, 3) % 6, None),
}


def test_thirteen_kinds_of_networks():
    assert len(ZOO) == 13


@pytest.mark.parametrize("name", ZOO)
def test_a_draw_is_the_users_own_network_with_other_weights(name):
    """Seen in conversions by the name of a class: output_padding and padding_mode are dropped, kernels become square,
    two recurrent layers become one, the dtype is lost, a layer at the root and layers in a list are left out,
    attention crashes, parameters are registered twice, and recurrent layers draw new weights at each time step."""
    make, inputs, output = ZOO[name]
    net = make().double()
    posterior = fit(net, inputs, output=output)
    parameters = dict(net.named_parameters())
    assert posterior.model.layout.random == sum(parameter.numel() for parameter in parameters.values())
    drawn = posterior.predict(inputs, draws=3, seed=5).draws
    sampled = posterior.sample(draws=3, seed=5)
    assert sampled.keys() == parameters.keys()
    assert drawn.dtype == torch.float64
    for index in range(3):
        weights = {key: value[index] for key, value in sampled.items()}
        result = torch.func.functional_call(net, weights, (inputs,))
        expected = result if output is None else output(result)
        torch.testing.assert_close(drawn[index], expected.detach(), rtol=1e-9, atol=1e-9)
    assert float((drawn[0] - drawn[1]).abs().max()) > 1e-3


@pytest.mark.parametrize("name", ZOO)
def test_the_mean_network_is_an_ordinary_network_with_the_means(name):
    """A frozen network uses the means that it had before it was moved to another device or dtype, or before it was
    trained, because they are registered twice."""
    make, inputs, output = ZOO[name]
    posterior = fit(make().double(), inputs, output=output)
    frozen = posterior.mean_network()
    assert type(frozen) is type(make())
    for key, parameter in frozen.named_parameters():
        torch.testing.assert_close(parameter.detach(), posterior.mean(key), rtol=0.0, atol=0.0)
    result = frozen(inputs)
    found = posterior.at_mean().predict(inputs, draws=2).mean
    torch.testing.assert_close(found, (result if output is None else output(result)).detach(), rtol=1e-9, atol=1e-9)


def test_tied_weights_stay_tied():
    """The two modules of a tied weight become two independent random weights."""
    posterior = fit(Tied().double(), ZOO["tied"][1])
    assert posterior.model.layout.random == 18
    frozen = posterior.mean_network()
    assert frozen.encoder.weight is frozen.decoder.weight


# -- where it starts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-6, 0.1])
def test_units_differ_from_the_start(scale):
    """Means that all start at zero stay equal: every unit of a layer has the same gradient, and the network is linear
    or says nothing."""
    net = nn.Sequential(nn.Linear(4, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 1))
    model = bp.Model(net, likelihood=likelihoods.Gaussian(scale=1.0), prior=priors.Normal(scale=1.0))
    state = bayes(initial_mean="fan_in", initial_scale=scale).init(model, Rng.create(0))
    for block in model.layout.of_kind("random"):
        rows = state.mean[0, block.columns].reshape(block.shape)
        if rows.dim() == 2 and rows.shape[0] > 1:
            assert float(torch.pdist(rows).min()) > 0.1
    torch.testing.assert_close(torch.nn.functional.softplus(state.rho), torch.full_like(state.rho, scale))


@pytest.mark.statistical
def test_outputs_are_of_the_order_of_the_inputs_at_the_start():
    """Weights that start at draws from a prior N(0, 1) make activations grow a hundredfold a layer; those uniform on
    (-2, 2) are no better. At the scale of the fan-in a rectified layer keeps the mean square of its inputs, here 1:
    the network's, from ten outputs of each of 50 rows, then is 2 within a factor of three."""
    layers = [nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10)]
    model = bp.Model(nn.Sequential(*layers), likelihood=likelihoods.Categorical(), prior=priors.Normal(scale=1.0))
    method = bayes(initial_mean="fan_in", initial_scale=0.02)
    posterior = method.posterior(model, method.init(model, Rng.create(0)))
    outputs = next(posterior.outputs(numbers(50, 784, seed=1).float(), draws=4)())[1]
    assert 2.0 / 3.0 < float(outputs.square().mean()) < 6.0


def test_the_networks_own_weights_can_be_the_start():
    """Weights that the user sets have no effect, because another copy of them is trained."""
    net = perceptron()
    model = bp.Model(net, likelihood=likelihoods.Gaussian(scale=1.0), prior=priors.Normal(scale=1.0))
    method = bayes(initial_mean="network")
    posterior = method.posterior(model, method.init(model, Rng.create(0)))
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(posterior.mean(name), parameter.detach(), rtol=0.0, atol=0.0)


def test_a_pretrained_network_is_the_prior():
    """A prior that should stand around trained weights is announced, and only the start is set: the prior stays around
    zero."""
    net = perceptron()
    model = bp.Model(net, likelihood=likelihoods.Gaussian(scale=1.0), prior=priors.pretrained(net, scale=0.1))
    method = bayes(initial_mean="network", initial_scale=0.1)
    posterior = method.posterior(model, method.init(model, Rng.create(0)))
    torch.testing.assert_close(posterior.kl(), torch.zeros(1, dtype=torch.float64), rtol=0.0, atol=1e-9)
    around_zero = bp.Model(net, likelihood=likelihoods.Gaussian(scale=1.0), prior=priors.Normal(scale=0.1))
    assert float(method.posterior(around_zero, method.init(around_zero, Rng.create(0))).kl()) > 10.0


# -- what it predicts --------------------------------------------------------------------------------------------------

INPUTS = numbers(20, 3, seed=3)
LABELS = torch.arange(20) % 2


@pytest.fixture(scope="module")
def classifier() -> bp.posteriors.Posterior:
    return fit(perceptron(), INPUTS, LABELS, likelihood=likelihoods.Categorical(), epochs=5)


def test_as_many_predictions_as_rows(classifier):
    """After training on minibatches, predictions come back with the minibatch's number of rows."""
    prediction = classifier.predict(numbers(77, 3, seed=4), draws=6)
    assert len(prediction) == 77
    assert prediction.mean.shape == (77, 2)
    assert prediction.epistemic.shape == (77,)
    assert prediction.draws.shape == (6, 77, 2)


def test_one_image_repeated_is_as_uncertain_as_alone(classifier):
    """One image is repeated to get draws, but all rows of a batch share one draw: the epistemic uncertainty is zero."""
    alone = classifier.predict(INPUTS[:1], draws=30)
    repeated = classifier.predict(INPUTS[:1].expand(5, 3), draws=30)
    torch.testing.assert_close(repeated.epistemic, alone.epistemic.expand(5))
    assert float(alone.epistemic) > 1e-4


@pytest.mark.parametrize(
    "estimator",
    [
        bp.random_weights.SharedWeights(samples=1),
        bp.random_weights.LocalReparameterization(samples=1),
        bp.random_weights.Flipout(samples=1),
    ],
    ids=repr,
)
def test_predictions_do_not_depend_on_the_company(estimator):
    """A row's prediction changes with the order of the rows, with those beside it, and with the size of the batch."""
    posterior = fit(perceptron(), INPUTS, LABELS, likelihood=likelihoods.Categorical(), how=bayes(estimator=estimator))
    together = posterior.predict(INPUTS, draws=8)
    order = torch.arange(20).flip(0)
    torch.testing.assert_close(posterior.predict(INPUTS[order], draws=8).mean, together.mean[order])
    torch.testing.assert_close(posterior.predict(INPUTS[order], draws=8).epistemic, together.epistemic[order])
    parts = torch.cat([posterior.predict(INPUTS[i : i + 7], draws=8).mean for i in range(0, 20, 7)])
    torch.testing.assert_close(parts, together.mean)


def test_there_is_epistemic_uncertainty_in_what_was_not_seen(classifier):
    """With deviations that start too small and a divergence that is too weak, all draws agree everywhere."""
    near, far = (classifier.predict(scale * INPUTS, draws=50).epistemic.mean() for scale in (0.1, 3.0))
    assert float(far) > 2.0 * float(near) > 0.0


# -- what is the user's own --------------------------------------------------------------------------------------------


class Fragile(nn.Module):
    """A network that fails when it is told to."""

    def __init__(self):
        super().__init__()
        self.inner, self.calls, self.limit = perceptron(), 0, math.inf

    def forward(self, x):
        self.calls += 1
        if self.calls > self.limit:
            raise RuntimeError("the power went out")
        return self.inner(x)


def test_an_exception_leaves_no_noise_in_the_weights():
    """An exception inside of a sampling pass leaves the sampled weights in the user's network."""
    net = Fragile()
    before = copy.deepcopy(net.state_dict())
    posterior = fit(net, INPUTS, LABELS, likelihood=likelihoods.Categorical())
    inside = copy.deepcopy(posterior.model.network.state_dict())
    expected = posterior.predict(INPUTS, draws=4).mean
    own = posterior.model.network
    own.limit = own.calls
    with pytest.raises((RuntimeError, bp.errors.DataError), match="the power went out"):
        _ = posterior.predict(INPUTS, draws=4).mean
    with pytest.raises((RuntimeError, bp.errors.DataError), match="the power went out"):
        bp.fit(posterior.model, (INPUTS, LABELS), bayes(), epochs=1, batch_size=4, progress=False)
    own.limit = math.inf
    for found, state in ((own.state_dict(), inside), (net.state_dict(), before)):
        torch.testing.assert_close(found, state, rtol=0.0, atol=0.0)
    torch.testing.assert_close(posterior.predict(INPUTS, draws=4).mean, expected, rtol=0.0, atol=0.0)


def test_the_functions_of_torch_are_left_alone():
    """Local reparameterisation replaces torch.nn.functional.linear for everybody while a context is open."""
    names = ("linear", "conv1d", "conv2d", "conv_transpose2d", "embedding")
    before = [getattr(F, name) for name in names]
    seen = []

    class Looking(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = perceptron()

        def forward(self, x):
            seen.append([getattr(F, name) for name in names] == before)
            return self.inner(x)

    for estimator in (bp.random_weights.LocalReparameterization(samples=1), bp.random_weights.Flipout(samples=1)):
        fit(Looking(), INPUTS, LABELS, likelihood=likelihoods.Categorical(), how=bayes(estimator=estimator))
    assert len(seen) > 10
    assert all(seen)
    assert [getattr(F, name) for name in names] == before
