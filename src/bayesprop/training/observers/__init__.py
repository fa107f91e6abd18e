"""Observers: look at a training from outside."""

from bayesprop.training.observers.event import Event, Observer, Stop
from bayesprop.training.observers.progress import ProgressBar

__all__ = ["Event", "Observer", "ProgressBar", "Stop"]
