"""The step sizes of ADVI's paper, number by number."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from bayesprop.errors import ConfigurationError
from bayesprop.inference.variational.step_sequence import StepSequence


def test_equations_10_and_11_of_the_paper():
    """Written out for one number; the second row moves at its own rate."""
    gradients = [3.0, -1.0, 0.5, 2.0]
    sequence = StepSequence()
    x, x_captured = torch.zeros(2, 1).double(), torch.zeros(2, 1).double()
    state, captured = sequence.init({"mean": x}), sequence.init({"mean": x_captured})
    rates = torch.tensor([0.25, 0.5], dtype=torch.float64)
    place, squares = 0.0, 0.0
    for k, g in enumerate(gradients, start=1):
        squares = g**2 if k == 1 else 0.1 * g**2 + 0.9 * squares
        place -= 0.25 * k ** (-0.5 + 1e-16) * g / (1.0 + squares**0.5)
        gradient = {"mean": torch.full((2, 1), g).double()}
        sequence.step({"mean": x}, gradient, state, {"mean": rates}, k - 1)
        sequence.step({"mean": x_captured}, gradient, captured, {"mean": rates}, torch.tensor(k - 1))
        assert_close(x, torch.tensor([[place], [2.0 * place]], dtype=torch.float64), rtol=1e-12, atol=0.0)
        assert_close(x_captured, x, rtol=1e-6, atol=0.0)
        assert float(state["mean.squares"][0]) == pytest.approx(squares)


@pytest.mark.parametrize("settings", [{"alpha": 0.0}, {"tau": 0.0}, {"epsilon": 0.5}])
def test_settings_that_cannot_work_are_refused(settings):
    with pytest.raises(ConfigurationError, match="alpha lies in") as caught:
        StepSequence(**settings)
    assert "write: StepSequence(alpha=0.1, tau=1.0)" in str(caught.value)
