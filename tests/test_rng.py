"""Seeds, streams and steps; and the global generator, which nobody but the user may move."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from bayesprop import rng as module
from bayesprop.kernels import noise
from bayesprop.rng import Rng, Stream, member_seed, quarantine


def global_state() -> tuple[bytes, bytes, object]:
    """The states of torch, numpy and Python itself."""
    numpy = np.random.get_state(legacy=False)["state"]["key"]  # noqa: NPY002 - to see that nobody moves it
    return torch.get_rng_state().numpy().tobytes(), numpy.tobytes(), random.getstate()


# -- seeds -------------------------------------------------------------------------------------------------------------


def test_the_first_particle_keeps_the_seed():
    for seed in (0, 1, 7, 2**62, 2**63 - 1):
        assert member_seed(seed, 0) == seed
    assert member_seed(-1, 0) == 2**63 - 1  # what fits into an int64 tensor


def test_the_finaliser_is_splitmix64():
    """The first output of SplitMix64 from the state 0, and from 1234567, as published with the generator."""
    assert module._mix(0) == 0xE220A8397B1DCDAF
    assert module._mix(1234567) == 6457827717110365317


def test_no_two_members_share_a_seed():
    """20 000 of 2^63 seeds: two equal ones by chance once in 5e10."""
    seeds = [member_seed(seed, particle) for seed, particle in itertools.product(range(1000), range(20))]
    assert len(set(seeds)) == 20_000
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_seeds_of_neighbours_are_far_apart():
    """Of 63 bits half differ, within six standard deviations of 4."""
    for seed, particle in itertools.product((0, 1, 2**40), (1, 2, 3)):
        apart = (member_seed(seed, particle) ^ member_seed(seed, particle + 1)).bit_count()
        assert 7 < apart < 56


def test_one_seed_for_each_particle():
    rng = Rng.create(7, particles=3)
    assert rng.particles == 3
    assert rng.step == 0
    assert rng.seeds.dtype == torch.int64
    assert rng.seeds.tolist() == [member_seed(7, p) for p in range(3)]
    assert rng.seeds[0].item() == 7


def test_a_key_is_a_seed_and_the_number_of_a_draw():
    rng = Rng.create(7, particles=2)
    keys = rng.keys(draws=3, first=5)
    assert keys.shape == (2, 3, 2)
    assert keys.dtype == torch.int64
    assert keys[..., 0].tolist() == [[seed] * 3 for seed in rng.seeds.tolist()]
    assert keys[..., 1].tolist() == [[5, 6, 7]] * 2


# -- noise as a function -----------------------------------------------------------------------------------------------


def alone(rng: Rng, particle: int) -> Rng:
    """The member as a run of its own: from its own seed."""
    return Rng.create(int(rng.seeds[particle])).at(rng.step)


@pytest.mark.parametrize("particle", [0, 1, 2])
def test_a_member_has_the_noise_that_it_has_alone(particle):
    together = Rng.create(7, particles=3).at(5)
    single = alone(together, particle)
    for columns, draws in ((1, 1), (1025, 1), (7, 4)):
        expected = together.normal(columns, Stream.WEIGHTS, draws)[particle]
        assert torch.equal(single.normal(columns, Stream.WEIGHTS, draws)[0], expected)
    assert torch.equal(single.permutation(101)[0], together.permutation(101)[particle])


def test_more_draws_or_columns_begin_with_the_same_numbers():
    rng = Rng.create(3, particles=2)
    many = rng.normal(130, Stream.PREDICTION, draws=5)
    assert many.shape == (2, 5, 130)
    assert torch.equal(rng.normal(130, Stream.PREDICTION, draws=2), many[:, :2])
    assert torch.equal(rng.normal(33, Stream.PREDICTION, draws=5), many[..., :33])


def test_a_step_is_reached_by_its_number_alone():
    rng = Rng.create(3)
    for step in (0, 1, 1000):
        rng.at(step).normal(8, Stream.WEIGHTS)
    assert rng.at(4).at(2) == rng.at(2)
    assert torch.equal(rng.at(1000).normal(8, Stream.WEIGHTS), Rng(torch.tensor([3]), 1000).normal(8, Stream.WEIGHTS))
    assert rng.step == 0


def test_noise_is_that_of_the_kernel():
    rng = Rng(torch.tensor([5, 6]), step=9)
    expected = noise.normal_definition(torch.tensor([[5, 0], [6, 0]]), 9, int(Stream.INITIAL), 33)
    torch.testing.assert_close(rng.normal(33, Stream.INITIAL)[:, 0], expected, rtol=0.0, atol=5e-6)


def test_the_type_of_the_numbers_changes_no_number():
    rng = Rng.create(1)
    single, double = (rng.normal(65, Stream.WEIGHTS, dtype=dtype) for dtype in (torch.float32, torch.float64))
    assert single.dtype == torch.float32
    assert double.dtype == torch.float64
    assert torch.equal(double, single.double())


def test_streams_have_numbers_of_their_own():
    """Activation noise counts upwards from its stream: it must be the last one, with room behind it."""
    assert len(Stream) == 11
    assert len(set(map(int, Stream))) == 11
    assert max(Stream) is Stream.ACTIVATION
    assert int(Stream.ACTIVATION) == 65_536
    rng = Rng.create(1)
    rows = [rng.normal(64, stream) for stream in Stream]
    assert not any(torch.isclose(a, b, atol=1e-6).any() for a, b in itertools.combinations(rows, 2))


# -- permutations and integers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 5, 1000, 4097])
def test_a_permutation_is_a_permutation(count):
    found = Rng.create(7, particles=3).permutation(count)
    assert found.shape == (3, count)
    assert found.dtype == torch.int64
    assert torch.equal(found.sort(dim=-1).values, torch.arange(count).expand(3, count))
    if count >= 1000:
        assert not torch.equal(found[0], found[1])
        assert not torch.equal(found[0], Rng.create(7).at(1).permutation(count)[0])
        assert not torch.equal(found[0], Rng.create(7).permutation(count, Stream.SPLIT)[0])


@pytest.mark.statistical
def test_all_orders_of_four_are_equally_likely():
    """24 orders, 24 000 particles: chi-square at a level of one in a million."""
    orders = Rng(torch.arange(24_000)).permutation(4)
    code = (orders * torch.tensor([64, 16, 4, 1])).sum(1)
    counts = torch.unique(code, return_counts=True)[1]
    assert len(counts) == 24
    assert stats.chisquare(counts.numpy()).pvalue > 1e-6


@pytest.mark.statistical
def test_all_places_are_equally_likely():
    """Where the first, a middle and the last of 50 rows go, over 5000 steps: chi-square at one in a million each."""
    rng = Rng.create(11)
    places = torch.stack([rng.at(step).permutation(50)[0] for step in range(5000)]).argsort(dim=1)
    for row in (0, 24, 49):
        assert stats.chisquare(torch.bincount(places[:, row], minlength=50).numpy()).pvalue > 1e-6


@pytest.mark.statistical
def test_integers_are_of_62_bits_and_uniform():
    """Bits of 4000 steps: each within five standard errors of one half."""
    rng = Rng.create(11, particles=2)
    numbers = [rng.at(step).integer(Stream.GLOBAL) for step in range(4000)]
    assert all(0 <= number < 2**62 for number in numbers)
    assert len(set(numbers)) == 4000
    for bit in range(62):
        share = sum(number >> bit & 1 for number in numbers) / 4000
        assert abs(share - 0.5) < 5.0 * 0.5 / math.sqrt(4000), bit
    assert numbers[:3] == [Rng.create(11).at(step).integer(Stream.GLOBAL) for step in range(3)]  # the first particle's


# -- the global generator ----------------------------------------------------------------------------------------------


def test_nothing_moves_a_global_generator():
    torch.manual_seed(3)
    before = global_state()
    rng = Rng.create(7, particles=2).at(3)
    rng.keys(4)
    rng.normal(100, Stream.WEIGHTS, draws=3)
    rng.permutation(100)
    rng.integer(Stream.GLOBAL)
    with quarantine(5):
        torch.rand(3)
    assert global_state() == before


def test_numbers_do_not_depend_on_the_global_generator():
    found: list[Tensor] = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        rng = Rng.create(7)
        found.append(torch.cat((rng.normal(9, Stream.WEIGHTS).flatten(), rng.permutation(9).flatten())))
    assert torch.equal(*found)


def test_quarantine_seeds_a_private_state():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    first = torch.rand(2)
    inside = []
    for seed in (5, 5, 6, 2**62 - 1):
        with quarantine(seed):
            inside.append(torch.rand(3))
            torch.nn.functional.dropout(torch.ones(8), 0.5)
    assert torch.equal(inside[0], inside[1])
    assert not torch.equal(inside[0], inside[2])
    assert torch.equal(torch.cat((first, torch.rand(2))), expected)  # the user's numbers go on where they were
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3), inside[0])


def test_quarantine_gives_the_state_back_after_an_error():
    torch.manual_seed(3)
    before = global_state()

    def fail() -> None:
        with quarantine(5):
            torch.rand(3)
            raise ValueError("inside")

    with pytest.raises(ValueError, match=r"^inside$"):
        fail()
    assert global_state() == before


def test_quarantine_inside_of_quarantine():
    torch.manual_seed(3)
    before = global_state()
    with quarantine(5):
        expected = torch.rand(2)
    with quarantine(5):
        first = torch.rand(1)
        with quarantine(6):
            torch.rand(7)
        assert torch.equal(torch.cat((first, torch.rand(1))), expected)
    assert global_state() == before


@pytest.mark.statistical
def test_rows_with_replacement_are_uniform_and_of_each_particle_alone():
    """Chi-square of 10 rows with 20,000 draws each: 9 degrees of freedom exceed 42 once in 300,000."""
    many = torch.stack([Rng.create(seed).at(3).rows(10, Stream.BOOTSTRAP)[0] for seed in range(2000)])
    counts = many.flatten().bincount(minlength=10).double()
    assert counts.shape == (10,)
    assert float(((counts - 2000.0) ** 2 / 2000.0).sum()) < 42.0
    both = Rng.create(4, 2).rows(1000, Stream.BOOTSTRAP)
    assert torch.equal(both[0], Rng.create(4).rows(1000, Stream.BOOTSTRAP)[0])
    assert int(both.min()) >= 0
    assert int(both.max()) < 1000
