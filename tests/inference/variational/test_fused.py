"""The native step against the plain one, which is its definition; and the reasons to decline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from bayesprop import likelihoods, priors
from bayesprop.distributions import Elementwise
from bayesprop.distributions import normal as normal_family
from bayesprop.inference import SGD, Adam, Constant, Cosine
from bayesprop.inference.method import state_tensors
from bayesprop.inference.variational import fused
from bayesprop.kernels import mean_field, native
from bayesprop.priors.prior import Prior
from bayesprop.random_weights import Flipout, LocalReparameterization, SharedWeights
from bayesprop.rng import Rng

from ..conftest import Problem, method_with, normal, same_seeds, small_network

LEARNT = likelihoods.Gaussian(scale=priors.HalfNormal(0.5))
# Every family that has a native body, under each way to take its KL: (prior, kl, family).
ACCEPTED = {
    "normal": (priors.Normal(0.1, 0.5), "auto", "normal"),
    "normal, sampled": (priors.Normal(0.1, 0.5), "monte_carlo", "normal"),
    "laplace, sampled": (priors.Laplace(0.1, 0.5), "monte_carlo", "laplace"),
    "student": (priors.StudentT(3.0, 0.1, 0.5), "auto", "student_t"),
    "cauchy, sampled": (priors.Cauchy(0.1, 0.5), "monte_carlo", "student_t"),
    "mixture": (priors.ScaleMixture(0.25, 1.0, 0.1), "auto", "scale_mixture"),
    "mixture, sampled": (priors.ScaleMixture(0.5, 1.0, 0.0025), "monte_carlo", "scale_mixture"),
    "flat": (priors.Flat(), "auto", "flat"),
}


class Several(nn.Module):
    """Pieces of all sizes, batch statistics, a tied weight, and a parameter that nobody uses.

    No bias before the statistics: its gradient would be nothing but rounding, which Adam makes a whole step of.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 6, bias=False), nn.BatchNorm1d(6), nn.Linear(6, 1)
        self.tied = nn.Linear(3, 6)
        self.tied.weight = self.first.weight
        self.unused = nn.Parameter(torch.ones(5))
        self.factor = nn.Parameter(torch.tensor(0.7))

    def forward(self, x: Tensor) -> Tensor:
        middle = torch.tanh(self.norm(self.first(x))) + self.factor * self.tied(x)
        return self.last(middle)


def network() -> nn.Module:
    made = Several()
    with torch.no_grad():
        for index, parameter in enumerate(made.parameters()):
            parameter.copy_(0.5 * normal(*parameter.shape, seed=40 + index))
    return made


def decline(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on every step is the plain one."""
    monkeypatch.setattr(fused, "explain", lambda method, model: fused.Choice(False, "told so"))


def run(problem: Problem, method, particles: int, steps: int, place) -> dict[str, Tensor]:
    rng = Rng.create(6, particles)
    state = method.init(problem.model, rng)
    for step in range(steps):
        batch = problem.batch(
            particles, slice(4 * (step % 3), 4 * (step % 3) + 4), index=step % 3, count=3, **place(step)
        )
        state, info = method.update(problem.model, state, batch, rng.at(step))
    return {**state_tensors(state), "value": info.log_likelihood}


@pytest.fixture
def both(monkeypatch):
    """The same training natively and plainly."""

    def compare(problem: Problem, method, particles: int = 2, steps: int = 100, place=lambda step: {}):
        assert fused.explain(method, problem.model) == fused.Choice(True, native.status())
        ours = run(problem, method, particles, steps, place)
        with monkeypatch.context() as patch:
            decline(patch)
            plain = run(problem, method, particles, steps, place)
        assert ours.keys() == plain.keys()
        return ours, plain

    return compare


def assert_same_trajectory(ours: dict[str, Tensor], plain: dict[str, Tensor], tolerance: float) -> None:
    for name, tensor in plain.items():
        if tensor.is_floating_point():
            assert bool(torch.isfinite(tensor).all())
            error = (ours[name] - tensor).abs() / (1.0 + tensor.abs())
            assert float(error.max()) < tolerance, name
        else:
            assert torch.equal(ours[name], tensor)


@pytest.mark.parametrize("case", sorted(ACCEPTED.keys() - {"mixture, sampled"}))
def test_a_hundred_steps_are_the_plain_ones(both, case):
    """Two particles, random weights, a learnt noise and point estimates, in float32.

    Bodies differ by rounding, 1e-7; Adam divides a gradient by its own size, which makes more of it where gradients are
    next to nothing. Steps are 0.01 long.
    """
    prior, kl, family = ACCEPTED[case]
    problem = Problem(
        network(), normal(12, 3), prior=prior, likelihood=LEARNT, random=["first.*", "last.*", "unused"], num_data=12
    )
    layout = problem.model.layout
    assert 0 < layout.random < layout.latent < layout.size
    assert problem.model.bound_prior.family is not None
    assert problem.model.bound_prior.family.name == family
    method = method_with(learning_rate=0.01, optimizer="adam", kl=kl, initial_scale=0.05)
    ours, plain = both(problem, method)
    assert_same_trajectory(ours, plain, 5e-5)
    assert float((plain["mean"][0] - plain["mean"][1]).abs().max()) > 0.1


def test_steps_under_the_mixture_of_the_paper_are_the_plain_ones(both):
    """Ten of them, the moments compared by their norm.

    The prior's precision jumps from 160 000 to 1, which makes trajectories chaotic: after forty steps the plain step in
    float32 is no longer the one in float64 either.
    """
    prior, kl, _ = ACCEPTED["mixture, sampled"]
    problem = Problem(network(), normal(12, 3), prior=prior, likelihood=LEARNT)
    method = method_with(learning_rate=0.01, optimizer="adam", kl=kl, initial_scale=0.05)
    ours, plain = both(problem, method, steps=10)
    for name in ("mean", "rho"):
        assert float((ours[name] - plain[name]).abs().max()) < 2e-5
        for moment in (f"moments/{name}.first", f"moments/{name}.second"):
            assert float((ours[moment] - plain[moment]).norm() / plain[moment].norm()) < 1e-3


def test_every_family_with_a_native_body_was_looked_at():
    assert {family for _, _, family in ACCEPTED.values()} == set(mean_field.FAMILIES)
    assert len(mean_field.FAMILIES) == 5


@pytest.mark.parametrize("particles", [1, 2])
@pytest.mark.parametrize("random", ["*", ["first.*", "last.weight"]])
@pytest.mark.parametrize("likelihood", [likelihoods.Gaussian(scale=0.7), LEARNT], ids=["known", "learnt"])
def test_one_step_is_the_plain_one_to_rounding(both, likelihood, random, particles):
    """From the same place, without Adam's memory: 1e-5 of each number, and rounding makes half of it.

    One particle alone takes a way of its own.
    """
    problem = Problem(network(), normal(12, 3), likelihood=likelihood, random=random, num_data=30)
    method = method_with(learning_rate=0.01, optimizer="adam", initial_scale=0.05)
    assert_same_trajectory(*both(problem, method, particles, steps=1), 1e-5)


def test_every_setting_of_the_step_reaches_the_native_body(both):
    """Rates, temperatures, a KL schedule, a schedule of the rates, numbers of Adam and weight decay; two particles."""
    problem = Problem(network(), normal(12, 3), prior=priors.Normal(0.1, 0.5), likelihood=LEARNT, random="*.weight")
    settings = {
        "learning_rate": torch.tensor([0.01, 0.003]),
        "scale_learning_rate": torch.tensor([0.02, 0.004]),
        "temperature": torch.tensor([0.3, 2.0]),
        "kl_weights": "geometric",
        "schedule": Cosine(final=0.1),
        "optimizer": Adam(beta1=0.7, beta2=0.9, epsilon=1e-3, weight_decay=0.5),
    }

    def place(step: int) -> dict[str, float]:
        return {"progress": step / 12}

    ours, plain = both(problem, method_with(**settings), steps=12, place=place)
    assert_same_trajectory(ours, plain, 1e-5)
    neutral = {
        "learning_rate": 0.01,
        "scale_learning_rate": None,
        "temperature": 1.0,
        "kl_weights": "uniform",
        "schedule": Constant(),
        "optimizer": "adam",
    }
    for name, value in neutral.items():  # each of them matters, so that a native body which forgot it would be seen
        other = run(problem, method_with(**{**settings, name: value}), 2, 12, place)
        assert float((other["mean"] - ours["mean"]).abs().max() + (other["rho"] - ours["rho"]).abs().max()) > 1e-3, name


def test_batches_of_a_stream_of_many_rows_are_weighted_alike(both):
    """N / n and 1 / N with a data set much larger than the batch."""
    problem = Problem(network(), normal(12, 3), prior=priors.Normal(0.0, 0.3), num_data=60_000)
    ours, plain = both(problem, method_with(learning_rate=0.01, optimizer="adam"), steps=20)
    assert_same_trajectory(ours, plain, 1e-4)
    torch.testing.assert_close(ours["value"], plain["value"], rtol=1e-4, atol=0.0)


# -- reasons to decline ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Own(Prior):
    """A density of a user's own, with numbers for parameters."""

    density: ClassVar[Elementwise] = Elementwise(
        "own",
        ("loc", "scale"),
        normal_family.DENSITY.log_density,
        normal_family.DENSITY.score,
        normal_family.DENSITY.std,
    )

    def arguments(self):
        return {"loc": 0.0, "scale": 1.0}


NO_FAMILY = "the prior is not one of the families normal, laplace, student_t, scale_mixture, flat with numbers"
DECLINED = {
    "estimator": ({"estimator": LocalReparameterization(1)}, {}, "LocalReparameterization with 1 samples"),
    "flipout": ({"estimator": Flipout(3)}, {}, "Flipout with 3 samples"),
    "samples": ({"estimator": SharedWeights(2)}, {}, "SharedWeights with 2 samples"),
    "antithetic": ({"estimator": SharedWeights(2, antithetic=True)}, {}, "SharedWeights with 2 samples"),
    "sgd": ({"optimizer": "sgd"}, {}, "the optimiser is not Adam or AdamW"),
    "momentum": ({"optimizer": SGD(momentum=0.5)}, {}, "the optimiser is not Adam or AdamW"),
    "torch": ({"optimizer": torch.optim.Adam}, {}, "the optimiser is not Adam or AdamW"),
    "clipping": ({"clip_norm": 1.0}, {}, "gradients are clipped"),
    "landing": ({"stick_the_landing": True}, {}, "stick_the_landing"),
    "laplace": ({"kl": "auto"}, {"prior": priors.Laplace()}, "the KL of a Laplace prior is taken in closed form"),
    "mapping": ({}, {"prior": {"0.*": priors.Normal(), "*": priors.Flat()}}, NO_FAMILY),
    "hierarchy": ({}, {"prior": priors.Laplace(scale=priors.HalfNormal())}, NO_FAMILY),
    "centred hierarchy": ({}, {"prior": priors.Normal(scale=priors.HalfNormal(centred=True))}, NO_FAMILY),
    "own density": ({}, {"prior": Own()}, NO_FAMILY),
}


@pytest.mark.parametrize("case", DECLINED)
def test_each_reason_to_decline_is_named(case):
    settings, model, reason = DECLINED[case]
    problem = Problem(small_network(dtype=torch.float32), normal(6, 3), **model)
    method = method_with(**{"optimizer": "adam", **settings})
    choice = fused.explain(method, problem.model)
    assert not choice.native
    assert choice.reason.startswith(f"plain torch: {reason}")
    # The plain step that is then taken works.
    state = method.init(problem.model, Rng.create(0))
    state, info = method.update(problem.model, state, problem.batch(), same_seeds(1, step=0))
    assert bool(torch.isfinite(info.log_likelihood).all())


def test_double_precision_and_other_devices_are_declined(monkeypatch):
    problem = Problem(small_network(dtype=torch.float64), normal(6, 3))
    method = method_with(optimizer="adam")
    assert fused.explain(method, problem.model) == fused.Choice(False, "plain torch: theta is float64")
    monkeypatch.setattr(type(problem.model), "device", torch.device("cuda"))
    expected = "plain torch: weights live on cuda, native code is for the CPU"
    assert fused.explain(replace(method, learning_rate=0.5), problem.model) == fused.Choice(False, expected)


def test_a_machine_without_a_compiler_takes_the_plain_step(monkeypatch):
    problem = Problem(network(), normal(12, 3))
    method = method_with(optimizer="adam", learning_rate=0.01)
    assert fused.explain(method, problem.model) == fused.Choice(True, native.status())
    ours = run(problem, method, 2, 3, lambda step: {})
    monkeypatch.setattr(native, "library", lambda: native.Library(None, "no C++ compiler is on the PATH"))
    assert fused.explain(method, problem.model) == fused.Choice(False, "plain torch: no C++ compiler is on the PATH")
    assert_same_trajectory(ours, run(problem, method, 2, 3, lambda step: {}), 1e-5)


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_is_accepted_says_so(case):
    """A small stack of dense layers takes whole steps under normal priors, and two passes under others."""
    prior, kl, family = ACCEPTED[case]
    problem = Problem(small_network(dtype=torch.float32), normal(6, 3), prior=prior)
    for optimizer in ("adam", "adamw", Adam(beta1=0.5)):
        choice = fused.explain(method_with(optimizer=optimizer, kl=kl), problem.model)
        whole = family == "normal"
        assert choice == fused.Choice(
            True, f"whole steps in {native.status()}" if whole else native.status(), choice.joint
        )
        assert (choice.joint is not None) == whole


@pytest.mark.parametrize("particles", [1, 2])
@pytest.mark.parametrize("kept", [True, False], ids=["noise is kept", "too many weights"])
def test_steps_in_a_row_are_the_same_steps_to_the_last_bit(monkeypatch, particles, kept):
    """Random weights, a learnt noise and point estimates; a run that ends and begins anew in between."""
    monkeypatch.setattr(fused, "KEPT", fused.KEPT if kept else 3)
    problem = Problem(
        network(),
        normal(12, 3),
        prior=priors.ScaleMixture(0.25, 1.0, 0.1),
        likelihood=LEARNT,
        random=["first.*", "last.*"],
    )
    method = method_with(learning_rate=0.01, optimizer="adam", initial_scale=0.05)
    rng, batch = Rng.create(6, particles), problem.batch(particles)
    one, row = method.init(problem.model, rng), method.init(problem.model, rng)
    assert fused.explain(method, problem.model).native
    for step in range(7):
        method.update(problem.model, one, batch, rng.at(step))
    for steps in (range(4), range(4, 7)):
        taken = list(method.run(problem.model, row, ((batch, rng.at(step)) for step in steps)))
        assert len(taken) == len(steps)
    for name, tensor in state_tensors(one).items():
        assert torch.equal(state_tensors(row)[name], tensor), name
