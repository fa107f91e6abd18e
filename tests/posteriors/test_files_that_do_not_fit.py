"""Loading into another network, or from another file, is an error that says what differs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayesprop as bp
from bayesprop import likelihoods, priors, storage
from bayesprop.errors import CheckpointError

LINEAR = nn.Linear(3, 4)


def net(**layers: nn.Module) -> nn.Module:
    """Named layers, one after the other."""
    network = nn.Sequential()
    for name, layer in layers.items():
        network.add_module(name, layer)
    return network.double()


def trained() -> nn.Module:
    return net(first=nn.Linear(3, 4), norm=nn.BatchNorm1d(4), last=nn.Linear(4, 1))


def frozen() -> nn.Module:
    """A trunk whose weights are given and fixed, and a head to learn."""
    network = net(trunk=nn.Linear(3, 4), head=nn.Linear(4, 1))
    with torch.no_grad():
        network.trunk.weight.copy_(torch.arange(12.0).reshape(4, 3))
        network.trunk.bias.fill_(0.5)
    network.trunk.requires_grad_(False)
    return network


@pytest.fixture
def saved(gaussian, tmp_path):
    """Saves a Gaussian over the weights of a network, and gives the path."""

    def save(network: nn.Module, **arguments):
        model = bp.Model(network, likelihood=likelihoods.Gaussian(0.5), **arguments)
        gaussian(model).save(tmp_path / "saved.bayes")
        return tmp_path / "saved.bayes"

    return save


def refused(path, network: nn.Module, **arguments) -> str:
    with pytest.raises(CheckpointError) as caught:
        bp.load(path, network=network, **arguments)
    message = str(caught.value)
    assert str(path) in message
    assert isinstance(caught.value, OSError)
    return message


DIFFERENT = {
    "missing": (net(first=LINEAR, norm=nn.BatchNorm1d(4)), "last.bias is in the file, not in the network"),
    "added": (
        net(first=LINEAR, norm=nn.BatchNorm1d(4), last=nn.Linear(4, 1), more=nn.Linear(1, 1)),
        "more.bias is in the network, not in the file; more.weight is in the network, not in the file",
    ),
    "renamed": (
        net(first=LINEAR, norm=nn.BatchNorm1d(4), head=nn.Linear(4, 1)),
        "head.bias is in the network, not in the file; head.weight is in the network, not in the file; "
        "last.bias is in the file, not in the network; last.weight is in the file, not in the network",
    ),
    "reshaped": (
        net(first=LINEAR, norm=nn.BatchNorm1d(4), last=nn.Linear(4, 2)),
        "last.bias: random [2] in the network, random [1] in the file; "
        "last.weight: random [2, 4] in the network, random [1, 4] in the file",
    ),
    "in another order": (
        net(last=nn.Linear(4, 1), norm=nn.BatchNorm1d(4), first=LINEAR),
        "the same parameters in another order",
    ),
    "in single precision": (trained().float(), "first.weight: float32 in the network, float64 in the file"),
}


@pytest.mark.parametrize("name", list(DIFFERENT))
def test_another_network_is_refused(saved, name):
    network, difference = DIFFERENT[name]
    message = refused(saved(trained()), network)
    assert "does not fit this network" in message
    assert f"received: {difference}" in message
    assert "expected: the network that was trained" in message


@pytest.mark.parametrize(
    ("norm", "difference"),
    [
        (
            nn.LayerNorm(4),
            "the buffer norm.num_batches_tracked is in the file, not in the network; "
            "the buffer norm.running_mean is in the file, not in the network; "
            "the buffer norm.running_var is in the file, not in the network",
        ),
        (
            nn.BatchNorm1d(4, track_running_stats=False),
            "the buffer norm.running_mean is in the file, not in the network",
        ),
    ],
)
def test_buffers_must_be_the_same(saved, norm, difference):
    assert difference in refused(saved(trained()), net(first=LINEAR, norm=norm, last=nn.Linear(4, 1)))


class Offset(nn.Module):
    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.register_buffer("offset", torch.zeros(shape))

    def forward(self, x):
        return self.layer(x) + self.offset


def test_buffers_must_have_the_same_shapes(saved):
    message = refused(saved(Offset(1)), Offset(2))
    assert "received: the buffer offset: [2] in the network, [1] in the file" in message
    assert "the buffer offset is in the network, not in the file" in refused(saved(nn.Linear(3, 1)), Offset(1))


def test_a_padding_row_on_one_side_only_is_refused(saved):
    for there, here in ((0, None), (None, 0)):
        path = saved(nn.Embedding(3, 2, padding_idx=there))
        assert "received: weight has a padding row on one side only" in refused(
            path, nn.Embedding(3, 2, padding_idx=here)
        )


# -- fixed parameters --------------------------------------------------------------------------------------------------


def test_fixed_parameters_are_held_against_their_checksum(saved):
    path = saved(frozen())
    assert bp.load(path, network=frozen()).model.fixed_names == ("trunk.weight", "trunk.bias")
    other = frozen()
    other.trunk.weight.data[1, 2] = torch.nextafter(other.trunk.weight[1, 2], torch.tensor(99.0).double())
    message = refused(path, other)
    assert "was trained around other fixed parameters" in message
    assert "received: values of trunk.weight, trunk.bias that differ from those in training" in message
    assert "write: network.load_state_dict(pretrained); bp.load(path, network=network)" in message


def test_fixed_parameters_are_not_in_the_file(saved):
    _, tensors = storage.read(saved(frozen()))
    assert {name: list(t.shape) for name, t in tensors.items()} == {"posterior.mean": [1, 5], "posterior.std": [1, 5]}


def test_a_trunk_that_is_no_longer_fixed_is_refused_with_the_line_to_write(saved):
    message = refused(saved(frozen()), frozen().requires_grad_(True))
    assert (
        "received: trunk.bias was fixed in training, and is learnt here; "
        "trunk.weight was fixed in training, and is learnt here\n" in message
    )
    assert 'write: network.get_parameter("trunk.weight").requires_grad_(False)' in message


def test_what_was_learnt_must_not_be_fixed_now(saved):
    message = refused(saved(frozen().requires_grad_(True)), frozen())
    assert (
        "received: trunk.bias was learnt in training, and is fixed here; "
        "trunk.weight was learnt in training, and is fixed here\n" in message
    )


def test_a_fixed_parameter_that_is_missing_has_a_name(saved):
    other = net(trunk=nn.Linear(3, 4, bias=False), head=nn.Linear(4, 1))
    other.trunk.requires_grad_(False)
    assert "received: trunk.bias was fixed and is not in the network\n" in refused(saved(frozen()), other)
    assert "received: trunk.bias is fixed here and not in the file\n" in refused(saved(other), frozen())


# -- patterns and priors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [{"random": "last.*"}, {"fixed": "last.*"}, {"prior": {"last.*": priors.Normal(), "*": priors.Flat()}}]
)
def test_a_pattern_that_matches_nothing_here_is_a_matter_of_the_network(saved, arguments):
    path = saved(trained(), **arguments)
    message = refused(path, net(first=nn.Linear(3, 4), norm=nn.BatchNorm1d(4), head=nn.Linear(4, 1)))
    assert "does not fit this network: " in message
    kind = "random parameter" if "prior" in arguments else "parameter"
    assert f"{next(iter(arguments))}: the pattern 'last.*' matches no {kind}" in message
    assert "expected: the network that was trained" in message


def test_a_prior_with_other_columns_is_refused(saved):
    message = refused(saved(trained()), trained(), prior=priors.Normal(scale=priors.HalfNormal(shared="network")))
    assert "received: prior.scale is in the network, not in the file" in message


# -- files ------------------------------------------------------------------------------------------------------------


def test_what_is_no_posterior_is_refused(tmp_path):
    storage.write(tmp_path / "run.ckpt", {"kind": "training"}, {})
    message = refused(tmp_path / "run.ckpt", trained())
    assert "holds no posterior" in message
    assert "received: a file of kind 'training'" in message
    assert f'write: bp.fit(model, data, checkpoint="{tmp_path / "run.ckpt"}", resume=True)' in message


def test_a_kind_of_posterior_that_is_not_known_is_refused(saved):
    path = saved(trained())
    document, tensors = storage.read(path)
    assert document["class"] == "DiagonalGaussian"
    storage.write(path, {**document, "class": "Elsewhere"}, tensors)
    message = refused(path, trained())
    assert "holds a posterior of a kind that is not known here" in message
    assert "received: Elsewhere" in message
    able = message.partition("expected: one of ")[2]
    assert "DiagonalGaussian" in able
    assert able.endswith("; import the module that defines it first")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    assert "there is no file" in refused(tmp_path / "nothing.bayes", trained())


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_file_that_was_cut_short_is_refused(saved, share):
    path = saved(trained())
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert "cannot be read" in refused(path, trained())


def test_a_flipped_bit_is_refused_wherever_it_is(saved):
    path = saved(trained())
    content = path.read_bytes()
    places = range(0, len(content), 23)
    assert len(places) > 100
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 4
        path.write_bytes(bytes(damaged))
        refused(path, trained())
    path.write_bytes(content)
    assert bp.load(path, network=trained()).particles == 1
