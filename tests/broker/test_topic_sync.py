"""Remote topics as they should be: settings, partitions and permissions follow the source's, by MM2's rules.

The scenarios of MM2's own suite carry its names: testSyncTopicConfigs, testReplicateSourceDefault,
testReplicateTargetDefault, testCreatePartitions…, testSyncTopicACLs…. What brokers hold is read by confluent-kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)
from structlog.typing import EventDict

from heliograph.embedded import QUICK_MM2_JVM, Kafka, MirrorMaker, mm2_properties
from heliograph.policy import IDENTITY_POLICY
from heliograph.survey.topics import Survey, Topics
from heliograph.sync.acls import AclSync
from heliograph.sync.configs import ConfigSync
from heliograph.types import Cluster, Flow, Naming
from heliograph.wire import Client
from tests.broker.engine import Engine, assert_same, one_flow
from tests.kit import Record, alter_topic, create_topic, end_offsets, own_settings, produce, wait_until

EXCLUDE = (r"delete\.retention\..*",)  # as MM2's suite has it
IDENTITY = Naming(policy=IDENTITY_POLICY)


class Pair:
    """A flow's two clusters and what keeps its topics, without an engine."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.source, self.target = Client(flow.source), Client(flow.target)
        self.topics = Topics(flow, self.source, self.target)
        self.configs = ConfigSync(flow, self.source, self.target, altered=self.topics.forget_limits)
        self.acls = AclSync(flow, self.source, self.target)

    def close(self) -> None:
        self.source.close()
        self.target.close()


@pytest.fixture
def open_pairs() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def a_pair(stack: ExitStack, source: Cluster, target: Cluster, *topics: str, **more: Any) -> Pair:
    # Other tests of these clusters may leave heartbeats.
    pair = Pair(one_flow(source, target, *topics, heartbeats_replication=False, **more))
    stack.callback(pair.close)
    return pair


def settings(kafka: Kafka, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient(kafka.confluent())  # an admin that is collected takes its futures with it
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(30)
    return found


def value(kafka: Kafka, topic: str, key: str) -> str:
    return str(settings(kafka, topic)[key].value)


def alter(kafka: Kafka, topic: str, **changes: str | None) -> None:
    """By confluent-kafka; `retention_ms=None` removes the topic's own value."""
    alter_topic(kafka.confluent(), topic, {name.replace("_", "."): new for name, new in changes.items()})
    wait_until(
        lambda: all(new is None or value(kafka, topic, name.replace("_", ".")) == new for name, new in changes.items()),
        what="the settings",
    )


def grow(kafka: Kafka, topic: str, count: int) -> None:
    admin = AdminClient(kafka.confluent())
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(30)
    wait_until(lambda: len(end_offsets(kafka.confluent(), topic)) == count, what=f"{count} partitions")


def partitions(survey: Survey) -> int:
    return len(survey.routes)


# ---- settings


def test_a_new_copy_has_its_sources_settings(
    primary: Kafka, backup: Kafka, topic_name: str, open_pairs: ExitStack
) -> None:
    """MM2's createAndTestNewTopicWithConfigFilter: an excluded property is not copied while an included one is."""
    config = {"cleanup.policy": "compact", "delete.retention.ms": "1000", "retention.bytes": "1000"}
    create_topic(primary.confluent(), topic_name, 3, config=config)
    pair = a_pair(open_pairs, primary.cluster(), backup.cluster(), topic_name, config_properties_exclude=EXCLUDE)
    assert partitions(pair.topics.survey()) == 3
    copy = settings(backup, f"primary.{topic_name}")
    assert (copy["cleanup.policy"].value, copy["retention.bytes"].value) == ("compact", "1000")
    assert copy["delete.retention.ms"].is_default
    assert pair.configs.sync({topic_name: f"primary.{topic_name}"}) == 0  # nothing left to do


def test_sync_topic_configs(primary: Kafka, backup: Kafka, topic_name: str, open_pairs: ExitStack) -> None:
    """Drift on the target: an included property is reverted to the source's value, an excluded one is left. MM2
    shortens the target's retention; we do when told."""
    config = {"delete.retention.ms": "1000", "retention.bytes": "1000"}
    create_topic(primary.confluent(), topic_name, config=config)
    pair = a_pair(
        open_pairs, primary.cluster(), backup.cluster(), topic_name,
        config_properties_exclude=EXCLUDE, shorten_retention=True,
    )  # fmt: skip
    pair.topics.survey()
    remote = f"primary.{topic_name}"
    alter(backup, remote, delete_retention_ms="2000", retention_bytes="2000")
    assert pair.configs.sync({topic_name: remote}) == 1
    wait_until(lambda: value(backup, remote, "retention.bytes") == "1000", what="reverted")
    assert value(backup, remote, "delete.retention.ms") == "2000"
    assert pair.configs.sync({topic_name: remote}) == 0


def test_replicate_source_default(primary: Kafka, backup: Kafka, topic_name: str, open_pairs: ExitStack) -> None:
    create_topic(primary.confluent(), topic_name)
    remote = create_topic(backup.confluent(), f"primary.{topic_name}", config={"retention.bytes": "1000"})
    pair = a_pair(
        open_pairs, primary.cluster(), backup.cluster(), topic_name,
        config_properties_exclude=EXCLUDE, use_defaults_from="source",
    )  # fmt: skip
    pair.topics.survey()
    assert pair.configs.sync({topic_name: remote}) == 1
    wait_until(lambda: value(backup, remote, "retention.bytes") == "-1", what="the source's default")
    copy = settings(backup, remote)
    assert not copy["retention.bytes"].is_default  # set on the topic, whatever the target's default becomes
    assert copy["delete.retention.ms"].is_default  # excluded
    assert pair.configs.sync({topic_name: remote}) == 0


def test_a_new_copy_has_its_sources_defaults_when_asked(
    primary: Kafka, backup: Kafka, topic_name: str, open_pairs: ExitStack
) -> None:
    create_topic(primary.confluent(), topic_name)
    pair = a_pair(open_pairs, primary.cluster(), backup.cluster(), topic_name, use_defaults_from="source")
    assert partitions(pair.topics.survey()) == 1
    assert not settings(backup, f"primary.{topic_name}")["retention.bytes"].is_default
    assert pair.configs.sync({topic_name: f"primary.{topic_name}"}) == 0


def test_replicate_target_default(primary: Kafka, backup: Kafka, topic_name: str, open_pairs: ExitStack) -> None:
    """Removing an override on the source resets the target to its default; so is one made by hand on the target."""
    create_topic(primary.confluent(), topic_name, config={"retention.bytes": "1000"})
    remote = f"primary.{topic_name}"
    pair = a_pair(open_pairs, primary.cluster(), backup.cluster(), topic_name, config_properties_exclude=EXCLUDE)
    pair.topics.survey()
    assert value(backup, remote, "retention.bytes") == "1000"
    alter(primary, topic_name, retention_bytes=None)
    alter(backup, remote, flush_messages="9")
    wait_until(lambda: settings(primary, topic_name)["retention.bytes"].is_default, what="removed")
    assert pair.configs.sync({topic_name: remote}) == 1
    wait_until(lambda: settings(backup, remote)["retention.bytes"].is_default, what="the target's default")
    assert settings(backup, remote)["flush.messages"].is_default
    assert pair.configs.sync({topic_name: remote}) == 0


def test_a_topic_that_is_gone_does_not_stop_the_others(
    primary: Kafka, backup: Kafka, topic_name: str, open_pairs: ExitStack, logs: list[EventDict]
) -> None:
    create_topic(primary.confluent(), topic_name, config={"flush.ms": "1000"})
    remote = create_topic(backup.confluent(), f"primary.{topic_name}")
    pair = a_pair(open_pairs, primary.cluster(), backup.cluster(), topic_name)
    assert pair.configs.sync({"absent": "primary.absent", topic_name: remote}) == 1
    assert [line["topic"] for line in logs if line["log_level"] == "warning"] == ["absent"]
    wait_until(lambda: value(backup, remote, "flush.ms") == "1000", what="the other's setting")


def test_a_larger_limit_is_seen_by_the_next_survey(
    primary: Kafka, backup: Kafka, topic_name: str, open_pairs: ExitStack
) -> None:
    create_topic(primary.confluent(), topic_name, config={"max.message.bytes": "50000"})
    pair = a_pair(open_pairs, primary.cluster(), backup.cluster(), topic_name)
    assert [route.max_batch_bytes for route in pair.topics.survey().routes] == [50_000]
    alter(primary, topic_name, max_message_bytes="90000")
    assert pair.configs.sync({topic_name: f"primary.{topic_name}"}) == 1
    wait_until(lambda: value(backup, f"primary.{topic_name}", "max.message.bytes") == "90000", what="the new limit")
    assert [route.max_batch_bytes for route in pair.topics.survey().routes] == [90_000]


def test_durability_is_kept_and_a_copy_can_be_appended_to(
    primary: Kafka, backup: Kafka, topic_name: str, open_pairs: ExitStack, logs: list[EventDict]
) -> None:
    """min.insync.replicas above the copy's one replica would stop it; unclean elections it gets only when told."""
    config = {"min.insync.replicas": "2", "unclean.leader.election.enable": "true", "retention.bytes": "1000"}
    create_topic(primary.confluent(), topic_name, config=config)
    remote = f"primary.{topic_name}"
    pair = a_pair(open_pairs, primary.cluster(), backup.cluster(), topic_name, config_properties_exclude=())
    assert partitions(pair.topics.survey()) == 1
    assert pair.configs.sync({topic_name: remote}) == 0
    copy = settings(backup, remote)
    assert copy["retention.bytes"].value == "1000"
    assert copy["min.insync.replicas"].value == "1"
    assert copy["unclean.leader.election.enable"].is_default
    produce(backup.confluent(), remote, [Record(b"k", b"v")])
    reasons = [f"{line['why']} {line['fix']}" for line in logs if line["log_level"] == "warning"]
    assert any("min.insync.replicas = 2 is more than its 1 replicas" in reason for reason in reasons)
    assert any("unclean.leader.election.enable" in r and "sync.topic.configs.lower.durability" in r for r in reasons)

    told = a_pair(
        open_pairs, primary.cluster(), backup.cluster(), topic_name, config_properties_exclude=(), lower_durability=True
    )
    assert told.configs.sync({topic_name: remote}) == 1
    wait_until(lambda: value(backup, remote, "unclean.leader.election.enable") == "true", what="as told")
    assert value(backup, remote, "min.insync.replicas") == "1"


def test_an_archive_keeps_its_records_unless_told(
    primary: Kafka, backup: Kafka, topic_name: str, open_pairs: ExitStack, logs: list[EventDict]
) -> None:
    """A copy that is kept for ever does not fall back to the target's default, nor is it compacted: MM2 does both."""
    create_topic(primary.confluent(), topic_name, config={"cleanup.policy": "compact", "flush.ms": "1000"})
    keeps = {"retention.ms": "-1", "cleanup.policy": "delete"}
    remote = create_topic(backup.confluent(), f"primary.{topic_name}", config=keeps)
    produce(backup.confluent(), remote, [Record(b"k", b"v")])
    pair = a_pair(open_pairs, primary.cluster(), backup.cluster(), topic_name)
    assert pair.configs.sync({topic_name: remote}) == 1  # flush.ms
    wait_until(lambda: value(backup, remote, "flush.ms") == "1000", what="the harmless setting")
    assert pair.configs.sync({topic_name: remote}) == 0
    assert own_settings(backup.confluent(), remote) == keeps | {"flush.ms": "1000"}
    warned = {line["setting"]: line for line in logs if line["log_level"] == "warning"}
    assert warned.keys() == {"retention.ms", "cleanup.policy"}
    assert "the default of retention.ms (604800000) instead of -1" in warned["retention.ms"]["why"]
    assert "sync.topic.configs.shorten.retention = true" in warned["retention.ms"]["fix"]

    told = a_pair(open_pairs, primary.cluster(), backup.cluster(), topic_name, shorten_retention=True)
    assert told.configs.sync({topic_name: remote}) == 1
    wait_until(lambda: "retention.ms" not in own_settings(backup.confluent(), remote), what="as told")
    assert value(backup, remote, "cleanup.policy") == "compact"


def test_a_compacted_copy_does_not_begin_to_delete_unless_told(
    primary: Kafka, backup: Kafka, topic_name: str, open_pairs: ExitStack
) -> None:
    create_topic(primary.confluent(), topic_name, config={"cleanup.policy": "compact"})
    remote = f"primary.{topic_name}"
    pair = a_pair(open_pairs, primary.cluster(), backup.cluster(), topic_name)
    pair.topics.survey()
    alter(primary, topic_name, cleanup_policy="delete")
    assert pair.configs.sync({topic_name: remote}) == 0
    assert value(backup, remote, "cleanup.policy") == "compact"
    told = a_pair(open_pairs, primary.cluster(), backup.cluster(), topic_name, shorten_retention=True)
    assert told.configs.sync({topic_name: remote}) == 1


# ---- partitions


def test_create_partitions(primary: Kafka, backup: Kafka, topic_name: str) -> None:
    """10 partitions become 11 while the flow runs, and the new one is copied."""
    create_topic(primary.confluent(), topic_name, 10, config={"cleanup.policy": "compact"})
    remote = f"primary.{topic_name}"
    records = [Record(b"k%d" % n, b"v%d" % n, partition=n % 10) for n in range(100)]
    produce(primary.confluent(), topic_name, records)
    with Engine(one_flow(primary.cluster(), backup.cluster(), topic_name)) as engine:
        engine.wait_copied(topic_name)
        assert len(end_offsets(backup.confluent(), remote)) == 10
        assert value(backup, remote, "cleanup.policy") == "compact"
        grow(primary, topic_name, 11)
        produce(primary.confluent(), topic_name, [Record(b"new", b"%d" % n, partition=10) for n in range(7)])
        engine.wait(lambda: len(end_offsets(backup.confluent(), remote)) == 11, what="11 partitions")
        engine.wait_copied(topic_name)
        assert engine.status().parked == ()
    assert assert_same(primary, backup, topic_name, remote) == {**dict.fromkeys(range(10), 10), 10: 7}


def test_a_copy_with_more_partitions_is_left_alone(
    primary: Kafka, backup: Kafka, topic_name: str, open_pairs: ExitStack
) -> None:
    create_topic(primary.confluent(), topic_name, 2)
    create_topic(backup.confluent(), f"primary.{topic_name}", 5)
    survey = a_pair(open_pairs, primary.cluster(), backup.cluster(), topic_name).topics.survey()
    assert partitions(survey) == 2
    assert survey.parked == ()
    assert len(end_offsets(backup.confluent(), f"primary.{topic_name}")) == 5


def test_identity_takes_the_targets_topic_of_that_name(
    primary: Kafka, backup: Kafka, topic_name: str, open_pairs: ExitStack
) -> None:
    create_topic(primary.confluent(), topic_name, 3, config={"flush.ms": "1000"})
    create_topic(backup.confluent(), topic_name, 1)
    pair = a_pair(open_pairs, primary.cluster(), backup.cluster(), topic_name, naming=IDENTITY)
    survey = pair.topics.survey()
    assert {route.remote.topic for route in survey.routes} == {topic_name}
    assert partitions(survey) == len(end_offsets(backup.confluent(), topic_name)) == 3
    assert pair.configs.sync({topic_name: topic_name}) == 1
    wait_until(lambda: value(backup, topic_name, "flush.ms") == "1000", what="the setting")


# ---- permissions


READ, WRITE, ALL, DESCRIBE, ALTER = (
    AclOperation.READ, AclOperation.WRITE, AclOperation.ALL, AclOperation.DESCRIBE, AclOperation.ALTER,
)  # fmt: skip
READING = (READ, DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
Rule = tuple[AclOperation, AclPermissionType]


def allow(
    kafka: Kafka,
    name: str,
    *rules: Rule,
    kind: ResourceType = ResourceType.TOPIC,
    pattern: ResourcePatternType = LITERAL,
) -> None:
    admin = AdminClient(kafka.confluent())
    bindings = [AclBinding(kind, name, pattern, "User:alice", "*", *rule) for rule in rules]
    for future in admin.create_acls(bindings).values():
        future.result(30)
    wait_until(lambda: set(rules) <= rules_of(kafka, name, kind), what="the ACLs")


def rules_of(kafka: Kafka, name: str, kind: ResourceType = ResourceType.TOPIC) -> set[Rule]:
    any_of = AclBindingFilter(kind, name, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
    admin = AdminClient(kafka.confluent())
    found = admin.describe_acls(any_of).result(30)
    assert all((one.principal, one.host) == ("User:alice", "*") for one in found)
    return {(one.operation, one.permission_type) for one in found}


def seen_by_alice(kafka: Kafka) -> set[str]:
    return set(AdminClient({**kafka.confluent(user="alice"), "log_level": 0}).list_topics(timeout=10).topics)


def test_sync_topic_acls(guarded_pair: tuple[Kafka, Kafka], topic_name: str, open_pairs: ExitStack) -> None:
    """Both ways: a DESCRIBE comes over to the renamed topic, what is not for reading does not, and what is there is not
    added again."""
    for source, target in (guarded_pair, guarded_pair[::-1]):
        topic, remote = f"{topic_name}-{source.name}", f"{source.name}.{topic_name}-{source.name}"
        create_topic(source.confluent(), topic)
        allow(source, topic, (DESCRIBE, ALLOW), (WRITE, ALLOW), (WRITE, DENY), (ALTER, DENY))
        allow(source, f"{topic}-all", (ALL, ALLOW))
        allow(source, topic[:-2], (READ, ALLOW), pattern=PREFIXED)
        create_topic(source.confluent(), f"{topic}-all")
        pair = a_pair(open_pairs, source.cluster(), target.cluster(), f"{topic}.*")
        pair.topics.survey()
        pairs = {topic: remote, f"{topic}-all": f"{remote}-all"}
        assert remote not in seen_by_alice(target)
        assert pair.acls.sync(pairs) == 2
        wait_until(lambda t=target, r=remote: rules_of(t, r) == {(DESCRIBE, ALLOW)}, what="the ACLs")
        wait_until(lambda t=target, r=remote: rules_of(t, f"{r}-all") == {(READ, ALLOW)}, what="ALL as READ")
        wait_until(lambda t=target, r=remote: {r, f"{r}-all"} <= seen_by_alice(t), what="what alice may see")
        assert pair.acls.sync(pairs) == 0


def test_settings_and_acls_are_those_that_mirrormaker_gives(
    guarded_pair: tuple[Kafka, Kafka], topic_name: str, open_pairs: ExitStack
) -> None:
    """The real MM2 and we, side by side: a new copy, one that drifted, who may read the one and who may not read the
    other; with the target's defaults and with the source's, by a flow each. (MM2 carries over ALTER, DELETE and denials
    of writing too, and shortens retention without being told.)"""
    west, east = guarded_pair
    names = (f"{topic_name}-new", f"{topic_name}-drifted")
    config = {"cleanup.policy": "compact", "retention.bytes": "1000", "min.insync.replicas": "1", "flush.ms": "7000"}
    for name in names:
        create_topic(west.confluent(), name, 2, config=config)
    allow(west, names[0], *((operation, ALLOW) for operation in (*READING, ALL, WRITE)))
    allow(west, names[1], *((operation, DENY) for operation in READING))
    drift = {"cleanup.policy": "delete", "segment.bytes": "20000000", "message.timestamp.type": "LogAppendTime"}
    kinds = ("target", "source")
    for alias in (f"{who}-{defaults}" for who in ("theirs", "ours") for defaults in kinds):
        create_topic(east.confluent(), f"{alias}.{names[1]}", 1, config=drift)

    for defaults in kinds:
        ours = west.cluster(f"ours-{defaults}")
        pair = a_pair(
            open_pairs, ours, east.cluster(), f"{topic_name}.*", use_defaults_from=defaults, shorten_retention=True
        )
        pairs = {name: f"{ours.alias}.{name}" for name in names}
        assert partitions(pair.topics.survey()) == 4
        assert pair.configs.sync(pairs) == 1
        assert pair.acls.sync(pairs) > 0

    def made(who: str) -> dict[tuple[str, str], tuple[dict[str, str], set[Rule], int]]:
        there = AdminClient(east.confluent()).list_topics(timeout=10).topics
        copies = {(kind, name): f"{who}-{kind}.{name}" for kind in kinds for name in names}
        return {
            which: (own_settings(east.confluent(), copy), rules_of(east, copy), len(there[copy].partitions))
            for which, copy in copies.items()
            if copy in there
        }

    properties: dict[str, str] = {}
    for defaults in kinds:
        theirs = west.cluster(f"theirs-{defaults}")
        properties |= mm2_properties(theirs, east.cluster(), topics=f"{topic_name}.*")
        properties[f"{theirs.alias}->east.use.defaults.from"] = defaults
    properties |= {"clusters": "theirs-target, theirs-source, east", "emit.heartbeats.enabled": "false"}
    for what in ("refresh.topics", "sync.topic.configs", "sync.topic.acls"):
        properties[f"{what}.interval.seconds"] = "1"
    with MirrorMaker(properties, jvm=QUICK_MM2_JVM) as mm2:

        def same() -> bool:
            mm2.require_running()
            return made("theirs") == made("ours")

        try:
            wait_until(same, what="the same from both", timeout_seconds=90)
        except TimeoutError:
            assert made("ours") == made("theirs")  # says where they differ
            raise
        assert len(made("theirs")) == 4


Bound = tuple[str, AclOperation, AclPermissionType]


def bind(kafka: Kafka, *bindings: AclBinding) -> None:
    admin = AdminClient(kafka.confluent())  # an admin that is collected takes its futures with it
    for future in admin.create_acls(list(bindings)).values():
        future.result(30)


def on_topic(name: str, principal: str, operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, name, LITERAL, principal, "*", operation, permission)


def bound(kafka: Kafka, name: str) -> set[Bound]:
    """Every ACL on this very topic."""
    any_of = AclBindingFilter(
        ResourceType.TOPIC, name, LITERAL, None, None, AclOperation.ANY, AclPermissionType.ANY
    )  # fmt: skip
    admin = AdminClient(kafka.confluent())
    found = admin.describe_acls(any_of).result(30)
    return {(one.principal, one.operation, one.permission_type) for one in found}


def test_denials_of_the_source_do_not_lock_us_out(
    guarded_pair: tuple[Kafka, Kafka], topic_name: str, open_pairs: ExitStack
) -> None:
    """We are alice on the target, no super user. The source denies alice and everybody everything: MM2, and 0.1, carry
    that over, and may not write any more."""
    west, east = guarded_pair
    create_topic(west.confluent(), topic_name)
    for who in ("User:alice", "User:*"):
        bind(west, *(on_topic(topic_name, who, what, DENY) for what in (ALL, WRITE, READ, DESCRIBE)))
        bind(west, on_topic(topic_name, who, READ, ALLOW))
    remote = create_topic(east.confluent(), f"west.{topic_name}")
    mine = {("User:alice", what, ALLOW) for what in (READ, WRITE)}
    bind(east, *(on_topic(remote, *rule) for rule in mine))
    on_cluster = (ResourceType.BROKER, "kafka-cluster", LITERAL, "User:alice", "*")
    managing = [(*on_cluster, what, ALLOW) for what in (DESCRIBE, ALTER)]
    bind(east, *(AclBinding(*one) for one in managing))
    try:
        pair = a_pair(open_pairs, west.cluster(), east.cluster(user="alice"), topic_name)
        wait_until(lambda: isinstance(pair.target.describe_acls(), list), what="permission to read ACLs")
        assert pair.acls.sync({topic_name: remote}) == 0
        assert len(pair.acls.withheld) > 0
        assert bound(east, remote) == mine
        produce(east.confluent(user="alice"), remote, [Record(b"k", b"v")])
    finally:
        admin = AdminClient(east.confluent())
        for future in admin.delete_acls([AclBindingFilter(*one) for one in managing]).values():
            future.result(30)


def test_who_is_kept_out_by_a_prefix_on_the_source_is_kept_out_of_the_copy(
    guarded_pair: tuple[Kafka, Kafka], topic_name: str, open_pairs: ExitStack
) -> None:
    """Everybody may read two topics; a denial on a prefix keeps alice from one of them. 0.1 dropped that denial."""
    west, east = guarded_pair
    secret, public = f"{topic_name}-secret", f"{topic_name}-public"
    for name in (secret, public):
        create_topic(west.confluent(), name)
        bind(west, on_topic(name, "User:*", READ, ALLOW))
    bind(west, AclBinding(ResourceType.TOPIC, f"{topic_name}-sec", PREFIXED, "User:alice", "*", ALL, DENY))
    pair = a_pair(open_pairs, west.cluster(), east.cluster(), f"{topic_name}.*")
    pair.topics.survey()
    pairs = {name: f"west.{name}" for name in (secret, public)}
    assert pair.acls.sync(pairs) == 4
    assert bound(east, pairs[public]) == {("User:*", READ, ALLOW)}
    denied = {("User:alice", what, DENY) for what in (READ, DESCRIBE)}
    assert bound(east, pairs[secret]) == {("User:*", READ, ALLOW)} | denied
    wait_until(lambda: pairs[public] in seen_by_alice(east), what="what alice may see")
    assert pairs[secret] not in seen_by_alice(east)
    assert pair.acls.sync(pairs) == 0


@pytest.mark.parametrize("without", ["source", "target"])
def test_no_authorizer(
    guarded_pair: tuple[Kafka, Kafka],
    primary: Kafka,
    topic_name: str,
    open_pairs: ExitStack,
    without: str,
    logs: list[EventDict],
) -> None:
    west = guarded_pair[0]
    source, target = (primary, west) if without == "source" else (west, primary)
    create_topic(source.confluent(), topic_name)
    if without == "target":
        allow(west, topic_name, (READ, ALLOW))
    pair = a_pair(open_pairs, source.cluster(), target.cluster(), topic_name)
    assert [pair.acls.sync({topic_name: f"{source.name}.{topic_name}"}) for _ in range(2)] == [0, 0]
    assert [(line["log_level"], line["cluster"]) for line in logs] == [("info", "primary")]


def test_partitions_that_may_not_be_added_are_parked(
    guarded_pair: tuple[Kafka, Kafka], primary: Kafka, topic_name: str, open_pairs: ExitStack, logs: list[EventDict]
) -> None:
    west = guarded_pair[0]
    remote = create_topic(west.confluent(), f"primary.{topic_name}", 1)
    create_topic(primary.confluent(), topic_name, 3)
    allow(west, remote, (READ, ALLOW), (WRITE, ALLOW), (DESCRIBE, ALLOW))
    pair = a_pair(open_pairs, primary.cluster(), west.cluster(user="alice"), topic_name)
    survey = pair.topics.survey()
    assert pair.topics.survey() == survey
    assert [route.tp.partition for route in survey.routes] == [0]
    assert [one.partition for one in survey.parked] == [1, 2]
    for one in survey.parked:
        assert f"{remote} has 1 partitions, its source {topic_name} has 3" in one.reason
        assert "TOPIC_AUTHORIZATION_FAILED" in one.reason
        assert f"ALTER on {remote}" in one.fix
        assert f"kafka-topics --alter --topic {remote} --partitions 3" in one.fix
    assert len([line for line in logs if line["log_level"] == "warning"]) == 1  # said once
    allow(west, remote, (ALTER, ALLOW))
    survey = pair.topics.survey()
    assert partitions(survey) == 3
    assert survey.parked == ()


def test_settings_that_may_not_be_read_park_the_topic(
    guarded_pair: tuple[Kafka, Kafka], backup: Kafka, topic_name: str, open_pairs: ExitStack
) -> None:
    """Its copy would have the wrong retention, and could lose records that its source keeps."""
    west = guarded_pair[0]
    create_topic(west.confluent(), topic_name, config={"cleanup.policy": "compact"})
    allow(west, topic_name, (READ, ALLOW))
    pair = a_pair(open_pairs, west.cluster(user="alice"), backup.cluster(), topic_name)
    survey = pair.topics.survey()
    assert (survey.routes, len(survey.parked)) == ((), 1)
    assert f"DESCRIBE_CONFIGS on {topic_name}" in survey.parked[0].fix
    allow(west, topic_name, (AclOperation.DESCRIBE_CONFIGS, ALLOW))
    assert partitions(pair.topics.survey()) == 1
    assert value(backup, f"west.{topic_name}", "cleanup.policy") == "compact"
