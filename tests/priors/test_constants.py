"""Constants that follow theta, by columns and by particles."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from bayesprop.errors import ConfigurationError
from bayesprop.priors.constants import PerParticle, Vector


def test_a_vector_takes_the_type_of_theta_and_is_converted_once():
    vector = Vector(torch.tensor([1.0, 2.0], dtype=torch.float64))
    found = vector.like(torch.zeros(3, 2))
    assert found.dtype == torch.float32
    assert vector.like(torch.ones(5, 2)) is found
    assert Vector(torch.tensor([1, 0])).like(torch.zeros(2)).dtype == torch.int64  # an index stays one


def test_what_is_remembered_inside_of_a_transform_serves_outside():
    vector = Vector(torch.tensor([2.0, 3.0], dtype=torch.float64))
    inside = torch.func.grad(lambda x: (vector.like(x) * x).sum())(torch.zeros(2))
    assert_close(inside, torch.tensor([2.0, 3.0]))
    assert_close(vector.like(torch.zeros(2)) + 1.0, torch.tensor([3.0, 4.0]))


@pytest.mark.parametrize("between", [(), (4,), (4, 2)])
@pytest.mark.parametrize("columns", [1, 5])
def test_numbers_of_particles_meet_the_first_axis(between, columns):
    values = torch.arange(3.0 * columns).reshape(3, columns)
    theta = torch.zeros(3, *between, 5)
    found = theta + PerParticle(values).like(theta)
    assert found.shape == theta.shape
    for particle in range(3):
        assert_close(found[particle], values[particle].expand(*between, 5))


def test_a_row_that_has_lost_its_particle_is_refused():
    with pytest.raises(ConfigurationError, match="other numbers for each particle") as caught:
        PerParticle(torch.ones(3, 1)).like(torch.zeros(5))
    assert "received: a tensor of shape [5]" in str(caught.value)
    assert "expected: (3, ..., columns)" in str(caught.value)
