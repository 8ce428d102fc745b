from heliograph.flow.relay import Relay
from tests.kit import Heard


def voices_of(relay, *keys):
    voices = {key: Heard() for key in keys}
    for key, voice in voices.items():
        relay.joined(key, voice)
    return voices


def overlapping(tasks):
    """Epoch 2's tasks have come while epoch 1's are there; the voices of epoch 1."""
    relay = Relay()
    relay.turn_to(1, tasks)
    before = voices_of(relay, *((1, task, 0) for task in range(tasks)))
    relay.turn_to(2, tasks)
    voices_of(relay, *((2, task, 0) for task in range(tasks)))
    return relay, before


def test_a_flow_s_first_tasks_go_as_they_get_ready():
    relay = Relay()
    relay.turn_to(1, 2)
    voices_of(relay, (1, 0, 0), (1, 1, 0))
    assert [key for key, _ in relay.ready((1, 1, 0))] == [(1, 1, 0)]
    assert [key for key, _ in relay.ready((1, 0, 0))] == [(1, 0, 0)]


def test_those_before_are_told_to_finish_only_when_all_after_them_are_ready():
    relay, before = overlapping(2)
    assert relay.ready((2, 0, 0)) == []
    assert [voice.words for voice in before.values()] == [[], []]
    assert relay.ready((2, 1, 0)) == []
    assert [voice.words for voice in before.values()] == [["finish"], ["finish"]]
    assert relay.left((1, 1, 0)) == []
    assert [key for key, _ in relay.left((1, 0, 0))] == [(2, 0, 0), (2, 1, 0)]


def test_nobody_is_told_to_go_twice():
    relay, _ = overlapping(1)
    relay.ready((2, 0, 0))
    assert len(relay.left((1, 0, 0))) == 1
    assert relay.left((1, 0, 0)) == []


def test_a_task_that_died_before_it_was_ready_is_not_waited_for_once_nobody_copies():
    relay, _ = overlapping(2)
    relay.ready((2, 0, 0))
    assert relay.left((2, 1, 0)) == []
    relay.left((1, 0, 0))
    assert [key for key, _ in relay.left((1, 1, 0))] == [(2, 0, 0)]
    voices_of(relay, (2, 1, 1))
    assert [key for key, _ in relay.ready((2, 1, 1))] == [(2, 1, 1)]


def test_one_that_comes_too_late_is_told_to_finish():
    relay = Relay()
    relay.turn_to(2, 1)
    voice = Heard()
    relay.joined((1, 0, 0), voice)
    assert voice.words == ["finish"]
    assert relay.ready((1, 0, 0)) == []


def test_one_that_takes_over_counts_once():
    relay, _ = overlapping(1)
    assert relay.tasks == 1
    assert relay.busy
    relay.left((1, 0, 0))
    relay.left((2, 0, 0))
    assert not relay.busy
