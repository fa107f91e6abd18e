"""Monte-Carlo dropout: the exam, its law on linear regression, the papers' weight decay, both ways to drop."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference import MAP, MCDropout
from bayesprop.posteriors import ActiveDropout, BernoulliDropout
from bayesprop.rng import Rng
from bayesprop.testing import LinearRegression, MethodSuite

from ..conftest import normal, small_network

RATE, NOISE = 0.2, 0.5


def ridge(problem, rate=RATE):
    """E |y - X m w|^2 = |y - X w|^2 + p / (1 - p) sum_j w_j^2 |X_j|^2 is quadratic, and so is the prior's part: the
    minimum solves L + p / (1 - p) diag(X'X) / s^2 + (1 / k - 1) 1, with neither of the two for the bias."""
    design, k = problem.design, 1.0 - rate
    extra = rate / k * (design.T @ design / NOISE**2).diagonal() + (1.0 / k - 1.0)
    extra[3] = 0.0
    return torch.linalg.solve(problem.precision + torch.diag(extra), design.T @ problem.targets[:, 0] / NOISE**2)


class TestMCDropout(MethodSuite):
    def make(self):
        return MCDropout(0.02, rate=0.1)

    def check_linear_regression(self, problem):
        """The expected loss has its minimum in closed form. Tolerance: the noise of 32 x 24 masks in a step, averaged
        while the rate falls to zero, leaves 0.01; without dropout the weights would be up to 1 away."""
        method = MCDropout(0.1, rate=RATE, samples=32)
        posterior = bp.fit(problem.model, problem.data, method, epochs=150, batch_size=None, progress=False)
        assert isinstance(posterior, BernoulliDropout)
        assert_close(posterior.mean()[0], ridge(problem), rtol=0.0, atol=0.02)
        odds = (RATE / (1.0 - RATE)) ** 0.5
        assert_close(posterior.std()[0, :3], posterior.mean()[0, :3].abs() * odds)


def with_dropout(*layers, dtype=torch.float64):
    network = small_network(dtype=dtype)
    return nn.Sequential(network[0], *(layers or (nn.Dropout(0.3),)), *network[1:])


def fitted(model, data, method=None, **settings):
    settings = {"epochs": 3, "batch_size": 4, "progress": False, **settings}
    return bp.fit(model, data, MCDropout(0.02) if method is None else method, **settings)


DATA = (normal(8, 3), normal(8, 1, seed=1))


def test_own_layers_on_linear_regression():
    """The same minimum but for the prior, which is not divided by k."""
    problem = LinearRegression()
    network = nn.Sequential(nn.Dropout(RATE), nn.Linear(3, 1)).double()
    model = bp.Model(network, likelihood=likelihoods.Gaussian(NOISE), prior=priors.Normal())
    method = MCDropout(0.1, samples=32)
    posterior = bp.fit(model, problem.data, method, epochs=150, batch_size=None, progress=False)
    assert isinstance(posterior, ActiveDropout)
    extra = RATE / (1.0 - RATE) * (problem.design.T @ problem.design / NOISE**2).diagonal()
    extra[3] = 0.0
    right = problem.design.T @ problem.targets[:, 0] / NOISE**2
    assert_close(
        posterior.location[0], torch.linalg.solve(problem.precision + torch.diag(extra), right), rtol=0.0, atol=0.02
    )


@pytest.mark.parametrize("kind", [nn.Dropout, nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_own_layers_of_any_kind(kind, tmp_path):
    """Members of a population have masks of their own and are what they would be alone; a file gives them back."""
    network = with_dropout(kind(0.3), nn.BatchNorm1d(4)).double()
    model = bp.Model(network, likelihood=likelihoods.Gaussian())
    before = torch.get_rng_state()
    method = bp.inference.DeepEnsemble(MCDropout(0.02), members=3)
    together, alone = fitted(model, DATA, method), fitted(model, DATA)
    assert isinstance(together, ActiveDropout)
    # The bias before batch statistics has no gradient but rounding, which Adam follows.
    assert_close(together.location[0], alone.location[0], rtol=1e-6, atol=1e-8)
    assert not torch.equal(together.location[0], together.location[1])
    prediction = together.predict(DATA[0], 30)
    assert float(prediction.epistemic.min()) > 0.0
    together.save(tmp_path / "one.bayes")
    again = bp.load(tmp_path / "one.bayes", network=network)
    assert_close(again.predict(DATA[0], 30).draws, prediction.draws, rtol=0.0, atol=0.0)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_run_with_own_layers_goes_on_bit_for_bit(tmp_path):
    model = bp.Model(with_dropout(), likelihood=likelihoods.Gaussian())
    whole = fitted(model, DATA, epochs=4)

    def stop(event):
        return bp.observers.Stop if event.kind == "step" and event.step >= 5 else None

    path = tmp_path / "run.ckpt"
    fitted(model, DATA, epochs=4, checkpoint=path, observers=[stop])
    resumed = fitted(model, DATA, epochs=4, checkpoint=path, resume=True)
    assert_close(resumed.location, whole.location, rtol=0.0, atol=0.0)


class Reader(nn.Module):
    """Words, an LSTM and attention: layers without a rule."""

    def __init__(self):
        super().__init__()
        self.words, self.lstm = nn.Embedding(7, 4), nn.LSTM(4, 4, batch_first=True)
        self.attention, self.head = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        states = self.lstm(self.words(x))[0]
        return self.head(self.attention(states, states, states)[0].mean(1))


class Encoder(nn.Module):
    """A layer of a transformer as torch has it, with dropout in modules and inside of attention."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.TransformerEncoderLayer(4, 2, 8, 0.5, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.layer(x).mean(1))


NETWORKS = {
    "transformer": (Encoder, normal(12, 3, 4).float()),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)),
        normal(12, 2, 4, 4).float(),
    ),
    "words": (Reader, torch.arange(60).reshape(12, 5) % 7),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_rate_for_any_network(name):
    make, inputs = NETWORKS[name]
    network = make()
    model = bp.Model(network, likelihood=likelihoods.Categorical())
    held = [parameter.detach().clone() for parameter in network.parameters()]
    data = (inputs, torch.arange(12) % 2)
    posterior = fitted(model, data, bp.inference.DeepEnsemble(MCDropout(0.02, rate=0.2), members=2))
    prediction = posterior.predict(inputs, 20)
    assert posterior.particles == 2
    assert float(prediction.epistemic.min()) > 0.0
    assert_close([p.detach() for p in network.parameters()], held, rtol=0.0, atol=0.0)
    assert not any("forward" in vars(module) for module in model.network.modules())


def test_with_a_rate_the_networks_own_layers_are_off():
    """At rate 0 training is that of MAP, whatever dropout the network has."""
    plain = bp.Model(small_network(), likelihood=likelihoods.Gaussian())
    model = bp.Model(with_dropout(nn.Dropout(0.9)), likelihood=likelihoods.Gaussian())
    expected, found = fitted(plain, DATA, MAP(0.02)), fitted(model, DATA, MCDropout(0.02, rate=0.0))
    assert_close(found.location, expected.mean(), rtol=1e-6, atol=1e-8)


def test_rates_by_pattern_and_for_each_particle():
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian())
    assert fitted(model, DATA, MCDropout(rate={"2.*": 0.3})).rate.tolist() == [[0.0, 0.3]]
    both = fitted(model, DATA, bp.inference.DeepEnsemble(MCDropout(rate=torch.tensor([0.25, 0.5])), members=2))
    assert both.rate.tolist() == [[0.25, 0.25], [0.5, 0.5]]


def test_the_gradient_is_the_mean_over_all_masks():
    """By enumeration of the masks of three inputs: each row of a population is one mask of one row of data."""
    problem = LinearRegression()
    method, row = MCDropout(rate=RATE), slice(4, 5)
    theta = normal(1, 4)
    total = torch.zeros(4, dtype=torch.float64)
    x, y = (t[row] for t in problem.data)
    for masks in itertools.product((0.0, 1.0), repeat=3):
        mask = torch.tensor(masks, dtype=torch.float64)
        probability = torch.where(mask > 0, 1.0 - RATE, RATE).prod()
        leaf = theta[0].clone().requires_grad_(True)
        output = (x * mask / (1.0 - RATE)) @ leaf[:3] + leaf[3]
        loss = probability * 0.5 * (y[:, 0] - output).square().sum() / NOISE**2
        total = total + torch.autograd.grad(loss, leaf)[0]
    count = 20_000
    state = method.init(problem.model, Rng.create(0, count))
    state.mean = theta.repeat(count, 1)
    drawn = method.gradients(problem.model, state, problem.batch(count, row), Rng.create(3, count), 0.0)[1]["mean"]
    error = drawn.std(0) / count**0.5
    assert bool(((drawn.mean(0) - total).abs() < 5.0 * error).all())  # fails once in 400 000 seeds


def test_weight_decay_is_that_of_the_papers():
    """With tau, N, l and p the penalty's gradient is that of N tau lambda |M|^2, with M = theta / k."""
    tau, length, num_data = 4.0, 2.0, 24
    problem = LinearRegression()
    likelihood, prior = likelihoods.Gaussian(tau**-0.5), priors.Normal(0.0, 1.0 / length)
    model = bp.Model(nn.Linear(3, 1, bias=False).double(), likelihood=likelihood, prior=prior)
    model.probe(problem.inputs, problem.targets)
    method = MCDropout(rate=0.3)
    decay = method.weight_decay(length_scale=length, num_data=num_data, precision=tau)
    assert decay == pytest.approx(0.7 * 4.0 / (2.0 * 24 * 4.0))
    assert method.precision(length_scale=length, num_data=num_data, weight_decay=decay) == pytest.approx(tau)
    theta = normal(1, 3).requires_grad_(True)
    strength = method.starting_strength(model, Rng.create(0))
    (found,) = torch.autograd.grad(method.penalty(model, theta, strength).sum(), theta)
    assert_close(found, 2.0 * num_data * tau * decay * theta.detach() / 0.7**2)
    with pytest.raises(ConfigurationError, match="are those of one rate"):
        MCDropout().precision(length_scale=1.0, num_data=1, weight_decay=1.0)


@pytest.mark.parametrize(
    ("network", "message", "write"),
    [
        (partial(nn.Linear, 3, 1), "and this network has none", "MCDropout(rate=0.1)"),
        (
            lambda: nn.Sequential(nn.LSTM(3, 1, num_layers=2, dropout=0.5)),
            "where no mask of ours reaches",
            "MCDropout(rate=0.1)",
        ),
    ],
)
def test_networks_without_dropout_to_leave_on_are_refused(network, message, write):
    model = bp.Model(
        network(), likelihood=likelihoods.Gaussian(), output=lambda r: r if isinstance(r, torch.Tensor) else r[0]
    )
    with pytest.raises(ConfigurationError, match=message) as caught:
        MCDropout().init(model, Rng.create(0))
    assert f"write: {write}" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"rate": 1.0}, r"a rate lies in \[0, 1\), got 1.0"),
        ({"rate": {"*": -0.1}}, r"a rate lies in \[0, 1\), got -0.1"),
        ({"samples": 0}, "samples is a whole number of at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
        ({"warmup": 2.0}, "warmup is a share of the training, got 2.0"),
        ({"temperature": -1.0}, "temperature must not be negative, got -1.0"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault) as caught:
        MCDropout(**settings)
    assert "write: MCDropout(learning_rate=1e-3)" in str(caught.value)


def test_the_description_says_how_weights_are_masked():
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian())
    told = str(model.describe(MCDropout(rate=0.1), normal(8, 3)))
    assert "masked" in told
    plain = str(bp.Model(with_dropout(), likelihood=likelihoods.Gaussian()).describe(MCDropout(), normal(8, 3)))
    assert "masked" not in plain
