"""The two bodies of the kernels, and the definition of the update of mean-field inference in double precision."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Cauchy, Laplace, MixtureSameFamily, Normal, StudentT

import bayesprop as bp
from bayesprop.inference.variational.fused import explain
from bayesprop.kernels import chains, curvature, descent, mean_field, native, noise


@pytest.fixture
def native_code() -> None:
    """The native bodies, for tests of nothing else: they need a C++ compiler, and say so where there is none."""
    assert native.library().handle is not None, native.status()


def anew(patch: pytest.MonkeyPatch) -> None:
    """Every native library is looked for once more; those that were loaded before come back afterwards."""
    for module in (native, chains, descent, curvature):
        patch.setattr(module, "library", functools.cache(module.library.__wrapped__))


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine without a compiler; the library that was loaded before comes back afterwards."""
    with monkeypatch.context() as patch:
        patch.setattr(native.shutil, "which", lambda name: None)
        anew(patch)
        assert native.library().handle is None
        yield


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], native.Library]:
    """`native.library` as in a process that has not built anything, with an empty cache folder; undone afterwards."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    anew(monkeypatch)
    return native.library


def definitions_run(reason: str) -> None:
    """Everything works without native code, says why, and gives the same numbers."""
    keys = torch.tensor([[7, 0], [8, 1]])
    assert native.library().handle is None
    assert native.status() == f"plain torch: {reason}"
    assert torch.equal(noise.bits(keys, 1, 1, 1025), noise.bits_definition(keys, 1, 1, 1025))
    assert torch.equal(noise.normal(keys, 1, 1, 1025), noise.normal_definition(keys, 1, 1, 1025))
    model = bp.Model(nn.Linear(2, 1), likelihood=bp.likelihoods.Gaussian(scale=0.3))
    choice = explain(bp.inference.BayesByBackprop(), model)
    assert not choice.native
    assert choice.reason == f"plain torch: {reason}"


@pytest.fixture
def many_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads, also for a pass over few columns."""
    before = torch.get_num_threads()
    monkeypatch.setattr(native, "SPLIT", 512)
    torch.set_num_threads(2)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# -- the update of mean-field inference, column by column -------------------------------------------------------------


def mixture(pi: float, scale1: float, scale2: float) -> MixtureSameFamily:
    weights, scales = torch.tensor([pi, 1.0 - pi]).double(), torch.tensor([scale1, scale2]).double()
    return MixtureSameFamily(Categorical(weights), Normal(torch.zeros(2).double(), scales))


def flat() -> Any:
    return None


# Name of the case: the kernel's family, its numbers, whether the KL is closed, and torch's own distribution.
CASES: dict[str, tuple[str, tuple[float, ...], bool, Callable[..., Any]]] = {
    "normal": ("normal", (0.3, 0.7), False, Normal),
    "normal, closed form": ("normal", (0.3, 0.7), True, Normal),
    "laplace": ("laplace", (-0.2, 0.4), False, Laplace),
    "student t": ("student_t", (3.0, 0.1, 0.6), False, StudentT),
    "cauchy": ("student_t", (1.0, 0.1, 0.6), False, lambda df, loc, scale: Cauchy(loc, scale)),
    "scale mixture": ("scale_mixture", (0.25, 1.5, 0.05), False, mixture),
    "flat": ("flat", (), False, flat),
}


def score(case: str, weights: Tensor) -> Tensor:
    """d log p / dw by autograd of torch's distribution, in double precision."""
    _, numbers, _, make = CASES[case]
    density = make(*(n if case.startswith("scale") else torch.tensor(n).double() for n in numbers))
    if density is None:
        return torch.zeros_like(weights)
    leaf = weights.detach().requires_grad_()
    (found,) = torch.autograd.grad(density.log_prob(leaf).sum(), leaf)
    return found


@dataclass
class Adam:
    """The eight numbers of one particle, in the order in which native.cpp lists them."""

    mean_rate: float = 0.05
    rho_rate: float = 0.03
    beta1: float = 0.75  # betas that floats hold exactly, so that 1 - beta is the same number in both precisions
    beta2: float = 0.96875
    epsilon: float = 1e-3
    step: int = 4
    weight_decay: float = 0.0

    @property
    def numbers(self) -> tuple[float, ...]:
        corrections = (1.0 - self.beta1 ** (self.step + 1), 1.0 - self.beta2 ** (self.step + 1))
        decay = 1.0 - self.mean_rate * self.weight_decay
        return (self.mean_rate, self.rho_rate, self.beta1, self.beta2, self.epsilon, *corrections, decay)

    def move(self, value: Tensor, first: Tensor, second: Tensor, g: Tensor, rate: float, decay: float):
        """Adam's equations as their authors write them, with decoupled weight decay."""
        first = self.beta1 * first + (1.0 - self.beta1) * g
        second = self.beta2 * second + (1.0 - self.beta2) * g**2
        first_hat = first / (1.0 - self.beta1 ** (self.step + 1))
        second_hat = second / (1.0 - self.beta2 ** (self.step + 1))
        return value - rate * decay * value - rate * first_hat / (second_hat.sqrt() + self.epsilon), first, second


@dataclass
class Bench:
    """Two particles, their columns and gradients; `tail` further columns of the means are no random weights."""

    case: str
    split: Sequence[int]
    adams: Sequence[Adam] = (Adam(), Adam(mean_rate=0.02, rho_rate=0.06))
    kl_weights: Sequence[float] = (0.3, 0.02)
    likelihood_weight: float = -0.5
    tail: int = 5
    draw: int = 0
    tensors: list[Tensor] = field(init=False)
    gradients: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(zlib.crc32(self.case.encode()))
        width, particles = sum(self.split) + self.tail, len(self.adams)

        def draw(columns: int) -> Tensor:
            return torch.randn(particles, columns, generator=generator)

        mean, rho = draw(width), draw(width - 2) - 1.0
        moments = (draw(width), 0.5 + draw(width).square(), draw(width - 2), 0.5 + draw(width - 2).square())
        self.tensors = [mean, rho, *moments]
        self.gradients = [draw(columns) for columns in self.split]
        self.keys = torch.stack((torch.arange(particles) + 11, torch.full((particles,), self.draw)), dim=-1)

    def run(self) -> list[Tensor]:
        found = [t.clone() for t in self.tensors]
        family, numbers, closed, _ = CASES[self.case]
        mean_field.adam_update(
            found,
            self.gradients,
            self.keys,
            7,
            1,
            family=family,
            parameters=numbers,
            closed_form=closed,
            adam=[adam.numbers for adam in self.adams],
            likelihood_weight=self.likelihood_weight,
            kl_weights=self.kl_weights,
        )
        return found

    def define(self) -> list[Tensor]:
        """Equation (2) in double precision, from the same noise."""
        covered = sum(self.split)
        found = [t.double() for t in self.tensors]
        epsilon = noise.normal(self.keys, 7, 1, covered).double()
        gradients = torch.cat(self.gradients, dim=1).double() * self.likelihood_weight
        _, numbers, closed, _ = CASES[self.case]
        for p, (adam, kl) in enumerate(zip(self.adams, self.kl_weights, strict=True)):
            mean, rho, *moments = (t[p, :covered].clone() for t in found)
            std, g, e = torch.log1p(rho.exp()), gradients[p], epsilon[p]
            if closed:
                loc, scale = numbers
                by_mean = g + kl * (mean - loc) / scale**2
                by_std = g * e + kl * (std / scale**2 - 1.0 / std)
            else:
                by_mean = g - kl * score(self.case, mean + std * e)
                by_std = by_mean * e - kl / std
            by_rho = by_std / (1.0 + (-rho).exp())
            moved = (
                *adam.move(mean, *moments[:2], by_mean, adam.mean_rate, adam.weight_decay),
                *adam.move(rho, *moments[2:], by_rho, adam.rho_rate, 0.0),
            )
            for tensor, value in zip((found[i] for i in (0, 2, 3, 1, 4, 5)), moved, strict=True):
                tensor[p, :covered] = value
        return found


NAMES = ("mean", "rho", "first of mean", "second of mean", "first of rho", "second of rho")


def compare(found: Sequence[Tensor], expected: Sequence[Tensor], *, rtol: float = 2e-5, atol: float = 2e-6) -> None:
    """Single precision keeps seven digits; the vector exponentials and reciprocals of the compiler cost one more."""
    for name, one, other in zip(NAMES, found, expected, strict=True):
        assert one.isfinite().all(), name
        torch.testing.assert_close(one.double(), other, rtol=rtol, atol=atol, msg=lambda text, n=name: f"{n}: {text}")


def rounding(case: str, std: float = 1.0) -> float:
    """What the rounding of w = mean + std * eps does to an update: the mixture's score is steep between its scales.

    There its slope reaches w^2 / (4 scale2^4) = 1000, and w is rounded to 2^-23 std.
    """
    return 2e-6 + (1000.0 * 2.0**-23 * std if case == "scale mixture" else 0.0)
