"""Ctrl-C asks training to stop after the step in flight; what was learnt so far is returned. A second Ctrl-C is
immediate."""

from __future__ import annotations

import signal
import threading
from types import FrameType

__all__ = ["Interrupts"]


class Interrupts:
    """A context in which SIGINT sets `requested`. Outside the main thread, where Python allows no handlers, it does
    nothing."""

    def __init__(self) -> None:
        self.requested = False
        self._before = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
