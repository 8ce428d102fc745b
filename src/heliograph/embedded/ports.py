"""Loopback ports that stay ours from the moment they are chosen, although the broker binds them a second later.

They lie below the range the kernel takes for outgoing connections: otherwise a client's own connection could sit on a
broker's port while that broker is being restarted. Heliograph processes claim a port by an abstract Unix socket of that
name (Linux), which disappears with the process.
"""

from __future__ import annotations

import random
import socket
import sys

from heliograph.errors import EmbeddedError

LOOPBACK = "127.0.0.1"
RANGE = range(20_000, 32_000)
ATTEMPTS = 500


class Port:
    """One claimed port. `release` when nobody needs it any more."""

    def __init__(self, number: int, claim: socket.socket | None) -> None:
        self.number = number
        self._claim = claim

    def release(self) -> None:
        if self._claim is not None:
            self._claim.close()


def claim_port(wanted: int | None = None) -> Port:
    """A free loopback port: `wanted` if given, else any."""
    choices = [wanted] if wanted else random.sample(RANGE, ATTEMPTS)
    for number in choices:
        claimed, claim = _claim(number)
        if claimed and is_free(number):
            return Port(number, claim)
        if claim is not None:
            claim.close()
    if wanted:
        raise EmbeddedError(f"port {wanted} is in use", fix="Choose another with --port, or none to get a free one")
    raise EmbeddedError(f"no free port between {RANGE.start} and {RANGE.stop}", fix="Stop other embedded clusters")


def is_free(number: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as brokers do: TIME_WAIT is no hindrance
        try:
            probe.bind((LOOPBACK, number))
        except OSError:
            return False
    return True


def _claim(number: int) -> tuple[bool, socket.socket | None]:
    if not sys.platform.startswith("linux"):
        return True, None
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0heliograph-port-{number}")
    except OSError:
        claim.close()
        return False, None
    return True, claim
