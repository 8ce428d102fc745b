"""`pause`, `resume` and `stop` have this in common: which running processes are meant, and what they answered."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from heliograph.cli.out import echo
from heliograph.errors import ControlError

if TYPE_CHECKING:
    from heliograph.control.client import Process

ANSWER_S = 15.0  # an order is carried out at once; writing it down may wait for a target that is slow

F = TypeVar("F", bound=Callable[..., Any])


def whose(function: F) -> F:
    """FLOW [TOPIC[:PARTITION]] and --file."""
    option = click.option(
        "--file",
        type=click.Path(path_type=Path),
        help="The file that the process runs, where several processes have a flow of this name.",
    )
    place = click.argument("what", required=False, metavar="[TOPIC[:PARTITION]]")
    return click.argument("flow")(place(option(function)))


def order(word: str, flow: str, what: str | None, file: Path | None) -> int:
    from heliograph.control.client import speak

    name = flow.replace(" ", "")
    topic, partition = split(what)
    request = {"do": word, "flow": name, "topic": topic, "partition": partition, "by": who()}
    for process in running(name, file):
        answer = speak(process.place, request, ANSWER_S)
        for line in _lines(word, process, answer):
            echo(line)
        if answer.get("unwritten"):
            echo(f"warning: {process}: {answer['unwritten']}", err=True)
    return 0


def split(what: str | None) -> tuple[str | None, int | None]:
    """TOPIC or TOPIC:PARTITION; no topic has a colon in its name."""
    if what is None:
        return None, None
    topic, colon, partition = what.partition(":")
    if not topic or (colon and not (partition.isascii() and partition.isdigit())):
        raise click.BadParameter(f"{what!r} is not TOPIC or TOPIC:PARTITION, e.g. orders or orders:3")
    return topic, int(partition) if colon else None


def running(flow: str, file: Path | None) -> list[Process]:
    """The processes that run this flow. Raises ControlError when there is none, or when they run different files."""
    from heliograph.control.client import processes

    there = processes(file)
    found = [one for one in there if flow in one.flows]
    if not found:
        raise ControlError(_none(flow, file, there), fix="heliograph run FILE starts it, as the same user, here")
    if len({one.place.file_digest for one in found}) > 1:
        names = ", ".join(map(str, found))
        raise ControlError(f"several processes run a flow {flow}, by different files: {names}", fix="say --file FILE")
    return found


def of_file(file: Path) -> list[Process]:
    from heliograph.control.client import processes

    found = processes(file)
    if not found:
        raise ControlError(
            f"no process of yours runs {file} on this machine",
            fix=f"heliograph run {file} starts one",
        )
    return found


def who() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as containers have it
        name = "somebody"
    return f"{name}@{socket.gethostname()}"


def _none(flow: str, file: Path | None, there: list[Process]) -> str:
    whose = "no process of yours" if file is None else f"no process that runs {file}"
    others = "; ".join(f"{one} runs {', '.join(one.flows)}" for one in there)
    return f"{whose} runs {flow} on this machine" + (f": {others}" if others else "")


def _lines(word: str, process: Process, answer: Any) -> list[str]:
    head = f"{answer['flow']} ({process})"
    if word == "resume":
        lines = [f"{head}: goes on, was {one}" for one in answer["orders"]]
        lines += [f"{head}: still held back: {one}" for one in answer["standing"]]
        return lines or [f"{head}: nothing was paused or stopped there"]
    return [f"{head}: {one} ({answer['partitions']} partitions)" for one in answer["orders"]]
