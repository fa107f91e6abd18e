from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from bayesprop import priors
from bayesprop.errors import ConfigurationError
from bayesprop.layout import Layout

from .conftest import SHAPES, lay_out


@dataclass
class ModelInMiniature:
    layout: Layout


class PosteriorInMiniature:
    """What `from_posterior` asks of a posterior; moments of shape (columns,), or (particles, columns)."""

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        self.model = ModelInMiniature(Layout(lay_out(SHAPES)))
        self._moments = self.model.layout.unflatten(torch.stack((mean, std)))

    def mean(self, name: str) -> Tensor:
        return self._moments[name][0]

    def std(self, name: str) -> Tensor:
        return self._moments[name][1]


def test_the_posterior_becomes_the_prior(blocks):
    generator = torch.Generator().manual_seed(1)
    mean = torch.randn(blocks[-1].stop, generator=generator)
    std = 0.1 + torch.rand(blocks[-1].stop, generator=generator)
    posterior = PosteriorInMiniature(mean, std)
    mapping = priors.from_posterior(posterior)
    assert list(mapping) == list(SHAPES)
    bound = priors.bind(mapping, blocks)
    assert len(bound.groups) == 1  # one vectorised normal, not one per parameter
    divergence = bound.kl(mean, std)
    assert divergence is not None
    # Each of the columns adds rounding of (r^2 - 1) / 2 - log r at r = 1 in float32, about 1e-7.
    assert abs(divergence.item()) < 1e-5
    value = torch.randn(3, blocks[-1].stop, generator=generator)
    expected = torch.distributions.Normal(mean, std).log_prob(value).sum(-1)
    torch.testing.assert_close(bound.log_density(value), expected)
    mean.zero_()
    torch.testing.assert_close(bound.log_density(value), expected)


def test_a_posterior_without_spread_is_refused(blocks):
    std = torch.ones(blocks[-1].stop)
    std[blocks[2].start] = 0.0
    with pytest.raises(ConfigurationError, match=r"2\.weight has no spread") as caught:
        priors.from_posterior(PosteriorInMiniature(torch.zeros_like(std), std))
    assert "write: priors.pretrained(network, scale=0.1)" in str(caught.value)


def test_a_population_of_posteriors_is_refused(blocks):
    moments = torch.ones(3, blocks[-1].stop)
    with pytest.raises(ConfigurationError, match="needs one posterior, not a population") as caught:
        priors.from_posterior(PosteriorInMiniature(moments, moments))
    assert "received: a mean of shape [3, 4, 3] for 0.weight, which has shape [4, 3]" in str(caught.value)
    assert "write: priors.from_posterior(posterior.member(0))" in str(caught.value)


def test_a_pretrained_network_becomes_a_prior_and_is_copied():
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    mapping = priors.pretrained(network, scale=0.2)
    assert list(mapping) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    before = network[0].weight.detach().clone()
    with torch.no_grad():
        network[0].weight.add_(1.0)
    prior = mapping["0.weight"]
    assert isinstance(prior, priors.Normal)
    assert isinstance(prior.loc, Tensor)
    assert torch.equal(prior.loc, before)
    assert prior.scale == 0.2


def test_scales_relative_to_the_weights():
    """MOPED: a tenth of each weight's size, at least a hundredth of the root mean square; `scale` where all are 0."""
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[3.0, -4.0], [0.0, 5.0]]))
        network[0].bias.zero_()
    mapping = priors.pretrained(network, scale=0.7, relative_scale=0.1)
    least = 0.01 * (50.0 / 4.0) ** 0.5
    expected = torch.tensor([[0.3, 0.4], [least, 0.5]])
    torch.testing.assert_close(mapping["0.weight"].scale, expected)
    assert mapping["0.bias"].scale == 0.7
    with pytest.raises(ConfigurationError, match=r"pretrained\(relative_scale=\.\.\.\) must be positive") as caught:
        priors.pretrained(network, relative_scale=0.0)
    assert "write: priors.pretrained(network, relative_scale=0.1)" in str(caught.value)


def test_a_state_dict_brings_buffers_that_binding_passes_over():
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    mapping = priors.pretrained(network.state_dict(), scale=priors.HalfNormal(1.0, shared="network"))
    assert "1.running_mean" in mapping
    assert "1.num_batches_tracked" not in mapping
    blocks = lay_out({"0.weight": (4, 3), "0.bias": (4,)})
    others = [name for name in network.state_dict() if name.startswith("1.")]
    bound = priors.bind(mapping, blocks, others)
    zero = torch.zeros(bound.size)
    torch.testing.assert_close(bound.weights(zero)[:12], network[0].weight.detach().flatten())
    with pytest.raises(ConfigurationError, match=r"the pattern '1\.weight' matches no random parameter"):
        priors.bind(mapping, blocks)


def test_something_else_is_refused():
    with pytest.raises(ConfigurationError, match="pretrained needs the weights") as caught:
        priors.pretrained("resnet18")  # type: ignore
    assert "received: a str" in str(caught.value)
