"""The verbs of `heliograph connectors` for single connectors: get, describe, pause, resume, stop, restart, delete,
offsets."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heliograph.cli.chosen import columns
from heliograph.cli.documents import document, masked, output_option
from heliograph.cli.logs import log_options
from heliograph.cli.out import echo, echo_document, echo_lines
from heliograph.cli.worker import reaching, waiting, watching
from heliograph.errors import ConfigError, NoSuchConnector, WorkerError

if TYPE_CHECKING:
    from heliograph.workers.client import Worker
    from heliograph.workers.standing import Standing

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

_name = click.argument("name")
_names = click.argument("names", nargs=-1, required=True, metavar="NAME...")


@click.command("get", context_settings=SETTINGS)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@output_option
@reaching
@log_options
def get(names: tuple[str, ...], output: str, worker: Worker) -> int:
    """All connectors, or these: their class, their state, their tasks. With json and yaml also their configuration."""
    from heliograph.workers.standing import standing

    known = worker.all()
    for name in names:
        if name not in known:
            raise NoSuchConnector(f"{worker.address} has no connector {name}", fix="there is " + _listed(known))
    chosen = {name: masked(known[name]) for name in names or sorted(known)}
    if output in ("json", "yaml"):
        echo_document(document(chosen, output))
        return 0
    wide = output == "wide"
    headings = ["connector", "type", "state", "tasks", *(["worker", "from", "to", "class"] if wide else ["class"])]
    rows = []
    for name, one in chosen.items():
        info, now = one.get("info", {}), standing(name, one.get("status"))
        config = info.get("config", {})
        full = config.get("connector.class", "")
        row = [name, info.get("type", ""), now.state, now.figure]
        if wide:
            row += [now.worker, config.get("source.cluster.alias", ""), config.get("target.cluster.alias", "")]
        rows.append([*row, full if wide else full.rpartition(".")[2]])
    echo_document(columns(headings, rows) if rows else "no connectors")
    return 0


def _listed(known: dict[str, Any]) -> str:
    return ", ".join(sorted(known)) or "none"


@click.command("describe", context_settings=SETTINGS)
@_name
@output_option
@reaching
@log_options
def describe(name: str, output: str, worker: Worker) -> int:
    """All there is to know of NAME: state and traces, configuration, tasks, topics, offsets."""
    about: dict[str, Any] = {
        **worker.info(name),
        "status": worker.status(name),
        "tasks": worker.tasks(name),
        "topics": _if_told(lambda: worker.topics(name)),
        "offsets": _if_told(lambda: worker.offsets(name)),
    }
    about = masked(about)
    if output in ("json", "yaml"):
        echo_document(document(about, output))
    else:
        echo_lines(_description(about, wide=output == "wide"))
    return 0


def _if_told(ask: Callable[[], Any]) -> Any:
    """A worker may have these turned off, or not know them: that is no reason to say nothing at all."""
    try:
        return ask()
    except WorkerError as error:
        if not error.status:
            raise
        return None


def _description(about: dict[str, Any], *, wide: bool) -> list[str]:
    from heliograph.workers.standing import standing

    now = standing(about["name"], about["status"])
    lines = [
        f"{about['name']}  ({about.get('type', 'unknown')})",
        f"state    {now.words}" + (f", on {now.worker}" if now.worker else ""),
    ]
    lines += [f"failed   {now.reason}"] if now.reason else []
    for task in (about["status"] or {}).get("tasks", []):
        lines.append(f"task {task.get('id', '?'):<3} {task.get('state', '?')} on {task.get('worker_id', '?')}")
        lines += [f"         {line}" for line in task.get("trace", "").splitlines()] if wide else []
    trace = (about["status"] or {}).get("connector", {}).get("trace", "")
    lines += [f"         {line}" for line in trace.splitlines()] if wide else []
    lines += ["config"] + [f"  {key} = {value}" for key, value in sorted(about["config"].items())]
    topics, offsets = about["topics"], about["offsets"]
    lines += ["topics   " + ("not told" if topics is None else ", ".join(topics) or "none yet")]
    lines += ["offsets  not told"] if offsets is None else ["offsets", *_offset_lines(offsets)] if offsets else []
    return lines


# ---------------------------------------------------------------- steering


@click.command("pause", context_settings=SETTINGS)
@_names
@waiting
@reaching
@log_options
def pause(names: tuple[str, ...], timeout_s: float, no_wait: bool, worker: Worker) -> int:
    """Pause these connectors and wait until they are. They keep their places; `resume` lets them go on."""
    from heliograph.workers.standing import PAUSED

    def paused(one: Standing) -> bool:
        return one.state == PAUSED and all(task == PAUSED for task in one.tasks)

    return _steer(worker, names, worker.pause, paused, "paused", None if no_wait else timeout_s)


@click.command("resume", context_settings=SETTINGS)
@_names
@waiting
@reaching
@log_options
def resume(names: tuple[str, ...], timeout_s: float, no_wait: bool, worker: Worker) -> int:
    """Let these connectors go on that were paused or stopped, and wait until they run."""
    return _steer(worker, names, worker.resume, _runs, "running", None if no_wait else timeout_s)


@click.command("stop", context_settings=SETTINGS)
@_names
@waiting
@reaching
@log_options
def stop(names: tuple[str, ...], timeout_s: float, no_wait: bool, worker: Worker) -> int:
    """Stop these connectors and wait until they are: no tasks are left, offsets can be altered."""
    from heliograph.workers.standing import STOPPED

    def stopped(one: Standing) -> bool:
        return one.state == STOPPED and not one.tasks

    return _steer(worker, names, worker.stop, stopped, "stopped", None if no_wait else timeout_s)


@click.command("restart", context_settings=SETTINGS)
@_names
@click.option("--tasks", is_flag=True, help="Its tasks as well.")
@click.option("--only-failed", is_flag=True, help="Only what failed.")
@click.option("--task", type=click.IntRange(min=0), help="This task alone.")
@waiting
@reaching
@log_options
def restart(
    names: tuple[str, ...],
    tasks: bool,
    only_failed: bool,
    task: int | None,
    timeout_s: float,
    no_wait: bool,
    worker: Worker,
) -> int:
    """Restart these connectors, and wait until they run."""
    if task is not None and (tasks or only_failed):
        raise click.UsageError("--task is about one task, --tasks and --only-failed are about all of them")

    def again(name: str) -> None:
        if task is None:
            worker.restart(name, tasks=tasks, only_failed=only_failed)
        else:
            worker.restart_task(name, task)

    return _steer(worker, names, again, _runs, "running", None if no_wait else timeout_s)


@click.command("delete", context_settings=SETTINGS)
@_names
@reaching
@log_options
def delete(names: tuple[str, ...], worker: Worker) -> int:
    """Delete these connectors. Offsets and topics stay; `stop` before lets tasks write their offsets down."""
    for name in names:
        worker.delete(name)
        echo(f"{name}: deleted")
    return 0


def _runs(one: Standing) -> bool:
    return one.running


def _steer(
    worker: Worker,
    names: Sequence[str],
    order: Callable[[str], None],
    there: Callable[[Standing], bool],
    word: str,
    timeout_s: float | None,
) -> int:
    from heliograph.workers.waiting import lasting, settle

    for name in names:  # before any of them is told: one that is not there is a slip of the pen
        worker.info(name)
    for name in names:
        order(name)
    if timeout_s is None:
        return 0
    with watching(word) as watch:
        last = settle(worker, names, lasting(there, lambda one: one.failed), timeout_s, watch)
    for one in last.values():
        if there(one):
            echo(f"{one.name}: {one.words}")
        else:
            why = one.reason or f"not {word} after {timeout_s:g} s: --timeout waits longer"
            echo(f"{one.name}: {one.words}: {why}", err=True)
    return 0 if all(there(one) for one in last.values()) else 1


# ---------------------------------------------------------------- offsets


@click.command("offsets", context_settings=SETTINGS)
@_name
@click.option(
    "--alter",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Set offsets as this file says, in the form that `offsets NAME -o json` shows; - is stdin.",
)
@click.option("--reset", is_flag=True, help="Forget all offsets: the connector begins anew.")
@output_option
@reaching
@log_options
def offsets(name: str, alter: Path | None, reset: bool, output: str, worker: Worker) -> int:
    """Where NAME stands in its source. Offsets can be altered while it is stopped (`connectors stop NAME`).

    \b
    Examples:
      heliograph connectors offsets mm2-msc-source-0
      heliograph connectors offsets mm2-msc-source-0 -o json > offsets.json
      heliograph connectors offsets mm2-msc-source-0 --alter offsets.json
    """
    if alter is not None and reset:
        raise click.UsageError("either --alter or --reset")
    if alter is not None:
        echo(worker.alter_offsets(name, _wanted_offsets(alter)), err=True)
    elif reset:
        echo(worker.reset_offsets(name), err=True)
    found = worker.offsets(name)
    if output in ("json", "yaml"):
        echo_document(document({"offsets": found}, output))
    else:
        echo_lines(_offset_lines(found) if found else ["no offsets"])
    return 0


def _wanted_offsets(path: Path) -> Any:
    try:
        with click.open_file(str(path)) as file:
            found = json.load(file)
    except OSError as problem:
        raise ConfigError(f"cannot be read: {problem.strerror}", source=str(path)) from None
    except (ValueError, RecursionError) as problem:
        raise ConfigError(f"no JSON: {problem}", source=str(path)) from None
    if not isinstance(found, dict) or not isinstance(found.get("offsets"), list):
        raise ConfigError('must be { "offsets": [ { "partition": …, "offset": … }, … ] }', source=str(path))
    return found


def _offset_lines(found: Sequence[dict[str, Any]]) -> list[str]:
    def words(fields: Any) -> str:
        if not isinstance(fields, dict):
            return json.dumps(fields)
        return "  ".join(f"{key}={value}" for key, value in sorted(fields.items()))

    rows = sorted([words(one.get("partition")), words(one.get("offset"))] for one in found)
    return columns(["partition", "offset"], rows).splitlines()


VERBS = (get, describe, pause, resume, stop, restart, delete, offsets)
