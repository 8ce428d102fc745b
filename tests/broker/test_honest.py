"""Honest running: everything that can be lost, cut or refused is provoked on real brokers. What was lost or held back
is named to the offset in the incidents topic, the policy of the flow is followed, nothing else stops, and counters are
the truth.

Each test has a second topic that must be copied in full, whatever happens to the first.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from heliograph.cli.main import run as command
from heliograph.embedded import Kafka, running
from heliograph.flow.incidents import Incident, Incidents
from heliograph.flow.quarantine import Quarantine
from heliograph.mirror import task as task_module
from heliograph.types import Flow, Policies
from heliograph.wire import Client
from tests.broker.engine import Engine, assert_same, mirror, one_flow
from tests.broker.processes import write_file
from tests.kit import Record, create_topic, produce, read_all, wait_until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parked partitions are tried again soon, and tasks without a successor leave soon."""
    monkeypatch.setattr(task_module, "PARKED_RETRY_S", 1.0)
    monkeypatch.setattr(task_module, "LINGER_S", 2.0)


@pytest.fixture
def other(primary: Kafka, topic_name: str) -> str:
    """A topic to which nothing happens."""
    return create_topic(primary.confluent(), f"{topic_name}-other", 2)


def records(first: int, count: int) -> list[Record]:
    now_ms = int(time.time() * 1000)
    return [Record(b"k%d" % n, b"v%d" % n, (("n", b"%d" % n),), now_ms) for n in range(first, first + count)]


def remote(topic: str) -> str:
    return f"{topic.removesuffix('-other')}.{topic}"


def flow_of(source: Kafka, target: Kafka, topic: str, **policies: str) -> Flow:
    """Under an alias of its own, so that its incidents are nobody else's."""
    on = Policies(**policies)  # type: ignore[arg-type]
    return one_flow(source.cluster(topic), target.cluster(), f"{topic}.*", on=on)


def incidents(flow: Flow, topic: str) -> list[Incident]:
    found = Incidents(flow)
    try:
        found.look()
        return [one for one in found.all if one.tp.topic == topic]
    finally:
        found.close()


def wait_incident(flow: Flow, topic: str, kind: str, seconds: float = 60) -> Incident:
    found: list[Incident] = []

    def there() -> bool:
        found[:] = [one for one in incidents(flow, topic) if one.kind == kind]
        return bool(found)

    wait_until(there, what=f"an incident {kind} of {topic}", timeout_seconds=seconds)
    return found[-1]


def delete_before(kafka: Kafka, topic: str, offset: int) -> None:
    admin = AdminClient(kafka.confluent())
    moved = admin.delete_records([Partition(topic, 0, offset)])
    assert next(iter(moved.values())).result(30).low_watermark == offset


def delete_topic(kafka: Kafka, topic: str) -> None:
    admin = AdminClient(kafka.confluent())
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, what=f"the end of {topic}")


def set_config(kafka: Kafka, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient(kafka.confluent())
    admin.incremental_alter_configs([resource])[resource].result(30)


def values(kafka: Kafka, topic: str) -> list[bytes | None]:
    return [record.value for record in read_all(kafka.confluent(), topic)[0]]


def numbered(*spans: range) -> list[bytes]:
    return [b"v%d" % n for span in spans for n in span]


def parked(engine: Engine, topic: str) -> str:
    return next((f"{one.reason}. {one.fix}" for one in engine.status().parked if one.topic == topic), "")


# -------------------- retention overtook us


def test_a_gap_is_named_and_counted_and_the_copy_goes_on(
    primary: Kafka, backup: Kafka, topic_name: str, other: str
) -> None:
    create_topic(primary.confluent(), topic_name)
    flow = flow_of(primary, backup, topic_name)
    produce(primary.confluent(), topic_name, records(0, 100))
    mirror(flow, topic_name)
    produce(primary.confluent(), topic_name, records(100, 60))
    delete_before(primary, topic_name, 137)
    produce(primary.confluent(), other, records(0, 50))
    with Engine(flow) as engine:
        engine.wait_copied(topic_name, other)
        engine.wait(lambda: engine.status().gap_offsets == 37, what="37 counted")
        report = engine.coordinator.report()
    (incident,) = incidents(flow, topic_name)
    assert (incident.kind, incident.first, incident.next, incident.policy) == ("gap", 100, 137, "skip")
    assert values(backup, remote(topic_name)) == numbered(range(100), range(137, 160))
    (one,) = [one for one in report.partitions if one.topic == topic_name]
    assert one.counters["lost"] == 37
    assert report.status.incidents == {"gap": 1}
    assert_same(primary, backup, other, remote(other))
    assert mirror(flow, topic_name).status().gap_offsets == 37, "a restart forgets nothing and counts nothing twice"


def test_a_gap_stops_the_partition_if_told_to(primary: Kafka, backup: Kafka, topic_name: str, other: str) -> None:
    create_topic(primary.confluent(), topic_name)
    flow = flow_of(primary, backup, topic_name, gap="stop")
    produce(primary.confluent(), topic_name, records(0, 10))
    mirror(flow, topic_name)
    produce(primary.confluent(), topic_name, records(10, 10))
    delete_before(primary, topic_name, 15)
    with Engine(flow) as engine:
        engine.wait(lambda: "15" in parked(engine, topic_name), what="parked")
        assert "on.gap = skip" in parked(engine, topic_name)
        produce(primary.confluent(), other, records(0, 50))
        engine.wait_copied(other)
    assert values(backup, remote(topic_name)) == numbered(range(10))
    (incident,) = incidents(flow, topic_name)
    assert (incident.first, incident.next, incident.policy, incident.lost) == (10, 15, "stop", 0)
    mirror(flow_of(primary, backup, topic_name), topic_name)
    assert values(backup, remote(topic_name)) == numbered(range(10), range(15, 20))
    (incident,) = incidents(flow, topic_name)
    assert (incident.policy, incident.lost) == ("skip", 5), "one incident, as it ended"


# -------------------- the source topic was made anew


def test_a_topic_made_anew_is_copied_from_its_start(primary: Kafka, backup: Kafka, topic_name: str, other: str) -> None:
    create_topic(primary.confluent(), topic_name)
    flow = flow_of(primary, backup, topic_name)
    produce(primary.confluent(), topic_name, records(0, 30))
    with Engine(flow) as engine:
        engine.wait_copied(topic_name)
        delete_topic(primary, topic_name)
        create_topic(primary.confluent(), topic_name)
        produce(primary.confluent(), topic_name, records(500, 7))
        produce(primary.confluent(), other, records(0, 50))
        wait_until(
            lambda: values(backup, remote(topic_name)) == numbered(range(30), range(500, 507)),
            what="the new topic behind the old",
            timeout_seconds=60,
        )
        engine.wait_copied(other)
    (incident,) = incidents(flow, topic_name)
    assert (incident.kind, incident.first, incident.policy) == ("recreated", 30, "restart")
    assert_same(primary, backup, other, remote(other))


def test_a_topic_made_anew_stands_still_if_told_to(primary: Kafka, backup: Kafka, topic_name: str, other: str) -> None:
    create_topic(primary.confluent(), topic_name)
    flow = flow_of(primary, backup, topic_name, recreated="stop")
    produce(primary.confluent(), topic_name, records(0, 30))
    with Engine(flow) as engine:
        engine.wait_copied(topic_name)
        delete_topic(primary, topic_name)
        create_topic(primary.confluent(), topic_name)
        produce(primary.confluent(), topic_name, records(500, 7))
        engine.wait(lambda: "made anew" in parked(engine, topic_name), what="parked")
        assert "on.source.recreated = restart" in parked(engine, topic_name)
        produce(primary.confluent(), other, records(0, 50))
        engine.wait_copied(other)
    assert values(backup, remote(topic_name)) == numbered(range(30))
    (incident,) = incidents(flow, topic_name)
    assert (incident.kind, incident.first, incident.policy) == ("recreated", 30, "stop")


# -------------------- logs that were cut


@pytest.fixture(scope="module")
def fragile() -> Iterator[tuple[Kafka, Kafka]]:
    """Two clusters whose brokers may be stopped."""
    config = {"auto.create.topics.enable": "false"}
    first, second = Kafka("primary", config=config), Kafka("backup", config=config)
    with running(first, second):
        yield first, second


def cut(kafka: Kafka, topic: str, at: int) -> None:
    """Stop the broker, take away all batches of the topic's only segment from this offset on, start it again."""
    (broker,) = kafka.brokers
    assert broker.stop()
    folder = broker.folder / "data" / f"{topic}-0"
    (segment,) = folder.glob("*.log")
    log, position = segment.read_bytes(), 0
    while position < len(log):
        offset, length = struct.unpack_from(">qi", log, position)
        if offset >= at:
            break
        position += 12 + length
    for file in folder.iterdir():
        if file.name not in ("partition.metadata", segment.name):
            file.unlink()
    segment.write_bytes(log[:position])
    broker.start()


def copy_by_tens(flow: Flow, source: Kafka, topic: str) -> None:
    """Forty records, in batches on either side that end after each ten."""
    with Engine(flow) as engine:
        for n in range(0, 40, 10):
            produce(source.confluent(), topic, records(n, 10))
            engine.wait_copied(topic)


@pytest.mark.parametrize("policy", ["stop", "restart"])
def test_a_source_that_was_cut(fragile: tuple[Kafka, Kafka], topic_name: str, policy: str) -> None:
    source, target = fragile
    create_topic(source.confluent(), topic_name)
    flow = flow_of(source, target, topic_name, truncated=policy)
    copy_by_tens(flow, source, topic_name)
    cut(source, topic_name, 30)
    with Engine(flow) as engine:
        incident = wait_incident(flow, topic_name, "truncated")
        assert (incident.first, incident.next, incident.policy) == (30, 40, policy)
        if policy == "stop":
            engine.wait(lambda: "ends at offset 30" in parked(engine, topic_name), what="parked")
            assert values(target, remote(topic_name)) == numbered(range(40))
        else:
            produce(source.confluent(), topic_name, records(100, 5))
            wait_until(
                lambda: values(target, remote(topic_name)) == numbered(range(40), range(30), range(100, 105)),
                what="the copy made anew behind what was there",
                timeout_seconds=60,
            )


@pytest.mark.parametrize("policy", ["stop", "restart", "skip"])
def test_a_target_that_was_cut(fragile: tuple[Kafka, Kafka], topic_name: str, policy: str) -> None:
    source, target = fragile
    create_topic(source.confluent(), topic_name)
    flow = flow_of(source, target, topic_name, target_lost=policy)
    copy_by_tens(flow, source, topic_name)
    cut(target, remote(topic_name), 20)
    kept = values(target, remote(topic_name))
    assert kept == numbered(range(len(kept)))
    produce(source.confluent(), topic_name, records(40, 5))
    with Engine(flow) as engine:
        incident = wait_incident(flow, topic_name, "target-lost")
        assert (incident.first, incident.policy, incident.target) == (40, policy, (len(kept), 40))
        expected = {
            "stop": numbered(range(len(kept))),
            "restart": numbered(range(len(kept)), range(45)),
            "skip": numbered(range(len(kept)), range(40, 45)),
        }[policy]
        if policy == "stop":
            engine.wait(lambda: "on.target.lost = restart" in parked(engine, topic_name), what="parked")
        wait_until(lambda: values(target, remote(topic_name)) == expected, what=policy, timeout_seconds=60)


@pytest.mark.parametrize("policy", ["stop", "restart", "skip"])
def test_a_remote_topic_that_was_deleted(
    primary: Kafka, backup: Kafka, topic_name: str, other: str, policy: str
) -> None:
    create_topic(primary.confluent(), topic_name)
    flow = flow_of(primary, backup, topic_name, target_lost=policy)
    produce(primary.confluent(), topic_name, records(0, 40))
    mirror(flow, topic_name)
    with Engine(flow) as engine:
        engine.wait_copied(topic_name)
        delete_topic(backup, remote(topic_name))
        produce(primary.confluent(), topic_name, records(40, 5))
        produce(primary.confluent(), other, records(0, 50))
        incident = wait_incident(flow, topic_name, "target-lost")
        assert (incident.first, incident.policy, incident.target[1]) == (40, policy, 40)
        engine.wait_copied(other)
        if policy == "stop":
            engine.wait(lambda: "on.target.lost = restart" in parked(engine, topic_name), what="parked")
            assert remote(topic_name) not in AdminClient(backup.confluent()).list_topics(timeout=10).topics
        else:
            expected = numbered(range(45)) if policy == "restart" else numbered(range(40, 45))

            def there() -> bool:
                topics = AdminClient(backup.confluent()).list_topics(timeout=10).topics
                return remote(topic_name) in topics and values(backup, remote(topic_name)) == expected

            wait_until(there, what=f"{policy} of {topic_name}", timeout_seconds=90)
    assert len(incidents(flow, topic_name)) == 1
    assert_same(primary, backup, other, remote(other))


# -------------------- records that the target refuses


def keyless(first: int, count: int, every: int) -> list[Record]:
    """One in `every` has no key, which a compacted topic refuses."""
    return [one._replace(key=None) if n % every == 0 else one for n, one in enumerate(records(first, count), first)]


def quarantined(flow: Flow, topic: str) -> dict[int, Any]:
    with Client(flow.target) as client:
        return {kept.place.offset: kept for kept in Quarantine(client, flow).read() if kept.place.tp.topic == topic}


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_records_without_a_key_into_a_compacted_topic(
    primary: Kafka, backup: Kafka, topic_name: str, other: str, codec: str
) -> None:
    create_topic(primary.confluent(), topic_name)
    create_topic(backup.confluent(), remote(topic_name), config={"cleanup.policy": "compact"})
    flow = flow_of(primary, backup, topic_name)
    sent = keyless(0, 1000, 97)
    produce(primary.confluent(), topic_name, sent, config={"compression.type": codec, "linger.ms": 200})
    produce(primary.confluent(), other, records(0, 50))
    with Engine(flow) as engine:
        engine.wait_copied(topic_name, other)
        engine.wait(lambda: engine.status().refused_records == 11, what="11 counted")
        report = engine.coordinator.report()
    bad = list(range(0, 1000, 97))
    copied = read_all(backup.confluent(), remote(topic_name))[0]
    assert [one.content for one in copied] == [one.content for n, one in enumerate(sent) if n not in bad]
    assert [n for one in incidents(flow, topic_name) for at, k in one.offsets for n in range(at, at + k)] == bad
    kept = quarantined(flow, topic_name)
    assert sorted(kept) == bad
    for n in bad:
        record = kept[n].record
        assert (record.key, record.value, record.headers, record.timestamp) == sent[n].content
        assert "INVALID_RECORD" in kept[n].reason
    (one,) = [one for one in report.partitions if one.topic == topic_name]
    assert one.counters["held"] == 11
    assert_same(primary, backup, other, remote(other))


@pytest.mark.parametrize("far_s", [86_400, -86_400])
def test_times_too_far_ahead_and_behind(primary: Kafka, backup: Kafka, topic_name: str, far_s: int) -> None:
    limit = "message.timestamp.after.max.ms" if far_s > 0 else "message.timestamp.before.max.ms"
    create_topic(primary.confluent(), topic_name, config={limit: "864000000"})
    create_topic(backup.confluent(), remote(topic_name), config={limit: "3600000"})
    flow = flow_of(primary, backup, topic_name)
    sent = records(0, 50)
    sent[20] = sent[20]._replace(timestamp_ms=sent[20].timestamp_ms + far_s * 1000)
    produce(primary.confluent(), topic_name, sent, config={"linger.ms": 200})
    mirror(flow, topic_name)
    assert values(backup, remote(topic_name)) == numbered(range(20), range(21, 50))
    (incident,) = incidents(flow, topic_name)
    assert (incident.offsets, incident.policy) == (((20, 1),), "quarantine")
    assert "INVALID_TIMESTAMP" in incident.why
    assert list(quarantined(flow, topic_name)) == [20]


def test_a_record_too_large_is_kept_and_sent_again(
    primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(primary.confluent(), topic_name, config={"max.message.bytes": "4000000"})
    create_topic(backup.confluent(), remote(topic_name), config={"max.message.bytes": "50000"})
    flow = flow_of(primary, backup, topic_name)
    sent = records(0, 30)
    sent[11] = sent[11]._replace(value=b"x" * 2_000_000)
    sent[29] = sent[29]._replace(value=b"y" * 60_000)
    produce(primary.confluent(), topic_name, sent, config={"message.max.bytes": 4_000_000, "linger.ms": 200})
    mirror(flow, topic_name)
    assert values(backup, remote(topic_name)) == numbered(range(11), range(12, 29))
    assert sorted(quarantined(flow, topic_name)) == [11, 29]
    clusters = {topic_name: primary.bootstrap, "backup": backup.bootstrap}
    servers = {f"{alias}.bootstrap.servers": address for alias, address in clusters.items()}
    file = write_file(
        tmp_path / "mm2.properties",
        {"clusters": ",".join(clusters), **servers, f"{topic_name}->backup.enabled": "true"},
    )
    assert command(["quarantine", "list", str(file), topic_name, "-o", "json"]) == 0
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["offset"], one["value_bytes"]) for one in listed] == [(11, 2_000_000), (29, 60_000)]
    assert command(["quarantine", "resend", str(file), topic_name]) == 1, "the target still refuses them"
    assert sorted(quarantined(flow, topic_name)) == [11, 29]
    set_config(backup, remote(topic_name), "max.message.bytes", "70000")
    again = ["quarantine", "resend", str(file)]
    wait_until(lambda: command([*again, f"{topic_name}:0:29"]) == 0, what="the new limit")
    set_config(backup, remote(topic_name), "max.message.bytes", "3000000")
    assert command(["quarantine", "show", str(file), f"{topic_name}:0:11"]) == 0
    wait_until(lambda: command([*again, topic_name]) == 0, what="the next limit")
    assert quarantined(flow, topic_name) == {}
    copied = read_all(backup.confluent(), remote(topic_name))[0]
    assert [one.content for one in copied[-2:]] == [sent[29].content, sent[11].content]
    assert len(copied) == 30
    assert command(["incidents", str(file), "--topic", topic_name, "-o", "json"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith('{"time"')]
    assert sum(one["held"] for one in said) == 2


@pytest.mark.parametrize("policy", ["skip", "stop"])
def test_refused_records_by_other_policies(
    primary: Kafka, backup: Kafka, topic_name: str, other: str, policy: str
) -> None:
    create_topic(primary.confluent(), topic_name)
    create_topic(backup.confluent(), remote(topic_name), config={"cleanup.policy": "compact"})
    flow = flow_of(primary, backup, topic_name, refused=policy)
    produce(primary.confluent(), topic_name, [one._replace(key=None) if n == 5 else one for n, one in
                                              enumerate(records(0, 10))], config={"linger.ms": 200})  # fmt: skip
    produce(primary.confluent(), other, records(0, 50))
    with Engine(flow) as engine:
        engine.wait_copied(other)
        incident = wait_incident(flow, topic_name, "refused")
        if policy == "stop":
            engine.wait(lambda: "source offset 5" in parked(engine, topic_name), what="parked")
            assert "on.refused = quarantine" in parked(engine, topic_name)
        else:
            engine.wait_copied(topic_name)
            assert values(backup, remote(topic_name)) == numbered(range(5), range(6, 10))
    assert (incident.offsets, incident.policy) == (((5, 1),), policy)
    assert quarantined(flow, topic_name) == {}


def test_crashes_between_refusals(primary: Kafka, backup: Kafka, topic_name: str) -> None:
    """A task dies again and again before it wrote a position: each record once, each refused one kept once."""
    create_topic(primary.confluent(), topic_name)
    create_topic(backup.confluent(), remote(topic_name), config={"cleanup.policy": "compact"})
    flow = flow_of(primary, backup, topic_name)
    sent = keyless(0, 3000, 301)
    produce(primary.confluent(), topic_name, sent, config={"batch.num.messages": 100})
    for crash_after in (1, 150, 400):  # the third has most of it before itself, in few batches
        with Engine(flow, crash_after=crash_after) as engine:
            engine.wait_ended()
    engine = mirror(flow, topic_name)
    bad = list(range(0, 3000, 301))
    copied = read_all(backup.confluent(), remote(topic_name))[0]
    assert [one.content for one in copied] == [one.content for n, one in enumerate(sent) if n not in bad]
    assert sorted(quarantined(flow, topic_name)) == bad
    assert sum(one.held for one in incidents(flow, topic_name)) == len(bad)


# -------------------- permission withdrawn


@contextmanager
def withdrawn(kafka: Kafka, topic: str) -> Iterator[None]:
    """Nobody but the cluster's own users may write to this topic meanwhile."""
    binding = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:alice", "*")
    denial = AclBinding(*binding, AclOperation.WRITE, AclPermissionType.DENY)
    admin = AdminClient(kafka.confluent())
    for future in admin.create_acls([denial]).values():
        future.result(30)
    try:
        yield
    finally:
        selected = AclBindingFilter(*binding, AclOperation.WRITE, AclPermissionType.DENY)
        for future in admin.delete_acls([selected]).values():
            future.result(30)


def test_permission_withdrawn_and_given_back(primary: Kafka, new_topic: Callable[[], str]) -> None:
    with Kafka("guarded", security=("SASL_PLAINTEXT",), acls=True) as guarded:
        everything = AclBinding(
            *(ResourceType.TOPIC, "*", ResourcePatternType.LITERAL, "User:alice", "*"),
            *(AclOperation.ALL, AclPermissionType.ALLOW),
        )
        admin = AdminClient(guarded.confluent())
        for future in admin.create_acls([everything]).values():
            future.result(30)
        name = new_topic()
        other = f"{name}-other"
        for topic in (name, other):
            create_topic(primary.confluent(), topic)
            produce(primary.confluent(), topic, records(0, 20))
        flow = one_flow(primary.cluster(name), guarded.cluster(user="alice"), f"{name}.*")
        with Engine(flow) as engine:
            engine.wait_copied(name, other)
            with withdrawn(guarded, remote(name)):
                produce(primary.confluent(), name, records(20, 10))
                produce(primary.confluent(), other, records(20, 10))
                incident = wait_incident(flow, name, "denied")
                assert (incident.first, incident.policy) == (20, "stop")
                engine.wait(lambda: "AUTHORIZATION" in parked(engine, name), what="parked")
                engine.wait_copied(other)
            engine.wait_copied(name)
        assert assert_same(primary, guarded, name, remote(name)) == {0: 30}
        assert len(incidents(flow, name)) == 1
