"""Captured training against step by step: the same batches, numbers and noise. Without a GPU the steps of a graph are
launched one by one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.data import Data, Stream
from bayesprop.inference import Adam, Cosine
from bayesprop.inference.method import Method, state_tensors
from bayesprop.rng import Rng
from bayesprop.training import capture
from bayesprop.training.capture import Captured
from bayesprop.training.checkpoint import Progress
from bayesprop.training.source import Source
from bayesprop.training.stepping import OneByOne, precision


class Setting:
    """A model, a method and a source, and a training that has not begun."""

    def __init__(self, model: bp.Model, method: Method, data: Data | Stream, *, particles: int, batch_size: int | None):
        self.model, self.method = model, method
        self.seeds = Rng.create(3, particles, model.device)
        self.source = Source(data, model, batch_size=batch_size, epochs=3, rng=self.seeds)
        self.source.probe()
        here = model.device
        state = method.init(model, self.seeds)
        bad = torch.full((particles,), 2**62, device=here)
        self.now = Progress(state, torch.zeros(particles, dtype=torch.float64, device=here), bad)
        self.precision = precision(here, None, False)

    def arguments(self) -> tuple[Any, ...]:
        return self.model, self.method, self.source, self.seeds, self.precision

    def captured(self) -> Captured:
        made = Captured(*self.arguments(), self.now, graphs=torch.cuda.is_available())
        assert made.prepare(self.now) == ""
        return made


@pytest.fixture
def setting(model, method, pair, interpreter):
    def make(name: str = "tanh", rows: int = 70, *, particles: int = 2, batch_size: int | None = 3, **changes: Any):
        data = Data(*pair(rows))
        how = method(**{"schedule": Cosine(), "kl_weights": "geometric", **changes})
        made = model(name).to(interpreter)  # in float64 by plain torch, whatever the device
        return Setting(made, how, data, particles=particles, batch_size=batch_size)

    return make


def train(steps: OneByOne | Captured, now: Progress, epochs: int, leave_after: int | None = None) -> list[int]:
    """Some epochs; the numbers of steps that had been taken whenever the loop could look around."""
    seen = []
    for _ in range(epochs):
        for _ in steps.epoch(now):
            seen.append(now.step)
            if now.step == leave_after:
                return seen
        now.epoch, now.index = now.epoch + 1, 0
    return seen


def assert_same(one: Progress, other: Progress) -> None:
    first, second = state_tensors(one.state), state_tensors(other.state)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, rtol=1e-6, atol=1e-8, msg=lambda text, n=name: f"{n}: {text}")
    torch.testing.assert_close(other.total, one.total, rtol=1e-6, atol=1e-6)
    assert torch.equal(one.first_bad, other.first_bad)
    assert (one.step, one.index, one.epoch) == (other.step, other.index, other.epoch)


CASES = {
    "24 steps an epoch": {},
    "one particle": {"particles": 1},
    "all rows at once": {"batch_size": None, "rows": 20},
    "batch statistics": {"name": "norm", "optimizer": Adam(epsilon=1e-2)},  # a bias before them has no gradient at all
    "fewer than a run": {"batch_size": 16},
    "rates of particles": {"learning_rate": torch.tensor([0.01, 0.003])},
}


@pytest.mark.parametrize("case", CASES)
def test_captured_steps_are_those_of_the_plain_path(setting, case):
    """A run ends with its epoch: 24 steps are a run of 16 and one of 8."""
    plain, ours = setting(**CASES[case]), setting(**CASES[case])
    start = {name: t.clone() for name, t in state_tensors(ours.now.state).items()}
    train(OneByOne(*plain.arguments(), "as told"), plain.now, 2)
    captured = ours.captured()
    for name, tensor in state_tensors(ours.now.state).items():  # preparing leaves no trace
        assert torch.equal(tensor, start[name])
    assert float(ours.now.total.abs().max()) == 0.0
    seen = train(captured, ours.now, 2)
    assert_same(plain.now, ours.now)
    if case == "24 steps an epoch":
        assert seen == [16, 24, 40, 48]


def test_going_on_in_the_middle_of_an_epoch(setting):
    """Another process takes over after 16 of 24 steps."""
    whole, first, second = setting(), setting(), setting()
    train(whole.captured(), whole.now, 2)
    train(first.captured(), first.now, 2, leave_after=16)
    assert first.now.index == 16
    second.now = copy.deepcopy(first.now)
    train(second.captured(), second.now, 2)
    assert_same(whole.now, second.now)


@pytest.mark.parametrize("budget", [1, 400, 2000])
def test_batches_are_gathered_as_memory_allows(setting, monkeypatch, budget):
    """One batch takes 2 particles x 3 rows x 32 bytes: one, two or ten of them at a time."""
    plain = setting()
    train(OneByOne(*plain.arguments(), "as told"), plain.now, 1)
    monkeypatch.setattr(capture, "GATHERED", budget)
    ours = setting()
    captured = ours.captured()
    assert captured._room[0][1].shape[0] == {1: 1, 400: 2, 2000: 10}[budget]
    train(captured, ours.now, 1)
    assert_same(plain.now, ours.now)


def test_rows_that_are_no_whole_words(interpreter, method):
    """Inputs of single bytes take another way to their batch."""

    class Bytes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(7, 2, dtype=torch.float64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.table(x.int()).sum(1)

    def make() -> Setting:
        with torch.random.fork_rng():
            torch.manual_seed(1)
            network = Bytes()
        generator = torch.Generator().manual_seed(2)
        inputs = torch.randint(7, (20, 3), generator=generator, dtype=torch.uint8)
        made = bp.Model(network, likelihood=likelihoods.Gaussian(0.5)).to(interpreter)
        return Setting(
            made,
            method(),
            Data(inputs, torch.randn(20, 2, generator=generator, dtype=torch.float64)),
            particles=2,
            batch_size=3,
        )

    plain, ours = make(), make()
    train(OneByOne(*plain.arguments(), "as told"), plain.now, 1)
    train(ours.captured(), ours.now, 1)
    assert_same(plain.now, ours.now)


def test_a_loss_that_is_not_finite_is_dated(setting):
    """The particle with the hopeless rate overflows; the other does not."""
    made = setting(learning_rate=torch.tensor([1e-3, 1e30]), optimizer="sgd")
    train(made.captured(), made.now, 1)
    assert int(made.now.first_bad[0]) == 2**62
    assert 0 < int(made.now.first_bad[1]) < 24
    assert bool(made.now.total[0].isfinite())


def test_a_network_that_draws_by_itself(setting):
    """Its noise depends on the place in the training: the same again, with an interruption too, and other noise in each
    graph; the user's generator is left alone."""
    user = torch.random.get_rng_state()
    whole, parts, plain = setting("dropout"), setting("dropout"), setting("dropout")
    train(whole.captured(), whole.now, 2)
    first = parts.captured()
    train(first, parts.now, 1, leave_after=16)
    train(parts.captured(), parts.now, 2)  # the rest of this epoch, and the next one
    assert_same(whole.now, parts.now)
    train(OneByOne(*plain.arguments(), "plain"), plain.now, 2)
    assert not torch.equal(plain.now.state.mean, whole.now.state.mean), "torch's generator is seeded once a graph"
    assert torch.equal(user, torch.random.get_rng_state())


def test_noise_is_another_one_in_each_graph(setting, monkeypatch):
    made = setting("dropout")
    seeds: list[int] = []
    quarantine = capture.rng.quarantine
    monkeypatch.setattr(capture.rng, "quarantine", lambda seed, device: seeds.append(seed) or quarantine(seed, device))
    train(made.captured(), made.now, 2)
    graphs = seeds[-4:]  # two epochs of 24 steps, 16 and 8 of them in a graph
    assert len(set(graphs)) == 4
    assert graphs[0] == made.seeds.at(0).integer(capture.rng.Stream.GLOBAL)
    assert graphs[1] == made.seeds.at(16).integer(capture.rng.Stream.GLOBAL)


def test_draws_on_the_host_are_seen():
    """A network that tosses a coin on the host to decide what to do would repeat the decision of the first time."""
    with torch.random.fork_rng():
        assert capture.draws_on_host(lambda: torch.rand(()))
    assert not capture.draws_on_host(lambda: torch.ones(2).sum())


def test_what_cannot_be_captured_is_said(setting, model, method, pair):
    made = setting()
    if made.model.device.type == "cpu":
        assert "graphs are captured on CUDA devices, this is cpu" in capture.obstacle(
            made.model, made.method, made.source
        )
        steps = capture.stepper(*made.arguments(), made.now)
        assert isinstance(steps, OneByOne)
        assert steps.description == "step by step: graphs are captured on CUDA devices, this is cpu"


class Elsewhere:
    """A model that says that it lies on a GPU."""

    def __init__(self, made: bp.Model) -> None:
        self.device, self.draws_globally = torch.device("cuda"), made.draws_globally


def test_streams_and_foreign_noise_are_known_before_trying(setting, model, method, pair, monkeypatch):
    monkeypatch.setattr(capture.device, "available", lambda device: True)
    plain = setting()

    def asked(of: Setting, source: Source | None = None) -> str:
        return capture.obstacle(Elsewhere(of.model), of.method, source or of.source)  # type: ignore[arg-type]

    assert asked(plain) == ""
    assert asked(setting("dropout")) == "", "a generator on the device can be captured"
    assert asked(setting(optimizer=torch.optim.RMSprop)) == "torch's RMSprop is told its rate by the host"
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*pair()), batch_size=4)
    source = Source(Stream(loader), plain.model, batch_size=4, epochs=1, rng=plain.seeds)
    assert asked(plain, source) == "a stream brings its batches from outside"


def test_a_step_that_fails_while_it_is_prepared_leaves_no_trace(setting, monkeypatch):
    """A network that looks at its numbers fails in the attempt; the state is that of before, and the reason is told."""
    made = setting()
    before = {name: t.clone() for name, t in state_tensors(made.now.state).items()}
    captured = Captured(*made.arguments(), made.now)

    def fail(now: Progress, length: int) -> None:
        now.state.mean += 1.0
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(captured, "_take", fail)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: torch.autograd.profiler.record_function("side"))
    words = captured.prepare(made.now)
    assert words.startswith("the step cannot be captured: ")
    for name, tensor in state_tensors(made.now.state).items():
        assert torch.equal(tensor, before[name])
