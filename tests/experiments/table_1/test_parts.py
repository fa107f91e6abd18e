import torch

from bayesprop import priors
from bayesprop.experiments.table_1.parts import ROWS, choice_epochs, parts, setup
from bayesprop.experiments.table_1.settings import PAPER, SMOKE
from bayesprop.inference import MLE, BayesByBackprop, Constant, Cosine


def test_a_choice_for_each_row_and_a_part_for_each_cell():
    found = parts(PAPER)
    names = [part.name for part in found]
    assert names[: len(ROWS)] == [f"choose-{row}" for row in ROWS]
    assert names[6:10] == ["sgd-400", "dropout-400", "gaussian-400", "mixture-400"]
    assert names[-1] == "mixture-full-1200", "what may be left out comes last"
    assert len(names) == 6 + 12 + 2 * len(PAPER.full_widths)
    assert all(part.needs == (f"choose-{part.name.rpartition('-')[0]}",) for part in found[6:])


def test_how_long_candidates_are_trained():
    epochs = {row: choice_epochs(PAPER, row) for row in ROWS}
    assert epochs == {
        "sgd": 60,
        "dropout": 60,
        "gaussian": 200,
        "mixture": 600,
        "gaussian-full": 200,
        "mixture-full": 200,
    }
    assert choice_epochs(SMOKE, "mixture") == SMOKE.choice_epochs


def test_networks_have_the_weights_of_the_paper():
    counts = [setup(PAPER, "mixture", width)[0].layout.size for width in (400, 800, 1200)]
    assert counts == [478_410, 1_276_810, 2_395_210]


def test_methods_and_priors():
    kinds = {row: setup(PAPER, row, 20) for row in ROWS}
    assert isinstance(kinds["mixture"][0].prior, priors.ScaleMixture)
    assert isinstance(kinds["gaussian-full"][0].prior, priors.Normal)
    for row in ("sgd", "dropout"):
        method = kinds[row][1]
        assert isinstance(method, MLE)
        assert method.schedule == Constant()
    assert isinstance(kinds["mixture"][1], BayesByBackprop)
    assert kinds["mixture"][1].schedule == Cosine()
    rates = [m.p for m in kinds["dropout"][0].network.modules() if isinstance(m, torch.nn.Dropout)]
    assert rates == list(SMOKE.dropout)
