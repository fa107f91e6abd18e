"""The dropout layers of a user's network, with masks from the counter instead of torch's global generator.

`seeded(network, source, ...)` is a block in which every dropout module of the network answers with a mask that is a
function of the source's key: call number k of a forward pass takes request k. In training each example has a mask of
its own. In a prediction all examples share it, so that one key is one function of the inputs, the same for every row
and however many rows are asked for at a time.

    Dropout                     x m / (1 - p),  m an independent Bernoulli(1 - p) for each number
    Dropout1d, 2d, 3d           the same with one m for each channel
    AlphaDropout                a (x m + c (1 - m)) + b, which keeps mean 0 and variance 1 (Klambauer et al. 2017)
    FeatureAlphaDropout         the same with one m for each channel
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from bayesprop.random_weights.draw import NoiseSource

__all__ = ["dropout_modules", "elsewhere", "masked", "seeded", "silent"]

_BY_CHANNEL = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.FeatureAlphaDropout)
_ALPHA = (nn.AlphaDropout, nn.FeatureAlphaDropout)
_UNBATCHED = {nn.Dropout1d: 2, nn.Dropout3d: 4}  # numbers of dimensions at which there are no examples
SATURATED = -1.7580993408473766  # -scale * alpha of SELU: what a unit says far below zero


def dropout_modules(network: nn.Module) -> list[nn.Module]:
    """The dropout layers of a network that drop anything."""
    kinds = nn.modules.dropout._DropoutNd
    return [module for module in network.modules() if isinstance(module, kinds) and module.p > 0.0]


def elsewhere(network: nn.Module) -> list[str]:
    """Modules with dropout inside of one of torch's own operations, where no mask of ours reaches."""
    return [
        f"{name or 'the network'} ({type(module).__name__}, dropout={module.dropout:g})"
        for name, module in network.named_modules()
        if isinstance(module, nn.RNNBase | nn.MultiheadAttention) and module.dropout > 0.0
    ]


def _shape(module: nn.Module, x: Tensor, rows: int | None) -> list[int]:
    """The shape of the noise: that of x, with one number a channel where the module says so, and one for all examples
    if their number is given."""
    shape = list(x.shape)
    if isinstance(module, _BY_CHANNEL):
        behind = 1 if _UNBATCHED.get(type(module)) == x.dim() else 2
        shape = [*shape[:behind], *[1] * (x.dim() - behind)]
    if rows is not None:
        counting = [0] if shape and shape[0] == rows else [dim for dim, size in enumerate(shape) if size == rows]
        if len(counting) == 1:
            shape[counting[0]] = 1
    return shape


def masked(module: nn.Module, x: Tensor, source: NoiseSource, rows: int | None = None) -> Tensor:
    """What a dropout module says of x. `rows`: the number of examples, which then share the mask."""
    rate = float(module.p)  # type: ignore[arg-type]
    if rate >= 1.0:
        return torch.zeros_like(x)
    threshold = float(torch.special.ndtri(torch.tensor(rate, dtype=torch.float64)))
    kept = (source.normal(_shape(module, x, rows), torch.float32) > threshold).to(x.dtype)
    if not isinstance(module, _ALPHA):
        return x * kept / (1.0 - rate)
    a = ((1.0 - rate) * (1.0 + rate * SATURATED**2)) ** -0.5
    return a * (x * kept + SATURATED * (1.0 - kept)) - a * SATURATED * rate


@contextlib.contextmanager
def _answering(modules: list[nn.Module], answer: Callable[[nn.Module], Callable[[Tensor], Tensor]]) -> Iterator[None]:
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # it fuses transformer layers, and leaves their dropout out
    try:
        for module in modules:
            module.forward = answer(module)  # type: ignore[method-assign]
        yield
    finally:
        for module in modules:
            del module.forward  # the method of the class is there again
        torch.backends.mha.set_fastpath_enabled(fast)


@contextlib.contextmanager
def seeded(modules: list[nn.Module], source: NoiseSource, rows: int | None = None) -> Iterator[None]:
    """A block in which these dropout modules, in whatever mode they are, take their masks from the source."""
    with _answering(modules, lambda module: partial(masked, module, source=source, rows=rows)):
        yield


@contextlib.contextmanager
def silent(network: nn.Module) -> Iterator[None]:
    """A block in which no dropout of the network drops anything, that inside of recurrent layers and attention
    included."""
    inside = [m for m in network.modules() if isinstance(m, nn.RNNBase | nn.MultiheadAttention) and m.dropout > 0.0]
    rates = [module.dropout for module in inside]
    try:
        for module in inside:
            module.dropout = 0.0
        with _answering(dropout_modules(network), lambda module: lambda x: x):
            yield
    finally:
        for module, rate in zip(inside, rates, strict=True):
            module.dropout = rate
