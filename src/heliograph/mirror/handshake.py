"""How the two ends of a control connection prove that they know the key: both sides of it, before anything is said.

    driver:  MAGIC, nonce
    other:   nonce, HMAC-SHA256(key, "task", both nonces)
    driver:  HMAC-SHA256(key, "driver", both nonces)

The other side proves the key first: a stranger gets nothing that was made with it. The labels differ, so that neither
proof can be sent back as the other. Fixed lengths, so that the driver reads no more of a stranger than PROOF_BYTES.

Why not the handshake of `multiprocessing.connection`, which says the same: it blocks, so that every stranger who
connects and says nothing would hold a thread of the driver (`flow.door`).
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import struct
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection

MAGIC = b"HLG2"
NONCE_BYTES = MAC_BYTES = 32
PROOF_BYTES = NONCE_BYTES + MAC_BYTES


class Challenge:
    """The driver's side, without I/O: send `greeting`, read PROOF_BYTES, send what `answer` returns."""

    def __init__(self, key: bytes) -> None:
        self._key, self._nonce = key, secrets.token_bytes(NONCE_BYTES)
        self.greeting = MAGIC + self._nonce

    def answer(self, proof: bytes) -> bytes:
        """Raises AuthenticationError."""
        nonce, mac = proof[:NONCE_BYTES], proof[NONCE_BYTES:]
        if not hmac.compare_digest(mac, _mac(self._key, b"task", self._nonce, nonce)):
            raise AuthenticationError("the other side does not know the key")
        return _mac(self._key, b"driver", self._nonce, nonce)


def connect(host: str, port: int, key: bytes, *, timeout_s: float, later_s: float) -> Connection:
    """A connection to the driver, proved by both sides. `timeout_s`: of each step; `later_s`: of each send and receive
    after it; 0: for ever. Raises OSError, EOFError or AuthenticationError."""
    raw = socket.create_connection((host, port), timeout=timeout_s)
    with contextlib.ExitStack() as failed:
        failed.callback(raw.close)
        raw.settimeout(None)
        limit_waiting(raw, timeout_s, timeout_s)
        greeting = _receive(raw, len(MAGIC) + NONCE_BYTES)
        if not greeting.startswith(MAGIC):
            raise AuthenticationError(f"{host}:{port} is no driver of this Heliograph version")
        theirs, ours = greeting[len(MAGIC) :], secrets.token_bytes(NONCE_BYTES)
        raw.sendall(ours + _mac(key, b"task", theirs, ours))
        if not hmac.compare_digest(_receive(raw, MAC_BYTES), _mac(key, b"driver", theirs, ours)):
            raise AuthenticationError(f"{host}:{port} does not know the key")
        limit_waiting(raw, later_s, later_s)
        failed.pop_all()
    return Connection(raw.detach())


def limit_waiting(raw: socket.socket, receive_s: float, send_s: float) -> None:
    """By the kernel, for blocking reads and writes of the descriptor, which then raise OSError. 0: for ever."""
    for option, seconds in ((socket.SO_RCVTIMEO, receive_s), (socket.SO_SNDTIMEO, send_s)):
        raw.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000)))


def _mac(key: bytes, label: bytes, driver_nonce: bytes, other_nonce: bytes) -> bytes:
    return hmac.digest(key, label + b"\0" + driver_nonce + other_nonce, "sha256")


def _receive(raw: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = raw.recv(size - len(data))
        if not part:
            raise EOFError("the driver ended the connection")
        data += part
    return data
