"""The loop: what is learnt and reported, devices and precisions; nothing of the user's is touched."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference import Info, Method
from bayesprop.posteriors import Delta


def test_it_learns(fit, model, method, pair):
    """A linear network on 200 rows: the exact posterior of Bayesian linear regression, precision X'X / 0.3^2 + 1.

    Mean-field's optimum has the exact mean, and variances 1 / Lambda_ii. The last steps have a rate of nearly zero, so
    that what is left of the noise of the gradient is far below the posterior's own width.
    """
    inputs, targets = pair(rows=200)
    design = torch.cat((inputs, torch.ones(200, 1).double()), dim=1)
    precision = design.T @ design / 0.09 + torch.eye(4).double()
    exact = torch.linalg.solve(precision, design.T @ targets / 0.09)
    how = method(learning_rate=0.03, schedule=bp.inference.Cosine(), kl_weights="uniform")
    posterior = fit(model("linear"), (inputs, targets), how, epochs=400, batch_size=None, report_every=400)
    width = precision.diagonal().rsqrt()
    assert ((posterior.mean()[0] - exact).abs() < 0.2 * width).all()
    assert_close(posterior.std()[0], width, rtol=0.1, atol=0.0)


# -- history ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("every", "epochs"), [(1, [1, 2, 3, 4, 5, 6, 7]), (3, [3, 6, 7]), (7, [7]), (50, [7])])
def test_the_history_has_every_so_many_epochs_and_the_last(fit, every, epochs):
    history = fit(epochs=7, report_every=every).context.history
    assert [entry["epoch"] for entry in history] == epochs
    assert [entry["step"] for entry in history] == [3 * epoch for epoch in epochs]
    for entry in history:
        assert set(entry) == {"epoch", "step", "log_likelihood", "kl", "elbo"}
        assert all(type(value) in (int, float) and math.isfinite(value) for value in entry.values())
        assert entry["elbo"] == entry["log_likelihood"] - entry["kl"]


def test_reports_change_nothing(fit, pair, same):
    same(fit(report_every=1), fit(report_every=3), history=False)
    same(fit(report_every=1, validation=pair()), fit(report_every=1), history=False)


def test_the_posterior_knows_where_it_comes_from(fit, method):
    how = method(learning_rate=0.02)
    context = fit(how=how, seed=11).context
    assert (context.num_data, context.seed, context.method) == (24, 11, how)
    assert context.scaling is context.classes is None


# -- repeatable, and nobody else's business ----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the fit is worse than")  # a few steps are not meant to fit
@pytest.mark.parametrize("network", ["tanh", "norm", "dropout"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_seed_gives_the_same_posterior(fit, model, same, network, dtype):
    first = fit(model(network, dtype), seed=1)
    torch.rand(5, generator=torch.default_generator)
    same(fit(model(network, dtype), seed=1), first)
    assert not torch.equal(fit(model(network, dtype), seed=2).mean(), first.mean())
    assert first.mean().dtype == dtype
    assert first.std().dtype == dtype


def test_double_precision_all_the_way(fit, pair):
    posterior = fit(validation=0.25, batch_size=6)
    prediction = posterior.predict(pair()[0], 4)
    for tensor in (*posterior.tensors().values(), prediction.mean, prediction.std, prediction.log_prob(pair()[1])):
        assert tensor.dtype == torch.float64
        assert tensor.isfinite().all()


def test_the_same_model_can_be_fitted_again(fit, model, same):
    made = model("norm")
    first = fit(made)
    before = {name: tensor.clone() for name, tensor in first.tensors().items()}
    fit(made, seed=5, starts=2)
    assert_close(first.tensors(), before, rtol=0.0, atol=0.0)
    same(fit(made), first)


def test_the_users_network_and_data_are_not_touched(fit, pair):
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    before, data = copy.deepcopy(network.state_dict()), pair()
    copies = [tensor.clone() for tensor in data]
    posterior = fit(bp.Model(network, likelihood=likelihoods.Gaussian(0.3)), data)
    assert_close(dict(network.state_dict()), dict(before), rtol=0.0, atol=0.0)
    assert all(parameter.grad is None for parameter in network.parameters())
    assert network.training
    assert_close(data, tuple(copies), rtol=0.0, atol=0.0)
    assert posterior.buffers["1.num_batches_tracked"].item() == 9


@pytest.mark.parametrize("network", ["tanh", "norm", "dropout"])
@pytest.mark.parametrize("starts", [1, 2])
def test_what_was_trained_is_saved_and_loaded(fit, model, pair, same, tmp_path, network, starts):
    posterior, (inputs, _) = fit(model(network), starts=starts, validation=0.25), pair()
    posterior.save(tmp_path / "saved.bayes")
    again = bp.load(tmp_path / "saved.bayes", network=model(network).network)
    same(again, posterior)
    assert again.context.method == posterior.context.method
    for question in ("mean", "std", "epistemic", "draws"):
        mine, theirs = (getattr(p.predict(inputs, 5), question) for p in (posterior, again))
        assert_close(theirs, mine, rtol=0.0, atol=0.0)


# -- device and precision ----------------------------------------------------------------------------------------------


class Watching(nn.Module):
    """A layer that remembers the types of its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.types = nn.Linear(3, 1), []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.layer(x)
        self.types.append((self.training, result.dtype))
        return result


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_for_the_forward_pass_of_a_step(fit, pair, dtype):
    made = bp.Model(Watching(), likelihood=likelihoods.Gaussian(0.3), prior=priors.Normal())
    plain, posterior = (fit(made, pair(dtype=torch.float32), autocast=choice) for choice in (None, dtype))
    trained = {kind for training, kind in made.network.types[-200:] if training}
    assert dtype in trained
    assert all(tensor.dtype == torch.float32 for tensor in posterior.tensors().values())
    assert posterior.predict(pair()[0], 3).mean.dtype == torch.float32
    assert not torch.equal(posterior.mean(), plain.mean())
    # Eight bits of the products are kept: the posteriors are neighbours.
    assert_close(posterior.mean(), plain.mean(), rtol=0.0, atol=0.05)


def test_the_device_of_the_posterior_is_the_one_that_was_asked_for(fit, model, same):
    made = model()
    posterior = fit(made, device="cpu")
    assert posterior.model is made
    assert posterior.mean().device == torch.device("cpu")
    same(posterior, fit())
    with pytest.raises((ConfigurationError, RuntimeError), match="nowhere"):
        fit(device="nowhere")


def test_data_and_model_are_moved(fit, model, monkeypatch):
    """There is one device here; who is asked to move is all that can be seen."""
    moved, made, original = [], model(), bp.Model.to

    def to(self, device):
        moved.append(device)
        return original(self, "cpu")

    monkeypatch.setattr(bp.Model, "to", to)
    fit(made, device="cuda:7")
    assert moved == ["cuda:7"]


# -- methods of others -------------------------------------------------------------------------------------------------


class Walk(Method):
    """The least that a method is: its state is a matrix, which each step makes larger by one."""

    def init(self, model, rng):
        return {"theta": torch.zeros(rng.particles, model.layout.size, dtype=model.dtype)}

    def update(self, model, state, batch, rng):
        state["theta"] += 1.0
        return state, Info(torch.full((rng.particles,), float(batch.index)))

    def posterior(self, model, state):
        return Delta(model, state["theta"].clone(), model.initial_buffers(len(state["theta"])))

    def memory(self, model, particles, rows):
        return 0


@pytest.mark.filterwarnings("ignore:the fit is worse than")  # a few steps are not meant to fit
def test_a_method_of_somebody_else(fit, tmp_path, same):
    posterior = fit(how=Walk(), checkpoint=tmp_path / "run.ckpt")
    assert_close(posterior.mean(), torch.full((1, 21), 9.0).double())
    assert [entry["log_likelihood"] for entry in posterior.context.history] == [1.0, 1.0, 1.0]  # (0 + 1 + 2) / 3
    assert "elbo" not in posterior.context.history[-1]
    same(fit(how=Walk(), checkpoint=tmp_path / "run.ckpt", resume=True), posterior)
