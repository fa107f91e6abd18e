import json
import warnings

import pytest
import torch
from torch import nn

from bayesprop import likelihoods
from bayesprop.errors import BayespropWarning, DivergenceError
from bayesprop.experiments import pictures, populations
from bayesprop.experiments.experiment import Bench, Unfinished
from bayesprop.inference import MLE, BayesByBackprop, Constant
from bayesprop.model import Model
from bayesprop.training import fit
from bayesprop.training.observers import Stop


@pytest.fixture
def split(data):
    return pictures.load("mnist", train=200, held_out=100)


@pytest.fixture
def bench(tmp_path):
    folder = tmp_path / "part"
    folder.mkdir()
    return Bench(folder, torch.device("cpu"), {}, tmp_path)


def model(dropout=()):
    return Model(populations.dense(784, 8, 10, dropout=dropout), likelihood=likelihoods.Categorical())


SEEDS = [{"seed": 0}, {"seed": 5}]


def test_networks():
    kinds = [type(layer) for layer in populations.dense(784, 8, 8, 10, dropout=(0.2, 0.5, 0.0))]
    assert kinds == [nn.Dropout, nn.Linear, nn.ReLU, nn.Dropout, nn.Linear, nn.ReLU, nn.Linear]
    assert [type(layer) for layer in populations.dense(4, 2)] == [nn.Linear]


def test_a_member_is_what_fit_would_make_of_it(bench, split):
    method = BayesByBackprop(learning_rate=1e-2)
    found = populations.train(bench, model(), split, method, SEEDS, epochs=2, curve_every=1, draws=4)
    alone = fit(model(), split.train, method, epochs=2, seed=5, progress=False)
    torch.testing.assert_close(found.posteriors[1].mean(), alone.mean(), rtol=1e-4, atol=1e-5)
    assert [posterior.context.seed for posterior in found.posteriors] == [0, 5]
    assert found.member_steps == 2 * 2 * 2
    assert found.engine
    assert [[point["epoch"] for point in curve] for curve in found.curves] == [[1, 2], [1, 2]]
    assert found.curves[1][-1]["error"] == pytest.approx(found.errors[1], abs=0.05), "the same rows, other draws"
    assert found.curves[0][0]["kl"] > 0
    assert json.loads(json.dumps(found.summary()))["validation_error"] == list(found.errors)


def test_schedules_have_names(bench, split):
    settings = [{"seed": 0, "schedule": name} for name in populations.SCHEDULES]
    found = populations.train(bench, model(), split, MLE(optimizer="sgd", learning_rate=0.1), settings, epochs=2)
    constant = fit(
        model(),
        split.train,
        MLE(optimizer="sgd", learning_rate=0.1, schedule=Constant()),
        epochs=2,
        seed=0,
        progress=False,
    )
    torch.testing.assert_close(found.posteriors[0].mean(), constant.mean(), rtol=1e-4, atol=1e-5)
    assert not torch.equal(found.posteriors[0].mean(), found.posteriors[1].mean())


def test_a_training_that_is_stopped_goes_on(bench, split, tmp_path):
    """In the middle of the second of three epochs; curves and weights are those of a training that was not."""
    method = MLE(learning_rate=1e-2)
    other = Bench(tmp_path / "other", torch.device("cpu"), {}, tmp_path)
    other.folder.mkdir()
    whole = populations.train(other, model(), split, method, SEEDS, epochs=3, curve_every=1, draws=1)

    class Stopping(Bench):
        def watch(self, event):
            return Stop if event.kind == "step" and event.step == 3 else None

    stopping = Stopping(bench.folder, bench.device, {}, tmp_path)
    with pytest.raises(Unfinished, match="6 steps of all members"):
        populations.train(stopping, model(), split, method, SEEDS, epochs=3, curve_every=1, draws=1)
    again = populations.train(bench, model(), split, method, SEEDS, epochs=3, curve_every=1, draws=1)
    assert torch.equal(again.posteriors[1].mean(), whole.posteriors[1].mean())
    assert again.curves == whole.curves


def test_warnings_of_the_library_are_kept_and_others_are_given_on(bench, split, monkeypatch):
    sweep = populations.sweep

    def warning(*arguments, **options):
        warnings.warn("of this library\n  received: more", BayespropWarning, stacklevel=1)
        warnings.warn("of another one", UserWarning, stacklevel=1)
        return sweep(*arguments, **options)

    monkeypatch.setattr(populations, "sweep", warning)
    with pytest.warns(UserWarning, match="of another one") as caught:
        found = populations.train(bench, model(), split, MLE(), SEEDS[:1], epochs=1)
    assert found.warnings[0] == "of this library"
    assert len(caught) == 1


def test_a_member_that_diverges_says_so(bench, split):
    settings = [{"seed": 0, "learning_rate": 1e20}, {"seed": 0, "learning_rate": 0.01}]
    found = populations.train(bench, model(), split, MLE(optimizer="sgd"), settings, epochs=2, curve_every=1)
    assert found.members[0] is None
    assert found.errors[0] is None
    assert found.fates[0].startswith("diverged")
    assert len(found.posteriors) == 1
    assert populations.best(found, 1) == (1, [None, found.errors[1]])
    json.dumps(found.summary(), allow_nan=False)


def population(errors, nlls):
    nothing = ("",) * len(errors)
    settings = tuple({} for _ in errors)
    return populations.Population(
        settings, (None,) * len(errors), errors, nlls, ((),) * len(errors), nothing, "", 0, 0, ()
    )


def test_the_best_is_the_lowest_mean():
    assert populations.best(population((0.2, 0.4, 0.3, 0.1), (1.0,) * 4), 2) == (1, pytest.approx([0.3, 0.2]))
    assert populations.best(population((0.2, 0.2), (2.0, 1.0)), 1)[0] == 1, "equal errors, lower NLL"
    assert populations.best(population((None, 0.1, 0.3, 0.3), (None, 1.0, 1.0, 1.0)), 2)[0] == 1
    with pytest.raises(DivergenceError, match="every candidate has diverged"):
        populations.best(population((None,), (None,)), 1)


def test_predictions_are_judged(bench, split):
    trained = populations.train(bench, model((0.5, 0.5)), split, MLE(), SEEDS[:1], epochs=2)
    (posterior,) = trained.posteriors
    found = populations.judge([posterior], split.test, draws=50)
    prediction = posterior.predict(split.test.inputs, 1)
    assert found["error"] == [pytest.approx(float((prediction.mean.argmax(1) != split.test.targets).double().mean()))]
    assert found["nll"] == [pytest.approx(-float(prediction.log_prob(split.test.targets).mean()), rel=1e-5)]
    assert 0.0 <= found["calibration_error"][0] <= 1.0
    assert "together_error" not in found


def test_several_posteriors_are_judged_together(bench, split):
    trained = populations.train(bench, model(), split, BayesByBackprop(learning_rate=1e-2), SEEDS, epochs=3)
    found = populations.judge(trained.posteriors, split.test, draws=10)
    mean = torch.stack([posterior.predict(split.test.inputs, 10).mean for posterior in trained.posteriors]).mean(0)
    wrong = (mean.argmax(1) != split.test.targets).double().mean()
    assert found["together_error"] == [pytest.approx(float(wrong))]
    right = mean.gather(1, split.test.targets[:, None])
    assert found["together_nll"] == [pytest.approx(-float(right.log().mean()), rel=1e-4)]
    assert found["together_nll"][0] < max(found["nll"]), "a mixture is no worse than the worst of its parts"
