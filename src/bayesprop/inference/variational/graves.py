"""Graves 2011: variances of independent Gaussian weights from the squares of the gradients of single rows.

Approximates the posterior by q(w) = prod_i N(m_i, s_i^2), as Bayes by Backprop does, and differs in how the likelihood
moves s_i. With l_n = log p(y_n | x_n, w) and w drawn from q, or at its mean,

    d E sum l_n / d m_i    =  E sum_n d l_n / d w_i                                              (paper's equation 16)
    d E sum l_n / d s_i^2  =  (1 / 2) E sum_n d^2 l_n / d w_i^2  ~  -(1 / 2) E sum_n (d l_n / d w_i)^2     (equation 17)

The second derivative is replaced by minus the square of the first, which agree on average where the model is right: the
gradient of a variance is always of one sign and has little noise, but is wrong by as much as the model is. Choose it to
repeat the paper, or where the scales of Bayes by Backprop are too noisy to learn. It needs a gradient for each row,
(rows, columns) numbers, and costs as many passes over the weights.

With the prior p and n of N rows the loss is that of Bayes by Backprop,

    loss = [ k T KL(q || p) - (N / n) sum_rows E l_n ] / N,    s = log(1 + exp(rho)),                               (1)

and moves mean and rho. It rests, for N(0, c^2), where 1 / s_i^2 = 1 / c^2 + E sum_n (d l_n / d w_i)^2.

What differs from the paper: the loss is divided by N; the prior is the model's, where the paper sets the mean and the
variance of a normal prior to those of all weights; steps are Adam's.

Reference: Graves, "Practical Variational Inference for Neural Networks", NeurIPS 2011.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesprop.errors import ConfigurationError
from bayesprop.inference.method import About, Info, Method, check_particles
from bayesprop.inference.optimizers import ColumnOptimizer, as_optimizer
from bayesprop.inference.schedules import Cosine, Schedule
from bayesprop.inference.starting_point import Start, rho_of, starting_means, starting_scales
from bayesprop.inference.variational.bayes_by_backprop import MeanFieldState
from bayesprop.inference.variational.gradients import divergence_gradients, scales
from bayesprop.inference.variational.kl_weights import KLWeights, as_weights
from bayesprop.model import Batch, Model, Place
from bayesprop.posteriors import DiagonalGaussian
from bayesprop.rng import Rng, Stream

__all__ = ["Graves", "row_gradients"]

HELD = 1 << 24  # numbers of gradients of single rows that are held at once


@dataclass(frozen=True)
class Graves(Method[MeanFieldState]):
    """Equations of the module's docstring.

    Args:
        learning_rate: step size of mean and rho, a number or one for each particle.
        optimizer: "adam", "momentum", an optimiser of `inference.optimizers` or a class of `torch.optim`.
        group: rows whose gradients are added before they are squared. More than one is cheaper, and right where the
            gradients of rows are independent and 0 on average, as they are at the end. A network with batch statistics
            takes all rows of a minibatch, which it cannot evaluate one by one.
        at_mean: gradients at the mean of q in the place of a draw (section 4 of the paper: what the first order of a
            Taylor expansion leaves).
        kl_weights: "warmup" (0 to 1 over the first half of the training), "uniform", "geometric" or a function: k.
        temperature: T, a number or one for each particle.
        initial_mean, initial_scale: where q starts; see `starting_means`.
        schedule: factor on the learning rate as a function of the training's progress.

    >>> Graves(group=4).group
    4
    """

    about: ClassVar[About | None] = About(
        approximates="the posterior by an independent Gaussian for each weight",
        cost="3 steps for a small network, 13 for a large one with groups of 8 rows",
        choose="repeating the paper; variances that are learnt with little noise",
    )
    learning_rate: float | Tensor = 3e-3
    optimizer: str | ColumnOptimizer | type[torch.optim.Optimizer] = "adam"
    group: int = 1
    at_mean: bool = False
    kl_weights: str | KLWeights = "warmup"
    temperature: float | Tensor = 1.0
    initial_mean: Start = "fan_in"
    initial_scale: float | Tensor = 0.02
    schedule: Schedule = Cosine()

    per_particle = frozenset({"learning_rate", "kl_weights", "temperature", "initial_scale", "schedule"})

    def __post_init__(self) -> None:
        limits = (("learning_rate", self.learning_rate), ("initial_scale", self.initial_scale), ("group", self.group))
        faults = [
            f"{name} must be positive, got {value}"
            for name, value in limits
            if not bool(torch.as_tensor(value > 0).all())
        ]
        if not bool(torch.as_tensor(self.temperature >= 0).all()):
            faults.append(f"temperature must not be negative, got {self.temperature}")
        if faults:
            raise ConfigurationError(
                "Graves cannot work like this: " + "; ".join(faults), write="Graves(learning_rate=1e-3)"
            )
        as_optimizer(self.optimizer)
        as_weights(self.kl_weights)

    def resolved(self) -> Graves:
        return replace(self, optimizer=as_optimizer(self.optimizer), kl_weights=as_weights(self.kl_weights))

    # -- the functions of a method ------------------------------------------------------------------------------------

    def init(self, model: Model, rng: Rng) -> MeanFieldState:
        check_particles(self, rng.particles)
        mean = starting_means(model, rng, self.initial_mean)
        rho = rho_of(starting_scales(model, mean, self.initial_scale))
        moments = as_optimizer(self.optimizer).init({"mean": mean, "rho": rho})
        return MeanFieldState(mean, rho, moments, model.initial_buffers(rng.particles))

    def numbers(self, place: Place, step: int | Tensor) -> tuple[Any, ...]:
        """The learning rate, and k T."""
        weight = self.temperature * as_weights(self.kl_weights)(place.index, place.count, place.progress)
        return self.learning_rate * self.schedule(place.progress), weight

    def update(self, model: Model, state: MeanFieldState, batch: Batch, rng: Rng) -> tuple[MeanFieldState, Info]:
        rate, weight = self.numbers(batch, rng.step) if batch.numbers is None else batch.numbers
        weight = weight.to(state.mean).reshape(-1, 1) if isinstance(weight, Tensor) and weight.dim() else weight
        width = state.rho.shape[1]
        std, slope = scales(state.rho)
        noise = rng.normal(width, Stream.WEIGHTS, dtype=state.mean.dtype)
        theta = state.mean.clone()
        if not self.at_mean:
            theta[:, :width] += std * noise[:, 0]
        group = batch.rows if _mixes_rows(model) else min(self.group, batch.rows)
        value, gradient, squares = row_gradients(model, theta, state.buffers, batch, group)
        kl_mean, kl_std = divergence_gradients(model, state.mean[:, :width], std, noise)
        mean = gradient.mul_(-1.0 / batch.rows)
        mean[:, :width] += weight / batch.num_data * kl_mean
        rho = slope * (std * squares[:, :width] / batch.rows + weight / batch.num_data * kl_std)
        optimizer, rates = as_optimizer(self.optimizer), {"mean": rate, "rho": rate}
        optimizer.step(
            {"mean": state.mean, "rho": state.rho}, {"mean": mean, "rho": rho}, state.moments, rates, rng.step
        )
        return state, Info(value * (batch.num_data / batch.rows))

    def posterior(self, model: Model, state: MeanFieldState) -> DiagonalGaussian:
        buffers = {name: buffer.clone() for name, buffer in state.buffers.items()}
        return DiagonalGaussian(model, state.mean.clone(), scales(state.rho)[0], buffers)

    def memory(self, model: Model, particles: int, rows: int) -> int:
        """Bytes of the state, the gradients of single rows that are held at once with the weights that they are by,
        and buffers."""
        layout, size = model.layout, torch.finfo(model.dtype).bits // 8
        kept = as_optimizer(self.optimizer).init({"mean": torch.zeros(1, 1)})
        moments = sum(moment.dim() == 2 for moment in kept.values())
        lanes = min(-(-rows // self.group), max(1, HELD // (particles * layout.size)))
        columns = (layout.size + layout.latent) * (1 + moments) + (2 + 2 * lanes) * layout.size
        buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers.values())
        return particles * (size * columns + buffers)


def row_gradients(
    model: Model, theta: Tensor, buffers: dict[str, Tensor], batch: Batch, group: int
) -> tuple[Tensor, Tensor, Tensor]:
    """sum_n l_n (particles,), its gradient by theta, and the sum of the squares of the gradients of groups of rows
    (particles, columns) each.

    Each group is a lane of its own. The last group may be smaller than the others.
    """
    particles, columns = theta.shape
    value, total, squares = theta.new_zeros(particles), torch.zeros_like(theta), torch.zeros_like(theta)
    whole, rest = divmod(batch.rows, group)
    most = max(1, HELD // (particles * columns))
    pieces = [(first * group, min(most, whole - first), group) for first in range(0, whole, most)]
    pieces += [(whole * group, 1, rest)] if rest else []
    for start, lanes, size in pieces:
        rows = slice(start, start + lanes * size)

        def cut(tensor: Tensor, rows: slice = rows, lanes: int = lanes, size: int = size) -> Tensor:
            part = tensor[:, rows]
            return part.reshape(particles * lanes, size, *part.shape[2:])

        held = {n: b.repeat_interleave(lanes, 0) for n, b in buffers.items()}
        leaf = theta.detach().repeat_interleave(lanes, 0)[:, None].requires_grad_(True)
        one = Batch(pytree.tree_map(cut, batch.inputs), cut(batch.targets), batch.num_data)
        with torch.enable_grad():
            each = model.log_likelihood(leaf, held, one)
            (found,) = torch.autograd.grad(each.sum(), leaf, materialize_grads=True)
        found = found.reshape(particles, lanes, columns)
        value += each.detach().reshape(particles, lanes).sum(1)
        total += found.sum(1)
        squares += found.square().sum(1)
        for name, stack in held.items():
            stack = stack.reshape(particles, lanes, *stack.shape[1:])
            buffers[name].copy_(stack.mean(1) if stack.is_floating_point() else stack[:, 0])
    return value, total, squares


def _mixes_rows(model: Model) -> bool:
    """Whether a row's output depends on the other rows of its minibatch: batch statistics."""
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.network.modules())
