"""`heliograph quarantine list|show|resend`: the records that a target refused, read from it, and sent to it again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heliograph.cli.audited import audited
from heliograph.cli.chosen import flows_of, load_config
from heliograph.cli.documents import plain
from heliograph.cli.logs import log_options
from heliograph.cli.out import echo, echo_document
from heliograph.types import Flow

if TYPE_CHECKING:
    from heliograph.state.quarantine import Kept, Quarantine

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group("quarantine", context_settings=CONTEXT)
def command() -> None:
    """Records that a target refused, kept there in a topic of their own with the reason (`on.refused = quarantine`).

    \b
    Examples:
      heliograph quarantine list mm2.properties
      heliograph quarantine show mm2.properties orders:3:1041
      heliograph quarantine resend mm2.properties orders     once the target takes them

    Where a record stood is written TOPIC:PARTITION:OFFSET, of the source; TOPIC or TOPIC:PARTITION mean all of it.
    """


@command.command("list", context_settings=CONTEXT)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("place", required=False)
@click.option("--flow", help="Of this flow only.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@log_options
def list_(file: Path, place: str | None, flow: str | None, output: str) -> int:
    """What is in quarantine: one line a record, where it stood, where it should go, and why it is not there."""
    for one in flows_of(load_config(file, lenient=False), flow):
        with _opened(one) as quarantine:
            for kept in _selected(quarantine.read(), place):
                echo(json.dumps(_plain(one, kept)) if output == "json" else _line(one, kept))
    return 0


@command.command("show", context_settings=CONTEXT)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("place")
@click.option("--flow", help="Of this flow only.")
@log_options
def show(file: Path, place: str, flow: str | None) -> int:
    """The records themselves, as JSON: key, value and headers as text, or in base64 where they are none."""
    shown = 0
    for one in flows_of(load_config(file, lenient=False), flow):
        with _opened(one) as quarantine:
            for kept in _selected(quarantine.read(), place):
                echo_document(json.dumps({**_plain(one, kept), **_content(kept)}, indent=2))
                shown += 1
    if not shown:
        echo(f"{place} is not in quarantine", err=True)
    return 0 if shown else 1


@command.command("resend", context_settings=CONTEXT)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("place", required=False)
@click.option("--flow", help="Of this flow only.")
@click.option("--all", "everything", is_flag=True, help="Everything that is in quarantine.")
@log_options
def resend(file: Path, place: str | None, flow: str | None, everything: bool) -> int:
    """Send records to their remote partitions again: each once, at the end, and out of quarantine when it is there.

    What is still refused stays, with the reason. Exit codes: 0 all were sent, 1 some are still refused, 2 the file or a
    cluster must be put right.
    """
    if (place is None) != everything:
        raise click.UsageError("say which: TOPIC[:PARTITION[:OFFSET]], or --all, and not both")
    left = 0
    for one in flows_of(load_config(file, lenient=False), flow):
        what = f"quarantine resend of {one.name}: {place or 'all'}"
        with _opened(one) as quarantine, audited(what) as change:
            outcomes: Counter[str] = Counter()
            for sent in quarantine.resend(_selected(quarantine.read(), place)):
                outcomes["still refused" if sent.refused else "sent"] += 1
                change.outcome = ", ".join(f"{count} {word}" for word, count in sorted(outcomes.items()))
                where = f"{sent.kept.place.tp}, offset {sent.kept.place.offset}"
                if sent.refused:
                    left += 1
                    echo(f"{one.name}  {where}: still refused: {sent.refused}", err=True)
                else:
                    echo(f"{one.name}  {where}  ->  {sent.kept.place.remote}, offset {sent.offset}")
    return 1 if left else 0


@contextmanager
def _opened(flow: Flow) -> Iterator[Quarantine]:
    from heliograph.state.quarantine import Quarantine
    from heliograph.wire import Client

    with Client(flow.target, timeout_s=flow.admin_timeout_s) as client:
        yield Quarantine(client, flow)


def _selected(kept: Sequence[Kept], place: str | None) -> list[Kept]:
    if place is None:
        return list(kept)
    topic, *numbers = place.split(":")
    if len(numbers) > 2 or not all(number.isdigit() for number in numbers):
        raise click.BadParameter(f"{place!r} is not TOPIC[:PARTITION[:OFFSET]], e.g. orders:3:1041", param_hint="PLACE")
    wanted = [topic, *map(int, numbers)]
    return [one for one in kept if [*one.place.tp, one.place.offset][: len(wanted)] == wanted]


def _line(flow: Flow, kept: Kept) -> str:
    place = kept.place
    at = f"{place.tp.topic}:{place.tp.partition}:{place.offset}"
    return f"{flow.name}  {at}  ->  {place.remote}  {kept.reason}"


def _plain(flow: Flow, kept: Kept) -> dict[str, Any]:
    place, record = kept.place, kept.record
    refused = datetime.fromtimestamp(kept.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return {
        "flow": flow.name,
        "topic": place.tp.topic,
        "partition": place.tp.partition,
        "offset": place.offset,
        "remote_topic": place.remote.topic,
        "remote_partition": place.remote.partition,
        "refused_at": refused.replace("+00:00", "Z"),
        "reason": kept.reason,
        "key_bytes": None if record.key is None else len(record.key),
        "value_bytes": None if record.value is None else len(record.value),
    }


def _content(kept: Kept) -> dict[str, Any]:
    record = kept.record
    return {
        "timestamp_ms": record.timestamp,
        "key": plain(record.key),
        "value": plain(record.value),
        "headers": [[name, plain(value)] for name, value in record.headers],
    }
