"""Optimisers on columns: plain arithmetic on matrices, in place, one row a particle.

    SGD     b <- m b + g;                                   x <- x - r b            (b = g without momentum)        (1)
    Adam    m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2;
            x <- (1 - r d) x - r (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + e)                                    (2)

with rate r and decoupled weight decay d (AdamW). `Torch` wraps the classes of `torch.optim`. Rates of (1) and (2) may
differ between particles. Weight decay shrinks the means only, whoever applies it: shrinking rho would be a statement
about the posterior's width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError

__all__ = ["SGD", "Adam", "ColumnOptimizer", "Torch", "as_optimizer"]

Rate = float | Tensor


class ColumnOptimizer(Protocol):
    """`init` makes the moments for named matrices (particles, columns); `step`, number 0 and up, moves both in place.

    The matrix called "mean" is the one that weight decay shrinks.
    """

    def init(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]: ...

    def step(
        self,
        parameters: Mapping[str, Tensor],
        gradients: Mapping[str, Tensor],
        state: dict[str, Tensor],
        rates: Mapping[str, Rate],
        step: int | Tensor,
    ) -> None: ...


def _column(rate: Rate, like: Tensor) -> Rate:
    """Rates of particles as a column that meets `like` (particles, columns)."""
    return rate.to(like).reshape(-1, 1) if isinstance(rate, Tensor) and rate.dim() == 1 else rate


@dataclass(frozen=True)
class SGD:
    """Equation (1)."""

    momentum: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.momentum < 1.0:
            raise ConfigurationError(
                "SGD: momentum must lie in [0, 1)", received=f"{self.momentum}", write="SGD(momentum=0.9)"
            )

    def init(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {f"{n}.velocity": torch.zeros_like(p) for n, p in parameters.items()} if self.momentum else {}

    def step(self, parameters, gradients, state, rates, step) -> None:
        for name, parameter in parameters.items():
            direction = gradients[name]
            if self.momentum:
                direction = state[f"{name}.velocity"].mul_(self.momentum).add_(direction)
            parameter.sub_(_column(rates[name], parameter) * direction)


@dataclass(frozen=True)
class Adam:
    """Equation (2)."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if not (
            0.0 <= self.beta1 < 1.0 and 0.0 <= self.beta2 < 1.0 and self.epsilon > 0.0 and self.weight_decay >= 0.0
        ):
            raise ConfigurationError(
                "Adam: betas lie in [0, 1), epsilon is positive, weight_decay is not negative",
                received=f"{self}",
                write="Adam(beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.0)",
            )

    def init(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {f"{n}.{moment}": torch.zeros_like(p) for n, p in parameters.items() for moment in ("first", "second")}

    def corrections(self, step: int | Tensor) -> tuple[Any, Any]:
        """1 - b1^t and 1 - b2^t for the update number t = step + 1; float32 tensors if the step is one."""
        if isinstance(step, Tensor):
            t = (step + 1).double()
            return (1.0 - self.beta1**t).float(), (1.0 - self.beta2**t).float()
        return 1.0 - self.beta1 ** (step + 1), 1.0 - self.beta2 ** (step + 1)

    def step(self, parameters, gradients, state, rates, step) -> None:
        first_correction, second_correction = self.corrections(step)
        for name, parameter in parameters.items():
            gradient, rate = gradients[name], _column(rates[name], parameter)
            first = state[f"{name}.first"].mul_(self.beta1).add_(gradient, alpha=1.0 - self.beta1)
            second = state[f"{name}.second"].mul_(self.beta2).addcmul_(gradient, gradient, value=1.0 - self.beta2)
            if self.weight_decay and name == "mean":
                parameter.mul_(1.0 - rate * self.weight_decay)
            denominator = (second / second_correction).sqrt_().add_(self.epsilon)
            if isinstance(rate, float):
                parameter.addcdiv_(first, denominator, value=-rate / first_correction)
            else:
                parameter.sub_(rate / first_correction * first / denominator)


@dataclass(frozen=True)
class Torch:
    """Any class of `torch.optim`, e.g. `Torch(torch.optim.RMSprop, {"alpha": 0.9})`.

    The optimiser object is made anew for each step; its tensors are part of the state and travel in checkpoints. LBFGS
    cannot take part in a step that is given its gradient, SparseAdam in one whose gradient is dense. Adafactor and Muon
    look at a matrix as a whole, where rows are particles, which must not meet: they serve one particle.
    """

    cls: type[torch.optim.Optimizer]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        reasons = {
            torch.optim.LBFGS: "evaluates the loss itself",
            torch.optim.SparseAdam: "takes sparse gradients, and the prior's is dense",
        }
        for unfit, reason in reasons.items():
            if issubclass(self.cls, unfit):
                raise ConfigurationError(
                    f"{self.cls.__name__} {reason}", write="optimizer=torch.optim.RMSprop  # or Adam, SGD, NAdam, ..."
                )

    def init(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors that this class keeps, found by one step of zero gradient and zero rate on copies."""
        particles = max((p.shape[0] for p in parameters.values()), default=1)
        if particles > 1 and issubclass(self.cls, torch.optim.Adafactor | torch.optim.Muon):
            raise ConfigurationError(
                f"{self.cls.__name__} looks at a matrix as a whole; here its rows are particles, which must not meet",
                received=f"{particles} particles",
                write='optimizer="adam"  # or any class that works element by element, such as torch.optim.RMSprop',
            )
        copies = {n: p.detach().clone() for n, p in parameters.items()}
        optimizer = self._make(copies, dict.fromkeys(copies, 0.0))
        for copy in copies.values():
            copy.grad = torch.zeros_like(copy)
        optimizer.step()
        numbers = {key for found in optimizer.state.values() for key, v in found.items() if isinstance(v, int | float)}
        if numbers:
            raise ConfigurationError(
                f"{self.cls.__name__} keeps plain numbers in its state, which would not travel from step to step",
                received=", ".join(sorted(numbers)),
                expected="a class whose state are tensors, as those of torch.optim",
                write='optimizer="adam"',
            )
        return {
            f"{name}.{key}": torch.zeros_like(value)
            for name, copy in copies.items()
            for key, value in optimizer.state[copy].items()
            if isinstance(value, Tensor)
        }

    def _make(self, parameters: Mapping[str, Tensor], rates: Mapping[str, Rate]) -> torch.optim.Optimizer:
        groups = []
        for name, parameter in parameters.items():
            rate = rates[name]
            if isinstance(rate, Tensor) and rate.dim() > 0:
                raise ConfigurationError(
                    f"{self.cls.__name__} takes one learning rate for all particles",
                    received=f"{rate.numel()} rates",
                    write="optimizer=Adam()  # its rates may differ between particles",
                )
            groups.append({"params": [parameter], "lr": float(rate)})
        optimizer = self.cls(groups, **dict(self.arguments))  # type: ignore[call-arg]
        for name, group in zip(parameters, optimizer.param_groups, strict=True):
            if name != "mean" and "weight_decay" in group:
                group["weight_decay"] = 0.0
        return optimizer

    def step(self, parameters, gradients, state, rates, step) -> None:
        optimizer = self._make(parameters, rates)
        for name, parameter in parameters.items():
            parameter.grad = gradients[name]
            if step > 0:
                prefix = f"{name}."
                optimizer.state[parameter] = {
                    k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)
                }
        optimizer.step()
        for name, parameter in parameters.items():
            parameter.grad = None
            for key, value in optimizer.state[parameter].items():
                if isinstance(value, Tensor):
                    state[f"{name}.{key}"] = value


NAMED: dict[str, ColumnOptimizer] = {
    "adam": Adam(),
    "adamw": Adam(weight_decay=0.01),
    "sgd": SGD(),
    "momentum": SGD(momentum=0.9),
}


def as_optimizer(choice: str | ColumnOptimizer | type[torch.optim.Optimizer] | Callable[..., Any]) -> ColumnOptimizer:
    """A column optimiser from a name, an object or a class of `torch.optim`."""
    if isinstance(choice, str):
        if choice not in NAMED:
            raise ConfigurationError(
                f"no optimiser is called {choice!r}", expected=", ".join(NAMED), write='optimizer="adam"'
            )
        return NAMED[choice]
    if isinstance(choice, type):
        if issubclass(choice, torch.optim.Optimizer):
            return Torch(choice)
        if issubclass(choice, SGD | Adam):
            return choice()
    elif hasattr(choice, "init") and hasattr(choice, "step"):
        return choice  # type: ignore[return-value]
    raise ConfigurationError(
        "optimizer must be a name, an optimiser of this library or a class of torch.optim",
        received=repr(choice),
        write='optimizer="adam"  # or SGD(momentum=0.9), torch.optim.RMSprop',
    )
