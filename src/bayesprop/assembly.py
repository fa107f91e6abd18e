"""How a network is laid out into the columns of theta: which of its parameters are random, which are point estimates.

A parameter belongs to one of four kinds. `fixed` ones stay as they are: those that do not require a gradient and those
that a pattern names. Of the rest, the ones that `random` names get a distribution, and the others become point
estimates. A tied parameter is one block under its first name; either of its names may be given in a pattern. The
columns are the random parameters in the network's order, then the latents, then the point estimates.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesprop import priors
from bayesprop.errors import ConfigurationError
from bayesprop.latents import Latent
from bayesprop.layout import Block, Kind, Layout, match
from bayesprop.priors.bound import BoundPrior

__all__ = ["Assembly", "assemble", "bind_prior", "copy_network"]


@dataclass(frozen=True)
class Assembly:
    """A network as columns.

    `ties` are pairs (further name, first name) of tied parameters and of shared buffers. `padding` maps an embedding's
    parameter to the row that stands for "nothing" and is not to be trained; `tied_padding` names an embedding with such
    a row whose weight is used elsewhere too, where the row is a weight like any other ("" if there is none).
    """

    layout: Layout
    bound_prior: BoundPrior
    fixed_names: tuple[str, ...]
    ties: tuple[tuple[str, str], ...]
    padding: Mapping[str, int]
    tied_padding: str


def copy_network(network: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """A deep copy of a network, whatever it has been through.

    What its modules remember of an earlier pass (an attention map, a weight that a hook computed) is copied without its
    history, with which torch would refuse to copy it. `memo` is that of a copy that the network is a part of.
    """
    for name, tensor in (*network.named_parameters(), *network.named_buffers()):
        if nn.parameter.is_lazy(tensor):
            raise ConfigurationError(
                f"{name} has no shape yet: the network has lazy layers",
                write="network(example_input)  # once, before bp.Model(network, ...)",
            )
    memo = {} if memo is None else memo
    for module in network.modules():
        for value in pytree.tree_leaves(vars(module)):
            if isinstance(value, Tensor):
                plain = torch.func.debug_unwrap(value)  # a tensor may be left over from inside of vmap
                if plain is not value or not plain.is_leaf:
                    memo[id(value)] = plain.detach().clone()
    try:
        return copy.deepcopy(network, memo)
    except Exception as error:
        raise ConfigurationError(
            f"the network cannot be copied: {error}", write="Model(copyable_network, ...)"
        ) from error


def assemble(
    network: nn.Module,
    prior: Any,
    latents: Sequence[Latent],
    random: str | Sequence[str],
    fixed: str | Sequence[str],
) -> Assembly:
    """The layout of a network under a prior; `latents` are those of the likelihood."""
    parameters = _parameters(network)
    trainable = {n: p for n, (p, _) in parameters.items() if p.requires_grad and p.numel() > 0}
    chosen, points = _choose(trainable, parameters, random, fixed)
    _refuse_unlearnable(network, {name: trainable[name] for name in (*chosen, *points)})
    blocks: list[Block] = []

    def add(name: str, shape: Sequence[int], kind: Kind, dtype: torch.dtype, aliases: tuple[str, ...] = ()) -> None:
        module = name.rpartition(".")[0] if kind != "latent" else ""
        blocks.append(Block(name, tuple(shape), blocks[-1].stop if blocks else 0, kind, dtype, module, aliases))

    for name in chosen:
        add(name, trainable[name].shape, "random", trainable[name].dtype, parameters[name][1])
    bound = bind_prior(network, prior, blocks)
    wide = torch.float64 if any(b.dtype == torch.float64 for b in blocks) else torch.float32
    for latent in (*bound.latents, *latents):
        add(latent.name, latent.shape, "latent", wide)
    for name in points:
        add(name, trainable[name].shape, "point", trainable[name].dtype, parameters[name][1])
    learnt = {block.name for block in blocks}
    rows, tied = _find_padding(network, blocks)
    return Assembly(
        layout=Layout(tuple(blocks)),
        bound_prior=bound,
        fixed_names=tuple(name for name in parameters if name not in learnt),
        ties=_find_ties(network),
        padding=rows,
        tied_padding=tied,
    )


def bind_prior(network: nn.Module, prior: Any, blocks: Sequence[Block]) -> BoundPrior:
    """The prior on the random blocks of a network.

    A mapping of priors may also mention names that are not random: it may be a whole state dict, say.
    """
    random = {name for block in blocks for name in (block.name, *block.aliases)}
    names = [name for name, _ in network.named_parameters(remove_duplicate=False)]
    others = tuple(name for name in (*names, *dict(network.named_buffers())) if name not in random)
    return priors.bind(prior, tuple(blocks), others)


def _parameters(network: nn.Module) -> dict[str, tuple[nn.Parameter, tuple[str, ...]]]:
    """Each parameter once, with the further names of tied ones."""
    owner: dict[int, str] = {}
    found: dict[str, tuple[nn.Parameter, tuple[str, ...]]] = {}
    for name, parameter in network.named_parameters(remove_duplicate=False):
        if parameter.is_meta:
            raise ConfigurationError(
                f"{name} has no values: it is on the meta device",
                write='network.to_empty(device="cpu") and network.load_state_dict(...), before bp.Model(network, ...)',
            )
        first = owner.setdefault(id(parameter), name)
        if first == name:
            found[name] = (parameter, ())
        else:
            found[first] = (parameter, (*found[first][1], name))
    return found


def _choose(
    trainable: Mapping[str, nn.Parameter],
    parameters: Mapping[str, tuple[nn.Parameter, tuple[str, ...]]],
    random: str | Sequence[str],
    fixed: str | Sequence[str],
) -> tuple[list[str], list[str]]:
    """The names of the random parameters and of the point estimates, each in the network's order."""
    if not trainable:
        raise ConfigurationError(
            "nothing in this network can be learnt",
            received=f"{len(parameters)} parameters, none with requires_grad=True",
            write="network.requires_grad_(True)  # or only for the layers that should be Bayesian",
        )
    first = {alias: n for n, (_, more) in parameters.items() for alias in (n, *more)}  # tied ones under any name
    stays = {first[n] for n in match(fixed, list(first), argument="fixed")} if fixed else set()
    rest = [name for name in trainable if name not in stays]
    hits = match(random, list(first), argument="random") if random and rest else {}
    for pattern in dict.fromkeys(hits.values()):
        named = [name for name, found in hits.items() if found == pattern]
        if not any(first[name] in rest for name in named):
            held = first[named[0]] in stays
            raise ConfigurationError(
                f"random: the pattern {pattern!r} names only parameters that stay fixed",
                received=f"{', '.join(named[:20])}, " + (f"fixed={fixed!r}" if held else "with requires_grad=False"),
                write=f"a pattern in fixed= that leaves {named[0]} out"
                if held
                else f'network.get_parameter("{named[0]}").requires_grad_(True)  # before bp.Model(network, ...)',
            )
    chosen = {first[name] for name in hits if first[name] in rest}
    if not chosen:
        raise ConfigurationError(
            "no parameter would be random", received=f"random={random!r}, fixed={fixed!r}", write='random="*"'
        )
    return [n for n in rest if n in chosen], [n for n in rest if n not in chosen]


def _refuse_unlearnable(network: nn.Module, learnt: Mapping[str, nn.Parameter]) -> None:
    """Parameters that have a gradient in torch, but not one that a distribution could be learnt by."""
    for name, parameter in learnt.items():
        if parameter.is_complex():
            raise ConfigurationError(f"{name} is complex; weights must be real", write=f'fixed="{name}"')
    values = {id(parameter): name for name, parameter in learnt.items()}
    for path, module in network.named_modules():
        if not isinstance(module, nn.Embedding | nn.EmbeddingBag) or module.max_norm is None:
            continue
        if id(module.weight) in values:
            raise ConfigurationError(
                f"{values[id(module.weight)]} is renormalised while it is used, which its gradient does not know",
                received=f"max_norm={module.max_norm}",
                expected="an embedding without max_norm, whose prior keeps it small, or one that stays fixed",
                write=f'network.get_submodule("{path}").max_norm = None  # before bp.Model(network, ...)',
            )


def _find_ties(network: nn.Module) -> tuple[tuple[str, str], ...]:
    """`Assembly.ties`.

    A module that is registered twice brings no ties: its tensors are exchanged under one of its names, and torch, which
    exchanges them back name by name, would leave the values of a pass in the place of the parameters under the other.
    """
    owners: dict[int, str] = {}
    places: set[tuple[nn.Module, str]] = set()
    ties: list[tuple[str, str]] = []
    parameters = network.named_parameters(remove_duplicate=False)
    for name, tensor in (*parameters, *network.named_buffers(remove_duplicate=False)):
        path, _, attribute = name.rpartition(".")
        place = (network.get_submodule(path), attribute)
        first = owners.setdefault(id(tensor), name)
        if first != name and place not in places:
            ties.append((name, first))
        places.add(place)
    return tuple(ties)


def _find_padding(network: nn.Module, blocks: Sequence[Block]) -> tuple[dict[str, int], str]:
    """`Assembly.padding` and `Assembly.tied_padding`."""
    rows, tied = {}, ""
    for block in blocks:
        if block.kind == "latent":
            continue
        users = {network.get_submodule(name.rpartition(".")[0]) for name in (block.name, *block.aliases)}
        found = {module.padding_idx if isinstance(module, nn.Embedding) else None for module in users}
        row = found.pop()
        if found:
            tied = block.name
        elif row is not None:
            rows[block.name] = row
    return rows, tied
