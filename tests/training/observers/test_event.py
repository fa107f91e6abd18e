"""What an observer is told: numbers that it can read and cannot change."""

from __future__ import annotations

import dataclasses

import pytest

from bayesprop.training import observers
from bayesprop.training.observers import Event, Stop


def test_package():
    assert observers.__all__ == ["Event", "Observer", "ProgressBar", "Stop"]


def test_fields():
    event = Event("epoch", 1, 5, 20, None, 0.25, {"elbo": -3.5})
    names = [field.name for field in dataclasses.fields(event)]
    assert names == ["kind", "epoch", "epochs", "step", "steps_per_epoch", "seconds", "metrics", "posterior"]
    assert [getattr(event, name) for name in names[:-2]] == ["epoch", 1, 5, 20, None, 0.25]
    assert event.metrics["elbo"] == -3.5
    assert dict(Event("start", 0, 1, 0, 3, 0.0).metrics) == {}
    assert event.posterior is None


@pytest.mark.parametrize("field", ["kind", "step", "metrics"])
def test_an_event_is_frozen(field):
    event = Event("step", 0, 1, 1, 3, 0.0)
    with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{field}'"):
        setattr(event, field, None)


def test_its_numbers_are_a_copy_that_cannot_be_written():
    metrics = {"elbo": -3.5}
    event = Event("epoch", 0, 1, 3, 3, 0.0, metrics)
    metrics["elbo"] = 0.0
    metrics["more"] = 1.0
    assert dict(event.metrics) == {"elbo": -3.5}
    with pytest.raises(TypeError, match="does not support item assignment"):
        event.metrics["elbo"] = 0.0  # type: ignore[index]


def test_stop_is_a_class_to_return():
    assert isinstance(Stop, type)
