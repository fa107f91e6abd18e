"""Posteriors that are written down, not trained: what a page must say of them is known."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

from bayesprop import likelihoods
from bayesprop.inference import BayesByBackprop
from bayesprop.model import Model
from bayesprop.posteriors import Context, Delta, DiagonalGaussian

# What people may call a class; the last one has characters that no page can carry.
NAMES = ["<script>alert(1)</script>", 'a & "b" -- ]]>', "数 $x$ \x07\ud800"]

HISTORY = [
    {
        "epoch": 2 * i,
        "step": 8 * i,
        "log_likelihood": -400.0 / i,
        "kl": 50.0 + i,
        "elbo": -400.0 / i - 50.0 - i,
        "validation_nll": 1.0 / i,
        "validation_error": 0.5 / i,
        "epistemic_share": 0.2,
    }
    for i in range(1, 41)
]


def delta(network, likelihood, values, **context):
    """All mass at the given parameters, in the order of the layout."""
    model = Model(network.double(), likelihood=likelihood)
    location = torch.tensor([values], dtype=torch.float64)
    assert location.shape[1] == model.layout.size
    return Delta(model, location, {}, Context(**context))


@pytest.fixture
def blobs():
    """60 pictures of 8 x 8 pixels with labels 0, 1, 2: a soft spot, bright or faint, at one of three places."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    grid = torch.arange(8, dtype=torch.float64)
    centre = torch.tensor([1.5, 3.5, 5.5], dtype=torch.float64)[labels]
    bump = torch.exp(-0.25 * (grid - centre[:, None]).square())
    brightness = torch.linspace(0.05, 1.5, 60, dtype=torch.float64)
    pictures = brightness[:, None, None] * bump[:, :, None] * bump[:, None, :]
    pictures = pictures + 0.1 * torch.rand(60, 8, 8, generator=generator, dtype=torch.float64)
    return pictures.reshape(60, 64), labels


@pytest.fixture
def class_posterior(blobs):
    """A linear classifier whose templates are the mean pictures, with a spread; mostly right, sometimes not."""
    inputs, labels = blobs
    model = Model(nn.Linear(64, 3).double(), likelihood=likelihoods.Categorical())
    templates = torch.stack([inputs[labels == k].mean(0) for k in range(3)])
    bias = -0.5 * templates.square().sum(1)
    mean = torch.cat((templates.flatten(), bias + torch.tensor([0.0, 0.0, 1.0])))[None]
    context = Context(num_data=300, classes=list(NAMES), seed=5, method=BayesByBackprop(), history=list(HISTORY))
    return DiagonalGaussian(model, mean, torch.full_like(mean, 0.3), {}, context)


@pytest.fixture
def line():
    """y = 2 x + 1 with noise of standard deviation 1/2, and nothing unknown."""
    return delta(nn.Linear(1, 1), likelihoods.Gaussian(scale=0.5), [2.0, 1.0], num_data=100, history=list(HISTORY))


@pytest.fixture
def points():
    """40 rows on y = 2 x + 1, with noise at the mid-ranks of N(0, 1/4): honest by construction."""
    x = torch.linspace(-1, 1, 40, dtype=torch.float64)
    ranks = (torch.arange(40, dtype=torch.float64) + 0.5) / 40
    noise = 0.5 * math.sqrt(2) * torch.erfinv(2 * ranks - 1)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    return x[:, None], 2 * x + 1 + noise[order]


@pytest.fixture
def parsed():
    """Read a page as XML, and hold what every page must keep to."""

    def read(text):
        assert text.startswith("<!DOCTYPE html>")
        root = ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))
        assert not [element for element in root.iter() if element.tag.endswith("script")]
        ids = [element.get("id") for element in root.iter() if element.get("id")]
        assert len(ids) == len(set(ids))
        for element in root.iter():
            for name, value in element.attrib.items():
                assert not name.startswith("on"), f"{name} would be a script"
                if name.split("}")[-1] in ("href", "src"):
                    assert value.startswith(("#", "data:image/png;base64,")), f"{name}={value} is elsewhere"
                    assert not value.startswith("#") or value[1:] in ids
            for used in re.findall(r"url\(#([^)]*)\)", " ".join(element.attrib.values())):
                assert used in ids
        assert "http" not in "".join(root.itertext())
        assert not re.search(r"@import|src=\"http|url\((?!#)", text)
        return root

    return read
