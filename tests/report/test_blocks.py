import dataclasses

import pytest

from bayesprop.errors import ConfigurationError
from bayesprop.report.blocks import Headline, Number, Picture, Pictures, Plot, Section, Table


def test_a_row_with_too_few_cells_is_refused():
    with pytest.raises(ConfigurationError) as caught:
        Table(("a", "b"), [("1", "2"), ("3",)])
    assert str(caught.value).splitlines() == [
        "each row of a table has one cell for each column",
        "  received: 1 cells in ['3']",
        "  expected: 2 cells: ['a', 'b']",
    ]
    assert Table(("a", "b"), [("1", "2")]).rows == [("1", "2")]


def test_every_block_has_a_kind_of_its_own():
    """The template asks for it."""
    kinds = [block.kind for block in (Headline, Plot, Table, Pictures)]
    assert kinds == ["headline", "plot", "table", "pictures"]


def test_blocks_cannot_be_changed():
    blocks = [Number("a", "1"), Headline([]), Table(("a",), []), Picture("", ""), Pictures("", []), Section("", [])]
    for block in blocks:
        name = dataclasses.fields(block)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(block, name, "other")
