"""What every method has to pass, whatever it computes.

    class TestSGLD(MethodSuite):
        def make(self):
            return SGLD(learning_rate=0.01, samples=4)

        def check_linear_regression(self, problem): ...

Each test says what it holds the method to. What a method's law is on Bayesian linear regression, where the posterior is
known, only the method knows: `check_linear_regression` is written for each of them.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils import _pytree as pytree

from bayesprop import likelihoods, priors
from bayesprop.errors import BayespropWarning
from bayesprop.inference.method import About, Info, Method, state_tensors
from bayesprop.model import Batch, Model
from bayesprop.posteriors import Posterior, load
from bayesprop.rng import Rng, Stream, member_seed
from bayesprop.testing.linear_regression import LinearRegression
from bayesprop.training import fit
from bayesprop.training.observers import Event, Stop

__all__ = ["MethodSuite"]

ROWS = 8  # fewer than the ten from which on `fit` compares with simpler models


def _numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return Rng.create(seed).normal(math.prod(shape), Stream.INITIAL, dtype=dtype)[0, 0].reshape(shape)


def _network(outputs: int = 1, *between: nn.Module) -> nn.Sequential:
    """A hidden layer of four units, with weights of its own that leave torch's generator alone."""
    network = nn.Sequential(nn.Linear(3, 4), *between, nn.Tanh(), nn.Linear(4, outputs))
    with torch.no_grad():
        for index, parameter in enumerate(network.parameters()):
            parameter.copy_(0.5 * _numbers(*parameter.shape, seed=20 + index))
    return network


def _targets(kind: str) -> Tensor:
    numbers = _numbers(ROWS, 1, seed=2)
    found = {
        "classes": torch.arange(ROWS) % 3,
        "binary": (numbers[:, 0] > 0).long(),
        "counts": numbers.abs().round(),
        "numbers": numbers,
    }
    return found[kind]


# name: (likelihood, outputs of the network, targets)
LIKELIHOODS: dict[str, tuple[likelihoods.Likelihood, int, str]] = {
    "Bernoulli": (likelihoods.Bernoulli(), 1, "binary"),
    "Categorical": (likelihoods.Categorical(), 3, "classes"),
    "Gaussian": (likelihoods.Gaussian(), 1, "numbers"),
    "Gaussian, fixed": (likelihoods.Gaussian(0.5), 1, "numbers"),
    "HeteroscedasticGaussian": (likelihoods.HeteroscedasticGaussian(), 2, "numbers"),
    "Poisson": (likelihoods.Poisson(), 1, "counts"),
    "StudentT": (likelihoods.StudentT(4.0), 1, "numbers"),
}


class MethodSuite(ABC):
    """Inherit, and define `make` and `check_linear_regression`."""

    @abstractmethod
    def make(self) -> Any:
        """The method with settings under which a few steps on a dozen rows make sense."""

    @abstractmethod
    def check_linear_regression(self, problem: LinearRegression) -> None:
        """Run the method on the problem, to the end, and assert what it finds there."""

    rows: int | None = 4  # of a minibatch; None for a method that needs all rows
    tied_to_particle: bool = True  # particles are independent of one another

    def between(self, layer: nn.Module) -> tuple[nn.Module, ...]:
        """A layer that some networks of the exam have between the others; () for a method that refuses it."""
        return (layer,)

    # -- how the tests run a method -----------------------------------------------------------------------------------

    def fitted(self, model: Model, data: Any, *, epochs: int = 3, seed: int = 0, **arguments: Any) -> Posterior:
        """Through `fit`, without warnings about a fit that is as short as these are."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BayespropWarning)
            settings = {"batch_size": self.rows, "epochs": epochs, "seed": seed, "progress": False, **arguments}
            return fit(model, data, self.make(), **settings)

    def problem(self, dtype: torch.dtype = torch.float32, **options: Any) -> tuple[Model, tuple[Tensor, Tensor]]:
        """A small regression."""
        settings = {"likelihood": likelihoods.Gaussian(), "prior": priors.Normal(), **options}
        network = settings.pop("network") if "network" in settings else _network()
        model = Model(network.to(dtype), **settings)
        return model, (_numbers(ROWS, 3, dtype=dtype, seed=1), _numbers(ROWS, 1, dtype=dtype, seed=2))

    def _steps(self, method: Method[Any], rng: Rng, count: int, *, on_device: bool = False) -> dict[str, Tensor]:
        """The state after so many steps of the method's own three functions; `on_device`: as a captured step finds
        them, with numbers and step as tensors."""
        problem = LinearRegression()
        state = method.init(problem.model, rng)
        for step in range(count):
            place = {"epochs": count, "epoch": step, "progress": step / count}
            batch = problem.batch(rng.particles, slice(None), **place)
            now = rng.at(step)
            if on_device:
                numbers = [torch.as_tensor(n).float().expand(rng.particles) for n in method.numbers(batch, step)]
                table = torch.stack(numbers) if numbers else torch.zeros(0, rng.particles)
                batch = Batch(batch.inputs, batch.targets, batch.num_data, table)
                now = rng.at(torch.tensor(step))
            state, info = method.update(problem.model, state, batch, now)
            assert isinstance(info, Info)
            assert info.log_likelihood.shape == (rng.particles,)
            assert not info.log_likelihood.requires_grad
        return state_tensors(state)

    # -- contract -----------------------------------------------------------------------------------------------------

    def test_it_is_a_method_whose_settings_cannot_be_changed(self) -> None:
        method = self.make()
        assert isinstance(method, Method)
        assert dataclasses.is_dataclass(method)
        assert type(method).__dataclass_params__.frozen  # type: ignore[attr-defined]
        assert isinstance(method.about, About)

    def test_its_state_has_a_leading_axis_of_particles_and_no_graph(self) -> None:
        method = self.make()
        particles = max(3, method.population)
        found = self._steps(method, Rng.create(1, particles), 2)
        assert found
        for name, tensor in found.items():
            assert tensor.dim() == 0 or tensor.shape[0] == particles, name
            assert not tensor.requires_grad, name
            assert bool(torch.isfinite(tensor).all()), name

    def test_a_particle_is_the_same_alone_and_in_a_population(self) -> None:
        if not self.tied_to_particle:
            return
        method = self.make()
        if method.population > 1:
            return self._check_members(method)
        together = self._steps(method, Rng.create(5, 3), 4)
        for particle in range(3):
            seeds = torch.tensor([member_seed(5, particle)])
            alone = self._steps(method, Rng(seeds), 4)
            for name, tensor in alone.items():
                if tensor.dim() > 0:
                    assert_close(together[name][particle], tensor[0], rtol=1e-9, atol=1e-11, msg=name)
        return None

    def _check_members(self, method: Method[Any]) -> None:
        """The same for a method that trains a population: more members do not change the first ones."""
        few, many = (self._steps(method, Rng.create(5, count), 4) for count in (2, 3))
        for name, tensor in few.items():
            if tensor.dim() > 0:
                assert_close(many[name][:2], tensor, rtol=1e-9, atol=1e-11, msg=name)

    def test_a_step_with_its_numbers_on_the_device_is_the_same(self) -> None:
        """What a captured step does: no question to the host, learning rates and the like in float32."""
        if self.make().looks_at_host:
            return
        count = max(2, self.make().population)
        plain, device = (self._steps(self.make(), Rng.create(2, count), 4, on_device=d) for d in (False, True))
        assert plain.keys() == device.keys()
        for name, tensor in plain.items():
            if not name.startswith("kept/") and not name.startswith("deviations"):  # the spare places differ
                assert_close(device[name], tensor, rtol=1e-5, atol=1e-7, msg=name)

    def test_batch_and_model_stay_as_they_are(self) -> None:
        problem, method = LinearRegression(), self.make()
        rng = Rng.create(0, method.population)
        batch = problem.batch(method.population)
        batch = Batch(batch.inputs.clone(), batch.targets.clone(), batch.num_data)
        held = [t.clone() for t in (batch.inputs, batch.targets, *problem.model.network.parameters())]
        state = method.init(problem.model, rng)
        method.update(problem.model, state, batch, rng)
        now = [batch.inputs, batch.targets, *problem.model.network.parameters()]
        assert_close([t.detach() for t in now], [t.detach() for t in held], rtol=0.0, atol=0.0)

    def test_a_posterior_is_there_at_any_time_and_is_no_view_of_the_state(self) -> None:
        problem, method = LinearRegression(), self.make()
        rng = Rng.create(0, method.population)
        state = method.init(problem.model, rng)
        before = method.posterior(problem.model, state)
        held = {name: tensor.clone() for name, tensor in before.tensors().items()}
        for step in range(3):
            batch = problem.batch(method.population, epochs=3, epoch=step, progress=step / 3)
            state, _ = method.update(problem.model, state, batch, rng.at(step))
        assert held
        assert_close(dict(before.tensors()), held, rtol=0.0, atol=0.0)
        assert before.particles == method.population

    def test_both_precisions(self) -> None:
        for dtype in (torch.float32, torch.float64):
            model, data = self.problem(dtype)
            found = {t.dtype for t in self.fitted(model, data).tensors().values() if t.is_floating_point()}
            assert found == {dtype}

    def test_memory_is_told(self) -> None:
        method, problem = self.make(), LinearRegression()
        particles = max(2, method.population)
        held = sum(t.numel() * t.element_size() for t in self._steps(method, Rng.create(0, particles), 1).values())
        told = method.memory(problem.model, particles, 24)
        assert held <= told <= 20 * held + 4096

    # -- reproducibility ----------------------------------------------------------------------------------------------

    def test_the_same_seed_gives_the_same_posterior(self) -> None:
        model, data = self.problem()
        first, again, other = (self.fitted(model, data, seed=seed) for seed in (3, 3, 4))
        assert_close(dict(first.tensors()), dict(again.tensors()), rtol=0.0, atol=0.0)
        assert any(not torch.equal(t, other.tensors()[name]) for name, t in first.tensors().items())

    def test_the_global_generator_is_left_alone(self) -> None:
        # Dropout draws from it, under a seed that is ours.
        networks = [_network(), _network(1, *self.between(nn.Dropout(0.3)))]
        before = torch.get_rng_state()
        for network in networks:
            model, data = self.problem(network=network)
            self.fitted(model, data, epochs=2).predict(data[0], 3).mean.sum()
        assert torch.equal(torch.get_rng_state(), before)

    def test_a_run_that_was_stopped_goes_on_bit_for_bit(self, tmp_path: Path) -> None:
        model, data = self.problem(network=_network(1, *self.between(nn.BatchNorm1d(4))))
        whole = self.fitted(model, data, epochs=4)

        def after(count: int) -> Callable[[Event], Any]:
            return lambda event: Stop if event.kind == "step" and event.step >= count else None

        path = tmp_path / "run.ckpt"
        self.fitted(model, data, epochs=4, checkpoint=path, observers=[after(5 if self.rows else 2)])
        resumed = self.fitted(model, data, epochs=4, checkpoint=path, resume=True)
        assert whole.tensors().keys() == resumed.tensors().keys()
        assert_close(dict(whole.tensors()), dict(resumed.tensors()), rtol=0.0, atol=0.0)
        assert_close(whole.buffers, resumed.buffers, rtol=0.0, atol=0.0)

    def test_what_is_saved_is_loaded(self, tmp_path: Path) -> None:
        network = _network(1, *self.between(nn.BatchNorm1d(4)))
        model, data = self.problem(network=network)
        posterior = self.fitted(model, data)
        posterior.save(tmp_path / "one.bayes")
        again = load(tmp_path / "one.bayes", network=network)
        assert type(again) is type(posterior)
        assert again.context.method == self.make()
        assert_close(dict(again.tensors()), dict(posterior.tensors()), rtol=0.0, atol=0.0)
        assert_close(again.predict(data[0], 6).mean, posterior.predict(data[0], 6).mean, rtol=0.0, atol=0.0)

    # -- every problem ------------------------------------------------------------------------------------------------

    def test_every_likelihood(self) -> None:
        count = 0
        for name, (likelihood, outputs, kind) in LIKELIHOODS.items():
            model, (inputs, _) = self.problem(network=_network(outputs), likelihood=likelihood)
            targets = _targets(kind)
            prediction = self.fitted(model, (inputs, targets), epochs=2).predict(inputs, 4)
            assert bool(torch.isfinite(prediction.log_prob(targets)).all()), name
            count += 1
        assert count == len(LIKELIHOODS)
        assert {name.split(",")[0] for name in LIKELIHOODS} == set(likelihoods.__all__) - {
            "FromDistribution",
            "Likelihood",
        }

    def test_every_kind_of_column(self) -> None:
        """Point estimates, fixed parameters, latents of the likelihood, priors of several families."""
        mixed = {"0.*": priors.Laplace(scale=0.5), "*": priors.ScaleMixture(0.5, 1.0, 0.1)}
        several: list[dict[str, Any]] = [{"random": "0.*"}, {"fixed": "0.*"}, {"prior": mixed}]
        for options in several:
            model, data = self.problem(**options)
            posterior = self.fitted(model, data, epochs=2)
            leaves = pytree.tree_leaves(posterior.sample(2))
            assert len(leaves) == len(model.layout.blocks)
            assert all(bool(torch.isfinite(leaf).all()) for leaf in leaves)

    # -- law ----------------------------------------------------------------------------------------------------------

    def test_bayesian_linear_regression(self) -> None:
        problem = LinearRegression()
        self.check_linear_regression(problem)
        assert problem.precision.shape == (4, 4)
