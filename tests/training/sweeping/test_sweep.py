"""Sweeps: each setting is what it would be alone, the best on validation data win, and nothing is lost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import BayespropWarning, ConfigurationError, DivergenceError
from bayesprop.random_weights import LocalReparameterization
from bayesprop.training.sweeping.addresses import Setup, apply


def alone(
    fit, made: bp.Model, how, values: dict[str, Any], data: Any = None, **changes: Any
) -> bp.posteriors.Posterior:
    """What `fit` returns for one setting."""
    setup = apply(Setup(how, made.prior, made.likelihood, changes.pop("seed", 0), 8, 3), values)
    model = bp.Model(made.network, likelihood=setup.likelihood, prior=setup.prior)
    own = {"seed": setup.seed, "batch_size": setup.batch_size, "epochs": setup.epochs, **changes}
    return fit(model, data, setup.method, **own)


def check(found: bp.training.Sweep, fit, made, how, tolerance: float, **changes: Any) -> None:
    """Every winner against its own fit: moments, buffers, scores on the same validation data."""
    assert found.posteriors
    for posterior, row in zip(found.posteriors, found.rows, strict=False):
        expected = alone(fit, made, how, row.values, **changes)
        for mine, theirs in ((posterior.tensors(), expected.tensors()), (posterior.buffers, expected.buffers)):
            assert_close(dict(mine), dict(theirs), rtol=tolerance, atol=tolerance)
        assert posterior.context.seed == expected.context.seed
        assert posterior.context.num_data == expected.context.num_data
        assert posterior.model.prior == expected.model.prior


GRIDS: dict[str, Any] = {
    "everything that particles have for themselves": [
        {"learning_rate": 0.01, "seed": 3},
        {"learning_rate": 0.03, "prior.scale": 0.3, "temperature": 0.5},
        {"scale_learning_rate": 0.02, "initial_scale": 0.1, "kl_weights": "geometric"},
        {"schedule": bp.inference.Cosine(), "clip_norm": 0.5, "prior.loc": 0.2, "seed": 9},
        {"clip_norm": 2.0, "prior.loc": -0.2},
    ],
    "groups": {"samples": [1, 2], "learning_rate": [0.01, 0.02], "batch_size": [8, 12]},
    "mixture": {"prior": [priors.ScaleMixture()], "prior.pi": [0.25, 0.75], "prior.scale1": [math.exp(-1), 1.0]},
    "hierarchical": {"prior": [priors.Normal(scale=priors.HalfCauchy())], "prior.scale.scale": [0.1, 1.0, 3.0]},
    "several families": [{"prior": prior} for prior in (priors.Laplace(), priors.Normal(), priors.StudentT(3.0))],
    "estimators": [{"estimator": LocalReparameterization()}, {"optimizer": torch.optim.RMSprop}, {"epochs": 2}],
    "noise": {"likelihood.scale": [0.1, 0.3]},
}


@pytest.mark.parametrize("grid", GRIDS)
def test_a_setting_is_what_fit_makes_of_it(sweep, fit, model, method, grid):
    """In float64; what differs is the rounding of batched products."""
    found = sweep(GRIDS[grid])
    assert all("finished" in row.fate for row in found.rows)
    check(found, fit, model(), method(), 1e-9)


@pytest.mark.parametrize("network", ["dropout", "norm"])
def test_networks_with_a_life_of_their_own(sweep, fit, model, method, network):
    """A network that draws numbers for itself draws other ones in company, so it goes alone here.

    A bias before batch statistics has a gradient that is nothing but rounding, of which Adam would make whole steps.
    """
    grid = {"learning_rate": [0.01, 0.02]} if network == "norm" else {"learning_rate": [0.01]}
    how = method(optimizer="momentum")
    check(sweep(grid, model(network), how), fit, model(network), how, 1e-9)


def test_a_convolutional_network(sweep, fit, method):
    network = nn.Sequential(
        nn.Conv2d(1, 3, 3, bias=False),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Conv2d(3, 4, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 3),
    )
    made = bp.Model(network.double(), likelihood=likelihoods.Categorical())
    images = torch.randn(44, 1, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = images.flatten(1)[:, :3].argmax(1)
    train, held_out = (images[:24], labels[:24]), (images[24:], labels[24:])
    grid = {"learning_rate": [0.01, 0.03], "prior.scale": [0.3, 1.0], "seed": [0, 1]}
    found = sweep(grid, made, data=train, validation=held_out)
    check(found, fit, made, method(), 1e-9, data=train)
    assert "error" in str(found)


def test_in_float32_to_rounding(sweep, fit, model, method, pair):
    """The native passes, where there is a compiler; Adam makes more of rounding where gradients are next to nothing."""
    made, data = model(dtype=torch.float32), pair(dtype=torch.float32)
    found = sweep({"learning_rate": [0.01, 0.02], "prior.scale": [0.3, 1.0]}, made, data=data)
    check(found, fit, made, method(), 1e-4, data=data)


@dataclass(frozen=True)
class Trio(bp.inference.BayesByBackprop):
    """A method that trains three particles together and keeps them."""

    population: int = 3


def test_a_method_of_several_particles_goes_by_itself(sweep, fit, model):
    how = Trio(optimizer="momentum", schedule=bp.inference.Constant())
    found = sweep({"learning_rate": [0.01, 0.02], "seed": [3, 4]}, how=how, rungs=(0.5,), keep=1.0, winners=4)
    assert found.plan.startswith("4 settings of 4 structures, at most 1 at a time in 4 populations")
    assert [posterior.particles for posterior in found.posteriors] == [3] * 4
    check(found, fit, model(), how, 1e-9)


@pytest.mark.parametrize("how", [bp.inference.MAP(optimizer="momentum"), bp.inference.SGLD(learning_rate=1e-3)])
def test_other_methods(sweep, fit, model, how):
    """One that has a rate for each particle, and one that collects samples."""
    found = sweep(
        {"learning_rate": [1e-3, 1e-4], "prior.scale": [0.5, 1.0]}, how=how, rungs=(0.5,), keep=1.0, winners=4
    )
    check(found, fit, model(), how, 1e-9)


def test_streams(sweep, fit, model, method, pair):
    loader = DataLoader(TensorDataset(*pair()), batch_size=8, shuffle=True)
    found = sweep({"learning_rate": [0.01, 0.02], "samples": [1, 2]}, data=loader)
    check(found, fit, model(), method(), 1e-9, data=loader)


def test_a_budget_changes_nothing_but_the_populations(sweep, fit, model, method):
    grid = {"learning_rate": [0.01, 0.02, 0.03], "prior.scale": [0.5, 1.0]}
    populations = []

    def watch(event):
        if event.kind == "step":
            populations.append((event.metrics["wave"], event.metrics["settings"]))

    found = sweep(grid, memory=30_000, observers=[watch], rungs=(0.4,), keep=1.0, winners=6)
    assert len(set(populations)) > 1
    assert max(settings for _, settings in populations) < 6
    assert " populations: up to " in found.plan
    check(found, fit, model(), method(), 1e-9)


def test_what_is_believed_can_be_looked_at(sweep):
    """The settings in training at the end of each epoch, as many as `members` numbers."""
    seen = {}

    def watch(event):
        if event.kind == "epoch":
            seen[event.epoch, tuple(event.metrics["members"])] = event.posterior()

    found = sweep({"learning_rate": [0.01, 0.02]}, observers=[watch])
    assert list(seen) == [(epoch, (0, 1)) for epoch in range(3)]
    for row, posterior in zip(found.rows, found.posteriors, strict=True):
        last = seen[2, (0, 1)].member(row.number)
        assert_close(dict(last.tensors()), dict(posterior.tensors()), rtol=1e-14, atol=0.0)


def test_standardised_data_and_validation_in_the_users_units(sweep, fit, model, method, pair, held_out):
    """Scores are those of the standardised targets, as `fit` reports them; predictions are in the user's units."""
    (inputs, targets), (others, more) = pair(), held_out
    data = bp.Data(3.0 + 2.0 * inputs, 50.0 + 10.0 * targets, standardize=True)
    validation = (3.0 + 2.0 * others, 50.0 + 10.0 * more)
    found = sweep({"learning_rate": [0.01, 0.02]}, data=data, validation=validation, draws=16)
    check(found, fit, model(), method(), 1e-9, data=data)
    expected = alone(fit, model(), method(), found.rows[0].values, data=data, validation=validation, report_every=3)
    last = expected.context.history[-1]
    assert found.rows[0].scores[-1].nll == pytest.approx(last["validation_nll"], rel=1e-9)
    assert found.rows[0].scores[-1].error == pytest.approx(last["validation_rmse"], rel=1e-9)
    prediction = found.best.predict(validation[0])
    assert_close(prediction.mean, expected.predict(validation[0]).mean, rtol=1e-7, atol=1e-7)
    assert 20.0 < float(prediction.mean.mean()) < 80.0


def test_classes_with_names(sweep, pair):
    (inputs, targets), network = pair(), nn.Linear(3, 2).double()
    names = ["low" if value < 0 else "high" for value in targets.tolist()]
    made = bp.Model(network, likelihood=likelihoods.Categorical())
    found = sweep(
        {"learning_rate": [0.01, 0.05]}, made, data=bp.Data(inputs, names), validation=0.25, winners=1, rungs=()
    )
    assert set(found.best.predict(inputs).label) <= {"low", "high"}
    assert found.best.context.classes == ["high", "low"]


# -- choosing ---------------------------------------------------------------------------------------------------------


def test_the_best_on_validation_data_win(sweep, held_out):
    found = sweep({"learning_rate": [0.001, 0.01, 0.05], "prior.scale": [0.1, 1.0]}, winners=2, rungs=())
    scores = [row.scores[-1].nll for row in found.rows]
    assert scores == sorted(scores)
    assert [row.fate for row in found.rows[:3]] == [
        "finished, place 1 of 6, chosen",
        "finished, place 2 of 6, chosen",
        "finished, place 3 of 6",
    ]
    assert len(found.posteriors) == 2
    for posterior, row in zip(found.posteriors, found.rows, strict=False):
        inputs, targets = held_out
        prediction = posterior.predict(inputs, 4)
        assert row.scores[-1].nll == pytest.approx(-float(prediction.log_prob(targets).mean()), rel=1e-9)
        assert row.scores[-1].error == pytest.approx(
            float((prediction.mean - targets).square().mean().sqrt()), rel=1e-9
        )
        assert posterior.context.history == [
            {"epoch": 3, "step": 9, "validation_nll": row.scores[0].nll, "validation_rmse": row.scores[0].error}
        ]


def test_by_error_where_that_is_asked_for(sweep):
    found = sweep({"learning_rate": [0.001, 0.01, 0.05], "temperature": [0.1, 10.0]}, choose_by="error", winners=6)
    errors = [row.scores[-1].error for row in found.rows]
    assert errors == sorted(errors)
    assert "by validation RMSE" in found.summary()


def test_the_hopeless_are_dropped_and_the_winner_is_trained_to_the_end(sweep, fit, model, method):
    grid = {"learning_rate": [1e-5, 1e-4, 1e-3, 0.01, 0.02, 0.03], "prior.scale": [0.5, 1.0]}
    found = sweep(grid, rungs=(1 / 6, 0.5), keep=0.34, epochs=6)
    assert [len(row.scores) for row in found.rows] == [3] * 2 + [2] * 3 + [1] * 7
    assert [row.steps for row in found.rows] == [18] * 2 + [9] * 3 + [3] * 7
    assert [row.fate for row in found.rows[5:7]] == [
        "dropped at epoch 1: place 6 of 12, 5 go on",
        "dropped at epoch 1: place 7 of 12, 5 go on",
    ]
    check(found, fit, model(), method(), 1e-9, epochs=6)
    # Nothing else was better at the rung where it was dropped.
    for rung, left in ((0, 5), (1, 2)):
        here = [row.scores[rung].nll for row in found.rows if len(row.scores) > rung]
        assert sorted(here)[:left] == sorted(row.scores[rung].nll for row in found.rows[:left])


def test_winners_are_saved_and_loaded_like_any_posterior(sweep, model, tmp_path, pair):
    found = sweep({"learning_rate": [0.01, 0.02], "prior.scale": [0.5, 1.0]}, winners=1, rungs=())
    found.best.save(tmp_path / "best.bayes")
    again = bp.load(tmp_path / "best.bayes", network=model().network)
    assert again.model.prior == priors.Normal(scale=found.best_values["prior.scale"])
    assert again.context.method.learning_rate == found.best_values["learning_rate"]
    assert_close(again.predict(pair()[0]).mean, found.best.predict(pair()[0]).mean, rtol=0.0, atol=0.0)


def test_a_share_of_the_rows_is_held_back_as_by_fit(sweep, fit, model, method):
    found = sweep({"learning_rate": [0.01, 0.02]}, validation=0.25, seed=5, batch_size=6)
    assert found.best.context.num_data == 18
    check(found, fit, model(), method(), 1e-9, validation=0.25, seed=5, batch_size=6)


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_member_that_diverges_is_dropped_and_the_others_go_on(sweep, fit, model, method):
    grid = {"learning_rate": [0.01, 1e200, 0.02], "optimizer": ["sgd"]}
    found = sweep(grid, rungs=(0.3,), keep=1.0, winners=2)
    assert [row.number for row in found.rows[2:]] == [1]
    assert found.rows[2].fate.startswith("diverged: the log-likelihood was not finite first at step")
    assert "1 diverged" in found.summary()
    check(found, fit, model(), method(), 1e-9)


def test_when_all_diverge_it_is_an_error(sweep):
    with pytest.raises(DivergenceError, match="every setting has diverged") as caught:
        sweep({"learning_rate": [1e200, 1e250], "optimizer": ["sgd"]})
    assert "number 0 (learning_rate = 1e+200" in str(caught.value)
    assert 'write: {"learning_rate": [1e-4, 1e-3]}' in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message", "write"),
    [
        ({"validation": None}, "chosen on data that they were not trained on", "validation=0.1"),
        ({"winners": 3}, "fewer settings than winners", "winners=2"),
        ({"winners": 0}, "sweep: winners must be at least 1", "winners=1"),
        ({"epochs": 0}, "sweep: epochs must be at least 1", "epochs=1"),
        ({"seed": 0.5}, "sweep: seed must be a whole number", "seed=1"),
        (
            {"how": {"learning_rate": [1]}},
            "sweep takes the method first and the grid after it",
            "bp.sweep(model, data, bp.",
        ),
        ({"how": bp.inference.MAP}, "sweep needs a method", "bp.sweep(model, data, bp.inference.MAP(), grid)"),
        ({"observers": 3}, "sweep: observers are a list of functions", "observers=[print]"),
        ({"choose_by": "accuracy"}, "chosen by a score on validation data", 'choose_by="nll"'),
        ({"rungs": 3}, "rungs are the shares of the training", "rungs=(1/6, 1/2)"),
        ({"keep": 2}, "keep is the share of the settings", "keep=1/3"),
        ({"memory": 0.5}, "memory must be a whole number", "memory=1"),
        ({"resume": True}, "there is no file to resume from", 'checkpoint="run.ckpt", resume=True'),
    ],
)
def test_bad_calls_are_refused(sweep, change, message, write):
    with pytest.raises(ConfigurationError) as caught:
        sweep({"learning_rate": [0.01, 0.02]}, **{"rungs": (), **change})
    assert message in str(caught.value)
    assert f"write: {write}" in str(caught.value)


def test_training_data_are_no_validation_data(sweep, pair):
    data = pair()
    with pytest.raises(ConfigurationError, match="these are the training data") as caught:
        sweep({"learning_rate": [0.01]}, data=data, validation=data)
    assert "write: validation=0.1" in str(caught.value)


def test_no_share_of_a_stream_can_be_held_back(sweep, pair):
    loader = DataLoader(TensorDataset(*pair()), batch_size=8)
    with pytest.raises(ConfigurationError, match="a share of a stream cannot be held back"):
        sweep({"learning_rate": [0.01]}, data=loader, validation=0.1)


def test_the_plan_is_told_before_anything_is_spent(sweep):
    events = []

    def stop(event):
        events.append(event)
        return bp.observers.Stop

    with pytest.warns(BayespropWarning, match="the sweep was stopped at rung 1 of 1"):
        found = sweep({"learning_rate": [0.01, 0.02]}, observers=[stop])
    assert [event.kind for event in events] == ["start", "end"]
    assert "2 settings of one structure" in events[0].metrics["plan"]
    assert [row.fate for row in found.rows] == ["not trained", "not trained"]
    assert found.interrupted
    assert found.posteriors == ()
