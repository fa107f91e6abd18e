import pytest
import torch
from torch import nn

from bayesprop import likelihoods, priors
from bayesprop.model import Model
from bayesprop.posteriors import Context, DiagonalGaussian
from bayesprop.report import shared
from bayesprop.report.shared import (
    percent_text,
    provenance_section,
    signal_to_noise,
    training_section,
    weights_section,
)


def test_percent_text_stays_in_one_piece():
    assert [percent_text(0.984), percent_text(0.5, 0), percent_text(1.0)] == ["98.4\xa0%", "50\xa0%", "100.0\xa0%"]


def test_training_with_validation_has_two_curves(class_posterior):
    section = training_section(class_posterior)
    assert section is not None
    assert [block.title for block in section.blocks] == ["Learning curve", "Validation rows"]
    assert "for all 300 training rows" in section.blocks[0].caption


def test_training_without_validation_has_its_end_in_numbers(class_posterior):
    keys = ("epoch", "step", "log_likelihood", "kl", "elbo")
    history = class_posterior.context.history
    class_posterior.context.history = [{key: entry[key] for key in keys} for entry in history]
    section = training_section(class_posterior)
    assert section is not None
    plot, table = section.blocks
    assert plot.kind == "plot"
    # 10 nats of misfit and 90 of KL for 300 rows and 195 weights.
    assert table.rows == [
        ("epochs", "80"),
        ("steps", "320"),
        ("data misfit for each row", "0.0333 nats"),
        ("KL for each row", "0.3 nats"),
        ("KL for each weight", "0.462 nats"),
    ]


def test_a_method_without_a_kl_has_a_section_all_the_same(class_posterior):
    class_posterior.context.history = [{"epoch": 1, "log_likelihood": -3.0}]
    section = training_section(class_posterior)
    assert section is not None
    assert section.blocks[1].rows == [("epochs", "1"), ("data misfit for each row", "0.01 nats")]


def test_without_a_history_there_is_no_section(class_posterior):
    class_posterior.context.history = []
    assert training_section(class_posterior) is None


def trend(elbos):
    return shared._trend([{"epoch": i, "elbo": value} for i, value in enumerate(elbos)])


def test_whether_the_training_had_arrived():
    """Ten reports in each tenth; noise of 10 nats has a standard error of 10 sqrt(2 / 10) = 4.5 in the difference."""
    noise = 10 * torch.randn(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    flat = [-1000 + value for value in noise.tolist()]
    arrived = "−ELBO did not fall any more over the last tenth of the training."
    assert trend(flat) == arrived
    falling = [value + (200.0 if i >= 90 else 0.0) for i, value in enumerate(flat)]
    share = (sum(falling[90:]) - sum(falling[80:90])) / -sum(falling[80:90])
    assert 0.18 < share < 0.22
    assert trend(falling) == (
        f"−ELBO still fell by {100 * share:.0f}\xa0% over the last tenth of the training: a longer one may lower it "
        "further."
    )
    worse = [value - (200.0 if i >= 90 else 0.0) for i, value in enumerate(flat)]
    assert trend(worse) == arrived
    loud = [-1000.0 + 100.0 * (-1) ** i + (60.0 if i >= 90 else 0.0) for i in range(100)]
    assert trend(loud) == arrived, "6 % is less than two standard errors of 100 sqrt(2 / 10) = 45 nats"
    tiny = [-1000.0 + (5.0 if i >= 90 else 0.0) for i in range(100)]
    assert trend(tiny) == arrived, "half a percent is nothing, however exact"
    assert trend(falling[:29]) == "", "too few reports to say"


def test_signal_to_noise_is_a_ratio_of_moments(class_posterior):
    ratios = signal_to_noise(class_posterior)
    assert {name: ratio.numel() for name, ratio in ratios.items()} == {"weight": 192, "bias": 3}
    mean, std = class_posterior.moments()
    expected = (mean.abs() / std)[0]
    torch.testing.assert_close(torch.cat(list(ratios.values())), expected, rtol=1e-12, atol=0)


def test_weights_of_a_learnt_scale_are_multiplied_by_it():
    """A non-centred column is z, the weight is scale * z: its own moments count."""
    model = Model(
        nn.Linear(1, 1, bias=False).double(),
        likelihood=likelihoods.Gaussian(scale=1.0),
        prior=priors.Normal(scale=priors.HalfNormal(1.0)),
    )
    assert not model.bound_prior.centred
    mean = torch.tensor([[2.0, 0.5]], dtype=torch.float64)
    posterior = DiagonalGaussian(model, mean, torch.tensor([[0.5, 0.4]], dtype=torch.float64), {}, Context())
    (ratio,) = signal_to_noise(posterior).values()
    expected = (posterior.mean("weight").abs() / posterior.std("weight")).reshape(1)
    torch.testing.assert_close(ratio, expected)
    assert abs(float(ratio) - 4.0) > 0.5


def test_the_table_of_weights(class_posterior):
    section = weights_section(class_posterior)
    assert section is not None
    plot, table = section.blocks
    mean, std = class_posterior.moments()
    below = (mean.abs() < std).double()[0]
    assert f"({percent_text(below.mean().item(), 0)} of them)" in plot.caption
    assert "195 weights" in plot.caption
    ratio = (mean / std).abs()[0]
    assert table.rows == [
        ("weight", "3×64", "192", f"{ratio[:192].median().item():.2g}", percent_text(below[:192].mean().item(), 0)),
        ("bias", "3", "3", f"{ratio[192:].median().item():.2g}", percent_text(below[192:].mean().item(), 0)),
    ]


def test_a_population_shows_the_weights_of_all_its_members(class_posterior):
    double = DiagonalGaussian(
        class_posterior.model, *(torch.cat((t, t)) for t in class_posterior.moments()), {}, Context()
    )
    assert {name: ratio.numel() for name, ratio in signal_to_noise(double).items()} == {"weight": 384, "bias": 6}


def test_only_the_noisiest_of_many_parameters_are_listed():
    network = nn.Sequential(*[nn.Linear(1, 1, bias=False) for _ in range(40)])
    model = Model(network, likelihood=likelihoods.Gaussian(scale=1.0))
    mean = torch.arange(40.0, 0.0, -1.0)[None]
    posterior = DiagonalGaussian(model, mean, torch.ones(1, 40), {}, Context())
    section = weights_section(posterior)
    assert section is not None
    table = section.blocks[1]
    assert [row[0] for row in table.rows] == [f"{i}.weight" for i in range(39, 9, -1)]
    assert table.caption.endswith("The 30 noisiest of 40 parameters.")


def test_a_point_has_no_noise_to_show(line):
    assert signal_to_noise(line) == {}
    assert weights_section(line) is None


def test_a_posterior_without_moments_is_left_alone(class_posterior, monkeypatch):
    monkeypatch.setattr(DiagonalGaussian, "capabilities", frozenset({"weights"}))
    assert weights_section(class_posterior) is None


@pytest.mark.parametrize("further", [None, {"rows of this page": 7}])
def test_provenance_is_a_table(class_posterior, further):
    (table,) = provenance_section(class_posterior, further).blocks
    assert (("rows of this page", "7") in table.rows) is (further is not None)
    assert len(table.rows) > 20
