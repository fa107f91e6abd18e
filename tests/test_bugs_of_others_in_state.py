"""Mistakes that libraries of this kind have made: files, copies, random generators and populations.

The docstring of a test says what goes wrong elsewhere; see `test_bugs_of_others.py`.
"""

from __future__ import annotations

import copy
import math
import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayesprop as bp
from bayesprop import likelihoods, priors


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


INPUTS, LABELS = numbers(20, 3), torch.arange(20) % 2
QUANTITIES = 100.0 + 50.0 * numbers(20, seed=1)


def network(outputs: int = 2) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs))


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


def fit(net=None, data=(INPUTS, LABELS), *, likelihood=None, prior=None, how=None, **settings: Any):
    likelihood, prior = likelihood or likelihoods.Categorical(), prior or priors.Normal(scale=1.0)
    model = bp.Model(net or network(), likelihood=likelihood, prior=prior)
    settings = {"epochs": 2, "batch_size": 8, "seed": 0, "starts": 1, **settings}
    return bp.fit(model, data, how or bayes(), progress=False, **settings)


def same(one, other) -> None:
    for left, right in zip(one.moments(), other.moments(), strict=True):
        torch.testing.assert_close(left, right, rtol=0.0, atol=0.0)


def far(one: Tensor, other: Tensor) -> bool:
    return float((one - other).abs().max()) > 1e-3


# -- files -------------------------------------------------------------------------------------------------------------

PRIORS = {
    "a scale": priors.Normal(loc=0.3, scale=0.2),
    "a mixture": priors.ScaleMixture(pi=0.25, scale1=0.7, scale2=0.01),
    "a mapping": {"0.*": priors.Laplace(scale=0.3), "*": priors.StudentT(df=5.0, scale=0.4)},
    "a hyperprior": priors.Normal(scale=priors.HalfCauchy(0.5, shared="layer")),
}


@pytest.mark.parametrize("name", PRIORS)
def test_priors_survive_a_file(name, tmp_path):
    """The prior is no part of what is saved: after loading, the divergence is that from another prior."""
    posterior = fit(prior=PRIORS[name])
    posterior.save(tmp_path / "posterior.bayes")
    loaded = bp.load(tmp_path / "posterior.bayes", network=network())
    same(loaded, posterior)
    assert loaded.model.prior == PRIORS[name]
    torch.testing.assert_close(loaded.kl(draws=4), posterior.kl(draws=4), rtol=0.0, atol=0.0)
    default = bp.posteriors.DiagonalGaussian(fit().model, *fit().tensors().values(), {})
    assert abs(float(default.kl(draws=4)) - float(loaded.kl(draws=4))) > 1.0


def test_everything_that_predictions_need_survives_a_file(tmp_path):
    """The noise, N, the units and the names of the classes are lost, and predictions are in other units."""
    data = bp.Data(INPUTS, QUANTITIES, standardize=True)
    likelihood = likelihoods.Gaussian(scale=priors.HalfNormal(0.7))
    posterior = fit(network(1), data, likelihood=likelihood, epochs=30)
    posterior.save(tmp_path / "posterior.bayes")
    loaded = bp.load(tmp_path / "posterior.bayes", network=network(1))
    assert loaded.context.num_data == 20
    assert loaded.model.likelihood == likelihood
    here, there = (fitted.predict(INPUTS, draws=6) for fitted in (posterior, loaded))
    for question in ("mean", "std", "epistemic", "entropy"):
        torch.testing.assert_close(getattr(there, question), getattr(here, question), rtol=0.0, atol=0.0)
    assert 20.0 < float(there.mean.mean()) < 180.0
    named = fit(data=(INPUTS, np.array(["no", "yes"])[LABELS.numpy()]))
    named.save(tmp_path / "named.bayes")
    label = bp.load(tmp_path / "named.bayes", network=network()).predict(INPUTS, draws=6).label
    assert label.tolist() == named.predict(INPUTS, draws=6).label.tolist()


def test_a_frozen_posterior_can_be_loaded(tmp_path):
    """What was frozen to its mean is saved under names that a fresh object does not have."""
    frozen = fit().at_mean()
    frozen.save(tmp_path / "frozen.bayes")
    loaded = bp.load(tmp_path / "frozen.bayes", network=network())
    torch.testing.assert_close(
        loaded.predict(INPUTS, draws=2).mean, frozen.predict(INPUTS, draws=2).mean, rtol=0.0, atol=0.0
    )
    assert float(loaded.predict(INPUTS, draws=2).epistemic.max()) == 0.0


class StopAfter:
    """An observer that ends the training after some steps."""

    def __init__(self, steps: int):
        self.steps = steps

    def __call__(self, event):
        return bp.observers.Stop if event.kind == "step" and event.step >= self.steps else None


@pytest.mark.parametrize("optimizer", ["adam", torch.optim.NAdam, bp.inference.SGD(momentum=0.9)])
def test_the_number_of_the_step_survives_a_file(optimizer, tmp_path):
    """The step counter is not saved: after a pause Adam corrects its moments as if they were fresh."""
    how, path = bayes(optimizer=optimizer), tmp_path / "run.ckpt"
    whole = fit(how=how, epochs=4)
    paused = fit(how=how, epochs=4, checkpoint=path, observers=[StopAfter(5)])
    resumed = fit(how=how, epochs=4, checkpoint=path, resume=True)
    same(resumed, whole)
    assert far(paused.mean(), whole.mean())


# -- copies ------------------------------------------------------------------------------------------------------------


def test_copies_after_a_forward_pass():
    """A network that has been run holds tensors with a history, and cannot be copied any more."""
    net = network()
    posterior = fit(net)
    expected = posterior.predict(INPUTS, draws=4).mean
    frozen = posterior.mean_network()
    frozen(INPUTS).sum().backward()
    copies = copy.deepcopy((net, frozen, posterior, posterior.model))
    torch.testing.assert_close(copies[1](INPUTS), frozen(INPUTS), rtol=0.0, atol=0.0)
    torch.testing.assert_close(copies[2].predict(INPUTS, draws=4).mean, expected, rtol=0.0, atol=0.0)
    again = bp.fit(copies[3], (INPUTS, LABELS), bayes(), epochs=2, batch_size=8, seed=0, starts=1, progress=False)
    same(again, posterior)
    torch.testing.assert_close(pickle.loads(pickle.dumps(frozen))(INPUTS), frozen(INPUTS), rtol=0.0, atol=0.0)


def test_samples_do_not_share_their_memory():
    """A list of samples holds as many references to one sample."""
    sampled = fit().sample(draws=5)
    assert len(sampled) == 4
    for name, values in sampled.items():
        assert values.shape[0] == 5
        assert len({tuple(value.flatten().tolist()) for value in values}) == 5, name
        values[0].zero_()
        assert float(values[1].abs().max()) > 0.0


def test_a_posterior_does_not_move_when_training_goes_on():
    """What is returned shares its memory with the optimiser."""
    seen = []
    how = bayes()

    class Spy(type(how)):
        def posterior(self, model, state):
            found = super().posterior(model, state)
            seen.append((found, found.mean().clone()))
            return found

    fit(how=Spy(**vars(how)), epochs=3, report_every=1)
    assert len(seen) >= 3
    for posterior, mean in seen:
        torch.testing.assert_close(posterior.mean(), mean, rtol=0.0, atol=0.0)
    assert far(seen[0][1], seen[-1][1])


# -- generators --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the fit is worse than")  # a few steps are not meant to fit
def test_nothing_touches_the_users_generators(tmp_path):
    """Predicting with frozen weights resets torch's global generator; chains seed it from threads."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    torch.manual_seed(11), np.random.seed(12), random.seed(13)  # noqa: NPY002
    state = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    for estimator in (bp.random_weights.SharedWeights(samples=2), bp.random_weights.Flipout(samples=1)):
        how = bayes(estimator=estimator)
        posterior = fit(net, (INPUTS, QUANTITIES), likelihood=likelihoods.Gaussian(scale=1.0), how=how, starts=2)
        prediction = posterior.predict(INPUTS, draws=4)
        for question in ("mean", "epistemic", "entropy", "median"):
            assert getattr(prediction, question).shape == (20,)
        prediction.samples(3), posterior.sample(2), posterior.at_mean().predict(INPUTS, draws=2).mean
        posterior.mean_network(), posterior.kl(), bp.elbo(posterior, (INPUTS, QUANTITIES), draws=2)
        posterior.save(tmp_path / "posterior.bayes")
        bp.load(tmp_path / "posterior.bayes", network=copy.deepcopy(net)).predict(INPUTS, draws=2).samples(2)
    torch.testing.assert_close(torch.get_rng_state(), state[0], rtol=0.0, atol=0.0)
    assert np.array_equal(np.random.get_state()[1], state[1])  # noqa: NPY002
    assert random.getstate() == state[2]


def test_the_users_generators_decide_nothing():
    """Results change with what ran before, because they are drawn from the global generator."""
    net = network()
    torch.manual_seed(1)
    one = fit(net)
    torch.manual_seed(2)
    other = fit(net)
    same(one, other)
    torch.testing.assert_close(
        one.predict(INPUTS, draws=4).samples(3), other.predict(INPUTS, draws=4).samples(3), rtol=0.0, atol=0.0
    )


# -- populations and repetitions ---------------------------------------------------------------------------------------


def test_members_of_a_population_differ():
    """An ensemble's members start, and stay, at the same place, because an object remembers where it began."""
    how, model = bayes(), bp.Model(network(), likelihood=likelihoods.Categorical(), prior=priors.Normal(scale=1.0))
    members = [
        bp.fit(model, (INPUTS, LABELS), how, epochs=2, batch_size=8, seed=seed, starts=1, progress=False)
        for seed in range(3)
    ]
    assert len(members) == 3
    for left, right in ((0, 1), (0, 2), (1, 2)):
        assert far(members[left].mean(), members[right].mean())
        assert far(members[left].predict(INPUTS, draws=4).mean, members[right].predict(INPUTS, draws=4).mean)
    # The objects remember nothing: the first run again is the first run.
    again = bp.fit(model, (INPUTS, LABELS), how, epochs=2, batch_size=8, seed=0, starts=1, progress=False)
    same(again, members[0])


def test_starts_differ_and_the_best_is_chosen():
    """Starts that are equal have equal bounds, and whichever is chosen is no choice."""
    chosen = fit(starts=4, epochs=6)
    entry = chosen.context.history[-1]
    bounds = entry["start_elbos"]
    assert len(bounds) == 4
    assert len(set(bounds)) == 4
    assert all(math.isfinite(bound) for bound in bounds)
    assert entry["best_start"] == int(np.argmax(bounds))
    assert chosen.particles == 1
