"""A state topic just made: the brokers hear of it one after the other, and a start must not end over that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.errors import BrokerError
from heliograph.state import compacted
from heliograph.state.compacted import CompactedLog
from heliograph.types import Factor, TopicPartition
from heliograph.wire import NewTopic
from heliograph.wire.codes import LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, broker_error


class Cluster:
    """Metadata says that the topic is there as soon as it was made; the leader of partition 1 says so `late` calls
    later. Real brokers do this when they please, so it cannot be had from them."""

    alias = "b"

    def __init__(self, late: int = 0, code: int = UNKNOWN_TOPIC_OR_PARTITION) -> None:
        self.made: list[NewTopic] = []
        self.late = late
        self.code = code
        self.asked = 0

    def metadata(self, _topics: Sequence[str]) -> Any:
        return SimpleNamespace(
            topics={
                one.name: SimpleNamespace(id=None, partitions=dict.fromkeys(range(one.partitions)), error=0)
                for one in self.made
            }
        )

    def create_topics(self, specs: Sequence[NewTopic]) -> dict[str, None]:
        self.made.extend(specs)
        return dict.fromkeys(one.name for one in specs)

    def list_offsets(self, tps: Iterable[TopicPartition], *, at: str) -> dict[TopicPartition, int | BrokerError]:
        self.asked += 1
        lags = self.asked <= self.late
        return {tp: broker_error(self.code) if lags and tp.partition == 1 else 0 for tp in tps}


def test_ensured_means_that_every_leader_knows_it() -> None:
    cluster = Cluster(late=3)
    CompactedLog(cluster, "t").ensure(2, Factor(1))  # type: ignore[arg-type]
    assert [(one.name, one.partitions) for one in cluster.made] == [("t", 2)]
    assert cluster.asked == 4


def test_one_that_another_made_a_moment_ago_is_waited_for_too() -> None:
    cluster = Cluster(late=2)
    cluster.made.append(NewTopic("t", 2, 1))
    CompactedLog(cluster, "t").ensure(2, Factor(1))  # type: ignore[arg-type]
    assert (len(cluster.made), cluster.asked) == (1, 3)


def test_a_partition_that_just_has_no_leader_is_not_waited_for_here() -> None:
    cluster = Cluster(late=100, code=LEADER_NOT_AVAILABLE)
    CompactedLog(cluster, "t").ensure(2, Factor(1))  # type: ignore[arg-type]
    assert cluster.asked == 1


def test_a_leader_that_never_hears_of_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacted, "APPEAR_S", 0.1)
    with pytest.raises(BrokerError) as caught:
        CompactedLog(Cluster(late=10**9), "t").ensure(2, Factor(1))  # type: ignore[arg-type]
    assert caught.value.code == UNKNOWN_TOPIC_OR_PARTITION
    assert "its leaders do not know it" in str(caught.value)
