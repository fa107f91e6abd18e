"""A first look at a network on a few rows of data: refuse early what cannot work, learn what can.

What is found: the outputs, whether the network draws random numbers itself (dropout), whether vmap can batch it in both
of its modes, and which operations use each random weight. What cannot work is answered with the line to write instead.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesprop import lanes, likelihoods, rng
from bayesprop.errors import BayespropError, BayespropWarning, ConfigurationError, DataError
from bayesprop.random_weights import Use, trace

if TYPE_CHECKING:
    from bayesprop.model import Model

__all__ = ["Findings", "cannot_pick", "check_parts", "inspect", "no_tensor", "refused"]


_RECOMPUTES = (
    "the network runs parts of itself again in the backward pass, where it no longer has the weights of this pass"
)


@dataclass(frozen=True)
class Findings:
    """What a first look shows. `outputs` are those of the evaluation mode, `vmap_failure` is "" if vmap batches it.

    `draws_globally`: it draws random numbers itself; `draws_predicting`: in evaluation mode, too. `written` are the
    buffers that the network writes into although it is in evaluation mode.
    """

    outputs: Tensor
    draws_globally: bool
    draws_predicting: bool
    vmap_failure: str
    uses: dict[str, tuple[Use, ...]]
    written: frozenset[str]


def inspect(model: Model, inputs: Any) -> Findings:
    """Look at the model's network as it came, in training mode and then, to stay, in evaluation mode."""
    named = dict(model.network.named_parameters())
    weights = {b.name: named[b.name].detach() for b in model.layout.of_kind("random", "point")}
    model.set_mode(True)
    model.writes_inputs = False
    inputs = pytree.tree_map(torch.clone, inputs)
    with torch.no_grad(), rng.quarantine(0, model.device):
        draws = _look_at_training(model, weights, inputs)
        # Every lane reads the same inputs; from here on each gets its own.
        model.writes_inputs = any(tensor._version > 0 for tensor in pytree.tree_leaves(inputs))
        failure = _lane_obstacle(model, weights, inputs, not draws)
        uses = _trace(model, weights, inputs)
        model.set_mode(False)
        copies = _copies(model)
        outputs, draws_in_evaluation = _run(model, weights, inputs, copies)
        written = frozenset(name for name, copy in copies.items() if copy._version > 0)
        failure = failure or _lane_obstacle(model, weights, inputs, not draws_in_evaluation)
        _look_at_one_row(model, weights, inputs, outputs, not draws_in_evaluation)
    return Findings(outputs, draws or draws_in_evaluation, draws_in_evaluation, failure, uses, written)


# -- what is said when something cannot work ---------------------------------------------------------------------------


def check_parts(network: Any, likelihood: Any, output: Any) -> None:
    """Refuse what cannot be the part of a model that it is passed as."""
    if not isinstance(network, nn.Module):
        raise ConfigurationError(
            "Model needs a network to make Bayesian",
            received=f"a {type(network).__name__}",
            expected="a torch.nn.Module object",
            write="bp.Model(Net(), ...)" if isinstance(network, type) else "bp.Model(network, likelihood=...)",
        )
    if isinstance(network, nn.DataParallel | nn.parallel.DistributedDataParallel | torch.jit.ScriptModule):
        scripted = isinstance(network, torch.jit.ScriptModule)
        raise ConfigurationError(
            "Model needs the network itself, not what runs it elsewhere",
            received=f"a {type(network).__name__}",
            write="bp.Model(network, ...)  # as it was before torch.jit"
            if scripted
            else "bp.Model(network.module, ...)",
        )
    if not isinstance(likelihood, likelihoods.Likelihood):
        raise ConfigurationError(
            "Model needs to know how targets depend on the network's output",
            received=f"likelihood={likelihood!r}",
            write="likelihood=bp.likelihoods.Categorical()  # or Gaussian(), Bernoulli(), Poisson(), ...",
        )
    if output is not None and not callable(output):
        raise ConfigurationError(
            "output picks the prediction out of what the network returns",
            received=f"output={output!r}",
            expected="a function",
            write=f"output=lambda result: result[{output!r}]",
        )


def refused(model: Model, inputs: Any, error: Exception, expected: str = "what network(inputs) accepts") -> DataError:
    """What is said of inputs on which the network raised an error."""
    write = ""
    tables = {n: m.num_embeddings for n, m in model.network.named_modules() if isinstance(m, nn.Embedding)}
    if str(error).startswith("Expected more than 1 value per channel"):
        expected = "batch normalisation needs at least two rows in each batch that it trains on"
        write = "batch_size=2 or more, DataLoader(..., drop_last=True); layers that arrive in eval() mode stay in it"
    elif tables and isinstance(error, IndexError):
        sizes = (f"{name or 'the network'} has {count}" for name, count in tables.items())
        expected = f"indices below num_embeddings: {', '.join(sizes)}"
        write = "torch.nn.Embedding(num_embeddings=<largest index + 1>, ...)"
    elif tables and isinstance(inputs, Tensor) and inputs.is_floating_point():
        write = "inputs.long()  # torch.nn.Embedding reads whole numbers"
    elif isinstance(inputs, Tensor) and inputs.dim() == 1:
        write = "inputs[:, None] if these are rows of one feature, inputs[None] if this is one row"
    return DataError(
        f"the network cannot take these inputs: {error}",
        received=f"inputs {pytree.tree_map(lambda t: f'{list(t.shape)} {t.dtype}', inputs)}",
        expected=expected,
        write=write,
    )


def no_tensor(result: Any) -> DataError:
    """What is said of a network that returns something else than one tensor."""
    if isinstance(result, Mapping):
        found = [f"[{key!r}]" for key, item in result.items() if isinstance(item, Tensor)]
    elif isinstance(result, tuple | list):
        found = [f"[{index}]" for index, item in enumerate(result) if isinstance(item, Tensor)]
    else:
        found = [f".{name}" for name, item in getattr(result, "__dict__", {}).items() if isinstance(item, Tensor)]
    size = f" of {len(result)}" if hasattr(result, "__len__") else ""
    return DataError(
        "the network must return one tensor to be compared with the targets",
        received="nothing" if result is None else f"a {type(result).__name__}{size}",
        write=f"bp.Model(network, output=lambda result: result{found[0]}, ...)"
        if found
        else "return outputs  # a tensor, at the end of the network's forward",
    )


def cannot_pick(result: Any, error: Exception) -> DataError:
    """What is said when the user's `output` fails on what the network returns."""
    return DataError(
        f"output=... cannot pick from what the network returns: {type(error).__name__}: {error}",
        received=f"a {type(result).__name__}" + (f" of {len(result)}" if hasattr(result, "__len__") else ""),
        expected="a function of it that returns a tensor",
    )


def _recomputation() -> ConfigurationError:
    """What is said of a network with activation checkpointing: the second run of a part happens in the backward pass,
    when the network has its own weights back, so that gradients would be those of other weights, without a word."""
    return ConfigurationError(
        _RECOMPUTES,
        received="activation checkpointing (torch.utils.checkpoint)",
        expected="a network that keeps its activations until the backward pass",
        write="network.gradient_checkpointing_disable()  # or call the layers without checkpoint(...)",
    )


# -- the looks ---------------------------------------------------------------------------------------------------------


def _copies(model: Model) -> dict[str, Tensor]:
    """Buffers that a pass may write into."""
    return {name: buffer.clone() for name, buffer in model.buffers.items()}


def _run(
    model: Model, weights: Mapping[str, Tensor], inputs: Any, buffers: Mapping[str, Tensor] | None = None
) -> tuple[Tensor, bool]:
    """The outputs, and whether the pass drew from torch's global generator."""
    before = _generator_state(model.device)
    try:
        outputs = model.forward(weights, _copies(model) if buffers is None else buffers, inputs)
    except BayespropError:
        raise
    except Exception as error:
        raise refused(model, inputs, error) from error
    return outputs, not torch.equal(before, _generator_state(model.device))


def _look_at_training(model: Model, weights: Mapping[str, Tensor], inputs: Any) -> bool:
    """Refuse outputs that cannot be trained: no row for each row, or no way back to the weights. Returns whether the
    network draws from torch's global generator."""
    with torch.enable_grad():
        leaves = {name: weight.detach().requires_grad_(True) for name, weight in weights.items()}
        try:
            with contextlib.ExitStack() as stack:
                with contextlib.suppress(RuntimeError):  # whoever keeps saved tensors elsewhere around all this may
                    stack.enter_context(torch.autograd.graph.disable_saved_tensors_hooks(_RECOMPUTES))
                outputs, draws = _run(model, leaves, inputs)
        except DataError as error:
            if _RECOMPUTES not in str(error.__cause__):
                raise
            raise _recomputation() from error
    if _has_node(outputs, "CheckpointFunctionBackward"):
        raise _recomputation()
    rows = pytree.tree_leaves(inputs)[0].shape[0]
    if outputs.dim() == 0 or outputs.shape[0] != rows:
        raise DataError(
            "the network must return one row for each row of the inputs",
            received=f"outputs {tuple(outputs.shape)} for {rows} rows",
            expected=f"outputs ({rows}, ...)",
            write="a network that keeps the first dimension: torch.nn.Flatten() and not x.flatten(), batch_first=True",
        )
    if not outputs.requires_grad:
        raise DataError(
            "the network's output has no gradient with respect to any weight that is to be learnt",
            received=f"outputs of {outputs.dtype}",
            expected="a forward pass that torch can differentiate",
            write="outputs without argmax() or round(), and no torch.no_grad(), .detach(), .item() or .numpy() inside",
        )
    return draws


def _look_at_one_row(model: Model, weights: Mapping[str, Tensor], inputs: Any, outputs: Tensor, compare: bool) -> None:
    """Hold the last row alone against the last row among others, in evaluation mode.

    The last, because a recurrent network that takes rows for times tells each row about those before it.
    """
    if outputs.shape[0] < 2:
        return
    problem = ""
    try:
        alone, _ = _run(model, weights, pytree.tree_map(lambda t: t[-1:], inputs))
    except BayespropError as error:
        problem = f"the network cannot take it alone: {str(error).splitlines()[0]}"
    else:
        if alone.shape != (1, *outputs.shape[1:]):
            raise DataError(
                "the network must return one row for each row of the inputs, also for a single one",
                received=f"outputs {tuple(alone.shape)} for 1 row, {tuple(outputs.shape)} for {outputs.shape[0]} rows",
                expected=f"outputs {(1, *outputs.shape[1:])} for 1 row",
                write="x.squeeze(-1) instead of x.squeeze() in the network's forward",
            )
        scale = float(outputs.abs().max())
        # Rounding differs with the number of rows: as much as lanes.obstacle allows.
        tolerance = max(0.01, 16.0 * torch.finfo(outputs.dtype).eps) * scale
        if compare and float((alone[0] - outputs[-1]).abs().max()) > tolerance:
            problem = "alone it gives another output"
    if problem:
        warnings.warn(
            f"what the network says about a row depends on the other rows of the batch ({problem}), so predictions "
            "depend on what is predicted together. A recurrent layer or attention without batch_first=True does that, "
            "and batch normalisation without running statistics.",
            BayespropWarning,
            stacklevel=4,
        )


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


def _has_node(outputs: Tensor, name: str) -> bool:
    """Whether a function of that name took part in computing the outputs."""
    waiting, seen = [outputs.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if type(node).__name__ == name:
            return True
        seen.add(node)
        waiting.extend(parent for parent, _ in node.next_functions)
    return False
