from bayesprop.experiments.units.parts import bayes, model, parts
from bayesprop.experiments.units.settings import PAPER
from bayesprop.inference import BayesByBackprop, Constant
from bayesprop.inference.variational.kl_weights import Uniform


def test_every_cell_is_trained_in_two_ways():
    names = [part.name for part in parts(PAPER)]
    assert len(names) == 2 + 2 * 8 + 2 + 2
    assert names[:3] == ["choose-mnist", "source-mnist-200", "chosen-mnist-200"]
    assert {"source-fashion-mnist-1200", "chosen-long", "sgd", "dropout"} <= set(names)
    needs = {part.name: part.needs for part in parts(PAPER)}
    assert needs["chosen-fashion-mnist-400"] == ("choose-fashion-mnist",)
    assert needs["source-mnist-400"] == ()


def test_the_source_takes_plain_steps():
    method = bayes("source")
    assert isinstance(method, BayesByBackprop)
    assert (method.optimizer, method.initial_mean, method.initial_rho) == ("sgd", 0.1, -3.0)
    assert method.schedule == Constant()
    assert method.resolved().kl_weights == Uniform()
    assert model(400).layout.size == 478_410
