"""Nonsense in the topics that Heliograph keeps: survived and named, before the start and while it runs.

What is written there: random bytes, null keys, keys without values and values without keys, JSON that never ends, keys
of ours with values that cannot be, records of versions to come. Afterwards each record is on the target once, each
group at the very record, and the log has named every stranger once by topic, partition and offset. Offset syncs and
heartbeats are only ever written, so nothing is passed over there; they must do no harm.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from structlog.typing import EventDict

from heliograph.embedded import Kafka, running
from heliograph.formats import Checkpoint, Heartbeat, OffsetSync
from heliograph.mirror import offsetmap, positions, task
from heliograph.mirror.offsetmap import Span, Subject
from heliograph.types import Flow
from heliograph.types import TopicPartition as Partition
from heliograph.wire import Client
from tests.broker.engine import Engine, assert_same, one_flow
from tests.broker.test_topic_sync import alter
from tests.broker.test_translation import committed, set_offsets, source_offsets
from tests.kit import Record, create_topic, end_offsets, produce

TOPIC, GROUP, PARTITIONS = "orders", "readers", 3
REMOTE = f"primary.{TOPIC}"
POSITIONS, MAP = "mm2-offsets.primary.internal", "mm2-offset-map.primary.internal"
CHECKPOINTS, SYNCS = "primary.checkpoints.internal", "mm2-offset-syncs.backup.internal"
STORAGE_PARTITIONS = 2
QUICK_S = 0.2
HUGE = 10**15
DEEP = b"[" * 50_000

Pair = tuple[bytes | None, bytes | None]


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Kafka, ...]]:
    config = {"auto.create.topics.enable": "false"}
    with (
        pytest.MonkeyPatch.context() as patch,
        running(Kafka("primary", config=config), Kafka("backup", config=config)) as both,
    ):
        patch.setattr(task, "POSITIONS_EVERY_S", QUICK_S)
        yield both


def flow(source: Kafka, target: Kafka) -> Flow:
    return one_flow(
        *(source.cluster(), target.cluster(), TOPIC),
        groups=(GROUP,),
        offset_storage_partitions=STORAGE_PARTITIONS,
        emit_heartbeats_s=QUICK_S,
        emit_offset_syncs=True,
        emit_checkpoints_s=QUICK_S,
        refresh_groups_s=QUICK_S,
        sync_group_offsets_s=QUICK_S,
        offset_flush_s=QUICK_S,
    )


def fill(kafka: Kafka, partitions: tuple[int, ...]) -> None:
    """Of each transaction the marker is not copied, of every third nothing is: source and target offsets part."""
    ends = end_offsets(kafka.confluent(), TOPIC)
    producer = Producer({**kafka.confluent(), "transactional.id": TOPIC, "linger.ms": 0, "log_level": 3})
    producer.init_transactions(30)
    for turn in range(12):
        producer.begin_transaction()
        for n in range(20):
            for p in partitions:
                producer.produce(TOPIC, b"%d-%d-%d-%d" % (p, ends[p], turn, n), b"k", partition=p)
        producer.flush(30)  # what is still queued when a transaction is aborted would never be written
        (producer.abort_transaction if turn % 3 == 2 else producer.commit_transaction)(30)


# ---- nonsense


@dataclass
class Nonsense:
    """What was written where; `due` are those that the log must name."""

    source: Kafka
    target: Kafka
    topic_id: object
    chance: random.Random = field(default_factory=lambda: random.Random(4))
    due: Counter[tuple[str, int, int]] = field(default_factory=Counter)

    def noise(self, *, null_keys: bool) -> list[Pair]:
        """What makes sense nowhere."""
        some = [self.chance.randbytes(n) for n in (1, 2, 3, 8, 40, 300, 20_000)]
        found: list[Pair] = [(one, self.chance.randbytes(17)) for one in some]
        found += [(one, None) for one in some[3:]]
        found += [(b"", b""), (b"", None), (b"null", b"null"), (DEEP, DEEP), (b'["a"]', b"{}"), (b'"\xff"', b'"\xff"')]
        return found + ([(None, b"no key"), (None, b"")] if null_keys else [])

    def write(self, kafka: Kafka, topic: str, pairs: list[Pair], *, partition: int = 0, named: bool = True) -> None:
        def delivered(error: KafkaError | None, message: object) -> None:
            assert error is None, error
            if named:
                self.due[topic, partition, message.offset()] += 1  # type: ignore[attr-defined]

        producer = Producer({**kafka.confluent(), "linger.ms": 5, "log_level": 3})
        for key, value in pairs:
            producer.produce(topic, value, key, partition=partition, on_delivery=delivered)
        assert not producer.flush(30)

    def everywhere(self, *, null_keys: bool) -> None:
        for partition in range(STORAGE_PARTITIONS):
            self.write(self.target, POSITIONS, self.noise(null_keys=null_keys), partition=partition)
            self.write(self.target, MAP, self.noise(null_keys=null_keys), partition=partition)
        self.write(self.target, CHECKPOINTS, self.noise(null_keys=null_keys))
        self.write(self.source, SYNCS, self.noise(null_keys=null_keys), named=False)
        self.write(self.target, "heartbeats", self.noise(null_keys=null_keys), named=False)
        self.write(self.source, "heartbeats", self.noise(null_keys=False), named=False)  # copied, to a compacted topic
        sync = OffsetSync(Partition(TOPIC, 0), HUGE, HUGE)
        self.write(self.source, SYNCS, [(sync.key(), sync.value()), (sync.key(), None)], named=False)
        beat = Heartbeat("primary", "backup", 0)
        self.write(self.target, "heartbeats", [(beat.key(), b"\x00\x01later"), (beat.key(), None)], named=False)
        self.positions()
        self.map()
        self.checkpoints()

    def positions(self) -> None:
        for p in range(PARTITIONS):
            key = positions.key_of("primary", Partition(TOPIC, p))
            home = positions.partition_for(key, STORAGE_PARTITIONS)
            values = [
                b"",
                b"\x00\xff",
                DEEP,
                b'"\xff"',
                b"[]",
                b'{"offset":"5"}',
                b'{"offset":-7}',
                b'{"offset":1e300}',
            ]
            values += [b'{"version":2,"positions":[[0,5]]}', b'{"offset":%d}' % 2**80]
            values += [msgspec.json.encode({"offset": 5, "producerId": 2**80, "producerEpoch": 0, "sequence": 0})]
            self.write(self.target, POSITIONS, [(key, value) for value in values], partition=home)
            # Of other connectors and clusters: not for us, and no nonsense.
            others = [(positions.key_of("elsewhere", Partition(TOPIC, p)), None), (b'["X",{"y":1}]', b'{"offset":9}')]
            self.write(self.target, POSITIONS, others, partition=home, named=False)

    def behind_the_end(self, partition: int) -> None:
        """A position as MM2 writes it, of an offset that the source does not have."""
        key = positions.key_of("primary", Partition(TOPIC, partition))
        home = positions.partition_for(key, STORAGE_PARTITIONS)
        self.write(self.target, POSITIONS, [(key, b'{"offset":%d}' % HUGE)], partition=home)

    def map(self) -> None:
        for p in range(PARTITIONS):
            subject = Subject(Partition(TOPIC, p), self.topic_id)  # type: ignore[arg-type]
            home = positions.partition_for(positions.key_of("primary", subject.tp), STORAGE_PARTITIONS)
            lies = [Span(0, HUGE, 50), Span(3, HUGE, 1), Span(HUGE, HUGE, 7), Span(2**62, 2**62, 5)]
            pairs: list[Pair] = [(offsetmap.key_of("primary", subject, s.source), offsetmap.encode([s])) for s in lies]
            key = offsetmap.key_of("primary", subject, 1)
            pairs += [
                (key, value) for value in (b"", b"\xc1", b"\x93\x00", b"\x82later", offsetmap.encode([Span(2, 2, 2)]))
            ]
            pairs += [(key.replace(b"primary", b"another"), offsetmap.encode([Span(1, 1, 1)]))]
            self.write(self.target, MAP, pairs, partition=home)
            self.write(self.target, MAP, [(key, None)], partition=home, named=False)

    def checkpoints(self) -> None:
        for p in range(PARTITIONS):
            for upstream, downstream in ((1, HUGE), (HUGE, HUGE), (-1, 5), (0, 2**63 - 1)):
                lie = Checkpoint(GROUP, Partition(REMOTE, p), upstream, downstream)
                later = b"\x00\x01" + lie.value()[2:]
                self.write(self.target, CHECKPOINTS, [(lie.key(), lie.value()), (lie.key(), later), (lie.key(), b"")])
            self.write(self.target, CHECKPOINTS, [(lie.key(), None)], named=False)
        strange = [Checkpoint("nobody", Partition(REMOTE, 0), 1, 1), Checkpoint(GROUP, Partition("other.t", 0), 1, 1)]
        self.write(self.target, CHECKPOINTS, [(one.key(), one.value()) for one in strange], named=False)


def named(lines: list[EventDict]) -> Counter[tuple[str, int, int]]:
    """Every (topic, partition, offset) that the log calls a stranger."""
    found: Counter[tuple[str, int, int]] = Counter()
    for line in lines:
        if line["event"].startswith("records that are not ours"):
            assert "…" not in line["offsets"], line
            for part in line["offsets"].split(", "):
                first, _, last = part.partition("-")
                for offset in range(int(first), int(last or first) + 1):
                    found[line["topic"], line["partition"], offset] += 1
    return found


def wait_named(engine: Engine, lines: list[EventDict], due: Counter[tuple[str, int, int]]) -> None:
    try:
        engine.wait(lambda: named(lines) == due, what="the strangers' names", timeout_seconds=30)
    except TimeoutError as error:
        found = named(lines)
        raise AssertionError(f"not named: {due - found}, too much: {found - due}; {error}") from None


def exact(source: Kafka, target: Kafka, at: dict[int, int]) -> dict[tuple[str, int], int]:
    """By the records: where the target has the first that the group has not read."""
    found = {}
    for p, offset in at.items():
        copies = source_offsets(source, target, TOPIC, p, REMOTE)
        found[REMOTE, p] = next((there for there, here in copies if here >= offset), copies[-1][0] + 1)
    return found


def assert_right(engine: Engine, source: Kafka, target: Kafka, at: dict[int, int]) -> None:
    """Each record once, the group at the very record."""
    engine.wait_copied(TOPIC)
    assert_same(source, target, TOPIC, REMOTE)
    set_offsets(source, GROUP, [TopicPartition(TOPIC, p, offset) for p, offset in at.items()])
    wanted = exact(source, target, at)
    engine.wait(
        lambda: committed(target, GROUP, [REMOTE]) == wanted,
        what=f"{wanted}, not {committed(target, GROUP, [REMOTE])}",
        timeout_seconds=30,
    )


def test_nonsense_before_the_start_and_while_it_runs(pair: tuple[Kafka, ...], logs: list[EventDict]) -> None:
    source, target = pair
    create_topic(source.confluent(), TOPIC, PARTITIONS)
    with Client(source.cluster()) as client:
        topic_id = client.metadata([TOPIC]).topics[TOPIC].id
    nonsense = Nonsense(source, target, topic_id)
    kept = [(target, POSITIONS, STORAGE_PARTITIONS), (target, MAP, STORAGE_PARTITIONS), (target, CHECKPOINTS, 1)]
    kept += [(source, SYNCS, 1), (target, "heartbeats", 1), (source, "heartbeats", 1)]
    for kafka, topic, partitions in kept:
        create_topic(kafka.confluent(), topic, partitions)
    nonsense.everywhere(null_keys=True)  # which a compacted topic would refuse, so that comes after
    nonsense.behind_the_end(0)
    for kafka, topic, _ in kept:
        alter(kafka, topic, cleanup_policy="compact")
    fill(source, (0, 1, 2))
    ends = end_offsets(source.confluent(), TOPIC)
    with Engine(flow(source, target), epoch_seconds=1.0) as engine:
        assert_right(engine, source, target, {0: 30, 1: 100, 2: ends[2]})
        wait_named(engine, logs, nonsense.due)

        nonsense.everywhere(null_keys=False)
        nonsense.behind_the_end(2)  # nothing comes there any more: no position of ours will follow it
        fill(source, (0, 1))
        assert_right(engine, source, target, {0: 200, 1: end_offsets(source.confluent(), TOPIC)[1], 2: ends[2]})
        wait_named(engine, logs, nonsense.due)
        assert engine.status().parked == ()
    logs.clear()
    produce(source.confluent(), TOPIC, [Record(b"k", b"last-%d" % n, partition=n % PARTITIONS) for n in range(90)])
    with Engine(flow(source, target), epoch_seconds=1.0) as engine:
        at = {p: end - 10 for p, end in end_offsets(source.confluent(), TOPIC).items()}
        assert_right(engine, source, target, at)
    assert set(named(logs).values()) == {1}
