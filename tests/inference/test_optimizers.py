"""Every optimiser against torch's own, step by step, and each particle against itself alone."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors, storage
from bayesprop.errors import ConfigurationError
from bayesprop.inference import SGD, Adam, BayesByBackprop, Torch
from bayesprop.inference.optimizers import as_optimizer

from .conftest import Problem, method_with, normal, small_network

STEPS = 12


def _parameters(particles: int = 2) -> dict[str, Tensor]:
    return {"mean": normal(particles, 5, seed=1), "rho": normal(particles, 4, seed=2) - 3.0}


def _gradients(step: int, particles: int = 2) -> dict[str, Tensor]:
    """Some numbers for each step: large, small, and one column that never has a gradient."""
    found = {"mean": normal(particles, 5, seed=100 + step), "rho": 1e-3 * normal(particles, 4, seed=200 + step)}
    found["mean"][:, 3] = 0.0
    return found


def _reference(optimizer: type, arguments: dict, rates: dict[str, float], particles: int = 2, row: slice = slice(None)):
    """Trajectories of torch's own optimiser: for each step a copy of all parameters. Only means are decayed."""
    parameters = {name: value[row].clone().requires_grad_(True) for name, value in _parameters(particles).items()}
    groups = [{"params": [p], "lr": rates[name]} for name, p in parameters.items()]
    made = optimizer(groups, **arguments)
    if "weight_decay" in made.param_groups[1]:
        made.param_groups[1]["weight_decay"] = 0.0
    trajectory = []
    for step in range(STEPS):
        for name, gradient in _gradients(step, particles).items():
            parameters[name].grad = gradient[row].clone()
        made.step()
        trajectory.append({name: value.detach().clone() for name, value in parameters.items()})
    return trajectory


def _ours(optimizer, rates, particles: int = 2):
    parameters = _parameters(particles)
    state = optimizer.init(parameters)
    trajectory = []
    for step in range(STEPS):
        optimizer.step(parameters, _gradients(step, particles), state, rates, step)
        trajectory.append({name: value.clone() for name, value in parameters.items()})
    return trajectory


PAIRS = {
    "sgd": (SGD(), torch.optim.SGD, {}),
    "momentum": (SGD(momentum=0.8), torch.optim.SGD, {"momentum": 0.8}),
    "adam": (Adam(beta1=0.8, beta2=0.99, epsilon=1e-6), torch.optim.Adam, {"betas": (0.8, 0.99), "eps": 1e-6}),
    "adamw": (Adam(weight_decay=0.1), torch.optim.AdamW, {"weight_decay": 0.1}),
}


@pytest.mark.parametrize("name", PAIRS)
def test_ours_are_torchs_step_by_step(name):
    ours, theirs, arguments = PAIRS[name]
    rates = {"mean": 0.1, "rho": 0.02}
    assert_close(_ours(ours, rates), _reference(theirs, arguments, rates), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", PAIRS)
def test_particles_with_rates_of_their_own_are_what_they_are_alone(name):
    ours, theirs, arguments = PAIRS[name]
    rates = {
        "mean": torch.tensor([0.1, 0.003], dtype=torch.float64),
        "rho": torch.tensor([0.02, 0.5], dtype=torch.float64),
    }
    found = _ours(ours, rates)
    for particle in range(2):
        alone = {key: float(rate[particle]) for key, rate in rates.items()}
        expected = _reference(theirs, arguments, alone, row=slice(particle, particle + 1))
        part = [{key: value[particle : particle + 1] for key, value in moment.items()} for moment in found]
        assert_close(part, expected, rtol=1e-12, atol=1e-14)
    # One number for all particles may also come as a tensor of no dimensions.
    single = {key: rate[0] for key, rate in rates.items()}
    assert_close(_ours(ours, single), _ours(ours, {key: float(rate) for key, rate in single.items()}))


def test_weight_decay_shrinks_the_means_and_nothing_else():
    """With no gradient at all the means shrink by (1 - rate d) at each step, and rho stays where it is."""
    for optimizer in (Adam(weight_decay=0.1), Torch(torch.optim.AdamW, {"weight_decay": 0.1})):
        parameters = _parameters()
        before = copy.deepcopy(parameters)
        state = optimizer.init(parameters)
        for step in range(3):
            nothing = {name: torch.zeros_like(value) for name, value in parameters.items()}
            optimizer.step(parameters, nothing, state, {"mean": 0.5, "rho": 0.5}, step)
        assert_close(parameters["mean"], before["mean"] * 0.95**3, rtol=1e-12, atol=0.0)
        assert torch.equal(parameters["rho"], before["rho"])


# -- any class of torch ------------------------------------------------------------------------------------------------

UNFIT = {"LBFGS", "SparseAdam"}
WHOLE = {"Adafactor", "Muon"}
CLASSES = {
    name: value
    for name, value in vars(torch.optim).items()
    if isinstance(value, type) and issubclass(value, torch.optim.Optimizer) and name != "Optimizer"
}
ARGUMENTS = {
    "SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    "RMSprop": {"alpha": 0.9, "centered": True, "momentum": 0.5},
    "Adam": {"amsgrad": True, "weight_decay": 0.05},
    "Adagrad": {"initial_accumulator_value": 0.3, "lr_decay": 0.1},
    "NAdam": {"weight_decay": 0.1, "decoupled_weight_decay": True},
    "ASGD": {"t0": 3, "alpha": 0.6},
}


def test_there_are_as_many_classes_as_were_looked_at():
    assert len(CLASSES) >= 15
    assert UNFIT | WHOLE | set(ARGUMENTS) <= set(CLASSES)


@pytest.mark.parametrize("name", sorted(CLASSES.keys() - UNFIT))
def test_every_class_of_torch_is_itself(name):
    particles, rates, arguments = 1 if name in WHOLE else 2, {"mean": 0.1, "rho": 0.02}, ARGUMENTS.get(name, {})
    found = _ours(Torch(CLASSES[name], arguments), rates, particles)
    expected = _reference(CLASSES[name], arguments, rates, particles)
    assert_close(found, expected, rtol=1e-12, atol=1e-14)
    assert not torch.equal(found[-1]["rho"], found[0]["rho"])


@pytest.mark.parametrize("name", sorted(CLASSES.keys() - UNFIT))
def test_the_state_of_every_class_travels_in_a_file(name, tmp_path):
    """Half of the steps, a file, a fresh start from it, the other half: bit for bit the whole way."""
    particles, rates = 1 if name in WHOLE else 2, {"mean": 0.1, "rho": 0.02}
    optimizer = Torch(CLASSES[name], ARGUMENTS.get(name, {}))
    expected = _ours(optimizer, rates, particles)[-1]
    parameters = _parameters(particles)
    state = optimizer.init(parameters)
    names = set(state)
    for step in range(STEPS // 2):
        optimizer.step(parameters, _gradients(step, particles), state, rates, step)
    assert set(state) == names  # nothing appears that a fresh start would not expect in the file
    storage.write(tmp_path / "state", {}, {f"moments.{n}": t for n, t in state.items()} | parameters)
    _, tensors = storage.read(tmp_path / "state")
    fresh = _parameters(particles)
    state = optimizer.init(fresh)
    for key in state:
        state[key].copy_(tensors[f"moments.{key}"])
    for key in fresh:
        fresh[key].copy_(tensors[key])
    for step in range(STEPS // 2, STEPS):
        optimizer.step(fresh, _gradients(step, particles), state, rates, step)
    for key, value in expected.items():
        assert torch.equal(fresh[key], value)


@pytest.mark.parametrize("optimizer", [torch.optim.NAdam, Torch(torch.optim.Rprop), "momentum", "adamw"], ids=str)
def test_a_training_goes_on_from_its_checkpoint(optimizer, tmp_path):
    """Through `fit`: two epochs and two more are four."""
    method = method_with(learning_rate=0.01, optimizer=optimizer)
    data = normal(24, 3), normal(24, seed=1)

    def run(epochs: int, **options):
        model = bp.Model(small_network(), likelihood=likelihoods.Gaussian(scale=0.5), prior=priors.Normal(0.0, 1.0))
        return bp.fit(model, data, method, epochs=epochs, batch_size=6, seed=3, progress=False, **options)

    whole = run(4)
    run(2, checkpoint=tmp_path / "run")
    resumed = run(4, checkpoint=tmp_path / "run", resume=True)
    assert torch.equal(resumed.mean(), whole.mean())
    assert torch.equal(resumed.std(), whole.std())


def test_a_step_leaves_no_gradient_behind():
    parameters = _parameters()
    optimizer = Torch(torch.optim.RMSprop)
    state = optimizer.init(parameters)
    before = copy.deepcopy(parameters)
    assert all(torch.count_nonzero(value) == 0 for value in state.values())
    optimizer.step(parameters, _gradients(0), state, {"mean": 0.1, "rho": 0.1}, 0)
    for name, value in parameters.items():
        assert value.grad is None
        assert not value.requires_grad
        assert not torch.equal(value, before[name])


# -- names and refusals ------------------------------------------------------------------------------------------------


def test_names_classes_and_objects():
    named = [as_optimizer(name) for name in ("adam", "adamw", "sgd", "momentum")]
    assert named == [Adam(), Adam(weight_decay=0.01), SGD(), SGD(momentum=0.9)]
    assert as_optimizer(SGD) == SGD()
    assert as_optimizer(Adam) == Adam()
    assert as_optimizer(torch.optim.Adamax) == Torch(torch.optim.Adamax)
    own = Torch(torch.optim.RMSprop, {"alpha": 0.9})
    assert as_optimizer(own) is own


@pytest.mark.parametrize("choice", ["adan", 3, None, dict, torch.optim.SGD([torch.zeros(1)], lr=0.1)])
def test_what_is_no_optimiser_is_refused(choice):
    with pytest.raises(ConfigurationError) as caught:
        as_optimizer(choice)
    message = str(caught.value)
    if choice == "adan":
        assert "no optimiser is called 'adan'" in message
        assert "expected: adam, adamw, sgd, momentum" in message
    else:
        assert "optimizer must be a name, an optimiser of this library or a class of torch.optim" in message
        assert f"received: {choice!r}" in message
    assert 'write: optimizer="adam"' in message


@pytest.mark.parametrize("name", sorted(UNFIT))
def test_classes_that_cannot_take_part_are_refused(name):
    reason = {"LBFGS": "LBFGS evaluates the loss itself", "SparseAdam": "SparseAdam takes sparse gradients"}[name]
    for make in (Torch, as_optimizer, lambda cls: BayesByBackprop(optimizer=cls)):
        with pytest.raises(ConfigurationError, match=reason) as caught:
            make(CLASSES[name])
        assert "write: optimizer=torch.optim.RMSprop" in str(caught.value)


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_classes_that_would_mix_particles_serve_one_of_them_only(name):
    with pytest.raises(ConfigurationError, match=f"{name} looks at a matrix as a whole") as caught:
        Torch(CLASSES[name]).init(_parameters(2))
    assert "received: 2 particles" in str(caught.value)
    assert 'write: optimizer="adam"' in str(caught.value)


def test_a_class_with_plain_numbers_in_its_state_is_refused():
    class Counting(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                for parameter in group["params"]:
                    self.state[parameter]["count"] = self.state[parameter].get("count", 0) + 1
            return super().step(closure)

    with pytest.raises(ConfigurationError, match="Counting keeps plain numbers in its state") as caught:
        Torch(Counting).init(_parameters())
    assert "received: count" in str(caught.value)


def test_rates_of_particles_are_refused_where_there_is_one_rate():
    problem = Problem(nn.Linear(3, 1).double(), normal(4, 3))
    rates = torch.tensor([0.1, 0.2], dtype=torch.float64)
    method = method_with(learning_rate=rates, optimizer=torch.optim.RMSprop)
    rng = bp.rng.Rng.create(0, 2)
    state = method.init(problem.model, rng)
    with pytest.raises(ConfigurationError, match="RMSprop takes one learning rate for all particles") as caught:
        method.update(problem.model, state, problem.batch(2), rng)
    assert "received: 2 rates" in str(caught.value)
    assert "write: optimizer=Adam()" in str(caught.value)


@pytest.mark.parametrize("momentum", [-0.1, 1.0])
def test_momentum_must_be_a_share(momentum):
    with pytest.raises(ConfigurationError, match=r"SGD: momentum must lie in \[0, 1\)") as caught:
        SGD(momentum=momentum)
    assert f"received: {momentum}" in str(caught.value)
    assert "write: SGD(momentum=0.9)" in str(caught.value)


@pytest.mark.parametrize("numbers", [{"beta1": 1.0}, {"beta2": -0.1}, {"epsilon": 0.0}, {"weight_decay": -1.0}])
def test_numbers_of_adam_must_make_sense(numbers):
    with pytest.raises(ConfigurationError, match=r"betas lie in \[0, 1\), epsilon is positive") as caught:
        Adam(**numbers)
    assert "write: Adam(beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.0)" in str(caught.value)
