"""What matrices cost, told before training."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.errors import MemoryBudgetError
from bayesprop.inference import MAP, Laplace
from bayesprop.inference.laplace.budget import check_budget, matrix_bytes


def model():
    return bp.Model(nn.Sequential(nn.Linear(200, 50), nn.Linear(50, 2)), likelihood=likelihoods.Categorical())


def test_what_each_form_takes():
    """In float32: 8 bytes a number for a precision, 4 for a factor, 24 while one particle is factorised."""
    columns = 200 * 50 + 50 + 100 + 2
    assert matrix_bytes(Laplace(MAP()), model(), 3) == columns**2 * (3 * 12 + 24)
    assert matrix_bytes(Laplace(MAP(), hessian="last_layer"), model(), 1) == 102**2 * 36
    assert matrix_bytes(Laplace(MAP(), hessian="subnetwork", subnetwork=30), model(), 1) == 30**2 * 36
    assert matrix_bytes(Laplace(MAP(), hessian="diagonal"), model(), 3) == 0
    numbers = (50**2 + 200**2) + 50**2 + (2**2 + 50**2) + 2**2
    assert matrix_bytes(Laplace(MAP(), hessian="kron"), model(), 1) == numbers * 20 + 24 * 200**2


def test_refusals_name_the_forms_that_fit():
    with pytest.raises(MemoryBudgetError, match="do not fit into their memory budget") as caught:
        check_budget(Laplace(MAP(), memory_budget=1.0), model(), 2)
    message = str(caught.value)
    assert "10,152 x 10,152 numbers for each of 2 particles: 4.61 GiB" in message
    assert 'hessian="kron" fits; hessian="last_layer" has 102 columns' in message
    with pytest.raises(MemoryBudgetError, match=r'Laplace\(hessian="kron"\)') as caught:
        check_budget(Laplace(MAP(), hessian="kron", memory_budget=1e-4), model(), 1)
    assert "two matrices for each parameter" in str(caught.value)
    assert 'write: Laplace(MAP(), hessian="diagonal")' in str(caught.value)
    check_budget(Laplace(MAP(), hessian="kron"), model(), 1)
    assert torch.finfo(model().dtype).bits == 32
