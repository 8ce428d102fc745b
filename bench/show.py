"""What is going on, on stderr, all the time: which scenario, which peer, how far, how long still."""

from __future__ import annotations

import sys
import time
from typing import TextIO

EVERY_S = {True: 0.5, False: 10.0}  # on a terminal a line that is drawn again, elsewhere lines


class Progress:
    def __init__(self, out: TextIO = sys.stderr) -> None:
        self._out = out
        self._tty = out.isatty()
        self._began = time.monotonic()
        self._prefix = ""
        self._phase: tuple[str, float] = ("", 0.0)
        self._due = 0.0

    def headline(self, text: str) -> None:
        self._line(f"[{_minutes(time.monotonic() - self._began)}] {text}")

    def begin(self, prefix: str) -> None:
        """A new actor: `prefix` opens its lines."""
        self._prefix, self._phase, self._due = prefix, ("", 0.0), 0.0

    def say(self, what: str, share: float) -> None:
        now = time.monotonic()
        if what != self._phase[0]:
            self._phase = (what, now)
            self._due = 0.0
        if now < self._due:
            return
        self._due = now + EVERY_S[self._tty]
        left = eta_s(now - self._phase[1], share)
        text = f"  {self._prefix} {what}" + (f" {share:4.0%}" if share else "")
        text += f", {_minutes(left)} to go" if left is not None else ""
        if self._tty:
            self._out.write(f"\r\x1b[2K{text}")
            self._out.flush()
        else:
            self._line(text)

    def _line(self, text: str) -> None:
        self._out.write(("\r\x1b[2K" if self._tty else "") + text + "\n")
        self._out.flush()


def eta_s(spent_s: float, share: float) -> float | None:
    """The rest at the pace so far; None when it is too early to tell, or done."""
    if share < 0.02 or share >= 1 or spent_s < 1:
        return None
    return spent_s / share - spent_s


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
