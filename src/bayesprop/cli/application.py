"""All verbs together. A new verb is a function in a file of its own, and one line here.

Exit codes: 0 done; 1 refused or failed, with a message; 2 a command line that cannot be read; 130 interrupted.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import bayesprop
from bayesprop.cli.demo import demo
from bayesprop.cli.reproduce import report, reproduce
from bayesprop.errors import BayespropError

__all__ = ["Verbs", "application"]


class Verbs(TyperGroup):
    """A group of verbs in which an error of this library is a message, and a bug still is a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BayespropError as error:
            typer.echo(f"bayesprop: {error}", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as interrupt:
            typer.echo("bayesprop: interrupted", err=True)
            raise typer.Exit(130) from interrupt


application = typer.Typer(
    name="bayesprop",
    cls=Verbs,
    help="Bayesian neural networks from PyTorch networks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _verb in (demo, reproduce, report):
    application.command()(_verb)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bayesprop {bayesprop.__version__}")
        raise typer.Exit


@application.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass
