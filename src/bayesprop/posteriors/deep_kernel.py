"""A Gaussian process on the features that a network has learnt, through inducing points.

With features h(x), the inputs of the network's last dense layer, a kernel k on features and M inducing features Z,

    f_o(x) = a(x) . v_o + rest,    a(x) = L^-1 k(Z, h(x)),   L L' = k(Z, Z),    q(v_o) = N(m_o, S_o)                (1)
    E f_o(x) = a . m_o,   Cov = k(h, h') - a . a' + a' S_o a'                                                      (2)

for each output o. v is whitened: under the prior it is N(0, 1), so that KL(q || prior) is that of q(v) alone. What is
left of k beside the inducing points, k - a . a, is kept: far from all rows the process is the prior again.

Reference: Hensman, Matthews, Ghahramani, "Scalable Variational Gaussian Process Classification", AISTATS 2015.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bayesprop.errors import ConfigurationError
from bayesprop.model import Model
from bayesprop.posteriors.posterior import Context
from bayesprop.posteriors.process import Process

__all__ = ["DeepKernelProcess", "InducingLaw", "KernelName", "features", "head_of"]

KernelName = Literal["rbf", "linear"]
JITTER = 1e-6  # of the kernel's diagonal, added to k(Z, Z)


def head_of(model: Model) -> nn.Linear:
    """The last dense layer of a network, which the process takes the place of."""
    found = [module for module in model.network.modules() if type(module) is nn.Linear]
    if not found:
        raise ConfigurationError(
            "a deep kernel takes the place of the last dense layer",
            received=f"a {type(model.network).__name__} without nn.Linear",
            expected="a network that ends in one",
            write="nn.Sequential(body, nn.Linear(features, outputs))",
        )
    return found[-1]


@contextmanager
def _listening(head: nn.Linear, heard: list[Tensor]) -> Iterator[None]:
    handle = head.register_forward_pre_hook(lambda module, inputs: heard.append(inputs[0]))
    try:
        yield
    finally:
        handle.remove()


def features(
    model: Model, theta: Tensor, buffers: Mapping[str, Tensor], inputs: Any, *, shared: bool = False
) -> Tensor:
    """h(x) with the rows of theta (particles, D): float64 (particles, n, F). Inputs are (particles, n, ...), or the
    same for all particles, (n, ...), if they are `shared`. In training mode the buffers move."""
    heard: list[Tensor] = []

    def one(weights: Mapping[str, Tensor], own: Mapping[str, Tensor], rows: Any) -> Tensor:
        heard.clear()
        model.forward(weights, own, rows)
        return heard.pop()

    copies = model.spread_buffers(buffers, 1)
    with _listening(head_of(model), heard):
        arguments = (model.weights(theta[:, None]), copies, inputs)
        found = model.over_lanes(one, arguments, ("PS", "PS", "" if shared else "P"), len(theta), 1)[:, 0]
    if isinstance(buffers, dict):
        model.gather_buffers(buffers, copies)
    if found.dim() != 3:
        raise ConfigurationError(
            "a deep kernel takes one row of features for each row of the inputs",
            received=f"features {list(found.shape[1:])} before the last dense layer",
            expected="(rows, features)",
            write="a network that pools or flattens before its last nn.Linear",
        )
    return found.double()


@dataclass
class InducingLaw:
    """Z (particles, M, F), m (particles, K, M), the lower factor of S (particles, K, M, M), and `scales`
    (particles, 2): the logarithms of the kernel's length and amplitude."""

    inducing: Tensor
    mean: Tensor
    factor: Tensor
    scales: Tensor
    kernel: KernelName

    def to(self, dtype: torch.dtype) -> InducingLaw:
        """The same numbers in another precision; arithmetic is float64."""
        inducing, mean, factor, scales = (
            part.to(dtype) for part in (self.inducing, self.mean, self.factor, self.scales)
        )
        return InducingLaw(inducing, mean, factor, scales, self.kernel)

    def covariance(self, one: Tensor, other: Tensor) -> Tensor:
        """k between features (particles, n, F) and (particles, m, F)."""
        length, amplitude = (self.scales[:, i].exp()[:, None, None] for i in (0, 1))
        if self.kernel == "linear":
            return amplitude.square() * (1.0 + one @ other.transpose(1, 2))
        one, other = one / length, other / length
        square = one.square().sum(-1)[:, :, None] + other.square().sum(-1)[:, None] - 2.0 * one @ other.transpose(1, 2)
        return amplitude.square() * torch.exp(-0.5 * square.clamp_min(0.0))

    def diagonal(self, rows: Tensor) -> Tensor:
        """k(h, h): (particles, n)."""
        amplitude = self.scales[:, 1].exp()[:, None].square()
        if self.kernel == "linear":
            return amplitude * (1.0 + rows.square().sum(-1))
        return amplitude.expand(-1, rows.shape[1])

    def across(self, rows: Tensor) -> Tensor:
        """a of equation (1): (particles, M, n)."""
        own = self.covariance(self.inducing, self.inducing)
        size = JITTER * self.diagonal(self.inducing).mean(1)
        own = own + torch.diag_embed(size[:, None].expand(-1, own.shape[1]))
        return torch.linalg.solve_triangular(
            torch.linalg.cholesky(own), self.covariance(self.inducing, rows), upper=False
        )

    def marginals(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """a, and mean and variance of f at each row, (particles, K, n) each."""
        a = self.across(rows)
        rest = (self.diagonal(rows) - a.square().sum(1)).clamp_min(0.0)
        inside = (self.factor.transpose(2, 3) @ a[:, None]).square().sum(2)
        return a, self.mean @ a, rest[:, None] + inside + 1e-12

    def joint(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Equation (2): (particles, K, n) and (particles, K, n, n)."""
        a = self.across(rows)
        rest = self.covariance(rows, rows) - a.transpose(1, 2) @ a
        inside = self.factor.transpose(2, 3) @ a[:, None]
        return self.mean @ a, rest[:, None] + inside.transpose(2, 3) @ inside

    def divergence(self) -> Tensor:
        """KL(q(v) || N(0, 1)) in nats, (particles,)."""
        log_det = 2.0 * self.factor.diagonal(dim1=2, dim2=3).log().sum((1, 2))
        squares = self.factor.square().sum((1, 2, 3)) + self.mean.square().sum((1, 2))
        return 0.5 * (squares - self.mean[0].numel() - log_det)


class DeepKernelProcess(Process):
    """Equations (1) and (2). `theta` (particles, D) holds the features' weights, the scales of their priors and of the
    likelihood; the columns of the last layer are not used."""

    def __init__(
        self,
        model: Model,
        theta: Tensor,
        law: InducingLaw,
        buffers: Mapping[str, Tensor],
        context: Context | None = None,
    ) -> None:
        super().__init__(model, buffers, context)
        self.theta, self._stored = theta, law.to(model.dtype)
        self.law = self._stored.to(torch.float64)

    def tensors(self) -> dict[str, Tensor]:
        law = self._stored
        found = {"theta": self.theta, "inducing": law.inducing, "mean": law.mean, "factor": law.factor}
        linear = law.scales.new_full((len(law.scales), 1), float(law.kernel == "linear"))
        return found | {"scales": torch.cat((law.scales, linear), dim=1)}

    @classmethod
    def from_tensors(
        cls, model: Model, tensors: Mapping[str, Tensor], buffers: Mapping[str, Tensor], context: Context
    ) -> DeepKernelProcess:
        kernel: KernelName = "linear" if float(tensors["scales"][0, 2]) == 1.0 else "rbf"
        parts = (tensors["inducing"], tensors["mean"], tensors["factor"], tensors["scales"][:, :2])
        return cls(model, tensors["theta"], InducingLaw(*parts, kernel), buffers, context)

    @property
    def hyper(self) -> Tensor:
        return self.theta[:, self.model.layout.random : self.model.layout.latent]

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (self.law.mean.shape[1],)

    def joint(self, inputs: Any) -> tuple[Tensor, Tensor]:
        self.model.set_mode(False)
        return self.law.joint(features(self.model, self.theta, dict(self.buffers), inputs, shared=True))

    def features(self, inputs: Any) -> Tensor:
        """h(x) of prepared inputs (n, ...): (particles, n, F)."""
        self.model.set_mode(False)
        with torch.no_grad():
            return features(self.model, self.theta, dict(self.buffers), inputs, shared=True)

    def kl(self, draws: int = 32, *, seed: int = 0) -> Tensor:
        """KL(q || prior) of the inducing variables in nats, one number a particle, in closed form. The features are a
        point and have none."""
        return self.law.divergence()
