"""Rows of figures merged, judged and rendered."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.report import draw, markdown
from bench.results import Measured, Row, judge, merge, ratio, read, typical, write
from bench.scenarios import SCENARIOS, THRESHOLDS, select


def row(peer: str, run: int, verdict: str = "exact", note: str = "", **figures: float) -> Row:
    return Row(peer, run, verdict, figures, note)


def measured(scenario: str, *rows: Row, scale: float = 1) -> Measured:
    return Measured(scenario, "2026-11-15 12:00 UTC", scale, {"cores": "2 cores"}, rows)


LZ4 = measured(
    "lz4",
    row("mm2", 1, records_per_s=100_000, cpu_us_window=13.0),
    row("mm2-tuned", 1, records_per_s=250_000, cpu_us_window=6.0, note="tasks.max=4"),
    row("heliograph", 1, records_per_s=800_000, cpu_us_window=0.5),
    row("limit", 1, records_per_s=900_000, cpu_us_window=0.3),
    row("mm2-tuned", 2, records_per_s=200_000, cpu_us_window=6.0),
    row("heliograph", 2, records_per_s=900_000, cpu_us_window=0.9),
    row("limit", 2, records_per_s=1_000_000, cpu_us_window=0.3),
)


def test_ratios_pair_figures_of_the_same_run() -> None:
    assert ratio(LZ4.rows, "records_per_s", "heliograph", "mm2-tuned") == pytest.approx((3.2 + 4.5) / 2)
    assert ratio(LZ4.rows, "records_per_s", "mm2", "limit") == pytest.approx(1 / 9)
    assert ratio(LZ4.rows, "nothing", "mm2", "limit") is None
    assert typical(LZ4.rows, "heliograph", "records_per_s") == 850_000


def test_thresholds_are_judged_by_direction() -> None:
    faster, cheaper, near_limit = (judge(LZ4.rows, t, "heliograph") for t in THRESHOLDS["lz4"])
    assert (faster.passed, cheaper.passed, near_limit.passed) == (True, False, True)
    assert cheaper.value == pytest.approx((0.5 / 6 + 0.9 / 6) / 2)


def test_a_copy_that_is_not_exact_passes_nothing() -> None:
    rows = (row("mm2-tuned", 1, records_per_s=1.0), row("heliograph", 1, "lost 3", records_per_s=100.0))
    assert judge(rows, THRESHOLDS["tiny"][0], "heliograph").passed is None


def test_latency_is_judged_against_the_better_mm2() -> None:
    rows = (row("mm2", 1, p99_ms=30.0), row("mm2-tuned", 1, p99_ms=20.0), row("heliograph", 1, p99_ms=25.0))
    judgement = judge(rows, THRESHOLDS["latency"][0], "heliograph")
    assert judgement.value == pytest.approx(1.25)
    assert judgement.passed is False


def test_markdown_shows_figures_ratios_verdicts_and_thresholds() -> None:
    broken = measured("tiny", row("mm2", 1, "did not finish (5 of 10)", records_per_s=5.0), scale=0.1)
    text = markdown({"tiny": broken, "lz4": LZ4})
    assert text.index("## lz4") < text.index("## tiny")  # the order of the scenarios, not of the results
    assert "| lz4 | records/s at least 3 × MM2 tuned | 3.85 × | pass |" in text
    assert "| tiny | records/s at least 2 × MM2 tuned | — | not measured |" in text
    assert "850,000 (800,000–900,000)" in text
    assert "**did not finish (5 of 10)**" in text
    assert "scale 0.1" in text
    assert "- MM2 tuned: tasks.max=4" in text


def test_markdown_of_nothing_is_still_a_page() -> None:
    assert markdown({}).startswith("# Heliograph beside MirrorMaker 2")


def test_results_survive_the_file_and_merge_by_scenario(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert read(path) == {}
    plain = measured("plain", row("mm2", 1, records_per_s=1.0))
    write(path, merge({"lz4": LZ4}, [plain]))
    assert read(path) == {"lz4": LZ4, "plain": plain}
    renewed = measured("lz4", row("mm2", 1, records_per_s=2.0))
    assert merge(read(path), [renewed]) == {"lz4": renewed, "plain": plain}


def test_a_broken_results_file_names_itself(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("[1")
    with pytest.raises(ValueError, match=r"results\.json is not a file of results"):
        read(tmp_path / "results.json")


def test_chart_is_an_svg_and_the_same_twice(tmp_path: Path) -> None:
    latency = measured("latency", row("mm2", 1, p50_ms=10, p95_ms=20, p99_ms=30, **{"p99.9_ms": 40}))
    for name in ("a.svg", "b.svg"):
        draw({"lz4": LZ4, "latency": latency}, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert "850" in (tmp_path / "a.svg").read_text()


def test_selection_knows_groups_and_refuses_strangers() -> None:
    assert [s.name for s in select(("far", "lz4"))] == ["lz4", "far-source", "far-target"]
    assert set(SCENARIOS) - {s.name for s in select(())} == {
        *("translation", "beside", "cap", "soak", "far-live"),  # minutes each
        *("mux", "link", "demux", "spokes"),
    }
    assert [s.name for s in select(("translation",))] == ["translation"]
    with pytest.raises(ValueError, match="no scenario called lz5"):
        select(("lz5",))


def test_scaling_changes_counts_and_never_shapes() -> None:
    small = SCENARIOS["lz4"].scaled(0.01)
    assert (small.records, small.partitions, small.batch_bytes) == (80_000, 4, SCENARIOS["lz4"].batch_bytes)
    assert SCENARIOS["latency"].scaled(0.1).seconds == pytest.approx(18)
    assert SCENARIOS["latency"].scaled(0.1).rate_per_s == 250
