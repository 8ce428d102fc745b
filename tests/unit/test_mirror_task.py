"""A task's answers and what they are about, one fault at a time: answers that come late, twice, or for something that
has changed meanwhile; a broker that forgets; a process that stands still. Every order of these: `tests/property`."""

from __future__ import annotations

import struct
import types
from collections import Counter

import pytest
from structlog.typing import EventDict

from heliograph.mirror.lane import State
from heliograph.mirror.positions import Position
from tests.model_task import NODE, PRODUCER, TOPIC_ID, Connection, ModelTask, TargetPartition

NOT_LEADER = 6
TENS = [(i * 10, 10) for i in range(8)]


def once_each(target: TargetPartition, end: int, *, without: frozenset[int] = frozenset()) -> None:
    doubled = [offset for offset, times in Counter(target.log).items() if times > 1]
    assert not doubled, f"stored twice: {doubled}"
    assert target.log == [offset for offset in range(end) if offset not in without]


def started(patched: pytest.MonkeyPatch, batches: list[tuple[int, int]] = TENS, **on: str) -> ModelTask:
    model = ModelTask(patched, batches, **on)
    model.run_calls()
    assert model.lane.state is State.FLOWING
    return model


# ---------------------------------------------------------------- the broker's memory


@pytest.mark.parametrize("target_offset", [0, -1], ids=["known", "not known"])
def test_what_the_leader_alone_has_is_not_taken_for_stored(monkeypatch: pytest.MonkeyPatch, target_offset: int) -> None:
    """A position may not say where the copy ended, of another version or behind a gap."""
    killed = started(monkeypatch)
    killed.fetch()
    killed.push()
    killed.deliver()
    target = killed.target
    target.unreplicated = len(target.log)
    model = ModelTask(monkeypatch, TENS, target, Position(0, PRODUCER, 0, 0, TOPIC_ID, target_offset))
    model.run_calls()
    assert model.lane.state is State.LOST
    assert "the followers have the log up to offset 0" in model.lane.write_trouble
    target.log.clear()  # the leader died, and a follower leads
    target.batches.clear()
    target.forget()
    target.unreplicated = 0
    model.finish()
    once_each(target, model.end)


class Moved:
    """The leader of the copy is another broker, which has forgotten the producer id."""

    NODE = NODE + 1

    def __init__(self, patched: pytest.MonkeyPatch, model: ModelTask) -> None:
        self.connection, brokers, before = Connection(), model.task._target.brokers, model.out
        patched.setattr(brokers, "leader", lambda tp: self.NODE)
        patched.setattr(brokers, "connection", {NODE: before, self.NODE: self.connection}.get)
        model.task._target.opened(self.NODE, self.connection)  # type: ignore[arg-type]  # a fake
        model.target.forget()


def test_a_new_leader_gets_nothing_while_the_old_one_owes_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new leader would take the second batch without the first, which the old one refuses."""
    model = started(monkeypatch)
    model.step()
    model.fetch()
    model.push()
    assert len(model.lane.in_flight) == 1
    new = Moved(monkeypatch, model)
    model.fetch()
    model.push()
    assert not new.connection.sent
    model.refuse(NOT_LEADER)
    model.answer()
    assert model.lane.state is State.LOST


def test_a_new_leader_gets_one_batch_until_it_has_acknowledged_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may refuse the first as long as it does not know that it leads, and would take the second."""
    model = started(monkeypatch)
    model.step()
    new = Moved(monkeypatch, model)
    for _ in range(3):
        model.fetch()
        model.push()
    assert len(model.lane.in_flight) == len(new.connection.sent) == 1


def test_a_batch_whose_answer_was_lost_is_stored_once_by_a_broker_that_forgot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records older than `producer.id.expiration.ms` lose their producer's state at the broker's next check."""
    model = started(monkeypatch)
    model.step()
    model.fetch()
    model.push()
    model.cut(delivered=1)
    model.target.forget()
    model.finish()
    once_each(model.target, model.end)


def test_a_batch_that_waited_inside_the_broker_is_stored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection ended while the broker had read the request. It works on it a moment later, then forgets the id:
    nothing but the log could tell that our next copy of the batch is a repeat."""
    model = started(monkeypatch)
    model.step()
    model.fetch()
    model.cut(late=1)
    model.due()
    model.probes.work()
    model.settle(model.probes)
    model.due()
    model.probes.work()
    model.settle(model.probes)
    model.fetch()
    model.fetch()
    model.target.work_on_waiting()
    model.target.forget()
    model.finish()
    once_each(model.target, model.end)


def test_a_used_claim_is_not_taken_for_an_unused_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task was killed before its first position, and the broker has forgotten the producer id."""
    killed = started(monkeypatch)
    killed.step()
    killed.step()
    killed.target.forget()
    model = ModelTask(monkeypatch, TENS, killed.target)
    model.finish()
    once_each(model.target, model.end)


def test_what_the_followers_do_not_have_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers see the high watermark. The leader's log end offset tells that there is more."""
    killed = started(monkeypatch)
    killed.step()
    killed.target.forget()
    killed.target.unreplicated = 10
    model = ModelTask(monkeypatch, TENS, killed.target)
    model.run_calls()
    assert model.lane.state is State.LOST
    assert "the followers have the log up to offset 0, the leader up to 10" in model.lane.write_trouble
    killed.target.unreplicated = 0
    model.finish()
    once_each(model.target, model.end)


def test_a_batch_stored_without_the_one_before_it_stops_the_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused batch, then the broker forgets the id and accepts the next: what is missing is said, not counted."""
    model = started(monkeypatch)
    model.step()  # the target has acknowledged something: now several batches may be in flight
    model.fetch(2)
    model.push()
    assert len(model.out.sent) == 2
    model.refuse()
    model.target.forget()
    model.deliver()
    for _ in range(12):
        model.answer()
        model.due()
        model.run_calls()
    assert model.lane.state is State.PARKED
    assert "lacks 10 records before the last ones that it holds" in model.lane.reason


# ---------------------------------------------------------------- refusals


def test_the_refusal_of_a_stored_batch_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored, the answer lost, and by now one of its records is too old for the topic's policy: a repeat would be
    refused, and the record taken for passed over."""
    model = started(monkeypatch, [(0, 5), (5, 5), (10, 1), (11, 5)])
    model.step()
    model.fetch()
    model.push()
    model.cut(delivered=1)
    model.target.bad = {7}
    model.finish()
    once_each(model.target, model.end)
    assert model.target.written == []


def test_a_refusal_is_believed_only_when_the_batch_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks for a moment: the other's copy of the batch is stored, ours is refused because the policy changed."""
    ours = started(monkeypatch, TENS)
    other = ModelTask(monkeypatch, TENS, ours.target)
    other.run_calls()
    ours.fetch()
    ours.push()
    other.step()
    ours.target.bad = {3}
    ours.target.forget()
    ours.deliver()
    ours.answer()
    ours.finish()
    once_each(ours.target, ours.end)
    assert ours.target.written == []


def test_refused_offsets_add_up_when_two_tasks_refuse_different_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """One wrote {5, 7} down, the other {5} under the same key and later: 7 is passed over all the same."""
    batches = [(0, 5), (5, 5), (10, 1), (11, 1), (12, 1)]
    first = started(monkeypatch, batches)
    first.target.bad = {5, 7}
    second = ModelTask(monkeypatch, [(0, 5), (5, 2), (7, 3), (10, 1), (11, 1), (12, 1)], first.target)
    second.run_calls()
    for model in (first, second):
        model.step()
        model.fetch()
        model.push()
        model.deliver()
        model.answer()  # refused: {5, 7} of one, {5} of the other
        model.due()
        model.probes.work()
        model.settle(model.probes)
    first.writes.work()
    second.writes.work()
    for model in (first, second):
        model.finish()
    once_each(first.target, first.end, without=frozenset({5, 7}))


def test_a_record_that_the_raised_limit_lets_pass_is_not_kept_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of the plan is an old one: it is asked for again before a record is refused for its size."""
    model = started(monkeypatch, [(0, 1), (1, 1)])
    limits = iter([40, 1 << 20])
    asked = []

    def describe_topic_configs(topics: list[str]) -> dict[str, dict[str, object]]:
        asked.append(topics)
        return {topics[0]: {"max.message.bytes": types.SimpleNamespace(value=str(next(limits, 1 << 20)))}}

    model.lane.max_batch_bytes = 40
    model.task._incidents._target = lambda: types.SimpleNamespace(describe_topic_configs=describe_topic_configs)  # type: ignore[method-assign, assignment, return-value]
    model.finish(20)
    assert asked
    once_each(model.target, 2, without=frozenset({0}))  # refused by the limit as it was then, and told
    assert len(model.target.written) == 1


# ---------------------------------------------------------------- what cannot be read


@pytest.mark.parametrize("length", [1 << 30, 1 << 21, 5, -1])
def test_a_batch_that_cannot_be_read_is_named_once_however_often_it_is_tried(
    monkeypatch: pytest.MonkeyPatch, logs: list[EventDict], length: int
) -> None:
    model = started(monkeypatch)
    end, data = model.batches[2]
    model.batches[2] = end, data[:8] + struct.pack(">i", length) + data[12:]
    for _ in range(50):
        model.step()
    once_each(model.target, 20)
    assert model.lane.state is State.PARKED
    (named,) = [line for line in logs if line["event"] == "parked"]
    assert "t-0 at offset 20 " in named["reason"]
    model.batches[2] = end, data
    model.finish()
    once_each(model.target, model.end)


# ---------------------------------------------------------------- late answers


def test_a_probe_that_was_asked_before_the_lane_moved_on_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ModelTask(monkeypatch, TENS)
    model.probes.work()  # the target says: nothing is there
    stale = model.probes.done.popleft()
    model.pause()
    model.resume()
    model.run_calls()
    model.step()
    model.step()
    assert model.lane.acked.next_offset == 20
    model.fetch()
    model.cut()  # LOST again
    model.probes.done.append(stale)
    model.settle(model.probes)
    assert model.lane.state is State.LOST, "the answer was about another generation"
    model.finish()
    once_each(model.target, model.end)


def test_an_answer_that_comes_twice_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ModelTask(monkeypatch, TENS)
    model.probes.work()
    model.settle(model.probes, keep=True)
    model.step()
    assert model.lane.acked.next_offset == 10
    model.settle(model.probes)
    assert (model.lane.state, model.lane.acked.next_offset) == (State.FLOWING, 10)
    model.finish()
    once_each(model.target, model.end)


def test_an_incident_of_a_lane_that_went_on_meanwhile_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, its incident is being written; paused and resumed meanwhile, refused again, written twice."""
    model = started(monkeypatch)
    model.target.bad = {15, 37}
    model.step()
    model.fetch()
    model.push()
    model.deliver()
    model.answer()
    model.due()
    model.probes.work()
    model.settle(model.probes)
    assert len(model.writes.todo) == 1
    model.pause()
    model.resume()
    model.probes.work()
    model.settle(model.probes)  # flows again, and knows nothing of 15
    for _ in range(3):
        model.fetch()
    model.push()
    model.deliver()
    model.answer()
    model.finish()
    once_each(model.target, model.end, without=frozenset({15, 37}))


def test_a_probe_waits_until_no_answer_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paused and resumed at once: a batch is still on its way, and is not asked about before its answer came."""
    model = started(monkeypatch)
    model.fetch()
    model.push()
    model.pause()
    model.resume()
    model.due()
    assert not model.probes.todo
    model.deliver()
    model.answer()
    model.due()
    assert len(model.probes.todo) == 1
    model.finish()
    once_each(model.target, model.end)


# ---------------------------------------------------------------- a process that stands still


def test_nothing_is_sent_after_a_freeze_before_the_target_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another task took over while this one stood still, and the broker has forgotten the producer id since."""
    model = started(monkeypatch)
    model.step()
    model.freeze()
    other = ModelTask(monkeypatch, TENS, model.target)
    other.run_calls()
    for _ in range(3):
        other.step()
    model.target.forget()
    model.fetch()  # an answer that came while it stood still
    model.push()
    assert not model.out.sent, "a batch of before the freeze"
    model.turn()
    assert model.lane.state is State.LOST
    model.finish()
    once_each(model.target, model.end)


def test_what_the_socket_had_not_taken_before_a_freeze_is_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process may have copied it meanwhile, to a broker that has forgotten the producer id."""
    model = started(monkeypatch)
    model.step()
    model.fetch()
    model.push()
    before = model.out
    before.wants_write = True
    model.freeze()
    model.turn()
    assert model.out is not before, "the connection has ended, and the request with it"
    assert model.lane.unanswered
    other = ModelTask(monkeypatch, TENS, model.target)
    other.finish()
    model.target.forget()
    model.finish()
    once_each(model.target, model.end)


def test_a_probe_of_before_a_freeze_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ModelTask(monkeypatch, TENS, position=Position(0, PRODUCER, 0, 0, TOPIC_ID, 0))
    model.probes.work()  # nothing is there
    model.freeze()
    other = ModelTask(monkeypatch, TENS, model.target)
    other.run_calls()
    other.step()
    model.target.forget()
    model.turn()
    model.settle(model.probes)
    assert model.lane.state is State.LOST
    model.finish()
    once_each(model.target, model.end)
