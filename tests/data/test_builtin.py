"""What scikit-learn carries."""

import sys

import pytest
import torch

from bayesprop.data import digits
from bayesprop.errors import DataError


def test_digits():
    data = digits()
    assert data.num_data == 1797
    assert isinstance(data.inputs, torch.Tensor)
    assert (data.inputs.dtype, data.inputs.shape) == (torch.float32, (1797, 64))
    assert (float(data.inputs.min()), float(data.inputs.max())) == (0.0, 1.0)
    assert data.targets.unique().tolist() == list(range(10))


def test_without_scikit_learn_the_line_to_install_it_is_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataError, match=r"pip install 'bayesprop\[data\]'"):
        digits()
