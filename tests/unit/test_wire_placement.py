"""New topics as a cluster can hold them: by its controller's word, its registered brokers and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.errors import BrokerError
from heliograph.types import TopicPartition
from heliograph.wire import placement, topics
from heliograph.wire.codes import INVALID_REPLICATION_FACTOR, TOPIC_ALREADY_EXISTS
from heliograph.wire.topics import NewTopic


class Cluster:
    """Brokers that are up, fenced, or only known by the replicas they hold; what its controller says to creations."""

    alias = "eu"

    def __init__(
        self,
        up: int,
        *,
        fenced: int = 0,
        holders: tuple[int, ...] = (),
        zookeeper: bool = False,
        names_fenced: bool = True,
        min_insync: int = 1,
        there: tuple[str, ...] = (),
        shows_configs: bool = True,
    ) -> None:
        self.up, self.fenced, self.holders = up, fenced, holders
        self.zookeeper, self.names_fenced = zookeeper, names_fenced
        self.min_insync, self.there, self.shows_configs = min_insync, there, shows_configs
        self.made: dict[str, tuple[int, dict[str, str]]] = {}
        self.reassigned: dict[TopicPartition, list[int]] = {}

    def call(self, api: str, **fields: Any) -> Any:
        if api == "describe_cluster":
            assert fields["include_fenced_brokers"]
            brokers = [SimpleNamespace(broker_id=one, is_fenced=False, rack=None) for one in range(self.up)]
            if self.names_fenced and not self.zookeeper:
                more = range(self.up, self.up + self.fenced)
                brokers += [SimpleNamespace(broker_id=one, is_fenced=True, rack=None) for one in more]
            return SimpleNamespace(error_code=0, error_message=None, brokers=brokers)
        assert api == "metadata"
        part = SimpleNamespace(
            partition_index=0, leader_id=0, leader_epoch=0, replica_nodes=self.holders, isr_nodes=(0,), error_code=0,
            offline_replicas=(),
        )  # fmt: skip
        topic = SimpleNamespace(name="old", topic_id=None, is_internal=False, error_code=0, partitions=[part])
        return SimpleNamespace(topics=[topic], brokers=[], controller_id=0, cluster_id="id")

    def call_controller(self, api: str, *, validate_only: bool, **fields: Any) -> Any:
        assert api == "create_topics"
        return SimpleNamespace(topics=[self._create(one, validate_only) for one in fields["topics"]])

    def _create(self, topic: Mapping[str, Any], validate_only: bool) -> Any:
        factor, configs = topic["replication_factor"], {one["name"]: one["value"] for one in topic["configs"]}
        code = 0
        if topic["name"] in self.there:
            code = TOPIC_ALREADY_EXISTS
        elif factor > (self.up if self.zookeeper else self.up + self.fenced):
            code = INVALID_REPLICATION_FACTOR
        elif not validate_only:
            self.made[topic["name"]] = factor, configs
        own = "min.insync.replicas" in configs
        entry = SimpleNamespace(
            name="min.insync.replicas", value=configs.get("min.insync.replicas", str(self.min_insync)),
            config_source=1 if own else 4, read_only=False, is_sensitive=False,
        )  # fmt: skip
        return SimpleNamespace(
            name=topic["name"], error_code=code, error_message="", num_partitions=1, replication_factor=factor,
            configs=[entry] if self.shows_configs and not code else None,
        )  # fmt: skip


def create(cluster: Cluster, *specs: NewTopic) -> dict[str, BrokerError | None]:
    return topics.create(cluster, specs, validate_only=False, timeout_s=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cluster", "factor"),
    [
        (Cluster(1), 1),
        (Cluster(2), 2),
        (Cluster(3), 3),
        (Cluster(9), 3),
        (Cluster(1, fenced=2), 3),  # two brokers restart: they are still brokers of the cluster
        (Cluster(1, fenced=1), 2),
        (Cluster(1, fenced=2, names_fenced=False), 3),  # KRaft before 4.0: its controller counts them
        (Cluster(1, fenced=1, names_fenced=False, holders=(0, 1)), 2),  # and topics tell of them
        (Cluster(1, zookeeper=True), 1),
        (Cluster(2, zookeeper=True, holders=(0, 1)), 2),
    ],
)
def test_a_default_factor_is_what_the_cluster_has_brokers_for(cluster: Cluster, factor: int) -> None:
    assert create(cluster, NewTopic("t", 1, 3, lowerable=True)) == {"t": None}
    assert cluster.made["t"][0] == factor


def test_a_broker_of_an_old_cluster_that_is_down_is_waited_for() -> None:
    """ZooKeeper's controller places replicas on live brokers only. Two of three restart: trying again helps."""
    cluster = Cluster(1, zookeeper=True, holders=(0, 1, 2))
    for lowerable in (True, False):
        (error,) = create(cluster, NewTopic("t", 1, 3, lowerable=lowerable)).values()
        assert error is not None
        assert (error.code, error.retriable) == (INVALID_REPLICATION_FACTOR, True)
        assert "of 3 brokers 1, 2 is not" in error.message
    assert cluster.made == {}


def test_a_factor_that_is_chosen_is_refused_where_it_does_not_fit() -> None:
    cluster = Cluster(2)
    results = create(cluster, NewTopic("t", 1, 3), NewTopic("u", 1, 2), NewTopic("v", 1, 3, lowerable=True))
    assert results["t"] is not None
    assert (results["t"].code, results["t"].retriable) == (INVALID_REPLICATION_FACTOR, False)
    assert (results["u"], results["v"]) == (None, None)
    assert {name: factor for name, (factor, _) in cluster.made.items()} == {"u": 2, "v": 2}


@pytest.mark.parametrize(
    ("cluster", "wanted", "lowerable", "own"),
    [
        (Cluster(1, min_insync=2), 3, True, "1"),  # with acks=all nothing could be appended otherwise
        (Cluster(1, min_insync=2), 1, False, "1"),
        (Cluster(2, min_insync=2), 3, True, None),
        (Cluster(3, min_insync=2), 3, True, None),
        (Cluster(1, min_insync=1), 3, True, None),
        (Cluster(1, min_insync=2, shows_configs=False), 3, True, None),  # not known: left as it is
    ],
)
def test_min_insync_replicas_do_not_exceed_the_factor(
    cluster: Cluster, wanted: int, lowerable: bool, own: str | None
) -> None:
    assert create(cluster, NewTopic("t", 1, wanted, {"a": "b"}, lowerable=lowerable)) == {"t": None}
    assert cluster.made["t"][1] == {"a": "b", **({"min.insync.replicas": own} if own else {})}


def test_topics_that_are_there_do_not_hide_that_the_factor_is_too_high() -> None:
    cluster = Cluster(1, min_insync=2, there=("t",))
    results = create(cluster, *(NewTopic(name, 1, 3, lowerable=True) for name in ("t", "u")))
    assert results["t"] is not None
    assert results["t"].code == TOPIC_ALREADY_EXISTS
    assert cluster.made == {"u": (1, {"min.insync.replicas": "1"})}


def test_the_clusters_own_default_is_left_alone() -> None:
    cluster = Cluster(1, min_insync=2)
    assert create(cluster, NewTopic("t")) == {"t": None}
    assert cluster.made == {"t": (-1, {})}


def test_what_is_foreseen_is_what_is_created() -> None:
    cluster = Cluster(1, min_insync=2)
    (found,) = topics.foresee(cluster, [NewTopic("t", 1, 3, lowerable=True)], timeout_s=1).values()  # type: ignore[arg-type]
    assert not isinstance(found, BrokerError)
    assert found.replication_factor == 1
    assert found.configs is not None
    assert found.configs["min.insync.replicas"].value == "1"
    assert cluster.made == {}


def test_replicas_of_topics_are_asked_for_only_where_brokers_seem_to_be_few() -> None:
    cluster = Cluster(2, holders=(0, 1, 2))
    asked = placement.registered(cluster, at_least=2, timeout_s=1)  # type: ignore[arg-type]
    assert asked == {0: True, 1: True}
    asked = placement.registered(cluster, at_least=3, timeout_s=1)  # type: ignore[arg-type]
    assert asked == {0: True, 1: True, 2: False}
