"""A live line on the terminal while a sweep runs, and what is known after each rung."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bayesprop.training.observers import Event, Stop

__all__ = ["SweepBar"]


class SweepBar:
    """Prints to standard error: the plan first, then a line for each rung."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("epochs"),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
        )
        self._task = None

    def __call__(self, event: Event) -> type[Stop] | None:
        told = event.metrics
        if event.kind == "start":
            self.console.print(told["plan"], highlight=False)
            if self._task is not None:  # of a sweep before this one
                self._bar.remove_task(self._task)
            self._bar.start()
            self._task = self._bar.add_task("sweep", total=event.epochs)
        elif event.kind == "epoch" and self._task is not None:
            self._bar.update(
                self._task, completed=event.epoch + 1, total=event.epochs, description=self.description(event)
            )
        elif event.kind == "rung":
            self.console.print(self.line(event), highlight=False)
        elif event.kind == "end":
            self._bar.stop()
        return None

    @staticmethod
    def description(event: Event) -> str:
        """What is being trained."""
        told = event.metrics
        return (
            f"rung {told['rung']}/{told['rungs']}, population {told['wave']}/{told['waves']} "
            f"of {told['settings']} settings"
        )

    @staticmethod
    def line(event: Event) -> str:
        """What a rung has shown."""
        told = event.metrics
        return (
            f"rung {told['rung']}/{told['rungs']} after {event.seconds:.1f} s: {told['left']} settings left, "
            f"the best is number {told['best']} with val NLL {told['validation_nll']:.4f}, error {told['error']:.4g}"
        )
