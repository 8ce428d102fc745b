"""Batches of real brokers and other people's producers, taken apart and appended by us, read back by librdkafka.

Proves for each codec that we read what librdkafka and Java write and that a Java broker accepts what we write: it
unpacks every compressed batch it is sent, and packs it anew when its topic says so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from heliograph.batch import Chunk, Limits, headers, patch, warm
from heliograph.embedded import Kafka
from heliograph.types import TopicPartition
from heliograph.wire import Client
from tests.broker.java import java_produce
from tests.kit import Record, contents, create_topic, end_offsets, produce, read_all, wait_until

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
KEEP = {"retention.ms": "-1"}


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    warm()  # else what is merged would depend on how long they take to load


@pytest.fixture
def source(primary: Kafka) -> Iterator[Client]:
    with Client(primary.cluster("primary")) as client:
        yield client


@pytest.fixture
def target(backup: Kafka) -> Iterator[Client]:
    with Client(backup.cluster("backup")) as client:
        yield client


def fetch_all(client: Client, topic: str, limits: Limits, fetch_bytes: int = 300_000) -> Iterator[Chunk]:
    """Every chunk of partition 0, read_committed."""
    tp, offset = TopicPartition(topic, 0), 0
    while True:
        got = client.fetch(tp, offset, max_bytes=fetch_bytes, isolation="read_committed")
        chunk = Chunk(got.records, wanted=offset, aborted=got.aborted, limits=limits)
        if chunk.next_offset == offset:
            assert offset >= got.last_stable_offset
            return
        offset = chunk.next_offset
        yield chunk


def copy(source: Client, topic: str, target: Client, remote: str, *, merge: bool, limits: Limits | None = None) -> int:
    """The whole job in small: fetch, take, patch, append, under an own producer id. How many batches it made."""
    [(producer_id, epoch)] = target.init_producer_ids(1)
    sequence = pieces = 0
    for chunk in fetch_all(source, topic, limits or Limits()):
        while (piece := chunk.take(merge=merge)) is not None:
            patch(piece.data, producer_id, epoch, sequence)
            done = target.produce(TopicPartition(remote, 0), piece.data)
            assert done.base_offset == sequence, "record i of a copy is at its sequence"
            sequence += piece.records
            pieces += 1
    return pieces


def some_records(count: int) -> list[Record]:
    now = int(time.time() * 1000)
    shapes = [
        lambda k: Record(b"key-%d" % k, b'{"n": %d, "text": "the same again and again"}' % k, (), now - k),
        lambda k: Record(None, os.urandom(40), (("h", b"%d" % k), ("h", None), ("é", b"")), now + k % 7),
        lambda k: Record(b"gone", None, (), now - 1000 * k),
        lambda k: Record(b"", b"", (), now),
    ]
    return [shapes[k % 4](k) for k in range(count)]


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafkas_batches_of_every_codec(
    codec: str, primary: Kafka, backup: Kafka, source: Client, target: Client, new_topic: Callable[[], str]
) -> None:
    topic = create_topic(primary.confluent(), new_topic(), config=KEEP)
    produce(
        primary.confluent(), topic, some_records(3000), config={"compression.type": codec, "batch.num.messages": 50}
    )
    expected = contents(read_all(primary.confluent(), topic))
    assert len(expected[0]) == 3000
    made = {}
    for merge in (False, True):
        remote = create_topic(backup.confluent(), new_topic(), config=KEEP)
        made[merge] = copy(source, topic, target, remote, merge=merge)
        assert contents(read_all(backup.confluent(), remote)) == expected
    assert made[True] < made[False] / 5


@pytest.mark.parametrize("codec", CODECS)
def test_java_unpacks_what_we_pack(
    codec: str, primary: Kafka, backup: Kafka, source: Client, target: Client, new_topic: Callable[[], str]
) -> None:
    """A topic with a codec of its own makes the broker decode our batches record by record, and pack them itself."""
    topic = create_topic(primary.confluent(), new_topic(), config=KEEP)
    produce(primary.confluent(), topic, some_records(2000), config={"compression.type": codec, "linger.ms": 0})
    other = "zstd" if codec != "zstd" else "gzip"
    remote = create_topic(backup.confluent(), new_topic(), config={**KEEP, "compression.type": other})
    copy(source, topic, target, remote, merge=True)
    assert contents(read_all(backup.confluent(), remote)) == contents(read_all(primary.confluent(), topic))
    raw = target.fetch(TopicPartition(remote, 0), 0, max_bytes=8 << 20).records
    assert {h.codec for h in headers(raw)} == {CODECS.index(other)}


def test_javas_own_producer(
    primary: Kafka, backup: Kafka, source: Client, target: Client, new_topic: Callable[[], str]
) -> None:
    topics = {codec: create_topic(primary.confluent(), new_topic(), config=KEEP) for codec in CODECS}
    java_produce(primary, {topic: codec for codec, topic in topics.items()}, count=3000, size_bytes=200)
    for codec, topic in topics.items():
        expected = contents(read_all(primary.confluent(), topic))
        assert len(expected[0]) == 3000
        raw = source.fetch(TopicPartition(topic, 0), 0).records
        assert CODECS.index(codec) in {h.codec for h in headers(raw)}
        for merge in (False, True):
            remote = create_topic(backup.confluent(), new_topic(), config=KEEP)
            copy(source, topic, target, remote, merge=merge, limits=Limits(max_batch_bytes=12_000))
            assert contents(read_all(backup.confluent(), remote)) == expected


def test_log_append_time_becomes_the_records_time(
    primary: Kafka, backup: Kafka, source: Client, target: Client, new_topic: Callable[[], str]
) -> None:
    topic = create_topic(primary.confluent(), new_topic(), config={**KEEP, "message.timestamp.type": "LogAppendTime"})
    produce(primary.confluent(), topic, some_records(500), config={"compression.type": "lz4"})
    expected = contents(read_all(primary.confluent(), topic))
    for merge in (False, True):
        remote = create_topic(backup.confluent(), new_topic(), config=KEEP)
        copy(source, topic, target, remote, merge=merge)
        assert contents(read_all(backup.confluent(), remote)) == expected


def test_transactions_committed_aborted_and_open(
    primary: Kafka, backup: Kafka, source: Client, target: Client, topic_name: str
) -> None:
    topic = create_topic(primary.confluent(), topic_name, config=KEEP)
    writers = [Producer({**primary.confluent(), "transactional.id": f"{topic}-{k}"}) for k in range(3)]
    for writer in writers:
        writer.init_transactions(30)
    for turn in range(6):
        for k, writer in enumerate(writers):
            writer.begin_transaction()
            for n in range(5):
                writer.produce(topic, b"turn %d writer %d n %d" % (turn, k, n), partition=0)
            writer.flush(30)  # so that the three transactions overlap in the log
        for k, writer in enumerate(writers):
            if (turn + k) % 3 == 0:
                writer.abort_transaction(30)
            else:
                writer.commit_transaction(30)
    # The coordinator answers before its markers are in the log, and one behind an open transaction is not read.
    wait_until(lambda: end_offsets(primary.confluent(), topic)[0] == 6 * 3 * (5 + 1), what="all markers")
    writers[0].begin_transaction()
    writers[0].produce(topic, b"never committed", partition=0)
    writers[0].flush(30)
    expected = contents(read_all(primary.confluent(), topic))
    assert len(expected[0]) == 6 * 2 * 5
    for merge in (False, True):
        remote = create_topic(backup.confluent(), f"{topic}.{merge}", config=KEEP)
        copy(source, topic, target, remote, merge=merge)
        assert contents(read_all(backup.confluent(), remote)) == expected
    skipped = list(fetch_all(source, topic, Limits(), fetch_bytes=8 << 20))
    assert sum(chunk.skipped_control for chunk in skipped) == 18
    assert sum(chunk.skipped_aborted for chunk in skipped) >= 6
    writers[0].abort_transaction(30)


def test_a_compacted_topic_with_holes(backup: Kafka, target: Client, topic_name: str) -> None:
    """A broker of its own, whose cleaner does not wait."""
    with (
        Kafka("cleaned", config={"log.cleaner.backoff.ms": "100"}) as kafka,
        Client(kafka.cluster("cleaned")) as source,
    ):
        eager = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.01",
                 "delete.retention.ms": "86400000"}  # fmt: skip
        topic = create_topic(kafka.confluent(), topic_name, config=eager)
        now = int(time.time() * 1000)
        for codec in CODECS:
            records = [
                Record(b"%s-%d" % (codec.encode(), k % 37 if k % 3 else k), b"v%d" % k if k % 11 else None, (), now + k)
                for k in range(400)
            ]
            produce(kafka.confluent(), topic, records, config={"compression.type": codec, "batch.num.messages": 40})

        def cleaned() -> bool:
            produce(kafka.confluent(), topic, [Record(b"roll", b"the segment", (), int(time.time() * 1000))])
            found = list(headers(source.fetch(TopicPartition(topic, 0), 0, max_bytes=8 << 20).records))
            gaps = {h.codec for h in found if h.last_offset_delta + 1 > h.count}
            return gaps == set(range(5)) and any(h.delete_horizon for h in found)

        wait_until(cleaned, what="holes in batches of every codec", timeout_seconds=60)
        for merge in (False, True):
            for turn in range(5):  # the cleaner may pass between our reading and the comparison: then once more
                before = contents(read_all(kafka.confluent(), topic))
                remote = create_topic(backup.confluent(), f"{topic}.{merge}.{turn}", config=KEEP)
                copy(source, topic, target, remote, merge=merge)
                if contents(read_all(kafka.confluent(), topic)) == before:
                    break
            assert contents(read_all(backup.confluent(), remote)) == before
