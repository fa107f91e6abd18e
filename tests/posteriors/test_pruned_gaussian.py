"""A Gaussian with weights that are zero with certainty predicts as any other, and has no density."""

import pytest
import torch
from torch.testing import assert_close

import bayesprop as bp
from bayesprop.errors import CapabilityError
from bayesprop.posteriors import PrunedGaussian


@pytest.fixture
def pruned(model, gaussian):
    """The first half of the random columns is removed, in two particles."""
    whole = gaussian(model("points"), 2)
    mean, std = whole.tensors()["mean"].clone(), whole.tensors()["std"].clone()
    half = whole.model.layout.random // 2
    mean[:, :half], std[:, :half] = 0.0, 0.0
    return PrunedGaussian(whole.model, mean, std, whole.buffers, whole.context)


def test_draws_have_the_same_zeros(pruned):
    half = pruned.model.layout.random // 2
    drawn = pruned.draw(pruned.rng(0), 5)
    assert half > 3
    assert bool((drawn[..., :half] == 0).all())
    assert bool((drawn[..., half : 2 * half] != 0).all())
    assert pruned.kept.sum(1).tolist() == [pruned.model.layout.random - half] * 2


def test_it_is_saved_and_loaded(pruned, network, rows, tmp_path):
    pruned.save(tmp_path / "pruned.bayes")
    again = bp.load(tmp_path / "pruned.bayes", network=network("points"))
    assert isinstance(again, PrunedGaussian)
    assert torch.equal(again.kept, pruned.kept)
    assert_close(again.predict(rows("points"), 6).std, pruned.predict(rows("points"), 6).std, rtol=0.0, atol=0.0)
    assert isinstance(again.member(1), PrunedGaussian)


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda q: q.log_density(q.mean()), r"log q\(theta\)"),
        (lambda q: q.entropy(), "the entropy"),
        (lambda q: q.kl(), "the divergence from the prior"),
    ],
)
def test_what_needs_a_density_is_refused(pruned, ask, what):
    with pytest.raises(CapabilityError, match=f"{what} asks for a density, and weights that were pruned have none"):
        ask(pruned)
    assert "log_density" not in pruned.capabilities


def test_the_elbo_says_who_has_one(pruned, rows):
    with pytest.raises(CapabilityError, match="the ELBO needs log_density, which a PrunedGaussian posterior does not"):
        bp.elbo(pruned, (rows("points"), torch.zeros(6, 2, dtype=torch.float64)))
