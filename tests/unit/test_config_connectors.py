"""A connector's JSON becomes a flow, or every problem of it is named; a worker's file likewise."""

from __future__ import annotations

import platform

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config import keys
from heliograph.config import worker as worker_file
from heliograph.config.connectors import CLASSES, Made, Worker, class_of, make
from heliograph.config.credentials import MASK, masked, unmasked
from heliograph.config.shape import Scope
from heliograph.connect.validation import infos, judge
from heliograph.errors import ConfigError
from heliograph.policy import IDENTITY_POLICY

MIRROR = "org.apache.kafka.connect.mirror.Mirror"

# As in the field: host names aside, a worker's file that somebody runs.
FIELD = b"""
bootstrap.servers=kafka-target-0:9092,kafka-target-1:9092
group.id=connect-cluster
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=true
value.converter.schemas.enable=true
internal.key.converter=org.apache.kafka.connect.json.JsonConverter
internal.value.converter=org.apache.kafka.connect.json.JsonConverter
internal.key.converter.schemas.enable=false
internal.value.converter.schemas.enable=false
offset.storage.topic=connect-offsets
offset.storage.replication.factor=1
#offset.storage.partitions=25
config.storage.topic=connect-configs
config.storage.replication.factor=1
status.storage.topic=connect-status
status.storage.replication.factor=1
offset.flush.interval.ms=10000
rest.port=8083
"""
WORKER = worker_file.parse(FIELD).worker


def config(kind: str, **more: str) -> dict[str, str]:
    return {
        "name": "one",
        "connector.class": f"{MIRROR}{kind}Connector",
        "source.cluster.alias": "source-0",
        "source.cluster.bootstrap.servers": "a:9092",
        "target.cluster.alias": "target-0",
        "target.cluster.bootstrap.servers": "b:9092",
        **{name.replace("__", "-").replace("_", "."): value for name, value in more.items()},
    }


def made(kind: str, **more: str) -> Made:
    return make("one", config(kind, **more), WORKER)


# -------------------- connectors


def test_a_source_connector_copies_and_does_nothing_else() -> None:
    found = made(
        "Source", topics="test", tasks_max="2", replication_factor="1", replication_policy_class=IDENTITY_POLICY
    )
    flow = found.flow
    assert flow is not None
    assert not found.problems
    assert found.kind == "source"
    assert (flow.name, flow.label) == ("one", "one")
    assert (flow.source.alias, flow.source.bootstrap) == ("source-0", "a:9092")
    assert (flow.target.alias, flow.target.bootstrap) == ("target-0", "b:9092")
    assert flow.topics == ("test",)
    assert flow.tasks_max == 2
    assert flow.replication_factor == 1
    assert flow.naming.policy == IDENTITY_POLICY
    assert flow.enabled
    assert flow.copies
    assert flow.emit_offset_syncs
    assert flow.emit_checkpoints_s is flow.emit_heartbeats_s is flow.sync_group_offsets_s is None
    assert flow.positions_topic == "connect-offsets"
    assert flow.positions_under == ("one",)
    assert flow.offset_storage_replication_factor == 1
    assert flow.offset_flush_s == 10


def test_a_checkpoint_connector_only_translates_what_its_siblings_copied() -> None:
    given = config("Checkpoint", groups="g.*", sync_group_offsets_enabled="true")
    flow = make("cpc", given, WORKER, ["msc-b", "msc-a"]).flow
    assert flow is not None
    assert flow.enabled
    assert not flow.copies
    assert flow.emit_checkpoints_s == 60
    assert flow.sync_group_offsets_s == 60
    assert flow.groups == ("g.*",)
    assert flow.emit_heartbeats_s is flow.sync_topic_configs_s is flow.sync_topic_acls_s is None
    assert flow.positions_under == ("msc-a", "msc-b")


def test_a_heartbeat_connector_only_beats_and_needs_no_source_address() -> None:
    given = config("Heartbeat", emit_heartbeats_interval_seconds="3")
    del given["source.cluster.bootstrap.servers"]
    flow = make("hbc", given, WORKER).flow
    assert flow is not None
    assert not flow.enabled
    assert not flow.copies
    assert flow.emit_heartbeats_s == 3
    assert flow.emit_checkpoints_s is None


def test_a_target_that_is_not_named_is_the_workers_cluster() -> None:
    given = config("Source")
    del given["target.cluster.bootstrap.servers"], given["target.cluster.alias"]
    flow = make("one", given, WORKER).flow
    assert flow is not None
    assert flow.target.alias == "target"
    assert flow.target.bootstrap == "kafka-target-0:9092,kafka-target-1:9092"


def test_clients_are_reached_as_mm2_reaches_them() -> None:
    more = {
        "source.cluster.security.protocol": "SASL_SSL",
        "source.cluster.sasl.mechanism": "PLAIN",
        "source.cluster.sasl.jaas.config": "secret words",
        "source.consumer.auto.offset.reset": "latest",
        "consumer.isolation.level": "read_uncommitted",
        "producer.override.security.protocol": "SSL",
    }
    flow = make("one", {**config("Source"), **more}, WORKER).flow
    assert flow is not None
    assert flow.source.properties["sasl.mechanism"] == "PLAIN"
    assert "secret" not in repr(flow)
    assert flow.start_at == "latest"
    assert flow.isolation == "read_uncommitted"
    assert flow.target.properties["security.protocol"] == "SSL"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("topics", "(unclosed"),
        ("transforms", "route"),
        ("topic.filter.class", "com.example.Mine"),
        ("replication.policy.class", "com.example.Naming"),
        ("source.cluster.bootstrap.servers", "nowhere"),
        ("start", "file:/etc/passwd"),
        ("source.cluster.security.protocol", "TELNET"),
    ],
)
def test_what_cannot_be_is_named_by_its_key(key: str, value: str) -> None:
    found = make("one", {**config("Source"), key: value}, WORKER)
    assert found.flow is None
    assert list(found.problems) == [key]


def test_all_problems_at_once_and_no_secret_among_the_words() -> None:
    bad = {
        "topics": "(",
        "groups": "[",
        "source.cluster.sasl.jaas.config": "hunter2",
        "source.cluster.alias": "target-0",
    }
    found = make("one", {**config("Checkpoint"), **bad}, WORKER)
    assert {"topics", "groups", "source.cluster.alias"} <= set(found.problems)
    assert "hunter2" not in repr(found.problems) + repr(found.warnings)


def test_an_unknown_key_has_no_effect_and_is_named_with_the_nearest() -> None:
    found = made("Source", topcs="a")
    assert found.flow is not None
    assert any("topcs" in warning and "topics" in warning for warning in found.warnings)


def test_an_unknown_class_is_no_connector() -> None:
    assert make("one", {**config("Source"), "connector.class": "FileStreamSource"}, WORKER).kind is None
    assert class_of("MirrorSource") == class_of("MirrorSourceConnector") == f"{MIRROR}SourceConnector"
    assert class_of("Source") is None


def test_a_connector_that_is_not_enabled_copies_nothing() -> None:
    flow = made("Source", enabled="false").flow
    assert flow is not None
    assert flow.topics == ()


@given(st.dictionaries(st.text(max_size=30), st.text(max_size=30), max_size=8), st.sampled_from(sorted(CLASSES)))
def test_whatever_is_sent_is_a_flow_or_problems(given_: dict[str, str], name: str) -> None:
    found = make("one", {**given_, "connector.class": name}, WORKER)
    assert found.flow is None or not found.problems


def test_secrets_are_masked_and_a_mask_that_comes_back_is_what_it_was() -> None:
    stored = {"topics": "1", "ssl.key.password": "p", "sasl.jaas.config": "${file:/x:y}", "producer.password": None}
    shown = masked(stored)
    assert shown == {**stored, "ssl.key.password": MASK}
    assert unmasked({**shown, "topics": "2"}, stored) == {**stored, "topics": "2"}
    assert unmasked({"new.password": MASK}, stored) == {"new.password": MASK}


@pytest.mark.parametrize("key", ["sasl.pasword", "ssl.keystore.passwort", "ssl.key.passphrase", "owner", "pasword"])
def test_the_value_of_an_unknown_key_is_masked_too(key: str) -> None:
    """A password under a mistyped name was shown to readers (fault E8)."""
    for prefix in ("", "source.cluster.", "producer.override.", "consumer."):
        stored = {f"{prefix}{key}": "hunter2", "topics": "a"}
        assert masked(stored) == {f"{prefix}{key}": MASK, "topics": "a"}
        assert unmasked(masked(stored), stored) == stored


def test_what_mm2_adds_to_its_tasks_is_shown() -> None:
    tasks = {"task.class": "MirrorSourceTask", "task.index": "0", "task.assigned.partitions": "a-0", "topics": "a"}
    assert masked(tasks) == tasks


# -------------------- the worker's file


def test_a_workers_file_of_the_field() -> None:
    found = worker_file.parse(FIELD)
    assert found.cluster.bootstrap == "kafka-target-0:9092,kafka-target-1:9092"
    assert found.group_id == "connect-cluster"
    assert (found.configs.name, found.configs.partitions, found.configs.factor.replicas) == ("connect-configs", 1, 1)
    assert (found.offsets.partitions, found.statuses.partitions) == (25, 5)
    assert found.listeners == (worker_file.Listener("127.0.0.1", 8083),)
    assert found.advertised == f"{platform.node()}:8083"
    assert worker_file.parse(FIELD + b"rest.host.name=10.0.0.1\n").advertised == "10.0.0.1:8083"
    assert found.warnings == ()


def test_listeners_and_what_others_are_told() -> None:
    more = b"listeners=HTTPS://0.0.0.0:8443,http://[::1]:8080\nrest.advertised.host.name=node-1\nplugin.path=/opt\n"
    found = worker_file.parse(FIELD + more)
    assert found.listeners == (worker_file.Listener("0.0.0.0", 8443, True), worker_file.Listener("::1", 8080))
    assert found.advertised == "node-1:8443"
    assert len(found.warnings) == 1
    assert "plugin.path" in found.warnings[0]


def test_a_workers_file_names_all_that_is_missing_or_wrong() -> None:
    with pytest.raises(ConfigError) as problem:
        worker_file.parse(b"bootstrap.servers=x\nlisteners=ftp://a\nrest.advertised.port=many\n")
    text = str(problem.value)
    for word in (
        "group.id",
        "config.storage.topic",
        "offset.storage.topic",
        "status.storage.topic",
        "ftp",
        "many",
        "'x'",
    ):
        assert word in text


def test_an_unknown_key_of_a_worker_is_named() -> None:
    found = worker_file.parse(FIELD + b"group.idd=x\n")
    assert any("group.idd" in warning and "group.id" in warning for warning in found.warnings)


def test_providers_of_the_worker_answer_in_connectors() -> None:
    provider = b"org.apache.kafka.common.config.provider.EnvVarConfigProvider"
    more = b"config.providers=env\nconfig.providers.env.class=" + provider
    found = worker_file.parse(FIELD + more, environment={"WHERE": "c:9092"}).worker
    flow = make("one", {**config("Source"), "source.cluster.bootstrap.servers": "${env:WHERE}"}, found).flow
    assert flow is not None
    assert flow.source.bootstrap == "c:9092"


PROVIDER = b"config.providers=env\nconfig.providers.env.class="
PROVIDER += b"org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"


def provided(secret: str) -> Worker:
    return worker_file.parse(FIELD + PROVIDER, environment={"P": secret}).worker


@pytest.mark.parametrize(
    "key", [*config("Source"), *(key.name for key in keys.KEYS if key.scope is Scope.FLOW), "topic.filter.class"]
)
@pytest.mark.parametrize("secret", ["hunter2 (", "target-0", "x\ty", "se.cret,[oops", "S" * 200])
def test_what_a_provider_gave_is_in_no_answer(key: str, secret: str) -> None:
    """Under whatever key it is asked for, and whatever is wrong with it there."""
    if key == "connector.class":
        return
    given_ = {**config("Source"), key: "${env:P}"}
    found = judge("one", given_, provided(secret))
    shown = repr(found.errors) + repr(found.made.warnings) + repr(infos("source", found)["configs"])
    expected = repr(infos("source", judge("one", config("Source"), WORKER))["configs"])
    for part in (secret, secret[:60], *secret.split(",")):
        assert shown.count(part) <= expected.count(part)  # `target-0` is written in the configuration too


@pytest.mark.parametrize(
    "key", ["source.cluster.alias", "topic.filter.class", "mux.identifier", "replication.policy.class"]
)
def test_a_part_of_a_value_that_a_provider_gave_is_in_no_answer_either(key: str) -> None:
    given_ = {**config("Source"), "mux.topics": "a", "target.cluster.alias": "x hunter2", key: "x ${env:P}"}
    found = judge("one", given_, provided("hunter2"))
    assert found.count
    assert "hunter2" not in repr(found.errors) + repr(found.made.warnings)


def test_what_a_provider_gives_is_judged_in_place_of_the_words_for_it() -> None:
    given_ = {**config("Source"), "tasks.max": "${env:P}"}
    assert judge("one", given_, provided("3")).count == 0
    assert list(judge("one", given_, provided("many")).errors) == ["tasks.max"]


def test_for_readers_nothing_is_looked_up_nor_missed() -> None:
    names = ("source.cluster.alias", "source.cluster.bootstrap.servers", "topics", "topic.filter.class", "tasks.max")
    given_ = {**config("Source"), **dict.fromkeys(names, "${env:P}")}
    assert judge("one", given_, provided("(")).count > 0
    assert judge("one", given_, provided("(").for_readers()).count == 0
    assert list(judge("one", {**given_, "groups": "("}, provided("(").for_readers()).errors) == ["groups"]
