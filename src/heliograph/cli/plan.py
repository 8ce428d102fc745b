"""`heliograph plan FILE [FLOW]`: what a start would make, alter and copy, and may not. How: `review.forecast`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heliograph.cli.chosen import flows_of, load_config
from heliograph.cli.logs import log_options
from heliograph.cli.out import echo_document, echo_lines, style

if TYPE_CHECKING:
    from heliograph.cli.doctor import Finding
    from heliograph.review.forecast import Begin, FlowForecast
    from heliograph.review.rehearsal import Deed
    from heliograph.review.volume import Copy

NOTHING, WRONG, SOMETHING, UNREACHABLE = 0, 2, 3, 75


@click.command("plan", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("flow", required=False)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="MB/S", help="To reckon the time with.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--lenient", is_flag=True, help="Warn about unknown keys and Java classes instead of refusing the file.")
@log_options
def command(file: Path, flow: str | None, rate: float | None, as_json: bool, lenient: bool) -> int:
    """What `run FILE` would do now: topics it would create, partitions and permissions it would add, settings it would
    alter, where each partition would begin, how much there is to copy, and which permissions are missing. It is found
    by the code that does it, on clients that write nothing.

    Without FLOW the pairs that only send heartbeats are planned too. Of a flow that puts records back, the topics are
    those that its spokes have for it. Time is reckoned with --rate, or with a second's
    reading from the source.

    \b
    Examples:
      heliograph plan mm2.properties
      heliograph plan mm2.properties 'us->eu' --rate 80 --json

    Exit codes: 0 nothing would change (records behind a position may wait), 3 something would, 2 something is in the
    way: the file, a permission, a login; 75 a cluster cannot be reached: the same call may work later.
    """
    from heliograph.review.forecast import forecast

    config = load_config(file, lenient)
    flows = flows_of(config, flow)
    found = forecast(flows, config.heartbeat_only if flow is None else ())
    by_name = {one.name: one for one in flows}
    times = {one.name: _time(one, by_name[one.name], rate) for one in found if one.name in by_name}
    missing = _missing(file, lenient, {one.name for one in found})
    if as_json:
        echo_document(json.dumps(_document(found, times, missing), indent=2))
    else:
        echo_lines(_lines(found, times, missing))
    return _code(found, missing)


def _code(found: Sequence[FlowForecast], missing: Sequence[Finding]) -> int:
    from heliograph.flow.patience import is_passing

    errors = [error for one in found for error in one.errors]
    if missing or errors:
        passing = [*(one.retriable for one in missing), *(is_passing(error) for error in errors)]
        return UNREACHABLE if all(passing) else WRONG
    return SOMETHING if any(one.changes for one in found) else NOTHING


def _missing(file: Path, lenient: bool, names: set[str]) -> list[Finding]:
    """What `doctor` finds wrong with these flows and their clusters."""
    from heliograph.cli.clinic import examine

    wrong = [finding for finding in examine(file, lenient=lenient) if finding.ok is False]
    return [one for one in wrong if not one.name.startswith("flow ") or one.name[5:].split(":")[0] in names]


def _time(found: FlowForecast, flow: Any, rate: float | None) -> dict[str, Any]:
    """How long the copying takes, and by which rate; nothing where there is too little to tell."""
    from heliograph.review.volume import read_rate

    sizes = [copy.bytes for copy in found.copies]
    known = [size for size in sizes if size is not None]
    total = sum(known) if len(known) == len(sizes) else None
    per_second = rate * 1e6 if rate is not None else read_rate(flow, found.copies)
    how = "given" if rate is not None else "measured by reading from the source" if per_second else None
    seconds = total / per_second if total is not None and per_second else None
    return {
        "records": sum(copy.records for copy in found.copies),
        "bytes": total,
        "bytes_per_second": per_second and round(per_second),
        "rate": how,
        "seconds": seconds and round(seconds, 1),
    }


# ---------------------------------------------------------------- words


def _lines(
    found: Sequence[FlowForecast], times: dict[str, dict[str, Any]], missing: Sequence[Finding]
) -> Iterator[str]:
    for one in found:
        yield style(one.name, bold=True) + ("" if one.name in times else "  (heartbeats only)")
        yield from (f"  {_deed(deed)}" for deed in one.deeds)
        yield from (f"  {line}" for line in _begins(one.begins))
        yield from (f"  {_copy(copy)}" for copy in one.copies if copy.records)
        yield from (f"  note: {note}" for note in one.notes)
        yield from (f"  parked: {_parked(parked)}" for parked in one.parked)
        yield from (f"  error [{error.condition}] {error}" for error in one.errors)
        if not one.changes and not one.errors:
            yield "  nothing to do"
        if one.name in times and times[one.name]["records"]:
            yield f"  in all: {_total(times[one.name])}"
    for finding in missing:
        yield f"missing: {finding.name}: {finding.detail}" + (f"\n  fix: {finding.fix}" if finding.fix else "")


def _deed(deed: Deed) -> str:
    where = f"in {deed.cluster}"
    if deed.what == "create topic":
        settings = "".join(f", {key}={value}" for key, value in sorted(deed.settings.items()))
        shape = f"{deed.partitions} partitions, {deed.replication_factor} replicas"
        return f"create topic {deed.topic} {where}: {shape}{settings}"
    if deed.what == "add partitions":
        return f"add partitions to {deed.topic} {where}: {deed.partitions_now} become {deed.partitions}"
    if deed.what == "add permission":
        return f"add permission {where}: {deed.acl}"
    changes = ", ".join(
        f"{key} {deed.settings_now.get(key)} becomes {'the default' if value is None else value}"
        for key, value in sorted(deed.settings.items())
    )
    return f"alter settings of {deed.topic} {where}: {changes}"


def _begins(begins: Sequence[Begin]) -> Iterator[str]:
    """By topic and reason."""
    alike: dict[tuple[str, str], list[Begin]] = {}
    for begin in begins:
        alike.setdefault((begin.tp.topic, begin.why), []).append(begin)
    for (topic, why), some in alike.items():
        offsets = sorted({begin.offset for begin in some})
        span = str(offsets[0]) if len(offsets) == 1 else f"{offsets[0]} to {offsets[-1]}"
        yield f"begin {topic}, {len(some)} partitions, at {span}: {why}"


def _copy(copy: Copy) -> str:
    size = "size unknown" if copy.bytes is None else f"{copy.bytes / 1e6:,.1f} MB"
    return f"copy {copy.topic} to {copy.remote}: {copy.records:,} records, {size} ({copy.measured})"


def _total(time: dict[str, Any]) -> str:
    size = "size unknown" if time["bytes"] is None else f"{time['bytes'] / 1e6:,.1f} MB"
    text = f"{time['records']:,} records, {size}"
    if time["seconds"] is not None:
        text += f", {_duration(time['seconds'])} at {time['bytes_per_second'] / 1e6:,.0f} MB/s ({time['rate']})"
    return text


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _parked(parked: Any) -> str:
    where = parked.topic if parked.partition is None else f"{parked.topic}-{parked.partition}"
    return f"{where}: {parked.reason}" + (f". {parked.fix}" if parked.fix else "")


def _document(
    found: Sequence[FlowForecast], times: dict[str, dict[str, Any]], missing: Sequence[Finding]
) -> dict[str, Any]:
    return {
        "changes": any(one.changes for one in found),
        "flows": {
            one.name: {
                "deeds": [asdict(deed) for deed in one.deeds],
                "begins": [
                    {"topic": b.tp.topic, "partition": b.tp.partition, "offset": b.offset, "why": b.why}
                    for b in one.begins
                ],
                "copies": [asdict(copy) for copy in one.copies],
                "notes": one.notes,
                "parked": [asdict(parked) for parked in one.parked],
                "errors": [str(error) for error in one.errors],
                "total": times.get(one.name),
            }
            for one in found
        },
        "missing": [asdict(finding) for finding in missing],
    }
