"""The process on features: its features, its formulas against the full Gaussian, and its file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.posteriors import DeepKernelProcess
from bayesprop.posteriors.deep_kernel import InducingLaw, features, head_of


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def law(kernel="rbf", particles: int = 1, outputs: int = 2, count: int = 5, width: int = 3) -> InducingLaw:
    factor = 0.3 * normal(particles, outputs, count, count, seed=1).tril(-1)
    factor = factor + torch.diag_embed(0.5 + normal(particles, outputs, count, seed=2).abs())
    scales = torch.tensor([[0.4, 0.2]], dtype=torch.float64).repeat(particles, 1)
    inducing, mean = normal(particles, count, width, seed=3), normal(particles, outputs, count, seed=4)
    return InducingLaw(inducing, mean, factor, scales, kernel)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_the_law_of_functions_is_that_of_the_inducing_variables(kernel: str):
    """With u = L v ~ N(L m, L S L'), f | u is the conditional of the prior: the textbook formula, without whitening."""
    some, rows = law(kernel), normal(1, 4, 3, seed=9)
    whole = some.covariance(torch.cat((some.inducing, rows), dim=1), torch.cat((some.inducing, rows), dim=1))[0]
    count = some.inducing.shape[1]
    own = whole[:count, :count] + 1e-6 * some.diagonal(some.inducing).mean() * torch.eye(count).double()
    lower = torch.linalg.cholesky(own)
    weights = torch.linalg.solve(own, whole[:count, count:])
    mean, covariance = some.joint(rows)
    for output in range(2):
        spread = lower @ some.factor[0, output]
        expected = whole[count:, count:] - weights.T @ own @ weights + weights.T @ spread @ spread.T @ weights
        assert_close(mean[0, output], weights.T @ lower @ some.mean[0, output], rtol=1e-8, atol=1e-10)
        assert_close(covariance[0, output], expected, rtol=1e-7, atol=1e-8)
    a, alone, variance = some.marginals(rows)
    assert_close(a, some.across(rows))
    assert_close(alone, mean)
    assert_close(variance, covariance.diagonal(dim1=2, dim2=3), rtol=1e-8, atol=1e-8)


def test_the_divergence_is_that_of_two_gaussians():
    some = law()
    q = [torch.distributions.MultivariateNormal(some.mean[0, o], scale_tril=some.factor[0, o]) for o in range(2)]
    p = torch.distributions.MultivariateNormal(torch.zeros(5).double(), torch.eye(5).double())
    expected = sum(torch.distributions.kl_divergence(one, p) for one in q)
    assert_close(some.divergence()[0], torch.as_tensor(expected))


def test_far_from_everything_it_is_the_prior():
    some = law()
    _, mean, variance = some.marginals(torch.full((1, 1, 3), 100.0).double())
    assert_close(mean, torch.zeros_like(mean), rtol=0.0, atol=1e-12)
    assert_close(variance, some.diagonal(torch.zeros(1, 1, 3).double())[:, None].expand(1, 2, 1), rtol=1e-9, atol=0.0)


class Pooled(nn.Module):
    """No Sequential: features of a sequence, and two uses of the rows before the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.norm, self.out = nn.LSTM(2, 4, batch_first=True), nn.LayerNorm(4), nn.Linear(4, 3)

    def forward(self, rows: Tensor) -> Tensor:
        return self.out(self.norm(self.reads(rows)[0].mean(1)))


def test_features_are_what_the_last_layer_reads():
    model = bp.Model(Pooled(), likelihood=likelihoods.Categorical())
    rows = normal(6, 5, 2).float()
    model.probe(rows, None)
    theta = torch.stack([0.1 * normal(model.layout.size, seed=s).float() for s in (0, 1)])
    found = features(model, theta, {}, rows, shared=True)
    assert found.shape == (2, 6, 4)
    outputs = model.outputs(theta[:, None], {}, rows)[:, 0]
    for particle in range(2):
        named = model.weights(theta[particle])
        expected = found[particle].float() @ named["out.weight"].T + named["out.bias"]
        assert_close(outputs[particle], expected, rtol=1e-5, atol=1e-6)
    assert_close(features(model, theta, {}, rows.expand(2, -1, -1, -1)), found, rtol=1e-6, atol=1e-7)
    assert not model.network.out._forward_pre_hooks  # type: ignore[union-attr]


def test_networks_without_features_are_refused():
    model = bp.Model(nn.Conv1d(1, 1, 1), likelihood=likelihoods.Gaussian())
    with pytest.raises(ConfigurationError, match="a deep kernel takes the place of the last dense layer"):
        head_of(model)
    wide = bp.Model(nn.Linear(3, 1), likelihood=likelihoods.Gaussian())
    with pytest.raises(ConfigurationError, match="one row of features for each row of the inputs"):
        features(wide, torch.zeros(1, wide.layout.size), {}, torch.zeros(2, 5, 3), shared=True)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_its_file(tmp_path: Path, kernel: str):
    network = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    model = bp.Model(network, likelihood=likelihoods.Categorical(), prior=priors.Normal(scale=priors.HalfNormal(1.0)))
    theta = torch.linspace(-1.0, 1.0, model.layout.size)[None]
    posterior = DeepKernelProcess(model, theta, law(kernel), model.initial_buffers(1))
    posterior.save(tmp_path / "process.bayes")
    again = bp.load(tmp_path / "process.bayes", network=network)
    assert isinstance(again, DeepKernelProcess)
    assert again.law.kernel == kernel
    rows = normal(7, 2).float()
    assert_close(again.predict(rows, 6).mean, posterior.predict(rows, 6).mean, rtol=0.0, atol=0.0)
    assert_close(again.kl(), posterior.kl(), rtol=0.0, atol=0.0)
    assert again.hyper.shape == (1, 2)
    assert again.features(rows).shape == (1, 7, 3)
