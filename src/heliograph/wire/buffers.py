"""Large buffers that are used again: fresh ones cost a page fault every 4 KiB, more than the copying itself.

Answers for never giving out a buffer that somebody still looks into. Does not know what is in them.

Invariants:
A. What `take` returns overlaps no view that is alive: a bytearray with a view of it cannot be resized, and that is
   asked before it is used again.
B. At most SPARE buffers are kept that nobody uses, and none for long that is far larger than what is asked for.
"""

from __future__ import annotations

SPARE = 6  # lanes drain together: what they held of several answers becomes free at once, and is asked for again
# After so many buffers in a row that needed less than a quarter of the largest, all are let go.
_IDLE = 256


class Buffers:
    """Not thread-safe."""

    def __init__(self) -> None:
        self._known: list[bytearray] = []
        self._small_since = 0

    def take(self, size: int) -> memoryview:
        """So many bytes, with anything in them, until the last view of them is gone."""
        largest = max(map(len, self._known), default=0)
        self._small_since = self._small_since + 1 if size * 4 < largest else 0
        if self._small_since > _IDLE:
            self._known, self._small_since = [], 0
        idle = sorted(filter(_is_idle, self._known), key=len)
        for each in idle[:-SPARE]:  # the small ones: what is asked for now is what will be asked for next
            self._known = [other for other in self._known if other is not each]
        fitting = next((each for each in idle[-SPARE:] if len(each) >= size), None)
        if fitting is None:
            fitting = bytearray(size + size // 8)
            self._known.append(fitting)
        return memoryview(fitting)[:size]


def _is_idle(buffer: bytearray) -> bool:
    """Whether nobody has a view of it. Neither step moves memory: there is room for the byte that was just given up."""
    try:
        buffer.pop()
    except BufferError:
        return False
    buffer.append(0)
    return True
