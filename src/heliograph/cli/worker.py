"""Which Connect worker a verb of `connectors` speaks to, and how waiting for connectors is shown."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from heliograph.cli.out import console, echo
from heliograph.escaping import escape

if TYPE_CHECKING:
    from heliograph.workers.standing import Standing

URL = "http://localhost:8083"
WAIT_S = 60.0

F = TypeVar("F", bound=Callable[..., Any])


def reaching(function: F) -> F:
    """--url, --credentials and --cacert; the verb is given a `worker`."""

    @click.option(
        "--url",
        envvar="HELIOGRAPH_CONNECT_URL",
        default=URL,
        show_default=True,
        help="Of a worker; of several of one group with commas between, the first that answers is asked. "
        "Also HELIOGRAPH_CONNECT_URL.",
    )
    @click.option(
        "--credentials",
        type=click.Path(path_type=Path),
        envvar="HELIOGRAPH_CONNECT_CREDENTIALS",
        help="A file with `user = …` and `password = …`, or `token = …`. Without it: HELIOGRAPH_CONNECT_USER and "
        "HELIOGRAPH_CONNECT_PASSWORD, or HELIOGRAPH_CONNECT_TOKEN, if they are set.",
    )
    @click.option(
        "--cacert",
        type=click.Path(path_type=Path),
        envvar="HELIOGRAPH_CONNECT_CACERT",
        help="Trust certificates by this authority (PEM) instead of the system's.",
    )
    @functools.wraps(function)
    def reached(*arguments: Any, url: str, credentials: Path | None, cacert: Path | None, **more: Any) -> Any:
        from heliograph.workers.access import access
        from heliograph.workers.client import Worker

        way = access(url, credentials=credentials, cacert=cacert)
        if way.in_the_clear:
            echo("warning: credentials cross the network unencrypted: an https:// address hides them", err=True)
        return function(*arguments, worker=Worker(way), **more)

    return reached  # type: ignore[return-value]


def waiting(function: F) -> F:
    """--timeout and --no-wait."""
    limit = click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0.1),
        default=WAIT_S,
        show_default=True,
        help="Seconds to wait for it at most.",
    )
    return limit(
        click.option("--no-wait", is_flag=True, help="Do not wait: the worker has taken it, that is all.")(function)
    )


@contextmanager
def watching(goal: str) -> Iterator[Callable[[Mapping[str, Standing]], None]]:
    """A bar on a terminal's stderr, elsewhere a line whenever a connector's state changes."""
    if not sys.stderr.isatty():
        yield _Changes()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn(goal, markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=1)

        def show(standings: Mapping[str, Standing]) -> None:
            left = [f"{one.name} {one.words}" for one in standings.values() if not one.running]
            count = len(standings)
            progress.update(bar, total=count, completed=count - len(left), description=escape("; ".join(left)))

        yield show


class _Changes:
    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def __call__(self, standings: Mapping[str, Standing]) -> None:
        for one in standings.values():
            if self._said.get(one.name) != one.words:
                self._said[one.name] = one.words
                echo(f"{one.name}: {one.words}", err=True)
