"""How many bytes of requests' bodies are in memory at a time.

A body is read before its sender is known, for what is left unread would be taken for the next request, and then waits
while a password is verified. So strangers decide how much is held, and a limit for each body alone would let a thousand
connections hold a thousand of them. Used by the server's loop alone, so without locks.

Invariants:
  a. At most LIMIT_BYTES are held, LIMIT_EACH_BYTES for one client. A body that does not fit is read and thrown away,
     and its request refused (503): requests without a body are answered meanwhile.
  b. What is held is given back when its request ends, however it does (`Held` is a context manager).
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

# A connector's configuration has at most 400 KB, and few people send one at the same time.
LIMIT_BYTES, LIMIT_EACH_BYTES = 64 << 20, 16 << 20


class Bodies:
    def __init__(self, limit_bytes: int = LIMIT_BYTES, limit_each_bytes: int = LIMIT_EACH_BYTES) -> None:
        self._limit, self._limit_each = limit_bytes, limit_each_bytes
        self._of: dict[str, int] = {}  # by client
        self.held_bytes = 0

    def of(self, client: str) -> Held:
        """For one request."""
        return Held(lambda size: self._count(client, size))

    def _count(self, client: str, size: int) -> bool:
        mine = self._of.get(client, 0) + size
        if size > 0 and (mine > self._limit_each or self.held_bytes + size > self._limit):
            return False
        self.held_bytes += size
        self._of[client] = mine
        if not mine:
            del self._of[client]
        return True


class Held:
    """The body of one request."""

    def __init__(self, count: Callable[[int], bool]) -> None:
        self._count = count
        self._parts: list[bytes] = []
        self._bytes = 0
        self.fits = True

    def add(self, part: bytes) -> None:
        """From the first part on that does not fit, none is kept."""
        if not part or not self.fits:
            return
        self.fits = self._count(len(part))
        if self.fits:
            self._bytes += len(part)
            self._parts.append(part)
        else:
            self.release()

    def whole(self) -> bytes:
        return b"".join(self._parts)

    def release(self) -> None:
        self._parts.clear()
        self._bytes, size = 0, self._bytes
        if size:
            self._count(-size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
