"""Deep kernel learning: a Gaussian process in the place of the last layer, on features that are learnt with it.

Maximised, for a minibatch of n out of N rows, with the law q of `posteriors.deep_kernel`, is

    N / n sum_rows E_q log p(y | f(x)) - KL(q(v) || N(0, 1)) + log p(w)                                            (1)

Weights w of the features (a point, under their own prior), inducing features, the kernel's length and amplitude and the
likelihood's scales follow its gradient by Adam. q itself takes natural gradients, in its precision P = S^-1 and P m:
with the marginal N(m_i, v_i) of row i, its vector a_i, and g_i, h_i the derivatives of E log p(y_i | f) by m_i and v_i,

    P <- (1 - r) P + r (1 + N / n sum_i (-2 h_i) a_i a_i'),
    P m <- (1 - r) P m + r N / n sum_i (g_i - 2 h_i m_i) a_i,                                                      (2)

which, with Gaussian noise, all rows and r = 1, is the best q at once, and close to it with minibatches, so that kernel
and features are never learnt for a q that lags behind. Curvature is held at -2 h >= 0, and every output has its own.
The expectation is by Gauss-Hermite quadrature for one output, and from pairs of draws m + e, m - e for several.

The first step sees the data and begins where they are: inducing features are those of the batch's rows, and the length
is half of the median distance between them. With Gaussian noise a pass over the data after the last step makes (2)
exact.

References: Wilson, Hu, Salakhutdinov, Xing, "Stochastic Variational Deep Kernel Learning", NeurIPS 2016; Khan, Lin,
"Conjugate-Computation Variational Inference", AISTATS 2017 (2); Ober, Rasmussen, van der Wilk, "The Promises and
Pitfalls of Deep Kernel Learning", UAI 2021.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.inference.method import About, Info, Method
from bayesprop.inference.optimizers import Adam
from bayesprop.inference.schedules import Cosine, Schedule
from bayesprop.inference.starting_point import Start, starting_means
from bayesprop.likelihoods import Gaussian
from bayesprop.model import Batch, Model, Place
from bayesprop.posteriors import DeepKernelProcess
from bayesprop.posteriors.deep_kernel import InducingLaw, KernelName, features, head_of
from bayesprop.posteriors.gaussian_process import noise_variance
from bayesprop.rng import Rng, Stream

__all__ = ["DeepKernel", "DeepKernelState"]

NODES = 20  # of the quadrature for one output
MINIBATCH = 0.1  # r of equation (2)


@functools.cache
def _quadrature() -> tuple[Tensor, Tensor]:
    """Nodes and weights with E[g(z)] = sum_k w_k g(z_k) for a standard normal z."""
    nodes, weights = (torch.as_tensor(a) for a in np.polynomial.hermite_e.hermegauss(NODES))
    return nodes, weights / weights.sum()


@dataclass
class DeepKernelState:
    """What follows the gradient, flat (particles, ...): theta ("mean") but for its latents, these, inducing features,
    scales of the kernel; q as
    `precision` (particles, K, M, M) and `shift`, P m (particles, K, M); moments; buffers; and whether a step has seen
    the data."""

    parts: dict[str, Tensor]
    precision: Tensor
    shift: Tensor
    moments: dict[str, Tensor]
    buffers: dict[str, Tensor]
    started: Tensor


@dataclass(frozen=True)
class DeepKernel(Method[DeepKernelState]):
    """See the module's docstring.

    Args:
        inducing: M, the number of inducing features.
        kernel: "rbf", exp(-|h - h'|^2 / 2 l^2), or "linear", 1 + h . h', a Bayesian last layer.
        learning_rate: of Adam on the weights of the features.
        scale_learning_rate: of Adam on inducing features and all scales: of kernel, likelihood and priors.
        draws: pairs of draws for each row, where there are several outputs.
        initial_mean: where the weights start; see `starting_means`.
        schedule: factor on both rates over the training.

    >>> DeepKernel(inducing=32).kernel
    'rbf'
    """

    about: ClassVar[About | None] = About(
        approximates="the posterior over functions, given the features; the features are a point",
        cost="2 to 4 times the step for a small network, M^3 more for M inducing points",
        choose="calibrated regression with minibatches, and uncertainty that grows with the distance from the data",
    )
    inducing: int = 64
    kernel: KernelName = "rbf"
    learning_rate: float = 3e-3
    scale_learning_rate: float = 1e-2
    draws: int = 4
    initial_mean: Start = "fan_in"
    schedule: Schedule = Cosine()

    looks_at_host = "the first step looks at the features of its rows"

    def __post_init__(self) -> None:
        faults = []
        for key in ("inducing", "draws"):
            if getattr(self, key) < 1:
                faults.append(f"{key} must be at least 1, got {getattr(self, key)}")
        for key in ("learning_rate", "scale_learning_rate"):
            if not getattr(self, key) > 0:
                faults.append(f"{key} must be positive, got {getattr(self, key)}")
        if self.kernel not in ("rbf", "linear"):
            faults.append(f'kernel is "rbf" or "linear", got {self.kernel!r}')
        if faults:
            raise ConfigurationError("DeepKernel cannot work like this: " + "; ".join(faults), write="DeepKernel()")

    # -- the functions of a method ------------------------------------------------------------------------------------

    def init(self, model: Model, rng: Rng) -> DeepKernelState:
        head, layout, particles = head_of(model), model.layout, rng.particles
        if model.output is not None:
            raise ConfigurationError(
                "a deep kernel takes the place of the last dense layer, and of what follows it",
                received="a model with output=, which picks from what the network returns",
                write="bp.Model(network, likelihood=...)  # a network that returns its last layer",
            )
        count, outputs = self.inducing, head.out_features
        theta = starting_means(model, rng, self.initial_mean)
        for name, module in model.network.named_modules():
            if module is head:
                for block in layout.blocks:
                    if block.module == name:
                        theta[:, block.columns] = 0.0
        wide = rng.normal(count * head.in_features, Stream.INITIAL, dtype=torch.float64)[:, 0]
        law = {"dtype": torch.float64, "device": model.device}
        latents = theta[:, layout.random : layout.latent].clone()
        scales = torch.zeros(particles, 2, **law)
        parts = {"mean": theta, "latents": latents, "inducing": wide.clone(), "scales": scales}
        precision = torch.eye(count, **law).expand(particles, outputs, count, count).clone()
        shift = torch.zeros(particles, outputs, count, **law)
        started = torch.zeros(particles, 1, device=model.device)
        return DeepKernelState(parts, precision, shift, Adam().init(parts), model.initial_buffers(particles), started)

    def numbers(self, place: Place, step: int) -> tuple[float | Tensor, ...]:
        """Both learning rates."""
        factor = self.schedule(place.progress)
        return self.learning_rate * factor, self.scale_learning_rate * factor

    def update(self, model: Model, state: DeepKernelState, batch: Batch, rng: Rng) -> tuple[DeepKernelState, Info]:
        if not bool(state.started.any()):
            self._begin(model, state, batch, rng)
        leaves = {name: part.detach().clone().requires_grad_(True) for name, part in state.parts.items()}
        scale = batch.num_data / batch.rows
        with torch.enable_grad():
            law = self._law(model, leaves, state)
            theta = self._theta(model, leaves)
            rows = features(model, theta, state.buffers, batch.inputs)
            a, mean, variance = law.marginals(rows)
            value = scale * self._expected(model, theta, mean, variance, batch.targets, rng)
            objective = (value + model.log_prior(theta).double()).sum()
            by = [*leaves.values(), mean, variance]
            *found, g, h = torch.autograd.grad(objective, by, materialize_grads=True)
        gradients = {name: g.mul(-1.0 / batch.num_data) for name, g in zip(leaves, found, strict=True)}
        slow, fast = self.numbers(batch, 0)
        self._move(state, a.detach(), mean.detach(), g, h, self._share(model, batch))
        rates = {name: slow if name == "mean" else fast for name in leaves}
        Adam().step(state.parts, gradients, state.moments, rates, rng.step)
        return state, Info(value.detach())

    def posterior(self, model: Model, state: DeepKernelState) -> DeepKernelProcess:
        parts = {name: part.detach().clone() for name, part in state.parts.items()}
        buffers = {name: buffer.clone() for name, buffer in state.buffers.items()}
        return DeepKernelProcess(model, self._theta(model, parts), self._law(model, parts, state), buffers)

    def memory(self, model: Model, particles: int, rows: int) -> int:
        """Bytes of weights, law and moments, three of each, and their gradients."""
        head, count = head_of(model), self.inducing
        law = 8 * (count * head.in_features + head.out_features * count * (count + 1) + 2)
        buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers.values())
        return particles * (4 * (law + model.layout.size * torch.finfo(model.dtype).bits // 8) + buffers + 4)

    # -- pieces of the objective --------------------------------------------------------------------------------------

    @staticmethod
    def _theta(model: Model, parts: dict[str, Tensor]) -> Tensor:
        """Rows of theta with the latents in their place."""
        theta, layout = parts["mean"], model.layout
        return torch.cat((theta[:, : layout.random], parts["latents"], theta[:, layout.latent :]), dim=1)

    def _law(self, model: Model, parts: dict[str, Tensor], state: DeepKernelState) -> InducingLaw:
        """The law with these parts; q does not depend on them."""
        spread = torch.cholesky_inverse(torch.linalg.cholesky(state.precision))
        mean = (spread @ state.shift[..., None])[..., 0]
        inducing = parts["inducing"].reshape(-1, self.inducing, head_of(model).in_features)
        return InducingLaw(inducing, mean, torch.linalg.cholesky(spread), parts["scales"], self.kernel)

    def _share(self, model: Model, batch: Batch) -> float:
        """r of equation (2): 0.1 for small minibatches, falling with the schedule; the share of the rows that the batch
        has where that is more, up to a half where the likelihood is not Gaussian."""
        most = 1.0 if isinstance(model.likelihood, Gaussian) else 0.5
        share = min(batch.rows / batch.num_data, most)
        return max(share if share == 1.0 else MINIBATCH * max(self.schedule(batch.progress), 0.05), share**2)

    @staticmethod
    def _move(state: DeepKernelState, a: Tensor, mean: Tensor, g: Tensor, h: Tensor, share: float) -> None:
        """Equation (2), in place; g and h are those of all N rows."""
        curvature = (-2.0 * h).clamp_min(0.0)
        one = torch.eye(a.shape[1], dtype=a.dtype, device=a.device)
        wanted = one + (a[:, None] * curvature[:, :, None]) @ a[:, None].transpose(2, 3)
        state.precision.lerp_(wanted, share)
        state.shift.lerp_((a[:, None] @ (g + curvature * mean)[..., None])[..., 0], share)

    @torch.no_grad()
    def _begin(self, model: Model, state: DeepKernelState, batch: Batch, rng: Rng) -> None:
        """Inducing features and the kernel's length where the data are. Rows that are too few are repeated, slightly
        moved: q has a use for places beside them."""
        copies = {name: buffer.clone() for name, buffer in state.buffers.items()}
        rows = features(model, self._theta(model, state.parts), copies, batch.inputs)
        particles, count, width = rows.shape
        order = torch.arange(self.inducing, device=rows.device)
        spread = order * count // self.inducing if count >= self.inducing else order % count  # data may be sorted
        moved = state.parts["inducing"].reshape(particles, self.inducing, width) * rows.std(1, keepdim=True)
        chosen = rows[:, spread] + torch.where((order < count)[:, None], 0.0, 0.3) * moved
        state.parts["inducing"].copy_(chosen.reshape(particles, -1))
        some = rows[:, :256]
        distance = torch.cdist(some, some).flatten(1).median(1).values
        state.parts["scales"][:, 0] = (0.5 * distance).clamp_min(1e-3).log()
        state.started.fill_(1.0)

    def _expected(
        self, model: Model, theta: Tensor, mean: Tensor, variance: Tensor, targets: Tensor, rng: Rng
    ) -> Tensor:
        """sum_rows E_q log p(y | f(x)), (particles,), for marginals (particles, K, n)."""
        particles, outputs, count = mean.shape
        if outputs == 1:
            nodes, weights = (t.to(mean.device) for t in _quadrature())
            apart = nodes[None, :, None, None].expand(particles, -1, 1, 1)
        else:
            noise = rng.normal(outputs * count, Stream.WEIGHTS, draws=self.draws, dtype=torch.float64)
            noise = noise.reshape(particles, self.draws, outputs, count)
            apart = torch.cat((noise, -noise), dim=1)
            weights = torch.full((2 * self.draws,), 0.5 / self.draws, dtype=torch.float64, device=mean.device)
        drawn = (mean[:, None] + variance.sqrt()[:, None] * apart).transpose(2, 3).to(model.dtype)
        latents = model.latent_values(theta)

        def one(outputs: Tensor, labels: Tensor, own: dict[str, Tensor]) -> Tensor:
            return model.likelihood.log_prob(outputs, labels, own).double().sum()

        each = torch.func.vmap(torch.func.vmap(one, in_dims=(0, None, None)))(drawn, targets, latents)
        return each @ weights

    # -- afterwards ---------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def finish(
        self, model: Model, state: DeepKernelState, epoch: Callable[[], Iterator[Batch]], rng: Rng
    ) -> DeepKernelState:
        """Equation (2), where the noise is Gaussian: each row of the data counts once."""
        if not isinstance(model.likelihood, Gaussian) or not bool(state.started.any()):
            return state
        model.set_mode(False)
        law, theta, layout = self._law(model, state.parts, state), self._theta(model, state.parts), model.layout
        noise = noise_variance(model, theta[:, layout.random : layout.latent])[:, None, None]
        precision: Any = torch.zeros((), dtype=torch.float64, device=theta.device)
        weighted: Any = precision
        seen, expected = 0, 1
        for batch in epoch():
            rows, expected = min(batch.rows, batch.num_data - seen), batch.num_data
            if rows <= 0:
                break
            seen += rows
            a = law.across(features(model, theta, state.buffers, batch.inputs)[:, :rows])
            targets = batch.targets[:, :rows].double().reshape(len(a), rows, -1)
            precision = precision + a @ a.transpose(1, 2)
            weighted = weighted + a @ targets
        share = expected / max(1, seen)
        one = torch.eye(self.inducing, dtype=torch.float64, device=theta.device)
        state.precision.copy_((one + share * precision / noise)[:, None].expand_as(state.precision))
        state.shift.copy_((share * weighted / noise).transpose(1, 2))
        return state
