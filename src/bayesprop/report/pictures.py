"""Inputs that are pictures: found out, and shown as galleries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from bayesprop.errors import DataError
from bayesprop.report.blocks import Picture, Pictures
from bayesprop.report.drawing import to_png

__all__ = ["as_pictures", "find_shape", "gallery"]

# Mean squared difference of neighbours over that of any two pixels: 1 where columns have no order. Handwritten digits
# of 8 x 8 pixels reach 0.5 and 0.6; finer pictures are smoother.
SMOOTH = 0.8
ROWS = 500  # looked at
SIDE = 8  # pixels, at least


def find_shape(inputs: Any) -> tuple[int, ...] | None:
    """The shape of one picture if the inputs look like pictures, None otherwise.

    Inputs with one or three channels are pictures. Rows of 8 x 8, 9 x 9, ... numbers are, with or without a second
    dimension, if neighbours are alike in both directions.
    """
    if not isinstance(inputs, Tensor) or not (inputs.is_floating_point() or inputs.dtype == torch.uint8):
        return None
    shape = tuple(inputs.shape[1:])
    if len(shape) == 3:
        return shape if 1 in (shape[0], shape[2]) or 3 in (shape[0], shape[2]) else None
    if len(shape) == 1:
        shape = (math.isqrt(shape[0]),) * 2
    if len(shape) != 2 or inputs[:1].numel() != math.prod(shape) or min(shape) < SIDE:
        return None
    return shape if _is_smooth(inputs[:ROWS].reshape(-1, *shape)) else None


def as_pictures(inputs: Any, shape: Sequence[int]) -> Tensor:
    """Inputs as (n, height, width) or (n, height, width, 3).

    `shape` is (height, width), (channels, height, width) or (height, width, channels), with one or three channels.
    """
    wide = tuple(shape)
    fits = isinstance(inputs, Tensor) and inputs.dim() > 1 and inputs[:1].numel() == math.prod(wide) > 0
    channels = len(wide) == 2 or (len(wide) == 3 and bool({1, 3} & {wide[0], wide[2]}))
    if not fits or not channels:
        rows = f"rows of {tuple(inputs.shape[1:])}" if isinstance(inputs, Tensor) else f"a {type(inputs).__name__}"
        raise DataError(
            "the inputs are no pictures of this shape",
            received=f"{rows} and picture_shape={wide}",
            expected="(height, width), (channels, height, width) or (height, width, channels) with one or three "
            "channels, of as many numbers as a row has",
            write="picture_shape=(28, 28)",
        )
    pictures = inputs.reshape(-1, *wide)
    if len(wide) == 3 and wide[0] in (1, 3):
        pictures = pictures.movedim(1, -1)
    return pictures[..., 0] if pictures.dim() == 4 and pictures.shape[-1] == 1 else pictures


def gallery(
    title: str,
    pictures: Tensor,
    rows: Iterable[int],
    describe: Callable[[int], tuple[str, str]],
    *,
    limits: tuple[float, float],
) -> Pictures:
    """Some of the pictures, each with the two lines that `describe` says of its row; `limits` are black and white."""
    shown = []
    for row in rows:
        line, note = describe(row)
        shown.append(Picture(to_png(pictures[row].detach().cpu().numpy(), *limits), line, note))
    return Pictures(title, shown)


def _is_smooth(pictures: Tensor) -> bool:
    pixels = pictures.double()
    apart = 2 * pixels.flatten(1).var(1, correction=0).mean().item()
    return apart > 0 and all(pixels.diff(dim=axis).square().mean().item() < SMOOTH * apart for axis in (1, 2))
