"""Preconditioned SGLD: its equations, its law with a preconditioner that is held, and the settings it refuses."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from bayesprop.errors import ConfigurationError
from bayesprop.inference import PSGLD, Cyclical
from bayesprop.inference.oracle import joint_gradient
from bayesprop.model import Place
from bayesprop.rng import Rng, Stream
from bayesprop.testing import LinearRegression, MethodSuite

from .conftest import check_law, ends


class TestPSGLD(MethodSuite):
    def make(self):
        return PSGLD(learning_rate=0.01, samples=3, burn_in=0.25)

    def check_linear_regression(self, problem):
        """With G held, T (L - epsilon L G L / 4)^-1 of each chain's own G: rows are made white by their own law."""
        method = PSGLD(learning_rate=0.1, samples=1, burn_in=0.3, averaging=0.9, stabilizer=0.2)
        state = ends(method, problem, 500, 200)
        square, weight = state.memory["square"], state.memory["weight"]
        scale = 1.0 / (0.2 + (square / weight).sqrt())
        assert_close(state.memory["root"], scale.sqrt(), rtol=1e-12, atol=0.0)
        precision = problem.precision
        epsilon = 2.0 * 0.1 / 24
        inverse = precision - epsilon / 4 * precision @ torch.diag_embed(scale) @ precision
        factor = torch.linalg.cholesky(inverse)
        white = (factor.transpose(1, 2) @ (state.theta - problem.mean)[..., None])[..., 0]
        check_law(white, torch.zeros(4).double(), torch.eye(4).double())
        assert float((scale.max(1).values / scale.min(1).values).median()) > 1.2


def test_the_equations_of_the_paper():
    """V = a V + (1 - a) g^2, corrected by 1 - a^t; theta + epsilon / 2 G grad + N(0, epsilon T G)."""
    problem, rng = LinearRegression(), Rng.create(3, 2)
    method = PSGLD(learning_rate=0.2, temperature=0.3, averaging=0.8, stabilizer=0.05, samples=2, adapt="always")
    state = method.init(problem.model, rng)
    square = torch.zeros(2, 4).double()
    for step in range(3):
        theta = state.theta.clone()
        batch = problem.batch(2, slice(0, 10), epochs=3, epoch=step, progress=step / 3)
        gradient = -joint_gradient(problem.model, theta, {}, batch)[1] / 24
        square = 0.8 * square + 0.2 * gradient**2
        scale = 1.0 / (0.05 + (square / (1.0 - 0.8 ** (step + 1))).sqrt())
        noise = rng.at(step).normal(4, Stream.WEIGHTS, dtype=torch.float64)[:, 0]
        state, _ = method.update(problem.model, state, batch, rng.at(step))
        expected = theta - 0.2 * scale * gradient + (2.0 * 0.2 * 0.3 / 24 * scale).sqrt() * noise
        assert_close(state.theta, expected, rtol=1e-10, atol=1e-12)


def test_the_preconditioner_is_held_while_samples_are_taken():
    place = [Place(epoch=k, epochs=8, progress=k / 8) for k in range(8)]
    shares = {
        "burn-in": PSGLD(averaging=0.75),
        "cycles": PSGLD(averaging=0.75, schedule=Cyclical(2, 0.5)),
        "always": PSGLD(averaging=0.75, adapt="always"),
    }
    found = {name: [method.numbers(p, 0)[3] for p in place] for name, method in shares.items()}
    assert found["burn-in"] == [0.25] * 4 + [0.0] * 4
    assert found["cycles"] == ([0.25] * 2 + [0.0] * 2) * 2
    assert found["always"] == [0.25] * 8


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"averaging": 1.0}, r"averaging must lie in \[0, 1\)"),
        ({"stabilizer": 0.0}, "stabilizer must be positive"),
        ({"adapt": "never"}, 'adapt must be "burn_in" or "always"'),
        ({"burn_in": 0.0}, "without a burn-in there is nothing to adapt to"),
        ({"schedule": Cyclical(exploration=0.0)}, "without a burn-in there is nothing to adapt to"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault):
        PSGLD(**settings)
