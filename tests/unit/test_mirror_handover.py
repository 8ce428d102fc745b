"""A task that takes over from the epoch before, by the real connection, without brokers: it goes, or gives up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from heliograph.flow import hub as hubs
from heliograph.flow.hub import Hub
from heliograph.mirror import link as links
from heliograph.mirror import task as tasks
from heliograph.mirror.assignment import Assignment
from heliograph.mirror.protocol import DriverMessage, Finish, Go, LanePosition, Positions
from heliograph.mirror.task import Task
from heliograph.types import Cluster
from tests.kit import wait_until
from tests.unit.test_mirror_link import FLOW, Station, cut

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


class Scene:
    def __init__(self) -> None:
        self.hub, self.station = Hub(), Station()
        self.hub.add(FLOW, self.station)
        self.tasks: list[Task] = []

    def task(self, *, attempt: int = 0) -> Task:
        clusters = Cluster("us", NOWHERE), Cluster("eu", NOWHERE)
        where = ("p", 1, "m", 1, 1, 0, 60.0, (), self.hub.coordinates)
        task = Task(Assignment(FLOW, *clusters, "read_committed", *where, relay=True), attempt=attempt)
        self.tasks.append(task)
        for brokers in (task._source.brokers, task._target.brokers):
            brokers.reach = lambda tps, now: True  # type: ignore[method-assign]
            brokers.errands.submit = _done  # type: ignore[method-assign]
        wait_until(lambda: bool(self.station.channels), what="the task's connection", timeout_seconds=10)
        return task


def _done(errand: Callable[[], object], done: Callable[[object, None], None]) -> None:
    done(None, None)


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    for task in scene.tasks:
        task._close()
    scene.hub.close()


def test_a_task_goes_when_it_is_told_to(scene: Scene) -> None:
    task = scene.task()
    task._take_over()
    assert task._handed_over
    assert scene.station.gave_ups == []


def test_a_late_go_is_dropped_and_the_coordinator_knows_that_the_task_began(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading positions took the coordinator longer than a task waits."""
    monkeypatch.setattr(tasks, "TAKE_OVER_S", 0.3)
    scene.station.lets_go = False
    task = scene.task()
    stood: list[object] = []
    monkeypatch.setattr(task, "_stand_at", stood.append)
    task._take_over()
    assert not task._handed_over
    wait_until(lambda: scene.station.gave_ups == [1], what="word that it gave up", timeout_seconds=10)
    scene.station.channels[0].send(Go(1, [LanePosition("t", 0, '{"offset":19}')]))
    scene.station.channels[0].send(Finish())
    wait_until(lambda: task._listen() is None and task._finishing, what="what was sent behind it")
    assert not task._handed_over
    assert stood == []


def test_a_task_that_waits_to_take_over_reconnects(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "REDIAL_S", 0.02)
    scene.station.lets_go = False
    task = scene.task()

    def hiccup() -> None:
        wait_until(lambda: scene.station.requests == [1], what="the first request", timeout_seconds=10)
        scene.station.lets_go = True
        channel = scene.station.channels[0]
        assert isinstance(channel, hubs.TaskChannel)
        hubs._shut(channel._connection)

    breaker = threading.Thread(target=hiccup)
    breaker.start()
    began = time.monotonic()
    task._take_over()
    breaker.join()
    assert task._handed_over
    assert time.monotonic() - began < links.GONE_AFTER_S
    assert scene.station.requests == [1, 2]


def test_a_repeated_attempt_begins_without_positions_that_come_too_late(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links.Link.await_message, "__defaults__", (0.1,))
    task = scene.task(attempt=1)
    heard: list[DriverMessage] = []
    scene.station.channels[0].send(Positions([LanePosition("t", 0, '{"offset":19}')]))
    scene.station.channels[0].send(Finish())
    wait_until(lambda: heard.extend(task._link.heard()) or heard, what="what was sent behind them")
    assert heard == [Finish()]


def test_a_task_whose_driver_is_silent_ends_and_writes_no_positions(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = scene.task()
    written: list[int] = []
    monkeypatch.setattr(task._journal, "write", lambda: written.append(1))
    task._write_positions()
    assert written == [1]
    monkeypatch.setattr(links, "GONE_AFTER_S", -1.0)
    task._listen()
    task._write_positions()
    assert task._finishing
    assert written == [1]


def test_a_task_that_is_told_to_abandon_its_positions_writes_none(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = scene.task()
    written: list[int] = []
    monkeypatch.setattr(task._journal, "write", lambda: written.append(1))
    scene.station.relay.send_all(Finish(abandon=True))
    wait_until(lambda: task._listen() is None and task._finishing, what="the word")
    task._write_positions()
    assert written == []


def test_the_connection_that_was_cut_is_dialled_again(scene: Scene) -> None:
    task = scene.task()
    cut(task._link)
    wait_until(lambda: task._listen() is None and len(scene.station.channels) == 2, what="the new connection")
