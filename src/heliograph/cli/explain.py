"""`heliograph explain FILE [FLOW]`: every value that counts, by flow and by cluster, and where it came from.

Connects to nothing and writes nothing. Secrets are masked by `config` before they get here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heliograph.cli.out import echo, echo_document, echo_lines, style
from heliograph.errors import ConfigError

if TYPE_CHECKING:
    from heliograph.config.model import Config, Explained

WIDEST_VALUE = 60  # columns; a longer value pushes only its own origin to the right


@dataclass(frozen=True, slots=True)
class Part:
    """A flow or a cluster."""

    name: str
    kind: str  # flow, heartbeats, cluster
    values: tuple[Explained, ...]
    sizes: str = ""  # what a flow decides by itself


@click.command("explain", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("flow", required=False)
@click.option("--lenient", is_flag=True, help="Warn about unknown keys and Java classes instead of refusing the file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(file: Path, flow: str | None, lenient: bool, as_json: bool) -> int:
    """Print every effective value of FILE, an mm2.properties, and where it came from: a line, a provider, the default.

    FLOW is a flow (`us->eu`) or an alias (`us`); without it all flows and clusters are shown.

    \b
    Examples:
      heliograph explain mm2.properties
      heliograph explain mm2.properties 'us->eu' --json

    Exit codes: 0 the file can be run, 2 it must be put right.
    """
    from heliograph.config.load import load

    config = load(file, lenient=lenient)
    for warning in config.warnings:
        echo(f"warning: {warning}", err=True)
    parts = _chosen(config, flow)
    if as_json:
        echo_document(json.dumps(_document(parts, config.warnings), indent=2))
    else:
        echo_lines(line for part in parts for line in _lines(part))
    return 0


def _chosen(config: Config, wanted: str | None) -> list[Part]:
    from heliograph.flow.sizing import foreseen

    parts = [Part(flow.name, "flow", config.explained[flow.name], foreseen(flow)) for flow in config.flows]
    parts += [Part(flow.name, "heartbeats", config.explained[flow.name]) for flow in config.heartbeat_only]
    parts += [Part(alias, "cluster", config.explained[alias]) for alias in config.clusters]
    if wanted is None:
        return parts
    found = [part for part in parts if part.name == wanted.replace(" ", "")]
    if not found:
        raise ConfigError(
            f"no flow or cluster {wanted!r} runs here: there are {', '.join(part.name for part in parts)}"
        )
    return found


def _lines(part: Part) -> Iterator[str]:
    notes = {"flow": "", "heartbeats": "  (not enabled: heartbeats only)", "cluster": "  (cluster)"}
    yield style(part.name, bold=True) + notes[part.kind]
    key_width = max((len(row.key) for row in part.values), default=0)
    value_width = max((len(_shown(row)) for row in part.values if len(_shown(row)) <= WIDEST_VALUE), default=0)
    for row in part.values:
        text = f"  {row.key:{key_width}}  {_shown(row):{value_width}}  {row.origin}"
        yield text if row.line else style(text, dim=True)
    if part.sizes:
        yield style(f"  sized by itself: {part.sizes}", dim=True)
    yield ""


def _shown(row: Explained) -> str:
    """On one line: a PEM has line ends."""
    text = row.value if row.value.isprintable() else row.value.encode("unicode_escape").decode("ascii")
    return text or "–"


def _document(parts: Sequence[Part], warnings: Sequence[str]) -> dict[str, Any]:
    def listed(part: Part) -> list[dict[str, Any]]:
        return [
            {
                "key": row.key,
                "value": row.value,
                "default": not row.line,
                "line": row.line or None,
                "written": row.written or None,
                "provider": row.provider or None,
            }
            for row in part.values
        ]

    return {
        "flows": {part.name: listed(part) for part in parts if part.kind == "flow"},
        "heartbeat_only": {part.name: listed(part) for part in parts if part.kind == "heartbeats"},
        "clusters": {part.name: listed(part) for part in parts if part.kind == "cluster"},
        "sizes": {part.name: part.sizes for part in parts if part.kind == "flow"},
        "warnings": list(warnings),
    }
