"""`python -m bayesprop.experiments`: experiments where neither typer nor jinja2 nor matplotlib is installed.

python -m bayesprop.experiments                                   what there is
python -m bayesprop.experiments table-1 --scale paper --no-page   run, write the record only
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bayesprop.errors import BayespropError
from bayesprop.experiments.commands import list_experiments, reproduce, show, unfinished
from bayesprop.experiments.experiment import SCALES

__all__ = ["main"]


def parser() -> argparse.ArgumentParser:
    """The options; `bayesprop reproduce` has the same."""
    made = argparse.ArgumentParser("python -m bayesprop.experiments", description="Published experiments, run again.")
    made.add_argument("name", nargs="?", help="which experiment; without it they are listed")
    made.add_argument("--scale", choices=SCALES, help="smoke to run, the largest that is there to show")
    made.add_argument("--show", action="store_true", help="only make the page, from records that are there")
    made.add_argument("--folder", type=Path, default=None, help="where the run is kept; runs/reproduce/NAME-SCALE")
    made.add_argument("--device", default=None, help="cuda, cpu; by default the GPU if there is one")
    made.add_argument("--seeds", type=int, default=None, help="another number of seeds")
    made.add_argument("--set", dest="changes", action="append", default=[], help="another setting: epochs=100")
    made.add_argument("--minutes", type=float, default=None, help="stop after so many; call again to go on")
    made.add_argument("--parts", default="*", help='only parts whose names match, such as "mixture-*,sgd-400"')
    made.add_argument("--no-page", dest="page", action="store_false", help="write the record only")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes as those of the command line: 1 refused or failed, 130 interrupted, 3 not finished yet."""
    chosen = parser().parse_args(arguments)
    try:
        if chosen.name is None:
            list_experiments()
            return 0
        if chosen.show:
            print(show(chosen.folder or chosen.name, scale=chosen.scale))
            return 0
        options = {
            key: getattr(chosen, key) for key in ("folder", "device", "seeds", "changes", "minutes", "parts", "page")
        }
        record = reproduce(chosen.name, chosen.scale or "smoke", **options)
    except BayespropError as error:
        print(f"bayesprop: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bayesprop: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 3 if unfinished(record, chosen.parts) else 0


if __name__ == "__main__":
    sys.exit(main())
