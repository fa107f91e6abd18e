"""A first look at a network on a few rows of data: refuse early what cannot work, learn what can.

What is found: the outputs, whether the network draws random numbers itself (dropout), whether vmap can batch it in both
of its modes, and which operations use each random weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesprop import lanes, rng
from bayesprop.errors import BayespropError, DataError
from bayesprop.random_weights import Use, trace

if TYPE_CHECKING:
    from bayesprop.model import Model

__all__ = ["Findings", "inspect"]


@dataclass(frozen=True)
class Findings:
    """What a first look shows. `outputs` are those of the evaluation mode, `vmap_failure` is "" if vmap batches it."""

    outputs: Tensor
    draws_globally: bool
    vmap_failure: str
    uses: dict[str, tuple[Use, ...]]


def inspect(model: Model, inputs: Any) -> Findings:
    """Look at the model's network as it came, in training mode and then, to stay, in evaluation mode."""
    named = dict(model.network.named_parameters())
    weights = {b.name: named[b.name].detach() for b in model.layout.of_kind("random", "point")}
    model.set_mode(True)
    with torch.no_grad(), rng.quarantine(0, model.device):
        _, draws = _run(model, weights, inputs)
        failure = _lane_obstacle(model, weights, inputs, not draws)
        uses = _trace(model, weights, inputs)
        model.set_mode(False)
        outputs, draws_in_evaluation = _run(model, weights, inputs)
        failure = failure or _lane_obstacle(model, weights, inputs, not draws_in_evaluation)
    return Findings(outputs, draws, failure, uses)


def _copies(model: Model) -> dict[str, Tensor]:
    """Buffers that a pass may write into."""
    return {name: buffer.clone() for name, buffer in model.buffers.items()}


def _run(model: Model, weights: Mapping[str, Tensor], inputs: Any) -> tuple[Tensor, bool]:
    """The outputs, and whether the pass drew from torch's global generator."""
    before = _generator_state(model.device)
    try:
        outputs = model.forward(weights, _copies(model), inputs)
    except BayespropError:
        raise
    except Exception as error:
        shapes = pytree.tree_map(lambda t: f"{list(t.shape)} {t.dtype}", inputs)
        raise DataError(
            f"the network cannot take these inputs: {error}",
            received=f"inputs {shapes}",
            expected="what network(inputs) accepts",
        ) from error
    return outputs, not torch.equal(before, _generator_state(model.device))


def _lane_obstacle(model: Model, weights: Mapping[str, Tensor], inputs: Any, compare: bool) -> str:
    """Why lanes run in a loop: vmap cannot batch the network in its present mode; "" if it can."""
    if model.tied_padding:
        return f"vmap trains the padding row of a tied embedding, {model.tied_padding}"
    return lanes.obstacle(model.forward, weights, model.buffers, inputs, compare=compare)


def _trace(model: Model, weights: Mapping[str, Tensor], inputs: Any) -> dict[str, tuple[Use, ...]]:
    """How each random weight is used: a forward pass with two and one with three examples, recorded."""
    random = {b.name: weights[b.name] for b in model.layout.of_kind("random")}

    def call(recorded: Mapping[str, Tensor], rows: int) -> Tensor:
        # Rows repeat where there are fewer than three: only shapes are looked at.
        some = pytree.tree_map(lambda t: t[torch.arange(rows, device=t.device) % t.shape[0]], inputs)
        return model.forward({**weights, **recorded}, _copies(model), some)

    return trace(call, random)


def _generator_state(device: torch.device) -> Tensor:
    state = torch.default_generator.get_state()
    return torch.cat((state, torch.cuda.get_rng_state(device))) if device.type == "cuda" else state
