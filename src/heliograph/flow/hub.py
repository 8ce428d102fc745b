"""The driver's control server: planners ask for epochs and plans, tasks report and are told what to do.

One listener for all flows of a process, a thread a connection (a task or a planner each: dozens, not thousands).
`mirror.protocol` says what travels.

Invariants:
  a. The key is proved by both sides before a connection gets here (`flow.door`), and a hello of our protocol version
     read before anything else is believed.
  b. Reading a task's connection never waits for a cluster (a station's methods return at once), so a `Ping` is answered
     in milliseconds as long as this process runs.
  c. A message that cannot be understood is named once in the log and dropped. It ends no connection, and no other
     connection notices.
  d. A task that has not been heard of for SILENT_S has given up on this driver (`mirror.link.GONE_AFTER_S`): its
     connection is ended, though no packet said so. A send that a task does not take in SEND_S ends its connection too.
  e. After `close` no message is answered: a task whose driver has ended must not hear that it lives.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Protocol

import structlog

from heliograph.flow.door import Door
from heliograph.flow.relay import Channel, TaskKey
from heliograph.mirror import protocol
from heliograph.mirror.assignment import Assignment, Coordinates
from heliograph.mirror.handshake import limit_waiting
from heliograph.mirror.inbox import Complaints
from heliograph.mirror.link import GONE_AFTER_S
from heliograph.mirror.protocol import (
    AskLastEpoch,
    AskNextEpoch,
    BadMessage,
    DriverMessage,
    GaveUp,
    Ping,
    Pong,
    Ready,
    Refused,
    Report,
    TaskHello,
    ToTask,
    WrongVersion,
)

log = structlog.get_logger()

HELLO_S = 5.0
SEND_S = 5.0
SILENT_S = GONE_AFTER_S + 5.0


class Station(Protocol):
    """What the hub needs of a coordinator. Of a task's messages nothing may wait for a cluster (invariant b)."""

    def last_epoch(self) -> int: ...
    def next_epoch(self, after: int) -> int: ...
    def plan(self, epoch: int) -> list[Assignment]: ...
    def joined(self, task: TaskKey, channel: Channel) -> None: ...
    def reported(self, task: TaskKey, report: Report) -> None: ...
    def ready(self, task: TaskKey, request: int, channel: Channel) -> None: ...
    def gave_up(self, task: TaskKey, request: int, channel: Channel) -> None: ...
    def left(self, task: TaskKey, channel: Channel) -> None: ...


class TaskChannel:
    """A task's connection, written by any thread."""

    def __init__(self, connection: Connection, task: TaskKey) -> None:
        self._connection, self._task = connection, task
        self._lock = threading.Lock()
        self._broken = False

    def send(self, message: DriverMessage) -> None:
        data = protocol.encode(ToTask(self._task, message))
        with self._lock:
            if self._broken:
                return
            try:
                self._connection.send_bytes(data)
            except OSError:  # half a message may be out: nothing more may follow it
                self._broken = True
                _shut(self._connection)


class Hub:
    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._stations: dict[str, Station] = {}
        self._complaints = Complaints()
        self._key = secrets.token_bytes(32)
        self._connections: set[Connection] = set()
        self._lock = threading.Lock()
        self._open = True
        self._door = Door(host, port, self._key, self)
        self.coordinates = Coordinates(host, self._door.port, self._key)

    def add(self, flow: str, station: Station) -> None:
        self._stations[flow] = station

    def remove(self, flow: str, station: Station) -> None:
        """Unless another has taken its place."""
        if self._stations.get(flow) is station:
            del self._stations[flow]

    def close(self) -> None:
        """Invariant e."""
        self._door.close()
        with self._lock:
            self._open = False
            for connection in self._connections:
                _shut(connection)

    def admit(self, raw: socket.socket) -> None:
        """Somebody who has proved the key. Raises RuntimeError without a thread for it."""
        threading.Thread(target=self._serve, args=(raw,), name="hub-connection", daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        try:
            limit_waiting(raw, HELLO_S, SEND_S)
            with Connection(raw.detach()) as connection, self._listed(connection):
                hello = self._hello(connection)
                if hello is not None:
                    self._converse(connection, hello)
        except (OSError, EOFError):
            pass  # the other side ended
        except Exception:  # top of a thread: a mistake of ours ends this connection, the task dials again
            log.exception("a control connection failed")

    @contextlib.contextmanager
    def _listed(self, connection: Connection) -> Iterator[None]:
        with self._lock:
            if not self._open:
                raise EOFError
            self._connections.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._connections.discard(connection)

    def _hello(self, connection: Connection) -> protocol.TaskHello | protocol.PlannerHello | None:
        """None: refused, and told so."""
        try:
            return protocol.decode_hello(connection.recv_bytes())
        except BadMessage as error:
            flow = error.flow if isinstance(error, WrongVersion) else ""
            self._complaints.name("control connection refused", flow, None, str(error))
            connection.send_bytes(protocol.encode(ToTask((0, 0, 0), Refused(str(error)))))
            return None

    def _converse(self, connection: Connection, hello: protocol.TaskHello | protocol.PlannerHello) -> None:
        station = self._stations.get(hello.flow)
        if station is None:
            return  # a task or a planner of a flow that has ended meanwhile: it hears the connection's end
        if isinstance(hello, TaskHello):
            _limit(connection, SILENT_S)
            self._follow(connection, station, hello)
        else:
            _limit(connection, 0.0)
            self._answer(connection, station, hello.flow)

    def _answer(self, connection: Connection, station: Station, flow: str) -> None:
        """A planner. It waits for each answer: a question that is not understood ends its connection."""
        while True:
            try:
                question = protocol.decode_question(connection.recv_bytes())
            except BadMessage as error:
                self._complaints.name("planner's question not understood", flow, None, str(error))
                return
            if isinstance(question, AskLastEpoch):
                connection.send(station.last_epoch())
            elif isinstance(question, AskNextEpoch):
                connection.send(station.next_epoch(question.after))
            else:
                connection.send(station.plan(question.epoch))

    def _follow(self, connection: Connection, station: Station, hello: TaskHello) -> None:
        task = hello.id
        channel = TaskChannel(connection, task)
        station.joined(task, channel)
        try:
            while True:
                try:
                    message = protocol.decode_from_task(connection.recv_bytes())
                except BadMessage as error:
                    self._complaints.name("control message not understood", hello.flow, task, str(error))
                    continue
                if isinstance(message, Ping):
                    channel.send(Pong(message.number))
                elif isinstance(message, Ready):
                    station.ready(task, message.request, channel)
                elif isinstance(message, GaveUp):
                    station.gave_up(task, message.request, channel)
                else:
                    station.reported(task, message)
        finally:
            station.left(task, channel)


def _limit(connection: Connection, receive_s: float) -> None:
    with socket.socket(fileno=os.dup(connection.fileno())) as raw:
        limit_waiting(raw, receive_s, SEND_S)


def _shut(connection: Connection) -> None:
    """So that the thread that reads it notices. Closing the descriptor would not wake it."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as raw:
        raw.shutdown(socket.SHUT_RDWR)
