from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch

from bayesprop import priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference import BayesByBackprop
from bayesprop.inference.variational.gradients import elbo_gradients
from bayesprop.inference.variational.kl_weights import Geometric, Uniform, Warmup, as_weights

from ..conftest import Problem, method_with, normal, same_seeds, small_network

COUNTS = [1, 2, 7, 469, 100_000]
SCHEDULES = {
    "uniform": Uniform(),
    "geometric": Geometric(),
    "after warmup": Warmup(share=0.4),
    "geometric after warmup": Warmup(share=0.4, after=Geometric()),
}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_weights_of_an_epoch_sum_to_the_number_of_minibatches(name, count):
    """The third epoch of five: what warms up for two of them has done so."""
    values = [SCHEDULES[name](index, count, (2.0 + index / count) / 5.0) for index in range(count)]
    assert all(math.isfinite(value) and value >= 0.0 for value in values)
    assert math.fsum(values) == pytest.approx(count, rel=1e-12)


@pytest.mark.parametrize("count", COUNTS)
def test_geometric_weights_are_those_of_blundell_et_al(count):
    """pi_i = 2^(M - i) / (2^M - 1), i = 1 .. M: in exact arithmetic, and with the sum 1."""
    found = [Geometric()(index, count, 0.0) / count for index in range(min(count, 60))]
    expected = [2 ** (count - index) / (2**count - 1) for index in range(1, min(count, 60) + 1)]
    assert found == pytest.approx(expected, rel=1e-12)
    assert math.fsum(Geometric()(index, count, 0.0) / count for index in range(count)) == pytest.approx(1.0, rel=1e-12)


def test_geometric_weights_halve_and_do_not_depend_on_the_progress():
    values = [Geometric()(index, 469, 0.0) for index in range(469)]
    assert [b / a for a, b in zip(values, values[1:])] == pytest.approx([0.5] * 468, rel=1e-12)
    assert values == [Geometric()(index, 469, 0.7) for index in range(469)]


def test_warmup_rises_linearly_over_its_share_of_the_training_and_stays():
    schedule = Warmup(share=0.4)
    grid = [step / 50 for step in range(51)]
    assert [schedule(0, 4, progress) for progress in grid] == pytest.approx(
        [min(1.0, p / 0.4) for p in grid], rel=1e-12
    )
    assert schedule(3, 4, 0.1) == schedule(0, 4, 0.1)
    after = Warmup(share=0.4, after=Geometric())
    for index in range(4):
        assert after(index, 4, 0.1) == pytest.approx(0.25 * Geometric()(index, 4, 0.1), rel=1e-12)
        assert after(index, 4, 0.9) == Geometric()(index, 4, 0.9)
    assert Warmup(share=1.0)(0, 1, 1.0) == 1.0


@pytest.mark.parametrize(
    "weights", ["uniform", "geometric", "warmup", lambda index, count, progress: 3.0 * index + progress]
)
@pytest.mark.parametrize("temperature", [1.0, 0.0, 0.3, torch.tensor([0.0, 2.0], dtype=torch.float64)])
def test_a_step_takes_the_share_that_the_schedule_and_the_temperature_say(weights, temperature):
    """Plain gradient descent moves by the data's gradient plus schedule times temperature times that of the KL."""
    problem = Problem(small_network(), normal(6, 3), prior=priors.Normal(0.0, 0.5), num_data=30)
    method, plain = method_with(learning_rate=0.1, kl_weights=weights, temperature=temperature), method_with()
    data, full = (
        elbo_gradients(plain, problem.model, problem.state(2), problem.batch(2), same_seeds(2), weight).by_name
        for weight in (0.0, 1.0)
    )
    for index, progress in ((0, 0.0), (3, 0.06), (1, 0.84)):
        share = as_weights(weights)(index, 5, progress) * torch.as_tensor(temperature, dtype=torch.float64).reshape(
            -1, 1
        )
        state, before = problem.state(2), problem.state(2)
        batch = problem.batch(2, index=index, count=5, progress=progress)
        method.update(problem.model, state, batch, same_seeds(2))
        for name in ("mean", "rho"):
            expected = getattr(before, name) - 0.1 * (data[name] + share * (full[name] - data[name]))
            torch.testing.assert_close(getattr(state, name), expected, rtol=1e-11, atol=1e-13)


def test_an_epoch_carries_one_kl_whatever_the_schedule():
    """The sum of the KL's gradients over an epoch is the same for uniform and for geometric weights."""
    problem = Problem(small_network(), normal(12, 3), prior=priors.Normal(0.0, 0.5))
    totals = {}
    for name in ("uniform", "geometric"):
        parts = [
            elbo_gradients(
                method_with(),
                problem.model,
                problem.state(),
                problem.batch(1, slice(4 * index, 4 * index + 4)),
                same_seeds(1),
                as_weights(name)(index, 3, 0.0),
            ).by_name["mean"]
            for index in range(3)
        ]
        totals[name] = torch.stack(parts).mean(0)
    full = elbo_gradients(method_with(), problem.model, problem.state(), problem.batch(), same_seeds(1), 1.0).by_name[
        "mean"
    ]
    torch.testing.assert_close(totals["uniform"], full, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(totals["geometric"], full, rtol=1e-10, atol=1e-13)


def test_names_and_functions():
    assert [as_weights(name) for name in ("uniform", "geometric", "warmup")] == [Uniform(), Geometric(), Warmup()]

    @dataclass(frozen=True)
    class Own:
        def __call__(self, index: int, count: int, progress: float) -> float:
            return 0.5

    assert as_weights(Own()) == Own()


def test_unknown_schedules_are_refused():
    for make in (as_weights, lambda choice: BayesByBackprop(kl_weights=choice)):
        with pytest.raises(ConfigurationError, match="no KL schedule is called 'blundell'") as caught:
            make("blundell")
        assert "expected: uniform, geometric, warmup" in str(caught.value)
        assert 'write: kl_weights="uniform"' in str(caught.value)
        with pytest.raises(ConfigurationError, match=r"a name or a function of \(index, count, progress\)") as caught:
            make(0.1)
        assert "received: 0.1" in str(caught.value)


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, math.nan])
def test_a_warmup_that_is_no_part_of_the_training_is_refused(share):
    with pytest.raises(ConfigurationError, match="Warmup: share is the part of the training") as caught:
        Warmup(share=share)
    assert f"received: {share}" in str(caught.value)
    assert "expected: a number above 0 and up to 1" in str(caught.value)
    assert "write: Warmup(share=" in str(caught.value)
