"""`heliograph connectors …`: connectors of a Connect worker, Heliograph's or Kafka's own. The verbs for the three of a
source cluster are here, those for single connectors in `connector.py`. How: `workers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heliograph.cli import connector
from heliograph.cli.chosen import columns
from heliograph.cli.documents import document, output_option
from heliograph.cli.logs import log_options
from heliograph.cli.out import echo, echo_document
from heliograph.cli.worker import reaching, waiting, watching

if TYPE_CHECKING:
    from heliograph.workers.client import Worker
    from heliograph.workers.deployment import Outcome
    from heliograph.workers.files import Wanted
    from heliograph.workers.standing import Standing

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

_cluster = click.argument("cluster")
_dir = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=Path("mm2"),
    show_default=True,
    help="Where mm2-msc-CLUSTER.json, mm2-cpc-CLUSTER.json and mm2-hbc-CLUSTER.json are.",
)


class Verbs(click.Group):
    """In the order in which they are needed, not by the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group("connectors", cls=Verbs, context_settings=SETTINGS)
def command() -> None:
    """Connectors of a Kafka Connect worker: Heliograph's (`heliograph connect`) or Kafka's own.

    A source cluster is mirrored by three: mm2-msc-CLUSTER copies, mm2-cpc-CLUSTER translates groups' offsets,
    mm2-hbc-CLUSTER emits heartbeats. Each has a JSON file of that name, as PUT /connectors/NAME/config takes it.

    \b
    Examples:
      heliograph connectors validate source-0                    the files, and what the worker says of them
      heliograph connectors deploy source-0 --dir mm2            all three, until they run
      heliograph connectors status source-0
      heliograph connectors redeploy source-0 --url http://connect-1:8083,http://connect-2:8083
      heliograph connectors get -o wide
      heliograph connectors describe mm2-msc-source-0
      heliograph connectors restart mm2-msc-source-0 --tasks --only-failed

    \b
    Exit codes: 0 it went well; 1 a connector failed, was refused, or did not get there in time;
    2 bad input: a file, an argument, no such connector, a worker that lets nobody in; 75 a worker that
    cannot be reached: the same call may work later.
    """


@command.command("deploy", context_settings=SETTINGS)
@_cluster
@_dir
@waiting
@output_option
@reaching
@log_options
def deploy(cluster: str, folder: Path, timeout_s: float, no_wait: bool, output: str, worker: Worker) -> int:
    """Bring the three connectors of CLUSTER to what their files say, and wait until they run.

    Nothing is changed before all three files are whole and the worker finds nothing wrong in them. What is as its file
    says and runs is left alone; what failed is restarted.
    """
    return _deploy(worker, _wanted(worker, folder, cluster), timeout_s, no_wait, output)


@command.command("undeploy", context_settings=SETTINGS)
@_cluster
@output_option
@reaching
@log_options
def undeploy(cluster: str, output: str, worker: Worker) -> int:
    """Stop and delete the three connectors of CLUSTER. Their positions stay, so a later deploy goes on there."""
    from heliograph.workers import deployment
    from heliograph.workers.files import names_of

    outcomes = deployment.undeploy(worker, names_of(cluster))
    return _told(outcomes, output)


@command.command("redeploy", context_settings=SETTINGS)
@_cluster
@_dir
@waiting
@output_option
@reaching
@log_options
def redeploy(cluster: str, folder: Path, timeout_s: float, no_wait: bool, output: str, worker: Worker) -> int:
    """Undeploy and deploy CLUSTER. With a file that is broken, what runs goes on untouched."""
    from heliograph.workers import deployment

    wanted = _wanted(worker, folder, cluster)
    gone = deployment.undeploy(worker, [one.name for one in wanted])
    for one in gone:
        echo(f"{one.name}: {one.did}" + (f": {one.problem}" if one.problem else ""), err=True)
    code = _deploy(worker, wanted, timeout_s, no_wait, output)  # also when one would not go: the others shall be back
    return code if all(one.well for one in gone) else 1


@command.command("status", context_settings=SETTINGS)
@_cluster
@output_option
@reaching
@log_options
def status(cluster: str, output: str, worker: Worker) -> int:
    """How the three connectors of CLUSTER stand. The code is 0 if all of them run, else 1."""
    from heliograph.workers.files import names_of
    from heliograph.workers.standing import standing

    standings = [standing(name, worker.status(name)) for name in names_of(cluster)]
    if output in ("json", "yaml"):
        echo_document(document({one.name: _plain(one) for one in standings}, output))
    else:
        headings = ["connector", "state", "tasks", *(["worker"] if output == "wide" else []), ""]
        rows = [[*_cells(one, output), one.reason] for one in standings]
        echo_document(columns(headings, rows))
    return 0 if all(one.running for one in standings) else 1


@command.command("validate", context_settings=SETTINGS)
@_cluster
@_dir
@click.option("--offline", is_flag=True, help="The files alone; no worker is asked.")
@reaching
@log_options
def validate(cluster: str, folder: Path, offline: bool, worker: Worker) -> int:
    """Look at the three files of CLUSTER, and ask the worker what it would say. Nothing is changed."""
    found = _read(folder, cluster) if offline else _wanted(worker, folder, cluster)
    for one in found:
        by = "well-formed" if offline else f"valid, says {worker.address}"
        echo(f"{one.path}: {by}")
    return 0


for _verb in connector.VERBS:
    command.add_command(_verb)


# ---------------------------------------------------------------- what they have in common


def _read(folder: Path, cluster: str) -> list[Wanted]:
    from heliograph.workers.files import read_files

    found, warnings = read_files(folder, cluster)
    for warning in warnings:
        echo(f"warning: {warning}", err=True)
    return found


def _wanted(worker: Worker, folder: Path, cluster: str) -> list[Wanted]:
    from heliograph.workers.deployment import validated

    found = _read(folder, cluster)
    validated(worker, found)
    return found


def _deploy(worker: Worker, wanted: Sequence[Wanted], timeout_s: float, no_wait: bool, output: str) -> int:
    from heliograph.workers import deployment

    outcomes = deployment.deploy(worker, wanted)
    for one in outcomes:
        echo(f"{one.name}: {one.did}" + (f": {one.problem}" if one.problem else ""), err=True)
    if not no_wait:
        with watching("running") as watch:
            outcomes = deployment.wait_running(worker, outcomes, timeout_s, watch)
    return _told(outcomes, output)


def _told(outcomes: Sequence[Outcome], output: str) -> int:
    if output in ("json", "yaml"):
        plain = {one.name: {"did": one.did, **_plain(one.standing), "problem": one.problem or None} for one in outcomes}
        echo_document(document(plain, output))
    else:
        headings = ["connector", "done", "state", "tasks", *(["worker"] if output == "wide" else []), ""]
        rows = [[one.name, one.did, *_cells(one.standing, output)[1:], one.problem] for one in outcomes]
        echo_document(columns(headings, rows))
    return 0 if all(one.well for one in outcomes) else 1


def _cells(one: Standing, output: str) -> list[str]:
    return [one.name, one.state, one.figure if one.tasks else "–", *([one.worker] if output == "wide" else [])]


def _plain(one: Standing) -> dict[str, Any]:
    return {
        "state": one.state,
        "running": one.running,
        "worker": one.worker or None,
        "tasks": list(one.tasks),
        "reason": one.reason or None,
    }
