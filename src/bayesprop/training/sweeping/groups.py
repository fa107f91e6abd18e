"""Settings of one structure are trained together: groups, and the model and method of the particles in them."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesprop.assembly import bind_prior
from bayesprop.data import Data, Stream
from bayesprop.errors import BayespropError, ConfigurationError
from bayesprop.inference import population
from bayesprop.inference.method import Method, state_tensors
from bayesprop.model import Model
from bayesprop.posteriors import Context, Posterior
from bayesprop.priors import population as prior_population
from bayesprop.rng import Rng
from bayesprop.training.arguments import rows_per_step
from bayesprop.training.evaluation import prepared
from bayesprop.training.source import Source
from bayesprop.training.sweeping.members import Member

__all__ = ["Group", "grouped"]


@dataclass
class Group:
    """Members that differ in numbers and seeds only.

    `model` is that of the first, and what all have in common: network, likelihood and layout. `rows` are those of a
    minibatch, `state_bytes` those of one member's state, `held_out` the validation data as the model takes them.
    """

    members: list[Member]
    model: Model
    data: Data | Stream
    rows: int | None
    held_out: tuple[Any, Tensor]
    epochs: int
    state_bytes: int

    def seeds(self, members: Sequence[Member]) -> Rng:
        """Each member's own seeds, as it would have them alone."""
        each = [Rng.create(m.setup.seed, m.particles, self.model.device).seeds for m in members]
        return Rng(torch.cat(each))

    def source(self, seeds: Rng) -> Source:
        options = {"batch_size": self.rows, "epochs": self.epochs, "bootstrap": self.members[0].setup.method.bootstrap}
        return Source(self.data, self.model, rng=seeds, **options)

    def of(self, members: Sequence[Member]) -> tuple[Model, Method]:
        """Model and method of some members at once."""
        if len(members) == 1 and members[0].particles > 1:
            return self.alone(members[0]), members[0].setup.method
        model = copy.copy(self.model)
        blocks = model.layout.of_kind("random")
        model.prior = tuple(member.setup.prior for member in members)
        model.bound_prior = prior_population.stack([bind_prior(model.network, p, blocks) for p in model.prior])
        return model, population.together([member.setup.method for member in members])

    def alone(self, member: Member) -> Model:
        """The model of one member: what `fit` would be given."""
        model = copy.copy(self.model)
        model.prior = member.setup.prior
        model.bound_prior = bind_prior(model.network, model.prior, model.layout.of_kind("random"))
        return model

    def posteriors(self, members: Sequence[Member], whole: Posterior, context: Context) -> list[Posterior]:
        """One posterior for each member from that of the population."""
        found, start = [], 0
        for member in members:
            rows = slice(start, start + member.particles)
            tensors = {name: tensor[rows].clone() for name, tensor in whole.tensors().items()}
            buffers = {name: buffer[rows].clone() for name, buffer in whole.buffers.items()}
            found.append(whole.from_tensors(self.alone(member), tensors, buffers, self.context(member, context)))
            start = rows.stop
        return found

    def context(self, member: Member, context: Context) -> Context:
        own = copy.copy(context)
        own.num_data, own.seed, own.method = self.data.num_data, member.setup.seed, member.setup.method
        own.history = [
            {"epoch": score.epoch, "step": score.steps, "validation_nll": score.nll, self.error_name: score.error}
            for score in member.scores
        ]
        return own

    @property
    def error_name(self) -> str:
        """What `fit` calls the second score."""
        return "validation_error" if self.model.likelihood.task == "classification" else "validation_rmse"


def grouped(members: Sequence[Member], model: Model, data: Data | Stream, held_out: Data | Stream) -> list[Group]:
    """The groups of all members, in the order of their first ones; what cannot be trained is refused here."""
    models: dict[Hashable, tuple[Model, Data | Stream, tuple[Any, Tensor]]] = {}
    found: dict[Hashable, list[Member]] = {}
    parts: dict[Hashable, tuple[Hashable, int | None]] = {}
    for member in members:
        setup = member.setup
        try:
            bound = bind_prior(model.network, setup.prior, model.layout.of_kind("random"))
            rows = rows_per_step(setup.batch_size, setup.method)
            shape = (prior_population.structure(bound), population.fingerprint(setup.likelihood))
            if shape not in models:
                models[shape] = _look(_model(model, member), data, held_out, rows)
        except BayespropError as error:
            raise ConfigurationError(f"sweep: {member.describe()} cannot be trained: {error}") from error
        # A method whose particles know one another is a population by itself.
        apart = member.number if member.particles > 1 else None
        key = (shape, population.structure(setup.method), rows, setup.epochs, apart)
        found.setdefault(key, []).append(member)
        parts[key] = (shape, rows)
    return [_group(found[key], *models[shape], rows) for key, (shape, rows) in parts.items()]


def _model(model: Model, member: Member) -> Model:
    """The model with another likelihood, or with a prior of another structure."""
    return Model(
        model.network,
        likelihood=member.setup.likelihood,
        prior=member.setup.prior,
        random=model.random_patterns,
        fixed=model.fixed_patterns,
        output=model.output,
    )


def _look(
    model: Model, data: Data | Stream, held_out: Data | Stream, rows: int | None
) -> tuple[Model, Data | Stream, tuple[Any, Tensor]]:
    """What is found out about a model on its data: once, not for each population."""
    source = Source(data, model, batch_size=rows, epochs=1, rng=Rng.create(0, 1, model.device))
    outputs = source.probe()
    classes = getattr(data, "classes", None)
    inputs, targets = prepared(held_out, model, data.scaling, classes)
    model.likelihood.check(outputs[: targets.shape[0]], targets)
    return model, source.data, (inputs, targets)


def _group(
    members: list[Member], model: Model, data: Data | Stream, held_out: tuple[Any, Tensor], rows: int | None
) -> Group:
    first = members[0]
    group = Group(members, model, data, rows, held_out, first.setup.epochs or 0, 0)
    seeds = group.seeds([first])
    epochs, steps = first.setup.epochs, first.setup.method.steps
    group.epochs = Source(data, model, batch_size=rows, epochs=epochs, steps=steps, rng=seeds).epochs
    try:
        state = first.setup.method.init(group.alone(first), seeds)
        first.setup.method.posterior(group.alone(first), state).outputs(held_out[0], 1)
    except BayespropError as error:
        raise ConfigurationError(f"sweep: {first.describe()} cannot be trained: {error}") from error
    group.state_bytes = sum(tensor.numel() * tensor.element_size() for tensor in state_tensors(state).values())
    return group
