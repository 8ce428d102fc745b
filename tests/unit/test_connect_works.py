"""What is seen of a connector that copies: when it runs, how its tasks are dealt, what is in their traces."""

from __future__ import annotations

from typing import Any

from heliograph.connect.works import Copying, WorkLook
from heliograph.health.status import FlowReport, FlowStatus, ParkedPartition
from heliograph.types import Cluster, Flow
from tests.unit.test_metrics import a_partition


def look(*partitions: Any, tasks: int = 1, records: int = 5, state: str = "running", **more: Any) -> WorkLook:
    parked = more.pop("parked", ())
    work = Copying(Flow(Cluster("a"), Cluster("b"), tasks_max=2), None, None, epoch_seconds=1, file="")  # type: ignore[arg-type]
    status = FlowStatus("one", state, tasks=tasks, records=records, parked=parked)
    report = FlowReport("a", "b", status, partitions=partitions, **more)

    class Seen:
        def report(self) -> FlowReport:
            return report

    work._coordinator = Seen()  # type: ignore[assignment]
    return work.look()


def test_partitions_are_dealt_round_as_mm2_deals_them() -> None:
    found = look(*(a_partition(topic="t", partition=n) for n in range(3)))
    assert [task.settings["task.assigned.partitions"] for task in found.tasks] == ["t-0,t-2", "t-1"]
    assert not found.starting
    assert found.topics == {"us.orders": 21}


def test_it_starts_until_a_task_has_come() -> None:
    one = a_partition(state="stalled", stalled_s=6.0)
    assert look(one, tasks=0, records=0, state="stalled", epochs=1).starting
    assert look(one, tasks=0, records=0, state="starting").starting
    assert not look(one, tasks=1, records=0, state="stalled", epochs=1).starting
    assert not look(one, tasks=0, records=9, state="stalled", epochs=7).starting
    assert not look(tasks=0, records=0, state="idle").starting


def test_what_is_parked_fails_its_task_and_what_stalls_is_said() -> None:
    parked = (ParkedPartition("t", 0, "no", "ask"),)
    ill, slow = a_partition(topic="t", partition=0, reason="no"), a_partition(
        topic="t", partition=1, state="stalled", stalled_s=30.0, because="the broker is gone"
    )  # fmt: skip
    found = look(ill, slow, parked=parked, state="parked")
    assert "t-0" in found.tasks[0].trace
    assert (found.tasks[1].trace, "the broker is gone" in found.tasks[1].trouble) == ("", True)
    young = look(a_partition(topic="t", partition=1, state="stalled", stalled_s=6.0))
    assert young.tasks[0].trouble == ""


def test_a_topic_that_cannot_be_copied_is_a_trouble_of_the_connector() -> None:
    found = look(a_partition(), parked=(ParkedPartition("bad", None, "not allowed", "allow it"),), state="parked")
    assert (found.trace, found.trouble) == ("", "bad: not allowed. allow it")
