"""Questions to the leaders of partitions, without a cluster: who waits for whom, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pytest

from heliograph.batch import Record, encode
from heliograph.errors import BrokerError, ConnectionLost, TimedOut
from heliograph.types import Cluster, TopicPartition
from heliograph.wire import Client, Produced
from heliograph.wire.calls import LEAST_S, Calls
from heliograph.wire.codes import LEADER_NOT_AVAILABLE, NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT

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


class Losing(Client):
    """Its one broker stores every batch, and its first answers are lost."""

    def __init__(self, lost: Exception | int, count: int = 1) -> None:
        super().__init__(Cluster("us", {"bootstrap.servers": "127.0.0.1:1"}), timeout_s=30.0)
        self.sent, self._lost, self._count = 0, lost, count

    def _leaders(
        self, tps: Iterable[TopicPartition], done: dict[TopicPartition, Any], deadline: float
    ) -> dict[int, list[TopicPartition]]:
        return {1: list(tps)}

    def _with(self, ask: Any, **_more: Any) -> Any:
        self.sent += 1
        if self.sent > self._count:
            return Produced(*A, 0, 5, -1, 0)
        if isinstance(self._lost, Exception):
            raise self._lost
        return Produced(*A, self._lost, -1, -1, 0)


UNKNOWN_OUTCOMES = [ConnectionLost("gone"), TimedOut("silent"), REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND]


@pytest.mark.parametrize("lost", UNKNOWN_OUTCOMES, ids=str)
def test_a_batch_with_a_sequence_is_sent_until_it_is_acknowledged(lost: Exception | int) -> None:
    client = Losing(lost, count=2)
    batch = encode([Record(0, 0, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
    assert client.produce(A, batch).base_offset == 5
    assert client.sent == 3


@pytest.mark.parametrize("lost", UNKNOWN_OUTCOMES, ids=str)
def test_a_batch_without_a_sequence_is_not_sent_again_once_it_may_be_stored(lost: Exception | int) -> None:
    client = Losing(lost)
    with pytest.raises(BrokerError, match="may have been stored") as caught:
        client.produce(A, encode([Record(0, 0, b"k", b"v")]))
    assert client.sent == 1
    assert (caught.value.context["topic"], caught.value.context["partition"]) == A


def test_a_batch_without_a_sequence_is_sent_again_where_it_cannot_be_stored_yet() -> None:
    client = Losing(LEADER_NOT_AVAILABLE)
    assert client.produce(A, encode([Record(0, 0, b"k", b"v")])).base_offset == 5
