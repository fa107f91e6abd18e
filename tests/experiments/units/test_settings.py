import json

from bayesprop.experiments.units.settings import CANDIDATES, PAPER, SCALES, SOURCE


def test_the_paper_is_what_the_source_did():
    assert (PAPER.epochs, PAPER.long_epochs, PAPER.batch_size, PAPER.pixels) == (10, 228, 128, "/126")
    assert PAPER.mnist_widths == (200, 400, 800, 1200)
    assert SOURCE["prior.scale"] == SOURCE["temperature"] == 1.0


def test_candidates_are_posteriors_with_the_full_kl():
    assert len(CANDIDATES) == 18
    assert {candidate["temperature"] for candidate in CANDIDATES} == {1.0}
    for settings in SCALES.values():
        assert json.loads(json.dumps(settings.candidates)) == settings.candidates
