"""Faults over fakes: what a fault takes away comes back, also when the storm is interrupted; the rest goes on."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from storm import clusters
from storm.clusters import TOPICS
from storm.faults import Faults, pick
from storm.groups import Ledger
from storm.identity import Identity
from storm.load import Load, TopicLoad
from storm.plan import Fault
from storm.verify import Read

from tests.kit import wait_until


class FakeBroker:
    def __init__(self, log: list[str]) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self._log.append(name)


@dataclass
class FakeLink:
    log: list[str] = field(default_factory=list)

    def cut(self) -> None:
        self.log.append("cut")

    def refuse(self, on: bool = True) -> None:
        self.log.append("refuse" if on else "accept")


class FakeSide:
    """A side whose calls are written down. `failures`: so many calls to `allow` fail first."""

    def __init__(self, failures: int = 0) -> None:
        self.name = "west"
        self.log: list[str] = []
        self.lock = threading.RLock()
        self.link = FakeLink()
        self.links = SimpleNamespace(all=lambda: [self.link])
        self.kafka = SimpleNamespace(brokers=[FakeBroker(self.log)])
        self._failures = failures

    def withdraw(self, _permission: object) -> None:
        self.log.append("withdraw")

    def allow(self, _permissions: object) -> None:
        if self._failures:
            self._failures -= 1
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        self.log.append("allow")


def faults_on(side: FakeSide) -> Faults:
    return Faults({"west": side, "east": side}, {}, SimpleNamespace(workers=list))  # type: ignore[arg-type, dict-item]


def fault(kind: str, hold_s: float = 0.0, variant: float = 0.0) -> Fault:
    return Fault(1, kind, "west", 0.0, hold_s, 0.5, variant)


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        ("permission", ["withdraw", "allow"]),
        ("broker-kill", ["kill", "start"]),
        ("broker-freeze", ["pause", "resume"]),
    ],
)
def test_what_was_taken_away_comes_back(kind: str, calls: list[str]) -> None:
    side = FakeSide()
    faults = faults_on(side)
    faults.run_lane([fault(kind)])
    assert side.log == calls
    assert faults.done.by_kind[kind] == 1


@pytest.mark.parametrize("kind", ["permission", "broker-freeze", "refuse"])
def test_an_interrupt_ends_a_hold_at_once_and_gives_back(kind: str) -> None:
    side = FakeSide()
    faults = faults_on(side)
    lane = threading.Thread(target=faults.run_lane, args=([fault(kind, hold_s=3600), fault(kind, hold_s=3600)],))
    lane.start()
    wait_until(lambda: side.log or side.link.log, what="the fault", timeout_seconds=10, every_seconds=0.001)
    faults.stopping.set()
    lane.join(10)
    assert not lane.is_alive()
    assert (side.log or side.link.log)[-1] in ("allow", "resume", "accept")
    assert faults.done.by_kind[kind] == 1  # the second was not begun


def test_a_permission_is_given_back_until_the_broker_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters.time, "sleep", lambda _s: None)
    side = FakeSide(failures=5)
    faults_on(side).run_lane([fault("permission")])
    assert side.log == ["withdraw", "allow"]


def test_a_fault_without_a_victim_is_noted_as_not_done_and_the_next_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storm.faults.VICTIM_S", 0.0)
    side = FakeSide()
    faults = faults_on(side)
    faults.run_lane([fault("task-kill"), fault("cut")])
    assert faults.done.skipped == {"task-kill": 1}
    assert faults.done.by_kind == {"cut": 1}
    assert "task-kill 1 on west was not done" in faults.done.words[0]
    assert side.link.log == ["cut"]


def test_victims_are_picked_by_the_draw() -> None:
    assert [pick("abc", draw) for draw in (0.0, 0.34, 0.99, 1.0)] == ["a", "b", "c", "c"]


def test_a_new_generation_counts_from_zero_and_late_answers_belong_to_the_old_one() -> None:
    load = TopicLoad(next(shape for shape in TOPICS if shape.recreated))
    load.acknowledge(Identity(0, 1, 0), 0)
    load.begin_generation()
    load.acknowledge(Identity(0, 1, 1), 7)
    load.acknowledge(Identity(1, 1, 0), 0)
    assert load.ends == [0, 1]
    assert {key: numbers.tolist() for key, numbers in load.acknowledged().items()} == {(0, 1): [0, 1], (1, 1): [0]}


def test_what_a_group_has_read_of_an_old_generation_does_not_count_in_the_new_one() -> None:
    ledger = Ledger()
    ledger.note("g", "t", 0, Read(0, 100))
    assert ledger.committed("g", "t", 0, 0) == 100
    assert ledger.committed("g", "t", 0, 1) == 0


def test_load_is_sent_once_where_brokers_forget_producers() -> None:
    """With idempotence off and no retries a record is in the source at most once."""
    client = {"bootstrap.servers": "127.0.0.1:1"}
    for old in (False, True):
        Load(client, TOPICS, rate=1, old=old)  # librdkafka takes the settings
