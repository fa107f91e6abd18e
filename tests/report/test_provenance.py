import dataclasses
import platform
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

import bayesprop
from bayesprop import likelihoods
from bayesprop.model import Model
from bayesprop.posteriors import Context, Delta
from bayesprop.report.provenance import run_table, shown


def test_everything_that_it_takes_to_run_it_again(class_posterior):
    table = run_table(class_posterior, {"rows of this page": 60})
    rows = dict(table.rows)
    assert len(rows) == len(table.rows), "no setting is named twice"
    assert table.rows[0] == ("rows of this page", "60")
    expected = {
        "network": "Linear(in_features=64, out_features=3, bias=True)",
        "random weights": "195",
        "prior": "Normal(loc=0, scale=1)",
        "likelihood": "Categorical()",
        "posterior": "DiagonalGaussian",
        "training rows": "300",
        "seed": "5",
        "epochs": "80",
        "steps": "320",
        "method": "BayesByBackprop",
        "method: temperature": "1",
        "method: clip_norm": "none",
        "method: stick_the_landing": "no",
        "bayesprop": bayesprop.__version__,
        "torch": torch.__version__,
        "Python": platform.python_version(),
    }
    assert {name: rows[name] for name in expected} == expected
    assert rows["platform"].endswith(f"cpu, {torch.get_num_threads()} threads")
    named = [name for name in rows if name.startswith("method: ")]
    assert len(named) == len(dataclasses.fields(class_posterior.context.method))


def test_a_posterior_that_knows_nothing_of_its_making(line):
    line.context.history = []
    rows = dict(run_table(line).rows)
    assert not [name for name in rows if name.startswith("method") or name in ("epochs", "steps")]
    # A file carries a description where the method held a function of somebody.
    line.context.method = {"name": "Other", "rate": 0.5}
    assert dict(run_table(line).rows)["method"] == "name: Other, rate: 0.5"


def test_a_deep_network_is_counted():
    network = nn.Sequential(*[nn.Linear(1, 1) for _ in range(13)])
    model = Model(network, likelihood=likelihoods.Gaussian(scale=1.0))
    posterior = Delta(model, torch.zeros(1, model.layout.size), {}, Context())
    assert dict(run_table(posterior).rows)["network"] == "Sequential of 13 layers"


@dataclass
class Setting:
    rate: float = 0.001
    inner: tuple = (1, None)
    hidden: int = field(default=3, repr=False)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "yes"),
        (False, "no"),
        (None, "none"),
        (3, "3"),
        (0.1 + 0.2, "0.3"),
        (1e-8, "1e-08"),
        ("adam", "adam"),
        ((), "none"),
        ([1, 2.5], "1, 2.5"),
        ({"a": 1, "b": None}, "a: 1, b: none"),
        (torch.tensor(0.25), "0.25"),
        (torch.zeros(2, 3), "tensor of shape (2, 3)"),
        (Setting(), "Setting(rate=0.001, inner=1, none)"),
        (torch.optim.SGD, "SGD"),
        (max, "max"),
        (slice(1, 2), "slice(1, 2, None)"),
    ],
)
def test_settings_as_text(value, text):
    assert shown(value) == text
