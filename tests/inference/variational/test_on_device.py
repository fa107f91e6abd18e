"""The step on a GPU against the plain one, which is its definition; and which body serves what."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bayesprop import likelihoods, priors
from bayesprop.inference import SGD, Adam, Cosine
from bayesprop.inference.method import state_tensors
from bayesprop.inference.optimizers import as_optimizer
from bayesprop.inference.variational import gradients, on_device
from bayesprop.kernels import device
from bayesprop.kernels.rooms import is_room
from bayesprop.random_weights import Flipout, LocalReparameterization, SharedWeights
from bayesprop.rng import Rng

from ..conftest import Problem, method_with, normal

LEARNT = likelihoods.Gaussian(scale=priors.HalfNormal(0.5))
PRIORS = {
    "normal": (priors.Normal(0.1, 0.5), "auto"),
    "normal, sampled": (priors.Normal(0.1, 0.5), "monte_carlo"),
    "laplace": (priors.Laplace(0.1, 0.5), "auto"),
    "laplace, sampled": (priors.Laplace(0.1, 0.5), "monte_carlo"),
    "student": (priors.StudentT(3.0, 0.1, 0.5), "auto"),
    "cauchy": (priors.Cauchy(0.1, 0.5), "auto"),
    "mixture": (priors.ScaleMixture(0.25, 1.0, 0.1), "auto"),
    "flat": (priors.Flat(), "auto"),
}
OPTIMIZERS = {
    "adam": Adam(beta1=0.7, beta2=0.9, epsilon=1e-3),
    "adamw": Adam(beta1=0.7, beta2=0.9, epsilon=1e-3, weight_decay=0.5),
    "momentum": SGD(momentum=0.9),
    "sgd": SGD(),
}


def problem_on(where: torch.device, *arguments, **options) -> Problem:
    """A problem whose model and rows lie on a device."""
    made = Problem(*arguments, **options)
    made.model = made.model.to(where)
    made.inputs, made.targets = made.inputs.to(where), made.targets.to(where)
    return made


def dense(inputs: int = 3, outputs: int = 2, activation: Callable[[], nn.Module] = nn.Tanh, bias: bool = True):
    """Three dense layers of odd widths."""
    made = nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, 7, bias=bias),
        activation(),
        nn.Linear(7, 5),
        activation(),
        nn.Linear(5, outputs),
    )
    with torch.no_grad():
        for index, parameter in enumerate(made.parameters()):
            parameter.copy_(0.5 * normal(*parameter.shape, seed=40 + index))
    return made


def convolution() -> nn.Sequential:
    made = nn.Sequential(nn.Conv1d(1, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(6, 2))
    with torch.no_grad():
        for index, parameter in enumerate(made.parameters()):
            parameter.copy_(0.5 * normal(*parameter.shape, seed=60 + index))
    return made


NETWORKS = {"dense": (dense, (12, 3)), "columns": (convolution, (12, 1, 3))}


def run(problem: Problem, method, particles: int, steps: int, plain: bool) -> dict[str, Tensor]:
    """Some steps on a third of the rows each; the second half of the steps has another place in the training."""
    rng = Rng.create(6, particles, problem.model.device)
    state = method.init(problem.model, rng)
    program = on_device.program(method, problem.model)
    for step in range(steps):
        rows = slice(4 * (step % 3), 4 * (step % 3) + 4)
        batch = problem.batch(particles, rows, index=step % 3, count=3, progress=step / steps)
        now = rng.at(step)
        if plain:
            found = gradients.elbo_gradients(method, problem.model, state, batch, now, method.numbers(batch, step)[2])
            rates = dict(zip(("mean", "rho"), method.numbers(batch, step), strict=False))
            parameters = {"mean": state.mean, "rho": state.rho}
            as_optimizer(method.optimizer).step(parameters, found.by_name, state.moments, rates, step)
            value = found.log_likelihood
        else:
            numbers = method.numbers(batch, step)
            value = on_device.update(program, method, problem.model, state, batch, now, numbers).log_likelihood
    return {**state_tensors(state), "value": value}


def assert_same(problem: Problem, method, body: str, *, particles: int = 2, steps: int = 2, rtol: float = 2e-5) -> None:
    """Single precision keeps seven digits; two steps through other exponentials and orders of sums cost one."""
    assert on_device.program(method, problem.model).body == body
    ours, plain = (run(problem, method, particles, steps, which) for which in (False, True))
    assert ours.keys() == plain.keys()
    start = method.init(problem.model, Rng.create(6, particles, problem.model.device))
    assert float((plain["mean"] - start.mean).abs().max()) > 1e-3
    for name, tensor in plain.items():
        torch.testing.assert_close(ours[name], tensor, rtol=rtol, atol=rtol, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize("samples", [1, 2])
def test_gradients_of_a_stack_reach_the_update_as_they_are(interpreter, monkeypatch, samples):
    """Rows that are no room are copied by the update: one pass over all columns in each step."""
    seen, update = [], on_device.columns.update

    def watched(*arguments, **options):
        seen.append(is_room(arguments[3]))
        return update(*arguments, **options)

    monkeypatch.setattr(on_device.columns, "update", watched)
    problem = problem_on(interpreter, dense(), normal(12, 3))
    run(problem, method_with(estimator=SharedWeights(samples)), particles=3, steps=1, plain=False)
    assert seen == [True]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("prior", PRIORS)
def test_every_prior(interpreter, network, prior):
    density, kl = PRIORS[prior]
    make, shape = NETWORKS[network]
    problem = problem_on(interpreter, make(), normal(*shape), prior=density, num_data=30)
    method = method_with(learning_rate=0.01, optimizer=Adam(epsilon=1e-3), kl=kl)
    assert_same(problem, method, network, rtol=2e-4 if "mixture" in prior else 2e-5)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("estimator", [SharedWeights(3), SharedWeights(4, antithetic=True)], ids=["3", "2 pairs"])
def test_every_optimizer_and_number_of_samples(interpreter, network, optimizer, estimator):
    make, shape = NETWORKS[network]
    problem = problem_on(interpreter, make(), normal(*shape), prior=priors.StudentT(4.0, 0.0, 0.5), num_data=30)
    method = method_with(learning_rate=0.01, optimizer=OPTIMIZERS[optimizer], estimator=estimator)
    assert_same(problem, method, network, rtol=5e-5)


@pytest.mark.parametrize("network", NETWORKS)
def test_every_number_of_a_particle(interpreter, network):
    """Rates, temperatures, a KL schedule and a schedule of the rates, each particle with its own."""
    make, shape = NETWORKS[network]
    problem = problem_on(interpreter, make(), normal(*shape), prior=priors.Normal(0.1, 0.5), num_data=30)
    settings = {
        "learning_rate": torch.tensor([0.01, 0.003]),
        "scale_learning_rate": torch.tensor([0.02, 0.004]),
        "temperature": torch.tensor([0.3, 2.0]),
        "kl_weights": "geometric",
        "schedule": Cosine(final=0.1),
        "optimizer": Adam(beta1=0.7, beta2=0.9, epsilon=1e-3, weight_decay=0.5),
    }
    assert_same(problem, method_with(**settings), network)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    "likelihood",
    [LEARNT, likelihoods.StudentT(df=4.0, scale=0.5), likelihoods.HeteroscedasticGaussian()],
    ids=["learnt noise", "student", "noise by input"],
)
def test_every_likelihood(interpreter, network, likelihood):
    make, shape = NETWORKS[network]
    targets = None if likelihood is not likelihoods.HeteroscedasticGaussian else normal(12, 1).float()
    if isinstance(likelihood, likelihoods.HeteroscedasticGaussian):
        targets = normal(12, 1, seed=5).float()
    problem = problem_on(interpreter, make(), normal(*shape), targets, likelihood=likelihood, num_data=30)
    assert_same(problem, method_with(learning_rate=0.01, optimizer=Adam(epsilon=1e-3)), network)


@pytest.mark.parametrize("classes", [2, 5, 10])
@pytest.mark.parametrize("estimator", [SharedWeights(1), SharedWeights(3)], ids=["1", "3"])
def test_classes(interpreter, classes, estimator):
    """The loss of labels has a body of its own."""
    targets = torch.arange(12) % classes
    problem = problem_on(
        interpreter, dense(outputs=classes), normal(12, 3), targets, likelihood=likelihoods.Categorical(), num_data=30
    )
    method = method_with(learning_rate=0.01, optimizer=Adam(epsilon=1e-3), estimator=estimator)
    assert_same(problem, method, "dense")


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity])
@pytest.mark.parametrize("bias", [True, False])
def test_activations_and_missing_biases(interpreter, activation, bias):
    problem = problem_on(interpreter, dense(activation=activation, bias=bias), normal(12, 3))
    assert_same(problem, method_with(learning_rate=0.01, optimizer=Adam(epsilon=1e-3)), "dense")


def test_rows_that_begin_at_multiples_of_sixteen(interpreter):
    """Their products are read in wider pieces."""
    network = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 5))
    problem = problem_on(interpreter, network, normal(16, 16))
    assert_same(problem, method_with(learning_rate=0.01, optimizer=Adam(epsilon=1e-3)), "dense")


@pytest.mark.parametrize(("likelihood", "halved"), [(likelihoods.Gaussian(0.7), True), (LEARNT, False)])
def test_products_in_bf16(interpreter, likelihood, halved):
    """Weights and activations are rounded to eight bits, 0.4 %; mean, rho and moments stay as they are."""
    problem = problem_on(interpreter, dense(), normal(12, 3), likelihood=likelihood)
    method = method_with(learning_rate=0.01, optimizer=Adam(epsilon=1e-2), estimator=SharedWeights(2))
    rng, batch = Rng.create(6, 2, interpreter), problem.batch(2)
    program = on_device.program(method, problem.model)
    found = []
    for dtype in (None, torch.bfloat16):
        with torch.autocast(interpreter.type, dtype, enabled=dtype is not None):
            state = method.init(problem.model, rng)
            (_, info), *_ = on_device.run(program, method, problem.model, state, [(batch, rng.at(0))])
            theta = on_device._sample(program, method, problem.model, state, rng, torch.tensor(0, device=interpreter))
        found.append((info.log_likelihood, state))
    assert theta.dtype == (torch.bfloat16 if halved else torch.float32)
    (whole, first), (half, second) = found
    assert 0.0 < float((half / whole - 1.0).abs().max()) < 0.02
    assert second.mean.dtype == second.rho.dtype == torch.float32
    moments = [state.moments["mean.first"] for state in (first, second)]
    assert 0.0 < float((moments[0] - moments[1]).norm() / moments[0].norm()) < 0.05


@pytest.mark.parametrize("case", ["classes", "learnt noise", "point estimates"])
def test_steps_in_a_row_are_the_same_steps(interpreter, case):
    """Each step draws the next one's sample, of weights and latents, and copies what has no distribution."""
    if case == "classes":
        likelihood, targets = likelihoods.Categorical(), torch.arange(12) % 5
    else:
        likelihood, targets = LEARNT, normal(12, 5).float()
    random = "*.weight" if case == "point estimates" else "*"
    problem = problem_on(
        interpreter,
        dense(outputs=5),
        normal(12, 3),
        targets,
        likelihood=likelihood,
        prior=priors.Normal(0.1, 0.5),
        random=random,
    )
    method = method_with(
        learning_rate=0.01, optimizer=Adam(epsilon=1e-3), estimator=SharedWeights(2, antithetic=True), kl="monte_carlo"
    )
    rng = Rng.create(6, 2, problem.model.device)
    program = on_device.program(method, problem.model)
    one, row = method.init(problem.model, rng), method.init(problem.model, rng)
    batch, values = problem.batch(2, slice(0, 7)), []
    for step in range(4):
        numbers = method.numbers(batch, step)
        values.append(on_device.update(program, method, problem.model, one, batch, rng.at(step), numbers))
    places = ((batch, rng.at(step)) for step in range(4))
    found = [info for _, info in on_device.run(program, method, problem.model, row, places)]
    assert len(found) == 4
    for ours, theirs in zip(found, values, strict=True):
        torch.testing.assert_close(ours.log_likelihood, theirs.log_likelihood, rtol=1e-5, atol=1e-5)
    for name, tensor in state_tensors(one).items():
        torch.testing.assert_close(state_tensors(row)[name], tensor, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("random", "centred", "body"), [("*", True, "dense"), ("*", False, "columns"), ("*.weight", True, "columns")]
)
def test_scales_of_a_hierarchical_prior(interpreter, random, centred, body):
    """Scores that no kernel knows come from torch; latents and point estimates ride along."""
    scale = priors.HalfNormal(0.5, centred=centred)
    problem = problem_on(
        interpreter, dense(), normal(12, 3), prior=priors.Normal(0.0, scale), likelihood=LEARNT, random=random
    )
    layout = problem.model.layout
    assert 0 < layout.random < layout.latent
    assert (layout.latent < layout.size) == (random == "*.weight")
    assert_same(problem, method_with(learning_rate=0.01, optimizer=Adam(epsilon=1e-3)), body, rtol=5e-5)


def test_priors_by_name(interpreter):
    """One family with other numbers for each layer: a layer is a prior of its own."""
    prior = {"1.*": priors.Normal(0.1, 0.5), "*": priors.Normal(0.0, 0.2)}
    problem = problem_on(interpreter, dense(), normal(12, 3), prior=prior)
    assert_same(problem, method_with(learning_rate=0.01, optimizer=Adam(epsilon=1e-3)), "dense")


def test_a_prior_of_its_own_for_each_weight(interpreter):
    scale = 0.1 + torch.rand(7, 3, generator=torch.Generator().manual_seed(3))
    prior = {"1.weight": priors.Normal(0.1, scale), "*": priors.Normal(0.0, 0.2)}
    problem = problem_on(interpreter, dense(), normal(12, 3), prior=prior)
    assert_same(problem, method_with(learning_rate=0.01, optimizer=Adam(epsilon=1e-3)), "dense")


REASONS = [
    ({"estimator": LocalReparameterization(1)}, {}, "the noise of LocalReparameterization lives in activations"),
    ({"estimator": Flipout(1)}, {}, "the noise of Flipout lives in activations"),
    ({"clip_norm": 1.0}, {}, "gradients are clipped by their norm"),
    ({"stick_the_landing": True}, {}, "stick_the_landing"),
    ({"optimizer": torch.optim.RMSprop}, {}, "the optimiser is neither Adam, AdamW nor SGD"),
    ({}, {"prior": {"1.*": priors.Normal(), "*": priors.Laplace()}}, "several families of priors"),
]


@pytest.mark.parametrize(("settings", "arguments", "words"), REASONS, ids=[words for *_, words in REASONS])
def test_what_the_kernels_do_not_know_is_plain_and_said(interpreter, settings, arguments, words):
    problem = problem_on(interpreter, dense(), normal(12, 3), **arguments)
    found = on_device.program(method_with(**settings), problem.model)
    assert found.body == "plain"
    assert words in found.reason


def test_double_precision_is_plain(interpreter):
    problem = problem_on(interpreter, dense().double(), normal(12, 3))
    assert on_device.program(method_with(), problem.model).reason == "plain torch: theta is float64"


def test_without_a_gpu_there_is_no_body():
    """Not in the interpreter either, unless a test asks for it."""
    found = on_device.program(method_with(), Problem(dense(), normal(12, 3)).model)
    assert found.body == "plain"
    assert found.reason == device.status(torch.device("cpu")) == "plain torch: there are no GPU bodies for cpu"


def test_the_choice_belongs_to_a_method_and_a_model(interpreter):
    problem = problem_on(interpreter, dense(), normal(12, 3))
    first, second = method_with(), method_with(clip_norm=1.0)
    assert on_device.program(first, problem.model) is on_device.program(first, problem.model)
    assert on_device.program(second, problem.model).body == "plain"
    assert on_device.program(first, problem.model).body == "dense"
