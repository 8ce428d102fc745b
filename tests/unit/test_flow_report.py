"""A flow's state and its words, from what is known at one moment."""

from __future__ import annotations

import time
from typing import Any

from heliograph.flow import report as reports
from heliograph.flow.observer import Observer
from heliograph.flow.report import Course, Look
from heliograph.flow.tally import COUNTERS, Tally
from heliograph.health.status import ParkedPartition
from heliograph.mirror.protocol import Report, partition_report
from heliograph.survey.topics import Route, Survey
from heliograph.types import Cluster, Flow, TopicPartition

TP = TopicPartition("orders", 0)
TASK = (1, 0, 0)
PARKED = ParkedPartition("hidden", None, "not allowed to see it", "allow DESCRIBE")


class Specialists:
    troubles: tuple[str, ...] = ()
    checkpoint_latencies = None
    heartbeat_age_s = None


class Scene:
    """A flow of one partition, on a clock that the test turns."""

    def __init__(self) -> None:
        self.now = 100.0
        self.tally = Tally()
        self.observer = Observer(self.tally, clock=lambda: self.now, wall=lambda: self.now)
        self.observer.copy({TP: TopicPartition("us.orders", 0)})
        self.course = Course()
        self.specialists = Specialists()
        self.survey = Survey((Route(TP, None, TopicPartition("us.orders", 0), 1_000_000),), (), 1)
        self.tasks = 0

    def report(self, position: int, end: int, **more: Any) -> None:
        if not self.tasks:
            self.tasks = 1
            self.observer.joined(TASK)
        base = {"topic": "orders", "partition": 0, "next": position, "end": end, "state": "flowing", "reason": ""}
        lane = {**dict.fromkeys(COUNTERS, 0), **base, "fix": "", **more}
        report = Report([partition_report(lane)])
        self.tally.add(TASK, report)
        self.observer.reported(TASK, report)

    def leave(self) -> None:
        self.observer.left(TASK)
        self.tasks = 0

    def look(self) -> Look:
        flow = Flow(Cluster("us"), Cluster("eu"))
        args = (flow, self.survey, self.tasks, 1, self.course, self.tally, self.observer, self.specialists)
        return Look(*args)  # type: ignore[arg-type]

    def state(self) -> tuple[str, str]:
        status = reports.status(self.look())
        return status.state, status.reason

    def because(self) -> str:
        return reports.report(self.look(), self.observer).because


def test_from_its_start_to_running() -> None:
    scene = Scene()
    assert scene.state() == ("starting", "Spark is being started")
    scene.course.say("running", "", None)
    assert scene.state() == ("starting", "Spark has not started a task yet")
    scene.now += 20
    assert scene.state()[0] == "starting"
    scene.course.epochs = 1
    scene.now += 20
    assert scene.state() == ("starting", "Spark is starting its tasks")
    scene.report(5, 5)
    assert scene.state() == ("running", "")
    assert scene.because() == ""


def test_what_the_first_task_finds_to_be_copied_is_no_stall() -> None:
    scene = Scene()
    scene.course.say("running", "", None)
    scene.now += 20
    scene.report(0, 4000)
    assert scene.state() == ("running", "")
    scene.leave()
    scene.now += 7
    scene.report(0, 4000)
    assert scene.state()[0] == "stalled", "a task that comes again is no new beginning"


def test_the_change_of_an_epoch_is_not_a_start_even_if_nothing_was_ever_copied() -> None:
    scene = Scene()
    scene.course.say("running", "", None)
    scene.report(0, 0)
    scene.leave()
    scene.now += 2
    assert scene.state() == ("running", "")


def test_a_stall_says_how_many_and_why_and_the_label_has_no_seconds() -> None:
    scene = Scene()
    scene.course.say("running", "", None)
    scene.report(5, 9, why="eu broker x: refused")
    for _ in range(7):
        scene.now += 1
        scene.report(5, 9, why="eu broker x: refused")
    state, reason = scene.state()
    assert state == "stalled"
    assert reason == (
        "1 of 1 partitions stalled (orders-0): "
        "source moved (4 records), we did not, for 7 s, because eu broker x: refused"
    )
    assert scene.because() == "eu broker x: refused"


def test_a_query_that_waits_says_when_it_is_started_again() -> None:
    scene = Scene()
    scene.course.say("restarting", "the streaming query ended: oh", time.monotonic() + 7)
    assert scene.state() == ("restarting", "the streaming query ended: oh; again in 7 s")
    assert scene.because() == "the streaming query ended: oh"
    assert reports.report(scene.look(), scene.observer).restarts == 1


def test_what_is_parked_makes_the_flow_parked() -> None:
    scene = Scene()
    scene.course.say("running", "", None)
    scene.report(5, 5)
    scene.survey = Survey(scene.survey.routes, (PARKED,), 2)
    assert scene.state() == ("parked", "hidden: not allowed to see it. allow DESCRIBE")
    assert scene.because() == "hidden: not allowed to see it. allow DESCRIBE"
    scene.report(5, 7, state="parked", reason="no permission", fix="allow WRITE", blind=True)
    state, reason = scene.state()
    assert state == "parked"
    assert reason == "1 of 1 partitions parked (orders-0): no permission. allow WRITE"


def test_a_trouble_that_keeps_no_record_from_moving_is_said_and_is_no_illness() -> None:
    scene = Scene()
    scene.course.say("running", "", None)
    scene.report(5, 5)
    scene.specialists.troubles = ("checkpoints: no permission",)
    assert scene.state() == ("running", "checkpoints: no permission")
    assert reports.report(scene.look(), scene.observer).healthy


def test_no_topics_is_idle_and_no_illness() -> None:
    scene = Scene()
    scene.course.say("running", "", None)
    scene.observer.copy({})
    scene.survey = Survey((), (), 0)
    assert scene.state() == ("idle", "no topic matches yet")
    assert reports.report(scene.look(), scene.observer).healthy
