import pytest
import torch
from torch import distributions
from torch.testing import assert_close

from bayesprop.errors import ConfigurationError, DataError
from bayesprop.likelihoods import Categorical, FromDistribution, Poisson


def negative_binomial(outputs):
    return distributions.NegativeBinomial(total_count=5.0, logits=outputs[:, 0])


def test_categorical_through_it_is_categorical():
    likelihood = FromDistribution(lambda f: distributions.Categorical(logits=f), kind="classification")
    logits, labels = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3
    likelihood.check(logits, likelihood.encode(labels))
    assert_close(likelihood.log_prob(logits, labels, {}), Categorical().log_prob(logits, labels, {}))
    assert_close(likelihood.mean(logits, {}), Categorical().mean(logits, {}))
    assert_close(likelihood.entropy(logits, {}), Categorical().entropy(logits, {}))


def test_poisson_through_it_is_poisson():
    likelihood = FromDistribution(lambda f: distributions.Poisson(f[:, 0].exp()), kind="count")
    outputs, counts = torch.tensor([[0.5], [1.0]]), torch.tensor([2, 0])
    assert likelihood.task == "count"
    likelihood.check(outputs, likelihood.encode(counts))
    assert_close(likelihood.log_prob(outputs, counts, {}), Poisson().log_prob(outputs, counts, {}))
    assert_close(likelihood.variance(outputs, {}), Poisson().variance(outputs, {}))


def test_mixture_density_under_vmap():
    def factory(outputs):
        weights, means = outputs.chunk(2, dim=1)
        return distributions.MixtureSameFamily(
            distributions.Categorical(logits=weights), distributions.Normal(means, torch.ones_like(means))
        )

    likelihood = FromDistribution(factory)
    outputs, targets = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0)), torch.zeros(5)
    likelihood.check(outputs[0], targets)
    together = torch.func.vmap(lambda o: likelihood.log_prob(o, targets, {}))(outputs)
    assert_close(together[2], factory(outputs[2]).log_prob(targets))


def test_vector_events_are_rows():
    likelihood = FromDistribution(lambda f: distributions.MultivariateNormal(f, torch.eye(3)))
    outputs, targets = torch.zeros(4, 3), torch.ones(4, 3)
    likelihood.check(outputs, targets)
    assert likelihood.log_prob(outputs, targets, {}).shape == (4,)


def test_parameters_are_not_validated_in_training_and_the_switch_is_put_back():
    before = distributions.Distribution._validate_args
    likelihood = FromDistribution(lambda f: distributions.Normal(f[:, 0], f[:, 1]))
    value = likelihood.log_prob(torch.tensor([[0.0, -1.0]]), torch.zeros(1), {})
    assert bool(torch.isnan(value).all())
    with pytest.raises(ZeroDivisionError):
        FromDistribution(lambda f: 1 // 0).log_prob(torch.zeros(1, 1), torch.zeros(1), {})
    assert distributions.Distribution._validate_args is before


def test_check_validates_parameters():
    likelihood = FromDistribution(lambda f: distributions.Normal(f[:, 0], f[:, 1]))
    with pytest.raises(DataError, match=r"the factory of FromDistribution failed(.|\n)*f\[:, 0\]\.exp\(\)"):
        likelihood.check(torch.tensor([[0.0, -1.0]]), torch.zeros(1))


def test_targets_outside_the_support():
    likelihood = FromDistribution(lambda f: distributions.Gamma(f[:, 0].exp(), f[:, 0].exp()))
    with pytest.raises(DataError, match=r"outside the support of Gamma\n  received: -1\.0 in row 1"):
        likelihood.check(torch.zeros(2, 1), torch.tensor([1.0, -1.0]))


def test_shape_of_the_distribution():
    likelihood = FromDistribution(lambda f: distributions.Poisson(f.exp()), kind="count")
    with pytest.raises(DataError, match=r"a distribution of shape \(4, 3\) for targets \(4,\)"):
        likelihood.check(torch.zeros(4, 3), torch.zeros(4))


def test_factory_that_returns_something_else():
    with pytest.raises(DataError, match="received: a Tensor"):
        FromDistribution(lambda f: f).check(torch.zeros(2, 1), torch.zeros(2))


def test_classes_must_be_enumerable():
    likelihood = FromDistribution(negative_binomial, kind="classification")
    with pytest.raises(DataError, match="enumerate its classes"):
        likelihood.check(torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64))


def test_arguments():
    with pytest.raises(ConfigurationError, match=r"a function that makes the distribution"):
        FromDistribution(distributions.Normal(0.0, 1.0))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match=r"kind='ranking'"):
        FromDistribution(negative_binomial, kind="ranking")  # pyright: ignore[reportArgumentType]
