"""A line on the terminal that says how far something is, while it takes long. Nothing where stderr is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import IO

from heliograph.escaping import escape

PATIENCE_S = 1.0  # what is over by then needs no word
EVERY_S = 0.2
CLEAR = "\r\x1b[2K"


class Ticker:
    def __init__(
        self,
        words: Callable[[], str],
        *,
        out: IO[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._words, self._clock = words, clock
        self._out = out or sys.stderr
        self._live = self._out.isatty()
        self._next_s = clock() + patience_s
        self._shown = False

    def tick(self) -> None:
        if self._live and self._clock() >= self._next_s:
            self._next_s = self._clock() + EVERY_S
            self._out.write(f"{CLEAR}{escape(self._words())}")
            self._out.flush()
            self._shown = True

    def clear(self) -> None:
        """Before anything else is written to the terminal, and at the end."""
        if self._shown:
            self._out.write(CLEAR)
            self._out.flush()
            self._shown = False

    def say(self, text: str) -> None:
        """A line of its own."""
        self.clear()
        self._out.write(f"{escape(text)}\n")
        self._out.flush()
