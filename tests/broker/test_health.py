"""Health and figures on real brokers: what is said over HTTP while brokers are killed, frozen and without a leader.

Each fault is done under a feed; within 10 s /health is 503 and says why in words, the partitions that are not concerned
stay healthy, and when the broker is back all recovers by itself, each record once. Figures are read by a strict parser
and compared with what confluent-kafka counts.
"""

from __future__ import annotations

import json
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from heliograph.embedded import Kafka, running
from heliograph.embedded.broker import Broker
from heliograph.flow.health import NO_REASON
from heliograph.flow.recovery import Recovery
from heliograph.flow.status import FlowReport
from heliograph.http.pages import Pages
from heliograph.http.routing import Router
from heliograph.http.server import Server
from heliograph.metrics.table import METRICS
from heliograph.mirror import task as task_module
from heliograph.mirror.fetch import Source
from tests.broker.engine import Engine, assert_same, mirror, one_flow
from tests.broker.processes import Feed, Run, assert_copied, write_properties
from tests.exposition import Family, parse
from tests.kit import Record, create_topic, produce, wait_until

pytestmark = pytest.mark.timeout(300)

TOLD_S = 10.0  # what is wrong is said within this
PARTITIONS = 3


@pytest.fixture(autouse=True)
def _reports_as_in_earnest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "REPORT_EVERY_S", 1.0)  # other tests have tasks report more often


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[Kafka, Kafka]]:
    with running(Kafka("west"), Kafka("east")) as (west, east):
        yield west, east


class Site:
    """What `--http` serves, asked as a scraper asks."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, accept: str = "") -> tuple[int, str]:
        request = urllib.request.Request(self.url + path, headers={"Accept": accept})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def health(self) -> tuple[int, dict[str, Any]]:
        code, text = self.get("/health")
        return code, json.loads(text)["flows"][0]

    def partitions(self) -> dict[int, dict[str, Any]]:
        flow = json.loads(self.get("/status")[1])["flows"][0]
        return {one["partition"]: one for one in flow["partition_status"]}

    def metrics(self, *, openmetrics: bool = False) -> dict[str, Family]:
        accept = "application/openmetrics-text;version=1.0.0" if openmetrics else ""
        code, text = self.get("/metrics", accept)
        assert code == 200
        return parse(text, openmetrics=openmetrics)

    def wait_sound(self, timeout_seconds: float = 60) -> None:
        self._wait(lambda code, _: code == 200, "health", timeout_seconds)

    def wait_told(self, *words: str, since: float | None = None) -> str:
        """Until it is 503 and a reason holds all these words; the reason. Fails when that takes too long."""
        began = since or time.monotonic()
        told: list[str] = []

        def holds(code: int, flow: dict[str, Any]) -> bool:
            told[:] = [reason for reason in flow["reasons"] if all(word in reason for word in words)]
            return code == 503 and bool(told)

        self._wait(holds, f"a reason with {words}", began + TOLD_S - time.monotonic())
        print(f"after {time.monotonic() - began:.1f} s: {told[0]}")  # pytest -s shows the words
        return told[0]

    def _wait(self, holds: Callable[[int, dict[str, Any]], bool], what: str, timeout_seconds: float) -> None:
        try:
            wait_until(lambda: holds(*self.health()), what=what, timeout_seconds=timeout_seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {self.health()}") from None


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
def copying(source: Kafka, target: Kafka, topic: str, **more: Any) -> Iterator[tuple[Site, Feed, Engine]]:
    """A flow of this topic under a feed, once it is sound."""
    flow = one_flow(source.cluster(), target.cluster(), topic, **more)
    feed = Feed(source.confluent(), topic, PARTITIONS, 300)
    with Engine(flow) as engine, served(engine) as site:
        site.wait_sound()
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


@pytest.mark.parametrize("side", ["west", "east"])
def test_a_broker_killed(clusters: tuple[Kafka, Kafka], side: str, topic_name: str) -> None:
    west, east = clusters
    broker = (west if side == "west" else east).brokers[0]
    create_topic(west.confluent(), topic_name, PARTITIONS)
    with copying(west, east, topic_name) as (site, feed, engine):
        with down(broker):
            reason = site.wait_told(f"{topic_name}-", "stalled", f"{side} broker 127.0.0.1:{broker.port}")
            # Of a source that is gone it may be known how far it came; mostly it is known that it is not seen.
            assert re.search(
                r"(source moved \([\d,]+ records\), we did not,|source not seen) for \d+ s, because", reason
            )
            assert side == "west" or "source moved" in reason
            assert "tried again within 2 s" in reason
            engine.wait(lambda: engine.status().stalled == PARTITIONS, what="all told", timeout_seconds=2)
            status = engine.status()
            assert status.state == "stalled"
            assert f"{side} broker" in status.reason
            found = site.metrics()
            assert found["heliograph_flow_healthy"].value() == 0
            ((_, labels),) = found["heliograph_flow_problem_info"].samples
            assert f"{side} broker" in dict(labels)["reason"]
            assert dict(labels)["state"] == "stalled"
        site.wait_sound()
        assert_all_once(west, east, topic_name, feed)
        assert site.health()[1]["reasons"] == []


@pytest.mark.parametrize("side", ["west", "east"])
def test_a_frozen_broker(clusters: tuple[Kafka, Kafka], side: str, topic_name: str) -> None:
    west, east = clusters
    broker = (west if side == "west" else east).brokers[0]
    create_topic(west.confluent(), topic_name, PARTITIONS)
    with copying(west, east, topic_name) as (site, feed, engine):
        with frozen(broker):
            site.wait_told(f"{topic_name}-", "stalled", f"{side} broker 127.0.0.1:{broker.port} does not answer")
            assert engine.status().state == "stalled"
        site.wait_sound()
        assert_all_once(west, east, topic_name, feed)


def test_a_partition_without_a_leader(clusters: tuple[Kafka, Kafka], topic_name: str) -> None:
    """On the source, then on the target: that partition says so, the others go on."""
    west, east = clusters
    there, back = f"{topic_name}-there", f"{topic_name}-back"
    more = {"offset_storage_replication_factor": 3}
    with Kafka("north", brokers=3) as north:
        create_topic(north.confluent(), there, PARTITIONS)
        create_topic(west.confluent(), back, PARTITIONS)
        with (
            copying(north, east, there) as (site, feed, _),
            copying(west, north, back, **more) as (other_site, other_feed, _),
        ):
            lost, other_lost = led_by(north, there, 3), led_by(north, f"west.{back}", 3)
            north.brokers[2].stop()
            stopped_at = time.monotonic()
            for one, tp in ((site, f"{there}-{lost}"), (other_site, f"west.{back}-{other_lost}")):
                words = ("stalled", f"{tp} has no leader on north: its replicas are on broker 3")
                reason = one.wait_told(*words, since=stopped_at)
                assert re.search(r"for \d+ s, because", reason)
            for one, partition in ((site, lost), (other_site, other_lost)):
                states = {number: status["state"] for number, status in one.partitions().items()}
                assert states == {**dict.fromkeys(range(PARTITIONS), "moving"), partition: "stalled"}
            north.brokers[2].start()
            for one in (site, other_site):
                one.wait_sound()
            assert_all_once(north, east, there, feed)
            assert_all_once(west, north, back, other_feed)


def test_a_partition_that_a_fetch_lost_is_noticed_and_gets_a_new_task(
    clusters: tuple[Kafka, Kafka], topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of ours, made here: the task takes the partition for idle. The coordinator's own look knows better."""
    west, east = clusters
    create_topic(west.confluent(), topic_name, PARTITIONS)
    tick, victims = Source.tick, []

    def forgetful(source: Source, now: float) -> None:
        tick(source, now)
        lane = next(iter(source._lanes.values()))
        if lane.counts.records and (not victims or victims == [source]):
            victims[:] = [source]
            source.leave(lane)

    monkeypatch.setattr(Source, "tick", forgetful)
    flow = one_flow(west.cluster(), east.cluster(), topic_name)
    feed = Feed(west.confluent(), topic_name, PARTITIONS, 300)
    engine = Engine(flow)
    engine.coordinator._recovery = Recovery(first_s=8.0)
    with engine, served(engine) as site:
        engine.wait(lambda: victims, what="the loss")
        site.wait_told("stalled: source moved", NO_REASON)
        site.wait_sound()
        assert engine.status().epoch > 1
        assert_all_once(west, east, topic_name, feed)


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
        wait_until(lambda: engine.status().records == 60, what="the report")
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


def test_lag_is_seen_while_nothing_can_be_written(clusters: tuple[Kafka, Kafka], topic_name: str) -> None:
    """In records, bytes and seconds, all of them growing with the truth."""
    west, east = clusters
    create_topic(west.confluent(), topic_name, PARTITIONS)
    produce(west.confluent(), topic_name, [Record(b"k", b"v" * 100) for _ in range(100)])
    flow = one_flow(west.cluster(), east.cluster(), topic_name)
    mirror(flow, topic_name)
    produce(west.confluent(), topic_name, [Record(b"k", b"v" * 100) for _ in range(50)])
    with Engine(flow) as engine, served(engine) as site:
        engine.wait_copied(topic_name)
        site.wait_sound()
        with frozen(east.brokers[0]):
            produced_at = time.time()
            produce(west.confluent(), topic_name, [Record(b"k", b"v" * 100) for _ in range(70)])
            engine.wait(lambda: site.partitions()[0]["lag_records"] == 70, what="lag", timeout_seconds=10)
            site.wait_told(f"{topic_name}-0: stalled: source moved (70 records), we did not")
            one = site.partitions()[0]
            assert 70 * 50 < one["lag_bytes"] < 70 * 500
            assert 4 < one["lag_seconds"] <= time.time() - produced_at + 1
            assert site.metrics()["heliograph_topic_lag_records"].value(topic=topic_name) == 70
        site.wait_sound()
        assert site.partitions()[0]["lag_records"] == 0


# -------------------- the command


def test_the_command_serves_its_health_and_names_a_task_that_is_frozen(
    primary: Kafka, backup: Kafka, tmp_path: Path, topic_name: str
) -> None:
    create_topic(primary.confluent(), topic_name, PARTITIONS)
    more = {"heartbeats_replication_enabled": "false", "emit_heartbeats_enabled": "false"}
    properties = write_properties(tmp_path / "mm2.properties", primary, backup, topic_name, tasks_max=1, **more)
    feed = Feed(primary.confluent(), topic_name, PARTITIONS, 300)
    with Run(properties, tmp_path / "run", "--http", "0") as run:
        said: list[str] = []
        wait_until(
            lambda: said.extend(re.findall(r"serving (http://\S+?)/metrics", run.words())) or said, what="its address"
        )
        site = Site(said[0])
        code, flow = site.health()
        assert (code, flow["state"]) == (503, "starting")
        assert flow["reasons"]
        site.wait_sound(timeout_seconds=120)
        workers = run.workers()
        for worker in workers:
            worker.send_signal(signal.SIGSTOP)
        try:
            site.wait_told(f"{topic_name}-0: stalled", "task 0 of epoch", "is silent")
        finally:
            for worker in workers:
                worker.send_signal(signal.SIGCONT)
        site.wait_sound()
        total = feed.stop()
        assert_copied(primary.confluent(), backup.confluent(), topic_name, f"primary.{topic_name}", expected=total)
        counted = "heliograph_records_total"
        wait_until(
            lambda: sum(site.metrics()[counted].samples.values()) == total, what="the counters", timeout_seconds=15
        )
        assert run.stop() == 0, run.words()
