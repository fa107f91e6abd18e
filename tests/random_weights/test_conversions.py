"""With no spread every conversion is the original network: nothing that a layer was configured with is lost.

Each network goes through `Model` as a user's would, and is evaluated for each estimator with scales of zero; then once
more for six lanes at a time. Arguments are odd on purpose: strides, paddings and groups that a conversion could forget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayesprop import likelihoods
from bayesprop import random_weights as rw
from bayesprop.model import Model

ESTIMATORS = [rw.SharedWeights(), rw.LocalReparameterization(), rw.Flipout()]


class TimeFirst(nn.Module):
    """A layer that wants (time, examples, features), for inputs (examples, time, features)."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        result = self.layer(x.transpose(0, 1))
        return (result[0] if isinstance(result, tuple) else result).transpose(0, 1)


class Attention(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, **options)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class Tied(nn.Module):
    """Embedding and output layer are one parameter under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 4), nn.Linear(4, 7)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embedding(x)))


class Siamese(nn.Module):
    """One module under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(4, 4)
        self.right = self.left

    def forward(self, x: Tensor) -> Tensor:
        return self.left(x) - torch.tanh(self.right(x.flip(1)))


def _normed(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv1d(4, 6, 3), norm, nn.Tanh(), nn.Flatten(), nn.Linear(36, 2))


def _encoder(**options: Any) -> nn.Module:
    return nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, **options)


NUMBERS, SEQUENCES, IMAGES = (5, 4), (5, 8, 4), (3, 4, 7, 6)
CONVOLUTIONS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=3, padding=2, groups=2), (3, 4, 8)),
    "conv1d circular": (lambda: nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular", groups=4), (3, 4, 8)),
    "conv2d": (lambda: nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 2), (1, 2), groups=2), IMAGES),
    "conv2d reflect": (lambda: nn.Conv2d(4, 3, 3, padding=(1, 2), padding_mode="reflect", bias=False), IMAGES),
    "conv2d replicate, same": (lambda: nn.Conv2d(4, 3, (3, 2), padding="same", padding_mode="replicate"), IMAGES),
    "conv3d": (lambda: nn.Conv3d(2, 4, (1, 2, 3), (1, 3, 2), (0, 1, 1), groups=2), (3, 2, 3, 4, 5)),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(4, 6, 3, 3, 1, output_padding=2, groups=2), (3, 4, 5)),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(4, 3, (3, 2), (2, 3), output_padding=(1, 2)), IMAGES),
    "conv_transpose3d": (lambda: nn.ConvTranspose3d(2, 3, 2, stride=2, output_padding=1), (3, 2, 2, 3, 2)),
}
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    **CONVOLUTIONS,
    "root linear": (lambda: nn.Linear(4, 3), NUMBERS),
    "linear without bias": (lambda: nn.Linear(4, 3, bias=False), SEQUENCES),
    "prelu": (lambda: nn.Sequential(nn.Linear(4, 3), nn.PReLU(3), nn.Linear(3, 2)), NUMBERS),
    "layer norm": (lambda: _normed(nn.LayerNorm(6)), (5, 4, 8)),
    "batch norm": (lambda: _normed(nn.BatchNorm1d(6, momentum=0.3)), (5, 4, 8)),
    "group norm": (lambda: _normed(nn.GroupNorm(3, 6)), (5, 4, 8)),
    "lstm": (lambda: TimeFirst(nn.LSTM(4, 3, num_layers=2, bidirectional=True)), SEQUENCES),
    "gru": (lambda: TimeFirst(nn.GRU(4, 3, num_layers=2, bidirectional=True)), SEQUENCES),
    "attention": (lambda: Attention(add_bias_kv=True), SEQUENCES),
    "attention of other widths": (lambda: Attention(kdim=4, vdim=4, bias=False), SEQUENCES),
    "transformer": (lambda: _encoder(batch_first=True), SEQUENCES),
    "transformer, norm first": (lambda: TimeFirst(_encoder(norm_first=True, activation="gelu")), SEQUENCES),
    "transformer of two": (lambda: nn.TransformerEncoder(_encoder(batch_first=True), 2), SEQUENCES),
    "siamese": (Siamese, NUMBERS),
    "embedding": (lambda: nn.Embedding(7, 3, padding_idx=2), ()),
    "tied": (Tied, ()),
}


def _case(name: str, dtype: torch.dtype) -> tuple[nn.Module, Tensor]:
    make, shape = NETWORKS[name]
    generator = torch.Generator().manual_seed(2)
    torch.manual_seed(0)  # initial weights of the test networks
    if not shape:
        return make().to(dtype), torch.randint(0, 7, (4, 5), generator=generator)
    return make().to(dtype), torch.randn(*shape, dtype=dtype, generator=generator)


def _rounding(dtype: torch.dtype) -> dict[str, float]:
    return {"rtol": 32 * torch.finfo(dtype).eps, "atol": 32 * torch.finfo(dtype).eps}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", NETWORKS)
def test_without_spread_it_is_the_network(name, training, dtype):
    network, inputs = _case(name, dtype)
    model = Model(network, likelihood=likelihoods.Gaussian(scale=1.0))
    model.probe(model.prepare_inputs(inputs), None)
    model.set_mode(training)
    expected = network.train(training)(inputs)
    means = {block.name: network.get_parameter(block.name).detach() for block in model.layout.of_kind("random")}
    scales = {name: torch.zeros_like(mean) for name, mean in means.items()}
    for estimator in ESTIMATORS:
        source = rw.NoiseSource(torch.tensor([3, 0]))
        weights = rw.randomize(model.plan(estimator), estimator, means, scales, {}, source)
        buffers = {name: buffer[0] for name, buffer in model.initial_buffers(1).items()}
        output = model.forward(weights, buffers, inputs)
        assert (type(output), output.dtype, output.device) == (Tensor, dtype, expected.device)
        torch.testing.assert_close(output, expected, **_rounding(dtype))
        assert source.requests > 0  # noise there was
        for buffer_name, buffer in network.named_buffers():
            torch.testing.assert_close(buffers[buffer_name], buffer, **_rounding(dtype))


@pytest.mark.parametrize("name", NETWORKS)
def test_six_lanes_are_six_networks(name):
    """Lanes with weights of their own, by vmap or in a loop, against the network with those weights loaded."""
    network, inputs = _case(name, torch.float64)
    model = Model(network, likelihood=likelihoods.Gaussian(scale=1.0))
    model.probe(model.prepare_inputs(inputs), None)
    generator = torch.Generator().manual_seed(5)
    theta = 0.4 * torch.randn(2, 3, model.layout.size, dtype=torch.float64, generator=generator)
    outputs = model.outputs(theta, model.initial_buffers(2), inputs)
    network.eval()
    for particle in range(2):
        for draw in range(3):
            named = model.weights(theta[particle, draw])
            with torch.no_grad():
                for parameter_name, parameter in network.named_parameters():
                    parameter.copy_(named[parameter_name])
            torch.testing.assert_close(outputs[particle, draw], network(inputs), rtol=1e-10, atol=1e-12)


def test_the_networks_above_are_converted_as_a_whole():
    """No parameter is left behind and none is there twice, not even that of a layer at the root."""
    assert len(NETWORKS) == 25
    for name in NETWORKS:
        network, _ = _case(name, torch.float32)
        model = Model(network, likelihood=likelihoods.Gaussian(scale=1.0))
        parameters = dict(network.named_parameters())
        assert [block.name for block in model.layout.blocks] == list(parameters)
        assert model.layout.random == sum(parameter.numel() for parameter in parameters.values())
        assert list(model.network.state_dict()) == list(network.state_dict())
