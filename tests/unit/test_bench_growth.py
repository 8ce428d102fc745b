"""What is made of a growing flow's events, and how they are laid over the refresh interval."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.growth import EVENTS, Event, figures
from bench.peers import Job, properties
from bench.report import markdown
from bench.results import Measured, Row, judge
from bench.scenarios import HELIOGRAPH, REFRESH_S, SCENARIOS, THRESHOLDS, select

GROWTH = SCENARIOS["growth"]


def events(*took_s: float | None, apart_s: float = 10.0) -> list[Event]:
    """So many topics, then as many partitions, each so many seconds until it was copied."""
    half = len(took_s) // 2
    kinds = ["topic"] * half + ["partition"] * half
    return [Event(kinds[n], 100.0 + n * apart_s, took) for n, took in enumerate(took_s)]  # type: ignore[arg-type]


def test_the_slowest_of_each_kind_counts() -> None:
    found = figures(events(2.0, 6.5, 4.0, 1.0, 3.0, 2.0), [], 30)
    assert (found["topic_s"], found["topic_soonest_s"]) == (6.5, 2.0)
    assert (found["partition_s"], found["partition_soonest_s"]) == (3.0, 1.0)


def test_the_others_count_by_the_moment_of_sending_in_the_half_of_each_kind() -> None:
    # (arrival, latency): sent before the first event, with it, at the last moment of the half, in the second half
    arrivals = [(100.5, 900.0), (100.2, 100.0), (130.2, 300.0), (135.0, 20.0), (161.0, 700.0)]
    found = figures(events(1.0, 1.0, 1.0, 1.0, 1.0, 1.0), arrivals, 30)
    assert (found["topic_max_ms"], found["topic_measured"]) == (300.0, 2.0)
    assert (found["partition_p99_ms"], found["partition_max_ms"], found["partition_measured"]) == (20.0, 20.0, 1.0)


def test_a_half_that_took_longer_is_seen_to_its_end() -> None:
    late = events(25.0, 2.0, 2.0, 1.0, 1.0, 1.0, apart_s=25.0)  # topics at 100, 125 and 150
    assert figures(late, [(159.0, 50.0)], 30)["topic_measured"] == 1.0
    assert "topic_measured" not in figures(late, [(161.0, 50.0)], 30)


def test_one_that_was_never_copied_leaves_no_figure_to_pass_by() -> None:
    found = figures(events(1.0, None, 1.0, 1.0, 1.0, 1.0), [(101.0, 5.0)], 30)
    assert "topic_s" not in found
    assert found["topic_p99_ms"] == 5.0
    rows = (Row(HELIOGRAPH, 1, "exact", found),)
    assert judge(rows, THRESHOLDS["growth"][0], HELIOGRAPH).passed is None
    assert judge(rows, THRESHOLDS["growth"][2], HELIOGRAPH).passed is True


def test_events_meet_the_interval_at_moments_that_are_spread_over_it() -> None:
    moments = sorted(n * GROWTH.seconds / EVENTS % REFRESH_S for n in range(EVENTS))
    assert moments == pytest.approx([n * REFRESH_S / EVENTS for n in range(EVENTS)])


def test_settings_and_thresholds_are_of_one_interval() -> None:
    settings = properties(Job(HELIOGRAPH, "x", "events", "127.0.0.1:1", "127.0.0.1:2", GROWTH, Path(".")))
    assert settings["refresh.topics.interval.seconds"] == str(REFRESH_S)
    assert settings["x->target.topics"] == "events-.*"
    assert [t.bound for t in THRESHOLDS["growth"]] == [REFRESH_S + 2, 500, REFRESH_S + 2, 500]
    assert "growth" in {scenario.name for scenario in select(())}


def test_the_page_shows_tenths_of_a_second() -> None:
    found = figures(events(2.0, 6.54, 4.0, 1.0, 3.0, 2.0), [(101.0, 12.0), (131.0, 640.0)], 30)
    row = Row(HELIOGRAPH, 1, "exact", found)
    text = markdown({"growth": Measured("growth", "2026-11-15 12:00 UTC", 1, {"cores": "2 cores"}, (row,))})
    assert "| growth | a new topic copied within 5 s + 2 s, the slowest of three | 6.5 | pass |" in text
    assert "| growth | p99 ms of the others meanwhile under 500 | 640 | **fail** |" in text
