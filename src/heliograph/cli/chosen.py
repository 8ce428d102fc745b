"""The flows of a file that a verb is about: FILE and FLOW as the arguments name them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from heliograph.cli.out import echo
from heliograph.errors import ConfigError
from heliograph.escaping import escape

if TYPE_CHECKING:
    from heliograph.config.model import Config
    from heliograph.types import Flow


def load_config(file: Path, lenient: bool) -> Config:
    """Warnings go to stderr."""
    from heliograph.config.load import load

    config = load(file, lenient=lenient)
    for warning in config.warnings:
        echo(f"warning: {warning}", err=True)
    return config


def flows_of(config: Config, wanted: str | None, *, staged: bool = True) -> tuple[Flow, ...]:
    """The enabled flow of this name; all, if none is named. `staged`: also those that multiplex and put back, which few
    verbs know what to do with."""
    flows = tuple(flow for flow in config.flows if staged or not flow.staged)
    if wanted is None:
        if left := ", ".join(flow.name for flow in config.flows if flow not in flows):
            echo(f"note: {left} is not looked at here (mux and demux)", err=True)
        return flows
    name = wanted.replace(" ", "")
    found = tuple(flow for flow in flows if flow.name == name)
    if not found and any(flow.name == name for flow in config.flows):
        raise ConfigError(f"{wanted} multiplexes or puts back: this command leaves such flows alone")
    if not found:
        enabled = ", ".join(flow.name for flow in flows) or "none"
        raise ConfigError(f"no flow {wanted!r} is enabled in the file: there is {enabled}")
    return found


def columns(headings: list[str], rows: list[list[str]], right: frozenset[int] = frozenset()) -> str:
    """Plain text, two blanks between columns; `right`: those of numbers. Cells may be foreign: each is one line."""
    rows = [[escape(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    lines = []
    for row in [headings, *rows]:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
