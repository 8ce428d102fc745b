"""Dialling off the loop: wake-ups, one dial at a time, pauses that grow."""

from __future__ import annotations

import select
import socket
import time

import pytest

from heliograph.errors import HeliographError, Unreachable
from heliograph.types import Cluster
from heliograph.wire import Address, Connection, Dialer
from heliograph.wire.backoff import Backoff


def wait_ready(dialer: Dialer) -> list[tuple[Address, Connection | HeliographError]]:
    assert select.select([dialer], [], [], 10)[0], "the dialer did not wake the loop"
    return dialer.ready()


@pytest.fixture
def nobody() -> Address:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return Address("127.0.0.1", port)


def test_a_failure_wakes_the_loop_and_the_next_dial_waits(nobody: Address) -> None:
    dialer, cluster = Dialer(), Cluster("west", {})
    pauses = []
    for _ in range(4):
        began = time.monotonic()
        assert dialer.dial(nobody, cluster)
        dialer.dial(nobody, cluster)  # under way, or done: in any case no second result below
        [(address, error)] = wait_ready(dialer)[:1]
        pauses.append(time.monotonic() - began)
        assert address == nobody
        assert isinstance(error, Unreachable)
        while dialer.is_dialling(nobody, "west"):
            time.sleep(0.001)
        dialer.ready()
    assert pauses[3] >= 0.14  # 50, 100, 200 ms less the jitter; the first went at once
    dialer.close()


def test_one_dial_at_a_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, says nothing
        address = Address(*silent.getsockname()[:2])
        dialer, cluster = Dialer(connect_timeout_s=0.2), Cluster("west", {})
        assert dialer.dial(address, cluster)
        assert dialer.is_dialling(address, "west")
        assert not dialer.dial(address, cluster)
        since = None
        while since is None and dialer.is_dialling(address, "west"):  # its thread comes to it in a moment
            since = dialer.trying_since(address, "west")
        assert since is not None
        assert dialer.ready() == []
        [(_, error)] = wait_ready(dialer)
        assert isinstance(error, HeliographError)
        assert error.retriable
        assert dialer.trying_since(address, "west") is None
        dialer.close()
        assert not dialer.dial(address, cluster)


def test_backoff_doubles_up_to_its_limit_and_starts_again() -> None:
    backoff = Backoff(0.05, 1.5)
    waits = [backoff.next_s() for _ in range(12)]
    assert 0.035 <= waits[0] <= 0.05
    assert 0.07 <= waits[1] <= 0.1
    assert 1.05 <= waits[-1] <= 1.5
    backoff.reset()
    assert backoff.next_s() <= 0.05
