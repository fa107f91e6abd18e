"""Laplace's approximation: exact on linear regression, the exam, evidence, refusals."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils import _pytree as pytree

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import CapabilityError, ConfigurationError, MemoryBudgetError
from bayesprop.inference import MAP, SGLD, DeepEnsemble, Laplace
from bayesprop.posteriors import Delta, DiagonalGaussian, FullGaussian, KroneckerGaussian
from bayesprop.testing import LinearRegression, MethodSuite

from ..conftest import normal, small_network


def at_the_mode(problem: LinearRegression, **settings):
    method = Laplace(MAP(0.05), **settings)
    return bp.fit(problem.model, problem.data, method, epochs=600, batch_size=None, progress=False)


class TestLaplace(MethodSuite):
    def make(self):
        return Laplace(MAP(0.02))

    def check_linear_regression(self, problem):
        """The posterior itself, and its evidence."""
        posterior = at_the_mode(problem)
        assert isinstance(posterior, FullGaussian)
        assert_close(posterior.mean()[0], problem.mean, rtol=0.0, atol=1e-9)
        assert_close(posterior.covariance()[0], problem.covariance, rtol=1e-10, atol=0.0)
        assert float(posterior.log_evidence) == pytest.approx(problem.log_evidence, abs=1e-8)
        assert float(posterior.prior_precision) == 1.0

    def test_every_kind_of_column(self):
        """As the suite's, but for a double exponential prior, which has no curvature."""
        mixed = {"0.*": priors.StudentT(scale=0.5), "*": priors.Normal(scale=priors.HalfNormal(1.0))}
        count = 0
        for options in ({"random": "0.*"}, {"fixed": "0.*"}, {"prior": mixed}):
            model, data = self.problem(**options)
            posterior = self.fitted(model, data, epochs=150)
            leaves = pytree.tree_leaves(posterior.sample(2))
            assert len(leaves) == len(model.layout.blocks)
            assert all(bool(torch.isfinite(leaf).all()) for leaf in leaves)
            count += 1
        assert count == 3


class TestDiagonal(TestLaplace):
    def make(self):
        return Laplace(MAP(0.02), hessian="diagonal")

    def check_linear_regression(self, problem):
        """The mean, and 1 / L_ii."""
        posterior = at_the_mode(problem, hessian="diagonal")
        assert isinstance(posterior, DiagonalGaussian)
        assert_close(posterior.mean()[0], problem.mean, rtol=0.0, atol=1e-9)
        assert_close(posterior.std()[0] ** -2, problem.precision.diagonal(), rtol=1e-12, atol=0.0)


class TestLastLayer(TestLaplace):
    def make(self):
        return Laplace(MAP(0.02), hessian="last_layer")

    def check_linear_regression(self, problem):
        """The only layer is the last one."""
        posterior = at_the_mode(problem, hessian="last_layer")
        assert_close(posterior.covariance()[0], problem.covariance, rtol=1e-10, atol=0.0)
        assert float(posterior.log_evidence) == pytest.approx(problem.log_evidence, abs=1e-8)


class TestKronecker(TestLaplace):
    def make(self):
        return Laplace(MAP(0.02), hessian="kron")

    def check_linear_regression(self, problem):
        """One output: the matrix of the weights, and that of the bias, without what is between them."""
        posterior = at_the_mode(problem, hessian="kron")
        assert isinstance(posterior, KroneckerGaussian)
        covariance = torch.linalg.inv(problem.precision[:3, :3])
        assert_close(posterior.std()[0, :3], covariance.diagonal().sqrt(), rtol=1e-10, atol=0.0)
        root = posterior.times_root(0, torch.eye(4, dtype=torch.float64))
        assert_close((root @ root.T)[:3, :3], covariance, rtol=1e-10, atol=1e-12)
        assert float(posterior.std()[0, 3]) ** -2 == pytest.approx(float(problem.precision[3, 3]), rel=1e-12)

    def test_every_kind_of_column(self):
        """Points and fixed parameters; of priors only those with one precision for each parameter."""
        for options in (
            {"random": "0.*"},
            {"fixed": "0.*"},
            {"prior": {"0.*": priors.Normal(0, 2.0), "*": priors.Flat()}},
        ):
            model, data = self.problem(**options)
            posterior = self.fitted(model, data, epochs=60)
            assert isinstance(posterior, KroneckerGaussian)
            assert all(bool(torch.isfinite(leaf).all()) for leaf in pytree.tree_leaves(posterior.sample(2)))


class TestSubnetwork(TestLaplace):
    def make(self):
        return Laplace(MAP(0.02), hessian="subnetwork", subnetwork=3)

    def check_linear_regression(self, problem):
        """Three columns: the largest 1 / L_ii, which are those with the smallest precision, given the fourth."""
        posterior = at_the_mode(problem, hessian="subnetwork", subnetwork=3)
        columns = problem.precision.diagonal().argsort()[:3].sort().values
        assert posterior.columns.tolist() == columns.tolist()
        expected = torch.linalg.inv(problem.precision[columns][:, columns])
        assert_close(posterior.covariance()[0], expected, rtol=1e-10, atol=0.0)


class TestMixture(TestLaplace):
    def make(self):
        return Laplace(DeepEnsemble(MAP(0.02), members=2))


@pytest.mark.parametrize("rows", [5, 7, 24])
def test_each_row_counts_once_whatever_the_minibatches_are(rows):
    """The last minibatch is filled up with rows that were seen before: at a rate of nearly nothing nothing else
    differs."""
    problem = LinearRegression()
    posterior = bp.fit(
        problem.model, problem.data, Laplace(MAP(1e-12)), epochs=2, batch_size=rows, progress=False, seed=3
    )
    assert_close(posterior.covariance()[0], problem.covariance, rtol=1e-10, atol=0.0)


def test_the_points_of_the_last_layer_stay_where_they_are():
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian())
    data = (normal(20, 3), normal(20, 1, seed=1))
    posterior = bp.fit(model, data, Laplace(MAP(), hessian="last_layer"), epochs=30, batch_size=None, progress=False)
    theta = posterior.draw(posterior.rng(0), 5)
    assert posterior.columns.tolist() == list(range(16, 21))  # the head: four weights and a bias
    held = [c for c in range(model.layout.size) if c not in posterior.columns.tolist()]
    assert_close(theta[0, :, held], posterior.mean()[:, held].expand(5, -1), rtol=0.0, atol=0.0)
    assert float(theta[0, :, posterior.columns].std(0).min()) > 0.0
    assert isinstance(bp.fit(model, data, MAP(), epochs=1, progress=False), Delta)


def test_another_layer_is_chosen_by_its_name():
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian())
    method = Laplace(MAP(), hessian="last_layer", layer=("0.bias", "2.*"))
    assert method.columns(model).tolist() == list(range(12, 21))
    with pytest.raises(ConfigurationError, match=r"layer: the pattern 'head' matches no parameter"):
        Laplace(MAP(), hessian="last_layer", layer="head").columns(model)


def test_a_subnetwork_of_your_own():
    """By a pattern and by a mask over the random columns."""
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian())
    data = (normal(20, 3), normal(20, 1, seed=1))
    mask = torch.zeros(model.layout.random, dtype=torch.bool)
    mask[[2, 5, 17]] = True
    settings = {"epochs": 3, "batch_size": None, "progress": False}
    for subnetwork, expected in ((mask, [2, 5, 17]), ("2.*", list(range(16, 21))), (10_000, list(range(21)))):
        method = Laplace(MAP(), hessian="subnetwork", subnetwork=subnetwork)
        posterior = bp.fit(model, data, method, **settings)
        assert posterior.columns.tolist() == expected
        assert set((posterior.std()[0] > 0).nonzero()[:, 0].tolist()) == set(expected)
    for wrong in (mask[:3], mask.long(), torch.zeros_like(mask)):
        with pytest.raises(ConfigurationError, match="a mask says yes or no of each random column") as caught:
            Laplace(MAP(), hessian="subnetwork", subnetwork=wrong).columns(model)
        assert "shape [21], with at least one True" in str(caught.value)


@pytest.mark.parametrize("hessian", ["full", "diagonal", "kron", "last_layer"])
@pytest.mark.parametrize("factor", [1.0, "evidence"])
def test_noise_by_the_evidence(hessian, factor):
    """s^2 = E / (n - g) with the number g of determined weights, of the matrix that the posterior itself has."""
    problem = LinearRegression()
    model = bp.Model(nn.Linear(3, 1).double(), likelihood=likelihoods.Gaussian(), prior=priors.Normal())
    method = Laplace(MAP(0.05), hessian=hessian, noise="evidence", prior_precision=factor)
    posterior = bp.fit(model, problem.data, method, epochs=400, batch_size=None, progress=False)
    mean = posterior.mean()[0]
    variance = float(torch.exp(2.0 * mean[4]))
    errors = float((problem.targets[:, 0] - problem.design @ mean[:4]).square().sum())
    matrix = problem.design.T @ problem.design / variance
    if hessian == "diagonal":
        matrix = torch.diag(matrix.diagonal())
    elif hessian == "kron":
        matrix[3, :3] = matrix[:3, 3] = 0.0
    values, a = torch.linalg.eigvalsh(matrix), float(posterior.prior_precision)
    determined = float((values / (values + a)).sum())
    assert variance == pytest.approx(errors / (24 - determined), rel=1e-6)
    if factor == "evidence":  # MacKay's other equation
        assert a == pytest.approx(determined / float(mean[:4].square().sum()), rel=1e-6)
    plain = bp.fit(
        model, problem.data, Laplace(MAP(0.05), hessian=hessian), epochs=400, batch_size=None, progress=False
    )
    assert float(plain.mean()[0, 4]) != pytest.approx(float(mean[4]), abs=1e-3)


def test_predictions_are_linearised_unless_asked_otherwise():
    """On few data for a network that can bend: the tangent says of the training rows what the mode says, and draws of
    the network itself do not."""
    inputs = torch.linspace(-1.0, 1.0, 40, dtype=torch.float64)[:, None]
    targets = torch.sin(4.0 * inputs)
    network = nn.Sequential(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 1)).double()
    model = bp.Model(network, likelihood=likelihoods.Gaussian(0.1), prior=priors.Normal(0.0, 3.0))
    posterior = bp.fit(model, (inputs, targets), Laplace(MAP(0.02)), epochs=500, batch_size=None, progress=False)
    assert posterior.linear
    scores = {}
    for name, chosen in (("linear", posterior), ("sampled", posterior.sampled()), ("mode", posterior.at_mean())):
        scores[name] = float(chosen.predict(inputs, 200).log_prob(targets).mean())
    assert scores["linear"] > scores["mode"] - 0.3
    assert scores["sampled"] < scores["mode"] - 1.0
    assert not at_the_mode(LinearRegression(), predictive="sampled").linear


def test_starts_are_a_mixture_whose_members_are_single_fits():
    problem = LinearRegression()
    method = Laplace(DeepEnsemble(MAP(0.05), members=3))
    posterior = bp.fit(problem.model, problem.data, method, epochs=3, batch_size=8, progress=False)
    alone = bp.fit(problem.model, problem.data, Laplace(MAP(0.05)), epochs=3, batch_size=8, progress=False)
    assert posterior.particles == 3
    assert_close(posterior.mean()[0], alone.mean()[0], rtol=1e-10, atol=1e-12)
    assert_close(posterior.log_evidence[0], alone.log_evidence[0], rtol=1e-10, atol=0.0)
    assert posterior.member(2).log_evidence.shape == (1,)


def test_a_learnt_noise_scale_is_a_column_with_its_own_spread():
    """Of the logarithm of a scale that explains N residuals the Fisher information is 2 N; the hyperprior adds its
    own, -d^2/dl^2 of log HalfNormal(e^l) + l, which is 2 e^2l / 1."""
    problem = LinearRegression()
    model = bp.Model(nn.Linear(3, 1).double(), likelihood=likelihoods.Gaussian(), prior=priors.Normal())
    posterior = bp.fit(model, problem.data, Laplace(MAP(0.05)), epochs=600, batch_size=None, progress=False)
    log_scale = float(posterior.mean()[0, 4])
    assert float(posterior.std()[0, 4]) ** -2 == pytest.approx(48.0 + 2.0 * math.exp(2.0 * log_scale), rel=1e-10)


@pytest.mark.parametrize("hessian", ["full", "last_layer"])
def test_the_prior_with_the_greatest_evidence(hessian):
    """On linear regression with a weak prior, whose mode is nearly that of least squares: no factor beside the chosen
    one has more evidence, each being fitted by itself at the same mode."""
    problem = LinearRegression()
    found = at_the_mode(problem, hessian=hessian, prior_precision="evidence")
    factor = float(found.prior_precision)
    beside = [at_the_mode(problem, hessian=hessian, prior_precision=factor * b) for b in (0.9, 0.999, 1.001, 1.1)]
    values = [float(posterior.log_evidence) for posterior in beside]
    assert 0.05 < factor < 20.0
    assert max(values) < float(found.log_evidence)
    assert values[1] == pytest.approx(float(found.log_evidence), abs=1e-5)
    expected = problem.precision + (factor - 1.0) * torch.eye(4).double()
    assert_close(torch.linalg.inv(found.covariance()[0]), expected, rtol=1e-9, atol=1e-9)


def test_a_binary_network_with_one_logit():
    """Probabilities are between those of the mode and one half, as an average over weights must be."""
    inputs = normal(40, 2)
    targets = (inputs[:, 0] + 0.5 * normal(40, seed=3) > 0).long()
    model = bp.Model(nn.Linear(2, 1).double(), likelihood=likelihoods.Bernoulli(), prior=priors.Normal(scale=3.0))
    arguments = {"epochs": 400, "batch_size": None, "progress": False}
    point = bp.fit(model, (inputs, targets), MAP(0.05), **arguments).predict(inputs).mean[:, 1]
    posterior = bp.fit(model, (inputs, targets), Laplace(MAP(0.05)), **arguments)
    average = posterior.predict(inputs, 4000).mean[:, 1]
    assert float(average.std()) > 0.1
    far = (point - 0.5).abs() > 0.1
    assert bool(((average - 0.5).abs() < (point - 0.5).abs())[far].all())


def test_evidence_prefers_the_model_that_made_the_data():
    """A line with noise 0.5: the model with this noise against others whose noise is too small or too large."""
    problem = LinearRegression()
    values = {}
    for name, scale in (("right", 0.5), ("small", 0.1), ("large", 3.0)):
        model = bp.Model(nn.Linear(3, 1).double(), likelihood=likelihoods.Gaussian(scale))
        posterior = bp.fit(model, problem.data, Laplace(MAP(0.05)), epochs=800, batch_size=None, progress=False)
        values[name] = float(posterior.log_evidence)
    assert values["right"] > max(values["small"], values["large"]) + 5.0


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_matrix_that_does_not_fit_is_refused_before_training():
    model = bp.Model(nn.Sequential(nn.Linear(100, 100), nn.Linear(100, 2)), likelihood=likelihoods.Categorical())
    data = (normal(20, 100).float(), torch.arange(20) % 2)
    with pytest.raises(MemoryBudgetError, match="the matrices do not fit into their memory budget") as caught:
        bp.fit(model, data, Laplace(MAP(), memory_budget=1.0), epochs=1, progress=False)
    message = str(caught.value)
    assert "10,302 x 10,302 numbers: 3.56 GiB" in message
    assert 'at most memory_budget=1 GiB; hessian="kron" fits; hessian="last_layer" has 202 columns' in message
    assert 'write: Laplace(MAP(), hessian="kron")  # or Laplace(MAP(), hessian="last_layer")' in message


def test_a_prior_without_curvature_is_refused():
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian(), prior=priors.Laplace())
    with pytest.raises(ConfigurationError, match="needs the curvature of the prior") as caught:
        bp.fit(model, (normal(9, 3), normal(9, 1)), Laplace(MAP()), epochs=1, progress=False)
    assert "double exponential" in str(caught.value)


@pytest.mark.parametrize(
    ("prior", "received"),
    [
        (priors.StudentT(scale=0.5), "a student_t prior, whose curvature depends on the weight"),
        (priors.Normal(scale=priors.HalfNormal(1.0)), "a prior whose scale is learnt"),
        (
            {"0.weight": priors.Normal(scale=1.0 + torch.arange(12.0).reshape(4, 3)), "*": priors.Normal()},
            "differs within 0.weight",
        ),
    ],
)
def test_kronecker_factors_need_one_precision_for_each_parameter(prior, received):
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian(), prior=prior)
    with pytest.raises(ConfigurationError, match="needs a prior with one precision for each parameter") as caught:
        bp.fit(model, (normal(9, 3), normal(9, 1)), Laplace(MAP(), hessian="kron"), epochs=1, progress=False)
    assert received in str(caught.value)
    assert 'write: Laplace(MAP(), hessian="diagonal")  # or "full", "last_layer"' in str(caught.value)


def test_a_method_that_ends_in_no_point_is_refused():
    with pytest.raises(ConfigurationError, match="needs a method that ends in a point") as caught:
        bp.fit(LinearRegression().model, LinearRegression().data, Laplace(SGLD()), epochs=1, progress=False)
    assert "SGLD, whose posterior is a Samples" in str(caught.value)


def test_posteriors_of_other_methods_have_no_evidence():
    problem = LinearRegression()
    other = bp.fit(problem.model, problem.data, epochs=1, progress=False)
    with pytest.raises(CapabilityError, match="this DiagonalGaussian has no log_evidence"):
        _ = other.log_evidence


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"hessian": "kfac"}, "hessian is one of 'diagonal', 'full', 'kron', 'last_layer', 'subnetwork', got 'kfac'"),
        ({"noise": 0.1}, 'noise is "mode" or "evidence", got 0.1'),
        ({"predictive": "probit"}, 'predictive is "linearised" or "sampled", got \'probit\''),
        ({"subnetwork": 0}, "subnetwork is a number of weights, a pattern or a mask, got 0"),
        ({"prior_precision": 0.0}, 'prior_precision is a positive factor or "evidence", got 0.0'),
        ({"layer": "0.*"}, "layer belongs to hessian=\"last_layer\", got 'full'"),
        ({"memory_budget": 0.0}, "memory_budget must be positive, got 0.0"),
        ({"base": MAP}, "Laplace needs a method that finds the mode"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault) as caught:
        Laplace(**{"base": MAP(), **settings})
    assert 'write: Laplace(MAP(), hessian="last_layer")' in str(caught.value)
