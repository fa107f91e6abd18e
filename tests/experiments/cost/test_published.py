from bayesprop.experiments.cost.parts import KINDS
from bayesprop.experiments.cost.published import EPOCHS, RATIO


def test_seconds_of_others():
    assert 3600.0 / EPOCHS["mixture-2", 400][0].value == 75.0
    assert round(3600.0 / EPOCHS["mixture-2", 1200][0].value) == 35
    assert EPOCHS["gaussian", 400][0].value == 112.0
    assert {kind for kind, _ in EPOCHS} <= KINDS.keys()
    assert (RATIO.value, RATIO.mark) == (2.0, "P")
