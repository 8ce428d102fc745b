"""The driver's control port and strangers: who proves nothing holds nothing (fault E7)."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import threading
from collections.abc import Iterator
from multiprocessing import AuthenticationError

import pytest

from heliograph.flow import door as doors
from heliograph.flow.door import HALF_OPEN, PER_ADDRESS, Door
from heliograph.flow.hub import Hub
from heliograph.mirror import handshake
from heliograph.mirror.link import Link
from heliograph.mirror.protocol import Report, TaskHello
from tests.kit import wait_until
from tests.unit.test_mirror_link import FLOW, Station

KEY = b"k" * 32


class Inside:
    def __init__(self) -> None:
        self.admitted: list[socket.socket] = []
        self.full, self.refused = False, 0

    def admit(self, raw: socket.socket) -> None:
        if self.full:
            self.refused += 1
            raise RuntimeError("can't start new thread")
        self.admitted.append(raw)


@pytest.fixture
def inside() -> Iterator[Inside]:
    inside = Inside()
    yield inside
    for one in inside.admitted:
        one.close()


@pytest.fixture
def door(inside: Inside) -> Iterator[Door]:
    door = Door("127.0.0.1", 0, KEY, inside)
    yield door
    door.close()


@contextlib.contextmanager
def silent(port: int, count: int, address: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as ends:
        yield [
            ends.enter_context(socket.create_connection(("127.0.0.1", port), source_address=(address, 0)))
            for _ in range(count)
        ]


def knock(door: Door, key: bytes = KEY) -> None:
    handshake.connect("127.0.0.1", door.port, key, timeout_s=10, later_s=10).close()


def is_ended(one: socket.socket) -> bool:
    """Whether the other side closed it, greeting aside."""
    one.settimeout(10)
    with contextlib.suppress(ConnectionError):
        while one.recv(100):
            pass
    return True


def test_both_sides_prove_the_key(door: Door, inside: Inside) -> None:
    knock(door)
    wait_until(lambda: len(inside.admitted) == 1, what="the one with the key")
    with pytest.raises((EOFError, ConnectionError)):
        knock(door, b"x" * 32)
    assert len(inside.admitted) == 1
    assert inside.admitted[0].getblocking()


def test_a_driver_that_does_not_know_the_key_is_told_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(handshake.MAGIC + bytes(32))
                connection.recv(handshake.PROOF_BYTES)
                connection.sendall(bytes(32))

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(AuthenticationError, match="does not know the key"):
            handshake.connect("127.0.0.1", listener.getsockname()[1], KEY, timeout_s=10, later_s=10)


def test_a_proof_cannot_be_sent_back() -> None:
    """A stranger who has the driver prove the key to it cannot use that as its own proof."""
    first, second = handshake.Challenge(KEY), handshake.Challenge(KEY)
    nonce = first.greeting[len(handshake.MAGIC) :]
    for theirs in (second.greeting[len(handshake.MAGIC) :], nonce, bytes(32)):
        with pytest.raises(AuthenticationError):
            first.answer(theirs + handshake._mac(KEY, b"driver", nonce, theirs))
    assert first.answer(bytes(32) + handshake._mac(KEY, b"task", nonce, bytes(32)))


def test_silent_strangers_hold_no_thread_and_nobody_up(door: Door, inside: Inside) -> None:
    threads = threading.active_count()
    with silent(door.port, 3 * PER_ADDRESS) as strangers:
        wait_until(lambda: door.half_open == PER_ADDRESS, what="the limit for one address")
        assert threading.active_count() <= threads  # one of another test may end meanwhile
        knock(door)
        assert is_ended(strangers[0])  # the oldest made room
    wait_until(lambda: len(inside.admitted) == 1 and door.half_open == 0, what="the end of the strangers")


def test_strangers_of_many_addresses_are_bounded_in_total(door: Door, inside: Inside) -> None:
    with contextlib.ExitStack() as ends:
        for last in range(2, 14):
            ends.enter_context(silent(door.port, PER_ADDRESS // 2, f"127.0.0.{last}"))
        wait_until(lambda: door.half_open == HALF_OPEN, what="the limit in total")
        knock(door)
    wait_until(lambda: len(inside.admitted) == 1, what="the one with the key")


def test_a_proof_that_comes_byte_by_byte_has_one_deadline(
    door: Door, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "HANDSHAKE_S", 0.5)
    with silent(door.port, 1) as (stranger,):
        sent = 0
        with contextlib.suppress(OSError):
            while sent < handshake.PROOF_BYTES - 1:  # never whole: only the deadline can end it
                stranger.send(b"x")
                sent += 1
                threading.Event().wait(0.1)
        assert sent < handshake.PROOF_BYTES - 1
    wait_until(lambda: door.half_open == 0, what="the end of the stranger")
    assert not inside.admitted


def test_the_port_outlives_a_process_without_descriptors(door: Door, inside: Inside) -> None:
    """accept() fails with EMFILE while connections wait in the kernel's queue."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(one) for one in os.listdir("/proc/self/fd"))
    waiting = [socket.socket() for _ in range(2)]
    held: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 40, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        for one in waiting:
            one.connect(("127.0.0.1", door.port))
        wait_until(lambda: door._listen_again_at is not None or not door._thread.is_alive(), what="EMFILE")
    finally:
        for number in held:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in waiting:
            one.close()
    knock(door)
    wait_until(lambda: len(inside.admitted) == 1, what="the one with the key")


def test_the_port_outlives_a_process_without_threads_and_errors_of_ours(
    door: Door, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside.full = True
    knock(door)
    wait_until(lambda: inside.refused == 1, what="the one that got no thread")
    inside.full = False
    failed: list[bytes] = []

    def fail(key: bytes) -> None:
        failed.append(key)
        raise ZeroDivisionError

    monkeypatch.setattr(doors, "Challenge", fail)
    with silent(door.port, 1):
        wait_until(lambda: failed, what="an error of ours")
    monkeypatch.undo()
    assert door._thread.is_alive()
    wait_until(lambda: _knocks(door), what="an answer again")
    wait_until(lambda: len(inside.admitted) == 1, what="the one with the key")


def _knocks(door: Door) -> bool:
    with contextlib.suppress(OSError, EOFError):
        knock(door)
        return True
    return False


def test_nothing_is_answered_after_close(inside: Inside) -> None:
    door = Door("127.0.0.1", 0, KEY, inside)
    with silent(door.port, 1) as (stranger,):
        door.close()
        assert is_ended(stranger)
        with pytest.raises(OSError) as caught:
            socket.create_connection(("127.0.0.1", door.port), timeout=5)
        assert caught.value.errno == errno.ECONNREFUSED
    assert not door._thread.is_alive()


def test_a_closed_hub_answers_no_task() -> None:
    """A ping that is answered tells a task that its driver lives."""
    hub, station = Hub(), Station()
    hub.add(FLOW, station)
    link = Link(hub.coordinates, TaskHello(FLOW, 1, 0, 0))
    wait_until(lambda: bool(station.channels), what="the task")
    hub.close()
    wait_until(lambda: bool(station.ended), what="the end of the task's connection")
    wait_until(lambda: not link.heard() and not link.tell(Report()), what="a task that noticed")
    link.close()
