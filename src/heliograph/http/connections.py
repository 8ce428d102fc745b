"""Which connections are open, how many there may be, and which one has to go when one more comes.

Answers for counting only; it opens and closes nothing by itself. Used by the server's loop alone, so without locks.

Invariants:
  a. At most `limit` connections are open, and at most `limit_each` of one client (an address, or 64 bits of IPv6).
  b. At a limit the connection that has waited longest goes, silent or in the middle of a request: of the same client
     at that client's limit, of all at the limit of all. Nobody can hold a place by sending nothing, or little.
  c. A connection whose request is being answered is never closed for another one. If all are, the new one is refused.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Protocol

# A few scrapers, probes and people need a dozen. The limits only bound memory and descriptors; what one client may
# hold is small enough for ten thousand connections of a few addresses to leave room for the others.
LIMIT, LIMIT_EACH = 1024, 256
DESCRIPTORS_SHARE = 4  # at most a quarter of the process's descriptors: Kafka and Spark need the others


class Open(Protocol):
    """A connection, from its acceptance on."""

    @property
    def client(self) -> str: ...
    def evict(self) -> None:
        """Closed at once for another connection."""


class Connections:
    def __init__(self, limit: int = LIMIT, limit_each: int = LIMIT_EACH) -> None:
        self.limit, self.limit_each = limit, min(limit, limit_each)
        self._open: dict[str, int] = {}  # by client
        self._count = 0
        self._waiting: OrderedDict[Open, None] = OrderedDict()  # those who waited longest first
        self._waiting_of: dict[str, OrderedDict[Open, None]] = {}
        self._known: set[Open] = set()

    def __len__(self) -> int:
        return self._count

    def admit(self, one: Open) -> bool:
        """Whether there is room, made if need be. From now on it is waiting for a request."""
        client = one.client
        if self._open.get(client, 0) >= self.limit_each and not self._make_room(self._waiting_of.get(client)):
            return False
        if self._count >= self.limit and not self._make_room(self._waiting):
            return False
        self._known.add(one)
        self._count += 1
        self._open[client] = self._open.get(client, 0) + 1
        self.waits(one)
        return True

    def evict_one(self) -> bool:
        """Whether a connection could be closed, for want of descriptors, say."""
        return self._make_room(self._waiting)

    def waits(self, one: Open) -> None:
        """It has no whole request yet; calls while it waits already change nothing."""
        if one in self._known and one not in self._waiting:
            self._waiting[one] = None
            self._waiting_of.setdefault(one.client, OrderedDict())[one] = None

    def is_answered(self, one: Open) -> None:
        if one in self._waiting:
            del self._waiting[one]
            own = self._waiting_of[one.client]
            del own[one]
            if not own:
                del self._waiting_of[one.client]

    def gone(self, one: Open) -> None:
        if one not in self._known:
            return
        self.is_answered(one)
        self._known.discard(one)
        self._count -= 1
        left = self._open[one.client] - 1
        if left:
            self._open[one.client] = left
        else:
            del self._open[one.client]

    def all(self) -> list[Open]:
        return list(self._known)

    def _make_room(self, waiting: OrderedDict[Open, None] | None) -> bool:
        if not waiting:
            return False
        first = next(iter(waiting))
        self.gone(first)
        first.evict()
        return True


def network(address: str) -> str:
    """What one client can call its own: an address, or the 64 bits of IPv6 that a host gets."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(parsed.ipv4_mapped or f"{parsed.exploded[:19]}::/64")
    return address
