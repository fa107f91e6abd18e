"""What a Gaussian knows of its evidence, or does not."""

from __future__ import annotations

import pytest
import torch

from bayesprop.errors import CapabilityError
from bayesprop.posteriors import DiagonalGaussian


def test_two_numbers_for_each_particle(model, gaussian):
    plain = gaussian(model("plain"), 2)
    evidence = torch.tensor([[-3.0, 1.0], [-4.0, 0.5]], dtype=torch.float64)
    tensors = plain.tensors()
    found = DiagonalGaussian(plain.model, tensors["mean"], tensors["std"], plain.buffers, evidence=evidence)
    assert found.log_evidence.tolist() == [-3.0, -4.0]
    assert found.prior_precision.tolist() == [1.0, 0.5]
    assert found.member(1).log_evidence.tolist() == [-4.0]
    assert found.tensors().keys() == {"mean", "std", "evidence"}


@pytest.mark.parametrize("name", ["log_evidence", "prior_precision"])
def test_a_posterior_that_was_found_otherwise_has_none(model, gaussian, name):
    plain = gaussian(model("plain"))
    assert plain.tensors().keys() == {"mean", "std"}
    with pytest.raises(CapabilityError, match=f"this DiagonalGaussian has no {name}") as caught:
        getattr(plain, name)
    assert "bp.inference.Laplace(bp.inference.MAP())" in str(caught.value)
