"""How long a start waits for what is away, and what it says meanwhile.

Waited for is whatever a retriable WireError stands for: a broker that refuses connections or does not answer, a name
that does not resolve (in Kubernetes and Compose names appear with their service), a TLS handshake that breaks off, a
token endpoint that is away, a partition without a leader. Not waited for is what stays wrong until a person changes
something: a refused login, a certificate that is not trusted, no permission, two aliases of one cluster, a broker that
is too old.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import structlog

from heliograph.errors import HeliographError, WireError

log = structlog.get_logger()

T = TypeVar("T")

PAUSE_S = 0.5  # between two tries
SAY_EVERY_S = 10.0  # the same again


class Patience:
    """`again` is asked after every try that failed."""

    def __init__(self, wait_s: float) -> None:
        self.wait_s = wait_s
        self._until = time.monotonic() + wait_s
        self._said, self._said_at = "", 0.0

    @property
    def left_s(self) -> float:
        return max(self._until - time.monotonic(), 0.0)

    def again(self, why: str) -> bool:
        """Whether there is time for another try, which is due when this returns."""
        if self.left_s <= PAUSE_S:
            return False
        now = time.monotonic()
        if why != self._said or now - self._said_at >= SAY_EVERY_S:
            self._said, self._said_at = why, now
            self.say(why)
        time.sleep(PAUSE_S)
        return True

    def say(self, why: str) -> None:
        log.warning("waiting", for_up_to_s=round(self.left_s), why=why)


def insist(attempt: Callable[[], T], patience: Patience | None) -> T:
    """What the attempt returns; one that fails for a reason that may pass is repeated while there is patience."""
    while True:
        try:
            return attempt()
        except HeliographError as error:
            if not is_passing(error) or patience is None or not patience.again(str(error)):
                raise


def is_passing(error: BaseException | None) -> bool:
    """Whether it may be better in a moment, by itself."""
    return isinstance(error, WireError) and error.retriable
