"""One cell row of the matrix: a flow between two releases, killed with -9 in between, and every copy compared."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.broker.processes import Run, records_in, wait_until_gone, write_properties
from tests.kit import end_offsets, read_all, wait_until

from compat import topics
from compat.compare import compare, compare_divided, compare_group
from compat.results import Row
from compat.topics import HARD, HardTopic
from heliograph.embedded import Kafka, running

COPIED_S = 240.0
GROUPS_S = 60.0
GROUP = "compat-readers"
# A copy that were compacted itself, or stamped again, could not be compared.
NOT_SYNCED = ("cleanup\\\\..*", "segment\\\\..*", "min\\\\.cleanable\\\\..*", "message\\\\.timestamp\\\\..*")

Say = Callable[[str], None]


def run_row(source_release: str, target_release: str, folder: Path, seed: int, say: Say) -> Row:
    """What became of each hard topic between these two. Raises only when the clusters themselves do not start."""
    config = {"auto.create.topics.enable": "false", "log.cleaner.backoff.ms": "100"}
    source = Kafka("source", config=config, release=source_release)
    target = Kafka("target", config={"auto.create.topics.enable": "false"}, release=target_release)
    began = time.monotonic()
    with running(source, target):
        row = Row(source_release, target_release)
        say(f"{row.name}: filling {len(HARD)} topics")
        topics.create(source.confluent())
        topics.fill(source.confluent(), 0)
        try:
            _copy(source, target, folder, random.Random(seed), lambda text: say(f"{row.name}: {text}"))
        except (TimeoutError, AssertionError) as error:
            row.trouble = str(error)[:600]
        say(f"{row.name}: comparing")
        _compare(source, target, row)
        row.seconds = time.monotonic() - began
    return row


def _copy(source: Kafka, target: Kafka, folder: Path, dice: random.Random, say: Say) -> None:
    """Until the copies have as many records as their sources: kill -9 comes while the second part is produced."""
    client = source.confluent()
    internal = ("checkpoints", "heartbeats", "offset-syncs")
    more: dict[str, object] = {f"{name}_topic_replication_factor": 1 for name in internal}
    properties = write_properties(
        *(folder / "mm2.properties", source, target, ",".join(topic.name for topic in HARD)),
        target_partitions=",".join(f"{topic.name}:{topic.copies}" for topic in HARD if topic.copies),
        tasks_max=2,
        config_properties_exclude=",".join(NOT_SYNCED),
        refresh_topics_interval_seconds=5,
        emit_checkpoints_interval_seconds=1,
        refresh_groups_interval_seconds=1,
        sync_group_offsets_enabled="true",
        sync_group_offsets_interval_seconds=1,
        **more,
    )
    with Run(properties, folder / "first") as run:
        run.wait(lambda: _copied(target) > 0, what="the first copies", timeout_seconds=COPIED_S)
        filling = threading.Thread(target=topics.fill, args=(client, 1), name="second part")
        filling.start()
        time.sleep(dice.uniform(0.2, 2.0))
        say(f"kill -9 after {_copied(target)} copied records")
        family = run.kill()
        filling.join()
        wait_until_gone(family, 30)
    commit_group(source)
    with Run(properties, folder / "second") as run:
        topics.fill(client, 2)
        say("waiting for the rest")
        run.wait(lambda: not behind(source, target), what="the copies", timeout_seconds=COPIED_S, every_seconds=0.5)
        time.sleep(GROUPS_S / 10)  # several rounds of checkpoints and group offsets
        code = run.stop()
        assert code == 0, f"heliograph ended with {code}: {run.words(5)}"


def _copied(target: Kafka) -> int:
    return sum(records_in(target.confluent(), f"source.{topic.name}") for topic in HARD)


def behind(source: Kafka, target: Kafka) -> list[str]:
    """Topics whose copies have fewer records than their sources."""
    return [
        topic.name
        for topic in HARD
        if records_in(target.confluent(), f"source.{topic.name}") < count_records(source, topic.name)
    ]


_COUNTED: dict[tuple[str, str, int], int] = {}


def count_records(kafka: Kafka, topic: str) -> int:
    """How many a reader of committed records gets; read once for each end of the topic."""
    key = kafka.cluster_id, topic, sum(end_offsets(kafka.confluent(), topic).values())
    if key not in _COUNTED:
        _COUNTED[key] = sum(map(len, read_all(kafka.confluent(), topic).values()))
    return _COUNTED[key]


# Groups


def commit_group(kafka: Kafka) -> None:
    """In the middle of every topic: on a record, a marker or in a hole, as it comes."""
    consumer = Consumer({**kafka.confluent(), "group.id": GROUP, "enable.auto.commit": False, "log_level": 3})
    places = [
        TopicPartition(topic.name, partition, end // 2)
        for topic in HARD
        for partition, end in end_offsets(kafka.confluent(), topic.name).items()
    ]

    def done() -> bool:
        try:
            return all(one.error is None for one in consumer.commit(offsets=places, asynchronous=False) or [])
        except KafkaException:
            return False  # a fresh cluster's coordinators still move

    try:
        wait_until(done, what="the group's commit", timeout_seconds=60, every_seconds=0.5)
    finally:
        consumer.close()


def committed(kafka: Kafka, topic: str, partitions: int) -> dict[int, int]:
    consumer = Consumer({**kafka.confluent(), "group.id": GROUP, "enable.auto.commit": False, "log_level": 3})
    try:
        found = consumer.committed([TopicPartition(topic, one) for one in range(partitions)], timeout=30)
        return {one.partition: one.offset for one in found if one.offset >= 0}
    finally:
        consumer.close()


# Judging


def _compare(source: Kafka, target: Kafka, row: Row) -> None:
    for topic in HARD:
        try:
            count, said = _compare_topic(source, target, topic)
        except (KafkaException, TimeoutError, KeyError) as error:
            count, said = 0, f"the copy could not be read: {error}"
        row.note(topic.column, topic.name, count, said)
    misplaced = _compare_groups(source, target)
    row.note("groups", GROUP, sum(topic.partitions for topic in HARD if topic.groups), misplaced)


def _compare_topic(source: Kafka, target: Kafka, topic: HardTopic) -> tuple[int, str]:
    theirs = read_all(source.confluent(), topic.name)
    ours = read_all(target.confluent(), f"source.{topic.name}")
    said = compare_divided(theirs, ours, topic.copies) if topic.copies else compare(theirs, ours)
    return sum(map(len, theirs.values())), said


def _compare_groups(source: Kafka, target: Kafka) -> str:
    for topic in HARD:
        if not topic.groups:
            continue
        remote = f"source.{topic.name}"
        try:
            places: Mapping[int, int] = committed(target, remote, topic.partitions)
            wanted = committed(source, topic.name, topic.partitions)
            theirs, ours = read_all(source.confluent(), topic.name), read_all(target.confluent(), remote)
        except (KafkaException, TimeoutError, KeyError) as error:
            return f"{topic.name}: {error}"
        for partition, upstream in wanted.items():
            said = compare_group(theirs[partition], ours.get(partition, []), upstream, places.get(partition))
            if said:
                return f"{topic.name}-{partition}: {said}"
    return ""
