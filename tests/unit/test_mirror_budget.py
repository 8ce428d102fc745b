"""Buckets by a clock of the test's: what may be taken, when, and that it comes to the cap."""

from __future__ import annotations

import random

import pytest

from heliograph.mirror.budget import BURST_S, HISTORY_S, LEFT_S, LIVE_S, Budget
from heliograph.types import Cap

MB = 1_000_000
MOST = 8 << 20
FLOW = (Cap(10 * MB),)


def drain(budget: Budget, now: float, until: float, *, history: bool, batch: int = 16_000, group: int = 0) -> int:
    """A source without end, asked as often as the budget allows; answers are whole batches, and take a millisecond."""
    taken = 0
    while now < until:
        allowed = budget.allowance(group, MOST, now, history=history)
        if allowed.bytes:
            size = max(allowed.bytes // batch, 1) * batch
            budget.take(group, size)
            taken += size
            now += 0.001
        else:
            assert allowed.due > now
            now = allowed.due
    return taken


def test_without_caps_nothing_is_held_back() -> None:
    assert Budget().allowance(0, MOST, 0.0, history=True).bytes == MOST


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("batch", [1_000, 16_000, 1_000_000])
def test_thirty_seconds_come_to_the_cap(history: bool, batch: int) -> None:
    taken = drain(Budget(FLOW), 100.0, 130.0, history=history, batch=batch)
    assert taken == pytest.approx(300 * MB, rel=0.02)


def test_it_begins_empty_so_that_beginning_again_gives_nothing_away() -> None:
    taken = sum(drain(Budget(FLOW), begin, begin + 0.5, history=True) for begin in range(60))
    assert taken <= 30 * 10 * MB


def test_after_a_pause_half_a_second_comes_at_once_and_no_more() -> None:
    budget = Budget(FLOW)
    drain(budget, 0.0, 1.0, history=False)
    assert budget.allowance(0, MOST, 1000.0, history=False).bytes == BURST_S * 10 * MB


def test_history_leaves_live_records_what_they_need() -> None:
    budget = Budget(FLOW)
    now, waited = 0.0, 0
    budget.allowance(0, MOST, now, history=True)
    for step in range(1, 3000):
        now = step / 100
        allowed = budget.allowance(0, MOST, now, history=True)
        if allowed.bytes:
            budget.reserve(0, allowed.bytes)  # on its way
            waited += budget.allowance(0, MOST, now + 0.001, history=False).bytes == 0
            budget.reserve(0, -allowed.bytes)
            budget.take(0, allowed.bytes // 16_000 * 16_000)
        waited += now > 1 and budget.allowance(0, MOST, now + 0.002, history=False).bytes == 0
    assert waited == 0
    assert LIVE_S < LEFT_S < HISTORY_S


def test_a_batch_larger_than_what_is_there_is_paid_for_afterwards() -> None:
    budget = Budget((Cap(100_000),))
    budget.allowance(0, MOST, 0.0, history=False)
    assert budget.allowance(0, MOST, 0.5, history=False).bytes == 50_000
    budget.take(0, 1_000_000)
    allowed = budget.allowance(0, MOST, 0.5, history=False)
    assert allowed.bytes == 0
    assert allowed.due == pytest.approx(0.5 + 9.5 + LIVE_S)
    assert budget.words(0) == "held back by max.bytes.per.second = 100000"


def test_topics_under_a_cap_of_their_own_are_under_the_flows_too() -> None:
    budget = Budget((Cap(10 * MB), Cap(2 * MB, "history")))
    group, other = budget.group_of("history"), budget.group_of("orders")
    assert (group, other) == (2, 0)
    drain(budget, 0.0, 1.0, history=True, group=group)
    budget.told()
    assert drain(budget, 1.0, 30.0, history=True, group=group) == pytest.approx(58 * MB, rel=0.02)
    assert [short for _, short in budget.told()] == [False, True]
    taken = 0
    for second in range(30, 60):
        taken += drain(budget, second, second + 0.5, history=True, group=group)
        taken += drain(budget, second + 0.5, second + 1, history=True, group=other)
    assert taken == pytest.approx(300 * MB, rel=0.05)


def test_shares_that_change_add_up_to_what_they_were() -> None:
    chance = random.Random(7)
    budget, due, taken = Budget(FLOW, (5.0 * MB,)), 0.0, 0
    for second in range(60):
        rate = chance.uniform(1, 9) * MB
        budget.deal([rate], float(second))
        due += rate
        taken += drain(budget, second, second + 1, history=True)
    assert taken == pytest.approx(due, rel=0.02)


def test_what_is_told_is_since_it_was_told() -> None:
    budget = Budget(FLOW)
    taken = drain(budget, 0.0, 2.0, history=True)
    assert budget.told() == [(taken, True)]
    assert budget.told() == [(0, False)]
