"""MNIST and Fashion-MNIST: 60,000 + 10,000 grey images of 28 x 28 pixels in ten classes.

The files are the original ones ("idx", gzipped). Pixels stay the integers 0 to 255 that they are: how they are scaled
belongs to an experiment, and papers differ (Blundell et al. 2015 divide by 126, others by 255).

Sources: LeCun, Cortes and Burges, "The MNIST database of handwritten digits"; Xiao, Rasul and Vollgraf (2017),
"Fashion-MNIST", arXiv:1708.07747.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bayesprop.data.data import Data
from bayesprop.data.folder import PathLike, PublicFile, fetch
from bayesprop.errors import DataError

__all__ = ["Images", "fashion_mnist", "mnist", "read_idx"]

_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"

# In the order train images, train labels, test images, test labels.
_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_MNIST_SHA256 = (
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)
_FASHION_SHA256 = (
    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
)
_FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


@dataclass(frozen=True)
class Images:
    """A data set with its published test set: inputs uint8 (N, 1, 28, 28), targets int64 (N,)."""

    name: str
    train: Data
    test: Data


def mnist(folder: PathLike | None = None) -> Images:
    """Handwritten digits. `folder` is the data folder, see `data_folder`."""
    return _load("mnist", _MNIST, _MNIST_SHA256, folder, None)


def fashion_mnist(folder: PathLike | None = None) -> Images:
    """Pictures of clothes, in the shape of MNIST and harder; `classes` holds their names."""
    return _load("fashion_mnist", _FASHION, _FASHION_SHA256, folder, _FASHION_CLASSES)


def _load(
    name: str, address: str, hashes: tuple[str, ...], folder: PathLike | None, classes: tuple[str, ...] | None
) -> Images:
    files = [PublicFile(f"{name}/{file}", address + file, sha) for file, sha in zip(_FILES, hashes, strict=True)]
    tensors = [read_idx(fetch(file, folder)) for file in files]
    train, test = (
        Data(images[:, None], labels.long(), classes=classes)
        for images, labels in ((tensors[0], tensors[1]), (tensors[2], tensors[3]))
    )
    return Images(name, train, test)


def read_idx(path: PathLike) -> Tensor:
    """A gzipped idx file of bytes: two zeros, the type 8, the number of dimensions, each dimension, then the values."""
    path = Path(path)
    try:
        content = gzip.decompress(path.read_bytes())
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file", received=str(error), expected="a file idx*.gz") from error
    dimensions = content[3] if len(content) >= 4 and content[:3] == b"\x00\x00\x08" else 0
    start = 4 + 4 * dimensions
    shape = tuple(int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions))
    if dimensions == 0 or len(content) != start + int(np.prod(shape)):
        raise DataError(
            f"{path} is not an idx file of bytes",
            received=f"{len(content)} bytes that begin with {content[:4].hex()}",
            expected="0000 08 and the dimensions, then as many bytes as these say",
        )
    return torch.from_numpy(np.frombuffer(content, dtype=np.uint8, offset=start).copy()).reshape(shape)
