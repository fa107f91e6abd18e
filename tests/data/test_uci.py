"""The UCI sets from tiny files, and the published splits."""

import hashlib

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from bayesprop.data import uci
from bayesprop.data.uci import _SETS, read_table
from bayesprop.errors import ConfigurationError, DataError

TABLE = np.random.default_rng(0).normal(size=(31, 4)).round(3)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data folder in which yacht has 31 rows: column 2 is the target, columns 0, 1 and 3 are inputs."""
    folder = tmp_path / "uci" / "yacht"
    folder.mkdir(parents=True)
    np.savetxt(folder / "data.txt", TABLE)
    (folder / "index_features.txt").write_text("0\n1\n3\n")
    (folder / "index_target.txt").write_text("2\n")
    names = ("data.txt", "index_features.txt", "index_target.txt")
    sums = [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names]
    monkeypatch.setitem(_SETS, "yacht", ("yacht", 20, *sums))
    return tmp_path


def test_the_table_is_read_by_its_columns(tiny):
    found = uci("yacht", tiny)
    assert_close(found.inputs, torch.from_numpy(TABLE[:, [0, 1, 3]]))
    assert_close(found.targets, torch.from_numpy(TABLE[:, 2]))
    assert found.num_splits == 20


def test_splits_are_those_of_the_published_recipe(tiny):
    """np.random.seed(1), then np.random.choice(range(n), n, replace=False) for each split; floor(0.9 n + 0.5) rows."""
    found = uci("yacht", tiny)
    state = np.random.get_state()  # noqa: NPY002 - the recipe is written with the global generator
    try:
        np.random.seed(1)  # noqa: NPY002
        orders = [np.random.choice(range(31), 31, replace=False) for _ in range(20)]  # noqa: NPY002
    finally:
        np.random.set_state(state)  # noqa: NPY002
    for number, order in enumerate(orders):
        train, test = found.split(number, standardize=False)
        assert (train.num_data, test.num_data) == (28, 3)
        assert_close(train.targets, found.targets[order[:28]])
        assert_close(test.inputs, found.inputs[order[28:]])
        assert train.scaling is None


def test_the_first_split_of_boston_is_known():
    """The first rows of RandomState(1)'s permutation of Boston's 506 rows: numpy never changes this generator."""
    order = np.random.RandomState(1).choice(506, 506, replace=False)
    assert order[:5].tolist() == [307, 343, 47, 67, 362]


def test_the_global_generator_is_not_used(tiny):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    uci("yacht", tiny).split(3)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_training_rows_are_standardised_and_test_rows_are_not(tiny):
    train, test = uci("yacht", tiny).split(0)
    assert train.scaling is not None
    assert isinstance(train.inputs, torch.Tensor)
    assert_close(train.inputs.mean(0), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)
    assert test.scaling is None
    joined = torch.cat([train.original()[1], test.targets]).sort().values
    assert_close(joined, torch.from_numpy(np.sort(TABLE[:, 2])))


def test_splits_are_counted_from_zero(tiny):
    with pytest.raises(ConfigurationError, match=r"yacht has no split 20[\s\S]*0 to 19"):
        uci("yacht", tiny).split(20)
    with pytest.raises(ConfigurationError, match="no split -1"):
        uci("yacht", tiny).split(-1)


def test_names_and_counts():
    assert list(_SETS) == ["boston", "concrete", "energy", "power", "protein", "wine", "yacht"]
    assert {name: row[1] for name, row in _SETS.items() if row[1] != 20} == {"protein": 5}
    assert all(len(bytes.fromhex(value)) == 32 for row in _SETS.values() for value in row[2:])
    with pytest.raises(ConfigurationError, match="Did you mean 'boston'"):
        uci("bostn")


def test_a_damaged_table_is_refused(tiny):
    path = tiny / "uci" / "yacht" / "data.txt"
    path.write_text(path.read_text() + "1 2 3 4\n")
    with pytest.raises(DataError, match=r"data.txt is damaged"):
        uci("yacht", tiny)


def test_columns_that_do_not_exist_are_refused(tmp_path):
    for name, text in (("data.txt", "1 2\n3 4\n"), ("features.txt", "0\n1\n"), ("target.txt", "2\n")):
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=r"targets \[2\], inputs \[0, 1\], 2 columns"):
        read_table(tmp_path / "data.txt", tmp_path / "features.txt", tmp_path / "target.txt")
