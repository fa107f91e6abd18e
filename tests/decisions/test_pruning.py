"""Pruning against cases in which it is known what goes and what the network then answers."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.decisions import prune
from bayesprop.errors import CapabilityError, ConfigurationError
from bayesprop.posteriors import Delta, DiagonalGaussian, FullGaussian, PrunedGaussian, Samples

X = torch.tensor([[1.0, 1.0, 1.0], [2.0, 0.0, -1.0]], dtype=torch.float64)
MEAN, STD = [3.0, 0.2, -1.0, 0.4], [10.0, 0.01, 0.5, 0.1]  # signal to noise 0.3, 20, 2 and, of the bias, 4


def tensor(*rows):
    return torch.tensor(rows, dtype=torch.float64)


@pytest.fixture
def line():
    """y = w.x + b with known moments."""
    model = bp.Model(nn.Linear(3, 1).double(), likelihood=likelihoods.Gaussian(0.5))
    return DiagonalGaussian(model, tensor(MEAN), tensor(STD), {})


@pytest.mark.parametrize(
    ("by", "share", "left"),
    [
        ("signal_to_noise", 0.25, [0.0, 0.2, -1.0, 0.4]),
        ("signal_to_noise", 0.5, [0.0, 0.2, 0.0, 0.4]),
        ("signal_to_noise", 0.75, [0.0, 0.2, 0.0, 0.0]),
        ("magnitude", 0.25, [3.0, 0.0, -1.0, 0.4]),
        ("magnitude", 0.5, [3.0, 0.0, -1.0, 0.0]),
        ("magnitude", 0.75, [3.0, 0.0, 0.0, 0.0]),
    ],
)
def test_the_smallest_go(line, by, share, left):
    pruned = prune(line, share, by)
    assert_close(pruned.mean(), tensor(left), rtol=0.0, atol=0.0)
    spread = [s if m else 0.0 for m, s in zip(left, STD)]
    assert_close(pruned.std(), tensor(spread), rtol=0.0, atol=0.0)
    # The answers are those of the line that is left: at the means, and in the moments of the draws.
    weights, bias = tensor(left)[0, :3], left[3]
    assert_close(pruned.at_mean().predict(X, 1).mean, X @ weights + bias)
    variance = (X * tensor(spread)[0, :3]).square().sum(1) + spread[3] ** 2
    drawn = torch.cat([out for _, out, _ in pruned.outputs(X, 4000)()], dim=1)[..., 0]
    assert_close(drawn.var(0), variance, rtol=5 * (2 / 4000) ** 0.5, atol=0.0)  # five standard errors
    assert_close(line.mean(), tensor(MEAN), rtol=0.0, atol=0.0)


def test_nothing_and_everything(line):
    assert_close(prune(line, 0.0).draw(line.rng(0), 3), line.draw(line.rng(0), 3), rtol=0.0, atol=0.0)
    empty = prune(line, 1)
    assert isinstance(empty, PrunedGaussian)
    assert not bool(empty.kept.any())
    assert_close(empty.predict(X, 5).epistemic, torch.zeros(2).double(), rtol=0.0, atol=0.0)
    assert_close(empty.predict(X, 5).mean, torch.zeros(2).double(), rtol=0.0, atol=0.0)


def test_of_equals_the_first_go(line):
    even = DiagonalGaussian(line.model, tensor([1.0] * 4), tensor([0.5] * 4), {})
    for by in ("signal_to_noise", "magnitude"):
        assert prune(even, 0.5, by).mean().tolist() == [[0.0, 0.0, 1.0, 1.0]]


def test_pruning_twice_is_pruning_once(line):
    assert_close(prune(prune(line, 0.25), 0.75).std(), prune(line, 0.75).std(), rtol=0.0, atol=0.0)


def test_each_particle_by_itself(line):
    both = DiagonalGaussian(line.model, tensor(MEAN, MEAN[::-1]), tensor(STD, STD[::-1]), {})
    assert prune(both, 0.5).mean().tolist() == [[0.0, 0.2, 0.0, 0.4], [0.4, 0.0, 0.2, 0.0]]


def test_what_is_kept_is_not_counted(line):
    assert prune(line, 2 / 3, keep="bias").mean().tolist() == [[0.0, 0.2, 0.0, 0.4]]
    assert prune(line, 1.0, keep="bias").mean().tolist() == [[0.0, 0.0, 0.0, 0.4]]
    with pytest.raises(ConfigurationError, match="keep: the pattern 'biases' matches no parameter"):
        prune(line, 0.5, keep="biases")


def test_layers_lose_the_same_share_if_asked():
    network = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False)).double()
    model = bp.Model(network, likelihood=likelihoods.Gaussian(0.5))
    posterior = DiagonalGaussian(model, tensor([1.0, 2.0, 3.0, 4.0, 10.0, 20.0]), tensor([1.0] * 6), {})
    assert prune(posterior, 0.5).mean().tolist() == [[0.0, 0.0, 0.0, 4.0, 10.0, 20.0]]
    assert prune(posterior, 0.5, within="layer").mean().tolist() == [[0.0, 0.0, 3.0, 4.0, 0.0, 20.0]]


def test_points_are_pruned_by_magnitude_only(line):
    point = Delta(line.model, tensor(MEAN), {})
    assert prune(point, 0.5, "magnitude").mean().tolist() == [[3.0, 0.0, -1.0, 0.0]]
    with pytest.raises(CapabilityError) as caught:
        prune(point, 0.5)
    assert str(caught.value).splitlines() == [
        "signal to noise compares a weight with its uncertainty, and there is none in this posterior",
        "  received: a Delta without any deviation",
        "  expected: a posterior with deviations, for instance from inference.BayesByBackprop()",
        '  write: bp.decisions.prune(posterior, share, by="magnitude")',
    ]


def test_samples_lose_a_weight_in_all_of_them(line):
    theta = tensor([1.0, 5.0, 2.0, 1.0], [3.0, -5.0, 2.1, 1.0])[None]  # means 2, 0, 2.05, 1; deviations 1, 5, 0.05, 0
    samples = prune(Samples(line.model, theta, {}), 0.5)
    assert samples.mean().tolist() == [[0.0, 0.0, 2.05, 1.0]]
    assert bool((samples.draw(samples.rng(0), 2)[..., :2] == 0).all())


def test_latents_and_point_estimates_stay():
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
    model = bp.Model(network, likelihood=likelihoods.Gaussian(), random="0.*", prior=priors.Normal(0.0, 1.0))
    layout = model.layout
    assert layout.random < layout.latent < layout.size
    mean = torch.full((1, layout.size), 0.5, dtype=torch.float64)
    std = torch.full((1, layout.latent), 0.5, dtype=torch.float64)
    pruned = prune(DiagonalGaussian(model, mean, std, model.initial_buffers(1)), 1.0)
    assert bool((pruned.mean()[:, : layout.random] == 0).all())
    assert bool((pruned.mean()[:, layout.random :] == 0.5).all())
    assert bool((pruned.std()[:, layout.random : layout.latent] == 0.5).all())


def test_rows_for_padding_are_not_counted():
    network = nn.Sequential(nn.Embedding(3, 2, padding_idx=0), nn.Flatten(), nn.Linear(2, 1, bias=False)).double()
    model = bp.Model(network, likelihood=likelihoods.Gaussian(0.5))
    mean = torch.arange(8.0).double()[None]
    pruned = prune(DiagonalGaussian(model, mean, torch.ones_like(mean), {}), 0.5)
    assert pruned.mean().tolist() == [[0.0, 1.0, 0.0, 0.0, 0.0, 5.0, 6.0, 7.0]]  # three of six; two are padding


def test_columns_of_a_non_centred_prior():
    """A weight of a horseshoe is s z: without z it is zero whatever s is. Around another place it cannot be removed."""
    linear, noise = nn.Linear(3, 1, bias=False).double(), likelihoods.Gaussian(0.5)
    model = bp.Model(linear, likelihood=noise, prior=priors.Horseshoe(0.2))
    mean = torch.full((1, model.layout.size), 0.3, dtype=torch.float64)
    mean[0, :3] = tensor(0.5, 2.0, 1.0)
    std = torch.full((1, model.layout.latent), 0.2, dtype=torch.float64)
    pruned = prune(DiagonalGaussian(model, mean, std, {}), 1 / 3)
    assert bool((pruned.sample(4)["weight"].reshape(4, 3) == 0).all(0).tolist() == [True, False, False])
    away = bp.Model(linear, likelihood=noise, prior=priors.Normal(0.3, priors.HalfNormal(0.5)))
    mean, std = mean[:, : away.layout.size], std[:, : away.layout.latent]
    with pytest.raises(CapabilityError, match="can be removed only where the prior lies around zero"):
        prune(DiagonalGaussian(away, mean, std, {}), 0.5)


def test_a_pruned_network_is_a_file(line, tmp_path):
    prune(line, 0.5).save(tmp_path / "pruned.bayes")
    again = bp.load(tmp_path / "pruned.bayes", network=nn.Linear(3, 1).double())
    assert_close(again.predict(X, 9, seed=2).std, prune(line, 0.5).predict(X, 9, seed=2).std, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("share", [-0.1, 1.01, True, "half", float("nan")])
def test_a_share_is_a_part(line, share):
    with pytest.raises(ConfigurationError, match="share is the part of the weights to remove"):
        prune(line, share)


@pytest.mark.parametrize("argument", [{"by": "size"}, {"within": "column"}])
def test_words_that_are_not_known(line, argument):
    ((name, word),) = argument.items()
    with pytest.raises(ConfigurationError, match=f"received: {name}='{word}'"):
        prune(line, 0.5, **argument)


def test_posteriors_that_correlate_weights_say_what_to_do(line):
    full = FullGaussian(line.model, tensor(MEAN), torch.eye(4).double()[None], {})
    with pytest.raises(CapabilityError) as caught:
        prune(full, 0.5)
    assert "received: a FullGaussian" in str(caught.value)
    assert prune(full.at_mean(), 0.5, by="magnitude").mean().tolist() == [[3.0, 0.0, -1.0, 0.0]]
