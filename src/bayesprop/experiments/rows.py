"""One row of a table of errors: a network and a method with all its seeds, trained, and judged by the test rows once.

`measure` makes the result of a part, `measured` reads it on a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesprop.experiments import populations
from bayesprop.experiments.experiment import Bench
from bayesprop.experiments.pictures import Split
from bayesprop.experiments.values import Measured
from bayesprop.inference.method import Method
from bayesprop.inference.point.descent import AbstractDescent
from bayesprop.model import Model

__all__ = ["choose", "measure", "measured", "number", "scoring_draws"]


def scoring_draws(method: Method) -> int:
    """How many draws predict while a method is trained: a point has one."""
    return 1 if isinstance(method, AbstractDescent) else 16


def choose(
    bench: Bench,
    model: Model,
    split: Split,
    method: Method,
    candidates: list[dict[str, Any]],
    *,
    seeds: int,
    epochs: int,
    batch_size: int,
) -> dict[str, Any]:
    """Train all candidates with as many seeds each (which no row of a table has), and take the one with the lowest mean
    validation error."""
    members = [{"seed": 1000 + seed, **one} for one in candidates for seed in range(seeds)]
    draws = scoring_draws(method)
    trained = populations.train(bench, model, split, method, members, epochs=epochs, batch_size=batch_size, draws=draws)
    chosen, errors = populations.best(trained, seeds)
    return {"chosen": candidates[chosen], "candidates": candidates, "errors": errors, **trained.summary()}


def measure(
    bench: Bench,
    model: Model,
    split: Split,
    method: Method,
    *,
    seeds: int,
    epochs: int,
    batch_size: int,
    values: Mapping[str, Any] | None = None,
    curve_every: int | None = None,
    draws: int = 100,
) -> dict[str, Any]:
    """The result of a row: scores of the predictions by `draws` draws of each seed, and of the network of the means.

    `values` are what a sweep sets in the method and the prior, the same for all seeds.
    """
    values = dict(values or {})
    trained = populations.train(
        bench,
        model,
        split,
        method,
        [{"seed": seed, **values} for seed in range(seeds)],
        epochs=epochs,
        batch_size=batch_size,
        curve_every=curve_every,
        draws=scoring_draws(method),
    )
    means = [posterior.at_mean() for posterior in trained.posteriors]
    return {
        "weights": model.layout.size,
        "epochs": epochs,
        "chosen": values,
        "test": populations.judge(trained.posteriors, split.test, draws=draws),
        "test_of_the_means": populations.judge(means, split.test, draws=1),
        **trained.summary(),
    }


def measured(result: Mapping[str, Any] | None, key: str = "error", *, of: str = "test") -> Measured | None:
    """Percent for errors, numbers as they are for the NLL; None where there is nothing."""
    if result is None or not result[of][key]:
        return None
    return Measured.of(result[of][key], 100.0 if key != "nll" else 1.0)


def number(value: Any) -> str:
    """A setting for people: 0.000335, cosine."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
