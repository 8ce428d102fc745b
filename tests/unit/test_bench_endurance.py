"""What is made of a soak's minutes and of a cap's bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.endurance import Minute, draw, figures
from bench.peers import Job, properties
from bench.scenarios import SCENARIOS
from bench.under_load import cap_figures


def minute(number: int, memory_mb: float = 900.0, descriptors: int = 200, p99_ms: float = 20.0) -> Minute:
    return Minute(number, 500_000.0, 1_000, memory_mb, descriptors, 5.0, p99_ms)


def test_what_grows_shows() -> None:
    flat = figures([minute(number) for number in range(1, 61)], [(0.0, 5.0), (1.0, 20.0)])
    assert (flat["memory_growth_percent"], flat["descriptor_growth"], flat["p99_drift"]) == (0.0, 0.0, 1.0)
    assert (flat["minutes"], flat["p50_ms"], flat["p99_ms"]) == (60.0, 5.0, 20.0)
    growing = figures([minute(n, 900 + n, 200 + n, 20 + n) for n in range(1, 61)], [])
    assert growing["memory_growth_percent"] == pytest.approx((957.5 / 909.5 - 1) * 100)
    assert growing["descriptor_growth"] == 48
    assert growing["p99_drift"] > 1.5


def test_a_start_is_not_growth() -> None:
    minutes = [minute(1, 300, 100, 500), *(minute(number) for number in range(2, 21))]
    assert figures(minutes, [])["memory_growth_percent"] == 0.0


def test_a_short_soak_and_one_that_saw_nothing() -> None:
    assert figures([minute(1)], [])["memory_growth_percent"] == 0.0
    assert figures([], []) == {}


def test_the_plot_is_an_svg(tmp_path: Path) -> None:
    draw([minute(1), minute(2)], tmp_path / "soak.svg")
    assert "<svg" in (tmp_path / "soak.svg").read_text()


def test_a_caps_worst_half_minute_counts() -> None:
    steady = [(float(t), 10e6 * t) for t in range(61)]
    assert cap_figures(steady, 10e6)["deviation_percent"] == pytest.approx(0)
    # ten seconds without anything, in the middle: a third of a half minute
    broken = [(t, size if t <= 30 else size - 10e6 * min(t - 30, 10)) for t, size in steady]
    found = cap_figures(broken, 10e6)
    assert found["deviation_percent"] == pytest.approx(100 / 3)
    assert found["least_mb_per_s"] == pytest.approx(20 / 3)
    assert found["most_mb_per_s"] == pytest.approx(10)


def test_settings_of_these_turns() -> None:
    def of(scenario: str) -> dict[str, str]:
        return properties(
            Job("heliograph", "x", "events", "127.0.0.1:1", "127.0.0.1:2", SCENARIOS[scenario], Path("."))
        )

    assert of("cap")["x->target.max.bytes.per.second"] == "10000000"
    assert of("beside")["x->target.topics"] == "events, events-live"
    assert "x->target.max.bytes.per.second" not in of("lz4")
