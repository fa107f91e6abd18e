"""A live line and a table of epochs on the terminal: data term and KL apart, validation scores, time left."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bayesprop.training.observers.event import Event, Stop

__all__ = ["ProgressBar"]

COLUMNS = {
    "elbo": ("ELBO", ",.1f"),
    "log_likelihood": ("data term", ",.1f"),
    "kl": ("KL", ",.1f"),
    "validation_nll": ("val NLL", ".4f"),
    "validation_error": ("val error", ".2%"),
    "validation_rmse": ("val RMSE", ".4f"),
    "epistemic_share": ("epistemic", ".1%"),
}


class ProgressBar:
    """Prints to standard error. About ten lines of numbers remain when the training is over."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("epochs"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self._task = None

    def __call__(self, event: Event) -> type[Stop] | None:
        if event.kind == "start":
            if self._task is not None:  # of a training before this one
                self._bar.remove_task(self._task)
            self._bar.start()
            self._task = self._bar.add_task("training", total=event.epochs, completed=event.epoch)
        elif event.kind == "epoch" and self._task is not None:
            self._bar.update(self._task, completed=event.epoch + 1)
            if event.metrics and (
                (event.epoch + 1) % max(1, event.epochs // 10) == 0 or event.epoch + 1 == event.epochs
            ):
                self.console.print(self.line(event), highlight=False)
        elif event.kind == "end":
            self._bar.stop()
        return None

    @staticmethod
    def line(event: Event) -> str:
        shown = [
            f"{title} {event.metrics[key]:{form}}" for key, (title, form) in COLUMNS.items() if key in event.metrics
        ]
        return f"epoch {event.epoch + 1:>4}/{event.epochs}  " + "  ".join(shown)
