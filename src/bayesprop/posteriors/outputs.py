"""What the network says for many draws of its weights, a piece of the rows at a time.

Weights in memory and the widest layer's outputs stay within a budget, whatever the numbers of rows and draws are.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesprop.errors import ConfigurationError, DataError
from bayesprop.kernels.device import tf32_products
from bayesprop.model import Model
from bayesprop.prediction.chunks import Source
from bayesprop.rng import Rng, Stream, quarantine

if TYPE_CHECKING:
    from bayesprop.posteriors.posterior import Posterior

__all__ = ["check_features", "checked_draws", "outputs"]

WEIGHT_BUDGET = 64_000_000  # floats of sampled weights held at a time
ACTIVATION_BUDGET = 64_000_000  # floats of one layer's outputs held at a time
CACHED = 2_000_000  # the same on a CPU, where fresh memory and full caches cost more than the products gain
LARGE = 512_000_000  # the same on a GPU, whose time for small pieces is that of their launches


def outputs(posterior: Posterior, inputs: Any, draws: int, seed: int) -> Source:
    """Starts a pass over prepared inputs: (rows, outputs (particles * draws, rows, ...), latents) for all draws.

    Inputs that the network cannot take are refused here, before the first pass.
    """
    model, rng, particles = posterior.model, posterior.rng(seed), posterior.particles
    length = pytree.tree_leaves(inputs)[0].shape[0]
    widest, answer = _widths(model, inputs, rng)
    # As many rows as fit for one draw, then as many draws as fit for so many rows. What the network says is joined for
    # all draws; the weights of all draws are held if rows come in several pieces.
    working = CACHED if model.device.type == "cpu" else _working(model.device)
    rows = max(1, min(length, working // (particles * widest), ACTIVATION_BUDGET // (particles * draws * answer)))
    most = WEIGHT_BUDGET // (particles * model.layout.size)
    group = max(1, min(draws, working // (particles * widest * rows), most))

    # No decorator here: torch's one for generators holds on to a piece until the next one is made.
    def source() -> Iterator[tuple[slice, Tensor, dict[str, Tensor]]]:
        model.set_mode(False)
        with torch.no_grad():
            held = posterior.draw(rng, draws) if rows < length and draws <= most else None
        for start in range(0, length, rows):
            part = slice(start, min(start + rows, length))
            piece = pytree.tree_map(lambda t, part=part: t[part], inputs)
            found, latents = [], []
            with torch.no_grad(), _guard(model, rng.at(start)), tf32_products(model.device, posterior.context.tf32):
                for first in range(0, draws, group):
                    count = min(group, draws - first)
                    theta = posterior.draw(rng, count, first) if held is None else held[:, first : first + count]
                    own = posterior.draw_buffers(rng, count, first)
                    found.append(posterior.evaluate(rng, theta, own, piece, first))
                    latents.append(model.latent_values(theta))
                whole = (found[0] if len(found) == 1 else torch.cat(found, 1)).flatten(0, 1)
                joined = {name: torch.cat([some[name] for some in latents], 1).flatten(0, 1) for name in latents[0]}
            found.clear()
            yield part, whole, joined
            del whole

    return source


def _working(device: torch.device) -> int:
    """Floats of one layer's outputs on a GPU: an eighth of what is free, for a layer needs a few times as much."""
    if device.type != "cuda":
        return ACTIVATION_BUDGET
    return max(CACHED, min(LARGE, torch.cuda.mem_get_info(device)[0] // 32))


def _guard(model: Model, rng: Rng) -> contextlib.AbstractContextManager[None]:
    """For networks that draw from torch's generator also when they predict, such as dropout that is always on."""
    if not model.draws_globally:
        return contextlib.nullcontext()
    return quarantine(rng.integer(Stream.GLOBAL), model.device)


@torch.no_grad()
def _widths(model: Model, inputs: Any, rng: Rng) -> tuple[int, int]:
    """Numbers that the widest layer, and the network, put out for one row, from a look at two rows."""
    some = pytree.tree_map(lambda t: t[:2], inputs)
    model.set_mode(False)
    with _guard(model, rng):
        widest, answer = model.widest_layer(some), model.forward({}, {}, some).numel()
    count = pytree.tree_leaves(some)[0].shape[0]
    return -(-widest // count), -(-answer // count)


def checked_draws(draws: Any, write: str) -> int:
    """A number of draws for the call in `write`, which is the line to write instead."""
    number = 0
    if not isinstance(draws, bool):
        with contextlib.suppress(TypeError):
            number = operator.index(draws)
    if number < 1:
        verb = write.partition("(")[0].rpartition(".")[2]
        raise ConfigurationError(
            f"{verb}: draws must be at least 1", received=repr(draws), expected="a whole number", write=write
        )
    return number


def check_features(inputs: Any, scaling: Any) -> None:
    """Refuse inputs of another shape than those that were standardised: they could broadcast without a word."""
    if not scaling.scales_inputs or not isinstance(inputs, Tensor) or inputs.shape[1:] == scaling.input_mean.shape:
        return
    raise DataError(
        "the inputs have another shape than those of training",
        received=f"inputs {list(inputs.shape)}",
        expected=f"inputs {[inputs.shape[0], *scaling.input_mean.shape]}",
        write="posterior.predict(inputs[None])  # one row" if inputs.shape == scaling.input_mean.shape else "",
    )
