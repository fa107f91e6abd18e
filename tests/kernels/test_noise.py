"""The generator against its published answers, and its two bodies against one another."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from bayesprop.kernels import native, noise

# Counter, key and answer of Philox4x32-10, from the authors' own test vectors (Salmon et al. 2011, Random123).
KNOWN = {
    "zeros": ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    "ones": ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    "pi": (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
}
ODD = [1, 2, 3, 4, 5, 7, 1023, 1024, 1025, 4099]
KEYS = torch.tensor([[7, 0], [-1, 3], [0x299F31D0A4093822, 0x85A308D3], [-(2**63), 2**32 - 1]])

# Words at the ends of the range, found by search: (seed, step, position, word) in stream 1, draw 0.
EXTREMES = {
    "radius, u = 1": (18748704, 0, 2, 2**32 - 52),
    "radius, halfway to u = 1": (9391518, 0, 2, 2**32 - 128),
    "radius, u near 0": (9127365, 0, 2, 10),
    "angle, the last word": (7, 14, 963519, 2**32 - 1),
}


def test_there_is_native_code_where_there_is_a_compiler():
    """So that the comparisons below compare two bodies, and not the definition with itself."""
    assert native.library().handle is not None or "no C++ compiler" in native.status()


@pytest.mark.parametrize("name", KNOWN)
def test_published_answers(name):
    counter, key, expected = KNOWN[name]
    words = noise.philox(
        tuple(torch.tensor([word]) for word in counter),  # type: ignore[arg-type]
        tuple(torch.tensor([word]) for word in key),  # type: ignore[arg-type]
    )
    assert words.tolist() == [list(expected)]


def test_the_words_of_the_counter_and_of_the_key_have_their_places():
    """Element 0 of (seed, draw) at (step, stream) is Philox of the counter (0, draw, step, stream)."""
    (_, draw, step, stream), (low, high), _ = KNOWN["pi"]
    counter = tuple(torch.tensor(word) for word in (0, draw, step, stream))
    expected = noise.philox(counter, (torch.tensor(low), torch.tensor(high)))  # type: ignore[arg-type]
    key = torch.tensor([high << 32 | low, draw])
    for body in (noise.bits, noise.bits_definition):
        assert body(key, step, stream, 4).tolist() == expected.tolist()
        assert body(torch.zeros(2, dtype=torch.int64), 0, 0, 4).tolist() == list(KNOWN["zeros"][2])


def test_element_i_is_word_i_mod_4_of_block_i_div_4():
    key, count = torch.tensor([11, 5]), 4099
    block = torch.arange(1025)
    rest = [torch.full_like(block, word) for word in (5, 3, 2)]
    words = noise.philox((block, *rest), (torch.full_like(block, 11), torch.zeros_like(block)))  # type: ignore[arg-type]
    for body in (noise.bits, noise.bits_definition):
        assert torch.equal(body(key, 3, 2, count), words.flatten()[:count])


@pytest.mark.parametrize("count", [0, *ODD])
def test_both_bodies_have_the_same_bits(count):
    found, defined = noise.bits(KEYS, 9, 2, count), noise.bits_definition(KEYS, 9, 2, count)
    assert found.shape == (4, count)
    assert found.dtype == torch.int64
    assert torch.equal(found, defined)


@pytest.mark.parametrize("step", [-1, 2**31, 2**32 - 1, 2**32 + 5])
@pytest.mark.parametrize("stream", [1, 1 << 16, 2**32 + 1])
def test_both_bodies_take_the_lower_bits_of_step_and_stream(step, stream):
    expected = noise.bits(KEYS, step % 2**32, stream % 2**32, 9)
    for body in (noise.bits, noise.bits_definition):
        assert torch.equal(body(KEYS, step, stream, 9), expected)
    assert torch.equal(noise.bits_definition(KEYS, torch.tensor(step), stream, 9), expected)


@pytest.mark.parametrize("count", [0, *ODD])
def test_both_bodies_have_the_same_normals(count):
    found, defined = noise.normal(KEYS, 9, 2, count), noise.normal_definition(KEYS, 9, 2, count)
    assert found.shape == (4, count)
    assert found.dtype == defined.dtype == torch.float32
    # Rounding of u1 turns the angle by up to 2 pi 2^-24 = 4e-7; the radius is below 6.8.
    torch.testing.assert_close(found, defined, rtol=0.0, atol=5e-6)


def test_normals_follow_equation_2():
    """In double precision from the same bits. Near u0 = 1 the radius is known only to sqrt(2^-23)."""
    words = noise.bits(KEYS, 9, 2, 8192).double().unflatten(-1, (-1, 2))
    u = (words + 0.5) / 2**32
    radius, angle = (-2.0 * torch.log(u[..., 0])).sqrt(), 2.0 * math.pi * u[..., 1]
    expected = torch.stack((radius * torch.cos(angle), radius * torch.sin(angle)), dim=-1).flatten(-2)
    wide = (radius > 0.1).repeat_interleave(2, dim=-1)
    assert wide.float().mean() > 0.99
    for body in (noise.normal, noise.normal_definition):
        found = body(KEYS, 9, 2, 8192).double()
        torch.testing.assert_close(found[wide], expected[wide], rtol=0.0, atol=5e-6)
        torch.testing.assert_close(found, expected, rtol=0.0, atol=4e-4)


@pytest.mark.parametrize("name", EXTREMES)
def test_the_ends_of_the_range_are_finite(name):
    """u rounds to 1 for the last 128 words: a logarithm that came out positive there would make a NaN of the radius."""
    seed, step, position, word = EXTREMES[name]
    key = torch.tensor([seed, 0])
    assert noise.bits(key, step, 1, position + 1)[position].item() == word
    first = position - position % 4
    for count in {position + 1, first + 4, first + 77}:  # in the vectorised part of a loop, and in its rest
        found, defined = noise.normal(key, step, 1, count)[first:], noise.normal_definition(key, step, 1, count)[first:]
        assert found.isfinite().all()
        torch.testing.assert_close(found, defined, rtol=0.0, atol=5e-6)
    if "u = 1" in name:
        assert defined[2:4].tolist() == [0.0, 0.0]
    if name == "radius, u near 0":
        assert math.hypot(*defined[2:4].tolist()) == pytest.approx(math.sqrt(-2.0 * math.log(10.5 / 2**32)), rel=1e-6)


@pytest.mark.parametrize("body", [noise.bits, noise.bits_definition, noise.normal, noise.normal_definition])
def test_fewer_numbers_are_the_first_ones(body):
    whole = body(KEYS, 1, 1, 4099)
    for count in (0, *ODD):
        assert torch.equal(body(KEYS, 1, 1, count), whole[:, :count])


@pytest.mark.parametrize("body", [noise.bits, noise.bits_definition, noise.normal, noise.normal_definition])
def test_any_leading_shape_and_no_keys_at_all(body):
    expected = body(KEYS, 1, 1, 5)
    assert torch.equal(body(KEYS.reshape(2, 2, 2), 1, 1, 5), expected.reshape(2, 2, 5))
    assert torch.equal(body(KEYS.T.contiguous().T, 1, 1, 5), expected)
    assert torch.equal(body(KEYS[2], 1, 1, 5), expected[2])
    assert body(KEYS[:0], 1, 1, 5).shape == (0, 5)


@pytest.mark.parametrize("body", [noise.normal, noise.normal_definition])
def test_lanes_of_vmap_have_the_noise_that_they_have_alone(body):
    expected = body(KEYS, 4, 1, 9)

    def one(key: Tensor) -> Tensor:
        return body(key, 4, 1, 9)

    assert torch.equal(torch.func.vmap(one)(KEYS), expected)
    assert torch.equal(torch.func.vmap(one, in_dims=1)(KEYS.T), expected)
    nested = torch.func.vmap(torch.func.vmap(one))(KEYS.reshape(2, 2, 2))
    assert torch.equal(nested, expected.reshape(2, 2, 9))
    # A closure over keys that vmap does not know of, beside a tensor that it does.
    shifted = torch.func.vmap(lambda x: x + one(KEYS[0]))(torch.zeros(3, 9))
    assert torch.equal(shifted, expected[0].expand(3, 9))


def test_the_operator_is_registered_as_torch_wants_it():
    operator = torch.ops.bayesprop.normal.default
    found = torch.library.opcheck(operator, (KEYS, torch.tensor(3), 1, 7))
    assert set(found.values()) == {"SUCCESS"}
    assert len(found) == 4


def test_noise_has_no_gradient_and_none_is_asked_for():
    x = torch.ones(9, requires_grad=True)
    (x * noise.normal(KEYS[0], 0, 1, 9)).sum().backward()
    torch.testing.assert_close(x.grad, noise.normal(KEYS[0], 0, 1, 9), rtol=0.0, atol=0.0)


def test_threads_change_nothing(many_threads):
    assert native.threads(100_003).value == 2
    two = noise.normal(KEYS, 2, 1, 100_003)
    torch.set_num_threads(1)
    assert native.threads(100_003).value == 1
    assert torch.equal(noise.normal(KEYS, 2, 1, 100_003), two)


def test_without_a_compiler_the_definition_runs(request):
    with_native = noise.normal(KEYS, 2, 1, 1025), noise.bits(KEYS, 2, 1, 1025)
    request.getfixturevalue("without_compiler")
    assert torch.equal(noise.normal(KEYS, 2, 1, 1025), noise.normal_definition(KEYS, 2, 1, 1025))
    assert torch.equal(noise.bits(KEYS, 2, 1, 1025), with_native[1])
    torch.testing.assert_close(noise.normal(KEYS, 2, 1, 1025), with_native[0], rtol=0.0, atol=5e-6)
