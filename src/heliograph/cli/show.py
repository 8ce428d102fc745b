"""Statuses of flows drawn for people (a live table, or rows where there is no terminal) and for programs (JSON lines).

Draws only; `watch` decides when.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import IO, Protocol, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from heliograph.cli.out import console
from heliograph.escaping import escape
from heliograph.health.status import FlowStatus, ParkedPartition

COLOURS = {
    "running": "green",
    "idle": "cyan",
    "paused": "cyan",
    "starting": "yellow",
    "restarting": "yellow",
    "parked": "yellow",
    "stalled": "bold red",
    "failed": "bold red",
}
Draw = Callable[[Sequence[FlowStatus], int], Group]  # statuses and the terminal's width
Line = Callable[[Sequence[FlowStatus]], str]  # may be several, with ends of line between
WIDE, WIDEST = 100, 120  # columns of a terminal from which on more is shown
PARKED_SHOWN = 8  # more would push the table off a terminal of 24 lines


class View(Protocol):
    def update(self, statuses: Sequence[FlowStatus]) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def view(
    report_seconds: float, stdout: IO[str] | None = None, draw: Draw | None = None, line: Line | None = None
) -> View:
    """The table on a terminal, lines anywhere else; of flows, or as `draw` and `line` have it."""
    out = stdout or sys.stdout
    if out.isatty():
        return TableView(console(file=out), draw or table)
    return LineView(out, report_seconds, line or json_line)


class TableView:
    def __init__(self, console: Console, draw: Draw | None = None) -> None:
        self._draw = draw or table
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def update(self, statuses: Sequence[FlowStatus]) -> None:
        self._live.update(self._draw(statuses, self._live.console.width), refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


class LineView:
    """Lines every `report_seconds`, at once at the first update and once more at the end."""

    def __init__(self, out: IO[str], report_seconds: float, line: Line | None = None) -> None:
        self._out = out
        self._line = line or json_line
        self._every_s = report_seconds
        self._next_s = 0.0
        self._unsaid: Sequence[FlowStatus] = ()

    def update(self, statuses: Sequence[FlowStatus]) -> None:
        self._unsaid = statuses
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + self._every_s
            self._say()

    def _say(self) -> None:
        if self._unsaid:
            self._out.write(self._line(self._unsaid) + "\n")
            self._out.flush()
            self._unsaid = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._say()


def json_line(statuses: Sequence[FlowStatus], more: Mapping[str, object] | None = None) -> str:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"time": now, **(more or {}), "flows": [_plain(status) for status in statuses]})


def _plain(status: FlowStatus) -> dict[str, object]:
    rates = {"records_per_s": round(status.records_per_s, 1), "bytes_per_s": round(status.bytes_per_s, 1)}
    return dataclasses.asdict(status) | rates


def table(statuses: Sequence[FlowStatus], width: int = 80) -> Group:
    """At 80 columns what moves; what there is comes in from 100 on, totals from 120."""
    figures = {"records/s": 9, "MB/s": 6, "lag": 6, "behind": 6, "p99": 6, "tasks": 5}
    figures |= {"topics/parts": 12} if width >= WIDE else {}
    figures |= {"records": 7, "MB": 9} if width >= WIDEST else {}
    # Rich would cut every column a little; only the flow's name may be: it gets what the others leave.
    left = width - sum(figures.values()) - len("restarting") - 2 * (len(figures) + 2)
    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    drawn.add_column("flow", overflow="ellipsis", no_wrap=True, max_width=max(left, 8))
    drawn.add_column("state", no_wrap=True, min_width=len("restarting"))
    for heading, narrowest in figures.items():
        drawn.add_column(heading, justify="right", no_wrap=True, min_width=narrowest)
    for status in statuses:
        drawn.add_row(*_cells(status, width))
    return Group(drawn, *notes_of(statuses))


def _cells(status: FlowStatus, width: int) -> list[Text | str]:
    cells: list[Text | str] = [
        foreign(status.name),
        Text(status.state, style=COLOURS.get(status.state, "")),
        *figures_of(status),
        str(status.tasks),
    ]
    cells += [f"{status.topics}/{status.partitions}"] if width >= WIDE else []
    cells += [short(status.records), f"{status.bytes / 1e6:,.0f}"] if width >= WIDEST else []
    return cells


def figures_of(status: FlowStatus) -> list[str]:
    """records/s, MB/s, lag in records and in time, p99 of the time from a record's timestamp to the copy."""
    p99 = status.latency_p99_ms
    return [
        f"{status.records_per_s:,.0f}",
        f"{status.bytes_per_s / 1e6:,.1f}",
        "?" if status.lag_records is None else short(status.lag_records),
        "?" if status.lag_seconds is None else duration(status.lag_seconds),
        "-" if p99 is None else duration(p99 / 1000),
    ]


def notes_of(statuses: Sequence[FlowStatus]) -> list[Text]:
    """Below the table, in words: why a flow does not run, and what is parked."""
    notes = [
        foreign(f"{status.name}: {status.reason}", style=COLOURS.get(status.state, ""))
        for status in statuses
        if status.reason
    ]
    notes += [
        foreign(f"{status.name}: {_incidents(status)}", style="yellow") for status in statuses if status.last_incident
    ]
    notes += [
        foreign(f"{status.name}: {one.where} is {one.words}", style="cyan")
        for status in statuses
        for one in status.orders[:PARKED_SHOWN]
        if one.topic is not None or status.state != one.word
    ]
    notes += [foreign(f"{status.name}: {cap.words}") for status in statuses for cap in status.caps]
    parked = [(status.name, one) for status in statuses for one in status.parked]
    notes += [_parked(name, one) for name, one in parked[:PARKED_SHOWN]]
    if len(parked) > PARKED_SHOWN:
        notes.append(Text(f"… and {len(parked) - PARKED_SHOWN} more parked", style="yellow"))
    return notes


def _incidents(status: FlowStatus) -> str:
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(status.incidents.items()))
    return f"incidents: {counted}; the last: {status.last_incident}"


def _parked(flow: str, one: ParkedPartition) -> Text:
    where = one.topic if one.partition is None else f"{one.topic}-{one.partition}"
    text = foreign(f"parked {flow} {where}: {one.reason}", style="yellow")
    return text.append(escape(f". {one.fix}") if one.fix else "", style="default")


def foreign(text: str, style: str = "") -> Text:
    """One line of a table or below it, whatever is in the text."""
    return Text(escape(text), style=style)


def duration(seconds: float) -> str:
    """At most five characters: 8ms, 1.2s, 45s, 3m, 5h, 12d."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms" if seconds >= 0.0005 else "0s"
    if seconds < 99.5:
        return f"{seconds:.1f}s" if seconds < 9.95 else f"{seconds:.0f}s"
    for size, unit in ((60, "m"), (3600, "h")):
        if seconds / size < 99.5:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86_400:.0f}d"


def short(number: int) -> str:
    """At most six characters: 999,999 is 1.0M."""
    if abs(number) < 100_000:
        return f"{number:,}"
    size = float(number)
    for unit in ("k", "M", "G", "T"):
        size /= 1000
        if abs(size) < 999.5:
            return f"{size:.0f}{unit}" if abs(size) >= 99.5 else f"{size:.1f}{unit}"
    return f"{size:.0f}T"
