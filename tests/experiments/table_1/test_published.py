from bayesprop.experiments.table_1.published import FIGURE, OTHERS, TABLE


def test_the_table_of_the_paper():
    assert len(TABLE) == 12
    assert [TABLE["mixture", width].value for width in (400, 800, 1200)] == [1.36, 1.34, 1.32]
    assert [TABLE["gaussian", width].value for width in (400, 800, 1200)] == [1.82, 1.99, 2.04]
    assert {value.mark for value in TABLE.values()} == {"P"}


def test_others_are_never_of_the_paper():
    assert all(value.mark in "RCS" for values in OTHERS.values() for value in values)
    assert OTHERS.keys() <= TABLE.keys()


def test_the_figure():
    assert FIGURE["mixture"][550, 600].value == 1.32
    assert all(value.mark == "F" for values in FIGURE.values() for value in values.values())
