"""Topics that get more replicas: on which brokers, and what is taken back of settings that were lowered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from heliograph.cli.replicas import _wanted
from heliograph.errors import BrokerError
from heliograph.review import raising
from heliograph.state.replicas import Needed
from heliograph.types import Cluster, Factor, TopicPartition
from heliograph.wire import ConfigEntry, Metadata, PartitionMeta, TopicMeta

FLAT: dict[int, str | None] = dict.fromkeys((1, 2, 3))
RACKS: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "c"}


@pytest.mark.parametrize(
    ("replicas", "wanted", "racks", "after"),
    [
        ((1,), 3, FLAT, (1, 2, 3)),
        ((2,), 2, FLAT, (2, 1)),
        ((2, 3), 3, FLAT, (2, 3, 1)),
        ((1, 2, 3), 3, FLAT, (1, 2, 3)),
        ((1,), 5, FLAT, (1, 2, 3)),  # as many as are up
        ((9,), 3, FLAT, (9, 1, 2)),  # a replica on a broker that is down stays
        ((1,), 2, RACKS, (1, 3)),  # another rack first
        ((1,), 3, RACKS, (1, 3, 4)),
        ((1,), 4, RACKS, (1, 3, 4, 2)),
    ],
)
def test_replicas_are_added_and_none_is_moved(
    replicas: tuple[int, ...], wanted: int, racks: dict[int, str | None], after: tuple[int, ...]
) -> None:
    assert raising.placed(replicas, wanted, racks, dict.fromkeys(racks, 0)) == after


class Fake:
    alias = "eu"

    def __init__(
        self, topics: Mapping[str, Sequence[tuple[int, ...]]], settings: Mapping[str, tuple[str, str]]
    ) -> None:
        self.topics, self.settings = dict(topics), settings
        self.altered: dict[str, Any] = {}

    def broker_racks(self) -> dict[int, str | None]:
        return FLAT

    def metadata(self, names: Sequence[str]) -> Metadata:
        found = {}
        for name in names:
            parts = {n: PartitionMeta(r[0], 0, tuple(r), tuple(r), 0) for n, r in enumerate(self.topics.get(name, ()))}
            found[name] = TopicMeta(name, None, False, 0 if parts else 3, parts)
        return Metadata({}, found, 0, "id")

    def reassign(self, replicas: Mapping[TopicPartition, Sequence[int]]) -> dict[TopicPartition, BrokerError | None]:
        for tp, after in replicas.items():
            parts = list(self.topics[tp.topic])
            parts[tp.partition] = tuple(after)
            self.topics[tp.topic] = parts
        return dict.fromkeys(replicas)

    def describe_topic_configs(self, names: Sequence[str], *, inherited: bool) -> dict[str, dict[str, ConfigEntry]]:
        assert inherited
        return {
            name: {raising.MIN_INSYNC: ConfigEntry(own, "DYNAMIC_TOPIC_CONFIG", False, False, default)}
            for name, (own, default) in self.settings.items()
            if name in names
        }

    def alter_topic_configs(self, changes: Mapping[str, Any]) -> dict[str, BrokerError | None]:
        self.altered |= changes
        return dict.fromkeys(changes)


def test_only_what_has_too_few_gets_more_and_brokers_take_turns() -> None:
    client = Fake({"one": [(1,), (1,), (1,), (1,)], "two": [(1, 2, 3)], "three": [(2, 1)]}, {})
    found = raising.planned(client, {"one": 2, "two": 3, "three": 2, "gone": 3})  # type: ignore[arg-type]
    assert [(one.topic, one.has, one.to, len(one.replicas)) for one in found] == [("one", 1, 2, 4)]
    assert sorted(after[1] for after in found[0].replicas.values()) == [2, 2, 3, 3]
    assert raising.begin(client, found) == {}  # type: ignore[arg-type]
    assert raising.unfinished(client, found) == set()  # type: ignore[arg-type]
    assert raising.planned(client, {"one": 2}) == []  # type: ignore[arg-type]


def test_min_insync_replicas_that_were_lowered_to_fit_are_the_clusters_own_again() -> None:
    client = Fake(
        {name: [(1,)] for name in ("lowered", "chosen", "too-many", "same")},
        {"lowered": ("1", "2"), "chosen": ("2", "3"), "too-many": ("1", "4"), "same": ("1", "1")},
    )
    found = raising.planned(client, dict.fromkeys(client.topics, 3))  # type: ignore[arg-type]
    assert raising.restore_insync(client, found) == ["lowered"]  # type: ignore[arg-type]
    assert client.altered == {"lowered": {raising.MIN_INSYNC: None}}


def test_a_topic_of_several_flows_gets_the_most_that_one_of_them_asks_for() -> None:
    """The flow that stands last in the file decided: one with a lower factor kept `heartbeats` where it was."""
    eu = Cluster("eu", {"bootstrap.servers": "eu:1"})
    needed = [Needed(eu, "heartbeats", Factor(count)) for count in (1, 3, 2, -1)]
    assert _wanted(needed) == {"heartbeats": 3}
