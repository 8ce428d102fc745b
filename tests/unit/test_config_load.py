"""mm2.properties to clusters and flows: resolution, every problem at once, warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.config.load import NEVER_S, load, parse
from heliograph.config.model import Config
from heliograph.errors import ConfigError
from heliograph.types import Flow

BASE = """
clusters = us, eu
us.bootstrap.servers = us1:9092, us2:9092
eu.bootstrap.servers = eu1:9092
us->eu.enabled = true
"""


def read(*lines: str, base: str = BASE, lenient: bool = False) -> Config:
    return parse((base + "\n".join(lines)).encode(), "mm2.properties", lenient=lenient)


def flow(*lines: str) -> Flow:
    return read(*lines).flows[0]


def problems(*lines: str, base: str = BASE) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(*lines, base=base)
    assert caught.value.condition == "CONFIG"
    return caught.value.problems


def only(found: list[str]) -> str:
    assert len(found) == 1, found
    return found[0]


def test_a_plain_file_has_mm2s_defaults() -> None:
    config = read()
    assert config.warnings == ()
    assert list(config.clusters) == ["us", "eu"]
    (mirrored,) = config.flows
    assert mirrored.name == "us->eu"
    assert mirrored.source.bootstrap == "us1:9092,us2:9092"
    assert mirrored == Flow(config.clusters["us"], config.clusters["eu"])


def test_kafkas_own_sample_file_loads() -> None:
    sample = """
# the shape of config/connect-mirror-maker.properties
clusters = A, B
A.bootstrap.servers = A_host1:9092, A_host2:9092, A_host3:9092
B.bootstrap.servers = B_host1:9092, B_host2:9092, B_host3:9092
A->B.enabled = true
A->B.topics = .*
B->A.enabled = true
B->A.topics = .*
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
"""
    config = read(base=sample)
    assert [flow.name for flow in config.flows] == ["A->B", "B->A"]
    assert {flow.replication_factor for flow in config.flows} == {1}
    assert {flow.offset_storage_replication_factor for flow in config.flows} == {1}
    warning = only(list(config.warnings))
    assert "known to MM2, without effect here: status.storage.replication.factor (line 15)" in warning
    assert "config.storage.replication.factor (line 16)" in warning
    assert {flow.heartbeats_replication_factor for flow in config.flows} == {1}


# ---- resolution ----


def test_a_setting_of_the_flow_beats_the_general_one() -> None:
    config = read("eu->us.enabled=true", "topics = a", "us->eu.topics = b , c", "tasks.max=4", "eu->us.tasks.max=2")
    assert [(f.name, f.topics, f.tasks_max) for f in config.flows] == [
        ("us->eu", ("b", "c"), 4),
        ("eu->us", ("a",), 2),
    ]


def test_enabled_at_the_top_level_enables_every_pair_but_those_that_say_no() -> None:
    config = read("enabled = true", "us->eu.enabled = FALSE", base=BASE.replace("us->eu.enabled = true", ""))
    assert [f.name for f in config.flows] == ["eu->us"]


def test_security_comes_from_the_client_then_the_cluster_then_the_file() -> None:
    config = read(
        "security.protocol = ssl",
        "ssl.truststore.location = all.pem",
        "eu.ssl.truststore.location = eu.pem",
        "us.consumer.ssl.truststore.location = us-consumer.pem",
        "eu.consumer.ssl.truststore.location = not for a target",
        "eu.producer.ssl.keystore.location = eu-producer.p12",
    )
    (mirrored,) = config.flows
    assert config.clusters["us"].properties["ssl.truststore.location"] == "all.pem"
    assert config.clusters["eu"].properties["ssl.truststore.location"] == "eu.pem"
    assert config.clusters["us"].properties["security.protocol"] == "SSL"
    assert mirrored.source.properties["ssl.truststore.location"] == "us-consumer.pem"
    assert mirrored.target.properties["ssl.truststore.location"] == "eu.pem"
    assert mirrored.target.properties["ssl.keystore.location"] == "eu-producer.p12"


def test_clients_get_client_keys_only() -> None:
    config = read("us.offset.flush.interval.ms = 5", "eu.offset.storage.replication.factor = 1", "topics=x")
    assert set(config.clusters["us"].properties) == {"bootstrap.servers"}
    assert set(config.clusters["eu"].properties) == {"bootstrap.servers"}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], "read_committed"),
        (["us.consumer.isolation.level=read_uncommitted"], "read_uncommitted"),
        (["eu.consumer.isolation.level=read_uncommitted"], "read_committed"),  # of the target: another flow's
        (["us->eu.consumer.isolation.level=read_uncommitted"], "read_uncommitted"),
        (
            ["us->eu.consumer.isolation.level=read_committed", "us.consumer.isolation.level=read_uncommitted"],
            "read_uncommitted",
        ),
        (
            ["us->eu.source.consumer.isolation.level=read_committed", "us.consumer.isolation.level=read_uncommitted"],
            "read_committed",
        ),
    ],
)
def test_isolation_is_resolved_as_mm2_does(lines: list[str], expected: str) -> None:
    assert flow(*lines).isolation == expected


def test_offset_storage_at_the_top_level_beats_the_clusters() -> None:
    assert flow("eu.offset.storage.replication.factor=1").offset_storage_replication_factor == 1
    both = flow("eu.offset.storage.replication.factor=1", "offset.storage.replication.factor=2")
    assert both.offset_storage_replication_factor == 2


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("topics.blacklist", "topics.exclude", "topics_exclude"),
        ("groups.blacklist", "groups.exclude", "groups_exclude"),
        ("config.properties.blacklist", "config.properties.exclude", "config_properties_exclude"),
    ],
)
def test_the_old_name_of_a_list_counts_unless_the_new_one_is_there(old: str, new: str, field: str) -> None:
    alone = read(f"{old}=a")
    assert getattr(alone.flows[0], field) == ("a",)
    assert f"the old name of {new}" in only(list(alone.warnings))
    both = read(f"us->eu.{old}=a", f"{new}=b")
    assert getattr(both.flows[0], field) == ("b",)
    assert "wins" in only(list(both.warnings))


def test_an_empty_topics_list_copies_nothing() -> None:
    assert flow("topics =").topics == ()


def test_a_comma_inside_a_group_is_an_alternative_as_in_mm2() -> None:
    assert flow("topics = a(b,c)").topics == ("a(b", "c)")


@pytest.mark.parametrize("line", ["refresh.topics.interval.seconds=-1", "refresh.topics.enabled=false"])
def test_refreshing_can_be_turned_off(line: str) -> None:
    assert flow(line).refresh_topics_interval_seconds == NEVER_S


def test_clusters_narrows_the_flows() -> None:
    config = read("eu->us.enabled=true")
    assert [f.name for f in config.serving(["us"]).flows] == ["eu->us"]
    assert config.serving([]) is config
    for targets in (["mars"], ["us", "mars"]):
        with pytest.raises(ConfigError, match="mars"):
            config.serving(targets)
    assert [f.name for f in read().serving(["us"]).heartbeat_only] == ["eu->us"]
    with pytest.raises(ConfigError, match="no enabled flow ends in us"):
        read("emit.heartbeats.enabled=false").serving(["us"])


# ---- problems ----


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("us->mars.enabled = true", ["us->mars.enabled = true", "'mars'", "us, eu"]),
        ("us->euu.topics = a", ["'euu'", "did you mean us->eu.topics?"]),
        ("us->us.enabled = true", ["from 'us' to itself"]),
        ("us->eu.topics = orders[", ["us->eu.topics = orders[", "not a regular expression", "not closed"]),
        ("topics.exclude = a, (b", ["'(b'"]),
        ("topics = a{1,2}x(", ["comma separates"]),
        ("tasks.max = 0", ["at least 1"]),
        ("tasks.max = many", ["tasks.max = many", "whole number"]),
        ("us->eu.tasks.max = 99999999999", ["whole number"]),
        ("replication.factor = 0", ["-1 for the target"]),
        ("eu.offset.storage.replication.factor = x", ["whole number"]),
        ("refresh.topics.interval.seconds = 0", ["must not be 0"]),
        ("eu->us.enabled = yes", ["eu->us.enabled = yes", "true or false"]),
        ("us.consumer.isolation.level = serializable", ["read_committed or read_uncommitted"]),
        ("us.security.protocol = TLS", ["us.security.protocol = TLS", "SASL_SSL"]),
        ("us.bootstrap.servers = us1", ["'us1' is not host:port"]),
        ("us.bootstrap.servers = us1:99999", ["'us1:99999' is not host:port"]),
        ("us.bootstrap.servers = ,", ["names no broker"]),
        ("us -> eu.enabled = true", ["without blanks"]),
        ("topics = \\u12", ["malformed \\u12"]),
        ("us.sasl.mechanism = GSSAPI", ["PLAIN or SCRAM-SHA-256"]),
        ("us.security.protocol = SASL_SSL", ["us.sasl.mechanism is missing", "GSSAPI"]),
        ("replication.policy.separator = a b", ["replication.policy.separator = a b", "must be of letters"]),
        ("replication.policy.separator =", ["must be of letters", "IdentityReplicationPolicy"]),
        ("replication.policy.class = x.IdentityReplicationPolicy", ["a Java class cannot be loaded"]),
        (
            "replication.policy.class = no.such.module:Class",
            ["may not be imported", "heliograph.policy.classes = no.such.module:Class"],
        ),
        ("replication.policy.class = ..x:y", ["must be package.module:Class"]),
        ("replication.policy.class = os:path", ["may not be imported"]),
        ("heliograph.mm2.rules = 2", ["must be 3 or 4"]),
        ("us->eu.use.defaults.from = both", ["must be source or target"]),
        ("offset-syncs.topic.location = Source", ["must be source or target"]),
        ("us.consumer.auto.offset.reset = none", ["must be earliest or latest"]),
        ("sync.topic.acls.interval.seconds = 0", ["must not be 0", "negative one for never"]),
        ("emit.heartbeats.interval.seconds = 0", ["must not be 0"]),
        ("offset.lag.max = -1", ["at least 0"]),
        ("checkpoints.topic.replication.factor = 99999", ["from 1 to 32767"]),
        ("topic.filter.class = com.example.Mine", ["a Java class", "--lenient"]),
        ("us->eu.transforms = route", ["a Java class", "--lenient"]),
        ("offset.storage.topic = a b", ["not a name that a topic may have"]),
        ("source.cluster.alias = west", ["call the cluster so in clusters", "--lenient"]),
        ("max.tasks = 3", ["did you mean tasks.max?"]),
        ("eu->us.enabled = false # passive", ["true or false", "no comments at the end of a line"]),
        ("topic = a", ["topic: unknown key", "--lenient", "did you mean topics?"]),
        ("us->eu.topics.exlude = a", ["did you mean us->eu.topics.exclude?"]),
        ("eu.bootstrap.server = a:1", ["did you mean eu.bootstrap.servers?"]),
        ("uss.bootstrap.servers = a:1", ["did you mean us.bootstrap.servers?"]),
        ("us.consumer.fetch.min.byte = 1", ["did you mean us.consumer.fetch.min.bytes?"]),
        ("us->eu.source.consumer.isolation.levle = 1", ["did you mean us->eu.source.consumer.isolation.level?"]),
        ("zebra = 1", ["zebra: unknown key"]),
    ],
)
def test_a_problem_names_line_key_value_and_reason(line: str, words: list[str]) -> None:
    found = only(problems(line))
    assert found.startswith("mm2.properties:6: " if "missing" not in words[0] else "mm2.properties:")
    for word in words:
        assert word in found


def test_every_problem_is_found_in_one_go() -> None:
    found = problems(
        "us->mars.enabled = true", "tasks.max = x", "topics = [", "eu->us.enabled = ja", "us.security.protocol=SASL_SSL"
    )
    assert len(found) == 5
    assert [text.split(":")[1] for text in found if ":6" in text or ":7" in text] == ["6", "7"]


def test_missing_clusters() -> None:
    assert "clusters is missing" in only(problems(base=""))
    base = "us.bootstrap.servers=a:1\neu.bootstrap.servers=b:1\n"
    assert "add the line clusters = us, eu" in only(problems(base=base))
    assert "did you mean clusters?" in only(problems(base="cluster = us, eu\n" + base))
    assert "mm2.properties:1: clusters names no alias" in only(problems(base="clusters=\n"))


def test_an_alias_without_servers() -> None:
    found = only(problems(base="clusters = us, eu\nus.bootstrap.servers=a:1\nus->eu.enabled=true\n"))
    assert "mm2.properties:1: eu.bootstrap.servers is missing" in found


@pytest.mark.parametrize("alias", ["us.west", "replication", "topics", "a->b"])
def test_an_alias_that_cannot_be_one(alias: str) -> None:
    base = f"clusters = {alias}, eu\n{alias}.bootstrap.servers=a:1\neu.bootstrap.servers=b:1\n"
    assert any(f"the alias {alias!r}" in text for text in problems(base=base + "enabled=true\n"))


def test_source_and_target_are_aliases_people_use() -> None:
    base = "clusters=source,target\nsource.bootstrap.servers=a:1\ntarget.bootstrap.servers=b:1\n"
    assert [f.name for f in read(base=base + "source->target.enabled=true").flows] == ["source->target"]


def test_no_enabled_flow() -> None:
    base = BASE.replace("true", "false")
    config = read(base=base)
    assert (config.flows, [f.name for f in config.heartbeat_only]) == ((), ["us->eu", "eu->us"])
    assert "us->eu.enabled = true" in only(list(config.warnings))
    found = only(problems("emit.heartbeats.enabled = false", base=base))
    assert "us->eu.enabled = true" in found


@pytest.mark.parametrize("name", ["absent.properties", ".", "nul\0.properties"])
def test_a_file_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load(f"{tmp_path}/{name}")


# ---- warnings ----


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("us.topics = a", ["no effect under a cluster", "write topics"]),
        ("offset.flush.interval.ms = 5", ["only under the target's alias"]),
        ("use.defaults.from = source", ["only under a flow"]),
        ("us->eu.offset.flush.interval.ms = 5", ["eu.offset.flush.interval.ms"]),
        ("consumer.isolation.level = read_uncommitted", ["only under the source's alias"]),
        ("us->eu.ssl.protocol = TLS", ["only for a cluster"]),
        ("us->eu.clusters = us", ["only at the top level"]),
        ("eu.tasks.max = 3", ["no effect under a cluster"]),
        ("producer.override.linger.ms = 3", ["MM2 drops it at the top level", "A->B.producer.override.linger.ms"]),
        ("producer.override.key.converter = x", ["Kafka's producer has no such setting"]),
        ("producer.linger.ms = 3", ["MM2 drops it at the top level", "<alias>.producer.linger.ms"]),
        ("us.fetch.min.bytes = 3", ["us.consumer.fetch.min.bytes"]),
        ("linger.ms = 3", ["<alias>.producer.linger.ms"]),
        ("key.converter.schemas.enable = true", ["without effect here: key.converter.schemas.enable (line 6)"]),
        ("us.admin.ssl.keystore.location = x", ["without effect here: us.admin.ssl.keystore.location (line 6)"]),
        ("us.bootstrap.servers = other:1", ["stands again on line 6"]),
    ],
)
def test_a_warning_names_the_key_and_where_it_belongs(line: str, words: list[str]) -> None:
    warning = only(list(read(line).warnings))
    for word in words:
        assert word in warning


def test_keys_that_have_nothing_to_act_on_are_named_in_one_warning() -> None:
    lines = (
        "errors.tolerance=all",
        "us->eu.exactly.once.support=required",
        "us.consumer.fetch.min.bytes=1",
        "eu.group.id=y",
    )
    warning = only(list(read(*lines).warnings))
    for number, line in enumerate(lines, start=6):
        assert f"{line.split('=')[0]} (line {number})" in warning


def test_a_converter_that_decodes_is_named() -> None:
    assert any("copied as they are" in text for text in read("key.converter = x.JsonConverter").warnings)
    assert not any("copied as they are" in text for text in read("key.converter = x.ByteArrayConverter").warnings)


@pytest.mark.parametrize(
    "line",
    [
        *("zebra = 1", "us->eu.zebra = 1", "us.zebra = 1", "us.consumer.zebra = 1"),
        *("topic.filter.class = com.example.Mine", "transforms = a", "us->eu.target.cluster.alias = x"),
    ],
)
def test_lenient_makes_a_warning_of_it(line: str) -> None:
    assert line.split(" ")[0] in only(problems(line))
    assert line.split(" ")[0] in only(list(read(line, lenient=True).warnings))


@pytest.mark.parametrize(
    "key",
    [
        *("us.sasl.pasword", "us.ssl.keystore.passwort", "sasl.pasword", "uss.sasl.pasword", "us->euu.sasl.pasword"),
        *("us->eu.producer.override.sasl.pasword", "us", "pasword", "us.consumer.sasl.jass.conf"),
    ],
)
def test_the_value_of_an_unknown_key_is_never_printed(key: str) -> None:
    """A password under a mistyped name was (fault E8)."""
    for value in ("hunter2", "-> hunter2", "hunter2 # mine", "hunter2\\u001b[31m"):
        text = f"{key} = {value}\n" if key != "us" else f"{key} = -> {value}\n"
        with pytest.raises(ConfigError) as caught:
            parse((BASE + text).encode())
        assert "hunter2" not in str(caught.value)
        assert key.partition(" ")[0] in str(caught.value)
        try:
            said = repr(parse((BASE + text).encode(), lenient=True).warnings)
        except ConfigError as problem:  # a flow that is none is one with --lenient too
            said = str(problem)
        assert "hunter2" not in said
    with pytest.raises(ConfigError) as caught:
        parse(b"cluster = hunter2\n")
    assert "hunter2" not in str(caught.value)


def test_a_mistyped_key_of_the_http_server_is_refused() -> None:
    """Any name behind `listeners.https.` was taken, and one that keeps strangers out was passed over without a word."""
    problem = only(problems("listeners.https.ssl.client.atuh = required"))
    assert "listeners.https.ssl.client.atuh: unknown key" in problem
    assert "did you mean listeners.https.ssl.client.auth?" in problem
    (warning,) = read("listeners.https.ssl.cipher.suites = TLS_AES_128_GCM_SHA256").warnings
    assert "listeners.https.ssl.cipher.suites: of no effect on the HTTP server" in warning
    assert read("listeners.https.ssl.client.auth = required").https == {"ssl.client.auth": "required"}
