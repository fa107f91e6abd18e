"""MNIST and Fashion-MNIST as experiments take them: vectors of 784 numbers, split for choices, in one of four scales.

The last sixth of the training rows (10,000 of 60,000) is for choices, the rest is trained on, the test set is for the
numbers that are shown. A run on few rows takes the first ones of each.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesprop.data import Data, Images, fashion_mnist, mnist
from bayesprop.errors import ConfigurationError

__all__ = ["PIXELS", "Split", "load", "scaled"]

LOADERS = {"mnist": mnist, "fashion_mnist": fashion_mnist}
PIXELS = ("/126", "/255", "standardized", "raw")


@dataclass(frozen=True)
class Split:
    """Rows to train on, to choose by, and to be judged by in the end."""

    train: Data
    validation: Data
    test: Data

    def to(self, device: torch.device) -> Split:
        return Split(self.train.to(device), self.validation.to(device), self.test.to(device))


def load(name: str, pixels: str = "/126", *, train: int | None = None, held_out: int | None = None) -> Split:
    """ "mnist" or "fashion_mnist"; at most `train` rows to train on and `held_out` for each of the two others."""
    if name not in LOADERS:
        raise ConfigurationError(f"no data set is called {name!r}", expected=", ".join(LOADERS), write='load("mnist")')
    images: Images = LOADERS[name]()
    count = len(images.train)
    border = count - count // 6
    first, last = slice(0, min(border, train or border)), slice(border, border + min(count // 6, held_out or count))
    rows = [images.train.rows(first), images.train.rows(last), images.test.rows(slice(0, held_out))]
    inputs = [_vectors(part) for part in rows]
    made = [scaled(part, pixels, inputs[0]) for part in inputs]
    return Split(*(Data(part, of.targets) for part, of in zip(made, rows, strict=True)))


def scaled(inputs: Tensor, pixels: str, train: Tensor) -> Tensor:
    """Pixels 0 to 255 in another scale; "standardized" takes mean and deviation of all training pixels together."""
    if pixels == "/126":
        return inputs / 126.0
    if pixels == "/255":
        return inputs / 255.0
    if pixels == "standardized":
        return (inputs - train.mean()) / train.std()
    if pixels == "raw":
        return inputs
    raise ConfigurationError(f"pixels cannot be scaled by {pixels!r}", expected=", ".join(PIXELS))


def _vectors(data: Data) -> Tensor:
    assert isinstance(data.inputs, Tensor)
    return data.inputs.flatten(1).float()
