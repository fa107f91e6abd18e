"""What a page says of weights whose moments are known."""

from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from bayesprop import likelihoods, priors
from bayesprop.model import Model
from bayesprop.posteriors import Context, Delta, DiagonalGaussian
from bayesprop.report.shared import percent_text
from bayesprop.report.weights import pruning_section, signal_to_noise, weights_section


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
    plot, _, table = section.blocks
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
    _, table = section.blocks
    assert [row[0] for row in table.rows] == [f"{i}.weight" for i in range(39, 9, -1)]
    assert table.caption.endswith("The 30 noisiest of 40 parameters.")


def test_a_point_has_no_noise_to_show(line):
    assert signal_to_noise(line) == {}
    assert weights_section(line) is None


def test_a_point_with_many_weights_shows_them():
    model = Model(nn.Linear(10, 10).double(), likelihood=likelihoods.Gaussian(scale=1.0))
    section = weights_section(Delta(model, torch.linspace(-1, 1, 110, dtype=torch.float64)[None], {}))
    assert section is not None
    (plot,) = section.blocks
    assert [text.get_text() for text in plot.figure.axes[0].get_legend().get_texts()] == ["means"]


def test_a_posterior_without_moments_is_left_alone(class_posterior, monkeypatch):
    monkeypatch.setattr(DiagonalGaussian, "capabilities", frozenset({"weights"}))
    assert weights_section(class_posterior) is None


def test_densities_of_the_means_and_of_a_draw(class_posterior):
    section = weights_section(class_posterior)
    assert section is not None
    plot = section.blocks[1]
    (axes,) = plot.figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["means", "one draw"]
    assert "195 weights" in plot.caption
    for patch in axes.patches:
        heights, edges, _ = patch.get_data()
        np.testing.assert_allclose((heights * np.diff(edges)).sum(), 1.0)


def test_pruning_is_a_figure_and_a_table():
    scores = [
        SimpleNamespace(by=by, share=share, left=left, at_means=0.01 + share / 10, by_draws=0.02 + share / 10)
        for by in ("signal_to_noise", "magnitude")
        for share, left in ((0.0, 1000), (0.5, 500))
    ]
    section = pruning_section(scores)
    plot, table = section.blocks
    assert table.rows == [
        ("signal to noise", "0\xa0%", "1,000", "1.00\xa0%", "2.00\xa0%"),
        ("signal to noise", "50\xa0%", "500", "6.00\xa0%", "7.00\xa0%"),
        ("magnitude", "0\xa0%", "1,000", "1.00\xa0%", "2.00\xa0%"),
        ("magnitude", "50\xa0%", "500", "6.00\xa0%", "7.00\xa0%"),
    ]
    assert len(plot.figure.axes[0].get_lines()) == 4
    table = pruning_section(scores, score="RMSE", shares=False).blocks[1]
    assert table.header[3:] == ("RMSE of the means", "RMSE of draws")
    assert table.rows[1][3] == "0.06"
