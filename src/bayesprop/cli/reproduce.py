"""`bayesprop reproduce` and `bayesprop report`: published experiments run again, and pages of what was found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesprop.experiments import commands
from bayesprop.experiments.experiment import SCALES

__all__ = ["report", "reproduce"]


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Which experiment; without it they are listed.")] = None,
    scale: Annotated[
        str | None, typer.Option(help=f"{', '.join(SCALES)}; smoke to run, the largest that is there to show.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Only make the page, from records that are there.")] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Where the run is kept; runs/reproduce/NAME-SCALE if nothing is said.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cuda or cpu; by default the GPU if there is one.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Another number of seeds.")] = None,
    changes: Annotated[list[str] | None, typer.Option("--set", help="Another setting, such as epochs=100.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.0, help="Stop after so many; call again to go on.")] = None,
    parts: Annotated[str, typer.Option(help='Only parts whose names match, such as "mixture-*,sgd-400".')] = "*",
    page: Annotated[bool, typer.Option(help="Make a page of the record.")] = True,
) -> None:
    """Run a published experiment and see what was published beside what this library gets.

    A run that was interrupted goes on with what is missing when the same command is given again.
    """
    if name is None:
        commands.list_experiments()
    elif show:
        typer.echo(commands.show(folder or name, scale=scale))
    else:
        options = {"folder": folder, "device": device, "seeds": seeds, "minutes": minutes, "parts": parts}
        options["changes"] = changes or ()
        record = commands.reproduce(
            name,
            scale or "smoke",
            **options,
            page=page,  # pyright: ignore[reportArgumentType]
        )
        if commands.unfinished(record, parts):
            raise typer.Exit(3)  # not finished yet


def report(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or a record.")],
    page: Annotated[
        Path | None, typer.Option(help="Where the page goes; beside the record if nothing is said.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="A folder for the figures as files of their own, SVG and PNG.")
    ] = None,
) -> None:
    """Make the page of a run again, from what it has stored."""
    typer.echo(commands.show(run, page=page, figures=figures))
