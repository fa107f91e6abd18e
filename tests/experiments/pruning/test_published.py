"""Published values are those of the tables."""

from bayesprop.experiments.pruning.published import BEST_EVER, OTHERS, PAPER, SOURCE


def test_table_2_of_the_paper():
    assert {share: value.value for share, value in PAPER.items()} == {
        0.0: 1.24,
        0.5: 1.24,
        0.75: 1.24,
        0.95: 1.29,
        0.98: 1.39,
    }
    assert {value.mark for value in PAPER.values()} == {"P"}
    assert BEST_EVER.value == 1.12


def test_table_1_of_source_000():
    naive, noise = SOURCE["magnitude"], SOURCE["signal_to_noise"]
    assert [naive[share].value for share in (0.0, 0.25, 0.5, 0.75, 0.95)] == [2.03, 2.41, 5.33, 30.67, 63.11]
    assert [noise[share].value for share in (0.0, 0.25, 0.5, 0.75, 0.95)] == [2.03, 2.59, 5.89, 41.05, 82.50]
    assert all(naive[share].value <= noise[share].value for share in naive)


def test_others_say_where_they_are_from():
    values = [value for shares in OTHERS.values() for value in shares.values()]
    assert len(values) == 15
    assert all(value.mark == "R" and value.source for value in values)
