"""Predictions of a Gaussian through the network's tangent at its mean.

A Gaussian around a mode, as a Laplace approximation makes it, is that of the network

    f_lin(x; theta) = f(x; theta*) + J(x) (theta - theta*),                                                          (1)

whose likelihood has just the curvature that was measured. The network itself bends away from (1) within the spread of
its less determined weights, so that its draws predict worse, often far worse, than the mode (Lawrence 2001; Immer,
Korzepa and Bauer 2021). A draw of (1) is one function of x, a forward pass and a derivative along theta - theta*; no
Jacobian is formed. In closed form the outputs of a row are

    f_lin(x) ~ N(f(x; theta*), J(x) S J(x)^T),                                                                       (2)

for which a Gaussian likelihood adds its variance and a classifier has MacKay's approximation,

    E softmax(f) = softmax(f_k / sqrt(1 + pi / 8 v_k))        (a sigmoid for one logit; v the diagonal of (2)).      (3)

References: Immer, Korzepa, Bauer, "Improving predictions of Bayesian neural nets via local linearization", AISTATS
2021. MacKay, "The evidence framework applied to classification networks", Neural Computation 1992.
"""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesprop import lanes
from bayesprop.data import as_inputs
from bayesprop.errors import CapabilityError
from bayesprop.likelihoods import Bernoulli
from bayesprop.model import Model
from bayesprop.posteriors.jacobian import jacobian
from bayesprop.rng import Rng

if TYPE_CHECKING:
    from bayesprop.posteriors.posterior import Posterior

    Base = Posterior
else:
    Base = object

__all__ = ["Linearised", "along", "tangent"]

ROWS = 64  # of a Jacobian at a time


@contextlib.contextmanager
def _differentiable(model: Model) -> Iterator[None]:
    """The bodies of operations that have a derivative forwards: not those of oneDNN and cuDNN for recurrent layers."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(lanes.batchable())
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings(
            "ignore", message=".*torch.jit.script", category=DeprecationWarning
        )  # torch's own rules
        if any(isinstance(module, nn.RNNBase) for module in model.network.modules()):
            warnings.filterwarnings("ignore", message="TF32 acceleration")  # said whenever oneDNN is switched
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        yield


def along(model: Model, centre: Tensor, theta: Tensor, buffers: Mapping[str, Tensor], inputs: Any) -> Tensor:
    """Equation (1) for theta (particles, draws, columns) around centre (particles, columns): (particles, draws, rows,
    ...). `buffers` are those of the particles."""
    particles, draws = theta.shape[:2]

    def lane(middle: Tensor, direction: Tensor, own: dict[str, Tensor], some: Any) -> Tensor:
        def outputs(row: Tensor) -> Tensor:
            return model.forward(model.weights(row), own, some)

        pair: Any = torch.func.jvp(outputs, (middle,), (direction,))
        return pair[0] + pair[1]

    arguments = (centre, theta - centre[:, None], dict(buffers), inputs)
    with _differentiable(model):
        return model.over_lanes(lane, arguments, ("P", "PS", "P", ""), particles, draws)


def tangent(model: Model, centre: Tensor, theta: Tensor, buffers: Mapping[str, Tensor], inputs: Any) -> Tensor:
    """The same by a Jacobian for each row: for networks with an operation that has no derivative forwards."""
    columns, found = torch.arange(model.layout.size, device=theta.device), []
    for particle in range(theta.shape[0]):
        own = {name: buffer[particle] for name, buffer in buffers.items()}
        pieces = []
        for first in range(0, pytree.tree_leaves(inputs)[0].shape[0], ROWS):
            some = pytree.tree_map(lambda t, first=first: t[first : first + ROWS], inputs)
            value, derivative = jacobian(model, centre[particle], own, some, columns)
            moved = (theta[particle] - centre[particle]) @ derivative.flatten(0, 1).T
            pieces.append(value[None] + moved.reshape(-1, *value.shape))
        found.append(torch.cat(pieces, dim=1))
    return torch.stack(found)


class Linearised(Base):
    """What Gaussians that can predict by equation (1) share; `linear` says whether this one does.

    A class has `_mean` (particles, columns) and says `times_root`.
    """

    linear: bool = False
    _mean: Tensor

    def times_root(self, particle: int, rows: Tensor) -> Tensor:
        """rows (n, columns with a distribution) times R, where R R^T is the covariance of one particle."""
        raise AssertionError("a posterior that can be linearised must define its root")

    def linearised(self) -> Self:
        """The same Gaussian, which predicts by equation (1)."""
        return self._as(True)

    def sampled(self) -> Self:
        """The same Gaussian, which predicts by the network itself."""
        return self._as(False)

    def _as(self, linear: bool) -> Self:
        found = copy.copy(self)
        found.linear, found.context = linear, copy.copy(self.context)
        return found

    def _linear_tensors(self) -> dict[str, Tensor]:
        return {"linear": torch.ones_like(self._mean[:, :1], dtype=torch.bool)} if self.linear else {}

    def evaluate(self, rng: Rng, theta: Tensor, buffers: Mapping[str, Tensor], inputs: Any, first: int) -> Tensor:
        if not self.linear:
            return super().evaluate(rng, theta, buffers, inputs, first)
        try:
            return along(self.model, self._mean, theta, self.buffers, inputs)
        except NotImplementedError:  # what torch says of an operation without a derivative forwards
            return tangent(self.model, self._mean, theta, self.buffers, inputs)

    # -- in closed form -----------------------------------------------------------------------------------------------

    def function_moments(self, inputs: Any) -> tuple[Tensor, Tensor]:
        """Equation (2) for prepared rows: means (particles, rows, K) and covariances (particles, rows, K, K) of the K
        outputs, in the units of the network."""
        model, scaling, ready = self.model, self.context.scaling, as_inputs(inputs)
        ready = model.prepare_inputs(ready if scaling is None else scaling.scale_inputs(ready))
        model.set_mode(False)
        width = model.layout.latent
        columns, means, covariances = torch.arange(width, device=model.device), [], []
        for particle in range(self.particles):
            own = {name: buffer[particle] for name, buffer in self.buffers.items()}
            for first in range(0, pytree.tree_leaves(ready)[0].shape[0], ROWS):
                some = pytree.tree_map(lambda t, first=first: t[first : first + ROWS], ready)
                value, derivative = jacobian(model, self._mean[particle], own, some, columns)
                root = self.times_root(particle, derivative.flatten(0, 1)).unflatten(0, derivative.shape[:2])
                means.append(value.flatten(1))
                covariances.append(root @ root.transpose(1, 2))
        shape = (self.particles, -1, means[0].shape[1])
        return torch.cat(means).reshape(shape), torch.cat(covariances).reshape(*shape, shape[2])

    def probit(self, inputs: Any) -> Tensor:
        """Equation (3), (rows, classes), without a draw; the mean over particles."""
        if self.model.likelihood.task != "classification":
            raise CapabilityError(
                "probit is an approximation for classes",
                received=repr(self.model.likelihood),
                write="posterior.function_moments(inputs)  # exact for a Gaussian likelihood, whose variance adds",
            )
        mean, covariance = self.function_moments(inputs)
        shrunk = mean * torch.rsqrt(1.0 + math.pi / 8.0 * covariance.diagonal(dim1=-2, dim2=-1))
        if isinstance(self.model.likelihood, Bernoulli):
            one = torch.sigmoid(shrunk)
            return torch.cat((1.0 - one, one), dim=-1).mean(0)
        return shrunk.softmax(-1).mean(0)
