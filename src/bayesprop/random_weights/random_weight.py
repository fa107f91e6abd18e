"""A weight that is a distribution: a tensor subclass that answers torch functions.

A `RandomWeight` stands for w ~ N(mean, scale^2), elementwise. A network receives it in the place of a parameter
(`torch.func.functional_call`) and cannot tell the difference: shape, dtype and device are those of the mean. What
happens is decided per torch function, in `__torch_function__`, in this order:

    a description (shape, dim(), ...)     is answered without drawing anything
    a transposition (.T, .t(), ...)       gives a RandomWeight again
    a function for which there is a rule  is answered by the rule, which may put the noise into the activations
    everything else                       sees the sample mean + scale * noise                                       (1)

The sample (1) is drawn at most once per object, and there is one object per forward pass, so a recurrent network
sees the same weights at all time steps, and no rule is ever needed for an answer to be right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from bayesprop.errors import CapabilityError
from bayesprop.random_weights.draw import Draw, NoiseSource

__all__ = ["Function", "RandomWeight", "Rule", "materialize", "random_weights"]

Function = Callable[..., Any]  # a torch function, as `__torch_function__` sees it
Rule = Callable[..., Any]  # takes the function's own arguments; returns its answer, or NotImplemented

# What a tensor says of itself without its numbers being looked at.
_GETTERS = (
    *("shape", "dtype", "device", "layout", "ndim", "itemsize", "nbytes", "requires_grad", "is_leaf", "grad_fn"),
    *("grad", "is_cuda", "is_cpu", "is_meta", "is_mps", "is_xpu", "is_sparse", "is_quantized", "is_nested"),
)
_METHODS = (
    *("size", "dim", "ndimension", "numel", "nelement", "element_size", "stride", "get_device", "is_contiguous"),
    *("is_floating_point", "is_complex", "__len__"),
)
_DESCRIPTIONS: frozenset[Function] = frozenset(
    [getattr(Tensor, name).__get__ for name in _GETTERS]
    + [getattr(Tensor, name) for name in _METHODS]
    + [torch.is_floating_point, torch.is_complex, torch.numel]
)
_TRANSPOSITIONS: frozenset[Function] = frozenset(
    [getattr(Tensor, name).__get__ for name in ("T", "mT")]
    + [getattr(owner, name) for owner in (Tensor, torch) for name in ("t", "transpose", "swapaxes", "swapdims")]
)


class RandomWeight(Tensor):
    """N(mean, scale^2) in the place of a parameter; see the top of this file.

    `rule` finds the rule of a torch function, for instance `Flipout().rules.get`. `example_dim` is the dimension of
    the operation's input that counts examples (None: not known, rules that need it decline). `label` is the
    parameter's name. The attributes avoid names that tensors have (`weight.mean()` is the mean over the elements of
    the sample).
    """

    draw: Draw
    rule: Callable[[Function], Rule | None]
    example_dim: int | None
    label: str

    @classmethod
    def create(
        cls,
        mean: Tensor,
        scale: Tensor,
        noise: Tensor | None,
        rule: Callable[[Function], Rule | None],
        source: NoiseSource,
        *,
        example_dim: int | None = 0,
        label: str = "",
    ) -> RandomWeight:
        return cls.of(Draw(mean, scale, noise, source), rule, example_dim, label)

    @classmethod
    def of(
        cls, draw: Draw, rule: Callable[[Function], Rule | None], example_dim: int | None, label: str
    ) -> RandomWeight:
        """The weight of a draw that is there already."""
        mean = draw.mean
        weight: Any = Tensor._make_wrapper_subclass(
            cls,
            mean.shape,
            dtype=mean.dtype,
            device=mean.device,
            requires_grad=mean.requires_grad or draw.scale.requires_grad,
        )
        weight.draw, weight.rule, weight.example_dim, weight.label = draw, rule, example_dim, label
        return weight

    @classmethod
    def __torch_function__(cls, func: Function, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _DESCRIPTIONS:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if func == Tensor.data_ptr:
            # cuDNN modules compare addresses to see whether they may re-lay parameters in place; equal ones say no.
            return 0
        if func in _TRANSPOSITIONS and args and isinstance(args[0], RandomWeight):
            weight, rest = args[0], args[1:]
            draw = weight.draw.viewed(lambda tensor: func(tensor, *rest, **kwargs))
            return cls.of(draw, weight.rule, weight.example_dim, weight.label)
        weight = next(random_weights((args, kwargs)), None)
        rule = weight.rule(func) if weight is not None else None
        if rule is not None:
            answer = rule(*args, **kwargs)
            if answer is not NotImplemented:
                return answer
        return func(*materialize(args), **materialize(kwargs))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        weight = next(random_weights((args, kwargs)), None)
        rule = weight.rule(func) if weight is not None else None
        if rule is not None and rule(*args, **kwargs) is NotImplemented:  # only a trace has a rule for this, to see it
            return func(*materialize(args), **materialize(kwargs))
        # Below autograd a sample would come without its gradient: better no answer than a wrong one.
        raise CapabilityError(
            f"{func} reached a random weight from below torch's function protocol",
            expected="a call that goes through torch's Python functions, where a random weight can answer",
            write="estimator=SharedWeights(), which gives the network plain tensors",
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> RandomWeight:
        draw = self.draw
        mean, scale, noise = (tensor.detach().clone() for tensor in (draw.mean, draw.scale, draw.noise))
        copied = Draw(mean, scale, noise, draw.source)
        memo[id(self)] = twin = self.of(copied, self.rule, self.example_dim, self.label)
        return twin

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        label = f"{self.label!r}, " if self.label else ""
        return f"RandomWeight({label}shape={tuple(self.shape)}, dtype={self.dtype}, device={str(self.device)!r})"


def random_weights(value: Any) -> Iterator[RandomWeight]:
    """All random weights among nested arguments."""
    if isinstance(value, RandomWeight):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from random_weights(item)
    elif isinstance(value, dict):
        yield from random_weights(list(value.values()))


def materialize(value: Any) -> Any:
    """Nested arguments with each random weight replaced by its sample; what holds none is passed on as it is."""
    if isinstance(value, RandomWeight):
        return value.draw.sample
    if not isinstance(value, tuple | list | dict) or next(random_weights(value), None) is None:
        return value
    if isinstance(value, dict):
        return {name: materialize(item) for name, item in value.items()}
    items = [materialize(item) for item in value]
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
