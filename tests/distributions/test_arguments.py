from __future__ import annotations

import numpy as np
import pytest
import torch

from bayesprop.distributions import arguments
from bayesprop.errors import ConfigurationError


def test_numbers_become_floats():
    for value in (2, 2.0, np.float32(2.0), np.int64(2)):
        found = arguments.positive("Normal", "scale", value, write="Normal(scale=1.0)")
        assert type(found) is float
        assert found == 2.0


def test_tensors_lose_their_graph_and_whole_numbers_become_floats():
    parameter = torch.nn.Parameter(torch.ones(2))
    found = arguments.finite("Normal", "loc", parameter, write="")
    assert isinstance(found, torch.Tensor)
    assert not found.requires_grad
    whole = arguments.finite("Normal", "loc", torch.tensor([1, 2]), write="")
    assert isinstance(whole, torch.Tensor)
    assert whole.dtype == torch.get_default_dtype()


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), True, "1", None, 1j, [1.0]])
def test_what_is_no_positive_number_is_refused(value):
    with pytest.raises(ConfigurationError, match=r"Normal\(scale=\.\.\.\) must be positive") as caught:
        arguments.positive("Normal", "scale", value, write="Normal(scale=1.0)")
    assert "write: Normal(scale=1.0)" in str(caught.value)
    assert "received: " in str(caught.value)


def test_bad_tensors_are_refused():
    with pytest.raises(ConfigurationError, match="smallest entry is -2"):
        arguments.positive("Normal", "scale", torch.tensor([1.0, -2.0]), write="", tensors=True)
    with pytest.raises(ConfigurationError, match=r"shape \[1\] with NaN or infinite entries"):
        arguments.finite("Normal", "loc", torch.tensor([float("nan")]), write="")
    with pytest.raises(ConfigurationError, match=r"received: a tensor of shape \[1\]"):
        arguments.positive("Normal", "scale", torch.ones(1), write="")


def test_a_word_that_is_not_known_is_answered_with_the_nearest():
    arguments.choice("HalfNormal", "shared", "layer", ("network", "layer"))
    with pytest.raises(ConfigurationError, match=r"Did you mean 'layer'\?") as caught:
        arguments.choice("HalfNormal", "shared", "layers", ("network", "layer"))
    assert "expected: 'network', 'layer'" in str(caught.value)
