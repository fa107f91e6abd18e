"""A training whose numbers are not finite any more: it says where it began, and what was good is kept."""

from __future__ import annotations

import math
import shutil

import pytest
import torch
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import inference, storage
from bayesprop.data import Stream
from bayesprop.errors import DivergenceError
from bayesprop.inference import SGD
from bayesprop.inference.variational.kl_weights import Uniform


def poisoned(inputs: torch.Tensor, targets: torch.Tensor, batch: int) -> Stream:
    """Three batches of 8 rows; one of them has inputs that are finite and whose squares are not, in float32."""
    parts = [(inputs[8 * i : 8 * i + 8].clone(), targets[8 * i : 8 * i + 8]) for i in range(3)]
    parts[batch][0][:] = 1e30
    return Stream(parts, num_data=24)


class Endless(Uniform):
    """A weight of the KL that is infinite in the second minibatch of the second epoch."""

    def __call__(self, index: int, count: int, progress: float) -> float:
        return math.inf if index == 1 and progress > 0.3 else 1.0


def message(call) -> str:
    with pytest.raises(DivergenceError) as caught:
        call()
    assert isinstance(caught.value, ArithmeticError)
    return str(caught.value)


def test_the_data_term_and_its_first_step_are_named(fit, model, pair):
    data = poisoned(*pair(dtype=torch.float32), batch=2)
    found = message(lambda: fit(model("linear", torch.float32), data, batch_size=None))
    assert "training diverged in epoch 1, at or before step 3" in found
    assert "received: the data term (the log-likelihood of the minibatch) was not finite first at step 2" in found
    assert "expected: finite numbers: most often the learning rate is too large" in found
    assert "write: BayesByBackprop(learning_rate=1e-4, clip_norm=1.0)" in found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_divergence_term_is_named_when_the_data_term_is_finite(fit, model, method, tmp_path, dtype):
    """The step after which the state is looked at is the one that made it infinite."""
    how = method(kl_weights=Endless(), optimizer=SGD(), learning_rate=1e-3)
    found = message(
        lambda: fit(model("tanh", dtype), how=how, epochs=3, checkpoint=tmp_path / "run.ckpt", checkpoint_every=0)
    )
    assert "training diverged in epoch 2, at or before step 5" in found
    assert "received: the KL term: mean and std of the posterior are not finite, the data term was until now" in found


def test_a_rate_that_is_far_too_large_ends_at_the_end_of_the_epoch(fit, method):
    events: list[bp.observers.Event] = []
    how = method(optimizer="sgd", learning_rate=1e300)
    found = message(lambda: fit(how=how, epochs=50, observers=[events.append]))
    assert "training diverged in epoch 1" in found
    assert "was not finite first at step " in found
    assert [event.kind for event in events] == ["start", "step", "step", "step", "end"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_last_good_checkpoint_is_kept(fit, model, method, pair, tmp_path, dtype):
    """Steps 0 to 3 are fine, step 4 makes the state infinite. The file is that of four steps, byte for byte."""
    path, aside = tmp_path / "run.ckpt", tmp_path / "aside.ckpt"

    def keep(event):
        if event.kind == "step" and event.step == 4:
            shutil.copy(path, aside)

    def run(**more):
        how = method(kl_weights=Endless(), optimizer=SGD(), learning_rate=1e-3)
        return fit(model("tanh", dtype), how=how, checkpoint=path, checkpoint_every=0, **more)

    assert f"; {path} holds the last good state" in message(lambda: run(observers=[keep]))
    assert path.read_bytes() == aside.read_bytes()
    document, tensors = storage.read(path)
    assert document["place"]["step"] == 4
    assert all(bool(torch.isfinite(t).all()) for t in tensors.values())
    # It can be gone on from, and gets as far as before.
    assert "in epoch 2, at or before step 5" in message(lambda: run(resume=True))
    assert path.read_bytes() == aside.read_bytes()


def test_without_a_checkpoint_none_is_spoken_of(fit, method, tmp_path):
    how = method(optimizer="sgd", learning_rate=1e300)
    assert "last good state" not in message(lambda: fit(how=how))
    path = tmp_path / "run.ckpt"
    assert f"{path} holds the last good state" in message(lambda: fit(how=how, checkpoint=path))
    assert storage.read(path)[0]["place"]["step"] == 0  # that of the start


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("changes", [{}, {"validation": 0.25, "patience": 2, "batch_size": 6}])
def test_one_diverged_particle_of_several_does_not_end_the_run(fit, model, method, tmp_path, dtype, changes):
    rates = torch.tensor([1e-2, 1e300 if dtype == torch.float64 else 1e30, 2e-2], dtype=torch.float64)
    how = method(learning_rate=rates, optimizer=SGD(momentum=0.5), scale_learning_rate=rates / 10.0)
    run = {"starts": 3, "epochs": 4, **changes}
    found = fit(model("tanh", dtype), how=how, checkpoint=tmp_path / "run.ckpt", **run)
    assert len(found.context.history) == 4
    assert all(math.isfinite(entry["elbo"]) for entry in found.context.history)
    if changes:
        assert all(math.isfinite(entry["validation_nll"]) for entry in found.context.history)
    objectives = found.context.history[-1]["start_elbos"]
    assert objectives[1] == -math.inf
    assert found.context.history[-1]["best_start"] in (0, 2)
    assert all(bool(torch.isfinite(t).all()) for t in found.tensors().values())
    again = fit(model("tanh", dtype), how=how, checkpoint=tmp_path / "run.ckpt", resume=True, **run)
    assert_close(again.tensors(), found.tensors(), rtol=0.0, atol=0.0)


def test_all_diverged_particles_end_it(fit, method):
    rates = torch.tensor([1e300, 1e301])
    how = method(learning_rate=rates.double(), optimizer="sgd")
    assert "training diverged in epoch 1" in message(lambda: fit(how=how, starts=2, epochs=4))


def test_the_advice_is_for_the_method_that_diverged(model, pair):
    for method, line in (
        (inference.MAP(learning_rate=1e30, optimizer="sgd"), "MAP(learning_rate=1e+29)"),
        (inference.DeepEnsemble(inference.MLE(learning_rate=1e30, optimizer="sgd")), "MLE(learning_rate=1e+29)"),
        (inference.SGLD(learning_rate=1e30, samples=2), "SGLD(learning_rate=1e+29)"),
    ):
        with pytest.raises(DivergenceError, match="training diverged in epoch") as caught:
            bp.fit(model(), pair(), method, epochs=10, batch_size=8, progress=False)
        assert f"write: {line}" in str(caught.value)
