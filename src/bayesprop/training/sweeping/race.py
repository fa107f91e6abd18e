"""The race of a sweep: populations trained from rung to rung, scored, cut, and kept in a file.

Everything that is stochastic in it is a function of the settings' own seeds, so that a race that is stopped and
resumed ends as one that was not, and a setting's posterior is what `fit` returns for it.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from bayesprop.errors import BayespropWarning, CheckpointError, DivergenceError
from bayesprop.posteriors import Context, Posterior
from bayesprop.training.capture import stepper
from bayesprop.training.checkpoint import Progress
from bayesprop.training.sweeping import storage
from bayesprop.training.sweeping.budget import Plan, plan
from bayesprop.training.sweeping.groups import Group
from bayesprop.training.sweeping.halving import cut, ranked, stops
from bayesprop.training.sweeping.members import Member, Score, fill, park
from bayesprop.training.sweeping.scoring import fault, score

__all__ = ["Race"]

NEVER = 2**62
SPARE = 20.0  # a checkpoint may take a twentieth of the time


@dataclass
class Race:
    """`tell` is called with a kind of event, the population's progress and more; True asks to stop."""

    groups: Sequence[Group]
    members: Sequence[Member]
    rungs: Sequence[float]
    keep: float
    winners: int
    by: str
    draws: int
    budget: int
    context: Context
    precision: Any
    tell: Callable[[str, Group | None, Progress | None, Mapping[str, Any]], bool]
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: float
    run: Mapping[str, Any]
    place: storage.Place = field(default_factory=storage.Place)
    stopped: bool = False
    engine: str = ""

    def __post_init__(self) -> None:
        self._group = {member.number: group for group in self.groups for member in group.members}
        self._started = self._saved = time.perf_counter()
        self._pause = self.checkpoint_every
        self._before = 0.0

    def resume(self, place: storage.Place) -> None:
        """Go on from a place that a file held; the members have been put back already."""
        self.place, self._before = place, place.seconds

    @property
    def racing(self) -> list[Member]:
        return [member for member in self.members if member.alive]

    def plan(self) -> Plan:
        """The populations of the next rung."""
        return plan(self.groups, self.racing, self.budget)

    # -- from rung to rung --------------------------------------------------------------------------------------------

    def go(self) -> None:
        """Train until the last rung is over or somebody asks to stop."""
        while self.place.rung <= len(self.rungs) and not self.stopped:
            if not self.place.waves:
                self.place.waves = [[member.number for member in wave] for _, wave in self.plan().waves]
            count = len(self.place.waves)
            while self.place.waves and not self.stopped:
                members = [self.members[number] for number in self.place.waves[0]]
                about = {"rung": self.place.rung + 1, "rungs": len(self.rungs) + 1, "settings": len(members)}
                about |= {"wave": count - len(self.place.waves) + 1, "waves": count}
                about |= {"members": [member.number for member in members]}
                if not self._fits(members, about):
                    half = len(members) // 2
                    self.place.waves[0:1] = [self.place.waves[0][:half], self.place.waves[0][half:]]
                    count += 1
                elif not self.stopped:
                    self.place.waves.pop(0)
                    self._save(None)
            if not self.stopped:
                self._end_of_rung()

    def _end_of_rung(self) -> None:
        racing = self.racing
        if not racing:
            fates = [f"{member.describe()}: {member.fate}" for member in self.members[:3]]
            raise DivergenceError(
                "sweep: every setting has diverged",
                received="; ".join(fates),
                expected="finite numbers: most often learning rates are too large, or inputs are far from unit scale",
                write='{"learning_rate": [1e-4, 1e-3]}  # and bp.Data(X, y, standardize=True)',
            )
        if self.place.rung < len(self.rungs):
            cut(racing, self.keep, self.winners, self.by)
        self.place.rung += 1
        best = ranked(self.racing, self.by)[0]
        told = {"rung": self.place.rung, "rungs": len(self.rungs) + 1, "left": len(self.racing)}
        told |= {"best": best.number, "validation_nll": best.last("nll"), "error": best.last("error")}
        asked = self.tell("rung", None, None, told)
        self.stopped = asked and self.place.rung <= len(self.rungs)  # behind the last one there is nothing to stop
        self._save(None)

    # -- one population -----------------------------------------------------------------------------------------------

    def _fits(self, members: Sequence[Member], about: Mapping[str, Any]) -> bool:
        """Train one population; False if that takes more memory than there is, where half of it may do.

        The plan is an estimate, and others use the device, too. Members still have the states that they came with.
        """
        try:
            self._train(self._group[members[0].number], members, about)
        except torch.OutOfMemoryError as error:
            if len(members) == 1:
                raise
            self.place.flight, self.place.tensors = {}, {}  # the halves begin at the last rung
            reason = str(error).splitlines()[0]
        else:
            return True
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        warnings.warn(
            f"sweep: {len(members)} settings at a time do not fit, half of them are tried: {reason}",
            BayespropWarning,
            stacklevel=4,
        )
        return False

    def _train(self, group: Group, members: Sequence[Member], about: Mapping[str, Any]) -> None:
        """From where the members are to the end of this rung, and their scores there."""
        seeds, (model, method) = group.seeds(members), group.of(members)
        source = group.source(seeds)
        ends = stops(self.rungs, source.epochs)
        now = Progress(
            method.init(model, seeds),
            torch.zeros(seeds.particles, dtype=torch.float64, device=model.device),
            torch.full((seeds.particles,), NEVER, dtype=torch.int64, device=model.device),
        )
        if self.place.flight:
            assert self.checkpoint is not None
            storage.load_flight(self.checkpoint, self.place, now)
        elif self.place.rung > 0:
            fill(members, now.state)
            now.epoch, now.step = ends[self.place.rung - 1], members[0].steps
        steps = stepper(model, method, source, seeds, self.precision, now)
        self.engine = steps.description

        def posterior() -> Posterior:
            made = method.posterior(model, now.state)
            made.context = self.context
            return made

        about = {**about, "posterior": posterior}
        while now.epoch < ends[self.place.rung] and not self.stopped:
            for _ in steps.epoch(now):
                if self.checkpoint is not None and time.perf_counter() - self._saved > self._pause:
                    self._save(now)
                self.stopped = self.tell("step", group, now, about)
                if self.stopped:
                    break
            else:
                self.stopped = self.tell("epoch", group, now, about)
                now.epoch, now.index = now.epoch + 1, 0
                now.total.zero_()
                if bool((now.first_bad < NEVER).all()):
                    break
        if self.stopped:
            self._save(now)
        if now.step > members[0].steps or not self.stopped:
            park(members, now.state)
            if self.place.rung == len(self.rungs):
                now.state = method.finish(model, now.state, lambda: source.epoch(now.epoch), seeds.at(now.step))
            self._score(group, members, method.posterior(model, now.state), now)

    def _score(self, group: Group, members: Sequence[Member], whole: Posterior, now: Progress) -> None:
        """Scores of all members; those that have diverged are out."""
        bad, start = now.first_bad.tolist(), 0
        for member, posterior in zip(members, group.posteriors(members, whole, self.context), strict=True):
            first = min(bad[start : start + member.particles])
            start += member.particles
            member.steps = now.step
            reason = fault(posterior, first)
            if not reason:
                nll, error = score(posterior, group.held_out, self.draws)
                member.scores.append(Score(now.epoch, now.step, nll, error))
                reason = fault(posterior, first, nll)
            if reason:
                member.drop(reason)

    # -- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> list[Member]:
        """The winners, best first, each with its posterior; and a word for everybody who is still in the race."""
        trained = [member for member in self.racing if member.scores]
        furthest = max((len(member.scores) for member in trained), default=0)
        # After an interruption some have come further than others; scores of different ages do not compare.
        leaders = [member for member in trained if len(member.scores) == furthest] or trained
        winners = ranked(leaders, self.by)[: self.winners]
        for member in winners:
            member.posterior = self._posterior(member)
        word = "stopped early" if self.stopped else "finished"
        for place, member in enumerate(ranked(leaders, self.by)):
            member.fate = f"{word}, place {place + 1} of {len(leaders)}" + (", chosen" if member in winners else "")
        for member in self.racing:
            member.fate = "stopped early" if member.scores else "not trained"
        return winners

    def _posterior(self, member: Member) -> Posterior:
        """What `fit` would return for this setting after as many steps."""
        group, method = self._group[member.number], member.setup.method
        model, seeds = group.alone(member), group.seeds([member])
        state = method.init(model, seeds)
        fill([member], state)
        source = group.source(seeds)
        state = method.finish(model, state, lambda: source.epoch(member.scores[-1].epoch), seeds.at(member.steps))
        posterior = method.posterior(model, state)
        posterior.context = group.context(member, self.context)
        posterior.context.engine = self.engine
        return posterior

    @property
    def seconds(self) -> float:
        """Of the whole race, also before it was resumed."""
        return self._before + time.perf_counter() - self._started

    def _save(self, now: Progress | None) -> None:
        if self.checkpoint is None:
            return
        began, self.place.seconds = time.perf_counter(), self.seconds
        try:
            storage.save(self.checkpoint, self.run, self.place, self.members, now)
        except CheckpointError as error:
            warnings.warn(f"{error}\n  the sweep goes on without it", BayespropWarning, stacklevel=3)
        self._saved = time.perf_counter()
        self._pause = max(self.checkpoint_every, SPARE * (self._saved - began))

    def begin(self) -> None:
        """A place that cannot be written to is found out before there is something to lose."""
        if self.checkpoint is not None and self.place.rung == 0 and not self.place.flight:
            storage.save(self.checkpoint, self.run, self.place, self.members, None)
