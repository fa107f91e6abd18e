"""How a network is laid out: the kind of each parameter, tied ones once, and what cannot be laid out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayesprop import likelihoods, priors
from bayesprop.assembly import Assembly, assemble, bind_prior
from bayesprop.inference.starting_point import starting_means
from bayesprop.layout import Block
from bayesprop.model import Model
from bayesprop.rng import Rng


class Network(nn.Module):
    """A trunk that is frozen, a body, a head, a number of its own and an empty parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(3, 4).requires_grad_(False)
        self.body = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
        self.temperature = nn.Parameter(torch.tensor(1.0))
        self.head = nn.Linear(4, 2)
        self.nothing = nn.Parameter(torch.zeros(0, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.trunk(x))) / self.temperature


class Tied(nn.Module):
    """One parameter in two modules, and one module under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(3, 3), nn.Linear(3, 3)
        self.decoder.weight = self.encoder.weight
        self.again = self.encoder


def _assemble(network: nn.Module, prior: Any = None, latents: Any = (), random: Any = "*", fixed: Any = ()) -> Assembly:
    return assemble(network, prior or priors.Normal(), latents, random, fixed)


def _kinds(found: Assembly) -> dict[str, list[str]]:
    kinds = {kind: [block.name for block in found.layout.of_kind(kind)] for kind in ("random", "latent", "point")}
    return {**kinds, "fixed": list(found.fixed_names)}


BODY = ["body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias"]
HEAD, TRUNK = ["head.weight", "head.bias"], ["trunk.weight", "trunk.bias"]


# -- kinds ------------------------------------------------------------------------------------------------------------


# name: (random, fixed, the random parameters, the fixed ones); the others are point estimates
CHOICES: dict[str, tuple[Any, Any, list[str], list[str]]] = {
    "all": ("*", (), ["temperature", *BODY, *HEAD], ["nothing", *TRUNK]),
    "head": ("head.*", (), HEAD, ["nothing", *TRUNK]),
    "parts": (
        ["head.weight", "*.1.*"],
        "temperature",
        ["body.1.weight", "body.1.bias", "head.weight"],
        ["temperature", "nothing", *TRUNK],
    ),
    "a fixed body": ("*", "b*", ["temperature", *HEAD], ["nothing", *TRUNK, *BODY]),
    "what is frozen already": (
        "*",
        ["trunk.*", "*.bias"],
        ["temperature", "body.0.weight", "body.1.weight", "head.weight"],
        ["nothing", *TRUNK, "body.0.bias", "body.1.bias", "head.bias"],
    ),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_each_parameter_has_one_kind(choice):
    random, fixed, chosen, stays = CHOICES[choice]
    kinds = _kinds(_assemble(Network(), random=random, fixed=fixed))
    assert (kinds["random"], kinds["fixed"]) == (chosen, stays)
    names = [name for name, _ in Network().named_parameters()]
    assert len(names) == 10
    assert kinds["point"] == [name for name in names if name not in (*chosen, *stays)]
    assert kinds["latent"] == []


def test_columns_are_random_then_latents_then_points():
    likelihood = likelihoods.Gaussian()
    prior = {"head.weight": priors.Horseshoe(), "*": priors.Normal(scale=priors.HalfNormal())}
    found = _assemble(Network(), prior, likelihood.latents, ["head.*", "temperature"], "body.0.*")
    blocks = found.layout.blocks
    assert [block.kind for block in blocks] == ["random"] * 3 + ["latent"] * 5 + ["point"] * 2
    assert blocks[0] == Block("temperature", (), 0, "random", torch.float32, "")
    assert [block.start for block in blocks] == [0, *(block.stop for block in blocks[:-1])]
    assert blocks[7].name == "likelihood.scale"
    assert [latent.name for latent in found.bound_prior.latents] == [block.name for block in blocks[3:7]]
    layout = found.layout
    # The horseshoe brings a scale for each of 8 weights and one for the layer; the others one for each module.
    assert (layout.random, layout.latent, layout.size) == (1 + 8 + 2, 11 + (8 + 1 + 1 + 1) + 1, 23 + 8)
    assert (found.bound_prior.random, found.bound_prior.size) == (11, 22)


def test_theta_has_a_row_for_each_particle_and_a_column_for_each_number():
    model = Model(Network(), likelihood=likelihoods.Gaussian(), random="head.*")
    theta = starting_means(model, Rng.create(0, particles=3))
    assert theta.shape == (3, 10 + 1 + 1 + 20 + 8)
    assert {name: tuple(t.shape) for name, t in model.weights(theta).items()} == {
        name: (3, *parameter.shape)
        for name, parameter in Network().named_parameters()
        if not name.startswith(("trunk", "nothing"))
    }
    assert model.fixed_names == ("nothing", *TRUNK)


def test_a_single_layer_is_a_network():
    found = _assemble(nn.Linear(3, 2))
    assert [(block.name, block.module) for block in found.layout.blocks] == [("weight", ""), ("bias", "")]
    assert found.layout.random == found.layout.size == 8
    assert found.fixed_names == ()


def test_columns_of_float64_networks_keep_their_type():
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1).double())
    found = _assemble(network, priors.Normal(scale=priors.HalfNormal(shared="network")))
    assert [block.dtype for block in found.layout.blocks] == [torch.float32] * 2 + [torch.float64] * 3


# -- ties -------------------------------------------------------------------------------------------------------------


def test_a_tied_parameter_is_one_block_under_its_first_name():
    found = _assemble(Tied())
    blocks = {block.name: block.aliases for block in found.layout.blocks}
    assert blocks == {
        "encoder.weight": ("decoder.weight", "again.weight"),
        "encoder.bias": ("again.bias",),
        "decoder.bias": (),
    }
    assert found.layout.size == 9 + 3 + 3
    # Exchanged under its second name is only what lies in another place.
    assert found.ties == (("decoder.weight", "encoder.weight"),)


@pytest.mark.parametrize("pattern", ["encoder.weight", "decoder.weight", "again.w*"])
def test_a_tied_parameter_answers_to_all_its_names(pattern):
    assert _kinds(_assemble(Tied(), random=pattern))["random"] == ["encoder.weight"]
    assert _kinds(_assemble(Tied(), fixed=pattern))["fixed"] == ["encoder.weight"]
    bound = _assemble(Tied(), {pattern: priors.Laplace(), "*": priors.Normal()}).bound_prior
    assert set(bound.descriptions.items()) >= {("encoder.weight", "Laplace(0, 1)"), ("decoder.bias", "Normal(0, 1)")}


def test_shared_buffers_are_ties_and_shared_modules_are_none():
    network = nn.ModuleList([nn.BatchNorm1d(2), nn.BatchNorm1d(2)])
    network[1].register_buffer("running_var", network[0].running_var)
    network.append(network[1])
    assert _assemble(network).ties == (("1.running_var", "0.running_var"),)


@pytest.mark.parametrize("same", [True, False])
def test_padding_rows(same):
    """An embedding's own row, also where it stands under two names; a row that somebody else uses is no padding."""
    network = nn.ModuleDict({"first": nn.Embedding(5, 2, padding_idx=1), "head": nn.Linear(2, 5, bias=False)})
    network["plain"] = nn.Embedding(5, 2)
    network["again"] = network["first"]
    network["twin"] = nn.Embedding(5, 2, padding_idx=1 if same else 2)
    network["twin"].weight = network["first"].weight
    found = _assemble(network)
    assert (dict(found.padding), found.tied_padding) == (({"first.weight": 1}, "") if same else ({}, "first.weight"))
    network["head"].weight = network["first"].weight
    found = _assemble(network)
    assert (dict(found.padding), found.tied_padding) == ({}, "first.weight")
    assert _assemble(network, random="plain.*", fixed="first.*").tied_padding == ""


# -- priors -----------------------------------------------------------------------------------------------------------


def test_a_mapping_of_priors_may_be_a_whole_state_dict():
    network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    network[0].requires_grad_(False)
    prior = priors.pretrained(network, scale=0.3)
    assert set(prior) == {name for name, _ in network.named_parameters()}
    found = bind_prior(network, prior, _assemble(network, random="2.*").layout.of_kind("random"))
    assert found.random == 4
    state = priors.pretrained(network.state_dict(), scale=0.3)
    assert "1.running_mean" in state
    assert bind_prior(network, state, _assemble(network, random="2.*").layout.of_kind("random")).random == 4
