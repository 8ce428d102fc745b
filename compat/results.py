"""The matrix: rows that were really run, kept in `results.json` and shown in the README between markers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from compat.topics import COLUMNS
from heliograph.embedded.releases import PINNED

RESULTS = Path(__file__).parent / "results.json"
README = Path(__file__).parent.parent / "README.md"
BLOCK = ("<!-- compat:begin -->", "<!-- compat:end -->")
SHOWN = (*COLUMNS, "groups")


class Cell(msgspec.Struct):
    records: int = 0
    wrong: list[str] = msgspec.field(default_factory=list)

    def __str__(self) -> str:
        return "**differs**" if self.wrong else f"exact ({self.records:,})"


class Row(msgspec.Struct):
    """One pair of releases. `trouble`: why the flow did not come to its end."""

    source: str
    target: str
    cells: dict[str, Cell] = msgspec.field(default_factory=dict)
    trouble: str = ""
    seconds: float = 0.0
    when: str = ""
    heliograph: str = ""

    @property
    def name(self) -> str:
        return f"{self.source} → {self.target}"

    @property
    def passed(self) -> bool:
        return not self.trouble and all(not cell.wrong for cell in self.cells.values())

    def note(self, column: str, topic: str, records: int, said: str) -> None:
        """Topics of one column are counted together; each that is wrong is named."""
        cell = self.cells.setdefault(column, Cell())
        cell.records += records
        if said:
            cell.wrong.append(f"{topic}: {said}")


def read(path: Path = RESULTS) -> list[Row]:
    return msgspec.json.decode(path.read_bytes(), type=list[Row]) if path.exists() else []


def write(rows: Sequence[Row], path: Path = RESULTS) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")


def merge(before: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """The newest run of each pair, in the order of releases."""
    kept = {(row.source, row.target): row for row in (*before, *new)}
    return [kept[pair] for pair in sorted(kept, key=lambda pair: (_order(pair), pair[0] == PINNED))]


def _order(pair: tuple[str, str]) -> tuple[int, ...]:
    other = pair[0] if pair[0] != PINNED else pair[1]
    return tuple(map(int, other.split(".")))


def markdown(rows: Sequence[Row]) -> str:
    heads = ["source → target", *SHOWN, "run"]
    lines = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for row in rows:
        cells = [str(row.cells[column]) if column in row.cells else "—" for column in SHOWN]
        when = row.when + (" **did not finish**" if row.trouble else "")
        lines.append(f"| {' | '.join([row.name, *cells, when])} |")
    return "\n".join(lines)


def wrong(rows: Sequence[Row]) -> list[str]:
    found = [f"{row.name}: {row.trouble}" for row in rows if row.trouble]
    return found + [f"{row.name}: {said}" for row in rows for cell in row.cells.values() for said in cell.wrong]


def in_readme(text: str, rows: Sequence[Row]) -> str:
    """The README with its matrix renewed; unchanged where it has no place for it."""
    if BLOCK[0] not in text or BLOCK[1] not in text:
        return text
    before, _, rest = text.partition(BLOCK[0])
    _, _, after = rest.partition(BLOCK[1])
    return f"{before}{BLOCK[0]}\n{markdown(rows)}\n{BLOCK[1]}{after}"
