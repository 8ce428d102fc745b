"""A model of a broker for one task: it answers what a task asks of a leader, quickly, and nothing else.

In a process of its own, so that its CPU is not the task's. One broker leads every partition of every topic. A source
holds the same batches over and over, all of them there from the start (a backlog) or so many a second (live); it keeps
one fetch session a connection (KIP-227). A target counts what it is sent. What is in batches is not looked at.
"""

from __future__ import annotations

import datetime
import io
import itertools
import socket
import struct
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any, cast

from kio.index import load_request_schema
from kio.schema.api_versions.v3 import response as api_versions
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12 import response as metadata
from kio.serial import entity_reader, entity_writer

from heliograph.batch import header
from heliograph.wire.fields import unsigned_bytes

LOOPBACK = "127.0.0.1"
TOPIC_ID = uuid.UUID(int=7)
PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
VERSIONS = {PRODUCE: (9, 11), FETCH: (13, 16), METADATA: (12, 12), API_VERSIONS: (3, 3)}
LOOK_S = 0.0005  # between two looks for new records while a fetch waits

_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")
_FETCHED = struct.Struct(">ihqqq")
_PRODUCED = struct.Struct(">ihqqq")


class Stock:
    """What the partitions of a topic hold: the same batches in turn, each with its own offset."""

    def __init__(self, batches: Sequence[bytes], each: int, *, per_s: float = 0.0, partitions: int = 1) -> None:
        """`each`: batches of a partition. `per_s`: of all partitions, one after the other; 0: all are there."""
        self._batches, self._each = [bytearray(one) for one in batches], each
        self._records = int.from_bytes(batches[0][header.COUNT : header.COUNT + 4], "big")
        self._per_s, self._partitions = per_s, partitions
        self._began = 0.0

    def end(self, partition: int) -> int:
        """The high watermark."""
        if not self._per_s:
            return self._each * self._records
        self._began = self._began or time.monotonic()
        written = int((time.monotonic() - self._began) * self._per_s)
        own = (written - partition + self._partitions - 1) // self._partitions
        return min(max(own, 0), self._each) * self._records

    def read(self, partition: int, offset: int, most_bytes: int, *, whole: bool) -> bytearray:
        """Whole batches from an offset on, within so many bytes; `whole`: the first one in any case (KIP-74)."""
        out, end = bytearray(), self.end(partition)
        for number in itertools.count(offset // self._records):
            batch = self._batches[(number * 7 + partition) % len(self._batches)]
            base = number * self._records
            if base >= end or (len(out) + len(batch) > most_bytes and (out or not whole)):
                return out
            _LONG.pack_into(batch, 0, base)
            out += batch
        raise AssertionError("count() does not end")


class Broker:
    def __init__(self, partitions: int, stock: Stock | None = None) -> None:
        self._partitions, self._stock = partitions, stock
        self._ends: dict[tuple[bytes, int], int] = {}
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = connection.makefile("rb", buffering=1 << 20)
        session: dict[int, tuple[int, int]] = {}  # partition -> offset, max_bytes; of this connection
        while len(head := stream.read(4)) == 4:
            frame = stream.read(int.from_bytes(head, "big"))
            key, _, correlation = struct.unpack_from(">hhi", frame)
            if key == PRODUCE:
                body = b"\0" + self._produce(frame)
            elif key == FETCH:
                body = b"\0" + self._fetch(_request(frame), session)
            else:
                body = self._versions() if key == API_VERSIONS else b"\0" + self._metadata(_request(frame))
            connection.sendall(_INT.pack(len(body) + 4) + _INT.pack(correlation) + body)

    # ---------------------------------------------------------------- records

    def _fetch(self, request: Any, session: dict[int, tuple[int, int]]) -> bytes:
        if request.session_epoch == 0:
            session.clear()
        for one in (part for topic in request.topics for part in topic.partitions):
            session.pop(one.partition, None)  # to the end of the line
            session[one.partition] = one.fetch_offset, one.partition_max_bytes
        for partition in (one for topic in request.forgotten_topics_data for one in topic.partitions):
            session.pop(partition, None)
        assert self._stock is not None, "nothing is fetched from the target"
        deadline = time.monotonic() + request.max_wait.total_seconds()
        while not (due := [p for p, (at, _) in session.items() if self._stock.end(p) > at]):
            if time.monotonic() >= deadline or request.session_epoch == 0:
                break
            time.sleep(LOOK_S)
        named = due if request.session_epoch else list(session)
        found, left = [], request.max_bytes
        for partition in named:
            offset, most = session[partition]
            data = self._stock.read(partition, offset, min(most, left), whole=left == request.max_bytes)
            left -= len(data)
            if data or not request.session_epoch:
                end = self._stock.end(partition)
                found += [_FETCHED.pack(partition, 0, end, end, 0), b"\0", _INT.pack(-1), unsigned_bytes(len(data) + 1)]
                found += [data, b"\0"]
        answer = [_INT.pack(0), b"\0\0", _INT.pack(5)]  # no throttling, no error, the session's id
        if not found:
            return b"".join([*answer, b"\1\0"])
        count = sum(len(one) == _FETCHED.size for one in found)
        return b"".join([*answer, b"\2", TOPIC_ID.bytes, unsigned_bytes(count + 1), *found, b"\0\0"])

    def _produce(self, frame: bytes) -> bytes:
        at = 10 + int.from_bytes(frame[8:10], "big") + 1 + 1 + 6  # client id, tags, no transactional id, acks, timeout
        topics, at = _read_unsigned(frame, at)
        out = [unsigned_bytes(topics)]
        for _ in range(topics - 1):
            size, at = _read_unsigned(frame, at)
            name, at = frame[at : at + size - 1], at + size - 1
            parts, at = _read_unsigned(frame, at)
            out += [unsigned_bytes(size), name, unsigned_bytes(parts)]
            for _ in range(parts - 1):
                partition = int.from_bytes(frame[at : at + 4], "big")
                size, at = _read_unsigned(frame, at + 4)
                count = int.from_bytes(frame[at + header.COUNT : at + header.COUNT + 4], "big")
                at += size  # one less, and no tags
                base = self._ends.get((name, partition), 0)
                self._ends[name, partition] = base + count
                out += [_PRODUCED.pack(partition, 0, base, -1, 0), b"\1\0\0"]
            at += 1
            out.append(b"\0")
        return b"".join([*out, _INT.pack(0), b"\0"])

    # ---------------------------------------------------------------- everything else, by kio

    def _versions(self) -> bytes:
        keys = tuple(
            api_versions.ApiVersion(api_key=key, min_version=least, max_version=most)
            for key, (least, most) in VERSIONS.items()
        )
        return _written(
            api_versions.ApiVersionsResponse(
                error_code=ErrorCode.none, api_keys=cast(Any, keys), throttle_time=cast(Any, _no_time())
            )
        )

    def _metadata(self, request: Any) -> bytes:
        partitions = tuple(
            metadata.MetadataResponsePartition(
                error_code=ErrorCode.none, partition_index=n, leader_id=cast(Any, 1), leader_epoch=0,
                replica_nodes=cast(Any, (1,)), isr_nodes=cast(Any, (1,)), offline_replicas=(),
            )
            for n in range(self._partitions)
        )  # fmt: skip
        topics = tuple(
            metadata.MetadataResponseTopic(
                error_code=ErrorCode.none, name=topic.name, topic_id=TOPIC_ID, is_internal=False, partitions=partitions
            )
            for topic in request.topics or ()
        )
        broker = metadata.MetadataResponseBroker(
            node_id=cast(Any, 1), host=LOOPBACK, port=cast(Any, self.port), rack=None
        )
        return _written(
            metadata.MetadataResponse(
                throttle_time=cast(Any, _no_time()), brokers=(broker,), cluster_id="model", controller_id=cast(Any, 1),
                topics=topics,
            )
        )  # fmt: skip


def _request(frame: bytes) -> Any:
    key, version = struct.unpack_from(">hh", frame)
    schema = load_request_schema(key, version)
    _, at = entity_reader(schema.__header_schema__)(frame, 0)
    return entity_reader(schema)(frame, at)[0]


def _written(response: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(response))(out, response)
    return out.getvalue()


def _no_time() -> Any:
    return datetime.timedelta(0)


def _read_unsigned(frame: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while frame[at] > 0x7F:
        value |= (frame[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | frame[at] << shift, at + 1


def serve(partitions: int, stock: Stock, tell: Any) -> None:
    """Top of a process: a source and a target."""
    both = [Broker(partitions, stock), Broker(partitions)]
    tell.send([broker.port for broker in both])
    threading.Event().wait()
