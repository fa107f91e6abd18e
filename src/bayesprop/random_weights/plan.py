"""Which weight is evaluated by which rule: found by looking at two forward passes, never by the type of a module.

`trace` runs the network twice, on two different numbers of rows, with weights that write down who uses them. The
dimension of an operation's input whose size was the first number and then the second is the one that counts
examples. `make_plan` turns the records into a decision per weight, with the reason in words; `randomize` turns the
decisions into what the network receives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bayesprop import rng
from bayesprop.random_weights import operations
from bayesprop.random_weights.draw import NoiseSource, sample
from bayesprop.random_weights.estimators import Estimator, RuleName
from bayesprop.random_weights.operations import Operation
from bayesprop.random_weights.random_weight import Function, RandomWeight, Rule, random_weights

__all__ = ["Evaluation", "Use", "make_plan", "randomize", "trace"]


@dataclass(frozen=True)
class Use:
    """One use of a weight in a forward pass.

    `call` numbers the operations of the pass (a linear layer's weight and bias share one), `function` is the torch
    function, `input_shape` the shape of its data in the first run (empty if the operation cannot be read),
    `example_dim` the dimension that counts examples, and `once` says whether each example meets the weight at one
    position only.
    """

    function: Function = field(repr=False)
    call: int
    readable: bool
    input_shape: tuple[int, ...]
    example_dim: int | None
    once: bool

    @property
    def operation(self) -> str:
        return _name(self.function)


@dataclass(frozen=True)
class Evaluation:
    """How one weight is evaluated, and why."""

    operation: str
    rule: RuleName
    example_dim: int | None
    reason: str


def _name(function: Function) -> str:
    return getattr(function, "__name__", str(function)).strip("_")


@dataclass(frozen=True)
class _Call:
    """One operation of a recorded pass."""

    function: Function
    names: tuple[str, ...]
    operation: Operation | None


class _Recorder:
    """Writes down each operation that a random weight takes part in, and lets it have the mean."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []

    def rule(self, function: Function) -> Rule:
        return partial(self._record, function)

    def _record(self, function: Function, *args: Any, **kwargs: Any) -> Any:
        names = tuple(dict.fromkeys(weight.label for weight in random_weights((args, kwargs))))
        # Without gradients this is a region that nothing is differentiated through, or the inside of a function with a
        # backward of its own, whose answer would be a gradient of the tensor and not of the distribution.
        differentiable = torch.is_grad_enabled()
        self.calls.append(_Call(function, names, operations.read(function, args, kwargs) if differentiable else None))
        return NotImplemented

    def weights(self, means: Mapping[str, Tensor]) -> dict[str, Tensor]:
        recorded: dict[str, Tensor] = {}
        for name, mean in means.items():
            nothing = mean.new_zeros(()).expand(mean.shape)
            source = NoiseSource(torch.zeros(2, dtype=torch.int64, device=mean.device))
            recorded[name] = RandomWeight.create(mean, nothing, nothing, self.rule, source, label=name)
        return recorded


def trace(
    call: Callable[[dict[str, Tensor], int], object],
    weights: Mapping[str, Tensor],
    rows: tuple[int, int] = (2, 3),
) -> dict[str, tuple[Use, ...]]:
    """Who uses each weight in a forward pass.

    Args:
        call: runs the network, in the mode it is in, with the given weights on that number of examples. Buffers that
            the network writes into (batch statistics) are the caller's to protect, as is having that many examples.
        weights: name -> value of each random parameter; a tied parameter under one of its names.
        rows: the two numbers of examples; 2 and 3 are enough, and batch statistics need at least 2.

    torch's global generator is put back as it was found.
    """
    device = next(iter(weights.values())).device if weights else "cpu"
    runs: list[list[_Call]] = []
    for count in rows:
        recorder = _Recorder()
        with torch.enable_grad(), rng.quarantine(0, device):
            call(recorder.weights(weights), count)
        runs.append(recorder.calls)
    first, second = runs
    steady = [(c.function, c.names) for c in first] == [(c.function, c.names) for c in second]
    uses: dict[str, list[Use]] = {name: [] for name in weights}
    for number, seen in enumerate(first):
        use = _use(number, seen, second[number] if steady else None, rows)
        for name in seen.names:
            uses[name].append(use)
    return {name: tuple(found) for name, found in uses.items()}


def _use(number: int, seen: _Call, again: _Call | None, rows: tuple[int, int]) -> Use:
    operation = seen.operation
    if operation is None:
        return Use(seen.function, number, False, (), None, False)
    shape = tuple(operation.input.shape)
    dim = None
    if again is not None and again.operation is not None:
        dim = _counting_dim(shape, tuple(again.operation.input.shape), rows)
    if dim is None or not operation.counts_examples(dim):
        return Use(seen.function, number, True, shape, None, False)
    return Use(seen.function, number, True, shape, dim, operation.uses_once(dim))


def _counting_dim(first: Sequence[int], second: Sequence[int], rows: tuple[int, int]) -> int | None:
    """The one dimension that had the first number of rows, then the second; None if there is none or more than one."""
    if len(first) != len(second):
        return None
    found = [dim for dim, sizes in enumerate(zip(first, second, strict=True)) if sizes == rows]
    return found[0] if len(found) == 1 else None


def make_plan(estimator: Estimator, uses: Mapping[str, tuple[Use, ...]]) -> dict[str, Evaluation]:
    """The rule for each weight. Weights that meet in one operation are shared together or not at all."""
    plan = {name: _evaluation(estimator, found) for name, found in uses.items()}
    by_call: dict[int, list[str]] = {}
    for name, found in uses.items():
        for use in found:
            by_call.setdefault(use.call, []).append(name)
    changed = True
    while changed:
        changed = False
        for names in by_call.values():
            shared = [name for name in names if plan[name].rule == "shared"]
            for name in names if shared else ():
                if plan[name].rule != "shared":
                    operation = plan[name].operation
                    reason = f"{operation} takes it together with {shared[0]}, which is shared"
                    plan[name] = Evaluation(operation, "shared", None, reason)
                    changed = True
    return plan


def _evaluation(estimator: Estimator, uses: tuple[Use, ...]) -> Evaluation:
    if not uses:
        return Evaluation("", "shared", None, "not used in the forward pass")
    use, *others = uses
    operation = ", ".join(dict.fromkeys(use.operation for use in uses))
    if estimator.rule == "shared":
        return Evaluation(operation, "shared", None, f"{type(estimator).__name__} draws one sample per forward pass")
    if others:
        reason = f"used {len(uses)} times in the forward pass ({operation}), always with the same weights"
        return Evaluation(operation, "shared", None, reason)
    if not use.readable or use.function not in estimator.rules:
        return Evaluation(operation, "shared", None, f"{operation} has no rule for a random weight in this place")
    if use.example_dim is None:
        reason = f"no dimension of the input {list(use.input_shape)} of {operation} just counts examples"
        return Evaluation(operation, "shared", None, reason)
    if use.once:
        return Evaluation(operation, estimator.rule, use.example_dim, "each example meets the weight once")
    reason = "positions of an example share the weight, examples do not"
    return Evaluation(operation, estimator.rule_of_positions, use.example_dim, reason)


def randomize(
    plan: Mapping[str, Evaluation],
    estimator: Estimator,
    means: Mapping[str, Tensor],
    scales: Mapping[str, Tensor],
    noises: Mapping[str, Tensor],
    source: NoiseSource,
) -> dict[str, Tensor]:
    """What `functional_call` gets for one forward pass: tensors for shared weights, a `RandomWeight` for the others.

    `noises` holds standard normal noise by name. Names may be missing: a weight planned "local" never needs
    weight-sized noise, and for others the source provides it. Call it inside vmap to have means, scales, noises or
    the source's key batched.
    """
    weights: dict[str, Tensor] = {}
    for name, mean in means.items():
        evaluation, scale, noise = plan[name], scales[name], noises.get(name)
        if evaluation.rule == "shared":
            noise = source.normal(mean.shape, mean.dtype) if noise is None else noise
            weights[name] = sample(mean, scale, noise)
        else:
            weights[name] = RandomWeight.create(
                mean, scale, noise, estimator.rules.get, source, example_dim=evaluation.example_dim, label=name
            )
    return weights
