"""Links: bytes arrive whole, late when asked, and connections end when told to."""

from __future__ import annotations

import hashlib
import os
import random
import selectors
import socket
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from heliograph.embedded.ports import claim_port
from heliograph.embedded.proxy import Cuts, Link
from heliograph.embedded.relay import Relay
from tests.kit import wait_until


class Echo:
    """A server that sends back what it gets, on as many connections as come."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1 << 16):
                    connection.sendall(data)
            except OSError:
                return

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture(params=[True, False], ids=["process", "thread"])
def own_process(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def connect(link: Link) -> socket.socket:
    return socket.create_connection(("127.0.0.1", link.port), timeout=20)


def exchange(connection: socket.socket, data: bytes) -> bytes:
    """Send all, end our side, read until the other side's end."""
    sender = threading.Thread(target=lambda: (connection.sendall(data), connection.shutdown(socket.SHUT_WR)))
    sender.start()
    parts = []
    while part := connection.recv(1 << 20):
        parts.append(part)
    sender.join()
    return b"".join(parts)


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("delay_ms", [0, 20])
def test_bytes_pass_whole_and_in_order_both_ways(echo: Echo, own_process: bool, delay_ms: int) -> None:
    data = random.Random(1).randbytes(20_000_000)
    with Link(echo.port, delay_ms=delay_ms, own_process=own_process) as link:
        with connect(link) as connection:
            back = exchange(connection, data)
        assert hashlib.sha256(back).digest() == hashlib.sha256(data).digest()
        assert link.counts().bytes == 2 * len(data)
        wait_until(lambda: link.counts().open == 0, what="the half-closes to end the connection")


def test_the_delay_is_of_time_and_not_of_bandwidth(echo: Echo, own_process: bool) -> None:
    with Link(echo.port, delay_ms=50, own_process=own_process) as link, connect(link) as connection:
        start = time.monotonic()
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
        assert time.monotonic() - start >= 0.1
        start = time.monotonic()
        back = exchange(connection, bytes(20_000_000))
        # Paused for every chunk of 512 KiB it would take 40 × 100 ms and more.
        assert len(back) == 20_000_000
        assert 0.1 <= time.monotonic() - start < 3


def test_the_delay_can_be_changed(echo: Echo) -> None:
    with Link(echo.port, delay_ms=300) as link, connect(link) as connection:
        link.delay(0)
        start = time.monotonic()
        connection.sendall(b"x")
        connection.recv(1)
        assert time.monotonic() - start < 0.3


def test_cut_ends_every_connection_and_new_ones_may_come(echo: Echo, own_process: bool) -> None:
    with Link(echo.port, own_process=own_process) as link:
        connections = [connect(link) for _ in range(3)]
        for one in connections:
            one.sendall(b"x")
            assert one.recv(1) == b"x"
        assert link.cut().cuts == 3
        assert all(ended(one) for one in connections)
        with connect(link) as again:
            assert exchange(again, b"y") == b"y"
        for one in connections:
            one.close()


def test_refuse_closes_the_port_but_not_what_is_open(echo: Echo, own_process: bool) -> None:
    with Link(echo.port, own_process=own_process) as link, connect(link) as old:
        old.sendall(b"x")
        assert old.recv(1) == b"x"
        link.refuse(True)
        with pytest.raises(ConnectionRefusedError):
            connect(link)
        old.sendall(b"y")
        assert old.recv(1) == b"y"
        link.refuse(False)
        with connect(link) as new:
            assert exchange(new, b"z") == b"z"


def drain(link: Link, rounds: int) -> list[int]:
    """How many bytes came back before each connection was cut."""
    lengths = []
    for _ in range(rounds):
        with connect(link) as connection:
            connection.sendall(bytes(300))
            got = 0
            try:
                while part := connection.recv(1 << 16):
                    got += len(part)
                    if got == 300:
                        break
            except ConnectionError:
                pass
            lengths.append(got)
    return lengths


def test_seeded_cuts_are_made_and_counted_up_to_the_limit(echo: Echo, own_process: bool) -> None:
    cuts = Cuts(seed=7, low_bytes=400, high_bytes=2_000, limit=5)
    with Link(echo.port, cuts=cuts, own_process=own_process) as link:
        lengths = drain(link, 40)
        assert link.counts().cuts == 5
        assert sum(length < 300 for length in lengths) == 5
        assert lengths[-5:] == [300] * 5  # 5 cuts of at most 2,000 bytes are over long before
        link.cut_after(Cuts(seed=8, low_bytes=1, high_bytes=10, limit=1))
        assert drain(link, 2)[-1] == 300
        assert link.counts().cuts == 1


def test_a_target_that_is_not_there_resets_the_client(own_process: bool) -> None:
    nobody = claim_port()
    with Link(nobody.number, own_process=own_process) as link:
        try:
            with connect(link) as connection:
                assert ended(connection)
        except ConnectionError:  # the reset may come before connect has returned
            pass
        assert link.counts().failed == 1
    nobody.release()


def test_a_closed_link_leaves_no_process(echo: Echo) -> None:
    link = Link(echo.port)
    pid = link.pid
    assert pid is not None
    assert pid != os.getpid()
    link.close()
    assert not psutil.pid_exists(pid)


def test_a_connection_that_comes_in_the_turn_of_a_refusal_does_not_end_the_relay() -> None:
    """Both are ready in one look of the selector, the command first."""
    ours, theirs = socket.socketpair()
    port = claim_port()
    relay = Relay(theirs, {"host": "127.0.0.1", "port": port.number, "target_port": 1})
    with ours, theirs, socket.create_connection(("127.0.0.1", port.number)):
        ours.sendall(b'{"do": "refuse", "on": true}\n')
        known = {key.data: key for key in relay._selector.get_map().values()}
        relay._serve(known[None], selectors.EVENT_READ)
        relay._serve(known[relay], selectors.EVENT_READ)
        assert relay.counts["connections"] == 0
    port.release()
