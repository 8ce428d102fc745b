"""A hub's spokes, one row each: how far each one's records are on their three steps. Pure, but for drawing.

Put together from what the flows report: the spoke's own (`spoke1->spoke1.mux`, or `spoke1->hub.mux` where the shared
topic is on the hub), the one that carries its shared topic over, if there is one, and of the hub's one `demux` the
partitions of the spoke's shared topic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from heliograph.cli import show
from heliograph.cli.rows import Rows
from heliograph.health.status import FlowReport, FlowStatus
from heliograph.types import Flow

# From what asks most for a look to what asks least; a row shows the first that any of its flows is in.
COLUMNS = {
    "spoke": 10, "state": 10, "produced": 8, "put back": 8, "records/s": 9, "MB/s": 6, "lag": 6, "behind": 6, "p99": 6
}  # fmt: skip
URGENCY = ("failed", "stalled", "parked", "restarting", "starting", "stopped", "paused", "standby", "running", "idle")


@dataclass(frozen=True, slots=True)
class Steps:
    """The flows that a spoke's records go by, by name."""

    spoke: str
    mux: str
    link: str  # "": the mux writes to the hub itself
    demux: str
    shared: str  # the spoke's shared topic, as the hub calls it


@dataclass(frozen=True, slots=True)
class Row:
    """Counted from the start of the process. `behind`: records on their way, on all steps; None: not known yet."""

    spoke: str
    state: str
    produced: int
    muxed: int
    carried: int
    put_back: int
    records_per_s: float  # put back
    bytes_per_s: float  # likewise
    behind: int | None
    behind_s: float | None  # of the step that is farthest behind
    latency_p99_ms: float | None  # from a record's own timestamp to its copy at the hub, of the last seconds


def steps_of(flows: Sequence[Flow]) -> list[Steps]:
    """In the order of the file."""
    found = []
    for mux in (flow for flow in flows if flow.mux is not None):
        spoke = mux.source.alias
        for demux in flows:
            for rule in demux.demux:
                if rule.spoke.alias == spoke:
                    carried = mux.target.alias == spoke
                    link = f"{spoke}->{demux.target.alias}" if carried else ""
                    found.append(Steps(spoke, mux.name, link, demux.name, rule.topic))
    return found


def row(steps: Steps, produced: int, reports: Sequence[FlowReport]) -> Row:
    by_name = {report.status.name: report for report in reports}
    mux, link, demux = (by_name.get(name) for name in (steps.mux, steps.link, steps.demux))
    mine = [one for one in demux.partitions if one.topic == steps.shared] if demux else []
    put_back = sum(one.counters.get("records", 0) for one in mine)
    muxed = mux.status.records if mux else 0
    links = [mux, *([link] if steps.link else [])]
    lags = [report.status.lag_records if report else None for report in links]
    lags += [one.lag_records for one in mine] or [None]
    seconds = [report.status.lag_seconds if report else None for report in links]
    seconds += [one.lag_seconds for one in mine] or [None]
    return Row(
        spoke=steps.spoke,
        state=_state(report.status.state for report in (*links, demux) if report),
        produced=produced,
        muxed=muxed,
        carried=link.status.records if link else muxed,
        put_back=put_back,
        records_per_s=sum(one.records_per_s for one in mine),
        bytes_per_s=sum(one.bytes_per_s for one in mine),
        behind=None if any(lag is None for lag in lags) else sum(lag or 0 for lag in lags),
        behind_s=None if None in seconds else max(one or 0.0 for one in seconds),
        latency_p99_ms=demux.latencies_p99_ms.get(steps.shared) if demux else None,
    )


def _state(states: Iterable[str]) -> str:
    there = set(states)
    return next((state for state in URGENCY if state in there), "starting")


@dataclass(frozen=True, slots=True)
class Board:
    """How the spokes are shown while the flows run; `look` is asked anew for every table."""

    look: Callable[[], Sequence[Row]]

    def draw(self, statuses: Sequence[FlowStatus], width: int) -> Group:
        return Group(table(self.look(), width), *show.notes_of(statuses))

    def rows(self) -> Rows:
        return Rows(COLUMNS, lambda _statuses: [cells(one) for one in self.look()])

    def line(self, statuses: Sequence[FlowStatus]) -> str:
        return show.json_line(statuses, {"spokes": [dataclasses.asdict(one) for one in self.look()]})


def table(rows: Sequence[Row], width: int = 80) -> Table:
    """A row for each spoke; the steps between come in on a wide terminal."""
    wide = width >= show.WIDEST
    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    drawn.add_column("spoke", overflow="ellipsis", no_wrap=True, max_width=16 if wide else COLUMNS["spoke"])
    drawn.add_column("state", no_wrap=True, min_width=COLUMNS["state"])
    figures = [*COLUMNS][2:]
    if not wide:
        figures.remove("MB/s")
    for heading in (figures[0], *(("multiplexed", "carried over") if wide else ()), *figures[1:]):
        drawn.add_column(heading, justify="right", no_wrap=True, min_width=COLUMNS.get(heading, len(heading)))
    for one in rows:
        texts = dict(zip(COLUMNS, cells(one), strict=True))
        steps = (show.short(one.muxed), show.short(one.carried)) if wide else ()
        drawn.add_row(
            show.foreign(one.spoke),
            Text(one.state, style=show.COLOURS.get(one.state, "")),
            texts["produced"],
            *steps,
            *(texts[heading] for heading in figures[1:]),
        )
    return drawn


def cells(one: Row) -> list[str]:
    """In the order of COLUMNS."""
    p99 = one.latency_p99_ms
    return [
        one.spoke,
        one.state,
        show.short(one.produced),
        show.short(one.put_back),
        f"{one.records_per_s:,.0f}",
        f"{one.bytes_per_s / 1e6:,.1f}",
        "?" if one.behind is None else show.short(one.behind),
        "?" if one.behind_s is None else show.duration(one.behind_s),
        "-" if p99 is None else show.duration(p99 / 1000),
    ]
