"""The tree of errors, the four parts of a message, and the nearest name."""

from __future__ import annotations

import builtins
import copy
import pickle

import pytest

from bayesprop import errors
from bayesprop.errors import BayespropError, BayespropWarning, CheckpointError, ConfigurationError, did_you_mean

# Each error with the built-in one that a user may catch in its place.
BUILTIN = {
    "CapabilityError": TypeError,
    "CheckpointError": OSError,
    "ConfigurationError": ValueError,
    "DataError": ValueError,
    "DivergenceError": ArithmeticError,
    "MemoryBudgetError": MemoryError,
}


def test_the_list_of_errors_is_complete():
    found = {name for name in errors.__all__ if name.endswith("Error")} - {"BayespropError"}
    assert found == BUILTIN.keys()
    assert len(found) == 6
    inside = {cls.__name__ for cls in BayespropError.__subclasses__() if cls.__module__ != errors.__name__}
    assert {cls.__name__ for cls in BayespropError.__subclasses__()} - inside == found
    assert inside <= {"Unfinished"}  # how a part of an experiment tells that its minutes are over


@pytest.mark.parametrize("name", BUILTIN)
def test_an_error_is_caught_as_ours_and_as_the_built_in_one(name):
    cls = getattr(errors, name)
    for base in (BayespropError, BUILTIN[name]):
        with pytest.raises(base, match=r"^what was asked$") as caught:
            raise cls("what was asked")
        assert type(caught.value) is cls
    # The documentation draws the tree: it names the same pairs.
    row = next(line for line in (errors.__doc__ or "").splitlines() if name in line)
    assert f"(also a{'n' if BUILTIN[name].__name__[0] in 'AO' else ''} {BUILTIN[name].__name__})" in row
    assert getattr(builtins, BUILTIN[name].__name__) is BUILTIN[name]


@pytest.mark.parametrize("name", [*BUILTIN, "BayespropError"])
def test_a_message_has_its_four_parts_in_order(name):
    cls = getattr(errors, name)
    error = cls("a scale is positive", write="Normal(scale=1.0)", expected="a positive number", received="-1")
    lines = ["a scale is positive", "  received: -1", "  expected: a positive number", "  write: Normal(scale=1.0)"]
    assert str(error).splitlines() == lines
    assert str(cls("only this")) == "only this"
    assert str(cls("this", expected="that")) == "this\n  expected: that"
    with pytest.raises(TypeError, match="positional"):
        cls("parts are named", "so that none stands in the place of another")


@pytest.mark.parametrize("name", [*BUILTIN, "BayespropError"])
def test_an_error_survives_a_copy_and_a_pickle(name):
    """As worker processes send it to their parent."""
    error = getattr(errors, name)("asked", received="this", write="that")
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is type(error)
        assert str(again) == str(error) == "asked\n  received: this\n  write: that"


def test_an_error_of_a_file_is_no_system_error():
    error = CheckpointError("the file is damaged", expected="the bytes that were written")
    assert error.errno is None
    assert error.filename is None
    assert repr(error).startswith("CheckpointError(")


def test_a_cause_is_kept():
    def fail() -> None:
        raise ConfigurationError("cannot work") from KeyError("x")

    with pytest.raises(ConfigurationError, match="cannot work") as caught:
        fail()
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_warning_is_a_warning_for_users():
    assert issubclass(BayespropWarning, UserWarning)
    assert not issubclass(BayespropWarning, BayespropError)


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("Norml", ["Laplace", "Normal"], " Did you mean 'Normal'?"),
        ("head.weigth", (name for name in ("body.bias", "head.weight")), " Did you mean 'head.weight'?"),
        ("zzz", ["Laplace", "Normal"], ""),
        ("Normal", [], ""),
    ],
)
def test_the_nearest_name(name, known, expected):
    assert did_you_mean(name, known) == expected
