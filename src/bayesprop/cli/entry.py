"""The way in, which also runs where typer is not installed and then says so."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bayesprop.errors import BayespropError
from bayesprop.report.extras import require

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line with these arguments, by default those of the process, and leave with its exit code."""
    try:
        require("the command line", "typer", extra="cli")
    except BayespropError as error:
        print(f"bayesprop: {error}", file=sys.stderr)
        sys.exit(1)
    from bayesprop.cli.application import application

    application(args=None if arguments is None else list(arguments), prog_name="bayesprop")
