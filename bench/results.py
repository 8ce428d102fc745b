"""What was measured, as data: rows of figures, kept in `bench/results.json` and merged scenario by scenario.

Ratios only mean something within one run on one machine, so a scenario's rows are always replaced together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bench.measure import median
from bench.scenarios import MM2, TUNED, Threshold

EXACT = "exact"


@dataclass(frozen=True, slots=True)
class Row:
    """One peer's turn in one run of one scenario. `verdict` is `exact` or says what is wrong with the copy."""

    peer: str
    run: int
    verdict: str
    figures: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """A scenario as it was run: when, where, at what scale, by which versions."""

    scenario: str
    when: str
    scale: float
    machine: Mapping[str, str]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    threshold: Threshold
    value: float | None  # None: a figure is missing

    @property
    def passed(self) -> bool | None:
        return None if self.value is None else self.threshold.holds(self.value)


def read(path: Path) -> dict[str, Measured]:
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Measured])
    except msgspec.DecodeError as error:
        raise ValueError(f"{path.name} is not a file of results ({error}): delete it or restore it from git") from error


def merge(kept: Mapping[str, Measured], new: Iterable[Measured]) -> dict[str, Measured]:
    return {**kept, **{measured.scenario: measured for measured in new}}


def write(path: Path, results: Mapping[str, Measured]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def typical(rows: Iterable[Row], peer: str, figure: str) -> float | None:
    """The median over the runs of one peer's figure; None when it has none."""
    values = [row.figures[figure] for row in rows if row.peer == peer and figure in row.figures]
    return median(values) if values else None


def ratio(rows: Iterable[Row], figure: str, of: str, to: str) -> float | None:
    """The median over the runs of `of`'s figure over `to`'s, both taken from the same run."""
    by_run: dict[int, dict[str, float]] = {}
    for row in rows:
        if figure in row.figures:
            by_run.setdefault(row.run, {})[row.peer] = row.figures[figure]
    ratios = [run[of] / run[to] for run in by_run.values() if of in run and run.get(to, 0) > 0]
    return median(ratios) if ratios else None


def judge(rows: tuple[Row, ...], threshold: Threshold, peer: str) -> Judgement:
    """Holds a peer's figure against a threshold. A copy that is not exact has no figure to be proud of."""
    if any(row.peer == peer and row.verdict != EXACT for row in rows):
        return Judgement(threshold, None)
    if not threshold.against:
        return Judgement(threshold, typical(rows, peer, threshold.figure))
    if threshold.against != "mm2-best":
        return Judgement(threshold, ratio(rows, threshold.figure, peer, threshold.against))
    # Figures judged against the best MM2 are times: the better is the smaller, so our ratio to it is the larger.
    ratios = [r for other in (MM2, TUNED) if (r := ratio(rows, threshold.figure, peer, other)) is not None]
    return Judgement(threshold, max(ratios) if ratios else None)
