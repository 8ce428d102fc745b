"""`heliograph incidents FILE [FLOW]`: what went wrong with records on their way, read from the targets."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heliograph.cli.chosen import flows_of, load_config
from heliograph.cli.logs import log_options
from heliograph.cli.out import echo
from heliograph.types import Flow

if TYPE_CHECKING:
    from heliograph.state.incidents import Incident


@click.command("incidents", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("flow", required=False)
@click.option("--topic", help="Only those of this source topic.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--lenient", is_flag=True, help="Warn about unknown keys and Java classes instead of refusing the file.")
@log_options
def command(file: Path, flow: str | None, topic: str | None, output: str, lenient: bool) -> int:
    """What went wrong with records on their way, to the offset, and what was done about it, oldest first.

    Read from the incidents topic on each target, where the flows of FILE (or FLOW alone) wrote it down before they
    passed anything over: gaps that retention made, topics made anew or cut, records refused, permissions withdrawn,
    disks full. With `-o json` one line each.

    \b
    Examples:
      heliograph incidents mm2.properties
      heliograph incidents mm2.properties 'us->eu' --topic orders -o json

    Exit codes: 0 whatever was found, 2 the file or a cluster must be put right.
    """
    for one in flows_of(load_config(file, lenient), flow):
        found = [incident for incident in _read(one) if topic in (None, incident.tp.topic)]
        for line in _lines(one, found, output):
            echo(line)
        if output == "text" and not found:
            echo(f"{one.name}: none", err=True)
    return 0


def _read(flow: Flow) -> list[Incident]:
    from heliograph.state.incidents import Incidents

    incidents = Incidents(flow)
    try:
        incidents.look()
        return incidents.all
    finally:
        incidents.close()


def _lines(flow: Flow, found: Iterable[Incident], output: str) -> Iterable[str]:
    from heliograph.state.incidents import span

    for one in found:
        at = datetime.fromtimestamp(one.at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if output == "json":
            about = {"time": at, "flow": flow.name, "kind": str(one.kind), "policy": one.policy}
            where = {"topic": one.tp.topic, "partition": one.tp.partition, "first": one.first, "next": one.next}
            runs = {"offsets": [list(run) for run in one.offsets], "lost": one.lost, "held": one.held}
            remote = {"remote_topic": one.remote.topic, "remote_partition": one.remote.partition}
            target = {"target_end": one.target[0], "target_was": one.target[1]} if one.target[1] >= 0 else {}
            yield json.dumps({**about, **where, **runs, **remote, **target, "why": one.why})
        else:
            yield f"{at}  {flow.name}  {one.kind}  {one.tp}  offset {span(one)}  {one.policy}  {one.why}"
