"""A task's connection to its flow's driver: reports one way, instructions the other (`mirror.protocol`).

Both ends prove that they know the key before anything is said (`mirror.handshake`).

Invariants:
  a. The driver counts as there until GONE_AFTER_S after the task *sent* the last ping that was answered. Messages that
     lay in a buffer while the driver or the task was frozen prove nothing, and a connection that is open neither.
  b. A task without its driver stops, and writes no positions (`may_write_positions`): an operator may have changed them
     meanwhile. What it had acknowledged is found again by rule D.
  c. A lost connection is dialled again wherever the task is, also where it waits; by a thread, since a frozen driver's
     machine accepts connections that nobody serves. A task that waits for `Go` then asks for it again.
  d. No call waits for the driver, but for `await_message`. A send that the driver does not take within CALL_S ends the
     connection.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from typing import TypeVar

import structlog

from heliograph.errors import EngineError
from heliograph.mirror import handshake, protocol
from heliograph.mirror.assignment import Coordinates
from heliograph.mirror.inbox import Complaints, Inbox
from heliograph.mirror.protocol import BadMessage, DriverMessage, FromTask, Ping, Pong, Positions, Refused, TaskHello

log = structlog.get_logger()

# Longer than a network hiccup, shorter than what others take a silent driver for gone after: `flow.presence.GONE_S` is
# a beat, this, and the time in which a task ends.
GONE_AFTER_S = 10.0
PING_EVERY_S = 1.0
# Without a sign of the driver for so long nothing is sent to the target any more: if the driver was killed, another
# process may take over (`flow.leadership`). Longer than a busy driver takes to answer.
MUTE_S = 5.0
QUIET_S = 3.0  # pings unanswered for so long: reports are kept back, they would only fill the buffer
CALL_S = 2.0  # to connect, to prove the key, to send
REDIAL_S = 1.0
LAST_S = 1.5  # what a last report may wait for a connection

Kind = TypeVar("Kind", bound=DriverMessage)


class Link:
    def __init__(self, coordinates: Coordinates, hello: TaskHello) -> None:
        self._coordinates, self._hello = coordinates, hello
        self._inbox, self._complaints = Inbox(hello), Complaints()
        self._kept: list[DriverMessage] = []  # came while another message was awaited
        self._pings: dict[int, float] = {}  # sent and not answered -> when
        self._pinged, self._ping_at = 0, 0.0
        self._closed = False
        self._dialled: list[tuple[float, Connection]] = []  # by the thread: since when, and what; taken by the loop
        self._dialling: threading.Thread | None = None
        self._dial_at = 0.0
        self._connection: Connection | None
        try:
            # When the last ping that was answered was sent, or the last dial began: proving the key is an answer too.
            self._proved_at, self._connection = self._dial()
        except (OSError, EOFError, AuthenticationError) as error:
            raise EngineError(
                f"the coordinator at {coordinates.host}:{coordinates.port} cannot be reached: {error}",
                fix="executors must reach the driver: set spark.driver.host (-X) to an address they can see",
            ) from error

    def fileno(self) -> int | None:
        return self._connection.fileno() if self._connection else None

    # ---------------------------------------------------------------- talking

    def tell(self, message: FromTask, *, wait_s: float = 0.0) -> bool:
        """Whether it was sent. Not while the driver does not answer. `wait_s`: how long a lost connection is waited
        for, by a task that has nothing else to do."""
        deadline = time.monotonic() + wait_s
        while not self._connected() and time.monotonic() < deadline:
            time.sleep(0.02)
        return self._connected() and not self._quiet and self._send(message)

    def ready(self) -> None:
        """Wait for `Go`."""
        self._send_ready()

    def give_up(self) -> None:
        """Stop waiting for `Go`. If the driver cannot be told, its late `Go` is dropped all the same."""
        gave_up = self._inbox.give_up()
        if gave_up is not None and self._connected():
            self._send(gave_up)

    def heard(self) -> list[DriverMessage]:
        """What the driver sent since, without waiting. Raises EngineError if the driver refuses this task."""
        messages, self._kept = self._kept, []
        self._connected()
        self._ping()
        try:
            while self._connection is not None and self._connection.poll(0):
                message = self._receive(self._connection.recv_bytes())
                messages += [] if message is None else [message]
        except (OSError, EOFError):
            self._drop()
        return messages

    def await_message(self, kind: type[Kind], timeout_s: float = 10.0) -> Kind | None:
        """The driver's next message of this kind; None if it does not come in time. Others are heard later."""
        self._inbox.wants_positions = kind is Positions
        deadline = time.monotonic() + timeout_s
        try:
            while True:
                heard = self.heard()
                found = next((message for message in heard if isinstance(message, kind)), None)
                self._kept = [message for message in heard if message is not found]
                left = deadline - time.monotonic()
                if found is not None or left <= 0:
                    return found
                self._wait(min(left, REDIAL_S / 4))
        finally:
            self._inbox.wants_positions = False

    # ---------------------------------------------------------------- whether the driver is there

    @property
    def gone(self) -> bool:
        """Invariant a."""
        return time.monotonic() - self._proved_at > GONE_AFTER_S

    @property
    def may_send(self) -> bool:
        return time.monotonic() - self._proved_at <= MUTE_S

    @property
    def may_write_positions(self) -> bool:
        return not self.gone and not self._inbox.abandoned

    @property
    def _quiet(self) -> bool:
        return bool(self._pings) and time.monotonic() - min(self._pings.values()) > QUIET_S

    def close(self) -> None:
        self._closed = True
        self._disconnect()
        for _, connection in self._dialled:
            connection.close()

    # ---------------------------------------------------------------- inside

    def _send(self, message: FromTask) -> bool:
        if self._connection is None:
            return False
        try:
            room = select.poll()  # not `select`: a task may have more than 1,024 descriptors
            room.register(self._connection, select.POLLOUT)
            if not room.poll(0):
                return False  # the buffer is full
            self._connection.send_bytes(protocol.encode(message))
        except (OSError, ValueError):  # in time or not: half a message may be out
            self._drop()
            return False
        return True

    def _send_ready(self) -> None:
        ready = self._inbox.ready()
        if self._connected() and not self._send(ready):
            self._drop()  # asked again by the next connection

    def _ping(self) -> None:
        now = time.monotonic()
        if self._connection is None or now < self._ping_at:
            return
        self._ping_at = now + PING_EVERY_S
        self._pinged += 1
        self._pings[self._pinged] = now
        self._send(Ping(self._pinged))

    def _receive(self, data: bytes) -> DriverMessage | None:
        try:
            envelope = protocol.decode_to_task(data)
        except BadMessage as error:
            self._complaints.name("control message not understood", self._hello.flow, self._hello.id, str(error))
            return None
        if isinstance(envelope.message, Refused):
            raise EngineError(
                f"{self._hello.flow}: the driver refuses task {self._hello.task}: {envelope.message.reason}",
                fix="run one Heliograph version on driver and executors",
            )
        message = self._inbox.accept(envelope)
        if isinstance(message, Pong):
            self._answered(message.number)
            return None
        return message

    def _answered(self, number: int) -> None:
        sent_at = self._pings.get(number)
        if sent_at is not None:
            self._proved_at = max(self._proved_at, sent_at)
            self._pings = {other: at for other, at in self._pings.items() if other > number}

    def _wait(self, seconds: float) -> None:
        if self._connection is None:
            time.sleep(seconds)
            return
        with contextlib.suppress(OSError, EOFError):  # `heard` finds out
            self._connection.poll(seconds)

    def _drop(self) -> None:
        self._disconnect()
        self._dial_at = max(self._dial_at, time.monotonic())

    def _disconnect(self) -> None:
        self._pings = {}
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> bool:
        """Whether there is a connection; without one, begin to dial, or take what was dialled (invariant c)."""
        if self._connection is not None:
            return True
        if self._dialled:
            began, self._connection = self._dialled.pop()
            self._proved_at = max(self._proved_at, began)
            self._ping_at = 0.0
            if self._inbox.waiting:
                self._send_ready()
            return self._connection is not None
        now = time.monotonic()
        if not self._closed and now >= self._dial_at and (self._dialling is None or not self._dialling.is_alive()):
            self._dial_at = now + REDIAL_S
            self._dialling = threading.Thread(target=self._dial_again, name="dial-coordinator", daemon=True)
            self._dialling.start()
        return False

    def _dial_again(self) -> None:
        try:
            began, connection = self._dial()
        except (OSError, EOFError, AuthenticationError):
            return
        except Exception:  # top of a thread: logged; the next one dials again
            log.exception("dialling the coordinator failed unexpectedly", flow=self._hello.flow)
            return
        self._dialled.append((began, connection))
        if self._closed:
            connection.close()

    def _dial(self) -> tuple[float, Connection]:
        began = time.monotonic()
        where = self._coordinates
        connection = handshake.connect(where.host, where.port, where.key, timeout_s=CALL_S, later_s=CALL_S)
        try:
            connection.send_bytes(protocol.encode(self._hello))
        except BaseException:
            connection.close()
            raise
        return began, connection
