from bayesprop.experiments.units.published import BASELINES, LONG, TABLE


def test_the_table_of_the_source():
    assert [TABLE["mnist", width].value for width in (200, 400, 800, 1200)] == [2.51, 2.33, 2.16, 2.76]
    assert [TABLE["fashion_mnist", width].value for width in (200, 400, 800)] == [12.63, 13.2, 12.81]
    assert (LONG.value, LONG.mark) == (1.63, "S")


def test_what_its_cells_printed():
    assert [BASELINES[kind].shown() for kind in ("sgd", "dropout")] == ["1.74 [S]", "1.51 [S]"]
