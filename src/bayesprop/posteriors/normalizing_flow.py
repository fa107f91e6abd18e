"""A normalizing flow over the weights: an independent Gaussian, bent by coupling layers.

    z ~ N(0, 1),    y = T(z),    theta = mean + std * y                                                            (1)
    log q(theta) = log N(z) - log |det dT / dz| - sum log std                                                      (2)

T is a chain of affine coupling layers (Dinh et al. 2017), each of which scales and shifts one half of the numbers by
functions of the other half, small networks of their own; it runs in both directions at the same price, so that draws
and densities are both exact. The layers are zuko's, an extra: `pip install "bayesprop[flows]"`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bayesprop.errors import ConfigurationError
from bayesprop.kernels import noise
from bayesprop.model import Model
from bayesprop.posteriors.outputs import checked_draws
from bayesprop.posteriors.posterior import Context, Posterior
from bayesprop.rng import Rng, Stream, quarantine

__all__ = ["NormalizingFlow", "Warp", "bend", "warp"]

MOMENTS = 2048  # draws that moments come from


class Warp(nn.Module):
    """T of equation (1) for `width` numbers: `layers` couplings by networks with one hidden layer of `hidden` units."""

    def __init__(self, width: int, layers: int, hidden: int) -> None:
        super().__init__()
        checked = torch.distributions.Distribution._validate_args
        try:
            flows: Any = importlib.import_module("zuko.flows")
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] != "zuko":
                raise  # it is there, but something that it needs itself is not
            raise ConfigurationError(
                "a normalizing flow needs zuko, which is not installed",
                expected='the extra "flows"',
                write='pip install "bayesprop[flows]"',
            ) from error
        finally:  # its import switches off the checks of all distributions, the user's own among them
            torch.distributions.Distribution.set_default_validate_args(checked)
        if width < 2:
            raise ConfigurationError(
                "a coupling layer needs two numbers, one to act on the other",
                received=f"{width} column with a distribution",
                write="BayesByBackprop()  # a Gaussian for each weight",
            )
        places = torch.arange(width)
        halves = places % 2 == 0, places % 2 == 1, places < width // 2, places >= width // 2
        masks = (halves[number % 4] for number in range(layers))
        with quarantine(0):  # zuko draws starting values, which are not used
            parts = [flows.GeneralCouplingTransform(width, mask=mask, hidden_features=(hidden,)) for mask in masks]
        self.parts = nn.ModuleList(parts)

    def forward(self, numbers: Tensor, inverse: bool = False) -> tuple[Tensor, Tensor]:
        """T(z), or its inverse, and the logarithm of the determinant: (..., width) and (...)."""
        total = torch.zeros_like(numbers[..., 0])
        for part in reversed(self.parts) if inverse else self.parts:
            transform = part()
            numbers, determinant = (transform.inv if inverse else transform).call_and_ladj(numbers)
            total = total + determinant
        return numbers, total

    @property
    def size(self) -> int:
        """How many parameters it has."""
        return sum(parameter.numel() for parameter in self.parameters())

    def start(self, drawn: Tensor) -> Tensor:
        """Parameters (particles, size) of the identity, from standard normal numbers of that shape: networks whose
        last layer is zero and whose others have the scale of their fan-in."""
        pieces, column = [], 0
        for name, parameter in self.named_parameters():
            piece = drawn[:, column : column + parameter.numel()]
            first = name.endswith("hyper.0.weight")
            pieces.append(piece / math.sqrt(parameter.shape[1]) if first else torch.zeros_like(piece))
            column += parameter.numel()
        return torch.cat(pieces, dim=1)


@lru_cache(maxsize=16)
def warp(width: int, layers: int, hidden: int) -> Warp:
    """The modules of a flow; what it has learnt is passed to them."""
    return Warp(width, layers, hidden)


def bend(module: Warp, parameters: Tensor, numbers: Tensor, inverse: bool = False) -> tuple[Tensor, Tensor]:
    """T for each particle: parameters (particles, size), numbers (particles, draws, width)."""
    if module.parts[0].mask.device != parameters.device:
        module = module.to(parameters.device)

    def one(row: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        pieces = row.split([parameter.numel() for parameter in module.parameters()])
        named = {n: piece.view(p.shape) for (n, p), piece in zip(module.named_parameters(), pieces, strict=True)}
        return torch.func.functional_call(module, named, (own, inverse))

    if parameters.shape[0] == 1:
        found = one(parameters[0], numbers[0])
        return found[0][None], found[1][None]
    return torch.func.vmap(one)(parameters, numbers)


class NormalizingFlow(Posterior):
    """mean (particles, columns); std (particles, W); parameters of T (particles, size); shape (particles, 2), the
    number of couplings and of their hidden units. Columns to the right of W are point estimates.

    Mean and standard deviation have no closed form: they are those of 2,048 draws, always the same ones.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset({"weights", "moments", "log_density"})

    def __init__(
        self,
        model: Model,
        mean: Tensor,
        std: Tensor,
        parameters: Tensor,
        shape: Tensor,
        buffers: Mapping[str, Tensor],
        context: Context | None = None,
    ) -> None:
        super().__init__(model, buffers, context)
        layers, hidden = shape[0].tolist()
        self._warp = warp(std.shape[1], layers, hidden)
        if parameters.shape != (mean.shape[0], self._warp.size):
            raise ConfigurationError(
                "these are not the parameters of this flow",
                received=f"parameters {list(parameters.shape)}",
                expected=f"[{mean.shape[0]}, {self._warp.size}] for {layers} layers of {hidden} units",
            )
        self._mean, self._std, self._parameters, self._shape = mean, std, parameters, shape

    def tensors(self) -> dict[str, Tensor]:
        return {"mean": self._mean, "std": self._std, "parameters": self._parameters, "shape": self._shape}

    @classmethod
    def from_tensors(
        cls, model: Model, tensors: Mapping[str, Tensor], buffers: Mapping[str, Tensor], context: Context
    ) -> NormalizingFlow:
        mean, std, parameters, shape = (tensors[name] for name in ("mean", "std", "parameters", "shape"))
        return cls(model, mean, std, parameters, shape, buffers, context)

    @torch.no_grad()
    def draw(self, rng: Rng, draws: int, first: int = 0) -> Tensor:
        width = self._std.shape[1]
        drawn = noise.normal(rng.keys(draws, first), rng.step, int(Stream.PREDICTION), width).to(self._mean.dtype)
        bent, _ = bend(self._warp, self._parameters, drawn)
        random = self._mean[:, None, :width] + self._std[:, None] * bent
        return torch.cat((random, self._mean[:, None, width:].expand(-1, draws, -1)), dim=-1)

    def moments(self) -> tuple[Tensor, Tensor]:
        theta = self.draw(self.rng(0), MOMENTS)
        return theta.mean(1), theta.std(1)

    def log_density(self, theta: Tensor) -> Tensor:
        """Equation (2) for rows of theta (particles, ..., columns), over the columns that have a distribution."""
        width = self._std.shape[1]
        rows = theta[..., :width].reshape(self.particles, -1, width)
        bent = (rows - self._mean[:, None, :width]) / self._std[:, None]
        white, determinant = bend(self._warp, self._parameters, bent, inverse=True)
        found = determinant - 0.5 * white.square().sum(-1) - 0.5 * width * math.log(2.0 * math.pi)
        return (found - self._std.log().sum(-1)[:, None]).reshape(theta.shape[:-1])

    @torch.no_grad()
    def kl(self, draws: int = 32, *, seed: int = 0) -> Tensor:
        """KL(q || prior) in nats, both terms at the same draws, one number a particle, float64."""
        theta = self.draw(self.rng(seed), checked_draws(draws, "posterior.kl(draws=32)"))
        return (self.log_density(theta) - self.model.log_prior(theta)).double().mean(1)
