import json

from bayesprop.experiments.table_1.parts import ROWS
from bayesprop.experiments.table_1.settings import CANDIDATES, LAPTOP, PAPER, SMOKE


def test_the_paper_is_what_was_published():
    assert (PAPER.epochs, PAPER.batch_size, PAPER.pixels, PAPER.seeds) == (600, 128, "/126", 5)
    assert PAPER.widths == (400, 800, 1200)
    assert PAPER.train_rows is None


def test_every_row_has_candidates_that_a_record_can_hold():
    for settings in (PAPER, LAPTOP, SMOKE):
        assert settings.candidates.keys() == ROWS.keys()
        assert json.loads(json.dumps(settings.candidates)) == settings.candidates
    assert all(len(candidates) > 2 for candidates in CANDIDATES.values())
    assert len(LAPTOP.candidates["mixture"]) == 1


def test_only_tempered_rows_weigh_the_kl_by_less():
    for settings in (PAPER, LAPTOP, SMOKE):
        for row, candidates in settings.candidates.items():
            weights = {one.get("temperature") for one in candidates}
            if row.endswith("-full"):
                assert weights == {1.0}
            elif row in ("gaussian", "mixture"):
                assert all(0.0 < weight < 1.0 for weight in weights)
            else:
                assert weights == {None}
