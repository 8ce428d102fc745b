"""Every field of a flow, from its key; what settings mean together; providers; loops; where each value came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph import policy
from heliograph.config.load import NEVER_S, parse
from heliograph.config.model import Config, Explained
from heliograph.errors import ConfigError
from heliograph.types import Flow, Naming

BASE = """
clusters = us, eu
us.bootstrap.servers = us1:9092
eu.bootstrap.servers = eu1:9092
us->eu.enabled = true
"""
ENV = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
FILE = "org.apache.kafka.common.config.provider.FileConfigProvider"
DIRECTORY = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"


def read(*lines: str, environment: dict[str, str] | None = None) -> Config:
    return parse((BASE + "\n".join(lines)).encode(), "mm2.properties", environment=environment or {})


def flow(*lines: str) -> Flow:
    return read(*lines).flows[0]


def refused(*lines: str, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        read(*lines, environment=environment)
    assert len(caught.value.problems) == 1, caught.value.problems
    return caught.value.problems[0]


def row(config: Config, part: str, key: str) -> Explained:
    (found,) = [row for row in config.explained[part] if row.key == key]
    return found


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("sync.topic.configs.interval.seconds=7", "sync_topic_configs_s", 7),
        ("sync.topic.configs.enabled=false", "sync_topic_configs_s", None),
        ("sync.topic.configs.interval.seconds=-1", "sync_topic_configs_s", None),
        ("sync.topic.acls.interval.seconds=7", "sync_topic_acls_s", 7),
        ("sync.topic.acls.enabled=FALSE", "sync_topic_acls_s", None),
        ("sync.topic.acls.own.principal=User:CN=mirror,O=x", "own_principal", "User:CN=mirror,O=x"),
        ("emit.checkpoints.interval.seconds=7", "emit_checkpoints_s", 7),
        ("emit.checkpoints.enabled=false", "emit_checkpoints_s", None),
        ("emit.heartbeats.interval.seconds=7", "emit_heartbeats_s", 7),
        ("emit.heartbeats.enabled=false", "emit_heartbeats_s", None),
        ("refresh.groups.interval.seconds=7", "refresh_groups_s", 7),
        ("refresh.groups.enabled=false", "refresh_groups_s", None),
        ("sync.group.offsets.enabled=true", "sync_group_offsets_s", 60),
        ("sync.group.offsets.interval.seconds=7", "sync_group_offsets_s", None),
        ("refresh.topics.interval.seconds=9223372036854775807", "refresh_topics_interval_seconds", NEVER_S),
        ("config.properties.exclude=a", "config_properties_exclude", ("a",)),
        ("us->eu.use.defaults.from=source", "use_defaults_from", "source"),
        ("use.defaults.from=source", "use_defaults_from", "target"),  # dropped by MM2, with a warning
        ("sync.topic.configs.lower.durability=true", "lower_durability", True),
        ("sync.topic.configs.shorten.retention=true", "shorten_retention", True),
        ("emit.offset-syncs.enabled=false", "emit_offset_syncs", False),
        ("offset-syncs.topic.location=target", "offset_syncs_location", "target"),
        ("offset-syncs.topic.replication.factor=1", "offset_syncs_replication_factor", 1),
        ("offset.lag.max=0", "offset_lag_max", 0),
        ("eu.offset.flush.interval.ms=1500", "offset_flush_s", 1.5),
        ("us.offset.flush.interval.ms=1500", "offset_flush_s", 60.0),  # of the source's own worker
        ("offset.flush.interval.ms=1500", "offset_flush_s", 60.0),
        ("eu.offset.storage.partitions=3", "offset_storage_partitions", 3),
        ("eu.offset.storage.topic=connect-offsets", "positions_topic", "connect-offsets"),
        ("offset.storage.topic=mm2-offsets.us.internal", "positions_topic", None),
        ("checkpoints.topic.replication.factor=1", "checkpoints_replication_factor", 1),
        ("heartbeats.topic.replication.factor=-1", "heartbeats_replication_factor", -1),
        ("groups=a,b", "groups", ("a", "b")),
        ("groups.exclude=", "groups_exclude", ()),
        ("admin.timeout.ms=1500", "admin_timeout_s", 1.5),
        ("us.consumer.auto.offset.reset=latest", "start_at", "latest"),
        ("us->eu.consumer.auto.offset.reset=latest", "start_at", "latest"),
        ("us->eu.source.consumer.auto.offset.reset=latest", "start_at", "latest"),
        ("eu.consumer.auto.offset.reset=latest", "start_at", "earliest"),
        ("us->eu.target.consumer.auto.offset.reset=latest", "start_at", "earliest"),
    ],
)
def test_a_key_and_its_field(line: str, field: str, value: object) -> None:
    assert getattr(flow(line), field) == value


def test_the_clusters_consumer_beats_the_flows_unless_that_says_source() -> None:
    cluster, of_flow = "us.consumer.auto.offset.reset=latest", "us->eu.consumer.auto.offset.reset=earliest"
    assert flow(cluster, of_flow).start_at == "latest"
    assert flow(cluster, of_flow.replace("->eu.", "->eu.source.")).start_at == "earliest"


def test_the_writer_gets_overrides_of_the_flow_and_not_its_producer() -> None:
    base = ("security.protocol=SSL", "ssl.truststore.location=a", "eu.producer.ssl.truststore.location=b")
    assert flow(*base).target.properties["ssl.truststore.location"] == "b"
    plain = flow(*base, "us->eu.producer.ssl.truststore.location=c")
    assert plain.target.properties["ssl.truststore.location"] == "b"
    override = flow(*base, "us->eu.producer.override.ssl.truststore.location=d")
    assert override.target.properties["ssl.truststore.location"] == "d"
    assert override.source.properties["ssl.truststore.location"] == "a"


def test_without_offset_syncs_nothing_is_translated() -> None:
    config = read("emit.offset-syncs.enabled=false", "sync.group.offsets.enabled=true")
    assert (config.flows[0].emit_checkpoints_s, config.flows[0].sync_group_offsets_s) == (None, None)
    assert "sync.group.offsets.enabled: has no effect" in config.warnings[0]
    assert flow("emit.checkpoints.enabled=false", "sync.group.offsets.enabled=true").sync_group_offsets_s is None


# ---- names ----


def test_naming() -> None:
    lines = ("replication.policy.class=IdentityReplicationPolicy", "replication.policy.separator=_")
    naming = flow(
        *lines, "replication.policy.internal.topic.separator.enabled=false", "replication.policy.mine=x"
    ).naming
    assert naming == Naming(policy.IDENTITY_POLICY, "_", False, 4, (("replication.policy.mine", "x"),))


def test_the_old_trick_to_keep_names_is_understood() -> None:
    """An empty alias and an empty separator, from before there was an IdentityReplicationPolicy. With clusters that are
    called source and target, the keys look like theirs."""
    text = BASE.replace("us", "source").replace("clsourceters", "clusters").replace("eu", "target")
    trick = "\nsource.cluster.alias =\ntarget.cluster.alias =\nreplication.policy.separator =\n"
    config = parse((text + trick).encode())
    assert config.flows[0].naming == Naming(policy.IDENTITY_POLICY, ".")
    assert policy.remote_topic(config.flows[0], "orders") == "orders"
    assert any("keeps names, as IdentityReplicationPolicy does" in text for text in config.warnings)
    with pytest.raises(ConfigError, match="round and round"):
        parse((text + trick + "target->source.enabled = true\n").encode())


def test_a_policy_of_ones_own() -> None:
    name = "tests.unit.test_config_flows:Shouting"
    mirrored = flow(f"us->eu.replication.policy.class = {name}", f"heliograph.policy.classes = other:One, {name}")
    assert policy.remote_topic(mirrored, "orders") == "US.ORDERS"
    with pytest.raises(ConfigError, match=f"heliograph.policy.classes = {name} allows it"):
        flow(f"us->eu.replication.policy.class = {name}")


class Shouting(policy.Policy):
    def remote_topic(self, source_alias: str, topic: str) -> str:
        return super().remote_topic(source_alias, topic).upper()


def test_the_rules_of_3x() -> None:
    config = read("heliograph.mm2.rules=3", "heartbeats.replication.enabled=false")
    mirrored = config.flows[0]
    assert mirrored.naming.rules == 3
    assert mirrored.topics_exclude == policy.DEFAULT_EXCLUDE[3]
    assert mirrored.heartbeats_replication
    assert "heartbeats.replication.enabled: MM2 3.x does not know it" in config.warnings[0]
    assert flow("heliograph.mm2.rules=3", "topics.exclude=a").topics_exclude == ("a",)


def test_an_alias_with_the_separator_in_it() -> None:
    text = BASE.replace("us,", "us.west,").replace("us.b", "us.west.b").replace("us->", "us.west->")
    with pytest.raises(ConfigError, match=r"2: the alias 'us\.west' contains '\.'"):
        parse(text.encode())
    (mirrored,) = parse(f"{text}\nreplication.policy.separator=--".encode()).flows
    assert policy.remote_topic(mirrored, "t") == "us.west--t"


# ---- pairs ----


def test_pairs_that_only_emit_heartbeats() -> None:
    config = read()
    assert [(f.name, f.enabled) for f in config.flows] == [("us->eu", True)]
    assert [(f.name, f.enabled) for f in config.heartbeat_only] == [("eu->us", False)]
    for line in ("emit.heartbeats.enabled=false", "eu->us.emit.heartbeats.enabled=false"):
        assert read(line).heartbeat_only == ()
    assert read("eu->us.emit.heartbeats.interval.seconds=-1").heartbeat_only == ()


def test_enabled_at_the_top_level_does_not_reach_a_pair_without_heartbeats() -> None:
    config = read("enabled=true", "emit.heartbeats.enabled=false")
    assert [f.name for f in config.flows] == ["us->eu"]


# ---- loops ----

IDENTITY = "replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


@pytest.mark.parametrize(
    "lines",
    [
        [IDENTITY],
        [f"us->eu.{IDENTITY}"],  # names grow without end: orders, eu.orders, eu.eu.orders …
        [IDENTITY, "us->eu.topics=orders,users", "eu->us.topics=users"],
        [IDENTITY, "us->eu.topics=orders-.*", r"eu->us.topics=.*-x"],
    ],
)
def test_names_kept_both_ways_are_refused(lines: list[str]) -> None:
    found = refused("eu->us.enabled=true", *lines)
    assert "round and round" in found
    assert "us->eu and eu->us" in found


def test_names_kept_round_a_ring_are_refused() -> None:
    ring = "clusters=a,b,c\na.bootstrap.servers=a:1\nb.bootstrap.servers=b:1\nc.bootstrap.servers=c:1\n"
    text = ring + "a->b.enabled=true\nb->c.enabled=true\nc->a.enabled=true\n"
    assert len(parse(text.encode()).flows) == 3
    with pytest.raises(ConfigError, match="a->b and b->c and c->a"):
        parse((text + IDENTITY).encode())


@pytest.mark.parametrize(
    "lines",
    [
        ["us->eu.topics=orders", "eu->us.topics=users"],
        [r"us->eu.topics=us\\..*", r"eu->us.topics=eu\\..*"],
    ],
)
def test_names_kept_both_ways_for_other_topics_are_fine(lines: list[str]) -> None:
    assert len(read("eu->us.enabled=true", IDENTITY, *lines).flows) == 2


# ---- providers ----


def test_the_environment() -> None:
    lines = ("config.providers = env", f"config.providers.env.class = {ENV}", "topics = ${env:TOPICS}-x, ${env:OTHER}")
    config = read(*lines, environment={"TOPICS": "orders", "OTHER": "users"})
    assert config.flows[0].topics == ("orders-x", "users")
    assert config.warnings == ()
    shown = row(config, "us->eu", "topics")
    assert (shown.value, shown.origin) == ("***", "line 8: topics = ${env:TOPICS}-x, ${env:OTHER}")


def test_even_the_aliases_may_come_from_a_provider() -> None:
    text = BASE.replace("us, eu", "${env:ALL}") + f"config.providers = env\nconfig.providers.env.class = {ENV}\n"
    config = parse(text.encode(), environment={"ALL": "us, eu"})
    assert [f.name for f in config.flows] == ["us->eu"]


def test_a_variable_that_is_not_there_or_not_allowed_stays_as_written() -> None:
    lines = ("config.providers = env", f"config.providers.env.class = {ENV}", "us->eu.name = ${env:NOT}")
    assert "${env:NOT} is not known" in read(*lines).warnings[0]
    narrow = "config.providers.env.param.allowlist.pattern = MM2_.*"
    assert "is not known" in read(*lines, narrow, environment={"NOT": "x"}).warnings[0]


def test_a_password_that_is_not_there_is_a_problem() -> None:
    lines = ("config.providers = env", f"config.providers.env.class = {ENV}", "us.ssl.key.password = ${env:SECRET}")
    found = refused(*lines)
    assert found.startswith("mm2.properties:8: us.ssl.key.password = ***")
    assert "taken for the value itself" in found
    assert "taken for the value itself" in refused("us.ssl.key.password = ${vault:a:b}")
    assert read(*lines, environment={"SECRET": "x"}).flows[0].source.properties["ssl.key.password"] == "x"


def test_files_and_directories(tmp_path: Path) -> None:
    (tmp_path / "a.properties").write_text("pass\\:word = s3cret\\n")
    (tmp_path / "key").write_text("k3y\n")
    lines = (
        "config.providers = f, d",
        f"config.providers.f.class = {FILE}",
        f"config.providers.d.class = {DIRECTORY}",
        f"us.ssl.truststore.password = ${{f:{tmp_path}/a.properties:pass:word}}",
        f"us.ssl.key.password = ${{d:{tmp_path}:key}}",
    )
    config = read(*lines)
    properties = config.flows[0].source.properties
    assert properties["ssl.truststore.password"] == "s3cret"
    assert properties["ssl.key.password"] == "k3y"
    assert "s3cret" not in repr(config)
    elsewhere = f"config.providers.f.param.allowed.paths = {tmp_path}/other"
    assert "us.ssl.truststore.password" in refused(*lines, elsewhere)
    assert read(*lines, f"config.providers.f.param.allowed.paths = /no, {tmp_path}").flows


def test_a_provider_that_fails() -> None:
    lines = ("config.providers = f", f"config.providers.f.class = {FILE}", "us.ssl.key.password = ${f:/no/such:key}")
    assert "/no/such cannot be read: No such file or directory" in refused(*lines)
    assert "config.providers.x.class is missing" in refused("config.providers = x")
    assert "not absolute" in refused(*lines[:2], "config.providers.f.param.allowed.paths = here")
    env = ("config.providers = e", f"config.providers.e.class = {ENV}", "topics = ${e:path:key}")
    assert "the environment has no path" in refused(*env)


def test_a_provider_in_java_is_named() -> None:
    config = read("config.providers = vault", "config.providers.vault.class = com.example.Vault")
    assert "a Java class that cannot be loaded here" in config.warnings[0]


def test_a_bad_value_from_a_provider_is_not_printed() -> None:
    lines = ("config.providers = env", f"config.providers.env.class = {ENV}", "us.bootstrap.servers = ${env:S}")
    found = refused(*lines, environment={"S": "hunter2"})
    assert "hunter2" not in found
    assert "what the provider gave is not a list of host:port" in found


# ---- the collection ----

DATA = Path(__file__).parent.parent / "data" / "mm2"
ELSEWHERE = {"MM2_US": "us:1", "MM2_EU_HOST": "eu", "MM2_EU_PORT": "1", "MM2_ENABLED": "true"}


@pytest.mark.parametrize("file", sorted(DATA.glob("*.properties")), ids=lambda path: path.stem)
def test_every_file_of_the_collection_loads(file: Path, tmp_path: Path) -> None:
    """Without --lenient, as they stand; what MM2 makes of them is compared in tests/broker."""
    (tmp_path / "login.properties").write_text("user = copier\npassword = secret\n")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "trust").write_text("changeit")
    text = file.read_text().replace("@FOLDER@", str(tmp_path))
    environment = ELSEWHERE | {"MM2_TOPICS": "orders", "MM2_FACTOR": "1"}
    assert parse(text.encode(), file.name, environment=environment).flows


# ---- where values came from ----


def test_explained() -> None:
    config = read("topics = a", "us->eu.tasks.max = 3", "us.ssl.key.password = hunter2")
    assert row(config, "us->eu", "topics").origin == "line 6: topics"
    assert row(config, "us->eu", "tasks.max").origin == "line 7: us->eu.tasks.max"
    assert row(config, "us->eu", "groups") == Explained("groups", ".*")
    assert row(config, "us->eu", "groups").origin == "default"
    assert row(config, "us->eu", "source: ssl.key.password").value == "***"
    assert row(config, "us", "bootstrap.servers") == Explained(
        "bootstrap.servers", "us1:9092", 3, "us.bootstrap.servers"
    )
    assert "hunter2" not in repr(config)


def test_every_honoured_key_of_a_flow_is_explained() -> None:
    from heliograph.config.keys import KEYS, Scope

    shown = {row.key for row in read().explained["us->eu"]}
    for key in KEYS:
        if key.honoured and key.scope in (Scope.FLOW, Scope.CLUSTER) and not key.is_family:
            assert key.name in shown or key.name.endswith("blacklist"), key.name
