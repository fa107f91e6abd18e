"""Sources as a posterior would provide them, from given outputs."""

import pytest
import torch

from bayesprop.prediction import Prediction


def chunked(outputs, latents=None, size=4):
    """A source over outputs (S, n, ...) in chunks of `size` rows."""

    def source():
        for start in range(0, outputs.shape[1], size):
            stop = min(start + size, outputs.shape[1])
            yield slice(start, stop), outputs[:, start:stop], latents or {}

    return source


@pytest.fixture
def predict():
    """A prediction from outputs (S, n, ...)."""

    def make(outputs, likelihood, *, latents=None, size=4, **options):
        source = chunked(outputs, latents, size)
        return Prediction(source, likelihood, inputs_length=outputs.shape[1], draws=outputs.shape[0], **options)

    return make


@pytest.fixture
def normal():
    """Standard normal numbers of a seed, float64."""

    def make(*shape, seed=0):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    return make
