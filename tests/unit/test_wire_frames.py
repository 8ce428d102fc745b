"""Frames and connections over a socket pair with a scripted broker at the other end."""

from __future__ import annotations

import contextlib
import datetime
import io
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.api_versions.v3 import response as api_versions_v3
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from heliograph.errors import ConnectionLost, ProtocolError, TimedOut
from heliograph.wire import Address, Connection, build, produce_request
from heliograph.wire.frames import FrameReader
from heliograph.wire.messages import decoder, encode

LIMIT = 1 << 20


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def read_all(reader: FrameReader) -> list[bytes]:
    return [bytes(frame) for frame in reader.frames()]


STREAM = [b"first", b"x" * 300, b"four"]


@pytest.mark.parametrize("drain", [False, True])
@pytest.mark.parametrize("cut", range(1, sum(map(len, STREAM)) + 12))
def test_a_stream_cut_at_any_byte(pair: tuple[socket.socket, socket.socket], cut: int, drain: bool) -> None:
    ours, theirs = pair
    reader = FrameReader(ours.recv_into, limit_bytes=LIMIT, drain=drain)
    data = b"".join(map(framed, STREAM))
    theirs.sendall(data[:cut])
    found = read_all(reader)
    theirs.sendall(data[cut:])
    found += read_all(reader) + read_all(reader)
    assert found == STREAM


def test_frames_larger_than_every_buffer_one_after_the_other(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    reader = FrameReader(ours.recv_into, limit_bytes=LIMIT)
    sent = [bytes([n]) * size for n, size in enumerate((200_000, 10, 70_000, 900_000, 65_536, 65_532, 5))]
    data = memoryview(b"".join(map(framed, sent)))
    found: list[bytes] = []
    theirs.setblocking(False)
    while len(found) < len(sent):
        if data:
            with contextlib.suppress(BlockingIOError):
                data = data[theirs.send(data[:50_000]) :]
        found += read_all(reader)
    assert found == sent


def test_the_end_comes_after_the_last_frame(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    reader = FrameReader(ours.recv_into, limit_bytes=LIMIT)
    theirs.sendall(framed(b"last") + b"\0\0")
    theirs.close()
    assert read_all(reader) == [b"last"]
    assert read_all(reader) == []
    assert reader.ended


@pytest.mark.parametrize(
    ("start", "word"),
    [
        (framed(b"")[:4], "0 bytes"),
        ((LIMIT + 1).to_bytes(4, "big"), "limit"),
        (b"\xff\xff\xff\xff", "-1 bytes"),
        (b"\x15\x03\x03\x00\x02", "TLS"),
        (b"HTTP/1.1 400", "HTTP"),
    ],
)
def test_what_is_not_a_frame(pair: tuple[socket.socket, socket.socket], start: bytes, word: str) -> None:
    ours, theirs = pair
    reader = FrameReader(ours.recv_into, limit_bytes=LIMIT)
    theirs.sendall(start)
    with pytest.raises(ProtocolError) as caught:
        read_all(reader)
    assert word in str(caught.value)


# -- connections -----------------------------------------------------------------------------------------------------


class Broker:
    """The other end: reads whole requests, answers ApiVersions with one version of one api that tells them apart."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(10)

    def request(self) -> bytes:
        size = int.from_bytes(self.exactly(4), "big")
        return self.exactly(size)

    def exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            data += self.sock.recv(size - len(data))
        return bytes(data)

    def answer(self, correlation_id: int, mark: int) -> None:
        self.sock.sendall(framed(answer(correlation_id, mark)))


def answer(correlation_id: int, mark: int) -> bytes:
    out = io.BytesIO()
    out.write(correlation_id.to_bytes(4, "big"))
    entry = api_versions_v3.ApiVersion(api_key=mark, min_version=0, max_version=1)  # type: ignore[arg-type]
    response = api_versions_v3.ApiVersionsResponse(
        error_code=ErrorCode.none,
        api_keys=(entry,),
        throttle_time=datetime.timedelta(0),  # type: ignore[arg-type]
    )
    entity_writer(api_versions_v3.ApiVersionsResponse)(out, response)
    return out.getvalue()


def ask() -> Any:
    return build("api_versions", 3, client_software_name="test", client_software_version="1")


@pytest.fixture
def ends(pair: tuple[socket.socket, socket.socket]) -> tuple[Connection, Broker]:
    return Connection(pair[0], Address("127.0.0.1", 9092), alias="here"), Broker(pair[1])


def test_answers_come_with_their_tags(ends: tuple[Connection, Broker]) -> None:
    connection, broker = ends
    ids = [connection.send(ask(), tag) for tag in ("a", "b", "c")]
    assert connection.in_flight == 3
    assert connection.oldest_sent_at is not None
    assert connection.receive() == []
    for mark, correlation_id in enumerate(ids[:2]):
        broker.answer(correlation_id, mark)
    assert [(tag, response.api_keys[0].api_key) for tag, response in connection.receive()] == [("a", 0), ("b", 1)]
    assert connection.in_flight == 1


def test_a_call_keeps_the_answers_to_others(ends: tuple[Connection, Broker]) -> None:
    connection, broker = ends
    first = connection.send(ask(), "earlier")
    broker.answer(first, 1)
    broker.answer(first + 1, 2)  # the socket holds it before it is asked: fine, the order is right
    assert connection.call(ask(), timeout_s=10).api_keys[0].api_key == 2
    [(tag, response)] = connection.receive()
    assert (tag, response.api_keys[0].api_key) == ("earlier", 1)


def test_many_calls_in_one_round_trip(ends: tuple[Connection, Broker]) -> None:
    connection, broker = ends
    for number in range(1, 6):
        broker.answer(number, number)
    assert [int(a.api_keys[0].api_key) for a in connection.call_many([ask()] * 5)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("wrong", [0, 2, 99])
def test_a_stray_correlation_id_ends_the_connection(ends: tuple[Connection, Broker], wrong: int) -> None:
    connection, broker = ends
    connection.send(ask())
    broker.answer(wrong, 0)
    with pytest.raises(ProtocolError) as caught:
        connection.receive()
    assert "here broker 127.0.0.1:9092" in str(caught.value)
    assert connection.closed
    with pytest.raises(ConnectionLost):
        connection.send(ask())


def test_an_answer_that_does_not_parse(ends: tuple[Connection, Broker]) -> None:
    connection, broker = ends
    correlation_id = connection.send(ask())
    broker.sock.sendall(framed(correlation_id.to_bytes(4, "big") + b"\x00"))
    with pytest.raises(ProtocolError) as caught:
        connection.receive()
    assert "api_versions v3" in str(caught.value)


def test_an_answer_nobody_asked_for(ends: tuple[Connection, Broker]) -> None:
    connection, broker = ends
    broker.answer(1, 0)
    with pytest.raises(ProtocolError):
        connection.receive()


def test_the_other_end_closes(ends: tuple[Connection, Broker]) -> None:
    connection, broker = ends
    correlation_id = connection.send(ask(), "x")
    connection.send(ask(), "y")
    broker.request()  # or the close would be a reset
    broker.request()
    broker.answer(correlation_id, 7)
    broker.sock.close()
    assert [tag for tag, _ in connection.receive()] == ["x"]
    with pytest.raises(ConnectionLost) as caught:
        connection.receive()
    assert caught.value.context == {"cluster": "here", "broker": "127.0.0.1:9092"}


def test_no_answer_in_time(ends: tuple[Connection, Broker]) -> None:
    connection, _ = ends
    with pytest.raises(TimedOut):
        connection.call(ask(), timeout_s=0.05)
    assert connection.closed  # a late answer would be taken for the next one's


def test_a_request_larger_than_the_socket_takes_at_once(ends: tuple[Connection, Broker]) -> None:
    connection, broker = ends
    batches = [bytes([n]) * 400_000 for n in range(5)]
    request = produce_request(9, [("t", n, batch) for n, batch in enumerate(batches)])
    connection.send(request)
    assert connection.wants_write
    assert connection.queued_bytes > 0
    received = bytearray()
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
        received += broker.sock.recv(100_000)
        connection.flush()
    assert not connection.wants_write
    assert bytes(received) == b"".join(encode(request, 1, "heliograph"))
    assert all(batch in received for batch in batches)


def test_batches_are_sent_without_a_copy() -> None:
    batch = bytearray(b"b" * 100_000)
    buffers = encode(produce_request(9, [("t", 0, batch)]), 1, "me")
    assert any(view.obj is batch for view in buffers)


def test_a_produce_without_acknowledgement_waits_for_nothing(ends: tuple[Connection, Broker]) -> None:
    connection, _ = ends
    connection.send(produce_request(9, [("t", 0, b"x")], acks=0))
    assert connection.in_flight == 0


def test_a_broker_too_old_for_our_api_versions_answers_in_version_0() -> None:
    frame = memoryview((7).to_bytes(4, "big") + (35).to_bytes(2, "big") + (1).to_bytes(4, "big") + b"\0\x12\0\0\0\x02")
    correlation_id, response = decoder(18, 3).read(frame)
    assert correlation_id == 7
    assert response.error_code == ErrorCode.unsupported_version
    assert response.api_keys[0].max_version == 2
