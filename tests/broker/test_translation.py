"""Offsets that lead to the very record: 200 groups at random places, over holes, markers, restarts and crashes.

The records say where they came from, so what a group would read next on the target is compared with what it would have
read next on the source; confluent-kafka reads and commits.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import (
    Consumer,
    Producer,
    TopicPartition,
)

from heliograph.embedded import Kafka
from heliograph.types import Flow
from heliograph.wire import Client
from tests.broker.engine import Engine, one_flow
from tests.kit import Record, create_topic, end_offsets, produce, read_all, wait_until

GROUPS = 200
CLIENTS = 8  # at a time; each waits longer than it works
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.0001"}
Committed = dict[str, dict[TopicPartition, int]]


@pytest.fixture
def topics(primary: Kafka, new_topic: Callable[[], str]) -> dict[str, str]:
    names = {kind: new_topic() for kind in ("plain", "compacted", "transactional")}
    create_topic(primary.confluent(), names["plain"], 3)
    create_topic(primary.confluent(), names["compacted"], config=COMPACTED)
    create_topic(primary.confluent(), names["transactional"], 2)
    return names


def offsets_flow(primary: Kafka, backup: Kafka, *topics: str, **more: object) -> Flow:
    settings = {
        "emit_offset_syncs": True,
        "emit_checkpoints_s": 0.3,
        "refresh_groups_s": 0.3,
        "sync_group_offsets_s": 0.3,
        "offset_flush_s": 0.5,
        "config_properties_exclude": (".*",),  # the copy of a compacted topic is not: then its offsets can be compared
    }
    return one_flow(primary.cluster(), backup.cluster(), *topics, **{**settings, **more})


def fill(kafka: Kafka, topics: dict[str, str], turn: int) -> None:
    """Each record's value is its source offset where that is known when it is produced, else unique."""
    plain, compacted = topics["plain"], topics["compacted"]
    ends = end_offsets(kafka.confluent(), plain)
    produce(
        kafka.confluent(),
        plain,
        [Record(b"k", b"%d" % (ends[p] + n), partition=p) for n in range(700) for p in range(3)],
        config={"batch.num.messages": 37},
    )
    end = end_offsets(kafka.confluent(), compacted)[0]
    records = [Record(b"%d" % (n * n % 90), b"%d" % (end + n)) for n in range(600)]
    produce(kafka.confluent(), compacted, records, config={"batch.num.messages": 40, "compression.type": "lz4"})
    _clean(kafka, compacted)
    _transactions(kafka, topics["transactional"], turn)


def _clean(kafka: Kafka, topic: str) -> None:
    total = end_offsets(kafka.confluent(), topic)[0]

    def cleaned() -> bool:
        end = end_offsets(kafka.confluent(), topic)[0]
        produce(kafka.confluent(), topic, [Record(b"roll", b"%d" % end)])
        return len(read_all(kafka.confluent(), topic)[0]) < total // 3

    wait_until(cleaned, what="the cleaner", timeout_seconds=40)


def _transactions(kafka: Kafka, topic: str, turn: int) -> None:
    producer = Producer({**kafka.confluent(), "transactional.id": topic, "linger.ms": 0, "log_level": 3})
    producer.init_transactions(30)
    for n in range(40):
        producer.begin_transaction()
        for i in range(n % 7 + 1):
            producer.produce(topic, b"%d-%d-%d" % (turn, n, i), b"k", partition=i % 2)
        producer.flush(30)  # what is still queued when a transaction is aborted would never be written
        (producer.abort_transaction if n % 3 == 2 else producer.commit_transaction)(30)


def commit_randomly(kafka: Kafka, topics: dict[str, str], groups: list[str], chance: random.Random) -> Committed:
    """Anywhere from the first offset to the end: on records, on markers, in holes, at the end."""
    ends = {
        TopicPartition(topic, p): end
        for topic in topics.values()
        for p, end in end_offsets(kafka.confluent(), topic).items()
    }
    wanted: Committed = {group: {tp: chance.randint(0, end) for tp, end in ends.items()} for group in groups}
    with ThreadPoolExecutor(CLIENTS) as pool:
        done = [pool.submit(set_offsets, kafka, group, _as_offsets(places)) for group, places in wanted.items()]
    for one in done:
        one.result()
    return wanted


def _as_offsets(places: dict[TopicPartition, int]) -> list[TopicPartition]:
    return [TopicPartition(tp.topic, tp.partition, at) for tp, at in places.items()]


def committed(kafka: Kafka, group: str, topics: Iterable[str]) -> dict[tuple[str, int], int]:
    """As a consumer of the group finds it. (librdkafka's admin client crashes when a coordinator is still loading.)"""
    consumer = Consumer({**kafka.confluent(), "group.id": group, "enable.auto.commit": False, "log_level": 3})
    try:
        places = [TopicPartition(topic, p) for topic in topics for p in end_offsets_cached(kafka, topic)]
        found = consumer.committed(places, timeout=30)
        return {(tp.topic, tp.partition): tp.offset for tp in found if tp.offset >= 0}
    finally:
        consumer.close()


def source_offsets(primary: Kafka, backup: Kafka, topic: str, partition: int, remote: str) -> list[tuple[int, int]]:
    """(target offset, source offset) of each record of the copy."""
    copy = read_all(backup.confluent(), remote)[partition]
    if all((record.value or b"").isdigit() for record in copy):
        return [(record.offset, int(record.value or b"")) for record in copy]
    origin = {record.value: record.offset for record in read_all(primary.confluent(), topic)[partition]}
    return [(record.offset, origin[record.value]) for record in copy]


def test_two_hundred_groups_read_on_at_the_very_record(
    primary: Kafka, backup: Kafka, topics: dict[str, str], topic_name: str
) -> None:
    chance = random.Random(4)
    groups = [f"{topic_name}-{n}" for n in range(GROUPS)]
    flow = offsets_flow(primary, backup, *topics.values(), groups=(f"{topic_name}-.*",))
    for turn in range(2):  # a start, a crash and two restarts
        fill(primary, topics, turn)
        if turn == 1:  # killed in mid-copy, before a position is written: rule D finds what is there, and where
            with Engine(flow, crash_after=900) as engine:
                engine.wait_ended()
            assert engine.crashes
        with Engine(flow, epoch_seconds=1.0) as engine:
            engine.wait_copied(*topics.values())
    wanted = commit_randomly(primary, topics, groups, chance)
    with Engine(flow) as engine, Client(backup.cluster()) as client:
        engine.wait(lambda: _all_there(client, wanted), what="every group's offsets on the target")
    at: dict[tuple[str, int], list[tuple[int, int]]] = {
        (topic, p): source_offsets(primary, backup, topic, p, f"{primary.name}.{topic}")
        for topic in topics.values()
        for p in end_offsets(primary.confluent(), topic)
    }
    remotes = [f"{primary.name}.{topic}" for topic in topics.values()]
    exact = 0
    with ThreadPoolExecutor(CLIENTS) as pool:
        places = dict(zip(groups, pool.map(lambda group: committed(backup, group, remotes), groups), strict=True))
    for group, there in places.items():
        for tp, offset in wanted[group].items():
            copies = at[tp.topic, tp.partition]
            got = there[f"{primary.name}.{tp.topic}", tp.partition]
            following = bisect_left([source for _, source in copies], offset)
            expected = copies[following][0] if following < len(copies) else copies[-1][0] + 1
            assert got == expected, (group, tp, offset)
            exact += 1
    assert exact == GROUPS * 6
    targets = {(f"{primary.name}.{topic}", p): [target for target, _ in copies] for (topic, p), copies in at.items()}
    _fail_over(backup, groups[:10], remotes, targets)


_ENDS: dict[tuple[str, str], dict[int, int]] = {}


def end_offsets_cached(kafka: Kafka, topic: str) -> dict[int, int]:
    key = (kafka.bootstrap, topic)
    if key not in _ENDS:
        _ENDS[key] = end_offsets(kafka.confluent(), topic)
    return _ENDS[key]


def _all_there(client: Client, wanted: Committed) -> bool:
    found = client.group_offsets(wanted)
    return all(isinstance(found[group], dict) and len(found[group]) == len(places) for group, places in wanted.items())


def _fail_over(backup: Kafka, groups: list[str], remotes: list[str], targets: dict[tuple[str, int], list[int]]) -> None:
    """A real consumer of each group on the target begins where its group stands, by itself."""
    for group in groups:
        start = committed(backup, group, remotes)
        consumer = Consumer(
            {**backup.confluent(), "group.id": group, "auto.offset.reset": "error", "enable.auto.commit": False}
        )
        try:
            consumer.subscribe(remotes)
            first: dict[tuple[str, int], int] = {}
            due = {
                key: targets[key][at]
                for key, offset in start.items()
                if (at := bisect_left(targets[key], offset)) < len(targets[key])
            }
            deadline = time.monotonic() + 30
            while first.keys() < due.keys() and time.monotonic() < deadline:
                message = consumer.poll(0.5)
                if message is not None and message.error() is None:
                    first.setdefault((str(message.topic()), int(message.partition() or 0)), int(message.offset() or 0))
            assert first == due
        finally:
            consumer.close()


def test_a_live_group_is_left_alone_and_none_is_rewound(primary: Kafka, backup: Kafka, topic_name: str) -> None:
    create_topic(primary.confluent(), topic_name)
    produce(primary.confluent(), topic_name, [Record(b"k", b"%d" % n) for n in range(100)])
    live, ahead, fresh = (f"{topic_name}-{name}" for name in ("live", "ahead", "fresh"))
    remote = f"{primary.name}.{topic_name}"
    flow = offsets_flow(primary, backup, topic_name, groups=(f"{topic_name}-.*",))
    with Engine(flow) as engine:
        engine.wait_copied(topic_name)
        set_offsets(backup, ahead, [TopicPartition(remote, 0, 80)])
        consumer = Consumer({**backup.confluent(), "group.id": live, "enable.auto.commit": False})
        try:
            consumer.subscribe([remote])
            wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), what="an assignment")
            for group in (live, ahead, fresh):
                set_offsets(primary, group, [TopicPartition(topic_name, 0, 40)])
            engine.wait(
                lambda: committed(backup, fresh, [remote]) == {(remote, 0): 40}, what="the fresh group's offset"
            )
            assert committed(backup, ahead, [remote]) == {(remote, 0): 80}
            assert committed(backup, live, [remote]) == {}
        finally:
            consumer.close()
        engine.wait(
            lambda: committed(backup, live, [remote]) == {(remote, 0): 40}, what="the group's offset once it has left"
        )


def set_offsets(kafka: Kafka, group: str, places: list[TopicPartition]) -> None:
    consumer = Consumer({**kafka.confluent(), "group.id": group, "enable.auto.commit": False, "log_level": 3})
    try:
        done = consumer.commit(offsets=places, asynchronous=False) or []
        assert all(tp.error is None for tp in done), done
    finally:
        consumer.close()
