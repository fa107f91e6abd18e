"""The table of a model before training: every parameter, its prior, its evaluation, and the bytes that are true."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesprop import inference, likelihoods, priors
from bayesprop.description import NOT_SEEN, Description, Row
from bayesprop.errors import ConfigurationError
from bayesprop.inference.method import state_tensors
from bayesprop.model import Model
from bayesprop.random_weights import Flipout, LocalReparameterization, SharedWeights
from bayesprop.rng import Rng


class Network(nn.Module):
    """Something of everything: tied, frozen, batch statistics, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.trunk = nn.Embedding(6, 4), nn.Linear(4, 4).requires_grad_(False)
        self.norm, self.head = nn.BatchNorm1d(4), nn.Linear(4, 6)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.dropout(self.norm(self.trunk(self.embedding(x))), 0.1, self.training)
        return self.head(torch.tanh(hidden))


class Odd(nn.Module):
    """A layer that nobody uses, and a branch that vmap cannot take."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.idle = nn.Linear(3, 1), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if self.linear.bias.sum() < 1e6 else x[:, :1]


TOKENS = torch.arange(8) % 6
PRIOR = {"head.weight": priors.Normal(scale=priors.HalfNormal(0.5)), "*": priors.Laplace(0.0, 2.0)}


def _model(**options: Any) -> Model:
    return Model(Network(), likelihood=likelihoods.Categorical(), **{"prior": PRIOR, "fixed": "norm.bias", **options})


# -- rows -------------------------------------------------------------------------------------------------------------


def test_every_parameter_has_a_row():
    description = _model(random="*.weight").describe(inference.BayesByBackprop(estimator=Flipout()), TOKENS)
    rows = {row.name: (row.shape, row.kind, row.prior) for row in description.rows}
    assert rows == {
        "embedding.weight": ((6, 4), "random", "Normal(0, HalfNormal(0.5) per layer)"),
        "norm.weight": ((4,), "random", "Laplace(0, 2)"),
        "prior.scale[embedding]": ((), "latent", "hyperprior"),
        "head.bias": ((6,), "point", "none"),
        "trunk.weight": ((4, 4), "fixed", "none"),
        "trunk.bias": ((4,), "fixed", "none"),
        "norm.bias": ((4,), "fixed", "none"),
    }
    counts = {kind: description.count(kind) for kind in ("random", "latent", "point", "fixed")}
    assert counts == {"random": 28, "latent": 1, "point": 6, "fixed": 24}
    network = Network()
    assert sum(counts.values()) - counts["latent"] == sum(parameter.numel() for parameter in network.parameters())


def test_how_each_operation_is_evaluated():
    def evaluations(estimator: Any) -> list[str]:
        network = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 1))
        model = Model(network, likelihood=likelihoods.Gaussian())
        description = model.describe(inference.BayesByBackprop(estimator=estimator), torch.zeros(4, 3))
        return [description[f"{layer}.weight"].evaluation for layer in "012"]

    once, norm = "each example meets the weight once", "layer_norm has no rule for a random weight in this place"
    assert evaluations(Flipout()) == [
        f"flipout in linear: {once}",
        f"shared in layer_norm: {norm}",
        f"flipout in linear: {once}",
    ]
    assert evaluations(LocalReparameterization())[0] == f"local in linear: {once}"
    shared = "SharedWeights draws one sample per forward pass"
    assert evaluations(SharedWeights())[:2] == [f"shared in linear: {shared}", f"shared in layer_norm: {shared}"]
    odd = Model(Odd(), likelihood=likelihoods.Gaussian())
    assert odd.describe(inputs=torch.zeros(4, 3))["idle.bias"].evaluation == "shared: not used in the forward pass"


def test_what_is_not_known_yet_says_how_to_know_it():
    description = _model().describe()
    assert {row.evaluation for row in description.rows if row.kind == "random"} == {NOT_SEEN}
    assert description["head.bias"].evaluation == "give inputs=X[:8] to know"
    assert description.memory is None
    assert {row.kind: row.evaluation for row in description.rows if row.kind != "random"} == {
        "latent": "a column like any other",
        "fixed": "the network's own value",
    }
    points = _model(random="*.weight").describe()
    assert points["head.bias"].evaluation == "the value itself"


def test_a_tied_parameter_is_found_by_all_its_names():
    description = _model().describe()
    row = description["embedding.weight"]
    assert row is description["head.weight"]
    assert (row.name, row.tied, row.size) == ("embedding.weight", ("head.weight",), 24)
    assert "embedding.weight (tied: head.weight)" in str(description)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ConfigurationError, match=r"is called 'head.wieght'. Did you mean 'head.weight'\?") as caught:
        _model().describe()["head.wieght"]
    assert "expected: one of embedding.weight, head.weight, norm.weight" in str(caught.value)


# -- remarks and print ------------------------------------------------------------------------------------------------


def test_remarks_say_what_is_unusual():
    assert Model(nn.Linear(3, 1), likelihood=likelihoods.Gaussian()).describe(inputs=torch.zeros(4, 3)).remarks == ()
    remarks = _model().describe(inputs=TOKENS).remarks
    assert remarks == (
        "the network draws random numbers itself (dropout): in training, from a generator that is ours",
        "buffers are kept per particle: norm.running_mean, norm.running_var, norm.num_batches_tracked",
    )
    (remark,) = Model(Odd(), likelihood=likelihoods.Gaussian()).describe(inputs=torch.zeros(4, 3)).remarks
    assert remark.startswith("draws run in a loop, because vmap cannot batch this network (vmap: It looks like")
    assert "data-dependent control flow" in remark


def test_it_prints_as_a_table(monkeypatch):
    """Plain text everywhere, in which no name is taken for markup: [encoder] and [/b] are names of scales here."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    network = nn.ModuleDict({"encoder": nn.Linear(3, 2), "/b": nn.Linear(2, 1)})
    prior = priors.Normal(scale=priors.HalfNormal(1.0))
    text = str(Model(network, likelihood=likelihoods.Gaussian(), prior=prior).describe(inference.BayesByBackprop()))
    lines = [line.rstrip() for line in text.splitlines()]
    assert "\x1b" not in text
    assert lines[0].split() == ["parameter", "shape", "kind", "prior", "evaluated", "by"]
    assert [line.split()[:3] for line in lines[1:8]] == [
        ["encoder.weight", "2x3", "random"],
        ["encoder.bias", "2", "random"],
        ["/b.weight", "1x2", "random"],
        ["/b.bias", "1", "random"],
        ["prior.scale[encoder]", "1", "latent"],
        ["prior.scale[/b]", "1", "latent"],
        ["likelihood.scale", "1", "latent"],
    ]
    assert lines[8] == "11 random, 3 latent"
    assert lines[9].startswith("training will hold ")
    assert len(lines) == 10


@pytest.mark.parametrize(
    ("memory", "text"),
    [
        (0, "0 bytes"),
        (1023, "1,023 bytes"),
        (1024, "1.0 KiB"),
        (1536 * 1024, "1.5 MiB"),
        (3 * 2**30, "3.0 GiB"),
        (5000 * 2**30, "5,000.0 GiB"),
    ],
)
def test_bytes_are_written_for_people(memory, text):
    description = Description((Row("w", (2,), "random", "Flat()", "shared"),), ("a remark",), memory)
    lines = str(description).splitlines()
    assert lines[-3:-1] == ["2 random", "a remark"]
    assert lines[-1] == f"training will hold {text} beside the data and the network's own activations"


# -- memory -----------------------------------------------------------------------------------------------------------

OPTIMIZERS = {
    "adam": inference.Adam(),
    "sgd": inference.SGD(),
    "momentum": inference.SGD(momentum=0.9),
    "rmsprop": inference.Torch(torch.optim.RMSprop),
}
NETWORKS = {
    "random": (lambda: nn.Sequential(nn.Linear(30, 20), nn.Tanh(), nn.Linear(20, 2)), {}),
    "points": (lambda: nn.Sequential(nn.Linear(30, 20), nn.Tanh(), nn.Linear(20, 2)), {"random": "2.*"}),
    "float64": (lambda: nn.Linear(30, 20).double(), {}),
    "bfloat16": (lambda: nn.Linear(30, 20).to(torch.bfloat16), {}),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("network", NETWORKS)
def test_the_claimed_bytes_are_those_of_a_real_state(network, optimizer):
    """What `describe` says before a byte is spent: the tensors of the state that `init` makes, to the byte but for
    counters of steps, and two matrices of sampled weights and their gradients beside them."""
    make, options = NETWORKS[network]
    model = Model(make(), likelihood=likelihoods.Gaussian(), prior=priors.Normal(scale=priors.HalfNormal()), **options)
    for particles, samples in ((1, 1), (3, 2)):
        method = inference.BayesByBackprop(optimizer=OPTIMIZERS[optimizer], estimator=SharedWeights(samples))
        claimed = model.describe(method, particles=particles).memory
        state = state_tensors(method.init(model, Rng.create(0, particles)))
        held = sum(tensor.numel() * tensor.element_size() for tensor in state.values() if tensor.dim() == 2)
        wide = torch.zeros((), dtype=model.dtype).element_size()
        sampled = 2 * samples * particles * model.layout.size * wide
        assert claimed == held + sampled
        assert {tensor.shape[0] for tensor in state.values() if tensor.dim() == 2} == {particles}
