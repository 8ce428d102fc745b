"""Exactly once where the broker does not remember: records three days old, so that the target forgets their producer
ids at every check, which it makes every second here (by default every ten minutes).

A broker that does not know a producer id accepts any sequence. What is left is the target's own log, which the
producer-state probe reads.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from heliograph.embedded import Cuts, Kafka, Links, running
from heliograph.types import TopicPartition
from heliograph.wire import Client
from tests.broker.processes import Feed, Run, assert_copied, wait_until_gone, write_properties
from tests.kit import SOON_BACK, create_topic, wait_until

PARTITIONS = 4
DAYS_MS = 3 * 86_400_000
DIRECT = "SASL_PLAINTEXT"  # the listener of the feed and the comparison, which no link stands before
FORGETFUL = {**SOON_BACK, "producer.id.expiration.ms": "86400000", "producer.id.expiration.check.interval.ms": "1000"}


@dataclass(frozen=True)
class Stage:
    source: Kafka
    target: Kafka
    target_links: Links

    def feed(self, topic: str, per_second: int) -> Feed:
        client = self.source.confluent(security=DIRECT)
        return Feed(client, topic, PARTITIONS, per_second, codec="none", age_ms=DAYS_MS)

    def assert_copied(self, topic: str, expected: int) -> None:
        source, target = self.source.confluent(security=DIRECT), self.target.confluent(security=DIRECT)
        assert_copied(source, target, topic, f"west.{topic}", expected=expected)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with ExitStack() as stack:
        links = stack.enter_context(Links())

        def advertise(broker: int, listener: str, port: int) -> str:
            return f"127.0.0.1:{port}" if listener == DIRECT else links.advertise(broker, listener, port)

        source = Kafka("west", security=("PLAINTEXT", DIRECT), config=SOON_BACK)
        target = Kafka("east", security=("PLAINTEXT", DIRECT), advertised=advertise, config=FORGETFUL)
        stack.enter_context(running(source, target))
        yield Stage(source, target, links)


def test_old_records_come_once_through_cut_connections_and_killed_workers(stage: Stage, tmp_path: Path) -> None:
    topic = create_topic(stage.source.confluent(security=DIRECT), "old", PARTITIONS)
    properties = write_properties(tmp_path / "mm2.properties", stage.source, stage.target, topic, tasks_max=2)
    chance = random.Random(3)
    with Run(properties, tmp_path / "run", "--epoch-seconds", "5") as run:
        run.wait_for("tasks", 2)
        feed = stage.feed(topic, 5_000)
        run.wait_copied(5_000)
        link = stage.target_links[1]
        link.cut_after(Cuts(seed=17, low_bytes=1, high_bytes=60_000, limit=150))
        wait_until(lambda: link.counts().cuts == 150, what="150 cuts", timeout_seconds=150)
        for _ in range(3):
            run.wait_copied(5_000)
            victims = chance.sample(run.workers(), 1)
            victims[0].kill()
            wait_until_gone(victims)
        run.wait_copied(5_000)
        stage.target.brokers[0].kill()
        stage.target.brokers[0].start()
        run.wait_copied(5_000)
        assert_forgotten(stage.target, f"west.{topic}")
        stage.assert_copied(topic, feed.stop())
        run.require_running()
        assert run.stop() == 0, run.words()


def assert_forgotten(target: Kafka, topic: str) -> None:
    """What this test rests on: the broker drops the ids of old records, again and again."""
    tps = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    with Client(target.cluster(security=DIRECT)) as client:
        wait_until(
            lambda: any(not state for state in client.describe_producers(tps).values()),
            what="a producer id that the broker has forgotten",
        )
