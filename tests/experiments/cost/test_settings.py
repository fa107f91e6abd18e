from bayesprop.experiments.cost.settings import LAPTOP, PAPER, SMOKE


def test_only_the_largest_scale_asks_for_a_gpu():
    assert PAPER.devices == ("cpu", "cuda")
    assert SMOKE.devices == LAPTOP.devices == ("cpu",)
    assert PAPER.widths == (400, 1200)
