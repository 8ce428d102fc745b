"""Java's own clients on clusters that only Heliograph wrote: RemoteClusterUtils, MirrorClient, MM2's formatters.

Two flows run both ways between clusters of their own, so that heartbeats hop. `tests/data/java/RemoteClusters.java`
asks all questions in one JVM; the console formatters run as `kafka-console-consumer` runs them.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest
from confluent_kafka import Producer

from heliograph.embedded import Kafka, running
from heliograph.formats import Checkpoint
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client, Committed
from tests.broker.engine import Engine, one_flow, topics_of
from tests.broker.java import SOURCES, java
from tests.kit import Record, create_topic, end_offsets, produce, read_all

FORMATTERS = "org.apache.kafka.connect.mirror.formatters"
Places = dict[str, str]  # `topic-partition` -> `offset metadata`


def ask_java(*questions: str) -> list[dict[str, Any]]:
    """See RemoteClusters.java."""
    out = java(str(SOURCES / "RemoteClusters.java"), *questions)
    answers: list[dict[str, Any]] = json.loads(out[out.index("ANSWERS[") + len("ANSWERS") :])
    return answers


def console(kafka: Kafka, topic: str, formatter: str) -> list[str]:
    """All records of a topic as Kafka's console consumer prints them with one of MM2's formatters."""
    count = sum(len(records) for records in read_all(kafka.confluent(), topic).values())
    out = java(
        *("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", kafka.bootstrap, "--topic", topic),
        *("--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000"),
        *("--formatter", f"{FORMATTERS}.{formatter}"),
    )
    return [line for line in out.splitlines() if "{" in line]


# ---- what is mirrored


@dataclass(frozen=True)
class Side:
    """One flow's part: a topic, a group that has read some of it, and what Java must say of the group."""

    source: Kafka
    target: Kafka
    topic: str
    group: str
    committed: tuple[int, int]

    @property
    def remote(self) -> str:
        return f"{self.source.name}.{self.topic}"

    @cached_property  # asked for only once the copy is complete
    def expected(self) -> Places:
        """By the records themselves: the first that the group has not read, found on the target by its value."""
        places = {}
        for partition, at in enumerate(self.committed):
            mine = read_all(self.source.confluent(), self.topic)[partition]
            theirs = {r.value: r.offset for r in read_all(self.target.confluent(), self.remote)[partition]}
            following = bisect_left([record.offset for record in mine], at)
            offset = theirs[mine[following].value] if following < len(mine) else theirs[mine[-1].value] + 1
            places[f"{self.remote}-{partition}"] = f"{offset} read-{partition}"
        return places

    @property
    def found(self) -> Places:
        """For waiting only; Java has the word."""
        topic = f"{self.source.name}.checkpoints.internal"
        if topic not in topics_of(self.target.confluent()):
            return {}
        read = (Checkpoint.read(r.key, r.value) for r in read_all(self.target.confluent(), topic)[0])
        return {str(c.tp): f"{c.downstream} {c.metadata}" for c in read if c and c.group == self.group}


def a_flow(source: Kafka, target: Kafka, *topics: str) -> Flow:
    return one_flow(
        *(source.cluster(), target.cluster(), *topics),
        emit_heartbeats_s=0.3,
        emit_offset_syncs=True,
        emit_checkpoints_s=0.3,
        refresh_groups_s=0.3,
        offset_flush_s=0.5,
    )


def fill(side: Side) -> None:
    """Partition 0 in transactions, some aborted: its offsets shift. Partition 1 plain."""
    create_topic(side.source.confluent(), side.topic, 2)
    client = side.source.confluent()
    producer = Producer({**client, "transactional.id": side.topic, "linger.ms": 0, "log_level": 3})
    producer.init_transactions(30)
    for n in range(12):
        producer.begin_transaction()
        for i in range(n % 5 + 1):
            producer.produce(side.topic, b"%d-%d" % (n, i), b"k", partition=0)
        (producer.abort_transaction if n % 3 == 2 else producer.commit_transaction)(30)
    produce(client, side.topic, [Record(b"k", b"%d" % n, partition=1) for n in range(250)])


def commit(side: Side) -> None:
    """By our client: confluent-kafka ends the metadata with a NUL."""
    places = {TopicPartition(side.topic, p): Committed(at, -1, f"read-{p}") for p, at in enumerate(side.committed)}
    with Client(side.source.cluster()) as client:
        assert set(client.commit_group_offsets(side.group, places).values()) == {None}


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[Side, Side]]:
    """Both flows have run until everything was where it should be, and have ended."""
    config = {"auto.create.topics.enable": "false"}
    with running(Kafka("primary", config=config), Kafka("backup", config=config)) as (primary, backup):
        there = Side(primary, backup, "orders", "readers", (29, 123))
        back = Side(backup, primary, "returns", "readers", (17, 250))  # the same group, on the other side at the end
        for side in (there, back):
            fill(side)
            commit(side)
        with (
            Engine(a_flow(primary, backup, there.topic)) as first,
            Engine(a_flow(backup, primary, back.topic)) as second,
        ):
            for side, engine in ((there, first), (back, second)):
                engine.wait_copied(side.topic)
                _wait_checkpoints(engine, side)
            for engine, target, copy in ((first, backup, "primary.heartbeats"), (second, primary, "backup.heartbeats")):
                engine.wait(lambda t=target, c=copy: _records(t, c) > 0, what=copy)  # type: ignore[misc]
            syncs = "mm2-offset-syncs.backup.internal"
            first.wait(lambda: _records(primary, syncs) >= 2, what="offset syncs")
        yield there, back


def _wait_checkpoints(engine: Engine, side: Side) -> None:
    try:
        engine.wait(lambda: side.found == side.expected, what="checkpoints", timeout_seconds=30)
    except TimeoutError as error:
        raise TimeoutError(f"{error}: {side.found}, not {side.expected}") from None


def _records(kafka: Kafka, topic: str) -> int:
    if topic not in topics_of(kafka.confluent()):
        return 0
    return sum(end_offsets(kafka.confluent(), topic).values())


@pytest.fixture(scope="module")
def answers(sides: tuple[Side, Side]) -> list[dict[str, Any]]:
    return ask_java(*(f"{side.target.bootstrap} {side.source.name} {side.group}" for side in sides))


# ---- what Java says


def test_translate_offsets_gives_the_very_record(sides: tuple[Side, Side], answers: list[dict[str, Any]]) -> None:
    for side, answer in zip(sides, answers, strict=True):
        assert answer["translated"] == side.expected
        assert answer["matching"] == {side.group: side.expected}
    assert answers[0]["translated"]["primary.orders-0"] != "29 read-0"  # markers and aborted records are not copied


def test_upstream_clusters_and_replication_hops(sides: tuple[Side, Side], answers: list[dict[str, Any]]) -> None:
    for side, answer in zip(sides, answers, strict=True):
        assert answer["upstream"] == [side.source.name]
        assert answer["hops"] == {side.source.name: 1, "nobody": -1}


def test_remote_checkpoint_and_heartbeat_topics(sides: tuple[Side, Side], answers: list[dict[str, Any]]) -> None:
    for side, answer in zip(sides, answers, strict=True):
        source = side.source.name
        assert answer["heartbeats"] == sorted(["heartbeats", f"{source}.heartbeats"])
        assert answer["checkpoints"] == [f"{source}.checkpoints.internal"]
        assert answer["remote"] == sorted([f"{source}.heartbeats", side.remote])
        assert answer["remote_of"] == {source: answer["remote"]}


# ---- what MM2's formatters print


def test_the_heartbeat_formatter_prints_ours(sides: tuple[Side, Side]) -> None:
    there, _ = sides
    own = console(there.target, "heartbeats", "HeartbeatFormatter")
    copied = console(there.target, "primary.heartbeats", "HeartbeatFormatter")
    form = r"Heartbeat\{sourceClusterAlias=%s, targetClusterAlias=%s, timestamp=\d{13}\}"
    for lines, aliases in ((own, ("primary", "backup")), (copied, ("backup", "primary"))):
        assert lines
        assert [line for line in lines if not re.fullmatch(form % aliases, line)] == []


def test_the_checkpoint_formatter_prints_ours(sides: tuple[Side, Side]) -> None:
    there, _ = sides
    lines = console(there.target, "primary.checkpoints.internal", "CheckpointFormatter")
    for partition, upstream in enumerate(there.committed):
        downstream = there.expected[f"primary.orders-{partition}"].split()[0]
        assert (
            f"Checkpoint{{consumerGroupId=readers, topicPartition=primary.orders-{partition}, "
            f"upstreamOffset={upstream}, downstreamOffset={downstream}, metadata=read-{partition}}}"
        ) in lines


def test_the_offset_sync_formatter_prints_ours(sides: tuple[Side, Side]) -> None:
    """And every pair is one record and its copy."""
    there, _ = sides
    lines = console(there.source, "mm2-offset-syncs.backup.internal", "OffsetSyncFormatter")
    mine, theirs = read_all(there.source.confluent(), "orders"), read_all(there.target.confluent(), "primary.orders")
    form = r"OffsetSync\{topicPartition=(.+)-(\d), upstreamOffset=(\d+), downstreamOffset=(\d+)\}"
    seen = set()
    for line in lines:
        match = re.fullmatch(form, line)
        assert match, line
        topic, partition, upstream, downstream = match[1], *map(int, match.groups()[1:])
        if topic != "heartbeats":
            assert topic == "orders"
            here = {record.offset: record.value for record in mine[partition]}
            there_ = {record.offset: record.value for record in theirs[partition]}
            assert here[upstream] == there_[downstream], line
            seen.add(partition)
    assert seen == {0, 1}
