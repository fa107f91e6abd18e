"""What a posterior says about new inputs: one object for classes, quantities and counts.

Nothing is computed before it is asked for, and what was asked for is remembered. Statistics are computed a few rows at
a time: a million rows and a hundred draws are a hundred million outputs, of which only one chunk exists at a time. If
all outputs fit a budget they are kept; otherwise the next statistic computes them again, with the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesprop import rng
from bayesprop.data.labels import encode_labels
from bayesprop.errors import CapabilityError, ConfigurationError, DataError
from bayesprop.likelihoods import Likelihood
from bayesprop.prediction import mixture
from bayesprop.prediction.chunks import Chunk, Chunks, Source, by_rows
from bayesprop.prediction.moments import Moments, class_moments, join, per_draw, quantity_moments
from bayesprop.prediction.questions import interval_levels, quantile_levels, refuse_if_large, row_numbers
from bayesprop.prediction.units import HasTargetScale, Units

__all__ = ["Prediction"]

# Samples of each row where no closed form exists. The entropy of a Gaussian has a standard error of
# sqrt(1/2) / sqrt(256) = 0.044 nats; a quantile from 1000 samples that of its level, sqrt(q (1 - q) / 1000) < 0.016.
ENTROPY_SAMPLES = 256
QUANTILE_SAMPLES = 1000


class Prediction:
    """The predictive distribution of n rows from S draws of the weights.

    Classes: `mean` (n, K) are probabilities, `std` (n, K) their standard deviation over draws, `label` the likeliest
    class; `total`, `aleatoric` and `epistemic` (n,) are entropies in nats.
    Quantities and counts: `mean` and `std` (n,) or (n, T) are those of y, noise included; `total`, `aleatoric` and
    `epistemic` are variances. Everything is in the user's units.

    Args:
        source: starts a pass over the rows, see `prediction.chunks`; the posterior provides it.
        likelihood: how y depends on the outputs.
        scaling: the scaling of the targets in training, if any.
        classes: names of the classes, by index.
        seed: of samples; the same seed gives the same samples.
        inputs_length: n.
        draws: S.
        budget: how many numbers may stay in memory from one statistic to the next.
    """

    def __init__(
        self,
        source: Source,
        likelihood: Likelihood,
        *,
        scaling: HasTargetScale | None = None,
        classes: Sequence[Any] | None = None,
        seed: int = 0,
        inputs_length: int,
        draws: int,
        budget: int = 25_000_000,
    ) -> None:
        if inputs_length < 1 or draws < 1:
            raise ConfigurationError(
                "a prediction needs rows and draws",
                received=f"{inputs_length} rows and {draws} draws",
                expected="at least one of each",
                write="posterior.predict(inputs, draws=100)",
            )
        self.likelihood, self.seed, self.num_draws, self.budget = likelihood, seed, draws, budget
        self.classes = list(classes) if classes is not None and likelihood.task == "classification" else None
        self._scaling = scaling if likelihood.task == "regression" else None
        self._units = Units.of(self._scaling)
        self._chunks = Chunks(source, rows=inputs_length, draws=draws, budget=budget)
        self._quantiles: dict[tuple[float, ...], Tensor] = {}

    @property
    def task(self) -> str:
        """What y is: "classification", "regression" or "count"."""
        return self.likelihood.task

    def __len__(self) -> int:
        return self._chunks.rows

    # -- statistics of every row ------------------------------------------------------------------------------------

    @cached_property
    def _moments(self) -> Moments:
        """All of them from one pass, because they cost nothing next to the network."""

        def one(chunk: Chunk) -> Moments:
            if self.task == "classification":
                return class_moments(self.likelihood, chunk.outputs, chunk.latents)
            return quantity_moments(self.likelihood, chunk.outputs, chunk.latents, self._units)

        return join(self._chunks.map(one))

    @property
    def mean(self) -> Tensor:
        """E[y]: (n,) or (n, T); for classes the probabilities (n, K)."""
        return self._moments.mean

    @property
    def std(self) -> Tensor:
        """Standard deviation of y, sqrt(total); for classes that of the probabilities over draws."""
        return self._moments.std

    @property
    def aleatoric(self) -> Tensor:
        """Uncertainty that would remain if the weights were known: noise. A variance, or nats for classes."""
        return self._moments.aleatoric

    @property
    def epistemic(self) -> Tensor:
        """Uncertainty about the weights, which more data reduce. A variance, or mutual information in nats."""
        return self._moments.epistemic

    @property
    def total(self) -> Tensor:
        """aleatoric + epistemic."""
        return self._moments.total

    @cached_property
    def entropy(self) -> Tensor:
        """Entropy of y in nats, (n,). Exact for classes; otherwise a seeded mean over 256 samples of each row."""
        if self.task == "classification":
            return self.total
        log_scale = self._units.log_scale(self.mean.shape[1:])

        def one(chunk: Chunk, rows: slice) -> Tensor:
            with self._noise(chunk, rows, self.seed):
                outputs = chunk.outputs[:, rows]
                found = mixture.entropy(self.likelihood, outputs, chunk.latents, ENTROPY_SAMPLES)
            return (found + log_scale).to(self.mean.dtype)

        return torch.cat(self._chunks.map(lambda chunk: by_rows(chunk, one)))

    @property
    def label(self) -> Tensor | np.ndarray:
        """The likeliest class of each row: its index, or its name in a numpy array if classes have names."""
        if self.task != "classification":
            raise CapabilityError(
                f"there are no labels in a {self.task}",
                received=repr(self.likelihood),
                write="prediction.mean or prediction.median",
            )
        index = self.mean.argmax(1)
        return index if self.classes is None else np.asarray(self.classes)[index.cpu().numpy()]

    @property
    def draws(self) -> Tensor:
        """E[y | draw] for every draw, (S, n, ...); refused when that is too large to hold."""

        def one(chunk: Chunk) -> Tensor:
            means = per_draw(self.likelihood.mean, chunk.outputs, chunk.latents)
            refuse_if_large("prediction.draws", means, len(self), self.budget)
            return self._units.original(means)

        return torch.cat(self._chunks.map(one), dim=1)

    # -- quantiles --------------------------------------------------------------------------------------------------

    def quantile(self, q: float | Sequence[float]) -> Tensor:
        """The q-quantile of y for each row, (n, ...); a sequence of levels gives (levels, n, ...).

        Exact for likelihoods with a closed-form distribution function, otherwise from 1000 samples of each row. For
        classes these are quantiles over draws of each class's probability: how sure the model is of its probabilities.
        """
        levels, single = quantile_levels(q)
        if levels not in self._quantiles:
            samples = 1 if self.task == "classification" or self.likelihood.has_cdf else QUANTILE_SAMPLES

            def one(chunk: Chunk, rows: slice) -> Tensor:
                return self._quantiles_of(chunk, rows, levels)

            # All levels in one pass: interval() must not run the network twice.
            parts = self._chunks.map(lambda chunk: by_rows(chunk, one, samples))
            self._quantiles[levels] = torch.cat(parts).movedim(1, 0)
        return self._quantiles[levels][0] if single else self._quantiles[levels]

    def _quantiles_of(self, chunk: Chunk, rows: slice, levels: tuple[float, ...]) -> Tensor:
        """(rows, levels, ...), so that rows can be joined along the first dimension."""
        outputs, latents, likelihood = chunk.outputs[:, rows], chunk.latents, self.likelihood
        dtype = torch.float64 if outputs.dtype == torch.float64 else torch.float32
        if self.task == "classification":
            found = mixture.quantiles_over_draws(per_draw(likelihood.mean, outputs, latents), levels)
        elif likelihood.has_cdf:
            found = mixture.quantiles(likelihood, outputs, latents, levels)
        else:
            with self._noise(chunk, rows, self.seed):
                # Equally many from each draw, and at least QUANTILE_SAMPLES in all.
                count = self.num_draws * math.ceil(QUANTILE_SAMPLES / self.num_draws)
                drawn = mixture.sample(likelihood, outputs, latents, count)
            found = mixture.quantiles_over_draws(drawn.double(), levels)
        return self._units.original(found).to(dtype).movedim(0, 1)

    @property
    def median(self) -> Tensor:
        """quantile(0.5)."""
        return self.quantile(0.5)

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """(low, high) with probability `level` between them and equal probabilities on both sides."""
        low, high = self.quantile(interval_levels(level))
        return low, high

    # -- the whole distribution -------------------------------------------------------------------------------------

    def log_prob(self, targets: Any) -> Tensor:
        """log p(y) of each row, (n,), in the user's units: probabilities, not their logarithms, are averaged.

        With several targets in a row it is their joint density: all of them share a draw of the weights.
        """
        values = self._encoded(targets)

        def one(chunk: Chunk) -> Tensor:
            return mixture.log_prob(self.likelihood, chunk.outputs, self._rows_of(values, chunk), chunk.latents)

        return torch.cat(self._chunks.map(one)) - self._units.log_scale(values.shape[1:])

    def cdf(self, targets: Any) -> Tensor:
        """P(Y <= y), in the shape of the mean: uniform between 0 and 1 over the rows if the model is calibrated."""
        if self.task == "classification":
            raise CapabilityError("classes have no order", received=repr(self.likelihood), write="prediction.mean")
        values = self._encoded(targets)

        def one(chunk: Chunk) -> Tensor:
            chosen = self._rows_of(values, chunk).double()
            return mixture.cdf(self.likelihood, chunk.outputs.double(), chosen, chunk.latents)

        return torch.cat(self._chunks.map(one))

    def samples(self, count: int | None = None, seed: int | None = None) -> Tensor:
        """Draws of y, (count, n, ...): one from each of the S draws of the weights, unless `count` says otherwise.

        Labels are indices of classes. The same seed gives the same samples; torch's own generator is left as it was.
        """
        number = self.num_draws if count is None else count
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ConfigurationError("samples takes how many to draw", received=repr(count), expected="1 or more")

        def one(chunk: Chunk, rows: slice) -> Tensor:
            with self._noise(chunk, rows, self.seed if seed is None else seed):
                drawn = mixture.sample(self.likelihood, chunk.outputs[:, rows], chunk.latents, number)
            refuse_if_large(f"prediction.samples({number})", drawn, len(self), self.budget)
            return (drawn if self._units.identity else self._units.original(drawn)).movedim(0, 1)

        return torch.cat(self._chunks.map(lambda chunk: by_rows(chunk, one, number))).movedim(1, 0)

    # -- for people and other libraries -----------------------------------------------------------------------------

    def numpy(self) -> dict[str, np.ndarray]:
        """mean, std, aleatoric, epistemic and total as arrays; for classes entropy and label, too."""
        names = ["mean", "std", "aleatoric", "epistemic", "total"]
        names += ["entropy", "label"] if self.task == "classification" else []
        values = {name: getattr(self, name) for name in names}
        return {name: v.cpu().numpy() if isinstance(v, Tensor) else v for name, v in values.items()}

    def __getitem__(self, rows: Any) -> Prediction:
        """The prediction of some rows, in their order: a slice, a mask, or increasing row numbers."""
        chosen = row_numbers(rows, len(self))
        return Prediction(
            self._chunks.select(chosen),
            self.likelihood,
            scaling=self._scaling,
            classes=self.classes,
            seed=self.seed,
            inputs_length=chosen.numel(),
            draws=self.num_draws,
            budget=self.budget,
        )

    def __repr__(self) -> str:
        special = "label" if self.task == "classification" else "median"
        return (
            f"Prediction({len(self)} rows, {self.num_draws} draws, {self.likelihood!r})\n"
            f"  .mean .std .{special} .aleatoric .epistemic .total .entropy .draws .numpy()\n"
            f"  .quantile(q) .interval(level) .samples(count) .log_prob(targets)"
        )

    # -- what several questions share -------------------------------------------------------------------------------

    def _encoded(self, targets: Any) -> Tensor:
        """The user's targets as the likelihood sees them, (n, ...) without dimensions of size one."""
        encoded = self.likelihood.encode(encode_labels(targets, self.classes))
        row = tuple(size for size in encoded.shape[1:] if size != 1)
        scaled = tuple(self._units.scale.shape)
        if encoded.dim() == 0 or encoded.shape[0] != len(self) or (scaled and row != scaled):
            raise DataError(
                "the targets must have one row for each row of the prediction, like those of training",
                received=f"targets {tuple(encoded.shape)}",
                expected=f"targets {(len(self), *(scaled or ('...',)))}",
            )
        encoded = encoded.reshape(len(self), *row)
        return encoded if self._units.identity else self._units.standard(encoded)

    def _rows_of(self, values: Tensor, chunk: Chunk) -> Tensor:
        """The chunk's rows of the targets, held against its outputs."""
        chosen = values[chunk.rows].to(chunk.outputs.device)
        self.likelihood.check(chunk.outputs[0], chosen)
        return chosen

    def _noise(self, chunk: Chunk, rows: slice, seed: int) -> Any:
        """Seeded by the first row, so that another pass over the same chunks draws the same noise."""
        number = rng.Rng.create(seed).at(chunk.rows.start + rows.start).integer(rng.Stream.TARGETS)
        return rng.quarantine(number, chunk.outputs.device)
