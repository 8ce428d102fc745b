"""What a survey comes to for flows that multiplex and put back: routes, topics they need, and what is in the way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self, cast
from uuid import UUID

import pytest

from heliograph.batch.labels import Stamp
from heliograph.errors import BrokerError, Unreachable
from heliograph.mirror.assignment import PutBack
from heliograph.mirror.following import Following
from heliograph.mirror.positions import Position, join
from heliograph.survey import places
from heliograph.survey.staged import may_begin, staged_lanes
from heliograph.survey.stages import DemuxSurvey, MuxSurvey, shared_partition
from heliograph.survey.topics import Route, Trouble
from heliograph.types import MUX_HEADERS, Cluster, Demux, Factor, Flow, Mux, TopicPartition
from heliograph.wire import ConfigEntry, NewTopic, TopicMeta, broker_error
from heliograph.wire.metadata import Metadata, PartitionMeta

SPOKE, HUB = Cluster("spoke", {"bootstrap.servers": "s:9092"}), Cluster("hub", {"bootstrap.servers": "h:9092"})
POLICY_VIOLATION = 44


class Kafka:
    """A cluster that answers what it holds."""

    def __init__(self, **topics: int) -> None:
        self.counts: dict[str, int] = dict(topics)
        self.configs: dict[str, dict[str, str]] = {}
        self.refuses = False
        self.reachable = True

    def cluster_id(self) -> str:
        return "the-id"

    def metadata(self, names: Iterable[str] | None) -> Metadata:
        if not self.reachable:
            raise Unreachable("nobody there")
        wanted = self.counts if names is None else names
        topics = {}
        for name in wanted:
            parts = {p: PartitionMeta(1, 0, (1,), (1,), 0) for p in range(self.counts.get(name, 0))}
            topics[name] = TopicMeta(
                name, UUID(int=5) if parts else None, name.startswith("__"), 0 if parts else 3, parts
            )
        return Metadata({}, topics, 1, self.cluster_id())

    def list_offsets(self, tps: Iterable[TopicPartition], at: str) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 1_000)

    def describe_topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, ConfigEntry]]:
        return {
            name: {
                key: ConfigEntry(value, "DYNAMIC_TOPIC_CONFIG", False, False)
                for key, value in self.configs.get(name, {}).items()
            }
            for name in names
        }

    def create_topics(self, specs: Iterable[NewTopic]) -> dict[str, BrokerError | None]:
        found: dict[str, BrokerError | None] = {}
        for spec in specs:
            found[spec.name] = broker_error(POLICY_VIOLATION, "not here") if self.refuses else None
            if not self.refuses:
                self.counts[spec.name], self.configs[spec.name] = spec.partitions, dict(spec.configs)
        return found

    def create_partitions(self, counts: Mapping[str, int]) -> dict[str, BrokerError | None]:
        if not self.refuses:
            self.counts |= counts
        return {name: broker_error(POLICY_VIOLATION, "not here") if self.refuses else None for name in counts}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def claimed(*targets: TopicPartition) -> Position:
    return join([Position(9, n, 0, 3, None, 3) for n, _ in enumerate(targets)], targets)


# ---------------------------------------------------------------- mux


def mux_flow(*topics: str, shared: str = "mux", partitions: int = 3) -> Flow:
    return Flow(SPOKE, HUB, mux=Mux(topics, shared, "oslo", partitions, MUX_HEADERS, "hub"))


def muxed(flow: Flow, source: Kafka, target: Kafka, known: dict[TopicPartition, Position] | None = None) -> MuxSurvey:
    return MuxSurvey(flow, cast(Any, source), cast(Any, target), lambda: known or {})


def test_chosen_topics_go_into_one_that_is_made_for_their_largest_records() -> None:
    source, target = Kafka(a=2, b=1, other=4), Kafka()
    source.configs["b"] = {"max.message.bytes": "5000000"}
    survey = muxed(mux_flow("a", "b", "late"), source, target).survey()
    assert target.counts == {"mux": 3}
    assert int(target.configs["mux"]["max.message.bytes"]) > 5_000_000
    assert [route.tp for route in survey.routes] == [
        TopicPartition("a", 0),
        TopicPartition("a", 1),
        TopicPartition("b", 0),
    ]
    assert {route.remote.topic for route in survey.routes} == {"mux"}
    (stamp,) = survey.routes[1].stages
    assert stamp == Stamp(TopicPartition("a", 1), "s:9092", "mux", "oslo", "the-id")
    assert not survey.parked
    assert survey.awaited == 1, "the one that comes late is looked for soon again"


def test_what_must_not_travel_does_not() -> None:
    source = Kafka(
        **{"a": 1, "mux": 3, "__consumer_offsets": 50, "mm2-offsets.hub.internal": 25, "heartbeats": 1, "hub.a": 1}
    )
    survey = muxed(mux_flow(".*"), source, Kafka()).survey()
    assert [route.tp.topic for route in survey.routes] == ["a"]


def test_a_source_partition_stays_where_it_was_begun() -> None:
    tp = TopicPartition("a", 0)
    begun = TopicPartition("mux", (shared_partition(tp, 8) + 1) % 8)
    survey = muxed(mux_flow("a"), Kafka(a=2), Kafka(mux=8), {tp: claimed(begun)}).survey()
    assert survey.routes[0].remote == begun
    assert survey.routes[1].remote == TopicPartition("mux", shared_partition(TopicPartition("a", 1), 8))


def test_a_source_partition_stays_there_also_when_its_position_begins_anew() -> None:
    tp = TopicPartition("a", 0)
    begun = TopicPartition("mux", (shared_partition(tp, 8) + 1) % 8)
    known = {tp: join([Position(9)], [begun])}
    assert muxed(mux_flow("a"), Kafka(a=1), Kafka(mux=8), known).survey().routes[0].remote == begun


def test_a_source_partition_whose_place_is_not_there_any_more_goes_nowhere_else() -> None:
    known = {TopicPartition("a", 0): claimed(TopicPartition("mux", 3))}
    survey = muxed(mux_flow("a"), Kafka(a=1), Kafka(mux=3), known).survey()
    assert not survey.routes
    assert "partition 3 of mux, which has 3 partitions" in survey.parked[0].reason
    assert survey.parked[0].fix.endswith("--partitions 4")


def test_another_shared_topic_is_parked_with_the_way_back() -> None:
    known = {TopicPartition("a", 0): claimed(TopicPartition("before", 1))}
    survey = muxed(mux_flow("a"), Kafka(a=2), Kafka(), known).survey()
    (parked,) = survey.parked
    assert (parked.topic, parked.partition, parked.fix) == ("a", 0, "put mux.topic = before back")
    assert [route.tp.partition for route in survey.routes] == [1]


def test_a_shared_topic_that_cannot_be_made_parks_all() -> None:
    target = Kafka()
    target.refuses = True
    survey = muxed(mux_flow("a", "b"), Kafka(a=1, b=1), target).survey()
    assert not survey.routes
    assert ["mux cannot be created" in one.reason for one in survey.parked] == [True, True]


def test_a_shared_topic_that_was_lost_is_not_made_before_that_is_settled() -> None:
    asked: list[list[str]] = []

    def withhold(missing: Mapping[str, TopicMeta], remote_of: Mapping[str, str]) -> dict[str, Trouble]:
        asked.append(sorted(missing))
        return {"a": Trouble("it was deleted", "decide")} if len(asked) == 1 else {}

    target = Kafka()
    mux = MuxSurvey(mux_flow("a", "b"), cast(Any, Kafka(a=1, b=1)), cast(Any, target), dict, withhold)
    survey = mux.survey()
    assert not survey.routes
    assert [(one.topic, one.fix) for one in survey.parked] == [("a", "decide"), ("b", "")]
    assert not target.counts
    assert len(mux.survey().routes) == 2
    mux.survey()
    assert asked == [["a", "b"], ["a", "b"], []]


def test_neighbours_go_to_neighbours() -> None:
    assert sorted(shared_partition(TopicPartition("a", p), 4) for p in range(4)) == [0, 1, 2, 3]


# ---------------------------------------------------------------- demux

SHARED = TopicPartition("mux", 0)


@pytest.fixture
def spoke(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    kafka = Kafka(a=4, b=2)
    kafka.configs["a"] = {"retention.ms": "7", "min.insync.replicas": "2"}
    monkeypatch.setattr(places, "Client", lambda cluster, timeout_s: kafka)
    return kafka


def demuxed(hub: Kafka, prefix: str = "", known: dict[TopicPartition, Position] | None = None) -> DemuxSurvey:
    flow = Flow(HUB, HUB, demux=(Demux("mux", prefix, False, SPOKE, Factor(1)),))
    return DemuxSurvey(flow, cast(Any, hub), cast(Any, hub), lambda: known or {})


def targets(route: Route) -> list[TopicPartition]:
    return list(route.strands)


def test_before_anything_is_known_there_is_the_anchor_alone(spoke: Kafka) -> None:
    hub = Kafka(mux=1)
    (route,) = demuxed(hub).survey().routes
    assert targets(route) == [SHARED]
    assert route.stages == (PutBack(None, following=Following("", frozenset({"mux"}))),)
    assert hub.counts == {"mux": 1}


def test_a_target_that_was_found_is_made_as_the_source_has_it(spoke: Kafka) -> None:
    hub = Kafka(mux=1)
    demux = demuxed(hub, "spoke.")
    assert demux.wish(SHARED, [TopicPartition("a", 1)])
    assert not demux.wish(SHARED, [TopicPartition("a", 1)]), "no news"
    (route,) = demux.survey().routes
    assert targets(route) == [SHARED, TopicPartition("spoke.a", 1)]
    assert route.stages[1] == PutBack(TopicPartition("a", 1))
    assert hub.counts["spoke.a"] == 4
    assert hub.configs["spoke.a"] == {"retention.ms": "7"}


def test_targets_keep_their_order_behind_those_that_the_position_names(spoke: Kafka) -> None:
    known = {SHARED: claimed(SHARED, TopicPartition("b", 1), TopicPartition("a", 3))}
    demux = demuxed(Kafka(mux=1, a=4, b=2), known=known)
    demux.wish(SHARED, [TopicPartition("a", 3), TopicPartition("a", 0)])
    (route,) = demux.survey().routes
    assert targets(route) == [SHARED, TopicPartition("b", 1), TopicPartition("a", 3), TopicPartition("a", 0)]
    assert may_begin(route, known[SHARED])
    lanes = staged_lanes(route, known[SHARED], frozenset(), history=False)
    assert [(lane.remote, lane.index, lane.strands) for lane in lanes] == [
        *((SHARED, 0, 3), (TopicPartition("b", 1), 1, 3), (TopicPartition("a", 3), 2, 3)),
    ]


def test_a_label_that_leads_into_a_shared_topic_makes_no_target(spoke: Kafka) -> None:
    """A link with the default policy calls the shared topic `spoke.mux`, and the prefix is `spoke.`."""
    hub, shared = Kafka(**{"spoke.mux": 1, "spoke.other": 1, "spoke.a": 4}), TopicPartition("spoke.mux", 0)
    rules = tuple(
        Demux(topic, "spoke.", False, SPOKE, Factor(1), shared=("spoke.third",))
        for topic in ("spoke.mux", "spoke.other")
    )
    demux = DemuxSurvey(Flow(HUB, HUB, demux=rules), cast(Any, hub), cast(Any, hub), dict)
    demux.wish(shared, [TopicPartition(name, 0) for name in ("mux", "other", "third", "mm2-x.internal", "a")])
    route = demux.survey().routes[0]
    assert targets(route) == [shared, TopicPartition("spoke.a", 0)]
    known = claimed(shared, TopicPartition("spoke.a", 0))
    lanes = staged_lanes(route, known, frozenset(), history=False)
    assert [cast(PutBack, lane.stage).origin for lane in lanes] == [None, TopicPartition("a", 0)]


def test_a_topic_with_fewer_partitions_grows_to_the_sources(spoke: Kafka) -> None:
    hub = Kafka(mux=1, a=2)
    demux = demuxed(hub)
    demux.wish(SHARED, [TopicPartition("a", 2)])
    (route,) = demux.survey().routes
    assert hub.counts["a"] == 4
    assert targets(route) == [SHARED, TopicPartition("a", 2)]


def test_a_partition_that_the_source_does_not_have_is_refused(spoke: Kafka) -> None:
    hub = Kafka(mux=1)
    demux = demuxed(hub)
    demux.wish(SHARED, [TopicPartition("a", 4), TopicPartition("gone", 1), TopicPartition("gone", 1_000)])
    (route,) = demux.survey().routes
    anchor = cast(PutBack, route.stages[0])
    assert anchor.refused == {TopicPartition("a", 4), TopicPartition("gone", 1_000)}
    assert targets(route) == [SHARED, TopicPartition("gone", 1)], "of a topic that is gone the records say how it was"
    assert hub.counts["gone"] == 2


def test_of_topics_that_the_source_does_not_have_only_so_many_are_made(spoke: Kafka) -> None:
    hub, names = Kafka(mux=1), [f"made-up-{n:03}" for n in range(places.MOST_GONE + 5)]
    demux = demuxed(hub)
    demux.wish(SHARED, [TopicPartition(name, 0) for name in names])
    for _ in range(2):
        (route,) = demux.survey().routes
        assert len(hub.counts) == 1 + places.MOST_GONE
        assert {one.topic for one in cast(PutBack, route.stages[0]).refused} == set(names[places.MOST_GONE :])


def test_labels_lead_to_chosen_topics_with_names_that_can_be_and_nowhere_else(spoke: Kafka) -> None:
    hub = Kafka(mux=1, a=4, **{"connect-configs": 1, "mux-of-another": 4})
    rule, long = Demux("mux", "spoke.", False, SPOKE, Factor(1), topics=("a", "x+")), "x" * 244
    demux = DemuxSurvey(Flow(HUB, HUB, demux=(rule,)), cast(Any, hub), cast(Any, hub), dict)
    names = ("connect-configs", "mux-of-another", "b", "ab", long, "a")
    demux.wish(SHARED, [TopicPartition(name, 0) for name in names])
    (route,) = demux.survey().routes
    assert targets(route) == [SHARED, TopicPartition("spoke.a", 0)]
    following = cast(PutBack, route.stages[0]).following
    assert [following.refuses(TopicPartition(name, 0)) for name in names] == [True] * 5 + [False]
    assert not following.refuses(TopicPartition(long[1:], 0))


def test_a_source_that_cannot_be_asked_holds_up_only_what_is_new(spoke: Kafka) -> None:
    spoke.reachable = False
    demux = demuxed(Kafka(mux=1, b=2))
    demux.wish(SHARED, [TopicPartition("a", 0), TopicPartition("b", 0)])
    survey = demux.survey()
    (route,) = survey.routes
    assert targets(route) == [SHARED, TopicPartition("b", 0)]
    (parked,) = survey.parked
    assert "records of a wait: spoke cannot be asked" in parked.reason
    assert parked.fix
    spoke.reachable = True
    assert targets(demux.survey().routes[0]) == [SHARED, TopicPartition("a", 0), TopicPartition("b", 0)]


def test_a_topic_that_cannot_be_made_is_named_and_its_strand_alone_stands(spoke: Kafka) -> None:
    hub = Kafka(mux=1)
    hub.refuses = True
    known = {SHARED: claimed(SHARED, TopicPartition("a", 0))}
    survey = demuxed(hub, known=known).survey()
    assert "a cannot be created" in survey.parked[0].reason
    (route,) = survey.routes
    assert may_begin(route, known[SHARED])
    anchor, stands = staged_lanes(route, known[SHARED], frozenset(), history=False)
    assert (anchor.absent, stands.absent) == ("", "a-0 is not there: its records wait in mux")
    assert (stands.remote, stands.position, stands.stage, stands.strands) == (
        *(TopicPartition("a", 0), known[SHARED].strands[1], PutBack(TopicPartition("a", 0)), 2),
    )
    assert not may_begin(route, claimed(TopicPartition("other", 0)))


@pytest.mark.parametrize(
    ("begun", "prefix", "refused"),
    [("a", "spoke.", True), ("spoke.a", "", True), ("spoke.a", "spoke.", False), ("a", "", False), ("old", "", False)],
)
def test_another_prefix_than_records_were_begun_under_is_parked(
    spoke: Kafka, begun: str, prefix: str, refused: bool
) -> None:
    hub, known = Kafka(mux=1, **{begun: 4}), {SHARED: claimed(SHARED, TopicPartition(begun, 0))}
    flow = Flow(HUB, HUB, demux=(Demux("mux", prefix, False, SPOKE, Factor(1), topics=("a", "b")),))
    survey = DemuxSurvey(flow, cast(Any, hub), cast(Any, hub), lambda: known).survey()
    assert len(survey.routes) == (not refused)
    assert [(one.partition, f"were begun into {begun}" in one.reason, bool(one.fix)) for one in survey.parked] == (
        [(0, True, True)] if refused else []
    )
    assert hub.counts == {"mux": 1, begun: 4}, "nothing is made for the other name"


def test_a_target_that_was_lost_is_not_made_before_that_is_settled(spoke: Kafka) -> None:
    hub, known = Kafka(mux=1, b=2), {SHARED: claimed(SHARED, TopicPartition("a", 0), TopicPartition("b", 0))}
    troubles, asked = {"a": Trouble("it was deleted", "decide")}, []

    def withhold(missing: Collection[str]) -> Mapping[str, Trouble]:
        asked.append(sorted(missing))
        return troubles

    flow = Flow(HUB, HUB, demux=(Demux("mux", "", False, SPOKE, Factor(1)),))
    demux = DemuxSurvey(flow, cast(Any, hub), cast(Any, hub), lambda: known, withhold)
    survey = demux.survey()
    assert asked == [["a"]]
    assert targets(survey.routes[0]) == [SHARED, TopicPartition("b", 0)], "the others go on"
    assert [(one.reason, one.fix) for one in survey.parked] == [("it was deleted", "decide")]
    assert "a" not in hub.counts
    troubles.clear()
    assert targets(demux.survey().routes[0]) == [SHARED, TopicPartition("a", 0), TopicPartition("b", 0)]
    assert hub.counts["a"] == 4


def test_what_is_left_of_a_spoke_that_was_removed_is_told(spoke: Kafka, logs: list[Any]) -> None:
    other = TopicPartition("mux2", 0)
    demux = demuxed(Kafka(mux=1, mux2=1), known={SHARED: claimed(SHARED), other: claimed(other)})
    one, two = demux.flow.demux[0], Demux("mux2", "", False, SPOKE, Factor(1))
    demux.change(Flow(HUB, HUB, demux=(one, two)))
    assert len(demux.survey().routes) == 2, "one more, while it runs"
    demux.change(Flow(HUB, HUB, demux=(one,)))
    assert len(demux.survey().routes) == 1
    demux.survey()
    told = [line for line in logs if line["log_level"] == "warning"]
    assert [(line["topic"], line["records"]) for line in told] == [("mux2", 991)]
    assert "put the flow back" in told[0]["fix"]


def test_a_shared_topic_that_is_not_there_yet_is_waited_for(spoke: Kafka) -> None:
    survey = demuxed(Kafka()).survey()
    assert not survey.routes
    assert "hub has no topic mux yet: nothing has come from spoke" in survey.parked[0].reason
