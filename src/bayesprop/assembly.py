"""How a network is laid out into the columns of theta: which of its parameters are random, which are point estimates.

A parameter belongs to one of four kinds. `fixed` ones stay as they are: those that do not require a gradient and those
that a pattern names. Of the rest, the ones that `random` names get a distribution, and the others become point
estimates. A tied parameter is one block under its first name; either of its names may be given in a pattern. The
columns are the random parameters in the network's order, then the latents, then the point estimates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bayesprop import priors
from bayesprop.errors import ConfigurationError
from bayesprop.latents import Latent
from bayesprop.layout import Block, Kind, Layout, match
from bayesprop.priors.bound import BoundPrior

__all__ = ["Assembly", "assemble", "bind_prior"]


@dataclass(frozen=True)
class Assembly:
    """A network as columns.

    `ties` are pairs (further name, first name) of tied parameters. `padding` maps an embedding's parameter to the row
    that stands for "nothing" and is not to be trained; `tied_padding` names an embedding with such a row whose weight
    is used elsewhere too, where the row is a weight like any other ("" if there is none).
    """

    layout: Layout
    bound_prior: BoundPrior
    fixed_names: tuple[str, ...]
    ties: tuple[tuple[str, str], ...]
    padding: Mapping[str, int]
    tied_padding: str


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
        ties=tuple((alias, block.name) for block in blocks for alias in block.aliases),
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
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ConfigurationError(
                f"{name} has no shape yet: the network has lazy layers",
                write="network(example_input)  # once, before bp.Model(network, ...)",
            )
        if parameter.is_complex():
            raise ConfigurationError(f"{name} is complex; weights must be real", write=f'fixed="{name}"')
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
    first = {alias: n for n in trainable for alias in (n, *parameters[n][1])}  # a tied parameter under any name
    stays = {first[n] for n in match(fixed, list(first), argument="fixed")} if fixed else set()
    rest = [name for name in trainable if name not in stays]
    names = [name for name in first if first[name] not in stays]
    chosen = {first[n] for n in match(random, names, argument="random")} if random and rest else set()
    if not chosen:
        raise ConfigurationError(
            "no parameter would be random", received=f"random={random!r}, fixed={fixed!r}", write='random="*"'
        )
    return [n for n in rest if n in chosen], [n for n in rest if n not in chosen]


def _find_padding(network: nn.Module, blocks: Sequence[Block]) -> tuple[dict[str, int], str]:
    """`Assembly.padding` and `Assembly.tied_padding`."""
    rows, tied = {}, ""
    owners = {name: block for block in blocks for name in (block.name, *block.aliases)}
    for name, module in network.named_modules():
        block = owners.get(f"{name}.weight" if name else "weight")
        if isinstance(module, nn.Embedding) and module.padding_idx is not None and block is not None:
            if block.aliases:
                tied = block.name
            else:
                rows[block.name] = module.padding_idx
    return rows, tied
