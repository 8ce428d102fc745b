"""Copies with another number of partitions than their source: 4 -> 6, 6 -> 4 and 12 -> 1, in one flow, killed with -9
again and again while producing goes on. Judged by what confluent-kafka reads, and by where its own partitioner puts the
same keys."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from heliograph.cli.main import run as heliograph
from heliograph.embedded import Kafka
from heliograph.mirror.positions import decode, partition_of_key
from heliograph.types import TopicPartition
from tests.broker.processes import Run, records_in, wait_until_gone, write_properties
from tests.kit import Record, create_topic, end_offsets, produce, read_all, wait_until

SHAPES = {"four": (4, 6), "six": (6, 4), "twelve": (12, 1)}
KEYS = 200
PER_SECOND = 1_500  # of each topic
BACKLOG = 15_000  # of each topic, before the first start
PROCESSES_KILLED = int(os.environ.get("HELIOGRAPH_KILLS", "1"))  # beside workers; each costs a start of Spark
JAVAS = {"partitioner": "murmur2_random"}  # where Java's producers put a key


class Feed:
    """Numbered records into several topics, keys placed as Java's producers do, every fifth without one."""

    def __init__(self, client: Mapping[str, str], topics: list[str]) -> None:
        self.sent = 0
        self._topics = topics
        self._failures: list[KafkaError] = []
        settings = {"enable.idempotence": True, "linger.ms": 5, "compression.type": "lz4", **JAVAS}
        self._producer = Producer({**client, **settings, "queue.buffering.max.messages": 1_000_000})
        self._dice = random.Random(5)
        self._stopping = threading.Event()
        for _ in range(BACKLOG):
            self._send()
        assert not self._producer.flush(60)
        self._thread = threading.Thread(target=self._go_on, name="feed", daemon=True)
        self._thread.start()

    def _send(self) -> None:
        key = None if self.sent % 5 == 4 else b"key-%d" % self._dice.randrange(KEYS)
        for topic in self._topics:
            self._producer.produce(
                topic, b"%d" % self.sent, key, headers=[("n", b"%d" % self.sent)], on_delivery=self._delivered
            )
        self.sent += 1
        self._producer.poll(0)

    def _go_on(self) -> None:
        began, before = time.monotonic(), self.sent
        while not self._stopping.wait(0.01):
            while self.sent < before + (time.monotonic() - began) * PER_SECOND:
                self._send()

    def wait_sent(self, more: int) -> None:
        goal = self.sent + more
        wait_until(lambda: self.sent >= goal, what=f"{goal} records fed")

    def stop(self) -> int:
        """How many each topic has."""
        self._stopping.set()
        self._thread.join()
        assert not self._producer.flush(60)
        assert not self._failures, self._failures[0]
        return self.sent

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._failures.append(error)


def test_order_per_key_and_each_record_once_under_kill_9(
    primary: Kafka, backup: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = primary.confluent(), backup.confluent()
    prefix = f"counts-{time.monotonic_ns()}"
    names = {kind: f"{prefix}-{kind}" for kind in SHAPES}
    for kind, (partitions, _) in SHAPES.items():
        create_topic(source, names[kind], partitions)
    misfit = create_topic(source, f"{prefix}-misfit", 2)
    create_topic(target, f"primary.{misfit}", 5)
    produce(source, misfit, [Record(b"k", b"v", partition=0)])
    counts = ", ".join(f"{names[kind]}:{n}" for kind, (_, n) in SHAPES.items())
    file = write_properties(
        *(tmp_path / "mm2.properties", primary, backup, f"{prefix}.*"),
        target_partitions=f"{counts}, {misfit}:3",
        tasks_max=2,
        emit_checkpoints_interval_seconds=1,
        refresh_groups_interval_seconds=1,
        sync_group_offsets_enabled="true",
        sync_group_offsets_interval_seconds=1,
        checkpoints_topic_replication_factor=1,
        heartbeats_topic_replication_factor=1,
        **{"offset-syncs_topic_replication_factor": 1},
    )
    feed = Feed(source, list(names.values()))
    _kill_again_and_again(file, tmp_path, feed)
    with Run(file, tmp_path / "last") as run:
        run.wait_for("records", 1)
        _kill_a_worker(run, random.Random(3))
        expected = feed.stop()
        for kind in SHAPES:
            remote = f"primary.{names[kind]}"
            run.wait(lambda remote=remote: records_in(target, remote) >= expected, what=remote)  # type: ignore[misc]
        parked = [one for one in run.status()["parked"] if one["topic"] == misfit]
        there, remote = end_offsets(source, names["four"]), f"primary.{names['four']}"
        behind = {p: end * 3 // 4 for p, end in there.items()}
        _commit(source, f"{prefix}-level", names["four"], there)
        _commit(source, f"{prefix}-behind", names["four"], behind)
        ends = end_offsets(target, remote)
        run.wait(lambda: _committed(target, f"{prefix}-level", remote) == ends, what="a group at the end")
        run.wait(lambda: sum(_committed(target, f"{prefix}-behind", remote).values()), what="a group behind")
        assert run.stop() == 0, run.words()
    assert len(parked) == 1
    assert "has 5 partitions, and target.partitions chooses 3" in parked[0]["reason"]
    assert records_in(target, f"primary.{misfit}") == 0
    for kind, (_, n) in SHAPES.items():
        _compare(source, target, names[kind], n, expected)
    _positions_say_so(target, names)
    _nothing_unread_is_passed_over(
        source, target, names["four"], behind, _committed(target, f"{prefix}-behind", remote)
    )
    capsys.readouterr()
    _another_count_is_refused(file, names["four"])
    said = capsys.readouterr().out
    assert (
        f"parked: {names['four']}: its copy was begun divided over 6 partitions and is now to be divided over 5" in said
    )
    assert "heliograph offsets reset" in said


def _kill_again_and_again(file: Path, folder: Path, feed: Feed) -> None:
    """The process, and before it some workers, each in mid-copy."""
    dice = random.Random(4)
    orphans: list[psutil.Process] = []
    for attempt in range(PROCESSES_KILLED):
        with Run(file, folder / f"run-{attempt}") as run:
            run.wait_for("records", 1)
            for _ in range(3):
                _kill_a_worker(run, dice)
                run.wait_copied(dice.randrange(200, 2_000))
            run.require_running()
            orphans += run.kill()
    wait_until_gone(orphans, 30)


def _kill_a_worker(run: Run, dice: random.Random) -> None:
    victims = dice.sample(workers, 1) if (workers := run.workers()) else []
    for victim in victims:
        victim.kill()
    wait_until_gone(victims)


def _compare(source: Mapping[str, str], target: Mapping[str, str], topic: str, n: int, expected: int) -> None:
    theirs, ours = read_all(source, topic), read_all(target, f"primary.{topic}")
    assert sorted(ours) == list(range(n))
    there = Counter(one.content for records in theirs.values() for one in records)
    here = Counter(one.content for records in ours.values() for one in records)
    assert sum(there.values()) == expected
    lost, extra = sum((there - here).values()), sum((here - there).values())
    assert (lost, extra) == (0, 0), f"{topic}: {lost} lost, {extra} too many"
    place = {one.value: (one.partition, one.offset) for records in theirs.values() for one in records}
    of_key: dict[bytes, set[int]] = defaultdict(set)
    for q, records in ours.items():
        reached: dict[int, int] = {}
        for one in records:
            p, offset = place[one.value]
            assert offset > reached.get(p, -1), f"{topic}: {one} of {p} came after offset {reached[p]}, in {q}"
            reached[p] = offset
            if one.key is not None:
                of_key[one.key].add(q)
        assert sum(one.key is None for one in records) > expected / 5 / n / 2, f"{topic}: few without a key in {q}"
    assert {key: {q} for key, q in _where_java_would(target, n, of_key).items()} == of_key


def _where_java_would(target: Mapping[str, str], n: int, keys: Mapping[bytes, object]) -> dict[bytes, int]:
    """By librdkafka's own partitioner of the same name, on a topic with as many partitions."""
    probe = create_topic(target, f"probe-{time.monotonic_ns()}", n)
    producer = Producer({**target, **JAVAS})
    found: dict[bytes, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None
        found[message.key()] = message.partition()

    for key in keys:
        producer.produce(probe, b"", key, on_delivery=delivered)
    assert not producer.flush(30)
    return found


def _positions_say_so(target: Mapping[str, str], names: Mapping[str, str]) -> None:
    """One record for each source partition, with as many strands, at its end."""
    last: dict[TopicPartition, bytes | None] = {}
    for records in read_all(target, "mm2-offsets.primary.internal").values():
        for one in records:
            if (tp := partition_of_key(one.key, "primary")) is not None:
                last[tp] = one.value
    for kind, (partitions, n) in SHAPES.items():
        for p in range(partitions):
            position = decode(last[TopicPartition(names[kind], p)])
            assert position is not None
            assert len(position.strands) == n
            assert {one.next_offset for one in position.strands} == {position.next_offset}


def _commit(client: Mapping[str, str], group: str, topic: str, offsets: Mapping[int, int]) -> None:
    consumer = Consumer({**client, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[ConfluentPartition(topic, p, offset) for p, offset in offsets.items()], asynchronous=False)
    consumer.close()


def _committed(client: Mapping[str, str], group: str, topic: str) -> dict[int, int]:
    """By partition; those without an offset are left out."""
    consumer = Consumer({**client, "group.id": group, "enable.auto.commit": False})
    found = consumer.committed([ConfluentPartition(topic, q) for q in end_offsets(client, topic)], timeout=10)
    consumer.close()
    return {one.partition: one.offset for one in found if one.offset >= 0}


def _nothing_unread_is_passed_over(
    source: Mapping[str, str],
    target: Mapping[str, str],
    topic: str,
    behind: Mapping[int, int],
    placed: Mapping[int, int],
) -> None:
    """A group that is behind goes on before what it has not read."""
    place = {one.value: (one.partition, one.offset) for records in read_all(source, topic).values() for one in records}
    assert sorted(placed) == list(range(SHAPES["four"][1]))
    for q, records in read_all(target, f"primary.{topic}").items():
        for one in records:
            p, offset = place[one.value]
            assert one.offset >= placed[q] or offset < behind[p], f"{q}: {one} is passed over by {placed[q]}"


def _another_count_is_refused(file: Path, topic: str) -> None:
    """By the code that a start would run, without one."""
    file.write_text(file.read_text().replace(f"{topic}:6", f"{topic}:5"))
    heliograph(["plan", str(file)])
