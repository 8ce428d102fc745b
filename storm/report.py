"""What a storm says while it runs and at its end. Talk goes to stderr, the summary to stdout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table

from storm.plan import BY_NAME
from storm.verify import Finding


@dataclass(frozen=True, slots=True)
class Bounds:
    level_s: float
    task_mb: float
    driver_mb: float


@dataclass
class Summary:
    """Everything a storm found out. `trouble`: what is wrong besides findings, a sentence each."""

    seed: int
    old: bool
    brokers: int
    minutes: float = 0.0
    faults: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    acknowledged: int = 0
    unanswered: int = 0
    copied: int = 0
    generations: int = 0
    commits: int = 0
    placements: int = 0
    groups_at_first_unread: int = 0
    groups_at_end: int = 0
    level_s: float | None = None
    task_mb: float = 0.0
    driver_mb: float = 0.0
    jvm_mb: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    logs: str = ""

    def judge(self, bounds: Bounds) -> None:
        """Bounds that were passed become trouble."""
        if self.level_s is None:
            self.trouble.append("the copies were never level with their sources again")
        elif self.level_s > bounds.level_s:
            self.trouble.append(
                f"level {self.level_s:.0f} s after the last fault, and {bounds.level_s:g} s is the bound"
            )
        for name, peak, bound in (("task", self.task_mb, bounds.task_mb), ("driver", self.driver_mb, bounds.driver_mb)):
            if peak > bound:
                self.trouble.append(f"a {name} had {peak:.0f} MB of memory, and {bound:g} MB is the bound")

    @property
    def passed(self) -> bool:
        return not self.findings and not self.trouble

    def counts(self) -> dict[str, int]:
        """Findings by kind: every kind, also those that were not found."""
        kinds = ("lost", "duplicated", "reordered", "misrouted", "foreign", "misplaced", "source")
        return {kind: sum(one.count for one in self.findings if one.kind == kind) for kind in kinds}


def as_json(summary: Summary) -> str:
    return json.dumps({"passed": summary.passed, "counts": summary.counts(), **asdict(summary)}, indent=2)


def show(summary: Summary, console: Console) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in _rows(summary):
        table.add_row(name, value)
    console.print(table)
    for finding in summary.findings:
        console.print(f"{finding.kind}: {finding.where}: {finding.count}", style="red", markup=False)
        for one in finding.named:
            console.print(f"  {one}", markup=False)
    for one in summary.trouble:
        console.print(f"failed: {one}", style="red", markup=False)
    for one in summary.notes:
        console.print(f"note: {one}", markup=False)
    if summary.logs:
        console.print(f"logs: {summary.logs}", markup=False)
    console.print("passed" if summary.passed else "FAILED", style="bold green" if summary.passed else "bold red")


def _rows(summary: Summary) -> list[tuple[str, str]]:
    records = "three days old" if summary.old else "of now"
    rows = [
        (
            "storm",
            f"seed {summary.seed}, records {records}, {summary.brokers} broker(s) a side, {summary.minutes:.1f} min",
        ),
        ("faults", f"{sum(summary.faults.values()):,}: {kinds(summary.faults)}"),
    ]
    if summary.skipped:
        rows.append(("not done", kinds(summary.skipped)))
    level = "never" if summary.level_s is None else f"{summary.level_s:.1f} s after the last fault"
    exact = f"{summary.groups_at_first_unread} of {summary.groups_at_end} at the end exactly at the first unread record"
    memory = {"task": summary.task_mb, "driver": summary.driver_mb, "JVM": summary.jvm_mb}
    return [
        *rows,
        ("records", f"{summary.acknowledged:,} acknowledged, {summary.unanswered:,} without an answer"),
        ("copies", f"{summary.copied:,} records, of {summary.generations} deleted generations among them"),
        ("groups", f"{summary.commits:,} commits, {summary.placements:,} placements checked; {exact}"),
        ("level", level),
        ("memory", ", ".join(f"{name} {peak:.0f} MB" for name, peak in memory.items()) + " at most"),
        ("found", ", ".join(f"{count:,} {kind}" for kind, count in summary.counts().items())),
    ]


def kinds(counts: Mapping[str, int]) -> str:
    """In the order of the plan."""
    return ", ".join(f"{name} {counts[name]}" for name in BY_NAME if counts.get(name)) or "none"
