"""The scenarios of MM2's integration suite, run again on Heliograph: each test is named after its scenario.

Where MM2's suite has variants, so has this one: the default policy, the identity policy (one way), TLS with a login on
both sides, and a source written in transactions where its offsets play a part. Where MM2 asks for an offset within some
lag, the very record is asked for. Every test has topics and aliases of its own on clusters that the module shares.
Chains, rings and hubs: `test_topologies`.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from heliograph.embedded import Kafka, running
from heliograph.formats import Checkpoint
from heliograph.mirror import task
from heliograph.policy import IDENTITY_POLICY
from heliograph.types import Flow, Naming
from tests.broker.engine import Engine, one_flow, topics_of
from tests.broker.test_topic_sync import alter, settings, value
from tests.broker.test_translation import committed, set_offsets
from tests.kit import Record, alter_topic, contents, create_topic, end_offsets, produce, read_all, wait_until

PARTITIONS, RECORDS = 4, 10  # records a partition
QUICK_S = 0.2
SECURE = "SASL_SSL"
RIGHT_RETENTION = "900000000"  # a default of one cluster only
OFFSETS = {
    "emit_offset_syncs": True,
    "emit_checkpoints_s": QUICK_S,
    "refresh_groups_s": QUICK_S,
    "sync_group_offsets_s": QUICK_S,
    "offset_flush_s": QUICK_S,
}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def three() -> Iterator[tuple[Kafka, ...]]:
    config = {"auto.create.topics.enable": "false"}
    left, third = Kafka("left", security=("PLAINTEXT", SECURE), config=config), Kafka("third", config=config)
    right_config = {**config, "log.retention.bytes": RIGHT_RETENTION}
    right = Kafka("right", security=("PLAINTEXT", SECURE), config=right_config)
    with pytest.MonkeyPatch.context() as patch, running(left, right, third) as clusters:
        patch.setattr(task, "POSITIONS_EVERY_S", QUICK_S)  # translation goes by what is durable
        yield clusters


def read(kafka: Kafka, topic: str) -> dict[int, list[Record]]:
    """All of it, without half a second's wait at every end."""
    return read_all({**kafka.confluent(), "fetch.wait.max.ms": "10"}, topic)


def answers(kafka: Kafka, topic: str) -> bool:
    """A leader that metadata names already may still refuse."""
    try:
        return bool(end_offsets(kafka.confluent(), topic))
    except KafkaException:
        return False


@dataclass(frozen=True)
class Case:
    """A pair of aliases nobody else uses, and how its source is written."""

    source: Kafka
    target: Kafka
    number: int
    identity: bool = False
    transactional: bool = False
    tls: bool = False  # the flow's way in; what the test itself produces and reads goes by PLAINTEXT

    @property
    def here(self) -> str:
        return f"primary{self.number}"

    @property
    def there(self) -> str:
        return f"backup{self.number}"

    @property
    def topic(self) -> str:
        return f"topic-{self.number}"

    @property
    def group(self) -> str:
        return f"consumer-group-{self.number}"

    def remote(self, topic: str) -> str:
        return topic if self.identity else f"{self.here}.{topic}"

    def flow(self, *topics: str, **more: Any) -> Flow:
        naming = Naming(policy=IDENTITY_POLICY) if self.identity else Naming()
        settings = {
            "naming": naming,
            "offset_storage_partitions": 1,
            "groups": (f"{self.group}.*",),
            "heartbeats_replication": False,
            "refresh_topics_interval_seconds": QUICK_S,
        }
        by = SECURE if self.tls else "PLAINTEXT"
        ends = self.source.cluster(self.here, security=by), self.target.cluster(self.there, security=by)
        return one_flow(*ends, *(topics or (f"{self.topic}.*",)), **{**settings, **more})

    def back(self) -> Case:
        return Back(self.target, self.source, self.number, transactional=self.transactional, tls=self.tls)

    def create(self, topic: str, partitions: int = PARTITIONS, **config: str) -> str:
        named = {key.replace("_", "."): one for key, one in config.items()}
        create_topic(self.source.confluent(), topic, partitions, config=named)
        wait_until(lambda: answers(self.source, topic), what=f"the leaders of {topic}")
        return topic

    def fill(self, topic: str, partitions: Iterable[int] = range(PARTITIONS), count: int = RECORDS) -> None:
        """Each value is in its partition once. Transactions leave markers, and one in three is aborted."""
        ends = end_offsets(self.source.confluent(), topic)
        records = [Record(b"k%d" % n, b"%d" % (ends[p] + n), partition=p) for n in range(count) for p in partitions]
        if not self.transactional:
            produce(self.source.confluent(), topic, records, config={"enable.idempotence": False})  # quick to start
            return
        producer = Producer({**self.source.confluent(), "transactional.id": topic, "linger.ms": 0, "log_level": 3})
        producer.init_transactions(30)
        size = max(7, len(records) // 30)
        for turn, at in enumerate(range(0, len(records), size)):
            for end in (producer.abort_transaction, producer.commit_transaction)[turn % 3 != 0 :]:
                producer.begin_transaction()
                for record in records[at : at + size]:
                    producer.produce(topic, record.value, record.key, partition=record.partition)
                assert producer.flush(30) == 0  # else what is aborted may never have been sent
                end(30)

    def commit(self, topic: str, share: float = 1.0, group: str = "") -> dict[int, int]:
        """As a group that has read this share of each partition."""
        at = {p: round(end * share) for p, end in end_offsets(self.source.confluent(), topic).items()}
        set_offsets(self.source, group or self.group, [TopicPartition(topic, p, offset) for p, offset in at.items()])
        return at

    def exact(self, topic: str, at: dict[int, int]) -> dict[tuple[str, int], int]:
        """By the records: where the target has the first that the group has not read."""
        mine = read(self.source, topic)
        theirs = read(self.target, self.remote(topic))
        places = {}
        for p, offset in at.items():
            following = bisect_left([record.offset for record in mine[p]], offset)
            copies = [record.offset for record in theirs[p]]
            assert len(copies) == len(mine[p])
            places[self.remote(topic), p] = copies[following] if following < len(copies) else copies[-1] + 1
        return places

    def checkpoints(self, group: str = "") -> list[Checkpoint]:
        name = f"{self.here}.checkpoints.internal"
        if name not in topics_of(self.target.confluent()):
            return []
        found = (Checkpoint.read(r.key, r.value) for r in read(self.target, name)[0])
        return [c for c in found if c is not None and c.group == (group or self.group)]

    def last_checkpoints(self) -> dict[tuple[str, int], int]:
        return {(c.tp.topic, c.tp.partition): c.downstream for c in self.checkpoints()}

    def assert_monotonic(self) -> None:
        last: dict[object, int] = {}
        for checkpoint in self.checkpoints():
            assert checkpoint.downstream > last.get(checkpoint.tp, -1), checkpoint
            last[checkpoint.tp] = checkpoint.downstream
        assert last

    def wait_group(self, engine: Engine, topic: str, at: dict[int, int]) -> None:
        """Until the group stands on the target at the very records."""
        engine.wait_copied(topic)
        exact = self.exact(topic, at)
        engine.wait(
            lambda: committed(self.target, self.group, [self.remote(topic)]) == exact,
            what=f"{exact} of {self.group}",
            timeout_seconds=30,
        )

    def same(self, topic: str) -> dict[int, int]:
        mine, theirs = contents(read(self.source, topic)), contents(read(self.target, self.remote(topic)))
        assert theirs == mine
        return {partition: len(records) for partition, records in mine.items()}


class Back(Case):
    """The other way between the same two."""

    @property
    def here(self) -> str:
        return f"backup{self.number}"

    @property
    def there(self) -> str:
        return f"primary{self.number}"


@pytest.fixture
def case(request: pytest.FixtureRequest, three: tuple[Kafka, ...]) -> Case:
    how = {} if request.param == "default" else {request.param: True}
    return Case(*three[:2], next(_numbers), **how)


def variants(*more: str) -> pytest.MarkDecorator:
    """Every scenario with both policies; with what else, where it can make a difference."""
    return pytest.mark.parametrize("case", ["default", "identity", *more], indirect=True)


@pytest.fixture
def plain(three: tuple[Kafka, ...]) -> Case:
    """For what does not depend on the variant."""
    return Case(*three[:2], next(_numbers))


def read_group(kafka: Kafka, group: str, topics: list[str], count: int) -> list[tuple[str, int, int]]:
    """What a member of the group reads from where the group stands; it commits its positions, also of empty ones."""
    config = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 3}
    consumer = Consumer({**kafka.confluent(), **config})
    try:
        consumer.subscribe(topics)
        found: list[tuple[str, int, int]] = []
        for _ in range(200):
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.append((str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)))
            elif len(found) >= count and consumer.assignment():
                break
        places = consumer.position(consumer.assignment())
        consumer.commit(
            offsets=[TopicPartition(tp.topic, tp.partition, max(tp.offset, 0)) for tp in places], asynchronous=False
        )
        return found
    finally:
        consumer.close()


# ---- MirrorConnectorsIntegrationBaseTest


@variants("transactional", "tls")
def test_replication(case: Case) -> None:
    """Both ways (identity: one way): settings, heartbeats, failover and failback, topics that come later."""
    ways = [case] if case.identity else [case, case.back()]
    for way in ways:
        way.create(way.topic, cleanup_policy="compact", delete_retention_ms="1000")
        way.fill(way.topic)
    more = {**OFFSETS, "emit_heartbeats_s": QUICK_S, "heartbeats_replication": True}
    more |= {"sync_topic_configs_s": QUICK_S, "config_properties_exclude": (r"delete\.retention\..*",)}
    with ExitStack() as stack:
        engines = [stack.enter_context(Engine(way.flow(**more))) for way in ways]
        for way, engine in zip(ways, engines, strict=True):
            way.wait_group(engine, way.topic, way.commit(way.topic, 0.5))  # failover; and for the way back, failback
            way.same(way.topic)
            copy = settings(way.target, way.remote(way.topic))
            assert copy["cleanup.policy"].value == "compact"
            assert copy["delete.retention.ms"].value != "1000"
            heartbeats = ["heartbeats"] if case.identity else ["heartbeats", f"{way.here}.heartbeats"]
            engine.wait(lambda w=way, h=heartbeats: set(h) <= topics_of(w.target.confluent()), what="heartbeats")  # type: ignore[misc]
            new = way.create(f"{way.topic}-{way.here}-new")
            way.fill(new, [0])
            engine.wait(lambda w=way, n=new: w.remote(n) in topics_of(w.target.confluent()), what="the new topic")  # type: ignore[misc]
            engine.wait_copied(new)
            assert {p: n > 0 for p, n in way.same(new).items()} == {0: True, 1: False, 2: False, 3: False}
    for way in ways:
        way.assert_monotonic()
    union = {case.topic, case.remote(case.topic)}
    count = sum(len(r) for topic in union for r in read(case.target, topic).values())
    assert count == PARTITIONS * RECORDS * len(ways)


@variants("transactional")
def test_replication_with_empty_partition(case: Case) -> None:
    case.create(case.topic)
    case.fill(case.topic, range(PARTITIONS - 1))
    remote, empty = case.remote(case.topic), PARTITIONS - 1
    with Engine(case.flow(**OFFSETS)) as engine:
        case.commit(case.topic, 0.0)
        engine.wait_copied(case.topic)
        engine.wait(lambda: len(case.last_checkpoints()) >= PARTITIONS - 1, what="checkpoints", timeout_seconds=30)
        there = end_offsets(case.target.confluent(), remote)
        assert there[empty] == 0
        assert len(read_group(case.target, case.group, [remote], sum(there.values()))) == sum(there.values())
    assert committed(case.target, case.group, [remote]) == {(remote, p): end for p, end in there.items()}


@variants("transactional", "tls")
def test_one_way_replication_with_auto_offset_sync(case: Case) -> None:
    one_way_with_auto_offset_sync(case, lag=10)


def test_one_way_replication_with_frequent_offset_syncs(plain: Case) -> None:
    one_way_with_auto_offset_sync(plain, lag=0)


def one_way_with_auto_offset_sync(case: Case, lag: int) -> None:
    """The lag changes nothing here: nothing is read twice either way."""
    case.create(case.topic)
    case.fill(case.topic)
    later = f"{case.topic}-later"
    with Engine(case.flow(**OFFSETS, offset_lag_max=lag)) as engine:
        case.wait_group(engine, case.topic, case.commit(case.topic))
        case.create(later)
        case.fill(later)
        engine.wait(lambda: case.remote(later) in topics_of(case.target.confluent()), what="the later topic")
        case.wait_group(engine, later, case.commit(later))
    assert read_group(case.target, case.group, [case.remote(case.topic), case.remote(later)], 0) == []
    case.assert_monotonic()
    assert not [name for name in topics_of(case.source.confluent()) if name.startswith(f"{case.there}.")]


@variants()
def test_replication_without_offset_sync_will_not_create_offset_syncs_topic(case: Case) -> None:
    case.create(case.topic)
    case.fill(case.topic)
    with Engine(case.flow(**{**OFFSETS, "emit_offset_syncs": False})) as engine:
        engine.wait_copied(case.topic)
    case.same(case.topic)
    assert f"mm2-offset-syncs.{case.there}.internal" not in topics_of(case.source.confluent())
    assert f"mm2-offset-syncs.{case.here}.internal" not in topics_of(case.target.confluent())
    assert f"{case.here}.checkpoints.internal" not in topics_of(case.target.confluent())


@variants("tls")
def test_offset_syncs_topics_on_target(case: Case) -> None:
    case.create(case.topic)
    case.fill(case.topic)
    syncs = f"mm2-offset-syncs.{case.here}.internal"
    with Engine(case.flow(**OFFSETS, offset_syncs_location="target")) as engine:
        case.wait_group(engine, case.topic, case.commit(case.topic, 0.5))
        engine.wait(lambda: syncs in topics_of(case.target.confluent()), what=syncs)
        engine.wait(lambda: end_offsets(case.target.confluent(), syncs)[0] >= PARTITIONS, what="offset syncs")
    assert case.checkpoints()
    on_source = topics_of(case.source.confluent())
    assert not on_source & {syncs, f"mm2-offset-syncs.{case.there}.internal"}


@variants()
def test_no_checkpoints_if_no_records_are_mirrored(case: Case) -> None:
    """Another group's checkpoints show that rounds have passed."""
    empty, full = case.create(f"{case.topic}-empty"), case.create(f"{case.topic}-full")
    case.fill(full)
    other = f"{case.group}-other"
    with Engine(case.flow(**OFFSETS)) as engine:
        engine.wait_copied(full, empty)
        case.commit(empty)
        for share in (0.5, 1.0):
            at = case.commit(full, share, other)
            engine.wait(
                lambda at=at: {c.upstream for c in case.checkpoints(other)} >= set(at.values()),  # type: ignore[misc]
                what="the other group's checkpoints",
                timeout_seconds=30,
            )
        assert case.checkpoints() == []
        case.fill(empty)
        case.wait_group(engine, empty, case.commit(empty))
    assert {c.tp.topic for c in case.checkpoints()} == {case.remote(empty)}


@variants("transactional", "tls")
def test_restart_replication(case: Case) -> None:
    case.create(case.topic)
    for _ in range(2):
        case.fill(case.topic)
        with Engine(case.flow(**OFFSETS)) as engine:
            case.wait_group(engine, case.topic, case.commit(case.topic))
    case.same(case.topic)
    case.assert_monotonic()


@variants("transactional")
def test_offset_translation_behind_replication_flow(case: Case) -> None:
    case.create(case.topic)
    case.fill(case.topic, count=100 * RECORDS)
    with Engine(case.flow(**{**OFFSETS, "sync_group_offsets_s": None})) as engine:
        engine.wait_copied(case.topic)
        for share in (0.9, 0.1):
            exact = case.exact(case.topic, case.commit(case.topic, share))
            engine.wait(lambda e=exact: case.last_checkpoints() == e, what=f"{exact}", timeout_seconds=30)  # type: ignore[misc]


def test_sync_topic_configs(plain: Case) -> None:
    plain.create(plain.topic, delete_retention_ms="1000", retention_bytes="1000")
    remote = plain.remote(plain.topic)
    # MM2 shortens the target's retention; we do when told.
    more = {"config_properties_exclude": (r"delete\.retention\..*",), "shorten_retention": True}
    with Engine(plain.flow(sync_topic_configs_s=QUICK_S, **more)) as engine:
        engine.wait(lambda: remote in topics_of(plain.target.confluent()), what=remote)
        engine.wait(lambda: value(plain.target, remote, "retention.bytes") == "1000", what="the first sync")
        alter_topic(plain.target.confluent(), remote, {"delete.retention.ms": "2000", "retention.bytes": "2000"})
        engine.wait(lambda: value(plain.target, remote, "delete.retention.ms") == "2000", what="the drift")
        engine.wait(lambda: value(plain.target, remote, "retention.bytes") == "1000", what="the source's value again")
        alter(plain.source, plain.topic, retention_bytes="3000")
        engine.wait(lambda: value(plain.target, remote, "retention.bytes") == "3000", what="the source's new value")
        assert value(plain.target, remote, "delete.retention.ms") == "2000"


def test_replicate_source_default(plain: Case) -> None:
    an_override_that_goes(plain, "source", leaves="-1")


def test_replicate_target_default(plain: Case) -> None:
    an_override_that_goes(plain, "target", leaves=RIGHT_RETENTION)


def an_override_that_goes(plain: Case, use_from: str, leaves: str) -> None:
    plain.create(plain.topic, retention_bytes="1000")
    remote = plain.remote(plain.topic)
    with Engine(plain.flow(sync_topic_configs_s=QUICK_S, use_defaults_from=use_from)) as engine:
        engine.wait(lambda: remote in topics_of(plain.target.confluent()), what=remote)
        engine.wait(lambda: value(plain.target, remote, "retention.bytes") == "1000", what="the override")
        alter(plain.source, plain.topic, retention_bytes=None)
        engine.wait(lambda: value(plain.target, remote, "retention.bytes") == leaves, what="the default")


@variants("transactional", "tls")
def test_replicate_from_latest(case: Case) -> None:
    case.create(case.topic)
    case.fill(case.topic)
    before = {p: len(records) for p, records in read(case.source, case.topic).items()}
    with Engine(case.flow(start_at="latest")) as engine:
        engine.wait(lambda: len(engine.coordinator._positions.known) == PARTITIONS, what="a start")
        case.fill(case.topic)
        engine.wait_copied(case.topic)
    mine, theirs = (
        read(case.source, case.topic),
        read(case.target, case.remote(case.topic)),
    )
    for p, records in mine.items():
        assert [r.content for r in theirs[p]] == [r.content for r in records[before[p] :]]
