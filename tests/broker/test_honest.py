"""Honest running: everything that can be lost, cut or refused is provoked on real brokers. What was lost or held back
is named to the offset in the incidents topic, the policy of the flow is followed, nothing else stops, and counters are
the truth.

Where several policies make sense, each has a topic and a flow, and they run side by side.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

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
from heliograph.mirror import task as task_module
from heliograph.state.incidents import Incident, Incidents
from heliograph.state.quarantine import Kept, Quarantine
from heliograph.types import Flow, Policies
from heliograph.wire import Client
from tests.broker.engine import Engine, assert_same, mirror, one_flow
from tests.broker.processes import write_file
from tests.kit import Record, create_topic, produce, read_all, wait_until


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parked partitions are tried again soon, and tasks without a successor leave soon."""
    monkeypatch.setattr(task_module, "PARKED_RETRY_S", 1.0)
    monkeypatch.setattr(task_module, "LINGER_S", 2.0)


def records(first: int, count: int) -> list[Record]:
    now_ms = int(time.time() * 1000)
    return [Record(b"k%d" % n, b"v%d" % n, (("n", b"%d" % n),), now_ms) for n in range(first, first + count)]


class Scene:
    """Topics of one test, and flows of them under an alias of its own, so that its incidents are nobody else's. Each
    policy has a topic and a flow; they run side by side. To the topic `other` nothing happens: whatever becomes of the
    rest, it must be copied in full."""

    def __init__(self, source: Kafka, target: Kafka, name: str, *topics: str, config: Mapping[str, str] = {}) -> None:
        self.source, self.target, self.name = source, target, name
        for topic in topics:
            create_topic(source.confluent(), self.topic(topic), config=config)

    def topic(self, topic: str) -> str:
        return f"{self.name}-{topic}"

    def remote(self, topic: str) -> str:
        return f"{self.name}.{self.topic(topic)}"

    def flow(self, *topics: str, **policies: str) -> Flow:
        on = Policies(**policies)  # type: ignore[arg-type]
        return one_flow(
            self.source.cluster(self.name), self.target.cluster(), *(self.topic(one) for one in topics), on=on
        )

    def feed(self, first: int, count: int, *topics: str, **config: object) -> None:
        for topic in topics:
            produce(self.source.confluent(), self.topic(topic), records(first, count), config=config)

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in read_all(self.target.confluent(), self.remote(topic))[0]]

    def wait_values(self, topic: str, *spans: range) -> None:
        def there() -> bool:
            topics = AdminClient(self.target.confluent()).list_topics(timeout=10).topics
            return self.remote(topic) in topics and self.values(topic) == numbered(*spans)

        wait_until(there, what=f"{spans} in the copy of {topic}", timeout_seconds=60)

    def incidents(self, topic: str) -> list[Incident]:
        return incidents(self.flow(topic), self.topic(topic))

    def wait_incident(self, topic: str, kind: str) -> Incident:
        found: list[Incident] = []

        def there() -> bool:
            found[:] = [one for one in self.incidents(topic) if one.kind == kind]
            return bool(found)

        wait_until(there, what=f"an incident {kind} of {topic}", timeout_seconds=60)
        return found[-1]

    def wait_parked(self, engine: Engine, topic: str, words: str) -> None:
        def parked() -> str:
            found = [one for one in engine.status().parked if one.topic == self.topic(topic)]
            return f"{found[0].reason}. {found[0].fix}" if found else ""

        engine.wait(lambda: words in parked(), what=f"{topic} parked: {words}")

    def quarantined(self, topic: str) -> dict[int, Kept]:
        with Client(self.target.cluster()) as client:
            kept = Quarantine(client, self.flow(topic)).read()
        return {one.place.offset: one for one in kept if one.place.tp.topic == self.topic(topic)}

    def assert_same(self, topic: str) -> None:
        assert_same(self.source, self.target, self.topic(topic), self.remote(topic))


def incidents(flow: Flow, topic: str) -> list[Incident]:
    found = Incidents(flow)
    try:
        found.look()
        return [one for one in found.all if one.tp.topic == topic]
    finally:
        found.close()


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


def numbered(*spans: range) -> list[bytes]:
    return [b"v%d" % n for span in spans for n in span]


# -------------------- retention overtook us


def test_gaps(primary: Kafka, backup: Kafka, topic_name: str) -> None:
    scene = Scene(primary, backup, topic_name, "skip", "stop", "other")
    scene.feed(0, 100, "skip", "stop")
    mirror(scene.flow("skip", "stop"), scene.topic("skip"), scene.topic("stop"))
    scene.feed(100, 60, "skip", "stop")
    for topic in ("skip", "stop"):
        delete_before(primary, scene.topic(topic), 137)
    with Engine(scene.flow("skip", "other")) as engine, Engine(scene.flow("stop", gap="stop")) as stopping:
        scene.feed(0, 50, "other")
        engine.wait_copied(scene.topic("skip"), scene.topic("other"))
        scene.wait_parked(stopping, "stop", "the source begins at 137, we were at 100")
        scene.wait_parked(stopping, "stop", "on.gap = skip")
        engine.wait(lambda: engine.status().incidents == {"gap": 2}, what="both told")
        report = engine.coordinator.report()
    assert scene.values("skip") == numbered(range(100), range(137, 160))
    (incident,) = scene.incidents("skip")
    assert (incident.kind, incident.first, incident.next, incident.policy) == ("gap", 100, 137, "skip")
    (one,) = [one for one in report.partitions if one.topic == scene.topic("skip")]
    assert one.counters["lost"] == 37
    assert report.status.gap_offsets == 37
    scene.assert_same("other")

    assert scene.values("stop") == numbered(range(100))
    (incident,) = scene.incidents("stop")
    assert (incident.first, incident.next, incident.policy, incident.lost) == (100, 137, "stop", 0)
    with Engine(scene.flow("skip", "stop")) as engine:
        engine.wait_copied(scene.topic("skip"), scene.topic("stop"))
        engine.wait(lambda: engine.status().gap_offsets == 37 + 37, what="nothing forgotten, nothing counted twice")
    assert scene.values("stop") == numbered(range(100), range(137, 160))
    (incident,) = scene.incidents("stop")
    assert (incident.policy, incident.lost) == ("skip", 37), "one incident, as it ended"


# -------------------- the source topic was made anew


def test_topics_made_anew(primary: Kafka, backup: Kafka, topic_name: str) -> None:
    scene = Scene(primary, backup, topic_name, "restart", "stop", "other")
    scene.feed(0, 30, "restart", "stop")
    with (
        Engine(scene.flow("restart", "other")) as engine,
        Engine(scene.flow("stop", recreated="stop")) as stopping,
    ):
        engine.wait_copied(scene.topic("restart"))
        stopping.wait_copied(scene.topic("stop"))
        for topic in ("restart", "stop"):
            delete_topic(primary, scene.topic(topic))
            create_topic(primary.confluent(), scene.topic(topic))
        scene.feed(500, 7, "restart", "stop")
        scene.feed(0, 50, "other")
        scene.wait_values("restart", range(30), range(500, 507))
        engine.wait_copied(scene.topic("other"))
        scene.wait_parked(stopping, "stop", "made anew")
        scene.wait_parked(stopping, "stop", "on.source.recreated = restart")
    assert scene.values("stop") == numbered(range(30))
    for policy in ("restart", "stop"):
        (incident,) = scene.incidents(policy)
        assert (incident.kind, incident.first, incident.policy) == ("recreated", 30, policy)
    scene.assert_same("other")


# -------------------- logs that were cut


def cut(folder: Path, at: int) -> None:
    """Of a broker that is stopped: all batches of a partition's only segment from this offset on taken away."""
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


def test_logs_that_were_cut() -> None:
    """The source's and the target's, each by every policy."""
    config = {"auto.create.topics.enable": "false"}
    with running(Kafka("primary", config=config), Kafka("backup", config=config)) as (source, target):
        sources, targets = ("source-stop", "source-restart"), ("target-stop", "target-restart", "target-skip")
        topics = (*sources, *targets)
        scene = Scene(source, target, "cuts", *topics)
        with Engine(scene.flow(*topics)) as engine:
            for n in range(0, 40, 10):  # batches on either side that end after each ten
                scene.feed(n, 10, *topics)
                engine.wait_copied(*map(scene.topic, topics))
        (there,), (here,) = source.brokers, target.brokers
        assert there.stop()
        assert here.stop()
        for topic in sources:
            cut(there.folder / "data" / f"{scene.topic(topic)}-0", 30)
        for topic in targets:
            cut(here.folder / "data" / f"{scene.remote(topic)}-0", 20)
        for broker in (there, here):
            broker.launch()
        for broker in (there, here):
            broker.wait_ready()
        scene.feed(40, 5, *targets)
        kept = {topic: scene.values(topic) for topic in targets}
        assert all(some == numbered(range(len(some))) for some in kept.values())
        with ExitStack() as stack:
            policies = [{"truncated": p} for p in ("stop", "restart")] + [
                {"target_lost": p} for p in ("stop", "restart", "skip")
            ]
            flows = [scene.flow(topic, **policy) for topic, policy in zip(topics, policies, strict=True)]
            engines = dict(zip(topics, [stack.enter_context(Engine(flow)) for flow in flows], strict=True))
            for topic in sources:
                incident = scene.wait_incident(topic, "truncated")
                assert (incident.first, incident.next, f"source-{incident.policy}") == (30, 40, topic)
            for topic in targets:
                incident = scene.wait_incident(topic, "target-lost")
                assert (incident.first, f"target-{incident.policy}") == (40, topic)
                assert incident.target == (len(kept[topic]), 40)
            scene.wait_parked(engines["source-stop"], "source-stop", "ends at offset 30")
            scene.wait_parked(engines["target-stop"], "target-stop", "on.target.lost = restart")
            scene.feed(100, 5, "source-restart")
            scene.wait_values("source-restart", range(40), range(30), range(100, 105))
            scene.wait_values("target-restart", range(len(kept["target-restart"])), range(45))
            scene.wait_values("target-skip", range(len(kept["target-skip"])), range(40, 45))
        assert scene.values("source-stop") == numbered(range(40))
        assert scene.values("target-stop") == kept["target-stop"]


def test_remote_topics_that_were_deleted(primary: Kafka, backup: Kafka, topic_name: str) -> None:
    policies = ("stop", "restart", "skip")
    scene = Scene(primary, backup, topic_name, *policies, "other")
    scene.feed(0, 40, *policies)
    mirror(scene.flow(*policies), *map(scene.topic, policies))
    with ExitStack() as stack:
        engines = {
            policy: stack.enter_context(Engine(scene.flow(policy, *more, target_lost=policy)))
            for policy, more in zip(policies, (("other",), (), ()), strict=True)
        }
        for policy, engine in engines.items():
            engine.wait_copied(scene.topic(policy))
        for policy in policies:
            delete_topic(backup, scene.remote(policy))
        scene.feed(40, 5, *policies)
        scene.feed(0, 50, "other")
        for policy in policies:
            incident = scene.wait_incident(policy, "target-lost")
            assert (incident.first, incident.policy, incident.target[1]) == (40, policy, 40)
        scene.wait_values("restart", range(45))
        scene.wait_values("skip", range(40, 45))
        scene.wait_parked(engines["stop"], "stop", "on.target.lost = restart")
        engines["stop"].wait_copied(scene.topic("other"))
    assert scene.remote("stop") not in AdminClient(backup.confluent()).list_topics(timeout=10).topics
    assert [len(scene.incidents(policy)) for policy in policies] == [1, 1, 1]
    scene.assert_same("other")


# -------------------- records that the target refuses


def keyless(first: int, count: int, every: int) -> list[Record]:
    """One in `every` has no key, which a compacted topic refuses."""
    return [one._replace(key=None) if n % every == 0 else one for n, one in enumerate(records(first, count), first)]


def test_records_that_are_refused(primary: Kafka, backup: Kafka, topic_name: str) -> None:
    """Without a key where the copy compacts, plain and compressed; with a time too far ahead and behind; by every
    policy."""
    any_time = {f"message.timestamp.{way}.max.ms": "864000000" for way in ("after", "before")}
    scene = Scene(
        primary, backup, topic_name, "none", "zstd", "ahead", "behind", "skip", "stop", "other", config=any_time
    )
    for topic in ("none", "zstd", "skip", "stop"):
        create_topic(backup.confluent(), scene.remote(topic), config={"cleanup.policy": "compact"})
    for topic, way in (("ahead", "after"), ("behind", "before")):
        limit = {f"message.timestamp.{way}.max.ms": "3600000"}
        create_topic(backup.confluent(), scene.remote(topic), config=limit)
    sent = {topic: keyless(0, 1000, 97) for topic in ("none", "zstd")}
    for topic, far_ms in (("ahead", 86_400_000), ("behind", -86_400_000)):
        sent[topic] = records(0, 50)
        sent[topic][20] = sent[topic][20]._replace(timestamp_ms=sent[topic][20].timestamp_ms + far_ms)
    for topic in ("skip", "stop"):
        sent[topic] = [one._replace(key=None) if n == 5 else one for n, one in enumerate(records(0, 10))]
    for topic, some in sent.items():
        codec = "zstd" if topic == "zstd" else "none"
        produce(primary.confluent(), scene.topic(topic), some, config={"compression.type": codec, "linger.ms": 200})
    scene.feed(0, 50, "other")
    quarantining = ("none", "zstd", "ahead", "behind", "other")
    with (
        Engine(scene.flow(*quarantining)) as engine,
        Engine(scene.flow("skip", refused="skip")) as skipping,
        Engine(scene.flow("stop", refused="stop")) as stopping,
    ):
        engine.wait_copied(*map(scene.topic, quarantining))
        skipping.wait_copied(scene.topic("skip"))
        scene.wait_parked(stopping, "stop", "source offset 5")
        scene.wait_parked(stopping, "stop", "on.refused = quarantine")
        engine.wait(lambda: engine.status().refused_records == 11 + 11 + 1 + 1 + 1, what="all counted")
        report = engine.coordinator.report()
    keys = list(range(0, 1000, 97))
    bad = {"none": keys, "zstd": keys, "ahead": [20], "behind": [20], "skip": [5], "stop": [5]}
    for topic, offsets in bad.items():
        found = scene.incidents(topic)
        assert [n for one in found for at, k in one.offsets for n in range(at, at + k)] == offsets
        assert {one.policy for one in found} == {topic if topic in ("skip", "stop") else "quarantine"}
        copied = read_all(backup.confluent(), scene.remote(topic))[0]
        expected = sent[topic][:5] if topic == "stop" else sent[topic]
        left = [one.content for n, one in enumerate(expected) if n not in offsets]
        assert [one.content for one in copied] in ([left, []] if topic == "stop" else [left])
        kept = scene.quarantined(topic)
        assert sorted(kept) == ([] if topic in ("skip", "stop") else offsets)
        for n, one in kept.items():
            record = one.record
            assert (record.key, record.value, record.headers, record.timestamp) == sent[topic][n].content
            assert ("INVALID_TIMESTAMP" if len(offsets) == 1 else "INVALID_RECORD") in one.reason
    held = {one.topic: one.counters["held"] for one in report.partitions}
    assert held == {scene.topic(topic): len(bad.get(topic, [])) for topic in quarantining}
    scene.assert_same("other")


def test_a_record_too_large_is_kept_and_sent_again(
    primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(primary, backup, topic_name, "large", config={"max.message.bytes": "4000000"})
    topic, copy = scene.topic("large"), scene.remote("large")
    create_topic(backup.confluent(), copy, config={"max.message.bytes": "50000"})
    sent = records(0, 30)
    sent[11] = sent[11]._replace(value=b"x" * 2_000_000)
    sent[29] = sent[29]._replace(value=b"y" * 60_000)
    produce(primary.confluent(), topic, sent, config={"message.max.bytes": 4_000_000, "linger.ms": 200})
    mirror(scene.flow("large"), topic)
    assert scene.values("large") == numbered(range(11), range(12, 29))
    assert sorted(scene.quarantined("large")) == [11, 29]
    clusters = {topic_name: primary.bootstrap, "backup": backup.bootstrap}
    servers = {f"{alias}.bootstrap.servers": address for alias, address in clusters.items()}
    file = write_file(
        tmp_path / "mm2.properties",
        {"clusters": ",".join(clusters), **servers, f"{topic_name}->backup.enabled": "true"},
    )
    capsys.readouterr()  # what the engine logged
    assert command(["quarantine", "list", str(file), topic, "-o", "json"]) == 0
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["offset"], one["value_bytes"]) for one in listed] == [(11, 2_000_000), (29, 60_000)]
    assert command(["quarantine", "resend", str(file), topic]) == 1, "the target still refuses them"
    assert sorted(scene.quarantined("large")) == [11, 29]
    set_config(backup, copy, "max.message.bytes", "70000")
    again = ["quarantine", "resend", str(file)]
    wait_until(lambda: command([*again, f"{topic}:0:29"]) == 0, what="the new limit")
    set_config(backup, copy, "max.message.bytes", "3000000")
    assert command(["quarantine", "show", str(file), f"{topic}:0:11"]) == 0
    wait_until(lambda: command([*again, topic]) == 0, what="the next limit")
    assert scene.quarantined("large") == {}
    copied = read_all(backup.confluent(), copy)[0]
    assert [one.content for one in copied[-2:]] == [sent[29].content, sent[11].content]
    assert len(copied) == 30
    capsys.readouterr()
    assert command(["incidents", str(file), "--topic", topic, "-o", "json"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(one["held"] for one in said) == 2


def test_crashes_between_refusals(primary: Kafka, backup: Kafka, topic_name: str) -> None:
    """A task dies again and again before it wrote a position: each record once, each refused one kept once."""
    scene = Scene(primary, backup, topic_name, "keyless")
    topic = scene.topic("keyless")
    create_topic(backup.confluent(), scene.remote("keyless"), config={"cleanup.policy": "compact"})
    sent: list[Record] = []
    for crash_after in (1, 150, 400):  # each time there is more left than that, however few batches it is sent in
        more = keyless(len(sent), 1000, 301)
        produce(primary.confluent(), topic, more, config={"batch.num.messages": 100})
        sent += more
        with Engine(scene.flow("keyless"), crash_after=crash_after) as engine:
            engine.wait_ended()
        assert engine.crashes == 1
    mirror(scene.flow("keyless"), topic)
    bad = list(range(0, 3000, 301))
    copied = read_all(backup.confluent(), scene.remote("keyless"))[0]
    assert [one.content for one in copied] == [one.content for n, one in enumerate(sent) if n not in bad]
    assert sorted(scene.quarantined("keyless")) == bad
    assert sum(one.held for one in scene.incidents("keyless")) == len(bad)


# -------------------- permission withdrawn


@contextmanager
def rule(kafka: Kafka, name: str, pattern: ResourcePatternType, *what: object) -> Iterator[None]:
    """On topics of this name or prefix, for alice, meanwhile."""
    binding = (ResourceType.TOPIC, name, pattern, "User:alice", "*", *what)
    admin = AdminClient(kafka.confluent())
    for future in admin.create_acls([AclBinding(*binding)]).values():
        future.result(30)
    try:
        yield
    finally:
        for future in admin.delete_acls([AclBindingFilter(*binding)]).values():
            future.result(30)


def test_permission_withdrawn_and_given_back(
    primary: Kafka, guarded_pair: tuple[Kafka, Kafka], topic_name: str
) -> None:
    guarded = guarded_pair[1]
    scene = Scene(primary, guarded, topic_name, "denied", "other")
    scene.feed(0, 20, "denied", "other")
    names = scene.topic("denied"), scene.topic("other")
    flow = one_flow(primary.cluster(topic_name), guarded.cluster(user="alice"), *names)
    may = AclOperation.ALL, AclPermissionType.ALLOW
    may_not = AclOperation.WRITE, AclPermissionType.DENY
    with ExitStack() as stack:
        for prefix in (topic_name, "mm2-"):
            stack.enter_context(rule(guarded, prefix, ResourcePatternType.PREFIXED, *may))
        engine = stack.enter_context(Engine(flow))
        engine.wait_copied(*names)
        with rule(guarded, scene.remote("denied"), ResourcePatternType.LITERAL, *may_not):
            scene.feed(20, 10, "denied", "other")
            incident = scene.wait_incident("denied", "denied")
            assert (incident.first, incident.policy) == (20, "stop")
            scene.wait_parked(engine, "denied", "AUTHORIZATION")
            engine.wait_copied(names[1])
        engine.wait_copied(names[0])
        for topic in ("denied", "other"):
            scene.assert_same(topic)
        assert len(scene.incidents("denied")) == 1
