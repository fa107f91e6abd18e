import pytest
import torch

from bayesprop import likelihoods, priors
from bayesprop.experiments import pictures, populations, rows
from bayesprop.experiments.experiment import Bench
from bayesprop.inference import MAP, MLE, BayesByBackprop
from bayesprop.model import Model


@pytest.fixture
def bench(tmp_path):
    (tmp_path / "part").mkdir()
    return Bench(tmp_path / "part", torch.device("cpu"), {}, tmp_path)


@pytest.fixture
def split(data):
    return pictures.load("mnist", train=300, held_out=100)


def model():
    return Model(populations.dense(784, 8, 10), likelihood=likelihoods.Categorical(), prior=priors.Normal(scale=0.3))


def test_the_result_of_a_row(bench, split):
    method = BayesByBackprop(learning_rate=1e-2, initial_scale=0.1)
    values = {"temperature": 0.1}
    found = rows.measure(
        bench, model(), split, method, seeds=2, epochs=3, batch_size=64, values=values, curve_every=3, draws=8
    )
    assert (found["weights"], found["epochs"], found["chosen"]) == (model().layout.size, 3, values)
    assert len(found["test"]["error"]) == len(found["validation_error"]) == 2
    assert found["test"]["nll"] != found["test_of_the_means"]["nll"]
    assert [point["epoch"] for point in found["curves"][1]] == [3]
    assert rows.measured(found).seeds == 2
    assert rows.measured(found).values[0] == pytest.approx(100.0 * found["test"]["error"][0])
    assert rows.measured(found, "nll", of="test_of_the_means").values == tuple(found["test_of_the_means"]["nll"])
    assert rows.measured(None) is None
    assert rows.measured({"test": {"error": []}}) is None, "every seed diverged"


def test_the_choice_of_a_row(bench, split):
    candidates = [{"learning_rate": 1e-9}, {"learning_rate": 0.1}]
    found = rows.choose(bench, model(), split, MLE(optimizer="sgd"), candidates, seeds=2, epochs=4, batch_size=64)
    assert found["chosen"] == {"learning_rate": 0.1}
    assert found["errors"][1] < found["errors"][0]
    assert len(found["validation_error"]) == 4


def test_points_have_one_draw():
    assert [rows.scoring_draws(method) for method in (MLE(), MAP(), BayesByBackprop())] == [1, 1, 16]


def test_numbers_for_people():
    assert [rows.number(value) for value in (0.00033546, 2, "cosine", 0.1)] == ["0.000335", "2", "cosine", "0.1"]
