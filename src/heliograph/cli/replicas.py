"""`heliograph replicas list|raise FILE`: topics with fewer replicas than wanted, and giving them more."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heliograph.cli.audited import audited
from heliograph.cli.chosen import columns
from heliograph.cli.logs import log_options
from heliograph.cli.out import echo, echo_document

if TYPE_CHECKING:
    from heliograph.review.raising import Raise
    from heliograph.state.replicas import Needed
    from heliograph.types import Cluster
    from heliograph.wire.cluster import Client

PROGRESS_S = 1.0
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group("replicas", context_settings=SETTINGS)
def command() -> None:
    """Replicas of the topics that Heliograph creates. FILE is an mm2.properties, or a connect-distributed.properties:
    then the worker's own topics and those of its connectors are meant.

    A replication factor that FILE does not set is lowered to the number of brokers when a topic is created. When the
    cluster has grown, `raise` gives these topics the replicas that they should have.
    """


def _common(command: Any) -> Any:
    command = click.argument("file", type=click.Path(path_type=Path))(command)
    command = click.option("--copies", is_flag=True, help="Copied topics, too (replication.factor).")(command)
    command = click.option("--lenient", is_flag=True, help="Warn about unknown keys instead of refusing FILE.")(command)
    return log_options(command)


@command.command("list", context_settings=SETTINGS)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@_common
def list_command(file: Path, copies: bool, lenient: bool, as_json: bool) -> int:
    """Every topic with the replicas that it has, should have and can have."""
    rows = []
    for cluster, needed in _needed(file, copies, lenient):
        with _client(cluster) as client:
            rows += _rows(client, needed)
    if as_json:
        names = ("cluster", "topic", "replicas", "wanted", "brokers", "key")
        echo_document(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2))
    else:
        headings = ["CLUSTER", "TOPIC", "REPLICAS", "WANTED", "BROKERS", "BY"]
        echo_document(columns(headings, [list(map(str, row)) for row in rows], right=frozenset({2, 3, 4})))
    return 0


def _rows(client: Client, needed: Sequence[Needed]) -> list[tuple[str, str, int, int, int, str]]:
    from heliograph.state import replicas

    seen = replicas.look(client, needed)
    return [
        (client.alias, one.topic, seen.replicas[one.topic], one.factor.replicas, len(seen.brokers), one.factor.key)
        for one in sorted(replicas.different(needed), key=lambda one: one.topic)
        if one.topic in seen.replicas
    ]


@command.command("raise", context_settings=SETTINGS)
@click.option("--yes", is_flag=True, help="Do it; without, say what would be done.")
@_common
def raise_command(file: Path, copies: bool, lenient: bool, yes: bool) -> int:
    """Give topics the replicas that they should have, as far as brokers are up; needs ALTER on the cluster.

    Replicas are added, none is moved. The cluster copies the records over, which is waited for; Ctrl-C ends the waiting
    and not the copying.

    Exit codes: 0 done, or nothing to do; 1 something was refused.
    """
    codes = []
    for cluster, needed in _needed(file, copies, lenient):
        with _client(cluster) as client:
            codes.append(_raise(client, needed, yes=yes))
    return max(codes, default=0)


def _raise(client: Client, needed: Sequence[Needed], *, yes: bool) -> int:
    from heliograph.review import raising

    raises = raising.planned(client, _wanted(needed))
    short = _still_short(client, needed, raises)
    for one in raises:
        echo(f"{client.alias}: {one.topic}: {one.has} become {one.to} replicas, {len(one.replicas)} partitions")
    for text in short:
        echo(f"{client.alias}: {text}")
    if not raises:
        echo(f"{client.alias}: nothing to raise now")
        return 0
    if not yes:
        echo(f"{client.alias}: say --yes to do it", err=True)
        return 0
    with audited(f"replicas raise on {client.alias}: {', '.join(one.topic for one in raises)[:500]}") as change:
        refused = raising.begin(client, raises)
        change.outcome = f"refused for {len(refused)} partitions" if refused else "done"
    for tp, error in refused.items():
        echo(f"{client.alias}: {tp}: {error.message}", err=True)
    begun = [one for one in raises if not refused.keys() & one.replicas.keys()]
    _follow(client, begun)
    for topic in raising.restore_insync(client, begun) if begun else ():
        echo(f"{client.alias}: {topic}: min.insync.replicas is the cluster's own again")
    return 1 if refused else 0


def _wanted(needed: Sequence[Needed]) -> dict[str, int]:
    """By topic. Of flows that share one (heartbeats, say), the one that asks for most counts."""
    wanted: dict[str, int] = {}
    for one in needed:
        if one.factor.replicas > 0:
            wanted[one.topic] = max(one.factor.replicas, wanted.get(one.topic, 0))
    return wanted


def _still_short(client: Client, needed: Sequence[Needed], raises: Sequence[Raise]) -> list[str]:
    """Topics that stay below what they should have: there are not as many brokers."""
    after = {one.topic: one.to for one in raises}
    return [
        f"{topic}: has {has}, should have {wanted}: {after.get(topic, has)} are possible with the brokers that are up"
        for _, topic, has, wanted, _, _ in _rows(client, needed)
        if after.get(topic, has) < wanted
    ]


def _follow(client: Client, raises: Sequence[Raise]) -> None:
    from heliograph.review import raising

    total = sum(len(one.replicas) for one in raises)
    before = -1
    while raises and (left := len(raising.unfinished(client, raises))):
        if left != before:
            echo(f"{client.alias}: {total - left} of {total} partitions have their new replicas", err=True)
            before = left
        time.sleep(PROGRESS_S)
    if raises:
        echo(f"{client.alias}: all {total} partitions have their new replicas")


# ---------------------------------------------------------------- which topics


def _needed(file: Path, copies: bool, lenient: bool) -> list[tuple[Cluster, list[Needed]]]:
    """By cluster: every topic that FILE's flows or connectors create."""
    from heliograph.cli.chosen import load_config
    from heliograph.state.replicas import NEW_COPIES, needed_by

    if _is_worker(file):
        flows, own = _of_worker(file)
    else:
        config = load_config(file, lenient)
        flows, own = [*config.flows, *config.heartbeat_only], []
    found: dict[str, tuple[Cluster, list[Needed]]] = {}
    for one in (*own, *(each for flow in flows for each in needed_by(flow))):
        if one.topic != NEW_COPIES:
            found.setdefault(one.cluster.alias, (one.cluster, []))[1].append(one)
    for flow in flows if copies else ():
        for each in _copies(flow):
            found.setdefault(each.cluster.alias, (each.cluster, []))[1].append(each)
    return list(found.values())


def _copies(flow: Any) -> Iterator[Needed]:
    from heliograph import policy
    from heliograph.state.replicas import Needed
    from heliograph.types import COPIES_FACTOR

    if not (flow.enabled and flow.copies) or flow.staged:
        return
    with _client(flow.source) as source, _client(flow.target) as target:
        there = target.metadata(None).topics
        for topic in source.metadata(None).topics:
            if policy.should_replicate(flow, topic) and (remote := policy.remote_topic(flow, topic)) in there:
                yield Needed(flow.target, remote, flow.factor(COPIES_FACTOR))


def _is_worker(file: Path) -> bool:
    from heliograph.cli.edited import read
    from heliograph.config import properties

    entries = properties.parse(read(file)).entries
    return "clusters" not in entries and "group.id" in entries


def _of_worker(file: Path) -> tuple[list[Any], list[Needed]]:
    """The flows of its connectors, and its own topics."""
    from heliograph.config.worker import load
    from heliograph.connect.store import stored_flows
    from heliograph.state.replicas import Needed

    found = load(file)
    topics = (found.configs, found.offsets, found.statuses)
    return stored_flows(found), [Needed(found.cluster, one.name, one.factor) for one in topics]


@contextmanager
def _client(cluster: Cluster) -> Iterator[Client]:
    from heliograph.wire.cluster import Client

    with Client(cluster, timeout_s=30.0) as client:
        yield client
