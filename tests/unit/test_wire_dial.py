"""Dialling off the loop: wake-ups, one dial at a time, pauses that grow."""

from __future__ import annotations

import select
import socket
import ssl
import time
from typing import Any

import pytest
from structlog.typing import EventDict

from heliograph.errors import HeliographError, InternalError, Unreachable
from heliograph.types import Cluster
from heliograph.wire import Address, Connection, Dialer
from heliograph.wire.backoff import Backoff
from heliograph.wire.link import Tls, connect


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


# ---- whatever is raised, the loop is answered


def dialled(dialer: Dialer, address: Address) -> HeliographError:
    assert dialer.dial(address, Cluster("west", {}))
    [(answered, error)] = wait_ready(dialer)
    assert answered == address
    assert not dialer.is_dialling(address, "west")
    assert isinstance(error, HeliographError)
    return error


def test_an_unforeseen_exception_is_answered_and_the_broker_dialled_again(
    monkeypatch: pytest.MonkeyPatch, logs: list[EventDict]
) -> None:
    class Panic(BaseException):
        """As a panic in Rust code reaches Python: not an Exception."""

    raised: list[BaseException] = [ZeroDivisionError("first"), ZeroDivisionError("again"), Panic("third")]

    def broken(*_: Any, **__: Any) -> Connection:
        raise raised.pop(0)

    monkeypatch.setattr(Connection, "open", broken)
    dialer, address = Dialer(), Address("broker", 9092)
    errors = [dialled(dialer, address) for _ in range(3)]
    assert [error.condition for error in errors] == ["INTERNAL_ERROR"] * 3
    assert all(isinstance(error, InternalError) and not error.retriable for error in errors)
    assert errors[0].context == {"cluster": "west", "broker": "broker:9092"}
    assert "ZeroDivisionError: first" in errors[0].message
    # One traceback for each kind, however often it comes.
    assert [type(line["exc_info"]) for line in logs if "exc_info" in line] == [ZeroDivisionError, Panic]
    dialer.close()


def test_a_machine_without_threads_left_is_answered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    dialer, address = Dialer(), Address("broker", 9092)
    with monkeypatch.context() as patched:
        patched.setattr("threading.Thread.start", refuse)
        assert isinstance(dialled(dialer, address), InternalError)
    assert not dialer.is_dialling(address, "west")
    dialer.close()


NOT_ADDRESSES = [
    Address("broker..internal", 9092),
    Address(f"{'a' * 64}.internal", 9092),
    Address("bro\0ker", 9092),
    Address("127.0.0.1", 70_000),
    Address("127.0.0.1", -1),
]


@pytest.mark.parametrize("address", NOT_ADDRESSES, ids=str)
def test_an_advertised_address_that_is_none_is_unreachable_and_tried_again(address: Address) -> None:
    """A mistyped advertised.listeners: the dialler died of it, and the broker was never dialled again."""
    dialer = Dialer()
    for _ in range(2):
        error = dialled(dialer, address)
        assert isinstance(error, Unreachable)
        assert "advertised.listeners" in error.fix
    dialer.close()


@pytest.mark.parametrize("host", ["", ".internal", "a..b"])
def test_a_host_that_tls_does_not_take_is_unreachable(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    monkeypatch.setattr("socket.create_connection", lambda *_, **__: ours)
    monkeypatch.setattr("socket.socket.setsockopt", lambda *_: None)
    tls = Tls(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    with pytest.raises(Unreachable, match="not a host name"):
        connect(Address(host, 9092), "west", tls, time.monotonic() + 5)
    assert ours.fileno() == -1  # closed
    theirs.close()
