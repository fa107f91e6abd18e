"""One sample of a Gaussian tensor for a forward pass: its equation, its one noise, and the numbers of its requests."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from bayesprop.kernels import noise as counter
from bayesprop.random_weights import NoiseSource
from bayesprop.random_weights.draw import Draw, sample
from bayesprop.rng import Rng, Stream

KEY = torch.tensor([9, 2])


def _numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


def _draw(source: NoiseSource, noise: Tensor | None = None) -> Draw:
    mean, scale = _numbers(2, 2, 3)
    return Draw(mean, scale.abs(), noise, source)


def test_the_sample_is_mean_plus_scale_times_noise():
    mean, scale, noise = _numbers(3, 4, 5)
    torch.testing.assert_close(sample(mean, scale, noise), mean + scale * noise)
    draw = Draw(mean, scale, noise, NoiseSource(KEY))
    assert draw.noise is noise
    torch.testing.assert_close(draw.perturbation, scale * noise)
    torch.testing.assert_close(draw.sample, mean + scale * noise)


def test_three_passes_before_one_backward_keep_their_own_noise():
    """d/d mean of sum_k c_k w_k is sum_k c_k, d/d scale is sum_k c_k noise_k: no noise overwrites an earlier one."""
    mean, scale = (t.clone().requires_grad_() for t in _numbers(2, 2, 3))
    factors = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    noises = [NoiseSource(KEY, step).normal((2, 3), torch.float64) for step in range(3)]
    draws = [Draw(mean, scale, None, NoiseSource(KEY, step)) for step in range(3)]
    total = sum(c * draw.sample.sum() for c, draw in zip(factors, draws, strict=True))
    assert isinstance(total, Tensor)
    by_mean, by_scale = torch.autograd.grad(total, (mean, scale))
    torch.testing.assert_close(by_mean, factors.sum().expand(2, 3))
    torch.testing.assert_close(by_scale, torch.einsum("k,kij->ij", factors, torch.stack(noises)))
    assert (noises[0] - noises[1]).abs().min() > 0


def test_noise_is_asked_for_once_and_only_when_it_is_needed():
    source = NoiseSource(KEY, step=1)
    draw = _draw(source)
    assert source.requests == 0
    first = draw.sample
    assert draw.sample is first
    assert draw.noise is draw.noise
    torch.testing.assert_close(draw.perturbation + draw.mean, first)
    assert source.requests == 1
    given = _draw(source, noise=torch.ones(2, 3, dtype=torch.float64))
    torch.testing.assert_close(given.sample, given.mean + given.scale)
    assert source.requests == 1


@pytest.mark.parametrize("view_first", [True, False])
def test_views_share_noise_and_sample_with_their_origin(view_first):
    source = NoiseSource(KEY)
    draw = _draw(source)
    seen = draw.viewed(lambda t: t.T).viewed(lambda t: t[:, :1])
    order = (seen, draw) if view_first else (draw, seen)
    samples = {id(one): one.sample for one in order}
    torch.testing.assert_close(samples[id(seen)], samples[id(draw)].T[:, :1], rtol=0, atol=0)
    torch.testing.assert_close(seen.noise, draw.noise.T[:, :1], rtol=0, atol=0)
    torch.testing.assert_close(seen.perturbation, draw.perturbation.T[:, :1], rtol=0, atol=0)
    torch.testing.assert_close(seen.mean, draw.mean.T[:, :1], rtol=0, atol=0)
    assert source.requests == 1


def test_a_role_has_one_number_for_ever():
    source = NoiseSource(KEY)
    draw = _draw(source)
    view = draw.viewed(lambda t: t.T)
    assert [view.request("input signs"), draw.request("output signs"), draw.request("input signs")] == [0, 1, 0]
    assert view.viewed(lambda t: t.T).request("output signs") == 1
    assert _draw(source).request("input signs") == 2  # another weight, another number
    assert source.requests == 3


def test_a_served_request_can_be_served_again():
    source = NoiseSource(KEY, step=5)
    first = source.normal((3, 4), torch.float64)
    source.normal((7,), torch.float32)
    again = source.normal((3, 4), torch.float64, request=0)
    torch.testing.assert_close(again, first, rtol=0, atol=0)
    # A shorter tensor of the same request begins alike: numbers belong to places, not to shapes.
    torch.testing.assert_close(source.normal((5,), torch.float64, request=0), first.flatten()[:5], rtol=0, atol=0)
    assert source.requests == 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_noise_comes_in_the_dtype_of_the_weight(dtype):
    source = NoiseSource(KEY)
    assert source.normal((2, 3), dtype).dtype == dtype
    signs = source.signs((50,), dtype)
    assert signs.dtype == dtype
    assert set(signs.tolist()) == {-1.0, 1.0}


def test_activation_noise_never_meets_the_noise_of_weights():
    streams = [int(stream) for stream in Stream]
    assert max(streams) == int(Stream.ACTIVATION)
    weights = counter.normal(KEY, 0, int(Stream.WEIGHTS), 20)
    source = NoiseSource(KEY)
    for _ in range(5):
        assert (source.normal((20,), torch.float32) - weights).abs().min() > 0


def test_a_batched_key_gives_each_lane_the_noise_that_it_has_alone():
    keys = Rng.create(3).keys(draws=4)[0]

    def lane(key: Tensor) -> tuple[Tensor, Tensor]:
        source = NoiseSource(key, step=2)
        return source.normal((2, 3), torch.float64), source.signs((5,), torch.float64)

    normal, signs = torch.func.vmap(lane)(keys)
    for index, key in enumerate(keys):
        alone = lane(key)
        torch.testing.assert_close(normal[index], alone[0], rtol=0, atol=0)
        torch.testing.assert_close(signs[index], alone[1], rtol=0, atol=0)
    assert (normal[0] - normal[1]).abs().min() > 0


@pytest.mark.statistical
def test_signs_are_fair_and_independent_between_requests():
    """Means and products of fair signs have mean 0 and standard error 1 / sqrt(n); 5 of them for each of 3 numbers,
    which one key in 600 000 fails by chance; the key is fixed."""
    count = 40_000
    source = NoiseSource(KEY)
    first, second = source.signs((count,), torch.float64), source.signs((count,), torch.float64)
    for values in (first, second, first * second):
        assert abs(float(values.mean())) < 5 / math.sqrt(count)
