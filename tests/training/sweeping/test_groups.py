"""Which settings are trained together, and that each keeps what is its own."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from bayesprop import likelihoods, priors
from bayesprop.data import as_data
from bayesprop.errors import ConfigurationError
from bayesprop.posteriors import Context
from bayesprop.rng import Rng
from bayesprop.training.sweeping.groups import grouped


@pytest.fixture
def groups(members, model, pair, held_out):
    def make(settings, made=None, how=None):
        made = model() if made is None else made
        return grouped(members(settings, made, how), made, as_data(pair(dtype=made.dtype)), as_data(held_out))

    return make


@pytest.mark.parametrize(
    ("settings", "numbers"),
    [
        ([{"learning_rate": 0.1}, {"temperature": 0.1}, {"prior.scale": 0.2}, {"seed": 4}], [[0, 1, 2, 3]]),
        ([{"samples": s, "learning_rate": r} for s in (1, 2) for r in (0.1, 0.2)], [[0, 1], [2, 3]]),
        ([{"samples": 1}, {"samples": 2}, {"samples": 1, "seed": 1}], [[0, 2], [1]]),
        (
            [{"prior": priors.Laplace()}, {"prior": priors.Normal()}, {"prior": priors.Laplace(scale=2.0)}],
            [[0, 2], [1]],
        ),
        ([{"optimizer": "adam"}, {"optimizer": "adamw"}], [[0], [1]]),
        ([{"likelihood.scale": 0.3}, {"likelihood.scale": 0.5}], [[0], [1]]),
        ([{"batch_size": 8}, {"batch_size": 4}, {"epochs": 2}], [[0], [1], [2]]),
        (
            [{"kl_weights": "uniform"}, {"kl_weights": "geometric"}, {"kl_weights.share": 0.1, "kl_weights": "warmup"}],
            [[0, 1, 2]],
        ),
    ],
)
def test_settings_of_one_structure_are_one_group(groups, settings, numbers):
    found = groups(settings)
    assert [[member.number for member in group.members] for group in found] == numbers


def test_members_keep_their_seeds_and_priors(groups):
    (group,) = groups([{"seed": 5, "prior.scale": 0.5}, {"seed": 2, "prior.scale": 2.0}])
    assert group.seeds(group.members).seeds.tolist() == [5, 2]
    whole, how = group.of(group.members)
    theta = torch.randn(2, 4, whole.layout.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for p, member in enumerate(group.members):
        alone = group.alone(member)
        assert alone.prior == priors.Normal(scale=member.values["prior.scale"])
        assert_close(whole.log_prior(theta)[p], alone.log_prior(theta[p]))
    posterior = how.posterior(whole, how.init(whole, group.seeds(group.members)))
    each = group.posteriors(group.members, posterior, Context())
    assert [one.context.seed for one in each] == [5, 2]
    assert_close(torch.cat([one.mean() for one in each]), posterior.mean(), rtol=0.0, atol=0.0)
    expected = group.alone(group.members[1]).bound_prior.kl(each[1].mean(), each[1].std())
    assert_close(each[1].kl(), expected)


def test_the_model_that_was_given_is_left_alone(groups, model):
    made = model()
    before = made.prior, made.bound_prior, made.likelihood
    groups([{"prior.scale": 0.5}, {"likelihood.scale": 0.5}], made)
    assert (made.prior, made.bound_prior, made.likelihood) == before


def test_bytes_of_a_state_are_counted(groups):
    (group,) = groups([{"learning_rate": 0.1}, {"learning_rate": 0.2}])
    columns = group.model.layout.size
    assert group.state_bytes == 8 * columns * 6  # mean, rho, and two moments of each, in float64


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"prior": {"nothing.*": priors.Normal()}}, "the pattern 'nothing.*' matches no random parameter"),
        ({"kl": "closed_form", "prior": priors.ScaleMixture()}, "needs a prior whose KL with a Gaussian has one"),
        ({"likelihood": likelihoods.Categorical()}, "needs labels that are whole numbers"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_its_setting(groups, setting, message):
    with pytest.raises(ConfigurationError) as caught:
        groups([{"seed": 1}, setting])
    assert "sweep: number 1 (" in str(caught.value)
    assert "cannot be trained" in str(caught.value)
    assert message in str(caught.value)


def test_seeds_of_a_member_are_those_of_fit(groups):
    (group,) = groups([{"seed": 7}])
    assert torch.equal(group.seeds(group.members).seeds, Rng.create(7).seeds)
