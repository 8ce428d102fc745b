"""Health and figures on real brokers: what is said over HTTP while brokers are killed, frozen, without a leader, and
with a disk that is full.

Each fault is done under a feed; within 10 s /health is 503 and says why in words, the partitions that are not concerned
stay healthy, and when the broker is back all recovers by itself, each record once. Figures are read by a strict parser
and compared with what confluent-kafka counts.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from heliograph import policy
from heliograph.embedded import Kafka, running
from heliograph.embedded.broker import Broker
from heliograph.health.recovery import Recovery
from heliograph.health.status import FlowReport
from heliograph.health.verdict import NO_REASON
from heliograph.http.pages import Pages
from heliograph.http.routing import Router
from heliograph.http.server import Server
from heliograph.metrics.table import METRICS
from heliograph.mirror import task as task_module
from heliograph.mirror.fetch import Source
from heliograph.types import Cap
from tests.broker.engine import Engine, assert_same, one_flow
from tests.broker.processes import Feed, assert_copied
from tests.broker.site import Site
from tests.kit import SOON_BACK, Record, create_topic, produce, wait_until

PARTITIONS = 3


@pytest.fixture(autouse=True)
def _reports_as_in_earnest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "REPORT_EVERY_S", 1.0)  # other tests have tasks report more often


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[Kafka, Kafka]]:
    with running(Kafka("west", config=SOON_BACK), Kafka("east", config=SOON_BACK)) as (west, east):
        yield west, east


class Reported:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def report(self) -> tuple[FlowReport, ...]:
        return (self._engine.coordinator.report(),)


@contextmanager
def served(engine: Engine) -> Iterator[Site]:
    server = Server("127.0.0.1", 0, Router(Pages(Reported(engine)).routes()))
    server.start()
    try:
        yield Site(server.url)
    finally:
        server.close()


@contextmanager
def copying(
    source: Kafka, target: Kafka, topic: str, *others: str, epoch_seconds: float = 3600, **more: Any
) -> Iterator[tuple[Site, Feed, Engine]]:
    """A flow of these topics, the first under a feed."""
    flow = one_flow(source.cluster(), target.cluster(), topic, *others, **more)
    feed = Feed(source.confluent(), topic, PARTITIONS, 300)
    with Engine(flow, epoch_seconds=epoch_seconds) as engine, served(engine) as site:
        yield site, feed, engine


def assert_all_once(source: Kafka, target: Kafka, topic: str, feed: Feed) -> None:
    assert_copied(
        source.confluent(),
        target.confluent(),
        topic,
        f"{source.name}.{topic}",
        expected=feed.stop(),
        timeout_seconds=60,
    )


def place_topics(kafka: Kafka, wanted: Mapping[str, list[list[int]]]) -> None:
    """Topic -> the brokers that hold each of its partitions."""
    new = [NewTopic(name, len(where), replica_assignment=where) for name, where in wanted.items()]
    admin = AdminClient(kafka.confluent())
    for made in admin.create_topics(new).values():
        made.result(30)


def wait_for_epochs(engine: Engine, more: int) -> None:
    due = engine.status().epoch + more
    engine.wait(lambda: engine.status().epoch >= due, what=f"epoch {due}")


def wait_for_records(engine: Engine, more: int) -> None:
    due = engine.status().records + more
    engine.wait(lambda: engine.status().records >= due, what=f"{due} records")


@contextmanager
def down(broker: Broker) -> Iterator[None]:
    broker.kill()
    try:
        yield
    finally:
        broker.start()


@contextmanager
def frozen(broker: Broker) -> Iterator[None]:
    broker.pause()
    try:
        yield
    finally:
        broker.resume()


# -------------------- faults


def test_a_broker_killed_and_then_frozen(clusters: tuple[Kafka, Kafka], new_topic: Callable[[], str]) -> None:
    """The same broker is the source of one flow and the target of another: both say what is wrong, each from its side.
    What lag is said of a topic that nobody feeds is exact."""
    west, east = clusters
    (broker,) = west.brokers
    out, home, still = new_topic(), new_topic(), new_topic()
    create_topic(west.confluent(), out, PARTITIONS)
    create_topic(east.confluent(), home, PARTITIONS)
    create_topic(east.confluent(), still)
    produce(east.confluent(), still, [Record(b"k", b"v" * 100) for _ in range(100)])
    with (
        copying(west, east, out) as (reading, out_feed, reader),
        copying(east, west, home, still) as (writing, home_feed, writer),
    ):
        for site in (reading, writing):
            site.wait_sound()
        writer.wait_copied(still)
        with down(broker):
            killed_at = time.monotonic()
            for site, topic in ((reading, out), (writing, home)):
                reason = site.wait_told(
                    *(f"{topic}-", "stalled", f"west broker 127.0.0.1:{broker.port}"), since=killed_at
                )
                # Of a source that is gone it may be known how far it came; mostly it is known that it is not seen.
                assert re.search(
                    r"(source moved \([\d,]+ records\), we did not,|source not seen) for \d+ s, because", reason
                )
                assert site is reading or "source moved" in reason
                assert "tried again within 2 s" in reason
            for site, engine in ((reading, reader), (writing, writer)):
                engine.wait(lambda engine=engine: engine.status().stalled == PARTITIONS, what="all told")
                status = engine.status()
                assert status.state == "stalled"
                assert "west broker" in status.reason
                found = site.metrics()
                assert found["heliograph_flow_healthy"].value() == 0
                ((_, labels),) = found["heliograph_flow_problem_info"].samples
                assert "west broker" in dict(labels)["reason"]
                assert dict(labels)["state"] == "stalled"
        for site in (reading, writing):
            site.wait_sound()
            assert site.health()[1]["reasons"] == []

        with frozen(broker):
            frozen_at, produced_at = time.monotonic(), time.time()
            produce(east.confluent(), still, [Record(b"k", b"v" * 100) for _ in range(70)])
            words = "stalled", f"west broker 127.0.0.1:{broker.port} does not answer"
            reading.wait_told(f"{out}-", *words, since=frozen_at)
            writing.wait_told(f"{home}-", *words, since=frozen_at)
            writing.wait_told(f"{still}-0: stalled: source moved (70 records), we did not", since=frozen_at)
            assert (reader.status().state, writer.status().state) == ("stalled", "stalled")
            one = writing.partitions(still)[0]
            assert one["lag_records"] == 70
            assert 70 * 50 < one["lag_bytes"] < 70 * 500
            assert 4 < one["lag_seconds"] <= time.time() - produced_at + 1
            assert writing.metrics()["heliograph_topic_lag_records"].value(topic=still) == 70
        for site in (reading, writing):
            site.wait_sound()
        assert_all_once(west, east, out, out_feed)
        assert_all_once(east, west, home, home_feed)
        assert writing.partitions(still)[0]["lag_records"] == 0


def test_partitions_without_a_leader_and_one_that_a_fetch_lost(
    primary: Kafka, backup: Kafka, new_topic: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaderless on the source and on the target: that partition says so, the others go on. Lost by a fault of ours,
    made here: its task takes the partition for idle, the coordinator's own look knows better, and another gets it."""
    there, back, lost = new_topic(), new_topic(), new_topic()
    tick, victims, forgetting = Source.tick, [], threading.Event()

    def forgetful(source: Source, now: float) -> None:
        tick(source, now)
        lane = next(iter(source._bundles.values())).lanes[0]
        mine = lane.spec.tp.topic == lost and forgetting.is_set()
        if mine and lane.counts.records and (not victims or victims == [source]):
            victims[:] = [source]
            source.leave(lane)

    monkeypatch.setattr(Source, "tick", forgetful)
    with Kafka("north", brokers=3) as north:
        create_topic(north.confluent(), there, PARTITIONS)
        for topic in (back, lost):
            create_topic(primary.confluent(), topic, PARTITIONS)
        with (
            copying(north, backup, there, epoch_seconds=5) as (site, feed, reading),
            copying(primary, north, back, offset_storage_replication_factor=3, epoch_seconds=5) as other,
            copying(primary, backup, lost) as (lost_site, lost_feed, engine),
        ):
            other_site, other_feed, writing = other
            for one in (site, other_site, lost_site):
                one.wait_sound()
            engine.coordinator._recovery = Recovery(first_s=8.0)
            dark, other_dark = led_by(north, there, 3), led_by(north, f"primary.{back}", 3)
            forgetting.set()
            engine.wait(lambda: victims, what="the loss")
            north.brokers[2].stop()
            stopped_at = time.monotonic()
            lost_site.wait_told("stalled: source moved", NO_REASON)
            for one, tp in ((site, f"{there}-{dark}"), (other_site, f"primary.{back}-{other_dark}")):
                words = ("stalled", f"{tp} has no leader on north: its replicas are on broker 3")
                reason = one.wait_told(*words, since=stopped_at)
                assert re.search(r"for \d+ s, because", reason)
            for one, topic, partition in ((site, there, dark), (other_site, back, other_dark)):
                states = {number: status["state"] for number, status in one.partitions(topic).items()}
                assert states == {**dict.fromkeys(range(PARTITIONS), "moving"), partition: "stalled"}
            for each in (reading, writing):
                wait_for_epochs(each, 2)
                wait_for_records(each, 600)
            north.brokers[2].start()
            for one in (site, other_site, lost_site):
                one.wait_sound()
            assert engine.status().epoch > 1
            assert_all_once(north, backup, there, feed)
            assert_all_once(primary, north, back, other_feed)
            assert_all_once(primary, backup, lost, lost_feed)


def test_a_broker_that_is_frozen_and_still_leads_holds_up_its_own_partitions_alone(
    primary: Kafka, topic_name: str
) -> None:
    """Its cluster has not noticed, or it is only we who do not reach it. Epochs change meanwhile."""
    create_topic(primary.confluent(), topic_name, PARTITIONS)
    unnoticed = {"broker.session.timeout.ms": "600000"}
    with Kafka("north", brokers=3, config=unnoticed) as north:
        place_topics(
            north,
            {
                f"primary.{topic_name}": [[1], [2], [3]],
                policy.positions_topic("primary"): [[1], [2]],
                policy.offset_map_topic("primary"): [[1], [2]],
            },
        )
        with copying(primary, north, topic_name, epoch_seconds=5) as (site, feed, engine):
            site.wait_sound()
            with frozen(north.brokers[2]):
                wait_for_epochs(engine, 3)
                wait_for_records(engine, 600)
                states = {number: status["state"] for number, status in site.partitions(topic_name).items()}
                assert states == {0: "moving", 1: "moving", 2: "stalled"}
            site.wait_sound()
            assert_all_once(primary, north, topic_name, feed)


def test_a_full_disk_on_the_target(primary: Kafka, topic_name: str, small_disk: Path, tmp_path: Path) -> None:
    """One of a broker's two disks is full: partitions on it say so, those on the other go on. Kafka takes the directory
    back when there is room and the broker is restarted; the flow goes on by itself."""
    dirs = {1: (tmp_path / "roomy", small_disk / "small")}
    create_topic(primary.confluent(), topic_name, PARTITIONS)
    with Kafka("south", config=SOON_BACK, log_dirs=dirs) as south, copying(primary, south, topic_name) as copied:
        site, feed, engine = copied
        engine.wait(lambda: engine.status().records > 600, what="two seconds of records")
        site.wait_sound()
        remote = f"primary.{topic_name}"
        dark = [number for number in range(PARTITIONS) if (small_disk / "small" / f"{remote}-{number}").is_dir()]
        assert 0 < len(dark) < PARTITIONS
        ballast = fill(small_disk)
        filled_at = time.monotonic()
        for number in dark:
            words = f"{topic_name}-{number}: stalled: source moved", "a disk failed or is full", "restart the broker"
            reason = site.wait_told(*words, since=filled_at)
            assert f"{remote}-{number} has no leader on south: broker 1 is up and its log directory" in reason
        states = {number: status["state"] for number, status in site.partitions(topic_name).items()}
        assert states == {number: "stalled" if number in dark else "moving" for number in range(PARTITIONS)}
        engine.wait(lambda: engine.status().incidents.get("storage"), what="the incident")
        assert "a disk of the broker that leads" in engine.status().last_incident
        ballast.unlink()
        (broker,) = south.brokers
        assert broker.stop()
        broker.start()
        site.wait_sound()
        assert_all_once(primary, south, topic_name, feed)
        status = engine.status()
        assert (status.gap_offsets, status.refused_records, status.parked) == (0, 0, ())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MB."""
    if os.geteuid():
        pytest.skip("to have a disk that can be filled, one is mounted, and only root may do that")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a disk that can be filled cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)  # lazy: also from under a broker that still ends


def fill(disk: Path) -> Path:
    """To the last byte; remove this file to have room again."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(64 << 10))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    return ballast


def led_by(kafka: Kafka, topic: str, broker: int) -> int:
    """The one partition that this broker leads."""
    partitions = (
        AdminClient({**kafka.confluent(), "log_level": 0}).list_topics(topic, timeout=10).topics[topic].partitions
    )
    (found,) = [number for number, one in partitions.items() if one.leader == broker]
    return int(found)


# -------------------- figures


def test_counters_are_the_truth(primary: Kafka, backup: Kafka, topic_name: str) -> None:
    counts = {0: 1_000, 1: 500, 2: 0, 3: 1}
    create_topic(primary.confluent(), topic_name, len(counts))
    now_ms = int(time.time() * 1000)
    records = [Record(b"k", b"v%d" % n, (), now_ms - 3_000, p) for p, count in counts.items() for n in range(count)]
    produce(primary.confluent(), topic_name, records)
    flow = one_flow(primary.cluster(), backup.cluster(), topic_name)
    with Engine(flow) as engine, served(engine) as site:
        engine.wait_copied(topic_name)
        wait_until(lambda: engine.status().records == 1_501, what="the last report")
        plain, found = site.metrics(), site.metrics(openmetrics=True)
        labels = {"source": "primary", "target": "backup", "topic": topic_name}
        for partition, count in counts.items():
            one = {**labels, "partition": str(partition)}
            assert found["heliograph_records"].value("_total", **one) == count
            assert plain["heliograph_records_total"].value(**one) == count
            for name in ("heliograph_position_offset", "heliograph_source_end_offset"):
                assert found[name].value(**one) == count
            for name in ("heliograph_lag_records", "heliograph_lag_bytes", "heliograph_lag_seconds"):
                assert found[name].value(**one) == 0
            for name in ("retries", "resyncs", "duplicates_refused", "gap_offsets", "skipped_batches"):
                assert found[f"heliograph_{name}"].value("_total", **one) == 0
            remote = {**labels, "topic": f"primary.{topic_name}", "partition": str(partition)}
            assert found["kafka_connect_mirror_mirrorsourceconnector_record_count"].value(**remote) == count
        latency = found["heliograph_replication_latency_seconds"]
        assert latency.value("_count", **labels) == 1_501
        assert latency.value("_bucket", **labels, le="2.0") == 0  # the records say that they are 3 s old
        assert 3.0 <= latency.value("_sum", **labels) / 1_501 < 60
        most = plain["kafka_connect_mirror_mirrorsourceconnector_replication_latency_ms_max"]
        assert 3_000 <= most.value(topic=f"primary.{topic_name}", partition="0") < 60_000
        assert found["heliograph_tasks"].value() == 1
        assert found["heliograph_epochs"].value("_total") == 1
        assert found["heliograph_flow_state"].value(state="running") == 1
    assert assert_same(primary, backup, topic_name, f"primary.{topic_name}") == counts


def test_duplicates_refused_and_gaps_are_counted(primary: Kafka, backup: Kafka, topic_name: str) -> None:
    create_topic(primary.confluent(), topic_name)
    produce(primary.confluent(), topic_name, [Record(b"k", b"v%d" % n) for n in range(1_000)])
    flow = one_flow(primary.cluster(), backup.cluster(), topic_name)
    with Engine(flow, crash_after=1_000) as engine:  # all appended, no position written
        engine.wait_ended()
    with Engine(flow) as engine, served(engine) as site:
        engine.wait_copied(topic_name)
        wait_until(lambda: engine.status().duplicates_refused == 1_000, what="the report")
        found = site.metrics()
        assert found["heliograph_duplicates_refused_total"].value(topic=topic_name) == 1_000
        assert found["heliograph_records_total"].value(topic=topic_name) == 0
    produce(primary.confluent(), topic_name, [Record(b"k", b"w%d" % n) for n in range(100)])
    admin = AdminClient(dict(primary.confluent()))
    for future in admin.delete_records([TopicPartition(topic_name, 0, 1_040)]).values():
        future.result(30)
    with Engine(flow) as engine, served(engine) as site:
        engine.wait_copied(topic_name)
        wait_until(lambda: engine.status().records == 60 and engine.status().gap_offsets, what="the report")
        found = site.metrics()
        assert found["heliograph_gap_offsets_total"].value(topic=topic_name) == 40
        assert found["heliograph_records_total"].value(topic=topic_name) == 60
        assert found["heliograph_lag_records"].value(topic=topic_name) == 0


def test_checkpoints_and_heartbeats_are_timed(primary: Kafka, backup: Kafka, topic_name: str) -> None:
    create_topic(primary.confluent(), topic_name)
    produce(primary.confluent(), topic_name, [Record(b"k", b"v%d" % n) for n in range(10)])
    group = f"group-{topic_name}"
    consumer = Consumer({**primary.confluent(), "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic_name, 0, 7)], asynchronous=False)
    consumer.close()
    flow = one_flow(
        primary.cluster(),
        backup.cluster(),
        topic_name,
        emit_heartbeats_s=0.3,
        emit_offset_syncs=True,
        emit_checkpoints_s=0.3,
        groups=(group,),
        heartbeats_replication=False,
        caps=(Cap(1_000_000_000),),  # its figures are there where one is set
    )
    name = "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms"
    with Engine(flow) as engine, served(engine) as site:
        engine.wait(lambda: name in site.metrics(), what="a checkpoint timed", timeout_seconds=60)
        found = site.metrics()
        assert 0 <= found[name].value(group=group, topic=f"primary.{topic_name}", partition="0") < 30_000
        checkpoints = found["heliograph_checkpoint_latency_seconds"]
        assert checkpoints.value("_count") >= 1
        assert 0 < checkpoints.value("_sum") < 60
        wait_until(lambda: "heliograph_heartbeat_age_seconds" in site.metrics(), what="a heartbeat")
        found = site.metrics()
        assert 0 <= found["heliograph_heartbeat_age_seconds"].value() < 10
        assert set(found) == METRICS.keys() - {"heliograph_flow_problem_info"}  # every one that a sound flow has
