"""What a coordinator says to its tasks, without clusters: nothing here reaches for one."""

import threading
from dataclasses import replace

import pytest

from heliograph.errors import TimedOut
from heliograph.flow.coordinator import Coordinator
from heliograph.mirror.assignment import Assignment, Coordinates, LaneSpec
from heliograph.mirror.positions import Position
from heliograph.mirror.protocol import Finish, Turn
from heliograph.survey.topics import Route, Survey
from heliograph.types import Cap, Cluster, Flow, TopicPartition
from tests.kit import Heard, wait_until

HERE = Coordinates("127.0.0.1", 3, b"key")
ASSIGNMENT = Assignment("a->b", Cluster("a"), Cluster("b"), "read_committed", "p", 1, "m", 1, 1, 0, 60.0, (), HERE)


def coordinator(**more):
    flow = Flow(*(Cluster(name, {"bootstrap.servers": "127.0.0.1:1"}) for name in "ab"), **more)
    made = Coordinator(flow, Coordinates("127.0.0.1", 3, b"key"), epoch_seconds=60)
    made.leadership.leads = True  # no other process runs the flow
    return made


def survey(*topics):
    routes = (Route(TopicPartition(topic, 0), None, TopicPartition(f"a.{topic}", 0), 1 << 20) for topic in topics)
    return Survey(tuple(routes), topics=len(topics))


def test_a_change_of_plan_reaches_tasks_that_were_not_there_yet():
    one = coordinator()
    one._take(survey("t"))
    late = Heard()
    one.joined((1, 0, 0), late)
    assert late.words == ["turn"]


def test_the_interval_is_from_the_beginning_of_a_look_to_that_of_the_next(monkeypatch):
    one = coordinator(refresh_topics_interval_seconds=5.0)
    now, waits, took_s = [100.0], [], iter([1.5, 7.0, 0.0])

    def look():
        now[0] += next(took_s)
        return survey("t")

    def wait(seconds):
        waits.append(seconds)
        return len(waits) > 3

    monkeypatch.setattr("heliograph.flow.coordinator.time.monotonic", lambda: now[0])
    monkeypatch.setattr(one._topics, "survey", look)
    monkeypatch.setattr(one._amends, "judge", lambda found: found)
    monkeypatch.setattr(one, "_wait_stopping", wait)
    one._watch()
    assert waits == [5.0, 3.5, 0.05, 5.0]


def test_a_change_of_plan_turns_the_page_and_ends_nobody():
    one = coordinator()
    voice = Heard()
    one.joined((1, 0, 0), voice)
    one._take(survey("t"))
    one._take(survey("t"))
    assert voice.words == ["turn"]


def test_stopping_ends_those_that_are_there_and_those_that_come():
    one = coordinator()
    there, late = Heard(), Heard()
    one.joined((1, 0, 0), there)
    one.stop()
    one.joined((1, 1, 0), late)
    assert (there.words, late.words) == (["finish"], ["finish"])


def test_a_task_that_is_begun_again_hears_its_share_of_a_cap(monkeypatch):
    one = coordinator(caps=(Cap(10_000_000),))
    monkeypatch.setattr(one._handover, "standing", lambda lanes, attempt: [])  # would read the positions topic
    one._caps.begin(1, [[TopicPartition("t", 0)], [TopicPartition("t", 1)]], {})
    voice = Heard()
    one.joined((1, 1, 1), voice)
    wait_until(lambda: sorted(voice.words) == ["positions", "shares"], what="both, in any order")


def test_another_cap_turns_the_page_and_counts_from_the_next_epoch():
    one = coordinator(caps=(Cap(10_000_000),))
    voice = Heard()
    one._caps.begin(1, [[TopicPartition("t", 0)]], {})
    one.joined((1, 0, 0), voice)
    assert one.change(replace(one.flow, caps=(Cap(4_000_000),))) == "the next epoch begins now, by it"
    assert voice.words == ["shares", "turn"]
    assert one._caps.begin(2, [[TopicPartition("t", 0)]], {}) == [(4_000_000,)]
    assert [cap.limit_bytes_per_s for cap in one.status().caps] == [4_000_000]


# ---- after a silence


def planned(one, tp, position):
    spec = LaneSpec(tp, None, tp, position, 1 << 20)
    one._plans = {1: [replace(ASSIGNMENT, lanes=(spec,))]}


def test_tasks_restart_from_positions_that_were_set_while_the_driver_slept(monkeypatch):
    one, task = coordinator(), Heard()
    tp = TopicPartition("t", 0)
    planned(one, tp, Position(10, 7, 0, 10))
    one.joined((1, 0, 0), task)
    monkeypatch.setattr(one._positions, "catch_up", lambda: {tp: Position(0)})  # `offsets set`
    one._reread()
    assert task.messages == [Finish(abandon=True), Turn()]
    assert one._outdated


def test_tasks_go_on_where_positions_are_still_theirs(monkeypatch):
    one, task = coordinator(), Heard()
    tp = TopicPartition("t", 0)
    planned(one, tp, Position(10, 7, 0, 10))
    one.joined((1, 0, 0), task)
    monkeypatch.setattr(one._positions, "catch_up", lambda: {tp: Position(25, 7, 0, 25)})
    one._reread()
    assert task.messages == []


def test_no_plan_is_made_while_the_flow_is_not_held(monkeypatch):
    one = coordinator()
    one._take(survey("t"))
    asked = []
    monkeypatch.setattr("heliograph.flow.coordinator.ASK_AGAIN_S", 0.01)
    monkeypatch.setattr(one, "_assign", lambda epoch, routes: asked.append(epoch) or [ASSIGNMENT])
    monkeypatch.setattr(one._lease, "holds", lambda: False)
    assert one.next_epoch(0) == 0
    assert not asked
    monkeypatch.setattr(one._lease, "holds", lambda: True)
    assert one.next_epoch(0) == 1


def test_a_plan_in_the_making_of_which_the_driver_slept_is_not_followed(monkeypatch):
    one = coordinator()
    one._take(survey("t"))
    monkeypatch.setattr("heliograph.flow.coordinator.ASK_AGAIN_S", 0.01)

    def assign(epoch, routes):
        one._lease.lapses += 1  # it slept, and another thread has looked since
        return [ASSIGNMENT]

    monkeypatch.setattr(one, "_assign", assign)
    assert one.next_epoch(0) == 0


# ---- the leadership


def yields(one):
    def judge():
        one.leadership.leads = False
        return True

    return judge


def test_tasks_end_when_another_process_leads_though_the_lease_cannot_be_written(monkeypatch):
    one, task = coordinator(), Heard()
    one.joined((1, 0, 0), task)

    def beat():
        raise TimedOut("the target does not answer")

    monkeypatch.setattr(one.leadership, "judge", yields(one))
    monkeypatch.setattr(one._presence, "beat", beat)
    with pytest.raises(TimedOut):
        one._judge_leadership()
    assert task.words == ["finish"]


def test_a_task_that_comes_after_another_process_leads_ends():
    one, task = coordinator(), Heard()
    one.leadership.leads = False
    one.joined((1, 0, 0), task)
    assert task.words == ["finish"]


def test_a_driver_that_slept_and_yields_when_it_looks_makes_no_plan(monkeypatch):
    one = coordinator()
    one._take(survey("t"))
    monkeypatch.setattr("heliograph.flow.coordinator.ASK_AGAIN_S", 0.01)
    monkeypatch.setattr(one._lease, "holds", lambda: yields(one)())
    monkeypatch.setattr(one, "_assign", lambda epoch, routes: [ASSIGNMENT])
    assert one.next_epoch(0) == 0


def test_a_process_that_leads_again_reads_how_far_others_copied(monkeypatch):
    """The last words of its own tasks are about the time before."""
    one, read = coordinator(), []
    one._plans = {1: [ASSIGNMENT]}
    one._handover.heard((1, 0), [])
    monkeypatch.setattr(one._positions, "catch_up", lambda: read.append(one.leadership.terms))
    monkeypatch.setattr(one._offsets, "catch_up", lambda: None)
    for term in (1, 1, 2):
        one.leadership.terms = term
        one._assign(2, ())
    assert read == [1, 2]


def test_tasks_end_when_the_lease_cannot_be_reached_and_another_process_may_take_over(monkeypatch):
    one, task = coordinator(), Heard()
    one.joined((1, 0, 0), task)
    monkeypatch.setattr(one.leadership, "stop_if_cut_off", lambda silent_s: yields(one)())
    one._recover()
    assert task.words == ["finish"]


def test_a_process_whose_query_failed_ends_its_tasks_and_lets_another_lead(monkeypatch):
    one, task = coordinator(), Heard()
    one.joined((1, 0, 0), task)
    monkeypatch.setattr(one.leadership, "resign", lambda: yields(one)())
    one.query("running")
    assert task.words == []
    one.query("restarting", "the streaming query ended: no memory")
    assert task.words == ["finish"]


def test_a_process_that_stands_by_has_no_stalled_partitions(monkeypatch):
    one, now = coordinator(), [0.0]
    monkeypatch.setattr(one._observer, "clock", lambda: now[0])
    one._take(survey("t"))
    one._observer.copy({TopicPartition("t", 0): TopicPartition("a.t", 0)})
    one.leadership.leads = False
    for _ in range(20):
        now[0] += 3.0
        one._recover()
        one._observer.looked({TopicPartition("t", 0): 10}, now[0])
    assert one.status().stalled == 0


def test_a_process_that_stands_by_makes_no_deleted_topic_anew():
    """Tasks of the other process may still write to it (invariant c of `survey.amends`)."""
    one = coordinator()
    assert not one._is_copied(TopicPartition("t", 0))
    one.leadership.leads = False
    assert one._is_copied(TopicPartition("t", 0))


def test_a_process_that_stands_by_does_not_trim_the_offset_map(monkeypatch):
    one, trimmed = coordinator(), []
    monkeypatch.setattr(one._offsets, "trim", lambda: trimmed.append(one.leadership.leads))
    chore = next(chore for chore in one._specialists._chores if chore.what == "offset map")
    for leads in (True, False):
        one.leadership.leads = leads
        chore._action()
    assert trimmed == [True]


def test_a_process_that_stands_by_shows_how_far_the_other_has_copied(monkeypatch):
    """`run --until-current` would wait for ever."""
    one, tp = coordinator(), TopicPartition("t", 0)
    one._observer.copy({tp: TopicPartition("a.t", 0)})
    monkeypatch.setattr(one._positions, "catch_up", lambda: {tp: Position(25, 7, 0, 25)})
    one._follow()
    assert [row.position for row in one.report().partitions] == [None]
    one.leadership.leads = False
    one._follow()
    assert [row.position for row in one.report().partitions] == [25]


# ---- handing over


def test_a_task_that_gives_up_waiting_is_not_told_to_go(monkeypatch):
    """Its positions are read for longer than it waits."""
    one, task = coordinator(), Heard()
    reading, read = threading.Event(), threading.Event()

    def standing(lanes, attempt):
        reading.set()
        assert read.wait(10)
        return []

    monkeypatch.setattr(one._handover, "standing", standing)
    one._relay.turn_to(1, 1)
    one.joined((1, 0, 0), task)
    one.ready((1, 0, 0), 1, task)
    assert reading.wait(10)
    one.gave_up((1, 0, 0), 1, task)
    read.set()
    wait_until(lambda: not any(thread.name == "release" for thread in threading.enumerate()), what="the answer")
    assert task.words == []


def test_an_unforeseen_exception_does_not_end_the_search_for_topics(monkeypatch):
    """The thread died of it, and no topic was found any more."""
    one = coordinator()
    found, waits = [], iter([False, False, True])
    monkeypatch.setattr(one, "_wait_stopping", lambda wait: next(waits))

    def survey_topics():
        if not found:
            found.append("raised")
            raise KeyError("a field that is not there")
        return survey("t")

    monkeypatch.setattr(one._topics, "survey", survey_topics)
    monkeypatch.setattr(one._amends, "judge", lambda seen: seen)
    monkeypatch.setattr(one, "_observe", lambda seen: None)
    one._watch()
    assert [route.tp.topic for route in one._survey.routes] == ["t"]
