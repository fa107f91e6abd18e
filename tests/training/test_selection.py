"""Choosing: early stopping on validation data, and the best of several starts."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Normal
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import bayesprop as bp
from bayesprop import inference, priors
from bayesprop.data import Data
from bayesprop.inference.method import state_tensors
from bayesprop.rng import Rng, member_seed
from bayesprop.training.checkpoint import Progress
from bayesprop.training.observers import Stop
from bayesprop.training.selection import check_finite, exhausted, keep_best


@pytest.fixture
def progress(model, method):
    made = model()
    state = method().init(made, Rng.create(0))
    return made, Progress(state, torch.zeros(1).double(), torch.full((1,), 2**62))


def test_the_best_state_is_remembered_as_it_was(progress):
    _, now = progress
    kept = []
    for epoch, score in enumerate([2.0, 1.0, 1.0, math.nan, 3.0]):
        now.epoch = epoch
        now.state.mean.fill_(float(epoch))
        keep_best(now, {"validation_nll": score})
        kept.append(now.best_epoch)
    assert kept == [0, 1, 1, 1, 1]  # not a better one, no number, a worse one
    assert now.best_score == 1.0
    assert now.best.keys() == state_tensors(now.state).keys()
    assert_close(now.best["mean"], torch.ones_like(now.state.mean))


@pytest.mark.parametrize(
    ("best", "over"), [(-1, [False, False, True]), (0, [False, False, False]), (1, [False, False, False])]
)
def test_patience_ends(progress, best, over):
    _, now = progress
    now.best_epoch = best
    found = []
    for epoch in (1, 2, 3):
        now.epoch = epoch
        found.append(exhausted(now, 3))
    assert found == over
    now.epoch = best + 4
    assert exhausted(now, 3)
    assert not exhausted(now, None)


def test_a_particle_is_finite_in_weights_and_in_values(progress, method):
    made, now = progress
    posterior = method().posterior(made, now.state)
    assert check_finite(posterior, now, None) is None
    posterior.tensors()["mean"][0, 3] = math.inf
    with pytest.raises(ArithmeticError, match="the KL term: mean of the posterior are not finite"):
        check_finite(posterior, now, None)
    now.first_bad[0] = 17
    with pytest.raises(ArithmeticError, match="was not finite first at step 17"):
        check_finite(method().posterior(made, now.state), now, None)


# -- early stopping ---------------------------------------------------------------------------------------------------


def contrary(pair) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Training data, and validation data that agree with them until training takes their noise for a rule."""
    (inputs, targets), (others, more) = pair(), pair(seed=2)
    return (inputs, targets), (others, 0.3 * more)


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("patience", [1, 3])
def test_training_stops_after_so_many_reports_and_returns_the_best_state(
    fit, model, method, pair, same, every, patience
):
    data, validation = contrary(pair)
    how = method(learning_rate=0.05)
    run = {"epochs": 60, "report_every": every, "validation": validation}
    stopped = fit(model(), data, how, patience=patience, **run)
    scores = [entry["validation_nll"] for entry in stopped.context.history]
    best = min(range(len(scores)), key=scores.__getitem__)
    assert 1 <= best < len(scores) - 1
    assert len(scores) == best + 1 + patience
    epochs = stopped.context.history[best]["epoch"]
    assert epochs == every * (best + 1)
    # What is returned is what a training of just that many epochs ends with.
    same(stopped, fit(model(), data, how, **{**run, "epochs": epochs}), history=False)
    # Without patience the same data stop nothing, and the last state is returned.
    whole = fit(model(), data, how, **run)
    assert len(whole.context.history) == 60 // every
    assert not torch.equal(whole.mean(), stopped.mean())


def test_a_training_that_keeps_getting_better_runs_to_its_end(fit, pair):
    posterior = fit(validation=pair(), patience=2, epochs=4)
    scores = [entry["validation_nll"] for entry in posterior.context.history]
    assert len(scores) == 4
    assert scores == sorted(scores, reverse=True)


def test_the_share_of_validation_rows_is_the_split_of_the_seed(fit, pair, same):
    train, held_out = Data(*pair()).split(0.25, seed=5)
    share = fit(validation=0.25, seed=5, batch_size=6)
    assert share.context.num_data == 18
    same(share, fit(data=train, validation=held_out, seed=5, batch_size=6))
    assert all("validation_nll" in entry for entry in share.context.history)


@pytest.mark.parametrize("kind", ["pair", "dataset", "loader", "data"])
def test_validation_data_of_any_kind(fit, model, pair, kind):
    inputs, targets = pair(seed=3)
    dataset = TensorDataset(inputs, targets)
    loader = DataLoader(dataset, batch_size=5)
    validation = {"pair": (inputs, targets), "dataset": dataset, "loader": loader, "data": Data(inputs, targets)}[kind]
    posterior = fit(validation=validation)
    prediction = posterior.predict(inputs, 16)
    last = posterior.context.history[-1]
    assert last["validation_nll"] == pytest.approx(-float(prediction.log_prob(targets).mean()), rel=1e-9)
    assert last["validation_rmse"] == pytest.approx(float((prediction.mean - targets).square().mean().sqrt()), rel=1e-9)
    assert 0.0 < last["epistemic_share"] < 1.0


def test_validation_rows_are_scaled_as_the_training_rows(fit, pair):
    (inputs, targets), (others, more) = pair(), pair(seed=3)
    data = Data(3.0 + 2.0 * inputs, 50.0 + 10.0 * targets, standardize=True)
    posterior = fit(data=data, validation=(3.0 + 2.0 * others, 50.0 + 10.0 * more))
    prediction = posterior.predict(3.0 + 2.0 * others, 16)
    scale = float(data.scaling.target_std)
    found = posterior.context.history[-1]["validation_nll"]
    # On the scale of the standardised targets, as the ELBO is.
    expected = -float(prediction.log_prob(50.0 + 10.0 * more).mean()) - math.log(scale)
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("standardize", [False, True])
def test_validation_inputs_of_another_width_are_refused_before_the_first_step(fit, pair, standardize):
    events, (inputs, targets) = [], pair()
    message = "another shape than those of training" if standardize else "the network cannot take these inputs"
    with pytest.raises(bp.errors.DataError, match=message):
        fit(
            data=Data(inputs, targets, standardize=standardize),
            validation=(inputs[:, :1], targets),
            report_every=3,
            observers=[events.append],
        )
    assert events == []


def test_no_share_of_a_stream_can_be_held_back(fit, pair):
    loader = DataLoader(TensorDataset(*pair()), batch_size=8)
    with pytest.raises(bp.errors.ConfigurationError, match="a share of a stream cannot be held back") as caught:
        fit(data=loader, validation=0.1)
    assert "received: validation=0.1" in str(caught.value)
    assert "write: validation=another_loader" in str(caught.value)


# -- several starts ---------------------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("network", ["tanh", "norm", "dropout"])
@pytest.mark.parametrize("loader", [False, True])
def test_the_start_with_the_best_elbo_is_returned_and_all_are_in_the_history(fit, model, pair, network, loader):
    """Its ELBO from 32 draws is that of the posterior from 2000, to five standard errors of their difference."""
    data = DataLoader(TensorDataset(*pair()), batch_size=8, shuffle=True) if loader else pair()
    posterior = fit(model(network), data, starts=4)
    assert posterior.particles == 1
    last = posterior.context.history[-1]
    objectives = last["start_elbos"]
    assert len(objectives) == len(set(objectives)) == 4
    assert last["best_start"] == max(range(4), key=objectives.__getitem__)
    assert all("start_elbos" not in entry for entry in posterior.context.history[:-1])
    inputs, targets = pair()
    each = Normal(posterior.predict(inputs, 2000).draws, 0.3).log_prob(targets).sum(1)
    found = float(each.mean() - posterior.kl())
    assert abs(max(objectives) - found) < 5.0 * float(each.std()) * math.sqrt(1.0 / 32 + 1.0 / 2000)


def test_a_start_is_what_it_would_be_alone(fit, model, pair):
    """Seeds of particles are functions of (seed, particle); rounding differs, as products of matrices are batched."""
    posterior = fit(starts=3, seed=4)
    best = posterior.context.history[-1]["best_start"]
    alone = fit(seed=member_seed(4, best))
    assert_close(posterior.mean(), alone.mean(), rtol=1e-9, atol=1e-11)
    assert_close(posterior.std(), alone.std(), rtol=1e-9, atol=1e-11)


def test_starts_are_compared_also_before_the_first_report(fit):
    stopped = fit(starts=3, observers=[lambda event: Stop if event.step == 2 else None])
    (entry,) = stopped.context.history
    assert set(entry) == {"start_elbos", "best_start"}
    assert entry["best_start"] == max(range(3), key=entry["start_elbos"].__getitem__)


def test_a_single_start_has_nothing_to_choose(fit):
    assert all("start_elbos" not in entry for entry in fit().context.history)


@pytest.mark.parametrize("kind", [inference.MAP, inference.MLE])
def test_the_best_of_several_points_is_judged_by_what_they_maximise(model, pair, kind):
    """Log joint for MAP, log-likelihood for maximum likelihood, each written out for every start."""
    made, data = model(prior=priors.Normal(scale=0.05)), pair()
    chosen = bp.fit(made, data, kind(), epochs=4, batch_size=8, starts=3, progress=False)
    whole = bp.fit(
        made, data, inference.DeepEnsemble(kind(), members=3), epochs=4, batch_size=8, progress=False
    ).moments()[0]
    inputs, targets = data
    batch = bp.model.Batch(inputs.expand(3, *inputs.shape), targets[:, None].expand(3, -1, 1), len(inputs))
    made.set_mode(False)
    value = made.log_likelihood(whole[:, None], {}, batch)[:, 0]
    if kind is inference.MAP:
        value = value + made.log_prior(whole)
    best = int(value.argmax())
    torch.testing.assert_close(chosen.moments()[0][0], whole[best], rtol=1e-9, atol=1e-11)
    found = torch.tensor(chosen.context.history[-1]["start_elbos"], dtype=torch.float64)
    torch.testing.assert_close(found, value.detach(), rtol=1e-9, atol=1e-9)
