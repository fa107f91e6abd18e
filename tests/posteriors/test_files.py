"""Posteriors on disk: what is loaded says the same, and knows where it comes from."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import inference, likelihoods, priors, random_weights
from bayesprop.data import Scaling
from bayesprop.errors import CheckpointError
from bayesprop.inference import SGD, Adam, Cosine, Steps, Torch, Warmup
from bayesprop.inference.variational.kl_weights import Geometric
from bayesprop.posteriors import Context

from .conftest import MODELS

PRIORS = {
    "normal": priors.Normal(0.1, 0.5),
    "tensors": {"0.weight": priors.Normal(torch.full((4, 3), 0.1), torch.full((4, 3), 0.7)), "*": priors.Normal()},
    "laplace": priors.Laplace(0.1, 0.5),
    "cauchy": priors.Cauchy(0.1, 0.5),
    "student": priors.StudentT(3.0, 0.1, 0.5),
    "mixture": priors.ScaleMixture(0.25, 1.0, 0.01),
    "flat": priors.Flat(),
    "learnt": priors.Normal(scale=priors.HalfNormal(0.5)),
    "unit, centred": priors.Laplace(scale=priors.InverseGamma(2.0, 1.0, shared="unit", centred=True)),
    "network": priors.StudentT(4.0, 0.3, scale=priors.HalfCauchy(shared="network")),
    "gamma": {"0.*": priors.Normal(0.5, priors.Gamma(2.0, 1.0)), "*": priors.Flat()},
    "horseshoe": priors.Horseshoe(0.3),
}
LIKELIHOODS = {
    "categorical": likelihoods.Categorical(),
    "bernoulli": likelihoods.Bernoulli(),
    "gaussian": likelihoods.Gaussian(0.5),
    "learnt gaussian": likelihoods.Gaussian(),
    "learnt otherwise": likelihoods.Gaussian(priors.InverseGamma(2.0, 1.0)),
    "heteroscedastic": likelihoods.HeteroscedasticGaussian(),
    "student": likelihoods.StudentT(df=4.0, scale=0.3),
    "poisson": likelihoods.Poisson(),
}


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def through_a_file(posterior, folder, network: nn.Module, **given):
    posterior.save(folder / "saved.bayes")
    assert [path.name for path in folder.iterdir()] == ["saved.bayes"]
    return bp.load(folder / "saved.bayes", network=network, **given)


def everything(prediction) -> dict[str, np.ndarray]:
    return {**prediction.numpy(), "draws": prediction.draws.numpy()}


def assert_same(first, second, inputs) -> None:
    """Tensors, moments by name, samples and predictions, to the last bit."""
    assert type(first) is type(second)
    assert first.model is not second.model
    assert_close(first.tensors(), second.tensors(), rtol=0.0, atol=0.0)
    assert_close(dict(first.buffers), dict(second.buffers), rtol=0.0, atol=0.0)
    assert_close(first.sample(3), second.sample(3), rtol=0.0, atol=0.0)
    for block in first.model.layout.blocks:
        assert_close(first.std(block.name), second.std(block.name), rtol=0.0, atol=0.0)
    one, other = everything(first.predict(inputs, 5)), everything(second.predict(inputs, 5))
    assert one.keys() == other.keys()
    assert len(one) >= 6
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", list(MODELS))
def test_every_kind_of_column(model, gaussian, network, rows, tmp_path, name, dtype):
    posterior = gaussian(model(name, dtype), 2)
    for number, buffer in enumerate(posterior.buffers.values()):
        buffer.copy_((buffer + 0.3 * number).to(buffer.dtype))
    again = through_a_file(posterior, tmp_path, network(name, dtype))
    assert again.mean().dtype == (torch.float32 if dtype == torch.bfloat16 else dtype)
    assert_same(posterior, again, rows(name, dtype=dtype))


@pytest.mark.parametrize("prior", list(PRIORS))
def test_every_prior(gaussian, rows, tmp_path, prior):
    posterior = gaussian(bp.Model(layers(), likelihood=likelihoods.Gaussian(0.5), prior=PRIORS[prior]))
    again = through_a_file(posterior, tmp_path, layers())
    assert again.model.prior == PRIORS[prior]
    assert_same(posterior, again, rows("plain"))
    theta = posterior.draw(posterior.rng(1), 4)
    assert_close(again.model.log_prior(theta), posterior.model.log_prior(theta), rtol=0.0, atol=0.0)
    assert_close(again.kl(4), posterior.kl(4), rtol=0.0, atol=0.0)


@pytest.mark.parametrize("likelihood", list(LIKELIHOODS))
def test_every_likelihood(gaussian, rows, tmp_path, likelihood):
    net = nn.Linear(3, 1 if likelihood in ("bernoulli", "poisson") else 2).double()
    posterior = gaussian(bp.Model(net, likelihood=LIKELIHOODS[likelihood]))
    again = through_a_file(posterior, tmp_path, nn.Linear(3, net.out_features).double())
    assert again.model.likelihood == LIKELIHOODS[likelihood]
    assert_same(posterior, again, rows("plain"))
    targets = (torch.arange(6) % 2)[:, None].expand(6, 2) if "gaussian" in likelihood else torch.arange(6) % 2
    if likelihood in ("student", "learnt otherwise"):
        targets = torch.zeros(6, 2)
    one, other = (p.predict(rows("plain"), 5).log_prob(targets) for p in (posterior, again))
    assert_close(one, other, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("classes", [["cat", "dog"], [3, 8], [np.int64(3), np.int64(8)], [False, True]])
def test_classes(gaussian, rows, tmp_path, classes):
    posterior = gaussian(bp.Model(layers(), likelihood=likelihoods.Categorical()))
    posterior.context.classes = classes
    again = through_a_file(posterior, tmp_path, layers())
    assert again.context.classes == classes
    assert_same(posterior, again, rows("plain"))
    label = again.predict(rows("plain"), 3).label
    assert set(label.tolist()) <= set(classes)


def test_scaling(gaussian, rows, tmp_path):
    posterior = gaussian(bp.Model(layers(), likelihood=likelihoods.Gaussian(), prior=priors.Laplace()))
    three, two = torch.tensor([1.0, 2.0, 3.0]).double(), torch.tensor([100.0, 200.0]).double()
    posterior.context.scaling = Scaling(three, three + 1.0, two, two / 10.0)
    again = through_a_file(posterior, tmp_path, layers())
    for field in dataclasses.fields(Scaling):
        mine, theirs = (getattr(p.context.scaling, field.name) for p in (posterior, again))
        assert_close(mine, theirs, rtol=0.0, atol=0.0)
    assert_same(posterior, again, rows("plain"))


METHODS = {
    "numbers": inference.BayesByBackprop(learning_rate=3e-3, temperature=0.7, initial_scale=0.05, clip_norm=2.0),
    "one for each particle": inference.BayesByBackprop(learning_rate=torch.tensor([1e-2, 1e-3])),
    "estimator": inference.BayesByBackprop(estimator=random_weights.SharedWeights(4, antithetic=True)),
    "flipout": inference.BayesByBackprop(estimator=random_weights.Flipout(2), kl="monte_carlo"),
    "schedules": inference.BayesByBackprop(schedule=Warmup(0.1, Cosine(0.01)), kl_weights=Geometric()),
    "steps": inference.BayesByBackprop(schedule=Steps(at=(0.3, 0.6), factor=0.2), initial_rho=(-4.0, -3.0)),
    "adam": inference.BayesByBackprop(optimizer=Adam(beta1=0.8, weight_decay=0.1), initial_mean=(-0.2, 0.2)),
    "momentum": inference.BayesByBackprop(optimizer=SGD(momentum=0.5), initial_mean="network"),
    "a class of torch": inference.BayesByBackprop(optimizer=torch.optim.RMSprop),
    "with arguments": inference.BayesByBackprop(optimizer=Torch(torch.optim.Adam, {"betas": (0.8, 0.9)})),
}


@pytest.mark.parametrize("method", list(METHODS))
def test_the_file_knows_how_the_posterior_was_made(model, gaussian, network, tmp_path, method):
    """N, seed, history, optimiser settings and schedules: all that is needed to make it again."""
    posterior = gaussian(model("noise"), 2)
    history = [{"elbo": -3.25, "epoch": 1, "start_elbos": [-1.0, float("-inf")], "validation_nll": float("nan")}]
    posterior.context = Context(1234, None, None, 99, METHODS[method], history)
    again = through_a_file(posterior, tmp_path, network("noise")).context
    assert again.num_data == 1234
    assert again.seed == 99
    assert repr(again.history) == repr(history)
    for field in dataclasses.fields(METHODS[method]):
        mine, theirs = getattr(METHODS[method], field.name), getattr(again.method, field.name)
        if isinstance(mine, Tensor):
            assert_close(theirs, mine, rtol=0.0, atol=0.0)
        else:
            assert theirs == mine


def test_a_method_with_a_function_is_described_where_it_cannot_be_made(model, gaussian, network, tmp_path):
    posterior = gaussian(model("noise"))
    posterior.context.method = inference.BayesByBackprop(kl_weights=lambda index, count, epoch: 1.0)
    found = through_a_file(posterior, tmp_path, network("noise")).context.method
    assert found["type"].endswith(":BayesByBackprop")
    assert found["fields"]["learning_rate"] == posterior.context.method.learning_rate


# -- functions of the user's -------------------------------------------------------------------------------------------


def laplace(outputs: Tensor) -> torch.distributions.Distribution:
    return torch.distributions.Laplace(outputs[:, 0], 1.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Mine(priors.Prior):
    """A prior of the user's own."""

    scale: float = 2.0
    density = priors.Normal.density

    def arguments(self):
        return {"loc": 0.0, "scale": self.scale}


USERS = {
    "likelihood": (likelihoods.FromDistribution(laplace), "a function of yours, 'laplace'"),
    "prior": (Mine(), "Mine', which is not part of bayesprop"),
    "output": (lambda result: result[:, :1], "a function of yours, '<lambda>'"),
}


@pytest.mark.parametrize("argument", list(USERS))
def test_functions_of_the_user_are_asked_for_again(gaussian, rows, tmp_path, argument):
    value, message = USERS[argument]
    posterior = gaussian(bp.Model(layers(), **{"likelihood": likelihoods.Gaussian(0.5), argument: value}))
    with pytest.raises(CheckpointError) as caught:
        through_a_file(posterior, tmp_path, layers())
    assert message in str(caught.value)
    assert f"write: pass it again: {argument}=..." in str(caught.value)
    again = bp.load(tmp_path / "saved.bayes", network=layers(), **{argument: value})
    assert_same(posterior, again, rows("plain"))


# -- networks ---------------------------------------------------------------------------------------------------------


def test_the_network_is_copied_and_its_random_weights_do_not_matter(model, gaussian, network, rows, tmp_path):
    posterior, fresh = gaussian(model("scales")), network("scales", seed=5)
    before = {name: value.clone() for name, value in fresh.state_dict().items()}
    assert_same(posterior, through_a_file(posterior, tmp_path, fresh), rows("scales"))
    assert_close(dict(fresh.state_dict()), before, rtol=0.0, atol=0.0)


def test_a_padding_row_travels_with_the_posterior(model, gaussian, network, rows, tmp_path):
    posterior, fresh = gaussian(model("words")), network("words")
    with torch.no_grad():
        fresh.words.weight[0] = -1.0
    again = through_a_file(posterior, tmp_path, fresh)
    assert_close(again.sample(1)["words.weight"][0, 0], torch.full((3,), 7.0).double(), rtol=0.0, atol=0.0)
    assert_same(posterior, again, rows("words"))
    assert_close(fresh.words.weight[0].detach(), torch.full((3,), -1.0).double(), rtol=0.0, atol=0.0)


class Counting(nn.Module):
    """It writes into a buffer also when it evaluates, remembers its output and always drops some of it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.last = nn.functional.dropout(self.layer(x), 0.5, training=True)
        return self.last


def test_what_was_found_out_about_the_network_is_known_after_loading(gaussian, rows, tmp_path):
    posterior = gaussian(bp.Model(Counting().double(), likelihood=likelihoods.Gaussian(0.5)))
    posterior.model.probe(rows("plain"), None)
    assert posterior.model.draws_globally
    again = through_a_file(posterior, tmp_path, Counting().double())
    assert again.model.draws_globally
    assert_same(posterior, again, rows("plain"))
    assert again.mean_network().layer.weight.shape == (1, 3)


def test_a_tied_network(gaussian, rows, tmp_path):
    def tied() -> nn.Sequential:
        first = nn.Linear(3, 3)
        return nn.Sequential(first, nn.Tanh(), first).double()

    posterior = gaussian(bp.Model(tied(), likelihood=likelihoods.Gaussian(0.5)))
    assert_same(posterior, through_a_file(posterior, tmp_path, tied()), rows("plain"))
