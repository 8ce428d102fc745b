"""Which of several processes copies a flow: claims in the log, by a clock of the test's. Every order of beats, freezes,
kills and looks: `tests/property/test_flow_leadership.py`."""

from __future__ import annotations

import pytest

from heliograph.batch import Record
from heliograph.flow import presence
from heliograph.flow.leadership import ABSTAIN_S, MUTED_S, Leadership
from heliograph.flow.presence import GONE_S, Holder
from tests.leases import FLOW, Log, Process


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(monkeypatch)


def started_pair(log: Log) -> tuple[Process, Process]:
    """The first leads, the second stands by."""
    first, second = Process(log), Process(log)
    first.start()
    second.start()
    return first, second


def test_a_process_alone_leads_once_it_has_read_its_claim_back(log: Log) -> None:
    one = Process(log)
    one.beat()
    one.look()
    assert not one.leads, "its claim is not read back yet"
    one.look()
    assert one.leads


def test_the_second_stands_by_and_says_for_which(log: Log) -> None:
    first, second = started_pair(log)
    assert (first.leads, second.leads) == (True, False)
    assert first.name in second.leadership.words


def test_of_two_that_claim_at_once_the_first_in_the_log_leads(log: Log) -> None:
    first, second = Process(log), Process(log)
    for one in (first, second):
        one.leadership.judge()  # nobody is there
    second.beat()
    first.beat()
    for one in (first, second, first, second):
        one.look()
    assert (first.leads, second.leads) == (False, True)


def test_one_that_falls_silent_is_followed_and_yields_when_it_wakes(log: Log) -> None:
    first, second = started_pair(log)
    log.now += GONE_S - 1
    second.live()
    assert not second.leads
    log.now += 2
    second.live()
    assert not second.leads, "the one that is silent may run, and has not read the claim yet"
    log.now += MUTED_S
    second.live()
    assert second.leads
    first.look()
    assert not first.leads, "the claim that was made when it was gone counts"
    assert second.name in first.leadership.words


def test_one_whose_beats_are_lost_yields_before_another_leads(log: Log) -> None:
    first, second = started_pair(log)
    for _ in range(int(GONE_S + MUTED_S) + 2):
        log.now += 1
        for one in (second, second, first):
            one.look()
            assert not (first.leads and second.leads)
    assert (first.leads, second.leads) == (False, True)


def test_one_that_is_cut_off_from_the_log_stops_before_another_leads(log: Log) -> None:
    first, second = started_pair(log)
    first.look()
    for _ in range(int(GONE_S + MUTED_S) + 2):
        log.now += 1
        second.look()
        first.leadership.stop_if_cut_off(log.now - first.beat_at)
        assert not (first.leads and second.leads)
    assert (first.leads, second.leads) == (False, True)


def test_one_that_is_cut_off_and_alone_goes_on(log: Log) -> None:
    first, second = started_pair(log)
    second.leave()
    first.look()
    log.now += 10 * GONE_S
    first.leadership.stop_if_cut_off(10 * GONE_S)
    assert first.leads


def test_one_that_was_cut_off_leads_again_if_no_other_has_claimed(log: Log) -> None:
    first, second = started_pair(log)
    first.look()
    log.now += GONE_S - 1
    first.leadership.stop_if_cut_off(GONE_S - 1)
    assert not first.leads
    assert "cannot reach its lease" in first.leadership.words
    first.live()
    second.live()
    assert (first.leads, second.leads) == (True, False)


def test_a_configuration_that_is_applied_to_the_leader_makes_no_second_leader(log: Log) -> None:
    first, second = started_pair(log)
    first.digest = "of the edited file"
    for one in (first, second):
        one.live()
    assert (first.leads, second.leads) == (True, False)


def test_a_lease_that_was_not_taken_back_ends_though_its_process_runs_other_flows(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Holder, "lives", property(lambda holder: True))
    _first, second = started_pair(log)
    for _ in range(2):
        log.now += GONE_S
        second.live()
    assert second.leads


def test_one_that_was_killed_is_followed_when_its_tasks_are_mute(log: Log) -> None:
    first, second = started_pair(log)
    log.dead.add(first.name)
    second.live()
    assert not second.leads, "tasks of a killed driver send for a moment longer"
    assert "tasks of the process before" in second.leadership.words
    log.now += MUTED_S
    second.live()
    assert second.leads


def test_one_that_took_back_its_lease_is_followed_at_once(log: Log) -> None:
    first, second = started_pair(log)
    first.leave()
    second.live()
    assert second.leads


def test_one_whose_query_failed_lets_another_lead(log: Log) -> None:
    first, second = started_pair(log)
    first.look()
    first.leadership.resign()
    assert "its query failed" in first.leadership.words
    for _ in range(int(MUTED_S + ABSTAIN_S)):
        assert not first.leads
        log.now += 1
        for one in (first, second):
            one.live()
    assert (first.leads, second.leads) == (False, True)


def test_one_whose_query_failed_and_that_is_alone_leads_on(log: Log) -> None:
    first, second = Process(log), Process(log)
    first.start()
    first.leadership.resign()
    assert first.leads
    second.beat()
    first.look()
    first.leadership.resign()  # and the other dies
    for _ in range(int(MUTED_S + ABSTAIN_S)):
        assert not first.leads
        log.now += 1
        first.live()
    assert first.leads


def test_records_of_0_1_claim_nothing(log: Log) -> None:
    leadership = Leadership(log.presence("one"))
    old = Holder("old", "host", 1, 0, 0)
    assert old.claim == 0
    leadership.hear(Record(0, 0, presence._key(FLOW, "old"), b'{"host":"h","pid":1,"since":0,"at":0}', ()))
    assert leadership.judge(), "it claims"


def test_another_configuration_does_not_lead_beside_the_first(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is applied to the process that stands by first: which of the two stays is another question."""
    first, second = started_pair(log)
    second.presence.flow = FLOW.__class__(FLOW.source, FLOW.target, copies=False)
    second.live()
    assert (first.leads, second.leads) == (True, False)
