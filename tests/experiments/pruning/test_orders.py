"""Who wins is counted by setting, and only beyond noise."""

import dataclasses

from bayesprop.experiments.pruning.orders import NAMES, winners
from bayesprop.experiments.record import Record


def grid_record(settings, *pairs):
    """A grid of one setting whose seeds have these errors by signal to noise and by magnitude at 98 %."""
    members = [
        {"prior.scale": 1.0, "initial_rho": -3.0, "temperature": 1.0, "seed": seed} for seed in range(len(pairs))
    ]
    curves = [
        {
            order: {"means": [0.02, 0.02, error], "draws": [], "nll": []}
            for order, error in zip(("signal_to_noise", "magnitude"), pair)
        }
        for pair in pairs
    ]
    result = {"members": [*members, {**members[0], "seed": 99}], "curves": [*curves, None]}
    part = {"what": "", "seconds": 1.0, "result": result}
    return Record("pruning", "smoke", dataclasses.asdict(settings), {"grid-gaussian-fan-in": part}, ())


def test_an_order_wins_beyond_noise_only(settings):
    for pairs, winner in (
        ([(0.03, 0.05), (0.03, 0.04)], "signal to noise"),
        ([(0.05, 0.03), (0.05, 0.03)], "magnitude"),
        ([(0.03, 0.05), (0.03, 0.02)], "–"),
        ([(0.0300, 0.0301)], "–"),
    ):
        section = winners(grid_record(settings, *pairs))
        by_prior, table = section.blocks
        ((row,), won) = table.rows, section.text
        assert row[-1] == winner
        assert row[:4] == ("gaussian 1", "fan-in", "-3.0", "1.0")
        assert ("magnitude 1" in won) is (winner == "magnitude")
        assert by_prior.rows[0][:2] == ("gaussian 1", "1")
        assert [int(cell) for cell in by_prior.rows[0][2:]] == [row[-1] == name for name in (*NAMES.values(), "–")]
    assert table.header[-3:] == ("50 %", "98 %", "wins")


def test_a_record_without_a_grid_has_no_winners(settings):
    assert winners(Record("pruning", "smoke", dataclasses.asdict(settings), {}, ())) is None
