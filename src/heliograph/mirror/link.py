"""The small connection between a task and its flow's coordinator: reports one way, "finish" the other.

Both ends prove that they know the key (an HMAC challenge each way, by the standard library) before anything is said.
What travels are names and numbers, never payload and never credentials. A coordinator that is gone for long means that
its driver is dead: then the task ends too, since nobody would ever tell it to.
"""

from __future__ import annotations

import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from typing import Any

import msgspec

from heliograph.errors import EngineError
from heliograph.mirror.assignment import Coordinates

GONE_AFTER_S = (
    10.0  # without a coordinator. A driver does not restart under a running task; a network hiccup is shorter.
)


class Link:
    def __init__(self, coordinates: Coordinates, hello: dict[str, Any]) -> None:
        self._coordinates = coordinates
        self._hello = hello
        self._away_since: float | None = None
        self._retry_at = 0.0
        self._connection: Connection | None = None
        self._kept: list[dict[str, Any]] = []  # heard while another word was awaited
        try:
            self._connection = self._dial()
        except (OSError, EOFError, AuthenticationError) as error:
            raise EngineError(
                f"the coordinator at {coordinates.host}:{coordinates.port} cannot be reached: {error}",
                fix="executors must reach the driver: set spark.driver.host (-X) to an address they can see",
            ) from error

    def fileno(self) -> int | None:
        return self._connection.fileno() if self._connection else None

    def tell(self, message: dict[str, Any]) -> bool:
        """Whether it could be said."""
        if self._connection is None and not self._reconnect():
            return False
        assert self._connection is not None
        try:
            self._connection.send_bytes(msgspec.json.encode(message))
        except OSError:
            self._drop()
            return False
        return True

    def heard(self) -> list[dict[str, Any]]:
        """What the coordinator said since, without waiting."""
        messages, self._kept = self._kept, []
        try:
            while self._connection is not None and self._connection.poll(0):
                messages.append(msgspec.json.decode(self._connection.recv_bytes()))
        except (OSError, EOFError):
            self._drop()
        return messages

    def await_word(self, word: str, timeout_s: float = 10.0) -> dict[str, Any]:
        """The coordinator's next message of this kind; empty if it does not come in time. Others are heard later."""
        deadline = time.monotonic() + timeout_s
        while True:
            heard = self.heard()
            found = next((message for message in heard if message.get("say") == word), None)
            self._kept = [message for message in heard if message is not found]
            if found is not None:
                return found
            left = deadline - time.monotonic()
            if self._connection is None or left <= 0 or not self._connection.poll(left):
                return {}

    @property
    def gone(self) -> bool:
        return self._away_since is not None and time.monotonic() - self._away_since > GONE_AFTER_S

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _dial(self) -> Connection:
        connection = Client((self._coordinates.host, self._coordinates.port), authkey=self._coordinates.key)
        connection.send_bytes(msgspec.json.encode(self._hello))
        return connection

    def _drop(self) -> None:
        self.close()
        self._away_since = self._away_since or time.monotonic()

    def _reconnect(self) -> bool:
        now = time.monotonic()
        if now < self._retry_at:
            return False
        self._retry_at = now + 1.0
        try:
            self._connection = self._dial()
        except (OSError, EOFError, AuthenticationError):
            self._away_since = self._away_since or now
            return False
        self._away_since = None
        return True
