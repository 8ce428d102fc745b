"""Whether an offset that was read lower than before has really gone back.

A group's coordinator that died may still answer for a while, from what it knew: until its session with the controller
has ended and every broker has heard of its successor. What it says then is old, and looks just like a group that was
set back. So a lower offset counts only when nothing else has been read for longer than such a session lasts, which is
two readings at least.
"""

from __future__ import annotations

from collections.abc import Hashable


class Rewinds:
    """Of many offsets, each under a key of the caller's."""

    seen_s = 12.0  # `broker.session.timeout.ms` is 9 s by default

    def __init__(self) -> None:
        self._since: dict[Hashable, float] = {}

    def believed(self, key: Hashable, now_s: float) -> bool:
        """It was read lower than before, now (by the monotonic clock). True once that has lasted."""
        lasted = now_s - self._since.setdefault(key, now_s) >= self.seen_s
        if lasted:
            del self._since[key]
        return lasted

    def none(self, key: Hashable) -> None:
        """It was read, and was not lower."""
        self._since.pop(key, None)
