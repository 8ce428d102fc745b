"""Two bare loops over one broker: fetch the batches of a topic, and append batches from memory.

The loader and the limit are made of them. On `heliograph.wire` and nothing above it: no positions, no retries, an error
ends the loop. One broker a cluster, as the benchmark's are.
"""

from __future__ import annotations

import itertools
import select
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from heliograph.batch import header
from heliograph.types import Cluster, TopicPartition
from heliograph.wire import codes
from heliograph.wire.acks import produced
from heliograph.wire.connection import Connection
from heliograph.wire.fetch import FetchSession
from heliograph.wire.link import bootstrap_addresses
from heliograph.wire.messages import Buffer, build
from heliograph.wire.produce import produce_request

IN_FLIGHT = 5  # what a broker remembers of an idempotent producer per partition
PARTITION_FETCH_BYTES = 8 << 20
NAMES_NOT_IDS = 12  # the last version of Fetch that names topics

_HEAD = struct.Struct(">qi")  # base offset, length
_INT = struct.Struct(">i")
_TIMES = struct.Struct(">qq")


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as it lay in a log; `count` records."""

    data: bytes
    count: int


def connect(cluster: Cluster) -> Connection:
    return Connection.open(bootstrap_addresses(cluster)[0], cluster)


def split(records: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(begin, end, next offset, record count) of each whole batch in a fetched buffer."""
    at, size = 0, len(records)
    while size - at >= header.SIZE:
        base, length = _HEAD.unpack_from(records, at)
        end = at + header.PREFIX + length
        if end > size:
            return
        last = _INT.unpack_from(records, at + header.LAST_OFFSET_DELTA)[0]
        yield at, end, base + last + 1, _INT.unpack_from(records, at + header.COUNT)[0]
        at = end


class Fetcher:
    """Fetches partitions of a topic from their start, one request always under way."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        self._connection = connect(cluster)
        self._session = FetchSession(self._connection.version("fetch", at_most=NAMES_NOT_IDS), max_wait_ms=100)
        self._topic, self._partitions = topic, partitions
        self.rewind()

    def rewind(self) -> None:
        for partition in range(self._partitions):
            self._want(partition, 0)

    def fetch(self) -> list[tuple[int, bytes]]:
        """(partition, records) of the next answer. What is there is passed over: the next call goes on after it."""
        response = self._connection.call(self._session.request())
        got = []
        for each in self._session.take(response):
            if each.error:
                raise codes.broker_error(each.error, "fetch", topic=self._topic, partition=each.partition)
            after = each.offset
            for _, _, after, _ in split(each.records):  # noqa: B007  # the last one counts
                pass
            self._want(each.partition, after)
            got.append((each.partition, each.records))
        return got

    def close(self) -> None:
        self._connection.close()

    def _want(self, partition: int, offset: int) -> None:
        tp = TopicPartition(self._topic, partition)
        self._session.want(tp, offset, topic_id=None, max_bytes=PARTITION_FETCH_BYTES)


class Appender:
    """Appends batches to a topic under a producer id of its own, five requests in flight on each connection.

    A request takes a batch for each partition of its connection, as Kafka's own producers do.
    """

    def __init__(self, cluster: Cluster, topic: str, partitions: int, *, connections: int = 1) -> None:
        self._topic = topic
        self._connections = [connect(cluster) for _ in range(connections)]
        self._share = {c: range(i, partitions, connections) for i, c in enumerate(self._connections)}
        self._producer = _new_producer(self._connections[0])
        self._sequence = [0] * partitions
        self._held: dict[Connection, list[list[Buffer]]] = {c: [] for c in self._connections}
        self._poll = select.poll()
        self._by_fd = {c.fileno(): c for c in self._connections}
        for connection in self._connections:
            self._poll.register(connection, select.POLLIN)

    def run(self, supply: Callable[[int], Batch | None], *, now_ms: int | None = None) -> None:
        """Appends what `supply(partition)` gives until it gives None, and waits for every answer.

        `now_ms`: the batches' times are moved so that their latest is this.
        """
        dry: set[Connection] = set()
        while len(dry) < len(self._connections) or any(c.in_flight for c in self._connections):
            for connection in self._connections:
                while connection not in dry and connection.in_flight < IN_FLIGHT:
                    if not self._send(connection, supply, now_ms):
                        dry.add(connection)
            self._receive()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def _send(self, connection: Connection, supply: Callable[[int], Batch | None], now_ms: int | None) -> bool:
        parts: list[tuple[str, int, Buffer]] = []
        for partition in self._share[connection]:
            batch = supply(partition)
            if batch is not None:
                parts.append((self._topic, partition, self._ready(batch, partition, now_ms)))
        if parts:
            connection.send(produce_request(connection.version("produce"), parts))
        return bool(parts)

    def _ready(self, batch: Batch, partition: int, now_ms: int | None) -> bytearray:
        data = bytearray(batch.data)
        if now_ms is not None:
            base, latest = _TIMES.unpack_from(data, header.BASE_TIMESTAMP)
            _TIMES.pack_into(data, header.BASE_TIMESTAMP, base + now_ms - latest, now_ms)
        header.patch(data, *self._producer, self._sequence[partition])
        self._sequence[partition] = (self._sequence[partition] + batch.count) & 0x7FFFFFFF
        return data

    def _receive(self) -> None:
        for connection in self._connections:
            wanted = select.POLLIN | (select.POLLOUT if connection.wants_write else 0)
            self._poll.modify(connection, wanted)
        for fd, _ in self._poll.poll(10_000):
            connection = self._by_fd[fd]
            connection.flush()
            for _, response in connection.receive():
                for part in produced(response):
                    if part.error:
                        raise codes.broker_error(part.error, "produce", topic=self._topic, partition=part.partition)


def _new_producer(connection: Connection) -> tuple[int, int]:
    """A producer id and its epoch. A broker that has just started may ask us to wait."""
    request = build(
        "init_producer_id",
        connection.version("init_producer_id"),
        transactional_id=None,
        transaction_timeout=0,
        producer_id=-1,
        producer_epoch=-1,
    )
    for attempt in itertools.count():
        answer = connection.call(request)
        if not answer.error_code:
            return int(answer.producer_id), int(answer.producer_epoch)
        error = codes.broker_error(int(answer.error_code), "init_producer_id")
        if not error.retriable or attempt > 200:
            raise error
        time.sleep(0.1)
    raise AssertionError("count() does not end")
