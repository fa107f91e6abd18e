import time

import pytest
import torch

from bayesprop import storage
from bayesprop.errors import ConfigurationError
from bayesprop.experiments.experiment import SCALES, Bench, Part, tensors_path
from bayesprop.training.observers import Event, Stop


def bench(tmp_path, ends=None):
    return Bench(tmp_path / "part", torch.device("cpu"), {}, tmp_path, ends=ends)


def test_settings_of_a_scale(experiment):
    made = experiment()
    assert SCALES == ("smoke", "laptop", "paper")
    assert made.settings("paper").numbers == (1, 2, 3, 4)
    assert made.settings("smoke", seeds=7).seeds == 7
    assert made.settings("smoke", seeds=7).numbers == (1, 2, 3)


def test_what_cannot_be_asked_for(experiment):
    with pytest.raises(ConfigurationError, match=r"squares has no scale 'laptop'\n  expected: smoke, paper"):
        experiment().settings("laptop")
    with pytest.raises(ConfigurationError, match="at least one seed"):
        experiment().settings("smoke", seeds=0)


def test_other_settings_than_those_of_the_scale(experiment):
    made = experiment().settings("smoke", changes={"numbers": [4, 5], "seeds": 3})
    assert (made.numbers, made.seeds) == ((4, 5), 3)
    for changes in ({"nothing": 1}, {"seeds": "a"}, {"numbers": 3}):
        with pytest.raises(
            ConfigurationError, match=r"has no setting .*\n.*\n  expected: seeds=2, numbers=\(1, 2, 3\)"
        ):
            experiment().settings("smoke", changes=changes)


@pytest.mark.parametrize("name", ["", "A", "a/b", "-a", "a b"])
def test_names_of_parts_are_names_of_files(name):
    with pytest.raises(ConfigurationError, match="the name of a file, too"):
        Part(name, "", lambda bench: {})


def test_the_time_is_over(tmp_path):
    events = [Event(kind, 0, 1, 1, 1, 0.0) for kind in ("start", "step", "epoch", "end")]
    early, late = bench(tmp_path, time.monotonic() + 1000.0), bench(tmp_path, time.monotonic() - 1.0)
    assert [early.watch(event) for event in events] == [None] * 4
    assert [late.watch(event) for event in events] == [None, Stop, Stop, None]
    assert (bench(tmp_path).late, early.late, late.late) == (False, False, True)


def test_tensors_of_another_part(tmp_path):
    storage.write(tensors_path(tmp_path, "other"), {}, {"x": torch.arange(3.0)})
    assert torch.equal(bench(tmp_path).tensors_of("other")["x"], torch.arange(3.0))
