"""Consumer groups, ACLs and topic settings by our wire, with confluent-kafka as the other party, on real brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as TheirPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from heliograph.embedded import Kafka
from heliograph.errors import BrokerError
from heliograph.types import TopicPartition
from heliograph.wire import Acl, Client, Committed, NewTopic, topics, versions
from heliograph.wire.acls import ALL, DENY, DESCRIBE, PREFIXED, READ, WRITE
from tests.kit import create_topic, wait_until

UNKNOWN_MEMBER_ID, MEMBER_ID_REQUIRED = 25, 79


@pytest.fixture(scope="module")
def three() -> Iterator[Kafka]:
    with Kafka("groups", brokers=3, config={"auto.create.topics.enable": "false"}) as kafka:
        yield kafka


@pytest.fixture
def guarded(guarded_pair: tuple[Kafka, Kafka]) -> Kafka:
    return guarded_pair[0]


@pytest.fixture
def client(three: Kafka) -> Iterator[Client]:
    with Client(three.cluster("west")) as client:
        yield client


# Brokers' versions before 3.0 name one group a request; 4.3 still speaks them.
OLD = {"find_coordinator": (3, 3), "offset_fetch": (7, 7), "offset_commit": (8, 8), "describe_groups": (5, 5)}


@pytest.fixture(params=["newest", "one by one"])
def speaking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "one by one":
        for api, spoken in OLD.items():
            monkeypatch.setitem(versions.SPOKEN, api, spoken)  # type: ignore[arg-type]  # a dict, written as a Mapping


@contextmanager
def member(kafka: Kafka, group: str, topic: str, **config: str) -> Iterator[Consumer]:
    """A consumer of this group that has its partitions: the group is live."""
    consumer = Consumer(
        {**kafka.confluent(), "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False, **config}
    )
    consumer.subscribe([topic])

    def assigned() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    try:
        wait_until(assigned, what=f"{group} assigned")
        yield consumer
    finally:
        consumer.close()


def commit(kafka: Kafka, group: str, *offsets: TheirPartition) -> None:
    admin = AdminClient(kafka.confluent())  # an admin that is collected takes its futures with it

    def done() -> bool:
        """librdkafka does not try again where the coordinator is still loading."""
        request = [ConsumerGroupTopicPartitions(group, list(offsets))]
        results = admin.alter_consumer_group_offsets(request)[group].result(30).topic_partitions
        return all(one.error is None for one in results)

    wait_until(done, what=f"offsets of {group}")


def committed(kafka: Kafka, group: str) -> dict[TopicPartition, int]:
    """What confluent-kafka reads of a group. (Not the metadata, which it takes for a string that ends with a zero.)"""
    request = [ConsumerGroupTopicPartitions(group)]
    admin = AdminClient(kafka.confluent())
    found = admin.list_consumer_group_offsets(request)[group].result(30)
    return {TopicPartition(one.topic, one.partition): one.offset for one in found.topic_partitions}


def join_as(client: Client, group: str, protocol_type: str) -> None:
    """A member that is no consumer, as Connect's workers are: the group stays while its session lasts."""
    home = client.call("find_coordinator", at_most=3, key=group, key_type=0).node_id
    fields = {
        "group_id": group,
        "session_timeout": 60_000,
        "rebalance_timeout": 60_000,
        "protocol_type": protocol_type,
        "protocols": [{"name": "any", "metadata": b""}],
    }
    answer = client.call("join_group", broker=home, member_id="", **fields)
    assert answer.error_code == MEMBER_ID_REQUIRED
    assert client.call("join_group", broker=home, member_id=answer.member_id, **fields).error_code == 0


# -- groups ------------------------------------------------------------------------------------------------------------


def test_every_consumer_group_of_every_broker_is_listed(three: Kafka, client: Client, topic_name: str) -> None:
    create_topic(three.confluent(), topic_name, 2)
    empty = [f"{topic_name}-{n}" for n in range(12)]  # over the coordinators of 4 partitions
    for group in empty:
        commit(three, group, TheirPartition(topic_name, 0, 7))
    join_as(client, f"{topic_name}-connect", "connect")
    with (
        member(three, f"{topic_name}-live", topic_name),
        member(three, f"{topic_name}-new", topic_name, **{"group.protocol": "consumer"}),
    ):
        listed = {group: state for group, state in client.list_groups().items() if group.startswith(topic_name)}
        admin = AdminClient(three.confluent())
        theirs = admin.list_consumer_groups().result(30).valid
    live = {f"{topic_name}-live": "Stable", f"{topic_name}-new": "Stable"}
    assert listed == {**dict.fromkeys(empty, "Empty"), **live}
    assert {one.group_id for one in theirs} >= set(listed)


def test_offsets_of_many_groups(three: Kafka, client: Client, topic_name: str, speaking: None) -> None:
    other = create_topic(three.confluent(), f"{topic_name}-other", 1)
    create_topic(three.confluent(), topic_name, 3)
    groups = [f"{topic_name}-{n}" for n in range(10)]
    for n, group in enumerate(groups):
        commit(three, group, TheirPartition(topic_name, n % 3, 100 + n), TheirPartition(other, 0, n))
    with member(three, f"{topic_name}-meta", topic_name) as consumer:
        consumer.commit(offsets=[TheirPartition(topic_name, 1, 5, "a note")], asynchronous=False)
        found = client.group_offsets([*groups, f"{topic_name}-meta", f"{topic_name}-unknown"])
    for group in [*groups, f"{topic_name}-meta"]:
        ours = found[group]
        assert isinstance(ours, dict)
        assert {tp: one.offset for tp, one in ours.items()} == committed(three, group)
    assert found[groups[4]] == {
        TopicPartition(topic_name, 1): Committed(104),
        TopicPartition(other, 0): Committed(4),
    }
    noted = found[f"{topic_name}-meta"]
    assert isinstance(noted, dict)
    assert noted[TopicPartition(topic_name, 1)].metadata == "a note\0"  # as confluent-kafka writes it
    assert found[f"{topic_name}-unknown"] == {}


def test_more_groups_than_one_request_takes(primary: Kafka, topic_name: str) -> None:
    create_topic(primary.confluent(), topic_name)
    tp = TopicPartition(topic_name, 0)
    groups = [f"{topic_name}-{n}" for n in range(230)]
    with Client(primary.cluster("west")) as client:
        for n, group in enumerate(groups):
            assert client.commit_group_offsets(group, {tp: Committed(n)}) == {tp: None}
        assert client.group_offsets(groups) == {group: {tp: Committed(n)} for n, group in enumerate(groups)}
        assert client.describe_groups(groups) == dict.fromkeys(groups, "Empty")


def test_states(three: Kafka, client: Client, topic_name: str, speaking: None) -> None:
    create_topic(three.confluent(), topic_name, 2)
    live, new, empty, unknown = (f"{topic_name}-{word}" for word in ("live", "new", "empty", "unknown"))
    commit(three, empty, TheirPartition(topic_name, 0, 7))
    with member(three, live, topic_name), member(three, new, topic_name, **{"group.protocol": "consumer"}):
        found = client.describe_groups([live, new, empty, unknown])
        assert found == {live: "Stable", new: "Stable", empty: "Empty", unknown: "Dead"}
    # A group without members and offsets goes; the new protocol's stays a while.
    assert client.describe_groups([live, new])[new] in ("Empty", "Dead")


def test_offsets_that_we_commit_are_read_by_others(
    three: Kafka, client: Client, topic_name: str, speaking: None
) -> None:
    create_topic(three.confluent(), topic_name, 2)
    group = f"{topic_name}-group"
    first, second, absent = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1), TopicPartition("absent", 0)
    mine = {first: Committed(41, 3, "m"), second: Committed(0)}
    # The coordinator may not have heard of the new topic yet.
    wait_until(lambda: not any(client.commit_group_offsets(group, mine).values()), what="our commit")
    assert committed(three, group) == {first: 41, second: 0}
    assert client.group_offsets([group]) == {group: {first: Committed(41, -1, "m"), second: Committed(0)}}
    assert client.list_groups()[group] == "Empty"
    # The one that does not exist is refused at once, the other is written.
    began = time.monotonic()
    results = client.commit_group_offsets(group, {first: Committed(42), absent: Committed(1)})
    assert time.monotonic() - began < 10
    assert results[first] is None
    refused = results[absent]
    assert isinstance(refused, BrokerError)
    assert refused.name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert committed(three, group)[first] == 42
    assert client.commit_group_offsets(group, {}) == {}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_live_group_refuses_our_offsets(three: Kafka, client: Client, topic_name: str, protocol: str) -> None:
    create_topic(three.confluent(), topic_name)
    tp, group = TopicPartition(topic_name, 0), f"{topic_name}-group"
    commit(three, group, TheirPartition(topic_name, 0, 7))
    with member(three, group, topic_name, **{"group.protocol": protocol}):
        refused = client.commit_group_offsets(group, {tp: Committed(1)})[tp]
        assert isinstance(refused, BrokerError)
        assert refused.code == UNKNOWN_MEMBER_ID
        assert "has members" in refused.fix
    assert committed(three, group) == {tp: 7}


def test_the_coordinator_goes(three: Kafka, topic_name: str) -> None:
    """Its groups are asked for where they are now; none is missing from a list."""
    create_topic(three.confluent(), topic_name, 1, replication_factor=3)
    tp = TopicPartition(topic_name, 0)
    groups = [f"{topic_name}-{n}" for n in range(12)]
    with Client(three.cluster("west"), timeout_s=60) as client:
        for n, group in enumerate(groups):
            wait_until(lambda g=group, n=n: client.commit_group_offsets(g, {tp: Committed(n)}) == {tp: None})
        before = client.group_offsets(groups)
        # What only its coordinator had would be gone with it.
        wait_until(lambda: in_sync(client, "__consumer_offsets", topic_name), what="all in sync", timeout_seconds=60)
        home = client.call("find_coordinator", at_most=3, key=groups[0], key_type=0).node_id
        gone = three.brokers[home - 1]
        gone.kill()
        try:
            # A new leader shows what it knows to be committed, which for a moment may lack the last commit.
            wait_until(
                lambda: client.group_offsets(groups) == before, what="all offsets, elsewhere", timeout_seconds=90
            )
            assert client.describe_groups(groups) == dict.fromkeys(groups, "Empty")
            assert client.commit_group_offsets(groups[0], {tp: Committed(99)}) == {tp: None}
            assert set(groups) <= set(client.list_groups())
        finally:
            gone.start()
        wait_until(lambda: in_sync(client, topic_name))


def in_sync(client: Client, *topics: str) -> bool:
    """Whether every partition of these has its three replicas."""
    found = client.metadata(list(topics)).topics.values()
    return all(len(partition.isr) == 3 for topic in found for partition in topic.partitions.values())


# -- permissions -------------------------------------------------------------------------------------------------------


def theirs(kafka: Kafka, name: str) -> set[tuple[str, AclOperation, AclPermissionType, str, ResourcePatternType]]:
    """The ACLs of a topic, as confluent-kafka reads them."""
    everything = AclBindingFilter(
        ResourceType.TOPIC, name, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    admin = AdminClient(kafka.confluent())
    found = admin.describe_acls(everything).result(30)
    return {(one.principal, one.operation, one.permission_type, one.host, one.resource_pattern_type) for one in found}


def test_acls_are_read_and_added(guarded: Kafka, topic_name: str) -> None:
    binding = AclBinding(
        ResourceType.TOPIC,
        topic_name,
        ResourcePatternType.PREFIXED,
        "User:alice",
        "10.0.0.1",
        AclOperation.DESCRIBE_CONFIGS,
        AclPermissionType.DENY,
    )
    admin = AdminClient(guarded.confluent())
    for future in admin.create_acls([binding]).values():
        future.result(30)
    mine = [
        Acl(topic_name, "User:bob", READ),
        Acl(topic_name, "User:bob", WRITE, DENY, host="10.0.0.2"),
        Acl(topic_name, "User:bob", ALL, pattern=PREFIXED),
    ]
    with Client(guarded.cluster("west")) as client:

        def described() -> set[Acl]:
            found = client.describe_acls()
            assert isinstance(found, list)
            return {one for one in found if one.name == topic_name}

        alice = Acl(topic_name, "User:alice", 10, DENY, "10.0.0.1", PREFIXED)
        wait_until(lambda: described() == {alice}, what="the ACL")
        assert client.create_acls(mine) == dict.fromkeys(mine)
        wait_until(lambda: described() == {alice, *mine}, what="the ACLs")
        assert client.create_acls(mine) == dict.fromkeys(mine)  # again: no error, no second one
        wrong = Acl("", "nobody", DESCRIBE)
        refused = client.create_acls([wrong, mine[0]])
        assert isinstance(refused[wrong], BrokerError)
        assert refused[mine[0]] is None
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    allow, deny = AclPermissionType.ALLOW, AclPermissionType.DENY
    assert theirs(guarded, topic_name) == {
        ("User:alice", AclOperation.DESCRIBE_CONFIGS, deny, "10.0.0.1", prefixed),
        ("User:bob", AclOperation.READ, allow, "*", literal),
        ("User:bob", AclOperation.WRITE, deny, "10.0.0.2", literal),
        ("User:bob", AclOperation.ALL, allow, "*", prefixed),
    }


def test_a_cluster_without_an_authorizer_and_a_principal_without_permission(primary: Kafka, guarded: Kafka) -> None:
    with Client(primary.cluster("west")) as client:
        answer = client.describe_acls()
        assert isinstance(answer, BrokerError)
        assert answer.name == "SECURITY_DISABLED"
    with Client(guarded.cluster("west", user="alice")) as client:
        answer = client.describe_acls()
        assert isinstance(answer, BrokerError)
        assert answer.name == "CLUSTER_AUTHORIZATION_FAILED"


# -- settings ----------------------------------------------------------------------------------------------------------


def test_settings_are_set_and_removed(primary: Kafka, new_topic: Callable[[], str]) -> None:
    first, second = new_topic(), new_topic()
    create_topic(primary.confluent(), first, config={"retention.ms": "1000000", "flush.ms": "5000"})
    create_topic(primary.confluent(), second)
    with Client(primary.cluster("west")) as client:
        results = client.alter_topic_configs(
            {
                first: {"retention.ms": None, "cleanup.policy": "compact", "segment.bytes": None},
                second: {"no.such.setting": "1"},
                "absent": {"retention.ms": "1"},
            }
        )
        assert results[first] is None
        assert getattr(results[second], "name", "") == "INVALID_CONFIG"
        assert getattr(results["absent"], "name", "") == "UNKNOWN_TOPIC_OR_PARTITION"

        def entry(key: str) -> tuple[str | None, str, str | None]:
            found = client.describe_topic_configs([first], inherited=True)[first]
            assert isinstance(found, dict)
            return found[key].value, found[key].source, found[key].inherited

        wait_until(lambda: entry("cleanup.policy")[0] == "compact", what="the change")
        assert entry("cleanup.policy") == ("compact", "DYNAMIC_TOPIC_CONFIG", "delete")
        assert entry("retention.ms")[1] == "DEFAULT_CONFIG"
        assert entry("flush.ms")[:2] == ("5000", "DYNAMIC_TOPIC_CONFIG")  # not named: left
        assert entry("min.insync.replicas") == ("1", "DYNAMIC_DEFAULT_BROKER_CONFIG", "1")  # since KIP-966
    resource = ConfigResource(ConfigResource.Type.TOPIC, first)
    admin = AdminClient(primary.confluent())
    read = admin.describe_configs([resource])[resource].result(30)
    assert (read["cleanup.policy"].value, read["retention.ms"].is_default) == ("compact", True)


def test_more_new_topics_than_the_controller_takes_in_one_request(
    primary: Kafka, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KRaft refuses a request that makes 10,000 records, of which every setting is one."""
    create_topic(primary.confluent(), topic_name)
    with Client(primary.cluster("west")) as client:
        found = client.describe_topic_configs([topic_name])[topic_name]
        assert isinstance(found, dict)
        settings = {key: entry.value for key, entry in found.items() if entry.value}
        names = [f"{topic_name}-{n}" for n in range(10_500 // len(settings))]
        specs = [NewTopic(name, 1, 1, settings) for name in names]
        assert client.create_topics(specs, validate_only=True) == dict.fromkeys(names)
        monkeypatch.setattr(topics, "_RECORDS_AT_ONCE", 1_000_000)
        assert any(client.create_topics(specs, validate_only=True).values()), "the limit is not there any more"


def test_more_new_partitions_than_the_controller_takes_in_one_request(
    primary: Kafka, new_topic: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {create_topic(primary.confluent(), new_topic()): 4_000 for _ in range(3)}
    with Client(primary.cluster("west")) as client:
        assert client.create_partitions(counts, validate_only=True) == dict.fromkeys(counts)
        monkeypatch.setattr(topics, "_RECORDS_AT_ONCE", 1_000_000)
        assert any(client.create_partitions(counts, validate_only=True).values()), "the limit is not there any more"
