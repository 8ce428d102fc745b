"""Questions to the leaders of partitions, without a cluster: who waits for whom, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from heliograph.errors import BrokerError, TimedOut
from heliograph.types import Cluster, TopicPartition
from heliograph.wire.calls import LEAST_S, Calls
from heliograph.wire.codes import LEADER_NOT_AVAILABLE

A, B, C = (TopicPartition("t", number) for number in range(3))
Answers = dict[TopicPartition, str | BrokerError]


class Led(Calls):
    """A and B have leaders, 1 and 2. C has none. Counts how often it was asked who leads."""

    def __init__(self, **limits: float) -> None:
        super().__init__(Cluster("us", {"bootstrap.servers": "127.0.0.1:1"}), **limits)  # type: ignore[arg-type]
        self.looks = 0

    def _leaders(
        self, tps: Iterable[TopicPartition], done: dict[TopicPartition, Any], deadline: float
    ) -> dict[int, list[TopicPartition]]:
        self.looks += 1
        done |= {tp: self._error(LEADER_NOT_AVAILABLE, tp) for tp in tps if tp == C}
        return {broker: [tp] for broker, tp in ((1, A), (2, B)) if tp in tps}


def answer(broker: int, group: list[TopicPartition], left_s: float) -> Answers:
    return dict.fromkeys(group, f"by {broker}")


def test_a_partition_without_a_leader_costs_the_others_no_more_than_patience() -> None:
    began = time.monotonic()
    found = Led(timeout_s=60.0, patience_s=0.05)._per_leader([A, B, C], answer, None)
    assert time.monotonic() - began < 30  # of the 60 that it may take in all
    assert (found[A], found[B]) == ("by 1", "by 2")
    assert isinstance(found[C], BrokerError)


def test_what_has_no_leader_is_asked_for_again_until_the_time_is_over() -> None:
    led = Led(timeout_s=0.5)
    assert isinstance(led._per_leader([C], answer, None)[C], BrokerError)
    assert led.looks > 1


def test_a_broker_that_is_silent_leaves_the_next_one_time_to_answer() -> None:
    left: dict[int, list[float]] = {1: [], 2: []}

    def ask(broker: int, group: list[TopicPartition], left_s: float) -> Answers:
        left[broker].append(left_s)
        if broker == 1:
            time.sleep(0.1)  # all that there was
            raise TimedOut("1 did not answer")
        return answer(broker, group, left_s)

    found = Led(timeout_s=0.1, patience_s=0.0)._per_leader([A, B], ask, None, each_s=0.05)
    assert isinstance(found[A], BrokerError)
    assert found[B] == "by 2"
    assert left[2][0] > LEAST_S / 2
