"""Which settings a copy gets, by MM2's rules and by ours; what ConfigSync sends, says and leaves alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest
from structlog.typing import EventDict

from heliograph.errors import BrokerError, HeliographError, Unreachable
from heliograph.sync.configs import ConfigSync, changes, creation_configs, needs_durability
from heliograph.sync.putback import PutBackConfigs
from heliograph.types import Cluster, Demux, Flow
from heliograph.wire import Client, ConfigEntry, Foreseen, Metadata, NewTopic, PartitionMeta, TopicMeta
from heliograph.wire.codes import broker_error

FLOW = Flow(Cluster("us"), Cluster("eu"))
ALL_KEYS = Flow(Cluster("us"), Cluster("eu"), config_properties_exclude=())


def own(value: str | None, **more: Any) -> ConfigEntry:
    return ConfigEntry(value, "DYNAMIC_TOPIC_CONFIG", False, False, **more)


def default(value: str | None, source: str = "DEFAULT_CONFIG") -> ConfigEntry:
    return ConfigEntry(value, source, False, False, inherited=value)


SOURCE = {
    "cleanup.policy": own("compact"),
    "retention.ms": default("604800000"),
    "segment.bytes": default("500", "STATIC_BROKER_CONFIG"),
    "segment.ms": default("7", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
    "flush.ms": default("8", "DYNAMIC_BROKER_CONFIG"),
    "min.insync.replicas": own("2"),
    "message.timestamp.type": own("LogAppendTime"),
    "secret": ConfigEntry(None, "DYNAMIC_TOPIC_CONFIG", False, True),
    "fixed": ConfigEntry("1", "DYNAMIC_TOPIC_CONFIG", True, False),
    "unset": own(None),
}


# ---- creation


def test_a_new_topic_gets_what_is_set_and_what_running_brokers_were_told() -> None:
    assert creation_configs(FLOW, SOURCE) == {"cleanup.policy": "compact", "segment.ms": "7", "flush.ms": "8"}


def test_a_new_topic_gets_the_sources_defaults_when_asked() -> None:
    flow = Flow(Cluster("us"), Cluster("eu"), use_defaults_from="source")
    assert creation_configs(flow, SOURCE)["retention.ms"] == "604800000"
    assert "segment.bytes" not in creation_configs(flow, SOURCE)  # static: of the brokers, in both directions


def test_a_list_of_ones_own_replaces_the_default_list() -> None:
    flow = Flow(Cluster("us"), Cluster("eu"), config_properties_exclude=("cleanup.*", r"flush\.ms"))
    assert creation_configs(flow, SOURCE) == {"segment.ms": "7", "message.timestamp.type": "LogAppendTime"}


def test_durability_is_settled_only_when_the_target_can_be_seen() -> None:
    assert "min.insync.replicas" not in creation_configs(ALL_KEYS, SOURCE)
    assert needs_durability(ALL_KEYS, SOURCE)
    assert not needs_durability(FLOW, SOURCE)
    assert not needs_durability(ALL_KEYS, {"min.insync.replicas": default("1")})


# ---- following


def test_only_what_differs_is_changed() -> None:
    target = {
        "cleanup.policy": own("delete"),  # drifted
        "retention.ms": own("5", inherited="604800000"),  # a value by hand where the source has none
        "segment.bytes": own("9"),  # the source's is static: not compared
        "segment.ms": own("7"),  # as it should be
        "flush.ms": default("8"),  # the same, but by chance: a default may change
        "min.insync.replicas": own("1"),  # excluded
        "message.timestamp.type": own("CreateTime"),  # excluded
    }
    found = changes(FLOW, SOURCE, target)
    assert found.wanted == {"cleanup.policy": "compact", "retention.ms": None, "flush.ms": "8"}
    assert not found.refused
    after = target | {"cleanup.policy": own("compact"), "retention.ms": default("604800000"), "flush.ms": own("8")}
    assert changes(FLOW, SOURCE, after).wanted == {}


def test_the_sources_defaults_are_set_when_asked() -> None:
    flow = Flow(Cluster("us"), Cluster("eu"), use_defaults_from="source")
    source = {"retention.ms": default("604800000")}
    assert changes(flow, source, {"retention.ms": own("5")}).wanted == {"retention.ms": "604800000"}
    assert changes(flow, source, {"retention.ms": default("5")}).wanted == {"retention.ms": "604800000"}
    assert changes(flow, source, {"retention.ms": own("604800000")}).wanted == {}


def test_a_setting_the_target_does_not_know_is_left_out_and_named() -> None:
    found = changes(FLOW, {"new.thing": own("1"), "other.new": default("2")}, {})
    assert found.wanted == {}
    assert [(one.key, "config.properties.exclude" in one.fix) for one in found.refused] == [("new.thing", True)]


@pytest.mark.parametrize(
    ("key", "theirs", "ours"),
    [
        ("min.insync.replicas", own("1"), own("2")),
        ("min.insync.replicas", own("1"), default("2", "STATIC_BROKER_CONFIG")),  # the target's own default is higher
        ("min.insync.replicas", default("1"), own("2", inherited="1")),  # removing it would lower it
        ("unclean.leader.election.enable", own("true"), own("false")),
        ("unclean.leader.election.enable", own("true"), default("false")),
        ("unclean.leader.election.enable", default("false"), own("false", inherited="true")),
    ],
)
def test_durability_is_not_lowered_unless_told(key: str, theirs: ConfigEntry, ours: ConfigEntry) -> None:
    found = changes(ALL_KEYS, {key: theirs}, {key: ours}, replicas=3)
    assert found.wanted == {}
    [refusal] = found.refused
    assert refusal.key == key
    assert "us->eu.sync.topic.configs.lower.durability = true" in refusal.fix
    told = Flow(Cluster("us"), Cluster("eu"), config_properties_exclude=(), lower_durability=True)
    assert changes(told, {key: theirs}, {key: ours}, replicas=3).wanted == {
        key: theirs.value if not theirs.is_default else None
    }


@pytest.mark.parametrize(
    ("key", "theirs", "ours"),
    [
        ("min.insync.replicas", own("2"), own("1")),
        ("min.insync.replicas", own("2"), default("2")),
        ("unclean.leader.election.enable", own("false"), own("true")),
        ("min.insync.replicas", default("1"), own("1", inherited="2")),
    ],
)
def test_durability_is_raised(key: str, theirs: ConfigEntry, ours: ConfigEntry) -> None:
    found = changes(ALL_KEYS, {key: theirs}, {key: ours}, replicas=3)
    assert list(found.wanted) == [key]
    assert not found.refused


@pytest.mark.parametrize("lower_durability", [True, False])
def test_min_insync_never_exceeds_the_replicas(lower_durability: bool) -> None:
    flow = Flow(Cluster("us"), Cluster("eu"), config_properties_exclude=(), lower_durability=lower_durability)
    source, target = {"min.insync.replicas": own("2")}, {"min.insync.replicas": default("1")}
    assert changes(flow, source, target, replicas=2).wanted == {"min.insync.replicas": "2"}
    found = changes(flow, source, target, replicas=1)
    assert found.wanted == {}
    assert "1 replicas" in found.refused[0].why
    inherited = {"min.insync.replicas": own("1", inherited="2")}
    assert changes(flow, {"min.insync.replicas": default("1")}, inherited, replicas=1).wanted == {}


# ---- records that the target keeps

TOLD = Flow(Cluster("us"), Cluster("eu"), shorten_retention=True)
WEEK, DAY = "604800000", "86400000"


@pytest.mark.parametrize(
    ("key", "theirs", "ours"),
    [
        ("retention.ms", default(WEEK), own("-1", inherited=DAY)),  # an archive would fall back to the target's default
        ("retention.ms", own(WEEK), own("-1")),
        ("retention.ms", own(DAY), own(WEEK)),
        ("retention.ms", own(DAY), default(WEEK)),  # the target's default keeps them for longer
        ("retention.ms", own("0"), default("1")),
        ("retention.ms", default(WEEK), own(WEEK)),  # what the default is cannot be seen
        ("retention.bytes", own("1000"), default("-1")),
        ("retention.bytes", own("1000"), own("2000")),
        ("retention.bytes", default("-1"), own("2000", inherited="1000")),
        ("delete.retention.ms", own("0"), default(DAY)),  # tombstones
        ("min.compaction.lag.ms", default("0"), own(DAY, inherited="0")),  # superseded records
        ("remote.storage.enable", own("false"), own("true")),  # Kafka deletes what is in remote storage
        ("remote.storage.enable", default("false"), own("true", inherited="false")),
    ],
)
def test_records_that_the_target_keeps_are_not_deleted_unless_told(
    key: str, theirs: ConfigEntry, ours: ConfigEntry
) -> None:
    found = changes(FLOW, {key: theirs}, {key: ours})
    assert found.wanted == {}
    [refusal] = found.refused
    assert refusal.key == key
    assert str(ours.value) in refusal.why
    assert "us->eu.sync.topic.configs.shorten.retention = true" in refusal.fix
    told = changes(TOLD, {key: theirs}, {key: ours})
    assert told.wanted == {key: theirs.value if not theirs.is_default else None}
    assert not told.refused


@pytest.mark.parametrize(
    ("key", "theirs", "ours"),
    [
        ("retention.ms", own("-1"), own(WEEK)),
        ("retention.ms", own("-1"), default(WEEK)),
        ("retention.ms", default(WEEK), own(DAY, inherited=WEEK)),
        ("retention.ms", default(WEEK), own(DAY, inherited="-1")),
        ("retention.ms", own(WEEK), default(WEEK)),  # the same, and pinned
        ("retention.bytes", own("-1"), own("1000")),
        ("delete.retention.ms", own(WEEK), default(DAY)),
        ("min.compaction.lag.ms", own("1"), default("0")),
        ("remote.storage.enable", own("true"), default("false")),
        # These decide when a record goes that may go anyway, or where it lies.
        ("local.retention.ms", own("1"), default("-2")),
        ("local.retention.bytes", own("1"), own("1000")),
        ("max.compaction.lag.ms", own("1"), default("9223372036854775807")),
        ("segment.ms", own("1"), default(WEEK)),
        ("segment.bytes", own("1"), own("1000")),
    ],
)
def test_settings_that_keep_records_as_long_or_longer_are_followed(
    key: str, theirs: ConfigEntry, ours: ConfigEntry
) -> None:
    found = changes(FLOW, {key: theirs}, {key: ours})
    assert list(found.wanted) == [key]
    assert not found.refused


FOREVER = {"retention.ms": own("-1", inherited=WEEK), "retention.bytes": default("-1")}
LIMITED = {"retention.ms": default(WEEK), "retention.bytes": default("-1")}


@pytest.mark.parametrize(
    ("theirs", "ours", "source", "target", "followed"),
    [
        # `delete` added takes what is older than the retention, the last record of a key included.
        ("delete", "compact", LIMITED, LIMITED, False),
        ("compact,delete", "compact", LIMITED, LIMITED, False),
        ("delete", "compact", {}, {}, False),  # the retention cannot be seen
        ("delete", "compact", FOREVER, FOREVER, True),
        ("delete", "compact", LIMITED, FOREVER, True),  # it stays unlimited, see above: so nothing goes
        ("delete", "delete,compact", LIMITED, LIMITED, True),
        # `compact` added takes all but the last of a key; where retention takes them anyway, keys stay by following.
        ("compact", "delete", LIMITED, LIMITED, True),
        ("compact,delete", "delete", LIMITED, LIMITED, True),
        ("compact", "delete", {}, {}, True),
        ("compact", "delete", LIMITED, FOREVER, False),  # an archive
        ("compact", "delete", FOREVER, FOREVER, False),
        ("compact", "delete", LIMITED, LIMITED | {"retention.ms": own("999999999999", inherited=WEEK)}, False),
        ("compact", "", FOREVER, FOREVER, False),
    ],
)
def test_cleanup_policies(
    theirs: str, ours: str, source: dict[str, ConfigEntry], target: dict[str, ConfigEntry], followed: bool
) -> None:
    both = source | {"cleanup.policy": own(theirs)}, target | {"cleanup.policy": own(ours)}
    found = changes(FLOW, *both)
    assert ("cleanup.policy" in found.wanted) is followed
    assert [one.key for one in found.refused if one.key == "cleanup.policy"] == ["cleanup.policy"] * (not followed)
    assert changes(TOLD, *both).wanted["cleanup.policy"] == theirs


def test_a_new_copy_has_its_sources_retention_however_short() -> None:
    source = {"retention.ms": own("1"), "cleanup.policy": own("delete")}
    assert creation_configs(FLOW, source) == {"retention.ms": "1", "cleanup.policy": "delete"}


# ---- doing it


class FakeCluster:
    """A cluster's topics and their settings; a topic that is not there is an error, as on a real one."""

    def __init__(self, topics: Mapping[str, dict[str, ConfigEntry]], *, replicas: int = 1) -> None:
        self.topics = dict(topics)
        self.replicas = replicas
        self.altered: list[dict[str, dict[str, str | None]]] = []
        self.refuses: set[str] = set()  # topics or settings
        self.defaults: dict[str, ConfigEntry] = {}  # of a new topic; none: we may not ask

    def describe_topic_configs(
        self, names: Iterable[str], *, inherited: bool = False
    ) -> dict[str, dict[str, ConfigEntry] | BrokerError]:
        return {name: self.topics.get(name) or broker_error(3, topic=name) for name in names}

    def alter_topic_configs(self, wanted: Mapping[str, Mapping[str, str | None]]) -> dict[str, BrokerError | None]:
        done: dict[str, BrokerError | None] = {}
        for name, settings in wanted.items():
            if self.refuses & {name, *settings}:
                done[name] = broker_error(40, "no", topic=name)
                continue
            for key, value in settings.items():
                self.topics[name][key] = default("the default") if value is None else own(value)
            done[name] = None
        if wanted:
            self.altered.append({name: dict(settings) for name, settings in wanted.items()})
        return done

    def foresee_topics(self, specs: Iterable[NewTopic]) -> dict[str, Foreseen | BrokerError]:
        refused = broker_error(29)
        return {one.name: Foreseen(1, 1, self.defaults) if self.defaults else refused for one in specs}

    def metadata(self, names: Iterable[str]) -> Metadata:
        part = PartitionMeta(1, 0, tuple(range(self.replicas)), (0,), 0)
        return Metadata({}, {name: TopicMeta(name, None, False, 0, {0: part}) for name in names}, 1, "id")


def a_sync(flow: Flow, source: FakeCluster, target: FakeCluster, altered: list[set[str]]) -> ConfigSync:
    return ConfigSync(flow, cast(Client, source), cast(Client, target), altered=altered.append)


def test_sync_alters_what_differs_and_then_nothing() -> None:
    source = FakeCluster({"a": {"cleanup.policy": own("compact")}, "b": {"cleanup.policy": default("delete")}})
    target = FakeCluster({"us.a": {"cleanup.policy": default("delete")}, "us.b": {"cleanup.policy": own("compact")}})
    altered: list[set[str]] = []
    sync = a_sync(FLOW, source, target, altered)
    assert sync.sync({"a": "us.a", "b": "us.b"}) == 2
    assert target.altered == [{"us.a": {"cleanup.policy": "compact"}, "us.b": {"cleanup.policy": None}}]
    assert altered == [{"us.a", "us.b"}]
    assert sync.sync({"a": "us.a", "b": "us.b"}) == 0
    assert len(target.altered) == len(altered) == 1


def test_one_topics_trouble_is_said_once_and_the_rest_goes_on(logs: list[EventDict]) -> None:
    entries = {"cleanup.policy": own("compact")}
    source = FakeCluster({"a": entries, "refused": entries, "b": entries})
    target = FakeCluster({f"us.{name}": {"cleanup.policy": default("delete")} for name in ("a", "gone", "refused")})
    target.refuses.add("us.refused")
    sync = a_sync(FLOW, source, target, [])
    pairs = {name: f"us.{name}" for name in ("a", "gone", "refused", "b")}
    assert sync.sync(pairs) == 1
    assert sync.sync(pairs) == 0
    warned = [line["topic"] for line in logs if line["log_level"] == "warning"]
    assert sorted(warned) == ["b", "gone", "refused"]
    assert any("INVALID_CONFIG" in line.get("why", "") for line in logs)


def test_one_setting_that_the_target_does_not_take_does_not_hold_up_the_others(logs: list[EventDict]) -> None:
    source = FakeCluster({"a": {key: own("1") for key in ("remote.storage.enable", "retention.ms", "flush.ms")}})
    target = FakeCluster({"us.a": {key: default("0") for key in ("remote.storage.enable", "retention.ms", "flush.ms")}})
    target.refuses.add("remote.storage.enable")
    sync = a_sync(FLOW, source, target, [])
    assert [sync.sync({"a": "us.a"}) for _ in range(3)] == [1, 0, 0]
    assert {key: entry.value for key, entry in target.topics["us.a"].items()} == {
        "remote.storage.enable": "0", "retention.ms": "1", "flush.ms": "1",
    }  # fmt: skip
    [refused] = [line for line in logs if line["log_level"] == "warning"]
    assert refused["settings"] == {"remote.storage.enable": "1"}


def test_a_refusal_is_logged_once_a_topic_with_the_key_that_allows_it(logs: list[EventDict]) -> None:
    source = FakeCluster({name: {"min.insync.replicas": own("1")} for name in ("a", "b")})
    target = FakeCluster({f"us.{name}": {"min.insync.replicas": own("2")} for name in ("a", "b")}, replicas=3)
    sync = a_sync(ALL_KEYS, source, target, [])
    for _ in range(3):
        assert sync.sync({"a": "us.a", "b": "us.b"}) == 0
    assert sorted(line["topic"] for line in logs) == ["a", "b"]
    assert all("sync.topic.configs.lower.durability" in line["fix"] for line in logs)


def test_shorter_retention_is_refused_with_both_values_and_the_rest_is_followed(logs: list[EventDict]) -> None:
    source = FakeCluster({"a": {"retention.ms": default(WEEK), "flush.ms": own("1")}})
    target = FakeCluster({"us.a": {"retention.ms": own("-1", inherited=DAY), "flush.ms": default("0")}})
    sync = a_sync(FLOW, source, target, [])
    assert [sync.sync({"a": "us.a"}) for _ in range(2)] == [1, 0]
    assert target.topics["us.a"]["retention.ms"].value == "-1"
    assert target.topics["us.a"]["flush.ms"].value == "1"
    [line] = [line for line in logs if line["log_level"] == "warning"]
    assert (line["topic"], line["remote"], line["setting"]) == ("a", "us.a", "retention.ms")
    assert DAY in line["why"]
    assert "-1" in line["why"]
    assert [refusal.key for refusal in sync.refusals["us.a"]] == ["retention.ms"]
    target.topics["us.a"]["retention.ms"] = default(DAY)
    sync.sync({"a": "us.a"})
    assert sync.refusals == {}


@pytest.mark.parametrize(("standard", "followed"), [(WEEK, True), ("-1", True), ("1", False), (None, False)])
def test_a_default_that_brokers_do_not_say_is_that_of_a_new_topic(standard: str | None, followed: bool) -> None:
    """Brokers without log.retention.ms do not say what a topic's retention.ms falls back to."""
    source = FakeCluster({"a": {"retention.ms": default(WEEK)}})
    target = FakeCluster({"us.a": {"retention.ms": own(DAY)}})
    target.defaults = {} if standard is None else {"retention.ms": default(standard)}
    sync = a_sync(FLOW, source, target, [])
    assert sync.sync({"a": "us.a"}) == followed
    if standard == "1":
        assert f"the default of retention.ms (1) instead of {DAY}" in sync.refusals["us.a"][0].why


def test_replicas_of_the_target_count() -> None:
    source = FakeCluster({"a": {"min.insync.replicas": own("2")}})
    for replicas, changed in ((1, 0), (2, 1)):
        target = FakeCluster({"us.a": {"min.insync.replicas": default("1")}}, replicas=replicas)
        assert a_sync(ALL_KEYS, source, target, []).sync({"a": "us.a"}) == changed


def test_many_topics_are_asked_for_in_portions() -> None:
    names = [f"t{n}" for n in range(450)]
    source = FakeCluster({name: {"cleanup.policy": own("compact")} for name in names})
    target = FakeCluster({f"us.{name}": {"cleanup.policy": default("delete")} for name in names})
    assert a_sync(FLOW, source, target, []).sync({name: f"us.{name}" for name in names}) == 450
    assert [len(some) for some in target.altered] == [200, 200, 50]


def test_a_cluster_that_cannot_be_asked_is_the_callers_matter() -> None:
    class Gone(FakeCluster):
        def describe_topic_configs(self, names: Iterable[str], *, inherited: bool = False) -> Any:
            raise Unreachable("gone")

    with pytest.raises(Unreachable):
        a_sync(FLOW, Gone({}), FakeCluster({}), []).sync({"a": "us.a"})


# ---- topics that records are put back into


class Refusing(FakeCluster):
    """One that cannot be asked."""

    error: HeliographError = Unreachable("gone")

    def describe_topic_configs(self, names: Iterable[str], *, inherited: bool = False) -> Any:
        raise self.error


PUT_BACK = {"mux-a": {"x": "a.x"}, "mux-b": {"x": "b.x"}}


def put_back_by(
    spokes: Mapping[str, FakeCluster], hub: FakeCluster, pairs: Mapping[str, Mapping[str, str]] = PUT_BACK
) -> PutBackConfigs:
    rules = tuple(Demux(f"mux-{name}", f"{name}.", True, Cluster(name), sync_configs_s=1) for name in spokes)
    flow = Flow(Cluster("hub"), Cluster("hub"), demux=rules)
    return PutBackConfigs(flow, cast("Client", hub), lambda spoke: cast("Client", spokes[spoke.alias]), lambda: pairs)


def compacted() -> FakeCluster:
    return FakeCluster({"x": {"cleanup.policy": own("compact")}})


def hub_of(*topics: str) -> FakeCluster:
    return FakeCluster({name: {"cleanup.policy": default("delete")} for name in topics})


def test_each_spoke_is_followed_and_one_that_is_gone_keeps_nobody_else() -> None:
    hub = hub_of("a.x", "b.x")
    configs = put_back_by({"a": Refusing({}), "b": compacted()}, hub)
    assert configs.every_s == 1
    configs.sync()
    assert hub.altered == [{"b.x": {"cleanup.policy": "compact"}}]


def test_what_is_wrong_with_a_spoke_that_answers_is_told_when_the_others_follow() -> None:
    hub, wrong = hub_of("a.x", "b.x"), Refusing({})
    wrong.error = broker_error(31)
    with pytest.raises(BrokerError):
        put_back_by({"a": wrong, "b": compacted()}, hub).sync()
    assert hub.altered == [{"b.x": {"cleanup.policy": "compact"}}]


def test_a_topic_of_several_spokes_follows_the_first_and_no_other_while_that_is_gone() -> None:
    both = {"mux-a": {"x": "x"}, "mux-b": {"x": "x"}}
    other = FakeCluster({"x": {"cleanup.policy": own("compact,delete")}})
    hub = hub_of("x")
    put_back_by({"a": compacted(), "b": other}, hub, both).sync()
    assert hub.altered == [{"x": {"cleanup.policy": "compact"}}]
    hub = hub_of("x")
    put_back_by({"a": Refusing({}), "b": other}, hub, both).sync()
    assert not hub.altered


def test_a_spoke_is_asked_when_it_is_due_and_has_something_here() -> None:
    asked: list[int] = []

    class Counting(FakeCluster):
        def describe_topic_configs(self, names: Iterable[str], *, inherited: bool = False) -> Any:
            asked.append(1)
            return super().describe_topic_configs(names, inherited=inherited)

    pairs: dict[str, dict[str, str]] = {}
    configs = put_back_by({"a": Counting(compacted().topics)}, hub_of("a.x"), pairs)
    configs.sync()
    assert not asked
    pairs["mux-a"] = {"x": "a.x"}
    configs.sync()
    configs.sync()
    assert len(asked) == 1


def test_each_spokes_pair_says_what_its_topics_may_lose(logs: list[EventDict]) -> None:
    """Once the first pair of the file decided for all."""
    spokes = {name: FakeCluster({"x": {"retention.ms": own("1")}}) for name in ("a", "b")}
    hub = FakeCluster({f"{name}.x": {"retention.ms": own("2")} for name in spokes})
    rules = tuple(
        Demux(f"mux-{name}", f"{name}.", True, Cluster(name), sync_configs_s=1, shorten_retention=name == "b")
        for name in spokes
    )
    flow = Flow(Cluster("hub"), Cluster("hub"), demux=rules)
    configs = PutBackConfigs(
        flow, cast("Client", hub), lambda spoke: cast("Client", spokes[spoke.alias]), lambda: PUT_BACK
    )
    configs.sync()
    assert hub.altered == [{"b.x": {"retention.ms": "1"}}]
    [line] = [line for line in logs if line["log_level"] == "warning"]
    assert "set a->hub.sync.topic.configs.shorten.retention = true" in line["fix"]
    assert list(configs.refusals) == ["a.x"]


def test_nothing_follows_where_the_pair_says_so() -> None:
    flow = Flow(Cluster("hub"), Cluster("hub"), demux=(Demux("mux-a", "a.", True, Cluster("a")),))
    assert PutBackConfigs(flow, cast("Client", hub_of()), lambda _: cast("Client", hub_of()), dict).every_s is None
