"""One function for one network, evaluated for all particles and all draws at once.

A *lane* is one (particle, draw). `run` takes a function of one lane and arguments that carry leading axes, told by a
tag: "PS" (particle, draw, ...), "P" (particle, ...), "S" (draw, ...) or "" (shared by all). It returns the function's
outputs with leading axes (particles, draws). An axis of length one is taken off, never vmapped: a single network is
called exactly as its author would call it. Networks that vmap cannot batch run in a loop over the lanes; `obstacle`
finds out, and the model's description says so.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

__all__ = ["batchable", "obstacle", "run"]

# How torch begins its warning that an operation has no batching rule and runs in a slow loop inside of vmap.
SLOW = "There is a performance drop"


def _pick(tree: Any, index: int, part: Callable[[Tensor, int], Tensor]) -> Any:
    """Lane `index` of a tensor, or of a flat dict or tuple of them (the usual case, without pytree's overhead)."""
    if isinstance(tree, Tensor):
        return part(tree, index)
    if type(tree) is dict:
        return {name: _pick(item, index, part) for name, item in tree.items()}
    if type(tree) is tuple:
        return tuple(_pick(item, index, part) for item in tree)
    return pytree.tree_map(lambda t: part(t, index), tree)


def _row(tensor: Tensor, index: int) -> Tensor:
    return tensor[index]


def _own_row(tensor: Tensor, index: int) -> Tensor:
    """A row that may be written into without a word to the other rows.

    Views share one count of writes, by which autograd sees that what it has kept was overwritten. Rows do not overlap:
    what one lane writes into its buffers must not void the gradient of the lane before. What unsafe_split returns lies
    in the same memory and has a count of its own.
    """
    row = tensor[index]
    return row if row.requires_grad else torch.unsafe_split(row.unsqueeze(0), 1)[0][0]


def _stack(trees: Sequence[Any]) -> Any:
    leaves, spec = zip(*(pytree.tree_flatten(tree) for tree in trees), strict=True)
    return pytree.tree_unflatten([torch.stack(column) for column in zip(*leaves, strict=True)], spec[0])


@contextlib.contextmanager
def batchable() -> Iterator[None]:
    """Attention by the body that vmap batches: the fused ones have no rule, or a backward that some shapes break."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _axis(function: Callable, arguments: Sequence[Any], carried: Sequence[bool], length: int, vectorised: bool) -> Any:
    """Map `function` over the first axis of those arguments that carry it."""
    if length > 1 and vectorised:
        dims = tuple(0 if has else None for has in carried)
        return torch.func.vmap(function, in_dims=dims, randomness="different")(*arguments)
    part = _own_row if length > 1 else _row
    rows = [
        function(*(_pick(a, i, part) if has else a for a, has in zip(arguments, carried, strict=True)))
        for i in range(length)
    ]
    if length == 1:
        return pytree.tree_map(lambda t: t.unsqueeze(0), rows[0])
    return _stack(rows)


def run(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    tags: Sequence[str],
    *,
    particles: int,
    draws: int,
    vectorised: bool = True,
) -> Any:
    """Evaluate `function` in every lane; see the module's docstring for the tags."""

    def over_draws(*row: Any) -> Any:
        return _axis(function, row, ["S" in tag for tag in tags], draws, vectorised)

    with batchable() if vectorised and particles * draws > 1 else contextlib.nullcontext():
        return _axis(over_draws, arguments, ["P" in tag for tag in tags], particles, vectorised)


def obstacle(
    forward: Callable[[dict[str, Tensor], dict[str, Tensor], Any], Tensor],
    weights: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    inputs: Any,
    *,
    compare: bool = True,
) -> str:
    """Why lanes must run in a loop, in one line; "" if 2 x 2 lanes in one vmap give what each of them gives alone.

    Looked at are values and gradients: there are operations whose values vmap batches rightly and whose gradients it
    does not. `compare=False` asks only whether vmap runs, for a network that draws its own random numbers.
    """

    @torch.enable_grad()  # from here on: whoever looks at a network usually asks for no gradients
    def evaluate(vectorised: bool) -> tuple[list[Tensor], list[Tensor]]:
        leaves = {n: w.detach().requires_grad_(w.is_floating_point()) for n, w in weights.items()}
        wide = {n: w.expand(2, 2, *w.shape) for n, w in leaves.items()}  # no copies: a network may be large
        copies = {n: b.repeat(2, 2, *[1] * b.dim()) for n, b in buffers.items()}
        rows = pytree.tree_map(lambda t: t.expand(2, *t.shape), inputs)
        arguments = (wide, copies, rows)
        outputs = run(forward, arguments, ("PS", "PS", "P"), particles=2, draws=2, vectorised=vectorised)
        wanted = [w for w in leaves.values() if w.requires_grad]
        total = outputs.square().sum()
        if not total.requires_grad:
            return [outputs.detach()], [torch.zeros_like(w) for w in wanted]
        # Zeros where there is no path to a weight: vmap may cut one that is there without it.
        found = torch.autograd.grad(total, wanted, materialize_grads=True)
        return [outputs.detach()], list(found)

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=SLOW)
            together = evaluate(True)
            with torch.no_grad():  # as predictions do, where torch chooses other bodies
                wide = {n: w.expand(2, *w.shape) for n, w in weights.items()}
                copies = {n: b.repeat(2, *[1] * b.dim()) for n, b in buffers.items()}
                run(forward, (wide, copies, inputs), ("S", "S", ""), particles=1, draws=2)
    except Exception as error:  # whatever it is, the loop over lanes is right
        return (str(error).splitlines() or [type(error).__name__])[0]
    if compare:
        precision = max((torch.finfo(w.dtype).eps for w in weights.values() if w.is_floating_point()), default=0.0)
        tolerance = max(0.01, 16.0 * precision)  # rounding, TF32 included; a wrong rule is wrong by more
        for name, one, other in zip(("values", "gradients"), together, evaluate(False), strict=True):
            # One scale for all weights: the gradient of some is nothing but rounding (a bias before batch statistics).
            scale = max((float(t.abs().nan_to_num(posinf=0.0).max()) for t in other if t.numel()), default=0.0)
            allowed = {"rtol": 0.0, "atol": tolerance * scale, "equal_nan": True}
            if not all(torch.allclose(a, b, **allowed) for a, b in zip(one, other, strict=True)):
                return f"vmap changes the network's {name}"
    return ""
