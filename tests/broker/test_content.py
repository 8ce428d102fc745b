"""A copy holds what its source holds, record by record, as confluent-kafka reads both: whatever the source is made of.

Every test copies real topics between real brokers with the engine in this process (`tests/broker/engine.py`), and
compares key, value, headers, timestamp and order within the partition: nothing lost, nothing twice.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient
from crc32c import crc32c

from heliograph.batch import Header, encode, headers
from heliograph.batch import Record as BatchRecord
from heliograph.embedded import Kafka
from heliograph.mirror.positions import Position
from heliograph.state.positions import PositionsLog
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client, Connection, produce_request, produced
from tests.broker.engine import Engine, assert_same, mirror, one_flow, stable_ends
from tests.broker.java import java_produce
from tests.kit import Record, alter_topic, create_topic, end_offsets, produce, read_all, wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def source() -> Iterator[Kafka]:
    """A source of our own: its log cleaner looks ten times a second, and one test restarts it."""
    config = {"auto.create.topics.enable": "false", "log.cleaner.backoff.ms": "100"}
    with Kafka("origin", config=config) as kafka:
        yield kafka


@pytest.fixture
def flow(source: Kafka, backup: Kafka, topic_name: str) -> Flow:
    """A flow of topics that begin with this test's topic name."""
    return one_flow(source.cluster(), backup.cluster(), f"{topic_name}.*")


def remote(topic: str) -> str:
    return f"origin.{topic}"


def varied(count: int, *, partitions: int = 1, size: int = 120) -> list[Record]:
    """Records that differ from one another, with every shape of key, value and headers among them."""
    keys = (b"key-%d", None, b"")
    now_ms = int(time.time() * 1000) - 3_600_000
    found = []
    for n in range(count):
        key = keys[n % 3]
        value = None if n % 17 == 3 else b"" if n % 17 == 5 else b"%d:" % n + b"abcdefgh" * (n % size // 8)
        some: list[tuple[str, bytes | None]] = [("n", b"%d" % n)]
        if n % 4 == 1:
            some += [
                ("twice", b"1"),
                ("twice", b"2"),
                ("twice", b"1"),
                ("null", None),
                ("empty", b""),
                ("", b"nameless"),
            ]
        elif n % 4 == 2:
            some += [("größe", "ß".encode())]
        # Not in order, and not the moment of sending: a copy keeps each as it is.
        when = now_ms + (n * 7919) % 100_000
        found.append(Record(key % n if key else key, value, tuple(some), when, n % partitions))
    return found


# -------------------- codecs


@pytest.fixture(scope="module")
def packed(source: Kafka) -> list[str]:
    """A topic per codec and maker: Java's snappy is in xerial's framing, its lz4 and zstd are other streams."""
    settings = {"linger.ms": 500, "batch.num.messages": 1000, "enable.idempotence": True}
    for codec in CODECS:
        create_topic(source.confluent(), f"packed-c-{codec}", 3)
        records = varied(3000, partitions=3)
        produce(source.confluent(), f"packed-c-{codec}", records, config={**settings, "compression.type": codec})
    for codec in CODECS[1:]:
        create_topic(source.confluent(), f"packed-java-{codec}", 3)
    java_produce(source, {f"packed-java-{codec}": codec for codec in CODECS[1:]}, count=2000, size_bytes=150)
    return [*(f"packed-c-{codec}" for codec in CODECS), *(f"packed-java-{codec}" for codec in CODECS[1:])]


def test_every_codec_as_librdkafka_and_java_pack_it(source: Kafka, backup: Kafka, packed: list[str]) -> None:
    mirror(one_flow(source.cluster(), backup.cluster(), "packed-.*"), *packed)
    for name in packed:
        assert sum(assert_same(source, backup, name, remote(name)).values()) == (3000 if "-c-" in name else 2000)


def test_every_codec_unpacked_split_and_packed_again(source: Kafka, backup: Kafka, packed: list[str]) -> None:
    """The target takes less at a time than the batches are."""
    for name in packed:
        create_topic(backup.confluent(), f"narrow.{name}", 3, config={"max.message.bytes": "3000"})
    engine = mirror(one_flow(source.cluster("narrow"), backup.cluster(), "packed-.*"), *packed)
    assert engine.status().parked == ()
    for name in packed:
        assert_same(source, backup, name, f"narrow.{name}")
        sizes, codecs = zip(*((one.size_bytes, one.codec) for one in batches_of(backup, f"narrow.{name}")), strict=True)
        assert max(sizes) <= 3000
        assert set(codecs) == {CODECS.index(name.rpartition("-")[2])}


def batches_of(kafka: Kafka, topic: str) -> list[Header]:
    with Client(kafka.cluster()) as client:
        part = client.fetch(TopicPartition(topic, 0), 0, max_bytes=64 << 20)
    return list(headers(part.records))


# -------------------- compaction


def test_a_compacted_topic_with_holes_and_tombstones(source: Kafka, backup: Kafka, flow: Flow, topic_name: str) -> None:
    """Cleaned batches have fewer records than offsets, some of them none at all; tombstones lie among the rest."""
    settings = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.0001"}
    create_topic(source.confluent(), topic_name, config=settings)
    for codec in ("none", "lz4", "gzip"):
        for turn in range(3):
            records = [
                Record(
                    b"%s-%d" % (codec.encode(), n % 40),
                    None if n % 40 == 7 else b"turn %d, %d" % (turn, n),
                    (("n", b"%d" % n),),
                )
                for n in range(400)
                if turn == 0 or n % 3 == 0
            ]
            produce(
                source.confluent(), topic_name, records, config={"compression.type": codec, "batch.num.messages": 50}
            )
    total = end_offsets(source.confluent(), topic_name)[0]

    def cleaned() -> bool:
        # The active segment is never cleaned; one more record a moment later closes it.
        produce(source.confluent(), topic_name, [Record(b"roll", b"%d" % time.time_ns())])
        return len(read_all(source.confluent(), topic_name)[0]) < total // 3

    wait_until(cleaned, what="the cleaner", timeout_seconds=30)
    # Were it to go on, on either side, two reads would be of two topics.
    alter_topic(source.confluent(), topic_name, {"cleanup.policy": "delete"})
    mirror(flow, topic_name)
    kept = read_all(source.confluent(), topic_name)[0]
    offsets = [record.offset for record in kept]
    assert offsets[-1] - offsets[0] + 1 > len(offsets)
    assert any(record.value is None for record in kept)
    assert_same(source, backup, topic_name, remote(topic_name))


def test_a_source_whose_beginning_was_deleted(source: Kafka, backup: Kafka, flow: Flow, topic_name: str) -> None:
    """delete-records moved the log's start into the middle of a batch before anybody copied."""
    create_topic(source.confluent(), topic_name)
    produce(source.confluent(), topic_name, varied(1000), config={"linger.ms": 500})
    admin = AdminClient(source.confluent())
    moved = admin.delete_records([Partition(topic_name, 0, 437)])
    assert next(iter(moved.values())).result(30).low_watermark == 437
    mirror(flow, topic_name)
    assert assert_same(source, backup, topic_name, remote(topic_name)) == {0: 563}


# -------------------- transactions


def transactional(kafka: Kafka, name: str) -> Producer:
    producer = Producer({**kafka.confluent(), "transactional.id": name, "linger.ms": 0, "log_level": 3})
    producer.init_transactions(30)
    return producer


def send(producer: Producer, topic: str, values: range, partitions: int = 1) -> None:
    for n in values:
        producer.produce(topic, b"%d" % n, b"k%d" % n, partition=n % partitions)
    producer.flush(30)


def test_transactions_committed_aborted_and_interleaved(
    source: Kafka, backup: Kafka, flow: Flow, topic_name: str
) -> None:
    create_topic(source.confluent(), topic_name, 2)
    first, second = transactional(source, f"{topic_name}-1"), transactional(source, f"{topic_name}-2")
    plain = Producer({**source.confluent(), "linger.ms": 0})
    for turn in range(12):
        at = turn * 1000
        first.begin_transaction()
        second.begin_transaction()
        for step in range(3):  # their batches lie between one another's
            for offset, producer in ((0, first), (300, second), (600, plain)):
                send(producer, topic_name, range(at + offset + step * 20, at + offset + step * 20 + 20), 2)
        (first.abort_transaction if turn % 2 else first.commit_transaction)(30)
        (second.abort_transaction if turn % 3 else second.commit_transaction)(30)
    mirror(flow, topic_name)
    counts = assert_same(source, backup, topic_name, remote(topic_name))
    assert sum(counts.values()) == 60 * (6 + 4 + 12)
    assert len(read_all(backup.confluent(), remote(topic_name), isolation="read_uncommitted")[0]) == counts[0]


def test_an_open_transaction_is_copied_when_it_commits(
    source: Kafka, backup: Kafka, flow: Flow, topic_name: str
) -> None:
    create_topic(source.confluent(), topic_name)
    produce(source.confluent(), topic_name, varied(10))
    producer = transactional(source, topic_name)
    producer.begin_transaction()
    send(producer, topic_name, range(100))
    produce(source.confluent(), topic_name, varied(10))  # behind it: nobody may read these yet
    tp = TopicPartition(topic_name, 0)
    with Engine(flow) as engine:
        engine.wait_copied(topic_name)
        assert engine.reached(tp) == 10
        assert end_offsets(backup.confluent(), remote(topic_name)) == {0: 10}
        producer.commit_transaction(30)
        engine.wait_copied(topic_name)
        assert assert_same(source, backup, topic_name, remote(topic_name)) == {0: 120}
        producer.begin_transaction()
        send(producer, topic_name, range(100, 150))
        producer.abort_transaction(30)
        engine.wait_copied(topic_name)
    assert assert_same(source, backup, topic_name, remote(topic_name)) == {0: 120}


def test_a_stop_behind_an_aborted_tail(source: Kafka, backup: Kafka, flow: Flow, topic_name: str) -> None:
    """The position stands behind records that were not copied: sequences and offsets part from there on."""
    create_topic(source.confluent(), topic_name)
    producer = transactional(source, topic_name)
    for turn in range(6):
        producer.begin_transaction()
        send(producer, topic_name, range(turn * 100, turn * 100 + 50))
        (producer.abort_transaction if turn % 2 else producer.commit_transaction)(30)
        mirror(flow, topic_name)
    assert assert_same(source, backup, topic_name, remote(topic_name)) == {0: 150}


# -------------------- times and shapes


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_append_times_become_the_times_of_the_copy(
    source: Kafka, backup: Kafka, flow: Flow, topic_name: str, codec: str
) -> None:
    create_topic(source.confluent(), topic_name, config={"message.timestamp.type": "LogAppendTime"})
    for part in range(5):
        records = varied(1000)[part * 200 : part * 200 + 200]
        produce(source.confluent(), topic_name, records, config={"compression.type": codec})
    mirror(flow, topic_name)
    assert assert_same(source, backup, topic_name, remote(topic_name)) == {0: 1000}
    appended = {record.timestamp_ms for record in read_all(backup.confluent(), remote(topic_name))[0]}
    assert min(appended) > time.time() * 1000 - 60_000


def test_large_records_alone_and_among_small_ones(source: Kafka, backup: Kafka, flow: Flow, topic_name: str) -> None:
    create_topic(source.confluent(), topic_name, 2)
    now_ms = int(time.time() * 1000)
    records = []
    for n in range(60):
        records += [Record(b"large-%d" % n, bytes((n + i) % 251 for i in range(1000)) * 900, (), now_ms, n % 2)] * (
            n % 3 != 1
        )
        records += [Record(b"small-%d-%d" % (n, i), b"x" * i, (), now_ms + i, n % 2) for i in range(n % 5 * 10)]
    for codec, part in (("none", records[: len(records) // 2]), ("lz4", records[len(records) // 2 :])):
        produce(
            source.confluent(), topic_name, part, config={"compression.type": codec, "message.max.bytes": 1_000_000}
        )
    mirror(flow, topic_name)
    assert sum(assert_same(source, backup, topic_name, remote(topic_name)).values()) == len(records)


def test_batches_larger_than_the_target_takes_are_split(
    source: Kafka, backup: Kafka, flow: Flow, topic_name: str
) -> None:
    """The limit is made smaller while the flow runs: nobody told it, the target's refusal does."""
    create_topic(source.confluent(), topic_name, config={"max.message.bytes": "4000000"})
    settings = {"message.max.bytes": 4_000_000, "batch.size": 3_500_000, "linger.ms": 200}
    produce(source.confluent(), topic_name, varied(30_000, size=200), config=settings)
    with Engine(flow) as engine:
        engine.wait_copied(topic_name)
        alter_topic(backup.confluent(), remote(topic_name), {"max.message.bytes": "20000"})
        produce(source.confluent(), topic_name, varied(30_000, size=200), config=settings)
        engine.wait_copied(topic_name)
        assert engine.status().parked == ()
    assert assert_same(source, backup, topic_name, remote(topic_name)) == {0: 60_000}


# -------------------- topics that come


def test_an_empty_topic_and_topics_made_while_running(
    source: Kafka, backup: Kafka, flow: Flow, topic_name: str
) -> None:
    create_topic(source.confluent(), topic_name, 4)
    with Engine(flow) as engine:
        engine.wait_copied(topic_name)
        assert end_offsets(backup.confluent(), remote(topic_name)) == dict.fromkeys(range(4), 0)
        later = create_topic(source.confluent(), f"{topic_name}-later", 3)
        produce(source.confluent(), later, varied(300, partitions=3))
        produce(source.confluent(), topic_name, varied(300, partitions=4))
        engine.wait_copied(topic_name, later)
    assert assert_same(source, backup, later, remote(later)) == {0: 100, 1: 100, 2: 100}
    assert assert_same(source, backup, topic_name, remote(topic_name)) == dict.fromkeys(range(4), 75)


# -------------------- stops in awkward places


def test_stops_and_crashes_inside_batches(source: Kafka, backup: Kafka, flow: Flow, topic_name: str) -> None:
    """A source batch becomes some twenty on the target, and the copy ends between them: in order, so that the position
    lies inside the batch, or by a crash, so that rule D has to skip part of it."""
    create_topic(source.confluent(), topic_name)
    create_topic(backup.confluent(), remote(topic_name), config={"max.message.bytes": "2000"})
    settings = {"compression.type": "gzip", "linger.ms": 500, "batch.num.messages": 500}
    produce(source.confluent(), topic_name, varied(20_000), config=settings)
    boundaries = {batch.base_offset for batch in batches_of(source, topic_name)}
    stopped_at = []
    crashes = 0
    for turn in range(10):
        how = {"finish_after": 301} if turn % 2 else {"crash_after": 307}
        with Engine(flow, **how) as engine:
            engine.wait_ended()
        stopped_at.append(position_of(backup, flow, topic_name).next_offset)
        crashes += engine.crashes
    assert crashes == 5
    assert any(offset not in boundaries for offset in stopped_at)
    repeated = mirror(flow, topic_name).status().duplicates_refused
    assert assert_same(source, backup, topic_name, remote(topic_name)) == {0: 20_000}
    assert repeated == 0  # the last of the ten ended in order


def test_epochs_that_end_in_the_middle_of_a_stream(source: Kafka, backup: Kafka, topic_name: str) -> None:
    """Many short epochs, three tasks, records coming all the time; the ledger's rows say where each of them went."""
    create_topic(source.confluent(), topic_name, 6)
    with Engine(one_flow(source.cluster(), backup.cluster(), topic_name, tasks_max=3), epoch_seconds=0.3) as engine:
        rounds = 0
        while rounds < 2 * len(CODECS) or engine.status().epoch < 6:
            config = {"compression.type": CODECS[rounds % len(CODECS)]}
            produce(source.confluent(), topic_name, varied(3000, partitions=6), config=config)
            rounds += 1
        engine.wait_copied(topic_name)
    assert assert_same(source, backup, topic_name, remote(topic_name)) == dict.fromkeys(range(6), 500 * rounds)
    rows = [row for row in engine.ledger if row[1] == topic_name]
    mapped = {
        (partition, source_offset + n): target_offset + n
        for _, _, partition, _, source_offset, target_offset, length, _ in rows
        for n in range(length)
    }
    assert len(mapped) == sum(row[6] for row in rows) == 3000 * rounds
    assert all(there == here for (_, here), there in mapped.items())  # no holes in this source: offsets are equal


def test_a_source_topic_that_was_made_again_is_copied_anew(source: Kafka, backup: Kafka, topic_name: str) -> None:
    """Behind what was copied of the old one; with short epochs, so that somebody still copies the old one meanwhile."""
    before, after = varied(300, partitions=2), varied(200, partitions=2)
    create_topic(source.confluent(), topic_name, 2)
    produce(source.confluent(), topic_name, before)
    with Engine(one_flow(source.cluster(), backup.cluster(), topic_name), epoch_seconds=0.5) as engine:
        engine.wait_copied(topic_name)
        admin = AdminClient(source.confluent())
        admin.delete_topics([topic_name])[topic_name].result(30)
        create_topic(source.confluent(), topic_name, 2)
        produce(source.confluent(), topic_name, after)
        both = dict.fromkeys(range(2), 150 + 100)
        engine.wait(lambda: end_offsets(backup.confluent(), remote(topic_name)) == both, what="both copied")
        engine.wait(lambda: engine.status().epoch > 4, what="some more epochs")
    copy = read_all(backup.confluent(), remote(topic_name))
    for partition in range(2):
        values = [record.value for record in (*before, *after) if record.partition == partition]
        assert [record.value for record in copy[partition]] == values


def position_of(kafka: Kafka, flow: Flow, topic: str) -> Position:
    with Client(kafka.cluster()) as client:
        positions = PositionsLog(client, flow)
        positions.ensure()
        return positions.catch_up()[TopicPartition(topic, 0)]


def test_sequences_wrap_around(source: Kafka, backup: Kafka, flow: Flow, topic_name: str) -> None:
    """After 2^31 records the next has sequence 0. A flow that stands shortly before goes over it, crash included."""
    near = 2**31 - 1000
    create_topic(source.confluent(), topic_name)
    create_topic(backup.confluent(), remote(topic_name))  # were it not there, it would be taken for deleted
    with Client(backup.cluster()) as client:
        positions = PositionsLog(client, flow)
        positions.ensure()
        ((producer_id, epoch),) = client.init_producer_ids(1)
        positions.write({TopicPartition(topic_name, 0): Position(0, producer_id, epoch, near)})
    produce(source.confluent(), topic_name, varied(1500), config={"batch.num.messages": 70})
    with Engine(flow, crash_after=1200) as engine:
        engine.wait_ended()
    assert engine.crashes == 1
    assert position_of(backup, flow, topic_name).sequence == near  # so rule D counts across the wrap
    produce(source.confluent(), topic_name, varied(1500), config={"batch.num.messages": 70})
    with Engine(flow, finish_after=300) as engine:
        engine.wait_ended()
    assert engine.status().duplicates_refused > 0
    mirror(flow, topic_name)
    assert assert_same(source, backup, topic_name, remote(topic_name)) == {0: 3000}
    written = batches_of(backup, remote(topic_name))
    assert {batch.producer_id for batch in written} == {producer_id}
    assert any(batch.base_sequence + batch.last_offset_delta >= 2**31 for batch in written)
    assert position_of(backup, flow, topic_name).sequence == 2000


def test_offsets_far_above_two_to_the_31(source: Kafka, backup: Kafka, flow: Flow, topic_name: str) -> None:
    """A log that has lived long: its segment is given higher offsets while its broker is down."""
    create_topic(source.confluent(), topic_name)
    produce(source.confluent(), topic_name, varied(2000), config={"batch.num.messages": 100})
    lift(source, topic_name, 5 * 2**32 + 12_345)
    assert stable_ends(source.cluster(), [topic_name]) == {TopicPartition(topic_name, 0): 5 * 2**32 + 12_345 + 2000}
    with Engine(flow, finish_after=700) as engine:
        engine.wait_ended()
    produce(source.confluent(), topic_name, varied(500))
    engine = mirror(flow, topic_name)
    assert assert_same(source, backup, topic_name, remote(topic_name)) == {0: 2500}
    assert position_of(backup, flow, topic_name).next_offset == 5 * 2**32 + 12_345 + 2500
    assert engine.ledger[0][4] > 5 * 2**32


def lift(kafka: Kafka, topic: str, by: int) -> None:
    """Stop the broker, add `by` to every offset of the topic's only segment, start it again."""
    (broker,) = kafka.brokers
    assert broker.stop()
    folder = broker.folder / "data" / f"{topic}-0"
    (segment,) = folder.glob("*.log")
    log = bytearray(segment.read_bytes())
    at = 0
    while at < len(log):
        offset, length = struct.unpack_from(">qi", log, at)
        struct.pack_into(">q", log, at, offset + by)  # outside the CRC
        at += 12 + length
    for file in folder.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    (folder / f"{by:020}.log").write_bytes(log)
    broker.start()


# -------------------- a million batches


def test_a_million_batches_of_one_record(source: Kafka, backup: Kafka, flow: Flow, topic_name: str) -> None:
    create_topic(source.confluent(), topic_name, TINY_PARTITIONS)
    stable_ends(source.cluster(), [topic_name])  # answered by every leader: now it takes records too
    load_tiny(source, topic_name)
    mirror(flow, topic_name, timeout_seconds=200)
    theirs, ours = digests(source, topic_name), digests(backup, remote(topic_name))
    assert sum(count for count, _ in theirs.values()) == TINY_BATCHES
    assert ours == theirs


TINY_BATCHES, TINY_PARTITIONS = 1_000_000, 50


def load_tiny(kafka: Kafka, topic: str) -> None:
    """Batches of one record each, all different, made by hand: no producer would be so wasteful so quickly."""
    now_ms = int(time.time() * 1000)
    model = encode([BatchRecord(0, now_ms, b"key", b"%012d" % 0, (("h", b"1"),))])
    digits = model.index(b"%012d" % 0)

    def batch(number: int) -> bytes:
        made = bytearray(model)
        made[digits : digits + 12] = b"%012d" % number
        struct.pack_into(">I", made, 17, crc32c(memoryview(made)[21:]))
        return bytes(made)

    with Client(kafka.cluster()) as client:
        address = next(iter(client.metadata([topic]).brokers.values()))
    connection = Connection.open(address, kafka.cluster())
    version = connection.version("produce")
    window = TINY_PARTITIONS * 20
    for first in range(0, TINY_BATCHES, window):
        requests = [
            produce_request(version, [(topic, p, batch(n + p)) for p in range(TINY_PARTITIONS)], acks=1)
            for n in range(first, first + window, TINY_PARTITIONS)
        ]
        for response in connection.call_many(requests, timeout_s=60):
            assert not any(one.error for one in produced(response))
    connection.close()


def digests(kafka: Kafka, topic: str) -> dict[int, tuple[int, str]]:
    """Count and digest of every partition's records in their order, without holding them."""
    sums = {partition: hashlib.blake2b() for partition in range(TINY_PARTITIONS)}
    counts = dict.fromkeys(sums, 0)
    for message in stream(kafka, topic):
        content = (message.key(), message.value(), message.headers(), message.timestamp()[1])
        sums[message.partition()].update(repr(content).encode())
        counts[message.partition()] += 1
    return {partition: (counts[partition], one.hexdigest()) for partition, one in sums.items()}


def stream(kafka: Kafka, topic: str) -> Iterator[Message]:
    """Every committed record up to the ends as of now."""
    consumer = Consumer(
        {
            **kafka.confluent(),
            "group.id": "digest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([Partition(topic, one, 0) for one in range(TINY_PARTITIONS)])
    left = TINY_PARTITIONS
    while left:
        for message in consumer.consume(20_000, timeout=1):
            if message.error() is None:
                yield message
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                left -= 1
    consumer.close()
