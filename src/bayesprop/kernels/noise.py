"""Counter-based noise: Philox4x32-10 and Box-Muller.

Element i of the noise of a key (seed, draw) at (step, stream) is

    (x0, x1, x2, x3) = Philox(counter = (i // 4, draw, step, stream), key = seed)                          (1)
    u = (x + 1/2) / 2^32,   r = sqrt(-2 log u0),   z0 = r cos(2 pi u1),   z1 = r sin(2 pi u1)              (2)

and likewise (z2, z3) from (x2, x3). So a number depends on what it is for and on nothing else: not on how many were
drawn before, on how many are drawn with it, or on the machine (bodies differ by float rounding only; the bits (1) are
identical).

The definition below is plain torch, runs on every device and under vmap; on the CPU the native body does the same work
about forty times faster, on a GPU the one of `kernels.columns`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesprop.kernels import columns, device, native

__all__ = ["bits", "bits_definition", "normal", "normal_definition", "philox"]

_MASK = 0xFFFFFFFF
SCHEMA = "(Tensor keys, Tensor step, SymInt stream, SymInt count) -> Tensor"


def _multiply(constant: int, word: Tensor) -> tuple[Tensor, Tensor]:
    """High and low 32 bits of constant * word. The constant is split, so that no product leaves the signed 64 bits."""
    low = word * (constant & 0xFFFF)
    high = word * (constant >> 16) + (low >> 16)
    return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> Tensor:
    """Philox4x32-10 of four counter words and two key words, int64 below 2^32 of one shape (...): (..., 4)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = _multiply(0xD2511F53, c0)
        high1, low1 = _multiply(0xCD9E8D57, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    return torch.stack((c0, c1, c2, c3), dim=-1)


def bits_definition(keys: Tensor, step: int | Tensor, stream: int, count: int) -> Tensor:
    """Equation (1): int64 numbers below 2^32, shape (..., count), for keys (..., 2).

    Of draw, step and stream the lower 32 bits count, of the seed 64.
    """
    seed, draw = keys[..., :1], keys[..., 1:]
    block = torch.arange(-(-count // 4), device=keys.device)
    c0 = (block & _MASK).expand(*keys.shape[:-1], -1)
    c1 = (draw & _MASK).expand_as(c0)
    c2 = torch.zeros_like(c0) + (step & _MASK)
    c3 = torch.zeros_like(c0) + (stream & _MASK)
    words = philox((c0, c1, c2, c3), (seed & _MASK, (seed >> 32) & _MASK))
    return words.flatten(-2)[..., :count]


def normal_definition(keys: Tensor, step: int | Tensor, stream: int, count: int) -> Tensor:
    """Equations (1) and (2): float32 standard normal noise of shape (..., count)."""
    words = bits_definition(keys, step, stream, 4 * -(-count // 4))
    uniform = words.to(torch.float32) * 2.0**-32 + 2.0**-33
    pair = uniform.unflatten(-1, (-1, 2))
    radius, angle = torch.sqrt(-2.0 * torch.log(pair[..., 0])), 2.0 * math.pi * pair[..., 1]
    return torch.stack((radius * torch.cos(angle), radius * torch.sin(angle)), dim=-1).flatten(-2)[..., :count]


def _native(keys: Tensor):
    """The native library, when it can serve these keys."""
    return native.library().handle if keys.device.type == "cpu" else None


def bits(keys: Tensor, step: int | Tensor, stream: int, count: int) -> Tensor:
    """Numbers below 2^32, by whichever body serves the device."""
    handle = _native(keys)
    if handle is None or isinstance(step, Tensor):
        return bits_definition(keys, step, stream, count)
    out = torch.empty(*keys.shape[:-1], count, dtype=torch.int64)
    if count == 0:
        return out
    rows = out.view(-1, count)
    for row, (seed, draw) in zip(rows, keys.reshape(-1, 2).tolist(), strict=True):
        arguments = [native.ctypes.c_int64(int(v)) for v in (count, seed, draw, step, stream)]
        handle.bayesprop_bits(native.ctypes.c_void_p(row.data_ptr()), *arguments)
    return out


def _drawn(keys: Tensor, step: int | Tensor, stream: int, count: int) -> Tensor:
    if keys.device.type == "cuda" and device.available(keys.device):
        now = step if isinstance(step, Tensor) else torch.tensor(step)
        return columns.normal(keys, now.to(keys.device), stream, count)
    handle = _native(keys)
    if handle is None:
        return normal_definition(keys, step, stream, count)
    out = torch.empty(*keys.shape[:-1], count, dtype=torch.float32)
    if count == 0:
        return out
    for row, (seed, draw) in zip(out.view(-1, count), keys.reshape(-1, 2).tolist(), strict=True):
        tail = [native.ctypes.c_int64(int(v)) for v in (seed, draw, step, stream)]
        pointer, length = native.ctypes.c_void_p(row.data_ptr()), native.ctypes.c_int64(count)
        handle.bayesprop_normal(pointer, length, native.threads(count), *tail)
    return out


# For code that torch traces or batches; a plain call does without, because an operator's first call imports all of
# torch's compiler, which takes seconds.
_normal = torch.library.custom_op("bayesprop::normal", _drawn, mutates_args=(), schema=SCHEMA)


@_normal.register_fake
def _(keys: Tensor, step: Tensor, stream: int, count: int) -> Tensor:
    return keys.new_empty(*keys.shape[:-1], count, dtype=torch.float32)


def _normal_vmap(info, in_dims, keys: Tensor, step: Tensor, stream: int, count: int) -> tuple[Tensor, int]:
    """A batch of keys is only a longer leading shape; the step is the same for all of them."""
    return normal(keys.movedim(in_dims[0], 0), step, stream, count), 0


_normal.register_vmap(_normal_vmap)


def normal(keys: Tensor, step: int | Tensor, stream: int, count: int) -> Tensor:
    """Standard normal noise, float32 of shape (..., count), for int64 keys (..., 2) = (seed, draw).

    >>> import torch
    >>> key = torch.tensor([7, 0])
    >>> bool((normal(key, 3, 1, 6)[:4] == normal(key, 3, 1, 4)).all())
    True
    """
    watched = torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack() > 0
    if watched or torch.compiler.is_compiling():
        return _normal(keys, step if isinstance(step, Tensor) else torch.tensor(step), stream, count)
    return _drawn(keys, step, stream, count)
