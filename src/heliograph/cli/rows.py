"""A table row for each flow (or spoke) every few seconds, for demos whose output is a pipe or a file.

The header comes first, and again behind so many rows that it has left the screen. What a table on a terminal has below
it (why a flow does not run, what is parked) is a line of its own, said once as long as it stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from heliograph.cli import show
from heliograph.cli.out import rendered
from heliograph.health.status import FlowStatus

AGAIN = 40  # rows behind which the header is said again

Row = Sequence[str]  # texts first, as many as there are columns of texts
FLOW_COLUMNS = {"flow": 16, "state": 10, "records/s": 9, "MB/s": 6, "lag": 6, "behind": 6, "p99": 6}
TEXTS = 2  # columns that are aligned on the left: name and state


class Rows:
    """`columns`: heading and width; `look`: what to say of these statuses."""

    def __init__(self, columns: dict[str, int], look: Callable[[Sequence[FlowStatus]], list[Row]]) -> None:
        self._columns, self._look = columns, look
        self._said_rows = AGAIN
        self._notes: list[str] = []

    def __call__(self, statuses: Sequence[FlowStatus]) -> str:
        """Lines, without the last end of line."""
        now = datetime.now().astimezone().strftime("%H:%M:%S")
        rows, lines = self._look(statuses), []
        if self._said_rows >= AGAIN:
            self._said_rows = 0
            lines.append(self._line("time", list(self._columns)))
        lines += [self._line(now, row) for row in rows]
        self._said_rows += len(rows)
        notes = [note.plain for note in show.notes_of(statuses)]
        lines += [f"{now}  {note}" for note in notes if note not in self._notes]
        self._notes = notes
        return "\n".join(map(rendered, lines))

    def _line(self, time: str, cells: Row) -> str:
        widths = list(self._columns.values())
        texts = [f"{text:<{width}}" for text, width in zip(cells[:TEXTS], widths, strict=False)]
        figures = [f"{text:>{width}}" for text, width in zip(cells[TEXTS:], widths[TEXTS:], strict=True)]
        return f"{time:<8}  {'  '.join([*texts, *figures])}".rstrip()


def of_flows() -> Rows:
    return Rows(FLOW_COLUMNS, lambda statuses: [[one.name, one.state, *show.figures_of(one)] for one in statuses])
