"""`heliograph adopt FILE [FLOW]`: what is found of an MM2, and what becomes of it. How: `review.adoption`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heliograph.cli.chosen import columns, flows_of, load_config
from heliograph.cli.logs import log_options
from heliograph.cli.out import echo, echo_document, echo_lines, style

if TYPE_CHECKING:
    from heliograph.review.adoption import Continuation, Findings

SHOWN = 50  # partitions
READY, STILL_RUNS = 0, 3


@click.command("adopt", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("flow", required=False)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--lenient", is_flag=True, help="Warn about unknown keys and Java classes instead of refusing the file.")
@log_options
def command(file: Path, flow: str | None, output: str, lenient: bool) -> int:
    """What is there of a MirrorMaker 2, running or former: its topics, its positions, when it last gave a sign of life;
    and where Heliograph would go on, partition by partition. Writes nothing; `run` is what takes over.

    \b
    Examples:
      heliograph adopt mm2.properties
      heliograph adopt mm2.properties 'us->eu' -o json

    Exit codes: 0 `run` may take over, 3 an MM2 still runs: stop it first, or records come twice; 2 bad input.
    """
    from heliograph.flow.reach import check_clusters
    from heliograph.review.adoption import look
    from heliograph.wire import Client

    flows = flows_of(load_config(file, lenient), flow, staged=False)
    check_clusters(flows)
    found = []
    for one in flows:
        with Client(one.source) as source, Client(one.target) as target:
            found.append(look(one, source, target))
    if output == "json":
        echo_document(json.dumps([_document(one) for one in found], indent=2))
    else:
        echo_lines(line for one in found for line in lines(one))
    running = {findings.flow: findings.mm2_runs for findings in found if findings.mm2_runs}
    for name, sign in running.items():
        echo(f"warning: an MM2 runs {name}: {sign}. Stop it before `heliograph run`", err=True)
    return STILL_RUNS if running else READY


def lines(found: Findings) -> Iterator[str]:
    yield style(found.flow, bold=True)
    if not found.traces:
        yield "  no trace of an MM2: every partition begins where the file says"
    state = found.group_state.removeprefix("? ")
    yield f"  group {found.group}: {state}" + (" (no worker of an MM2)" if state in ("Dead", "Empty") else "")
    yield (
        f"  last heartbeat {_ago(found.heartbeat_ms, found.now_ms)}, last checkpoint "
        f"{_ago(found.checkpoint_ms, found.now_ms)}"
    )
    yield from (f"  run by Heliograph: {holder}" for holder in found.running)
    rows = [
        [
            topic.name,
            topic.cluster,
            f"{topic.records:,}" if topic.partitions else "–",
            _ago(topic.last_ms, found.now_ms) if topic.partitions else "not there",
            topic.use if topic.partitions else "",
        ]
        for topic in found.topics
    ]
    yield _indented(columns(["topic", "in", "records", "last written", ""], rows, right=frozenset({2})))
    if found.partitions:
        yield _indented(_table(found.partitions))
    yield f"  {_sum(found)}"
    yield ""


def _table(partitions: list[Continuation]) -> str:
    rows = []
    for one in partitions[:SHOWN]:
        lag = one.standing.lag
        rows.append(
            [
                str(one.standing.tp),
                "–" if one.offset is None else str(one.offset),
                "–" if lag is None else f"{lag:,}",
                one.why,
            ]
        )
    text = columns(["partition", "goes on at", "lag", ""], rows, right=frozenset({1, 2}))
    return text if len(partitions) <= SHOWN else f"{text}\n… and {len(partitions) - SHOWN} more"


def _sum(found: Findings) -> str:
    kinds = Counter(
        "not to be continued"
        if one.offset is None
        else "begin"
        if one.standing.position is None
        else "go on from Heliograph's own positions"
        if one.standing.position.claimed
        else "go on from MM2's positions"
        for one in found.partitions
    )
    return "; ".join(f"{count} partitions {kind}" for kind, count in kinds.items()) or "no partition to copy"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _ago(then_ms: int | None, now_ms: int) -> str:
    if then_ms is None:
        return "never"
    when = datetime.fromtimestamp(then_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return f"{when} ({max(now_ms - then_ms, 0) / 1000:,.0f} s ago)"


def _document(found: Findings) -> dict[str, Any]:
    return {
        "flow": found.flow,
        "mm2_runs": found.mm2_runs or None,
        "group": {"name": found.group, "state": found.group_state},
        "last_heartbeat_ms": found.heartbeat_ms,
        "last_checkpoint_ms": found.checkpoint_ms,
        "run_by": [str(holder) for holder in found.running],
        "topics": [
            {
                "name": topic.name,
                "cluster": topic.cluster,
                "there": bool(topic.partitions),
                "records": topic.records,
                "last_ms": topic.last_ms,
                "use": topic.use,
            }
            for topic in found.topics
        ],
        "partitions": [
            {
                "topic": one.standing.tp.topic,
                "partition": one.standing.tp.partition,
                "offset": one.offset,
                "lag": one.standing.lag,
                "why": one.why,
            }
            for one in found.partitions
        ],
    }
