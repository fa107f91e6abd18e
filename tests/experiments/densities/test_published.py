"""Heights that were read off figure 3."""

from bayesprop.experiments.densities.published import PEAKS


def test_the_heights_of_figure_3():
    assert {name: value.value for name, value in PEAKS.items()} == {"mixture": 4.0, "dropout": 9.0, "sgd": 15.0}
    assert {value.mark for value in PEAKS.values()} == {"F"}
