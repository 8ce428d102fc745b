"""The driver's end of the small connections: planners ask for epochs and plans, tasks report and are told what to do.

One listener for all flows of a process, a thread a connection (a task or a planner each: dozens, not thousands). The
key is proved by both sides before a word is read; a stranger who connects and says nothing holds one thread for a
moment, not the listener.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from typing import Any, Protocol

import msgspec
import structlog

from heliograph.flow.relay import TaskKey, Voice
from heliograph.mirror.assignment import Assignment, Coordinates

log = structlog.get_logger()


class Station(Protocol):
    """What the hub needs of a coordinator."""

    def last_epoch(self) -> int: ...
    def next_epoch(self, after: int) -> int: ...
    def plan(self, epoch: int) -> list[Assignment]: ...
    def joined(self, task: TaskKey, voice: Voice) -> None: ...
    def reported(self, task: TaskKey, report: Mapping[str, Any]) -> None: ...
    def ready(self, task: TaskKey) -> None: ...
    def left(self, task: TaskKey) -> None: ...


class Wire:
    """The coordinator's voice, over a task's connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def say(self, word: str, **more: Any) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._connection.send_bytes(msgspec.json.encode({"say": word, **more}))


class Hub:
    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._stations: dict[str, Station] = {}
        self._key = secrets.token_bytes(32)
        self._listener = Listener((host, port), backlog=64)
        address: Any = self._listener.address
        self.coordinates = Coordinates(host, address[1], self._key)
        self._open = True
        threading.Thread(target=self._accept, name="hub", daemon=True).start()

    def add(self, flow: str, station: Station) -> None:
        self._stations[flow] = station

    def remove(self, flow: str, station: Station) -> None:
        """Unless another has taken its place."""
        if self._stations.get(flow) is station:
            del self._stations[flow]

    def close(self) -> None:
        self._open = False
        self._listener.close()

    def _accept(self) -> None:
        while self._open:
            try:
                connection = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="hub-connection", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        try:
            with connection:
                deliver_challenge(connection, self._key)
                answer_challenge(connection, self._key)
                self._converse(connection)
        except AuthenticationError:
            log.warning("somebody without the key tried to reach the coordinator")
        except (OSError, EOFError):
            pass  # the other side ended

    def _converse(self, connection: Connection) -> None:
        message = msgspec.json.decode(connection.recv_bytes())
        station = self._stations.get(message["flow"])
        if station is None:
            return  # a task or a planner of a flow that has ended meanwhile: it hears the connection's end
        if message["say"] == "task":
            self._follow(connection, station, (message["epoch"], message["task"], message["attempt"]))
            return
        while True:
            if message["say"] == "last":
                connection.send(station.last_epoch())
            elif message["say"] == "next":
                connection.send(station.next_epoch(message["epoch"]))
            else:
                connection.send(station.plan(message["epoch"]))
            message = msgspec.json.decode(connection.recv_bytes())

    def _follow(self, connection: Connection, station: Station, task: TaskKey) -> None:
        station.joined(task, Wire(connection))
        try:
            while True:
                message = msgspec.json.decode(connection.recv_bytes())
                if message["say"] == "ready":
                    station.ready(task)
                else:
                    station.reported(task, message)
        finally:
            station.left(task)
