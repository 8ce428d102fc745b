"""Which task is told to finish, to go, or nothing, by which connection: without sockets."""

from __future__ import annotations

from heliograph.flow.relay import Relay, Released, TaskKey
from heliograph.mirror.protocol import Finish
from tests.kit import Heard


def channels_of(relay: Relay, *keys: TaskKey) -> dict[TaskKey, Heard]:
    channels = {key: Heard() for key in keys}
    for key, channel in channels.items():
        relay.joined(key, channel)
    return channels


def overlapping(tasks: int) -> tuple[Relay, dict[TaskKey, Heard], dict[TaskKey, Heard]]:
    """Epoch 2's tasks have come while epoch 1's are there; the channels of both."""
    relay = Relay()
    relay.turn_to(1, tasks)
    before = channels_of(relay, *((1, task, 0) for task in range(tasks)))
    relay.turn_to(2, tasks)
    return relay, before, channels_of(relay, *((2, task, 0) for task in range(tasks)))


def keys(free: list[Released]) -> list[TaskKey]:
    return [one.key for one in free]


def test_a_flow_s_first_tasks_go_as_they_get_ready() -> None:
    relay = Relay()
    relay.turn_to(1, 2)
    there = channels_of(relay, (1, 0, 0), (1, 1, 0))
    assert keys(relay.ready((1, 1, 0), 1, there[1, 1, 0])) == [(1, 1, 0)]
    assert keys(relay.ready((1, 0, 0), 1, there[1, 0, 0])) == [(1, 0, 0)]


def test_those_before_are_told_to_finish_only_when_all_after_them_are_ready() -> None:
    relay, before, after = overlapping(2)
    assert relay.ready((2, 0, 0), 1, after[2, 0, 0]) == []
    assert [channel.words for channel in before.values()] == [[], []]
    assert relay.ready((2, 1, 0), 1, after[2, 1, 0]) == []
    assert [channel.words for channel in before.values()] == [["finish"], ["finish"]]
    assert relay.left((1, 1, 0), before[1, 1, 0]) == (True, [])
    assert keys(relay.left((1, 0, 0), before[1, 0, 0])[1]) == [(2, 0, 0), (2, 1, 0)]


def test_no_task_is_told_to_go_twice() -> None:
    relay, before, after = overlapping(1)
    relay.ready((2, 0, 0), 1, after[2, 0, 0])
    assert keys(relay.left((1, 0, 0), before[1, 0, 0])[1]) == [(2, 0, 0)]
    assert relay.left((1, 0, 0), before[1, 0, 0]) == (False, [])
    assert relay.ready((2, 0, 0), 1, after[2, 0, 0]) == []  # the same request again


def test_a_task_that_died_before_it_was_ready_is_not_waited_for_once_no_task_copies() -> None:
    relay, before, after = overlapping(2)
    relay.ready((2, 0, 0), 1, after[2, 0, 0])
    assert relay.left((2, 1, 0), after[2, 1, 0]) == (True, [])
    relay.left((1, 0, 0), before[1, 0, 0])
    assert keys(relay.left((1, 1, 0), before[1, 1, 0])[1]) == [(2, 0, 0)]
    again = channels_of(relay, (2, 1, 1))
    assert keys(relay.ready((2, 1, 1), 1, again[2, 1, 1])) == [(2, 1, 1)]


def test_a_task_that_comes_too_late_is_told_to_finish() -> None:
    relay = Relay()
    relay.turn_to(2, 1)
    channel = Heard()
    relay.joined((1, 0, 0), channel)
    assert channel.words == ["finish"]
    assert relay.ready((1, 0, 0), 1, channel) == []


def test_a_task_that_takes_over_counts_once() -> None:
    relay, before, after = overlapping(1)
    assert relay.tasks == 1
    assert relay.busy
    relay.left((1, 0, 0), before[1, 0, 0])
    relay.left((2, 0, 0), after[2, 0, 0])
    assert not relay.busy


def test_the_late_end_of_an_old_connection_leaves_the_task_that_reconnected() -> None:
    relay = Relay()
    relay.turn_to(1, 1)
    old, new = Heard(), Heard()
    relay.joined((1, 0, 0), old)
    relay.joined((1, 0, 0), new)
    assert relay.left((1, 0, 0), old) == (False, [])
    assert (relay.busy, relay.tasks) == (True, 1)
    assert keys(relay.ready((1, 0, 0), 1, new)) == [(1, 0, 0)]
    assert relay.left((1, 0, 0), new) == (True, [])
    assert not relay.busy


def test_a_waiting_task_that_reconnects_goes_by_its_new_connection_and_request() -> None:
    relay, before, after = overlapping(1)
    relay.ready((2, 0, 0), 1, after[2, 0, 0])
    new = Heard()
    relay.joined((2, 0, 0), new)
    assert relay.ready((2, 0, 0), 1, after[2, 0, 0]) == []  # what lay in the old connection
    assert relay.left((1, 0, 0), before[1, 0, 0]) == (True, [])
    (free,) = relay.ready((2, 0, 0), 2, new)
    assert free == Released((2, 0, 0), 2, new)
    assert relay.may_go(free)


def test_a_task_that_gave_up_is_not_told_to_go_and_holds_up_no_other() -> None:
    relay, before, after = overlapping(2)
    relay.ready((2, 0, 0), 1, after[2, 0, 0])
    relay.gave_up((2, 0, 0), 1, after[2, 0, 0])
    assert [channel.words for channel in before.values()] == [[], []]
    relay.ready((2, 1, 0), 1, after[2, 1, 0])
    assert [channel.words for channel in before.values()] == [["finish"], ["finish"]]  # both of epoch 2 are there
    relay.left((1, 0, 0), before[1, 0, 0])
    assert keys(relay.left((1, 1, 0), before[1, 1, 0])[1]) == [(2, 1, 0)]


def test_a_task_that_gives_up_while_its_positions_are_read_may_no_longer_go() -> None:
    relay, before, after = overlapping(1)
    relay.ready((2, 0, 0), 1, after[2, 0, 0])
    (free,) = relay.left((1, 0, 0), before[1, 0, 0])[1]
    assert relay.may_go(free)
    relay.gave_up((2, 0, 0), 1, after[2, 0, 0])
    assert not relay.may_go(free)


def test_a_task_that_was_told_to_finish_is_told_again_when_it_reconnects() -> None:
    relay = Relay()
    relay.turn_to(1, 1)
    relay.joined((1, 0, 0), Heard())
    relay.ready((1, 0, 0), 1, Heard())  # another connection's
    relay.send_all(Finish(abandon=True))
    new = Heard()
    relay.joined((1, 0, 0), new)
    assert new.messages == [Finish(abandon=True)]


def test_tasks_that_wait_to_begin_an_epoch_that_was_overtaken_are_told_to_finish() -> None:
    relay, _, after = overlapping(2)
    relay.ready((2, 0, 0), 1, after[2, 0, 0])
    relay.turn_to(3, 1)
    assert [channel.words for channel in after.values()] == [["finish"], []]  # the other may copy already
