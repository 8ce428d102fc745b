"""Control messages between a driver and its tasks, over the real connection on loopback."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import msgspec
import pytest
import structlog

from heliograph.errors import EngineError
from heliograph.flow import hub as hubs
from heliograph.flow.hub import Hub
from heliograph.flow.relay import Channel, Relay, Released, TaskKey
from heliograph.mirror import handshake, protocol
from heliograph.mirror import link as links
from heliograph.mirror.assignment import Assignment
from heliograph.mirror.link import Link
from heliograph.mirror.protocol import (
    DriverMessage,
    Finish,
    Go,
    Halt,
    PlannerHello,
    Positions,
    Report,
    Shares,
    TaskHello,
    Turn,
)
from tests.kit import wait_until

FLOW = "us->eu"


class Station:
    """A coordinator that keeps only a relay. `at_join`: sent to every task that joins."""

    def __init__(self, *at_join: DriverMessage) -> None:
        self.at_join = at_join
        self.relay = Relay()
        self.relay.turn_to(1, 1)
        self.channels: list[Channel] = []
        self.ended: list[Channel] = []
        self.reports = 0
        self.gave_ups: list[int] = []
        self.requests: list[int] = []
        self.at_report: Callable[[], object] = lambda: None
        self.lets_go = True

    def last_epoch(self) -> int:
        return 7

    def next_epoch(self, after: int) -> int:
        return after + 1

    def plan(self, epoch: int) -> list[Assignment]:
        return []

    def joined(self, task: TaskKey, channel: Channel) -> None:
        self.relay.joined(task, channel)
        for message in self.at_join:
            channel.send(message)
        self.channels.append(channel)

    def reported(self, task: TaskKey, report: Report) -> None:
        self.reports += 1
        self.at_report()

    def ready(self, task: TaskKey, request: int, channel: Channel) -> None:
        self.requests.append(request)
        self._release(self.relay.ready(task, request, channel))

    def gave_up(self, task: TaskKey, request: int, channel: Channel) -> None:
        self.gave_ups.append(request)
        self._release(self.relay.gave_up(task, request, channel))

    def left(self, task: TaskKey, channel: Channel) -> None:
        self._release(self.relay.left(task, channel)[1])
        self.ended.append(channel)

    def _release(self, free: list[Released]) -> None:
        for one in free if self.lets_go else ():
            one.channel.send(Go(one.request))


class Scene:
    def __init__(self) -> None:
        self.hub = Hub()
        self.open: list[Link | Connection] = []

    def station(self, *at_join: DriverMessage, flow: str = FLOW) -> Station:
        station = Station(*at_join)
        self.hub.add(flow, station)
        return station

    def link(self, *, flow: str = FLOW, task: int = 0, attempt: int = 0) -> Link:
        link = Link(self.hub.coordinates, TaskHello(flow, 1, task, attempt))
        self.open.append(link)
        return link

    def stranger(self, hello: object) -> Connection:
        """A client that proves the key and says what it likes."""
        where = self.hub.coordinates
        connection = handshake.connect(where.host, where.port, where.key, timeout_s=10, later_s=0)
        connection.send_bytes(hello if isinstance(hello, bytes) else msgspec.json.encode(hello))
        self.open.append(connection)
        return connection


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    for one in scene.open:
        one.close()
    scene.hub.close()


def cut(link: Link) -> None:
    """The task's connection fails; the driver notices some time later."""
    assert link._connection is not None
    with socket.socket(fileno=link._connection.fileno()) as raw:
        raw.detach()
    link._drop()


def listen(link: Link, kind: type[DriverMessage]) -> list[DriverMessage]:
    """All that is heard until a message of this kind comes."""
    heard: list[DriverMessage] = []

    def comes() -> bool:
        heard.extend(link.heard())
        return any(isinstance(one, kind) for one in heard)

    wait_until(comes, what=f"a {kind.__name__}", timeout_seconds=10)
    return heard


# ---------------------------------------------------------------- waiting for a message


def test_what_comes_while_another_message_is_awaited_is_kept(scene: Scene) -> None:
    scene.station(Positions(), Shares(1, [5.0]), Halt(1, [("t", 0)]))
    link = scene.link(attempt=1)
    assert link.await_message(Positions) == Positions()
    assert listen(link, Halt) == [Shares(1, [5.0]), Halt(1, [("t", 0)])]


def test_what_was_kept_is_there_for_the_next_wait(scene: Scene) -> None:
    scene.station(Shares(1, [5.0]), Halt(1, [("t", 0)]))
    link = scene.link(attempt=1)
    assert link.await_message(Halt) == Halt(1, [("t", 0)])
    assert link.await_message(Turn, timeout_s=0.05) is None
    assert link.await_message(Shares, timeout_s=0.05) == Shares(1, [5.0])
    assert link.heard() == []


def test_a_task_that_waits_reconnects_where_it_waits(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "REDIAL_S", 0.02)
    station = scene.station()
    link = scene.link(attempt=1)
    cut(link)
    station.at_join = (Positions(),)
    assert link.await_message(Positions) == Positions()


def test_a_task_that_waits_for_go_asks_again_by_its_new_connection(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "REDIAL_S", 0.02)
    station = scene.station()
    station.lets_go = False  # the answer is lost
    link = scene.link()
    link.ready()
    wait_until(lambda: station.requests == [1], what="the first request")
    cut(link)
    station.lets_go = True
    assert listen(link, Go) == [Go(2)]


# ---------------------------------------------------------------- which connection is the task's


def test_the_late_end_of_an_old_connection_does_not_remove_the_task(scene: Scene) -> None:
    station = scene.station()
    noticed = threading.Event()
    station.at_report = lambda: noticed.wait(10) if station.reports == 1 else None
    link = scene.link()
    assert link.tell(Report())
    wait_until(lambda: station.reports == 1, what="the report")
    cut(link)  # the driver's thread works on the report, and has not seen that
    wait_until(lambda: link.tell(Report()), what="the new connection")
    wait_until(lambda: len(station.channels) == 2, what="the task to be back")
    noticed.set()
    wait_until(lambda: len(station.ended) == 1, what="the old connection's end")
    assert (station.relay.busy, station.relay.tasks) == (True, 1)
    station.relay.send_all(Finish())
    assert listen(link, Finish) == [Finish()]


# ---------------------------------------------------------------- a driver that is there, or not


def test_a_driver_that_answers_pings_is_there(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "PING_EVERY_S", 0.01)
    monkeypatch.setattr(links, "GONE_AFTER_S", 0.5)
    scene.station()
    link = scene.link()
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        link.heard()
        time.sleep(0.005)
    assert not link.gone
    assert link.may_write_positions


def test_a_frozen_driver_is_gone_though_its_connection_is_open(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "PING_EVERY_S", 0.01)
    monkeypatch.setattr(links, "QUIET_S", 0.05)
    monkeypatch.setattr(links, "GONE_AFTER_S", 0.3)
    frozen = threading.Event()
    station = scene.station()
    station.at_report = lambda: frozen.wait(30)
    link = scene.link()
    link.tell(Report())
    try:
        wait_until(lambda: link.heard() == [] and link.gone, what="the silence to count")
        assert not link.may_write_positions
        began = time.monotonic()
        for _ in range(100):
            assert not link.tell(Report(trouble=["x" * 100_000]))  # and never blocks the copy
        assert time.monotonic() - began < 5
    finally:
        frozen.set()


def test_messages_that_lay_in_a_buffer_do_not_prove_that_the_driver_lives(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that was frozen reads old answers first."""
    monkeypatch.setattr(links, "GONE_AFTER_S", 0.3)
    station = scene.station()
    link = scene.link()
    link.heard()
    time.sleep(0.4)  # frozen; the answer to its ping and a message came meanwhile
    station.channels[0].send(Turn())
    assert listen(link, Turn) == [Turn()]
    assert link.gone


def test_no_position_is_written_after_an_abandoning_finish(scene: Scene) -> None:
    scene.station(Finish(abandon=True))
    link = scene.link()
    listen(link, Finish)
    assert not link.may_write_positions


# ---------------------------------------------------------------- other versions, and nonsense


def test_a_task_of_another_version_is_refused_and_the_others_go_on(scene: Scene) -> None:
    scene.station()
    other = scene.link(task=1)
    with structlog.testing.capture_logs() as logs:
        for hello in ({"say": "task", "flow": FLOW, "epoch": 1, "task": 0, "attempt": 0},) * 2:  # as 0.1 said it
            connection = scene.stranger(hello)
            refused = protocol.decode_to_task(connection.recv_bytes()).message
            assert isinstance(refused, protocol.Refused)
            assert "version 1, expected 2" in refused.reason
            with pytest.raises(EOFError):
                connection.recv_bytes()
    named = [one for one in logs if one["event"] == "control connection refused"]
    assert [(one["flow"], one["what"]) for one in named] == [(FLOW, "protocol version 1, expected 2")]
    assert other.tell(Report())


def test_a_refused_task_ends_with_the_reason(scene: Scene) -> None:
    scene.station(protocol.Refused("protocol version 3, expected 2"))
    link = scene.link()
    with pytest.raises(EngineError, match=r"us->eu: the driver refuses task 0: protocol version 3"):
        wait_until(lambda: link.heard() != [], what="the refusal")


@pytest.mark.parametrize("hello", [b"", b"\xff\xfe", b"[1]", b'{"version": 2}', b'{"type": "x", "version": 2}'])
def test_a_hello_that_is_none_is_refused(scene: Scene, hello: bytes) -> None:
    scene.station()
    answer = protocol.decode_to_task(scene.stranger(hello).recv_bytes())
    assert isinstance(answer.message, protocol.Refused)


def test_messages_that_are_not_understood_are_named_once_and_dropped(scene: Scene) -> None:
    station = scene.station()
    connection = scene.stranger(TaskHello(FLOW, 1, 0, 0))
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            for nonsense in (b'{"type": "tomorrow"}', b"\x00\xff", b'{"type": "report", "lanes": 3}'):
                connection.send_bytes(nonsense)
        connection.send_bytes(protocol.encode(Report()))
        wait_until(lambda: station.reports == 1, what="the report after them")
    named = [one for one in logs if one["event"] == "control message not understood"]
    assert len(named) == 3
    assert {(one["flow"], one["task"]) for one in named} == {(FLOW, (1, 0, 0))}


def test_what_a_task_does_not_understand_is_named_once_and_dropped(scene: Scene) -> None:
    station = scene.station()
    link = scene.link()
    wait_until(lambda: bool(station.channels), what="the task")
    channel = station.channels[0]
    assert isinstance(channel, hubs.TaskChannel)
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            channel._connection.send_bytes(b'{"to": [1, 0, 0], "message": {"type": "tomorrow"}}')
        channel.send(Turn())
        assert listen(link, Turn) == [Turn()]
    assert len([one for one in logs if one["event"] == "control message not understood"]) == 1


# ---------------------------------------------------------------- the planner, and strangers


def test_a_planner_asks_one_question_after_the_other(scene: Scene) -> None:
    scene.station()
    planner = scene.stranger(PlannerHello(FLOW))
    for question, answer in (
        (protocol.AskLastEpoch(), 7),
        (protocol.AskNextEpoch(8), 9),
        (protocol.AskPlan(9), []),
    ):
        planner.send_bytes(protocol.encode(question))
        assert planner.recv() == answer
