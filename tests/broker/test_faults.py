"""Exactly once under faults: real processes killed, real brokers restarted, real connections cut, in mid-copy.

Every test feeds a topic of its own at an even rate, does its harm while the copy is under way, ends the feed, and then
compares the target with the source record by record: nothing lost, nothing twice, order kept. The process under test is
`heliograph run`; it reaches the clusters through links that can be cut, the feed and the comparison do not.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient

from heliograph.embedded import Cuts, Kafka, Links, running
from heliograph.flow.presence import GONE_S
from tests.broker.processes import (
    COMMAND,
    Feed,
    Run,
    assert_copied,
    records_in,
    wait_until_gone,
    write_properties,
)
from tests.broker.site import Site
from tests.kit import SOON_BACK, create_topic, end_offsets, wait_until

KILLS = int(os.environ.get("HELIOGRAPH_KILLS", "3"))  # of one process; 10 for the long run

PARTITIONS = 4
PER_SECOND = 8_000
DIRECT = "SASL_PLAINTEXT"  # the listener of the feed and the comparison, which no link stands before


@dataclass(frozen=True)
class Stage:
    """Two clusters; the flow comes in through links, the test itself directly."""

    source: Kafka
    target: Kafka
    source_links: Links
    target_links: Links

    def topic(self, name: str) -> str:
        return create_topic(self.source.confluent(security=DIRECT), name, PARTITIONS)

    def feed(self, topic: str, per_second: int = PER_SECOND, codec: str = "lz4") -> Feed:
        return Feed(self.source.confluent(security=DIRECT), topic, PARTITIONS, per_second, codec=codec)

    def assert_copied(self, topic: str, expected: int) -> None:
        source, target = self.source.confluent(security=DIRECT), self.target.confluent(security=DIRECT)
        assert_copied(source, target, topic, f"west.{topic}", expected=expected)


def behind(links: Links) -> Callable[[int, str, int], str]:
    """Links before PLAINTEXT, none before the listener the tests use."""

    def advertise(broker: int, listener: str, port: int) -> str:
        return f"127.0.0.1:{port}" if listener == DIRECT else links.advertise(broker, listener, port)

    return advertise


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with ExitStack() as stack:
        links = [stack.enter_context(Links()) for _ in range(2)]
        clusters = [
            Kafka(name, security=("PLAINTEXT", DIRECT), advertised=behind(before), config=SOON_BACK)
            for name, before in zip(("west", "east"), links, strict=True)
        ]
        stack.enter_context(running(*clusters))
        yield Stage(*clusters, *links)


@dataclass(frozen=True)
class OneProcess:
    run: Run
    site: Site  # what it serves
    first_health: tuple[int, dict[str, Any]]  # before it had done anything


@pytest.fixture(scope="class")
def process(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneProcess]:
    for name in ("epochs", "workers", "brokers", "frozen", "cuts"):
        stage.topic(f"one-{name}")
    folder = tmp_path_factory.mktemp("one")
    properties = write_properties(
        *(folder / "mm2.properties", stage.source, stage.target, "one-.*"),
        tasks_max=PARTITIONS,
        heartbeats_replication_enabled="false",
        emit_heartbeats_enabled="false",
    )
    # Short epochs, so that one hands over to the next in the middle of every fault.
    with Run(properties, folder / "run", "--epoch-seconds", "2", "--http", "0") as run:
        said: list[str] = []
        run.wait(lambda: said.extend(re.findall(r"serving (http://\S+?)/metrics", run.said())) or said, what="address")
        site = Site(said[0])
        first_health = site.health()
        run.wait_for("tasks", PARTITIONS)
        yield OneProcess(run, site, first_health)
        assert run.stop() == 0, run.words()


@pytest.fixture(scope="class")
def run(process: OneProcess) -> Run:
    return process.run


class TestOneProcess:
    """Faults around one `heliograph run` that must live through all of them."""

    def test_epochs_hand_over_to_each_other(self, stage: Stage, run: Run) -> None:
        """Under load: every record once, and nobody lost track of where it was."""
        feed = stage.feed("one-epochs")
        run.wait_for("epoch", int(run.status()["epoch"]) + 5)
        stage.assert_copied("one-epochs", feed.stop())
        status = run.status()
        assert (status["duplicates_refused"], status["retries"]) == (0, 0), status

    def test_it_serves_its_health_and_names_tasks_that_are_frozen(self, stage: Stage, process: OneProcess) -> None:
        code, flow = process.first_health
        assert (code, flow["state"]) == (503, "starting")
        assert flow["reasons"]
        run, site = process.run, process.site
        site.wait_sound()
        feed = stage.feed("one-epochs", 300)
        run.wait_copied(300)
        workers = run.workers()
        for worker in workers:
            worker.send_signal(signal.SIGSTOP)
        try:
            site.wait_told("one-epochs-0: stalled", "of epoch", "is silent")
        finally:
            for worker in workers:
                worker.send_signal(signal.SIGCONT)
        site.wait_sound()
        feed.stop()
        copied = records_in(stage.source.confluent(security=DIRECT), "one-epochs")
        stage.assert_copied("one-epochs", copied)
        counted = "heliograph_records_total"
        run.wait(lambda: sum(site.metrics()[counted].samples.values()) == copied, what="the counters")

    def test_a_worker_killed_in_mid_copy(self, stage: Stage, run: Run) -> None:
        chance = random.Random(1)
        feed = stage.feed("one-workers")
        for _ in range(5):
            run.wait_copied(5_000)
            victims = run.workers()
            assert victims, "no worker to kill"
            victims = chance.sample(victims, min(2, len(victims)))
            for victim in victims:
                victim.kill()
            wait_until_gone(victims)
        stage.assert_copied("one-workers", feed.stop())
        run.require_running()

    def test_brokers_restarted(self, stage: Stage, run: Run) -> None:
        """Either side's, in order and with its power cut, four times in one copy."""
        feed = stage.feed("one-brokers")
        for side, how in (("target", "stop"), ("source", "kill"), ("target", "kill"), ("source", "stop")):
            run.wait_copied(10_000)
            broker = getattr(stage, side).brokers[0]
            getattr(broker, how)()
            assert not broker.running
            broker.start()
        run.wait_copied(10_000)
        stage.assert_copied("one-brokers", feed.stop())
        run.require_running()

    def test_a_frozen_target(self, stage: Stage, run: Run) -> None:
        feed = stage.feed("one-frozen")
        run.wait_copied(10_000)
        broker = stage.target.brokers[0]
        broker.pause()
        feed.wait_sent(4 * PER_SECOND)  # four seconds and more without an answer
        assert psutil.Process(broker.pid).status() == psutil.STATUS_STOPPED
        broker.resume()
        run.wait_copied(10_000)
        stage.assert_copied("one-frozen", feed.stop())
        run.require_running()

    def test_connections_cut_at_200_seeded_points(self, stage: Stage, run: Run) -> None:
        links = (stage.source_links[1], stage.target_links[1])
        feed = stage.feed("one-cuts", 5_000, codec="none")
        run.wait_copied(5_000)
        for seed, link in enumerate(links):
            link.cut_after(Cuts(seed=2026 + seed, low_bytes=1, high_bytes=60_000, limit=100))
        wait_until(lambda: [link.counts().cuts for link in links] == [100, 100], what="200 cuts", timeout_seconds=150)
        run.wait_copied(5_000)
        stage.assert_copied("one-cuts", feed.stop())
        run.require_running()


@pytest.mark.timeout(300 + 90 * KILLS)  # each is a start of Spark and the time until the dead leader is missed
def test_the_process_killed_again_and_again_in_one_copy(stage: Stage, tmp_path: Path) -> None:
    topic = stage.topic("kills")
    properties = write_properties(tmp_path / "mm2.properties", stage.source, stage.target, topic, tasks_max=2)
    feed = stage.feed(topic, 2_000)
    chance = random.Random(10)
    orphans: list[psutil.Process] = []
    with ExitStack() as stack:
        run = stack.enter_context(Run(properties, tmp_path / "run-0"))
        for attempt in range(KILLS):
            # Every other time early: while it asks where the target stands and copies the backlog of its absence.
            run.wait_for("tasks", 1)
            # Spark takes seconds to start: the next one is on its way up when this one dies.
            following = stack.enter_context(Run(properties, tmp_path / f"run-{attempt + 1}"))
            if attempt % 2:
                run.wait_copied(chance.randrange(1, 4_000))
            else:
                feed.wait_sent(chance.randrange(0, 2_000))
            run.require_running()
            family = run.kill()
            assert len(family) > 2, "the JVM and the workers' parent should have been below the process"
            orphans += family  # the next is there while they are still ending, as a supervisor would have it
            run = following
        run.wait_for("records", 1)
        wait_until_gone(orphans)
        expected = feed.stop()
        stage.assert_copied(topic, expected)
        assert run.stop() == 0, run.words()
    stage.assert_copied(topic, expected)


def test_two_processes_on_one_flow(stage: Stage, tmp_path: Path) -> None:
    topic = stage.topic("two-at-once")
    properties = write_properties(tmp_path / "mm2.properties", stage.source, stage.target, topic, tasks_max=2)
    feed = stage.feed(topic, 1_000)
    short = ("--epoch-seconds", "3")
    with Run(properties, tmp_path / "run-a", *short) as first, Run(properties, tmp_path / "run-b", *short) as second:
        wait_until(
            lambda: {one.status().get("state") for one in (first, second)} == {"running", "standby"}, what="a leader"
        )
        leader, other = (first, second) if first.status()["state"] == "running" else (second, first)
        assert "copies this flow; this process takes over" in other.status()["reason"]
        feed.per_second = PER_SECOND
        leader.wait_copied(10 * PER_SECOND)
        assert other.status()["tasks"] == 0, "records that the target has forgotten would be stored twice"
        leader.kill()
        other.wait_copied(5 * PER_SECOND)
        assert other.status()["state"] == "running"
        expected = feed.stop()
        stage.assert_copied(topic, expected)
        assert other.stop() == 0
    stage.assert_copied(topic, expected)


def test_a_driver_that_slept_does_not_undo_what_an_operator_set(stage: Stage, tmp_path: Path) -> None:
    """Frozen for longer than its lease, alone: its tasks end by themselves. What is set meanwhile counts afterwards."""
    topic = stage.topic("slept")
    properties = write_properties(tmp_path / "mm2.properties", stage.source, stage.target, topic, tasks_max=2)
    feed = stage.feed(topic, 1_000)
    with Run(properties, tmp_path / "run") as run:
        run.wait_copied(2_000)
        expected = feed.stop()
        stage.assert_copied(topic, expected)
        run.process.suspend()
        slept_at = time.monotonic()
        wait_until(lambda: time.monotonic() - slept_at > GONE_S, what="its lease to run out")
        command = [str(COMMAND), "offsets", "set", str(properties), f"{stage.source.name}->{stage.target.name}"]
        change = [*command, topic, "--to", "earliest", "--yes"]
        refused = subprocess.run(change, capture_output=True, text=True, timeout=120)
        assert refused.returncode == 2, refused.stderr  # this machine knows that it lives
        forced = subprocess.run([*change, "--force"], capture_output=True, text=True, timeout=120)
        assert forced.returncode == 0, forced.stderr
        run.process.resume()
        remote = f"{stage.source.name}.{topic}"
        wait_until(
            lambda: sum(end_offsets(stage.target.confluent(security=DIRECT), remote).values()) >= 2 * expected,
            what="all of it a second time",
            timeout_seconds=90,
        )
        assert "positions were set meanwhile" in run.said()
        run.require_running()
        assert run.stop() == 0, run.words()
    assert sum(end_offsets(stage.target.confluent(security=DIRECT), remote).values()) == 2 * expected


def test_leaders_moved_in_clusters_of_three(tmp_path: Path) -> None:
    safe = {**SOON_BACK, "min.insync.replicas": "2"}
    with running(Kafka("west", brokers=3, config=safe), Kafka("east", brokers=3, config=safe)) as (source, target):
        topic = create_topic(source.confluent(), "led", PARTITIONS, replication_factor=3)
        properties = write_properties(
            tmp_path / "mm2.properties",
            source,
            target,
            topic,
            tasks_max=2,
            replication_factor=3,
            offset_storage_replication_factor=3,
        )
        feed = Feed(source.confluent(), topic, PARTITIONS, 3_000)
        with Run(properties, tmp_path / "run") as run:
            run.wait_for("records", 5_000)
            # A source broker with its power cut and a target broker shut down in order, at the same time. The storm on
            # clusters of three does this in every order.
            gone = {source: (source.brokers[0], topic), target: (target.brokers[1], f"west.{topic}")}
            moves = [(Leaders(kafka, name), broker) for kafka, (broker, name) in gone.items()]
            source.brokers[0].kill()
            target.brokers[1].stop()
            for leaders, broker in moves:
                leaders.wait_away_from(broker.id)
            run.wait_copied(5_000)
            for _, broker in moves:
                broker.launch()
            for leaders, broker in moves:
                broker.wait_ready(members=3)
                leaders.back()
            run.wait_copied(5_000)
            assert_copied(source.confluent(), target.confluent(), topic, f"west.{topic}", expected=feed.stop())
            assert run.stop() == 0, run.words()


class Leaders:
    """Who leads the partitions of a topic, and the preferred election that brings leaders back."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._admin = AdminClient({**kafka.confluent(), "log_level": 0})
        self._topic = topic
        self._preferred = {one.id: one.replicas[0] for one in self._partitions()}

    def _partitions(self) -> list:  # type: ignore[type-arg]
        return list(self._admin.list_topics(self._topic, timeout=20).topics[self._topic].partitions.values())

    def wait_away_from(self, broker: int) -> None:
        wait_until(
            lambda: all(one.leader not in (-1, broker) for one in self._partitions()),
            what=f"{self._topic} led without broker {broker}",
            timeout_seconds=60,
        )

    def back(self) -> None:
        """Once all replicas are in sync: every partition led by its preferred broker again."""
        wait_until(
            lambda: all(len(one.isrs) == 3 for one in self._partitions()), what="all in sync", timeout_seconds=60
        )

        def back() -> bool:
            self._admin.elect_leaders(ElectionType.PREFERRED, None).result(30)  # does nothing where they are back
            return {one.id: one.leader for one in self._partitions()} == self._preferred

        wait_until(back, what="preferred leaders", timeout_seconds=60)
