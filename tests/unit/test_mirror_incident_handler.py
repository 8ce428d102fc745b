"""Written down first, then what the policy says: a task's incident handler, with the writing replaced by
a list."""

from __future__ import annotations

import selectors
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from heliograph.batch import Chunk, Limits, Record, encode
from heliograph.errors import BrokerError
from heliograph.mirror.assignment import Assignment, Coordinates, LaneSpec
from heliograph.mirror.events import Action, Events, Gap, IncidentWritten, Jump, LostTrack, Park, Probe, generations
from heliograph.mirror.incident_handler import IncidentHandler
from heliograph.mirror.incidents import Incident
from heliograph.mirror.lane import Lane, Refusal, Sent, State
from heliograph.mirror.positions import Position
from heliograph.mirror.quarantine import Kept
from heliograph.types import Cluster, Policies, TopicPartition
from heliograph.wire import Produced
from tests.kit import wait_until

TP, REMOTE, ID = TopicPartition("orders", 0), TopicPartition("us.orders", 0), UUID(int=1)
NO_KEY, DENIED = 87, 29


class Scene:
    def __init__(self, *, told: frozenset[tuple[str, int, str]] = frozenset(), **on: str) -> None:
        self.selector = selectors.DefaultSelector()
        self.written: list[tuple[Incident, list[Kept]]] = []
        self.failure: BrokerError | None = None
        self.events: Events = deque()
        assignment = Assignment(
            *("us->eu", Cluster("us"), Cluster("eu"), "read_committed", "p", 1, "", 0, 1, 0, 60.0, ()),
            Coordinates("127.0.0.1", 1, b""),
            incidents_topic="incidents",
            quarantine_topic="quarantine",
            on=Policies(**on),  # type: ignore[arg-type]
        )
        self.handler = IncidentHandler(assignment, self.selector, self.events)
        self.handler._append = self._append  # type: ignore[method-assign]
        spec = LaneSpec(TP, ID, REMOTE, Position(10, 7, 0, 10, ID, 10), 1_000_000, None, told)
        self.lane = Lane.of(spec)
        self.lane.found(0)

    def _append(self, incident: Incident, keep: Sequence[Kept]) -> None:
        if self.failure is not None:
            raise self.failure
        self.written.append((incident, list(keep)))

    def settle(self) -> None:
        """Run the loop until the incident's answer came in."""

        def answered() -> bool:
            for key, events in self.selector.select(0.05):
                key.data(events)
            return not self.handler.is_writing(self.lane)

        wait_until(answered, what="the incident's answer", timeout_seconds=10)

    def gap(self, lane: Lane | None = None) -> None:
        self.handler.gap(Gap(generations([lane or self.lane]), 25))

    def actions(self) -> list[Action]:
        """What the loop is to do, and is then done with."""
        found = [event.action for event in self.events if isinstance(event, IncidentWritten)]
        self.events.clear()
        return found

    def refused(self, sent: Sent, result: Produced) -> None:
        """As the task does when the probe has found that the batch is not stored."""
        self.lane.lose_track()
        self.handler.refused(self.lane, Refusal(sent, result))

    def send(self, *keys: bytes | None) -> Sent:
        records = [Record(10 + i, 5, key, b"v", ()) for i, key in enumerate(keys)]
        self.lane.push(Chunk(encode(records), wanted=10, limits=Limits()))
        sent = self.lane.next_batch(lambda *_: False)
        assert sent is not None
        return sent


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made: list[IncidentHandler] = []
    begin = IncidentHandler.__init__
    monkeypatch.setattr(IncidentHandler, "__init__", lambda self, *args: (made.append(self), begin(self, *args))[1])
    yield
    for handler in made:
        handler.close()


def refusal(*errors: tuple[int, str]) -> Produced:
    return Produced("us.orders", 0, NO_KEY, -1, -1, -1, "no key", errors)


def test_a_gap_is_passed_over_when_it_is_written_and_not_before() -> None:
    scene = Scene()
    scene.gap()
    assert scene.actions() == []
    scene.settle()
    assert scene.actions() == [Jump(generations([scene.lane]), 25)]
    ((incident, _),) = scene.written
    assert (incident.kind, incident.first, incident.next, incident.lost) == ("gap", 10, 25, 15)


def test_what_follows_carries_the_generation_that_the_incident_was_noticed_under() -> None:
    scene = Scene()
    generation = scene.lane.generation
    scene.gap()
    scene.lane.lose_track()
    scene.settle()
    (event,) = scene.events
    assert isinstance(event, IncidentWritten)
    assert event.generation == generation != scene.lane.generation


def test_what_the_target_holds_of_a_gap_is_not_lost() -> None:
    scene = Scene()
    found_again(scene.lane, 6)
    scene.gap()
    scene.settle()
    assert scene.written[0][0].first == 16
    found_again(scene.lane, 15)
    scene.gap()
    assert [type(action) for action in scene.actions()] == [Jump, Jump]
    assert len(scene.written) == 1


def test_what_a_strand_may_repeat_behind_a_gap_is_said_and_nothing_is_passed_for_it(logs: list[Any]) -> None:
    """Of the offsets that are gone some were other strands': how many of its records they held cannot be known."""
    scene = Scene()
    scene.lane = lane = Lane.of(replace(scene.lane.spec, strands=2))
    lane.found(6)
    scene.gap()
    scene.settle()
    assert "up to 6 may come twice" in scene.written[0][0].why
    lane.jump(25)
    assert (lane.skip, lane.next_sequence) == (0, 16), "all that is left is sent, behind what the target has"
    full = Lane.of(lane.spec)
    full.found(15)
    scene.gap(full)
    assert [type(action) for action in scene.actions()] == [Jump, Jump]
    assert len(scene.written) == 1
    assert "up to 15 may come twice" in logs[-1]["why"]


def test_what_cannot_be_written_is_not_passed_over() -> None:
    scene = Scene()
    scene.failure = BrokerError(DENIED, "TOPIC_AUTHORIZATION_FAILED", topic="incidents")
    scene.gap()
    scene.settle()
    (action,) = scene.actions()
    assert isinstance(action, Park)
    assert "10-24" in action.why
    assert "CREATE, DESCRIBE, READ and WRITE on incidents" in action.fix


def test_what_lasts_is_written_once() -> None:
    for told in (frozenset(), frozenset({("gap", 10, "stop")})):
        scene = Scene(gap="stop", told=told)
        for _ in range(3):
            scene.gap()
            scene.settle()
            (action,) = scene.actions()
            assert isinstance(action, Park)
            assert not action.wish
        assert len(scene.written) == 1 - len(told)


@pytest.mark.parametrize("policy", ["stop", "restart", "skip"])
def test_a_target_that_lost_what_it_had(policy: str) -> None:
    scene = Scene(target_lost=policy)
    assert [scene.handler.doubts(scene.lane) for _ in range(3)] == [True, True, False]
    scene.handler.target_lost(scene.lane, 4, 0)
    scene.settle()
    (action,) = scene.actions()
    assert isinstance(action, Park)
    assert action.wish == ("" if policy == "stop" else policy)
    assert "ends at offset 4, it had acknowledged up to 10" in action.why
    assert scene.written[0][0].target == (4, 10)


@pytest.mark.parametrize(("policy", "kept"), [("quarantine", 1), ("skip", 0)])
def test_the_record_that_the_broker_names_is_held(policy: str, kept: int) -> None:
    scene = Scene(refused=policy)
    scene.refused(scene.send(b"a", None, b"c"), refusal((1, "a key is needed")))
    assert scene.actions() == []
    scene.settle()
    ((incident, keep),) = scene.written
    assert (incident.offsets, incident.producer, incident.held) == (((11, 1),), 7, 1)
    assert "a key is needed" in incident.why
    assert [one.record.key for one in keep] == [None] * kept
    assert scene.actions() == [Probe()], "the probe leaves it out"


def test_a_broker_that_names_no_record_gets_smaller_batches() -> None:
    scene = Scene()
    scene.refused(scene.send(b"a", None, b"c", b"d"), refusal())
    assert scene.written == []
    assert list(scene.events) == [LostTrack(scene.lane, scene.lane.generation)]
    scene.events.clear()
    scene.lane.found(0)
    sent = scene.send(b"a", None, b"c", b"d")
    assert sent.piece.runs == ((10, 2),)
    scene.lane.narrow_to(1, 12)
    scene.refused(sent, refusal())
    scene.lane.found(0)
    scene.refused(scene.send(b"a"), refusal())
    scene.settle()
    assert scene.written[0][0].offsets == ((10, 1),)


def test_a_full_disk_and_a_permission_withdrawn_are_written_once_and_hold_nobody_up() -> None:
    scene = Scene()
    for _ in range(3):
        scene.handler.storage(scene.lane)
        scene.settle()
    assert scene.lane.state is State.FLOWING
    scene.handler.denied(scene.lane, DENIED, "not allowed")
    scene.settle()
    scene.handler.denied(scene.lane, 17, "something else")
    assert [str(incident.kind) for incident, _ in scene.written] == ["storage", "denied"]
    scene.failure = BrokerError(56, "KAFKA_STORAGE_ERROR")
    scene.lane.acked = Position(11, 7, 0, 11, ID, 11)
    scene.handler.storage(scene.lane)
    scene.settle()
    assert scene.lane.state is State.FLOWING, "what cannot be written now is seen again"


def found_again(lane: Lane, there: int) -> None:
    lane.lose_track()
    lane.found(there)
