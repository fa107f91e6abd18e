"""`bayesprop demo`: the library at work on handwritten digits, in half a minute and with its defaults.

What is foreign to the network here are the test pictures themselves, changed so that they show no digit any more, or
none that stands upright: laid on their side, with black and white exchanged, with their pixels in another order. All
ink of a picture stays; whether somebody who only knows digits is alarmed by it is what the numbers say.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from bayesprop import rng
from bayesprop.data import Data, digits
from bayesprop.errors import ConfigurationError
from bayesprop.likelihoods import Categorical
from bayesprop.model import Model
from bayesprop.posteriors import Posterior
from bayesprop.report import Evaluation, class_sections, evaluate, save
from bayesprop.report.document import subtitle
from bayesprop.report.evaluation import separation
from bayesprop.report.extras import require
from bayesprop.training import fit

__all__ = ["demo", "digits_network", "foreign_digits"]

TEST_SHARE = 0.25
SIDE = 8  # pixels
DRAWS = 100


def demo(
    folder: Annotated[Path, typer.Option(help="Where the posterior and the page go.")] = Path("runs/demo"),
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the data; as bayesprop.fit chooses if nothing is said.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the split, the start and all noise.")] = 0,
) -> None:
    """Train a Bayesian network on handwritten digits, and look at what it knows.

    Ctrl-C ends the training early and goes on with what was learnt until then.
    """
    # Everything that is needed later on: nobody should train first and be refused afterwards.
    require("the demo", "sklearn", "matplotlib", "jinja2", extra="cli")
    _make(folder)
    console = Console(highlight=False)
    train, test = digits().split(TEST_SHARE, seed)
    model = Model(digits_network(), likelihood=Categorical())
    console.print(
        f"{len(train):,} handwritten digits to learn from, {len(test):,} to be judged by.\n"
        f"A network of {model.layout.random:,} weights, each of them a distribution.\n"
        "Ctrl-C ends the training and keeps what was learnt.\n"
    )
    posterior = _train(model, train, test, epochs=epochs, seed=seed, console=console)
    saved, page = folder / "digits.bayes", folder / "digits.html"
    posterior.save(saved)  # before anything else, so that a second Ctrl-C does not lose it

    assert isinstance(test.inputs, Tensor)
    evaluation = evaluate(posterior, test, foreign=foreign_digits(test.inputs, seed), draws=DRAWS, seed=seed)
    _print_scores(console, evaluation)
    _print_foreign(console, evaluation)
    sections = class_sections(evaluation, picture_shape=(SIDE, SIDE))
    save(sections, page, title="Handwritten digits", subtitle=subtitle(posterior, evaluation.rows))
    console.print(f"\nThe page with pictures: {page}\nThe posterior: {saved}. To load it:\n", soft_wrap=True)
    console.print("\n".join(f"    {line}" for line in loading_lines(saved)), markup=False, soft_wrap=True)


def digits_network() -> nn.Sequential:
    """64 pixels, two hidden layers of 100, 10 classes."""
    return nn.Sequential(nn.Linear(SIDE * SIDE, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10))


def loading_lines(path: Path) -> list[str]:
    """What brings the posterior back, in Python."""
    return [
        "import bayesprop as bp",
        "from bayesprop.cli.demo import digits_network",
        f"posterior = bp.load({str(path)!r}, network=digits_network())",
    ]


def foreign_digits(inputs: Tensor, seed: int = 0) -> dict[str, Tensor]:
    """Pictures (n, 64) with all their ink, and no digit as one writes it."""
    pictures = inputs.reshape(-1, SIDE, SIDE)
    count = len(inputs)
    order = rng.Rng.create(seed, count).permutation(SIDE * SIDE, rng.Stream.ORDER)  # each picture has its own
    return {
        "lying on their side": torch.rot90(pictures, 1, (1, 2)).reshape(count, -1),
        "black and white exchanged": 1 - inputs,
        "pixels shuffled": inputs.gather(1, order),
    }


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"the folder {folder} cannot be made",
            received=error.strerror or str(error),
            write="bayesprop demo --folder another",
        ) from error


def _train(model: Model, train: Data, test: Data, *, epochs: int | None, seed: int, console: Console) -> Posterior:
    """`fit` with its defaults; what it warns of is printed as a sentence.

    On one thread: a network this small gains nothing from a second, and where others compute, too, threads that wait
    for one another in each of 20,000 steps took seven times as long.
    """
    settings: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            posterior = fit(model, train, seed=seed, validation=test, progress=True, **settings)
    finally:
        torch.set_num_threads(threads)
    for warning in caught:
        console.print(f"\nNote: {warning.message}", markup=False)
    return posterior


def _print_scores(console: Console, evaluation: Evaluation) -> None:
    right = int(evaluation.right.sum())
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
    table.add_column()
    table.add_column(justify="right", style="bold")
    table.add_column(style="dim")
    rows = [
        ("accuracy", f"{evaluation.accuracy:.1%}", f"{right} of {evaluation.rows} test pictures"),
        (
            "NLL",
            f"{evaluation.negative_log_likelihood:.3f}",
            f"nats a picture; guessing blindly gives {math.log(10):.3f}",
        ),
        (
            "calibration error",
            f"{evaluation.calibration_error:.1%}",
            "mean gap between claimed confidence and accuracy",
        ),
        (
            "epistemic",
            f"{evaluation.epistemic_share:.0%}",
            "of the uncertainty is about the weights",
        ),
    ]
    for row in rows:
        table.add_row(*row)
    console.print("\nPictures that the network has not seen", style="bold")
    console.print(table)


def _print_foreign(console: Console, evaluation: Evaluation) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    table.add_column("the same pictures", min_width=18)
    for title in ("confidence", "total", "epistemic", "AUROC"):
        table.add_column(title, justify="right")
    everyone = {"as they are": evaluation.prediction}
    everyone |= {name: strange.prediction for name, strange in evaluation.foreign.items()}
    for name, prediction in everyone.items():
        own = prediction is evaluation.prediction
        table.add_row(
            name,
            f"{prediction.mean.max(1).values.mean().item():.1%}",
            f"{prediction.total.mean().item():.3f}",
            f"{prediction.epistemic.mean().item():.3f}",
            "" if own else f"{separation(evaluation, prediction):.3f}",
        )
    console.print("\nPictures of nothing that it has learnt", style="bold")
    console.print(table)
    console.print(
        "Means; uncertainty in nats. AUROC: how well the epistemic uncertainty tells them from the pictures as they "
        "are, 1 perfectly and 0.5 not at all.",
        style="dim",
    )
