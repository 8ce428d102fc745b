"""`heliograph offsets list|set|reset FILE FLOW`: where a flow stands, and where it goes on. How: `review.shifts`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from heliograph.cli.audited import audited
from heliograph.cli.chosen import columns, flows_of, load_config
from heliograph.cli.logs import log_options
from heliograph.cli.out import echo, echo_document, echo_lines, style

if TYPE_CHECKING:
    from heliograph.review.shifts import Selection, Shift
    from heliograph.review.standing import Standing
    from heliograph.state.positions import PositionsLog
    from heliograph.types import Flow
    from heliograph.wire import Client

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
SHOWN = 50  # partitions of a preview that are listed; the sums are of all

_file = click.argument("file", type=click.Path(path_type=Path))
_parts = click.argument("parts", nargs=-1, metavar="[TOPIC[:PARTITION]]...")
_output = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
_lenient = click.option("--lenient", is_flag=True, help="Warn about unknown keys instead of refusing the file.")
_yes = click.option("--yes", is_flag=True, help="Write it. Without this it is only shown.")
_force = click.option("--force", is_flag=True, help="Even while a process runs the flow, which may undo it.")


@click.group("offsets", context_settings=SETTINGS)
def command() -> None:
    """Where a flow stands on each partition, and where it shall go on.

    \b
    Examples:
      heliograph offsets list mm2.properties 'us->eu'
      heliograph offsets set mm2.properties 'us->eu' orders:3 --to offset:1200
      heliograph offsets set mm2.properties 'us->eu' 'pay.*' --to timestamp:2026-11-01T00:00:00Z --yes
      heliograph offsets reset mm2.properties 'us->eu' orders --yes

    TOPIC is a name or a regular expression. Exit codes: 0 it went well, 2 bad input: no such partition, an offset that
    the source does not have, a flow that is running.
    """


class Session(NamedTuple):
    flow: Flow
    source: Client
    target: Client
    positions: PositionsLog


@contextmanager
def _session(flow: Flow) -> Iterator[Session]:
    from heliograph.flow.reach import check_clusters
    from heliograph.state.positions import PositionsLog
    from heliograph.wire import Client

    check_clusters([flow])
    with Client(flow.source) as source, Client(flow.target) as target:
        yield Session(flow, source, target, PositionsLog(target, flow))


def _standings(session: Session, parts: Sequence[str]) -> list[Standing]:
    from heliograph.review import shifts, standing

    chosen = _selections(parts)
    return shifts.select(standing.stand(session.flow, session.source, session.target, session.positions), chosen)


def _selections(parts: Sequence[str]) -> list[Selection]:
    from heliograph.config.starts import selection

    try:
        return [selection(part) for part in parts]
    except ValueError as problem:
        raise click.BadParameter(str(problem), param_hint="TOPIC[:PARTITION]") from None


# ---------------------------------------------------------------- list


@command.command("list", context_settings=SETTINGS)
@_file
@click.argument("flow", required=False)
@_parts
@_output
@_lenient
@log_options
def list_(file: Path, flow: str | None, parts: tuple[str, ...], output: str, lenient: bool) -> int:
    """Every partition of FLOW (of all flows, if none is named): its position, both logs, who claimed it."""
    from heliograph.flow.presence import holders

    document: dict[str, Any] = {}
    for one in flows_of(load_config(file, lenient), flow):
        with _session(one) as session:
            standings = _standings(session, parts)
            running = [str(holder) for holder in holders(one, session.target)]
        document[one.name] = {"run_by": running, "partitions": [_described(standing) for standing in standings]}
        if output == "text":
            echo(style(one.name, bold=True) + (f"  (run by {', '.join(running)})" if running else ""))
            echo_document(_table(standings) if standings else "  no partition to copy, no position", nl=True)
    if output == "json":
        echo_document(json.dumps(document, indent=2))
    return 0


def _described(one: Standing) -> dict[str, Any]:
    position = one.position
    return {
        "topic": one.tp.topic,
        "partition": one.tp.partition,
        "copied": one.copied,
        "next_offset": None if position is None else position.next_offset,
        "producer_id": position.producer_id if position is not None and position.claimed else None,
        "sequence": position.sequence if position is not None and position.claimed else None,
        "source_start": None if one.source is None else one.source.start,
        "source_end": None if one.source is None else one.source.end,
        "lag": one.lag,
        "beyond": one.beyond,
        "remote_topic": one.remote.topic,
        "target_end": one.target_end,
        "trouble": one.trouble or None,
    }


def _table(standings: Sequence[Standing]) -> str:
    headings = ["partition", "next", "source from", "to", "lag", "target end", "by", ""]
    rows = []
    for one in standings:
        notes = [one.trouble] if one.trouble else []
        notes += [f"{one.beyond:,} more are on the target"] if one.beyond else []
        notes += [] if one.copied else ["not copied now"]
        start, end = (one.source.start, one.source.end) if one.source else (None, None)
        next_offset = None if one.position is None else one.position.next_offset
        figures = [_figure(number) for number in (next_offset, start, end, one.lag, one.target_end)]
        rows.append([str(one.tp), *figures, one.by, "; ".join(notes)])
    return columns(headings, rows, right=frozenset({1, 2, 3, 4, 5}))


def _figure(number: int | None) -> str:
    return "–" if number is None else str(number)


# ---------------------------------------------------------------- set, reset


@command.command("set", context_settings=SETTINGS)
@_file
@click.argument("flow")
@_parts
@click.option("--to", "where", required=True, metavar="WHERE", help="earliest, latest, timestamp:…, offset:N")
@_yes
@_force
@_output
@_lenient
@log_options
def set_(
    file: Path, flow: str, parts: tuple[str, ...], where: str, yes: bool, force: bool, output: str, lenient: bool
) -> int:
    """Let FLOW go on at WHERE. Shows what would come again or never come; `--yes` writes it."""
    from heliograph.config.starts import point
    from heliograph.review import shifts

    try:
        to = point(where)
    except ValueError as problem:
        raise click.BadParameter(str(problem), param_hint="--to") from None
    (one,) = flows_of(load_config(file, lenient), flow, staged=False)
    with _session(one) as session:
        wanted = shifts.moved(session.source, _standings(session, parts), to)
        return _change(session, wanted, yes=yes, force=force, output=output)


@command.command("reset", context_settings=SETTINGS)
@_file
@click.argument("flow")
@_parts
@_yes
@_force
@_output
@_lenient
@log_options
def reset(file: Path, flow: str, parts: tuple[str, ...], yes: bool, force: bool, output: str, lenient: bool) -> int:
    """Forget positions of FLOW: it begins where its file says (`start`, else auto.offset.reset)."""
    from heliograph.review import shifts

    (one,) = flows_of(load_config(file, lenient), flow, staged=False)
    with _session(one) as session:
        wanted = shifts.forgotten(one, session.source, _standings(session, parts))
        return _change(session, wanted, yes=yes, force=force, output=output)


def _change(session: Session, shifts: Sequence[Shift], *, yes: bool, force: bool, output: str) -> int:
    from heliograph.flow.presence import holders, require_free
    from heliograph.review import shifts as shifting

    if not force:
        require_free(session.flow, session.target)
    written = 0
    if yes:
        changing = sum(one.changes for one in shifts)
        with audited(f"offsets of {session.flow.name}: {changing} of {len(shifts)} partitions") as change:
            written = shifting.write(session.positions, shifts)
            change.outcome = f"written: {written}"
    if output == "json":
        echo_document(json.dumps({"written": written, "partitions": [_shifted(one) for one in shifts]}, indent=2))
    else:
        echo_lines(preview(shifts))
        echo(f"written: {written}" if yes else "nothing was written: --yes does it", err=True)
    if written and not force and (late := holders(session.flow, session.target)):
        echo(
            f"warning: {late[0]} began to run {session.flow.name} meanwhile: stop it, and look at `offsets list`",
            err=True,
        )
        return 1
    return 0


def _shifted(one: Shift) -> dict[str, Any]:
    position = one.standing.position
    return {
        "topic": one.tp.topic,
        "partition": one.tp.partition,
        "from": None if position is None else position.next_offset,
        "to": one.to,
        "changes": one.changes,
        "again": one.again,
        "never": one.never,
        "note": one.note or None,
    }


def preview(shifts: Sequence[Shift]) -> list[str]:
    """What it means, in words and numbers."""
    changing = [one for one in shifts if one.changes]
    if not changing:
        return ["nothing to do: every position is there already"]
    rows = []
    for one in changing[:SHOWN]:
        position = one.standing.position
        means = []
        if one.again:
            means.append(f"{one.again:,} records will come again")
        if one.never:
            means.append(f"{one.never:,} records will never come")
        means += [one.note] if one.note else []
        rows.append([str(one.tp), _figure(position.next_offset if position else None), str(one.to), "; ".join(means)])
    lines = columns(["partition", "now", "then", ""], rows, right=frozenset({1, 2})).split("\n")
    if len(changing) > SHOWN:
        lines.append(f"… and {len(changing) - SHOWN} more")
    again, never = sum(one.again for one in changing), sum(one.never for one in changing)
    lines.append(
        f"{len(changing)} of {len(shifts)} positions change: {again:,} records will come again, {never:,} will never "
        "come (counted by offsets: holes in the source make them fewer)"
    )
    if again:
        lines.append(
            "What comes again is on the target twice, since exactly once begins anew there: new producer ids are "
            "claimed at the next start, and groups are translated to the new copies"
        )
    return lines
