"""`python -m bench.backlog`: the memory of a task whose partitions all have a backlog, and whose target is slow.

The two sides of a task (`mirror.fetch`, `mirror.append`) run as they do in Spark, against two model brokers in another
process, over loopback. The source has records without end in every partition; the target takes a fixed number of
bytes a second, a tenth of what the source gives or less. Prints the task's peak RSS, and how evenly the partitions were
served. Ends with 1 if the peak is above the limit, or a partition got nothing.
"""

from __future__ import annotations

import datetime
import io
import multiprocessing
import resource
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import click
from kio.index import load_request_schema
from kio.schema.api_versions.v3 import response as api_versions
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12 import response as fetch
from kio.schema.metadata.v12 import response as metadata
from kio.schema.produce.v9 import response as produce
from kio.serial import entity_reader, entity_writer

from heliograph.batch import Record, encode, warm
from heliograph.mirror import events as happened
from heliograph.mirror.append import Target
from heliograph.mirror.assignment import LaneSpec
from heliograph.mirror.events import Events
from heliograph.mirror.fetch import Source
from heliograph.mirror.lane import Lane, State
from heliograph.mirror.positions import Position
from heliograph.types import Cluster, TopicPartition

LOOPBACK, TOPIC, REMOTE = "127.0.0.1", "events", "a.events"
VERSIONS = {0: 9, 1: 12, 3: 12, 18: 3}  # produce, fetch, metadata, ApiVersions
RECORDS, VALUE_BYTES = 16, 1000  # of a batch: 16 KiB, as the Java producer makes them
END = 1 << 40
COUNT_AT = 57  # in a batch's header


class Broker:
    """Leads every partition of one topic. Answers what a task asks of a leader, and nothing else."""

    def __init__(self, topic: str, partitions: int, bytes_per_s: float) -> None:
        self._topic, self._partitions, self._bytes_per_s = topic, partitions, bytes_per_s
        value = bytes(range(250)) * (VALUE_BYTES // 250)
        self._batch = bytearray(encode([Record(n, 1, b"key", value) for n in range(RECORDS)]))
        self._ends = [0] * partitions
        self._fetches, self._served = 0, [0] * partitions  # a partition that was served goes to the end of the line
        self._lock = threading.Lock()
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = connection.makefile("rb")
        answers: dict[int, Callable[[Any], Any]] = {
            0: self._produce, 1: self._fetch, 3: self._metadata, 18: self._versions,
        }  # fmt: skip
        while len(head := stream.read(4)) == 4:
            frame = memoryview(stream.read(int.from_bytes(head, "big")))
            key, version, correlation = struct.unpack_from(">hhi", frame)
            schema = load_request_schema(key, version)
            _, at = entity_reader(schema.__header_schema__)(frame, 0)
            request, _ = entity_reader(schema)(frame, at)
            out = io.BytesIO()
            response = answers[key](request)
            entity_writer(type(response))(out, response)
            flexible = b"" if key == 18 else b"\0"  # tagged fields of the response's header
            body = struct.pack(">i", correlation) + flexible + out.getbuffer()
            connection.sendall(len(body).to_bytes(4, "big") + body)

    def _versions(self, _: Any) -> Any:
        keys = tuple(
            api_versions.ApiVersion(api_key=key, min_version=version, max_version=version)
            for key, version in VERSIONS.items()
        )
        return api_versions.ApiVersionsResponse(
            error_code=ErrorCode.none, api_keys=cast(Any, keys), throttle_time=cast(Any, _ms(0))
        )

    def _metadata(self, _: Any) -> Any:
        partitions = tuple(
            metadata.MetadataResponsePartition(
                error_code=ErrorCode.none, partition_index=n, leader_id=cast(Any, 1), leader_epoch=0,
                replica_nodes=cast(Any, (1,)), isr_nodes=cast(Any, (1,)), offline_replicas=(),
            )
            for n in range(self._partitions)
        )  # fmt: skip
        topic = metadata.MetadataResponseTopic(
            error_code=ErrorCode.none, name=cast(Any, self._topic), topic_id=None, is_internal=False,
            partitions=partitions,
        )  # fmt: skip
        broker = metadata.MetadataResponseBroker(
            node_id=cast(Any, 1), host=LOOPBACK, port=cast(Any, self.port), rack=None
        )
        return metadata.MetadataResponse(
            throttle_time=cast(Any, _ms(0)), brokers=(broker,), cluster_id="model", controller_id=cast(Any, 1),
            topics=(topic,),
        )  # fmt: skip

    def _fetch(self, request: Any) -> Any:
        """As a broker does without a session: up to each partition's max_bytes and the request's own, the first batch
        whole, and of all partitions where they end."""
        wanted = [one for topic in request.topics for one in topic.partitions]
        left, found = request.max_bytes, []
        for one in sorted(wanted, key=lambda one: self._served[one.partition]):
            count = max(min(one.partition_max_bytes, left) // len(self._batch), 0 if found else 1)
            data = bytearray(self._batch * count)
            for n in range(count):
                struct.pack_into(">q", data, n * len(self._batch), one.fetch_offset + n * RECORDS)
            left -= len(data)
            if count:
                self._fetches += 1
                self._served[one.partition] = self._fetches
            found.append(
                fetch.PartitionData(
                    partition_index=one.partition, error_code=ErrorCode.none, high_watermark=END,
                    last_stable_offset=END, log_start_offset=0, aborted_transactions=None, records=bytes(data),
                )
            )  # fmt: skip
        answered = fetch.FetchableTopicResponse(topic=cast(Any, self._topic), partitions=tuple(found))
        return fetch.FetchResponse(
            throttle_time=cast(Any, _ms(0)), error_code=ErrorCode.none, session_id=0, responses=(answered,)
        )

    def _produce(self, request: Any) -> Any:
        answered, size = [], 0
        with self._lock:  # one disk
            for part in request.topic_data[0].partition_data if request.topic_data else ():
                base = self._ends[part.index]
                self._ends[part.index] += int.from_bytes(part.records[COUNT_AT : COUNT_AT + 4], "big")
                size += len(part.records)
                answered.append(
                    produce.PartitionProduceResponse(
                        index=part.index, error_code=ErrorCode.none, base_offset=base, log_append_time=None,
                        log_start_offset=0, record_errors=(),
                    )
                )  # fmt: skip
            time.sleep(size / self._bytes_per_s)
        topic = produce.TopicProduceResponse(name=cast(Any, self._topic), partition_responses=tuple(answered))
        return produce.ProduceResponse(responses=(topic,), throttle_time=cast(Any, _ms(0)))


def _ms(milliseconds: int) -> Any:
    return datetime.timedelta(milliseconds=milliseconds)


def brokers(partitions: int, bytes_per_s: float, tell: Any) -> None:
    """In a process of its own: whose memory is not measured."""
    both = [Broker(TOPIC, partitions, float("inf")), Broker(REMOTE, partitions, bytes_per_s)]
    tell.send([broker.port for broker in both])
    threading.Event().wait()


def run(ports: list[int], partitions: int, seconds: float) -> list[Lane]:
    """A task's loop for so long. Lanes flow from the start: rule D has nothing to find at a model's."""
    lanes = []
    for n in range(partitions):
        place = TopicPartition(TOPIC, n), None, TopicPartition(REMOTE, n), Position(0, n + 1, 0, 0, None, 0), 1 << 20
        lane = Lane.of(LaneSpec(*place, history=True))
        lane.state = State.FLOWING
        lanes.append(lane)
    events: Events = deque()
    with selectors.DefaultSelector() as selector:
        source_cluster, target_cluster = (
            Cluster(alias, {"bootstrap.servers": f"{LOOPBACK}:{port}"}) for alias, port in zip("ab", ports, strict=True)
        )
        target = Target(target_cluster, lanes, set(), selector, events=events)
        source = Source(
            source_cluster, lanes, selector, isolation="read_committed", limits=target.pace.limits, events=events
        )
        deadline = time.monotonic() + seconds
        while (now := time.monotonic()) < deadline:
            target.push(now)
            _dispatch(events, source, target)
            again = min(source.due, deadline, now + 0.1)
            for key, mask in selector.select(max(again - now, 0.0)):
                key.data(mask)
                _dispatch(events, source, target)
            now = time.monotonic()
            source.tick(now)
            target.tick(now)
            _dispatch(events, source, target)
        source.stop()
    return lanes


def _dispatch(events: Events, source: Source, target: Target) -> None:
    """As a task's loop does with what happens here."""
    while events:
        match events.popleft():
            case happened.Arrived(some, pull_after):
                for lane in some:
                    target.wake(lane)
                if pull_after is not None:
                    target.push(time.monotonic())
                    source.pull(pull_after)
            case happened.Appended(some):
                for lane in some:
                    source.drained(lane)
            case other:
                raise RuntimeError(f"nothing of the kind can happen at a model's: {other}")


@click.command()
@click.option("--partitions", default=1000, show_default=True)
@click.option("--seconds", default=60.0, show_default=True)
@click.option("--target-mb-per-s", default=20.0, show_default=True, help="What the target takes.")
@click.option("--limit-mb", default=512.0, show_default=True, help="What the peak RSS of the task must stay under.")
def main(partitions: int, seconds: float, target_mb_per_s: float, limit_mb: float) -> None:
    """Print the peak RSS of a task with a backlog in every partition and a slow target."""
    warm()
    ours, theirs = multiprocessing.Pipe()
    model = multiprocessing.get_context("spawn").Process(
        target=brokers, args=(partitions, target_mb_per_s * 1e6, theirs), daemon=True
    )
    model.start()
    before_mb = _peak_mb()
    lanes = run(ours.recv(), partitions, seconds)
    model.terminate()
    peak_mb, copied = _peak_mb(), sorted(lane.counts.bytes for lane in lanes)
    held_mb = sum(lane.held_bytes for lane in lanes) / 1e6 if hasattr(lanes[0], "held_bytes") else 0.0
    click.echo(f"{partitions} partitions, {seconds:g} s, target {target_mb_per_s:g} MB/s")
    click.echo(f"copied {sum(copied) / seconds / 1e6:.1f} MB/s; held at the end {held_mb:.0f} MB")
    click.echo(f"of a partition: least {copied[0]:,} B, median {copied[len(copied) // 2]:,} B, most {copied[-1]:,} B")
    click.echo(f"peak RSS {peak_mb:.0f} MB (before: {before_mb:.0f} MB; limit {limit_mb:g} MB)")
    if peak_mb >= limit_mb or not copied[0]:
        raise SystemExit(1)


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


if __name__ == "__main__":
    main()
