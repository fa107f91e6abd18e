"""Networks and patterns that cannot be laid out into columns are refused with the line to write instead."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from bayesprop import likelihoods, priors
from bayesprop.assembly import Assembly, assemble, copy_network
from bayesprop.errors import ConfigurationError
from bayesprop.model import Model


class Network(nn.Module):
    """A trunk that is frozen, a body, a head and a number of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(3, 4).requires_grad_(False)
        self.body = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
        self.temperature = nn.Parameter(torch.tensor(1.0))
        self.head = nn.Linear(4, 2)


def _assemble(network: nn.Module, random: Any = "*", fixed: Any = ()) -> Assembly:
    return assemble(network, priors.Normal(), (), random, fixed)


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.phase = nn.Linear(3, 1), nn.Parameter(torch.ones(3, dtype=torch.complex64))


REFUSED: dict[str, tuple[Any, dict[str, Any], tuple[str, ...]]] = {
    "nothing to learn": (
        lambda: nn.Linear(2, 1).requires_grad_(False),
        {},
        (
            "nothing in this network can be learnt",
            "received: 2 parameters, none with requires_grad=True",
            "write: network.requires_grad_(True)",
        ),
    ),
    "no parameters": (nn.Tanh, {}, ("nothing in this network can be learnt", "received: 0 parameters")),
    "a misspelt name": (
        Network,
        {"random": "head.wieght"},
        ("random: the pattern 'head.wieght' matches no parameter. Did you mean 'head.weight'?", "expected: a name or"),
    ),
    "a misspelt wildcard": (
        Network,
        {"fixed": ["body.*", "haed.*"]},
        ("fixed: the pattern 'haed.*' matches no parameter.", 'write: fixed="temperature"'),
    ),
    "random and frozen": (
        Network,
        {"random": ["head.*", "trunk.*"]},
        (
            "random: the pattern 'trunk.*' names only parameters that stay fixed",
            "received: trunk.weight, trunk.bias, with requires_grad=False",
            'write: network.get_parameter("trunk.weight").requires_grad_(True)',
        ),
    ),
    "random and fixed": (
        Network,
        {"random": ["head.*", "body.*"], "fixed": "body.*"},
        (
            "random: the pattern 'body.*' names only parameters that stay fixed",
            "body.1.bias, fixed='body.*'",
            "write: a pattern in fixed= that leaves body.0.weight out",
        ),
    ),
    "nothing random": (Network, {"random": ()}, ("no parameter would be random", 'write: random="*"')),
    "everything fixed": (Network, {"fixed": "*"}, ("no parameter would be random", "fixed='*'")),
    "complex": (Complex, {}, ("phase is complex; weights must be real", 'write: fixed="phase"')),
    "a complex point estimate": (Complex, {"random": "linear.*"}, ("phase is complex", 'write: fixed="phase"')),
    "max_norm": (
        lambda: nn.Sequential(nn.Embedding(5, 2, max_norm=0.5), nn.Linear(2, 1)),
        {},
        (
            "0.weight is renormalised while it is used, which its gradient does not know",
            "received: max_norm=0.5",
            'write: network.get_submodule("0").max_norm = None',
        ),
    ),
    "no values": (lambda: nn.Linear(2, 1, device="meta"), {}, ("weight has no values: it is on the meta device",)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_laid_out_is_refused_with_the_line_to_write(case):
    make, options, parts = REFUSED[case]
    with pytest.raises(ConfigurationError) as caught:
        _assemble(make(), **options)
    first, *rest = str(caught.value).splitlines()
    assert first.startswith(parts[0])
    for part in parts[1:]:
        assert part in "\n".join(rest)


def test_the_lines_that_refusals_name_work():
    """Complex parameters that stay fixed or frozen, an embedding without its norm."""
    assert _assemble(Complex(), fixed="phase").fixed_names == ("phase",)
    frozen = Complex()
    frozen.phase.requires_grad_(False)
    assert _assemble(frozen).fixed_names == ("phase",)
    network = nn.Sequential(nn.Embedding(5, 2, max_norm=0.5), nn.Linear(2, 1))
    assert _assemble(network, fixed="0.weight").fixed_names == ("0.weight",)
    network.get_submodule("0").max_norm = None
    assert _assemble(network).layout.random == 13


@pytest.mark.parametrize(
    ("network", "name"),
    [
        (nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 1)), "0.weight"),
        (nn.Sequential(nn.Linear(2, 3), nn.LazyBatchNorm1d(affine=False)), "1.running_mean"),
    ],
)
def test_lazy_layers_are_refused_with_the_line_to_write(network, name):
    for attempt in (copy_network, lambda network: Model(network, likelihood=likelihoods.Gaussian())):
        with pytest.raises(ConfigurationError, match=f"{name} has no shape yet: the network has lazy layers") as caught:
            attempt(network)
        assert "write: network(example_input)  # once, before bp.Model(network, ...)" in str(caught.value)
    network(torch.zeros(4, 2))
    assert Model(network, likelihood=likelihoods.Gaussian()).layout.random == sum(
        p.numel() for p in network.parameters()
    )
