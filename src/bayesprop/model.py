"""A model: a network, a prior over its weights and a likelihood for its outputs.

    log p(theta, D) = sum_i log p(y_i | f(x_i; theta)) + log p(theta)                                      (1)

is the only place where the three meet. `log_joint` is on the scale of the full data: the log-likelihood of a minibatch
of n out of N rows is multiplied by N / n, the prior is not. Everything is evaluated for all particles and all draws at
once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesprop import lanes, likelihoods, priors
from bayesprop.assembly import assemble, bind_prior, copy_network
from bayesprop.data import as_inputs
from bayesprop.description import Description, describe
from bayesprop.errors import BayespropError, ConfigurationError
from bayesprop.inspection import cannot_pick, check_parts, inspect, no_tensor, refused
from bayesprop.random_weights import Estimator, Evaluation, SharedWeights, Use, make_plan

if TYPE_CHECKING:
    from bayesprop.latents import Latent

__all__ = ["Batch", "Model", "Place"]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where in a training a step is: what schedules read.

    `index` counts the minibatches of an epoch from 0 and `count` is their number; `epoch` counts from 0 to `epochs`,
    and `progress` is the share of the whole training that is done.
    """

    index: int = 0
    count: int = 1
    epoch: int = 0
    epochs: int = 1
    progress: float = 0.0


@dataclass(frozen=True)
class Batch(Place):
    """Rows for every particle: inputs (particles, rows, ...) and targets (particles, rows, ...), out of `num_data`.

    `numbers` (numbers, particles) holds what `Method.numbers` says of this place, where it is on the device already.
    """

    inputs: Any
    targets: Tensor
    num_data: int
    numbers: Tensor | None = None

    @property
    def rows(self) -> int:
        return self.targets.shape[1]


class Model:
    """Network + prior + likelihood.

    Args:
        network: any `torch.nn.Module`. It is copied; your own object is never touched.
        likelihood: how y depends on the network's output, e.g. `likelihoods.Categorical()`.
        prior: one prior for all random weights or a mapping from patterns over parameter names to priors.
        random: pattern(s) of the parameters that get a distribution; other trainable ones become point estimates.
        fixed: pattern(s) of parameters that stay as they are. Those with `requires_grad=False` always do.
        output: picks the prediction out of what the network returns, for networks that return more than one tensor.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        likelihood: likelihoods.Likelihood,
        prior: priors.Prior | Mapping[str, priors.Prior] | None = None,
        random: str | Sequence[str] = "*",
        fixed: str | Sequence[str] = (),
        output: Callable[[Any], Tensor] | None = None,
    ) -> None:
        check_parts(network, likelihood, output)
        self.network = copy_network(network)
        self.likelihood = likelihood
        self.prior: Any = priors.Normal() if prior is None else prior
        self.output = output
        self.random_patterns, self.fixed_patterns = random, fixed
        self.vectorised, self.draws_globally, self.writes_inputs, self.vmap_failure = True, False, False, ""
        self.draws_predicting = False  # whether it draws in evaluation mode, too
        self._written: frozenset[str] = frozenset()  # buffers that the network writes into when it evaluates
        self._uses: dict[str, tuple[Use, ...]] | None = None
        self._plans: dict[Estimator, dict[str, Evaluation]] = {}
        self._first: tuple[nn.Module | None, Any] = None, None
        root_trains = network.training
        self._always_eval = [m for m in self.network.modules() if root_trains and not m.training]
        for module in self.network.modules():
            if isinstance(module, nn.Embedding | nn.EmbeddingBag):
                module.sparse = False  # the prior moves every row, so that no gradient is sparse
        found = assemble(self.network, self.prior, likelihood.latents, random, fixed)
        self.layout, self.bound_prior, self.fixed_names = found.layout, found.bound_prior, found.fixed_names
        self._ties, self._padding, self.tied_padding = found.ties, found.padding, found.tied_padding
        self.buffers = {name: buffer.detach().clone() for name, buffer in self.network.named_buffers()}

    # -- what is known before training ------------------------------------------------------------------------------

    @property
    def latents(self) -> tuple[Latent, ...]:
        """Scales of hierarchical priors, then those of the likelihood, in the order of their columns."""
        return (*self.bound_prior.latents, *self.likelihood.latents)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of theta: float64 if any random weight is, float32 otherwise (also under bfloat16 weights)."""
        return torch.float64 if any(b.dtype == torch.float64 for b in self.layout.blocks) else torch.float32

    @property
    def device(self) -> torch.device:
        if self._first[0] is not self.network:  # looking for a parameter walks through all modules
            self._first = self.network, next(self.network.parameters())
        return self._first[1].device

    def to(self, device: torch.device | str) -> Model:
        """The same model on another device."""
        try:
            device = torch.empty(0, device=device).device
        except (RuntimeError, AssertionError) as error:  # no such word, or a torch that was built without it
            raise ConfigurationError(
                f"there is no device {str(device)!r} here",
                received=str(error).splitlines()[0],
                write=f'device="{torch.accelerator.current_accelerator() or "cpu"}"',
            ) from error
        if device == self.device:
            return self
        moved = copy.copy(self)
        moved.network = copy_network(self.network).to(device)
        moved._always_eval = [
            there
            for here, there in zip(self.network.modules(), moved.network.modules(), strict=True)
            if here in self._always_eval
        ]
        moved.buffers = {name: buffer.to(device) for name, buffer in self.buffers.items()}
        moved.bound_prior = bind_prior(self.network, self.prior, self.layout.of_kind("random"))
        return moved

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        memo[id(self)] = twin = object.__new__(Model)
        memo[id(self.network)] = copy_network(self.network, memo)
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    def prepare_inputs(self, inputs: Any) -> Any:
        """Inputs on the model's device and, for numbers, in its dtype; whole numbers stay only if an embedding reads
        them. One tensor of yes and no is a feature like others; among several tensors it is a mask, and stays."""
        reads_indices = any(isinstance(m, nn.Embedding | nn.EmbeddingBag) for m in self.network.modules())
        floating = next((p.dtype for p in self.network.parameters() if p.is_floating_point()), torch.float32)

        def one(tensor: Tensor) -> Tensor:
            whole = not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool
            if tensor.is_floating_point() or (whole and not reads_indices):
                return tensor.to(self.device, floating)
            return tensor.to(self.device)

        if isinstance(inputs, Tensor) and inputs.dtype == torch.bool:
            inputs = inputs.long()
        return pytree.tree_map(one, inputs)

    def initial_buffers(self, particles: int) -> dict[str, Tensor]:
        return {n: b.unsqueeze(0).repeat(particles, *[1] * b.dim()) for n, b in self.buffers.items()}

    # -- evaluation -------------------------------------------------------------------------------------------------

    def set_mode(self, training: bool) -> None:
        """Training or evaluation mode; modules that were in evaluation mode on arrival stay there."""
        if self.network.training != training:
            self.network.train(training)
            for module in self._always_eval:
                module.training = False

    def weights(self, theta: Tensor) -> dict[str, Tensor]:
        """Network parameters by name from theta (..., columns): scales of hierarchical priors are multiplied in."""
        layout = self.layout
        if not self.bound_prior.centred:
            random = self.bound_prior.weights(theta[..., : layout.latent])
            theta = torch.cat((random, theta[..., layout.random :]), dim=-1)
        return self.hold_padding(layout.unflatten(theta, ("random", "point")))

    def hold_padding(self, named: dict[str, Tensor], *, spread: bool = False) -> dict[str, Tensor]:
        """Rows of embeddings that stand for padding as the network has them, whatever theta says; their spread is 0.

        torch keeps their gradient at zero, so that they would drift to the prior, and add its noise to what is nothing.
        """
        for name, row in self._padding.items():
            if name in named:
                own = self.network.get_parameter(name).detach()
                padding = (torch.arange(own.shape[0], device=own.device) == row)[:, None]
                named[name] = torch.where(padding, torch.zeros_like(own) if spread else own, named[name])
        return named

    def latent_values(self, theta: Tensor) -> dict[str, Tensor]:
        """Constrained values of the likelihood's latents: name -> (..., *shape)."""
        found = {}
        for latent in self.likelihood.latents:
            found[latent.name] = latent.constrain(theta[..., self.layout.by_name[latent.name].columns])
        return found

    def forward(self, weights: Mapping[str, Tensor], buffers: Mapping[str, Tensor], inputs: Any) -> Tensor:
        """The output of one network. `inputs` may be a tensor, a tuple (positional) or a dict (keywords)."""
        if self.writes_inputs:
            inputs = pytree.tree_map(torch.clone, inputs)
        arguments: tuple[Any, ...] = (
            inputs if isinstance(inputs, tuple) else () if isinstance(inputs, dict) else (inputs,)
        )
        keywords = inputs if isinstance(inputs, dict) else {}
        # Tied parameters are passed under all their names: torch's own search for ties costs more than a small network.
        values = {**weights, **buffers}
        values.update({alias: values[name] for alias, name in self._ties if name in values})
        try:
            result = torch.func.functional_call(self.network, values, arguments, keywords, tie_weights=False)
        except (ValueError, IndexError) as error:  # a single row before batch statistics, an index beyond an embedding
            raise refused(self, inputs, error) from error
        if self.network.training:
            for name, buffer in buffers.items():
                # torch hands back a buffer that was replaced and not written into: self.count = self.count + 1. One of
                # another shape, or none, is a cache that the next pass makes again.
                new: Any = values[name]
                if new is not buffer and isinstance(new, Tensor) and new.shape == buffer.shape:
                    buffer.copy_(new.detach())
        if self.output is not None:
            try:
                result = self.output(result)
            except (AttributeError, IndexError, KeyError, TypeError) as error:
                raise cannot_pick(result, error) from error
        if not isinstance(result, Tensor):
            raise no_tensor(result)
        return result

    def batch_log_likelihood(
        self,
        weights: Mapping[str, Tensor],
        latents: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        inputs: Any,
        targets: Tensor,
    ) -> Tensor:
        """sum_i log p(y_i | f(x_i)) of one lane, a scalar."""
        outputs = self.forward(weights, buffers, inputs)
        return self.likelihood.log_prob(outputs, targets, latents).sum()

    def row_log_likelihood(
        self, leaves: Sequence[Tensor], rest: Tensor, buffers: Mapping[str, Tensor], batch: Batch
    ) -> Tensor:
        """The batch's log-likelihood for the one row of a single particle, given as the tensors that it consists of.

        `leaves` are the random weights, block by block and as the network takes them; `rest` are the columns behind.
        """
        layout, offset = self.layout, self.layout.random
        weights = {b.name: leaf.to(b.dtype) for b, leaf in zip(layout.of_kind("random"), leaves, strict=True)}
        for block in layout.of_kind("point"):
            weights[block.name] = rest[block.start - offset : block.stop - offset].reshape(block.shape).to(block.dtype)
        weights = self.hold_padding(weights)
        latents = {}
        for latent in self.likelihood.latents:
            block = layout.by_name[latent.name]
            latents[latent.name] = latent.constrain(rest[block.start - offset : block.stop - offset])
        own = {name: buffer[0] for name, buffer in buffers.items()}
        inputs = pytree.tree_map(lambda t: t[0], batch.inputs)
        return self.batch_log_likelihood(weights, latents, own, inputs, batch.targets[0])

    def log_likelihood(self, theta: Tensor, buffers: dict[str, Tensor], batch: Batch) -> Tensor:
        """Log-likelihood of the batch's rows for theta (particles, draws, columns): (particles, draws), differentiable.

        In training mode the buffers (BatchNorm's statistics) of each particle move, by the mean over its draws.
        """
        particles, draws = theta.shape[:2]
        arguments = (
            self.weights(theta),
            self.latent_values(theta),
            self.spread_buffers(buffers, draws),
            batch.inputs,
            batch.targets,
        )
        value = self.over_lanes(self.batch_log_likelihood, arguments, ("PS", "PS", "PS", "P", "P"), particles, draws)
        self.gather_buffers(buffers, arguments[2])
        return value

    def over_lanes(
        self, function: Callable, arguments: Sequence[Any], tags: Sequence[str], particles: int, draws: int
    ) -> Any:
        """`lanes.run` with this model's knowledge of whether its network can be batched."""
        return lanes.run(function, arguments, tags, particles=particles, draws=draws, vectorised=self.vectorised)

    def spread_buffers(self, buffers: Mapping[str, Tensor], draws: int) -> dict[str, Tensor]:
        """Each buffer for each draw: a copy of those that the network writes into, which are all while it trains."""
        written = buffers if self.network.training else self._written
        return {
            n: b.unsqueeze(1).repeat(1, draws, *[1] * (b.dim() - 1))
            if n in written
            else b.unsqueeze(1).expand(-1, draws, *b.shape[1:])
            for n, b in buffers.items()
        }

    def gather_buffers(self, buffers: dict[str, Tensor], copies: Mapping[str, Tensor]) -> None:
        if self.network.training:
            for name, stack in copies.items():
                buffers[name].copy_(stack.mean(1) if stack.is_floating_point() else stack[:, 0])

    def outputs(
        self, theta: Tensor, buffers: Mapping[str, Tensor], inputs: Any, *, buffers_of_draws: bool = False
    ) -> Tensor:
        """Network outputs for theta (particles, draws, columns) on shared inputs: (particles, draws, rows, ...).

        `buffers` are (particles, ...), or (particles, draws, ...) with `buffers_of_draws`.
        """
        each = buffers if buffers_of_draws else self.spread_buffers(buffers, theta.shape[1])
        arguments = (self.weights(theta), each, inputs)
        return self.over_lanes(self.forward, arguments, ("PS", "PS", ""), *theta.shape[:2])

    def widest_layer(self, inputs: Any) -> int:
        """Numbers that the largest layer puts out for one row: what predicting many draws at once must hold."""
        sizes = [1]

        def look(_module: nn.Module, _inputs: Any, result: Any) -> None:
            sizes.extend(t.numel() for t in pytree.tree_leaves(result) if isinstance(t, Tensor))

        hooks = [module.register_forward_hook(look) for module in self.network.modules()]
        try:
            with torch.no_grad():
                self.forward({}, {}, inputs)
        except BayespropError:
            raise
        except Exception as error:
            raise refused(self, inputs, error, expected="rows like those of training") from error
        finally:
            for hook in hooks:
                hook.remove()
        return max(sizes)

    def log_prior(self, theta: Tensor) -> Tensor:
        """log p(theta) of the unconstrained columns, hyperpriors and Jacobians included: (..., columns) to (...)."""
        value = self.bound_prior.log_density(theta[..., : self.layout.latent])
        for latent in self.likelihood.latents:
            value = value + latent.unconstrained_log_density(theta[..., self.layout.by_name[latent.name].columns])
        return value

    def log_joint(self, theta: Tensor, buffers: dict[str, Tensor], batch: Batch) -> Tensor:
        """Equation (1) on the full-data scale for theta (particles, draws, columns): (particles, draws)."""
        return batch.num_data / batch.rows * self.log_likelihood(theta, buffers, batch) + self.log_prior(theta)

    # -- a first look at the data -----------------------------------------------------------------------------------

    def probe(self, inputs: Any, targets: Tensor | None) -> Tensor:
        """One forward pass of the network as it came, on a few rows: refuse early what cannot work, learn what can.

        Finds whether the network draws from torch's global generator (dropout) and whether vmap can batch it. Returns
        the outputs; targets are checked against them.
        """
        found = inspect(self, inputs)
        self.draws_globally, self.vmap_failure = found.draws_globally, found.vmap_failure
        self.draws_predicting = found.draws_predicting
        self.vectorised = not self.vmap_failure
        self._uses, self._plans, self._written = found.uses, {}, found.written
        if targets is not None:
            self.likelihood.check(found.outputs, targets)
        return found.outputs

    def plan(self, estimator: Estimator) -> dict[str, Evaluation]:
        """How each random weight is evaluated under an estimator, and why; needs `probe` to have seen inputs."""
        if self._uses is None:
            raise ConfigurationError(
                "how weights are used is known once the model has seen inputs", write="model.describe(inputs=X[:8])"
            )
        if estimator not in self._plans:
            self._plans[estimator] = make_plan(estimator, self._uses)
        return self._plans[estimator]

    def describe(
        self, method: Any = None, inputs: Any = None, *, particles: int = 1, batch_size: int = 128
    ) -> Description:
        """Every parameter: random, point or fixed, its prior, how its operation is evaluated; and the memory needed.

        Give `inputs` (a few rows) to see how each weight is evaluated, and the `method` that will be used to know that
        under its estimator, and the bytes that training will hold.
        """
        if inputs is not None:
            self.probe(self.prepare_inputs(as_inputs(inputs)), None)
        estimator = getattr(method, "estimator", None) or SharedWeights()
        plan = self.plan(estimator) if self._uses is not None else None
        memory = None if method is None else method.memory(self, particles, batch_size)
        return describe(self, plan, memory)
