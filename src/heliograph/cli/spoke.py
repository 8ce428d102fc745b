"""`heliograph spoke add|remove|list FILE`: spokes of a hub, at will, while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heliograph.cli.audited import audited
from heliograph.cli.chosen import load_config
from heliograph.cli.documents import document, output_option
from heliograph.cli.logs import log_options
from heliograph.cli.out import echo, echo_document
from heliograph.cli.pairs import HELP, pairs_of
from heliograph.cli.steered import ANSWER_S, who
from heliograph.errors import ControlError, HeliographError

if TYPE_CHECKING:
    from heliograph.cli.spokes import Left
    from heliograph.config.spokes import Spoke
    from heliograph.control.client import Process

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

_file = click.argument("file", type=click.Path(path_type=Path))
_alias = click.argument("alias")
_hub = click.option("--hub", default="", help="The hub's alias, where the file has several, or none yet.")
_lenient = click.option("--lenient", is_flag=True, help="Warn about unknown keys instead of refusing the file.")
_yes = click.option("--yes", is_flag=True, help="Do it. Without this it is only shown.")


@click.group("spoke", context_settings=SETTINGS)
def command() -> None:
    """Spokes of a hub: which there are and how they fare; one more, or one less, while the others go on.

    \b
    Examples:
      heliograph spoke list mm2.properties
      heliograph spoke add mm2.properties spoke3 --bootstrap-servers spoke3:9092 --topics 'topic, topic2' --yes
      heliograph spoke remove mm2.properties spoke1 --yes

    `add` and `remove` edit FILE (its comments and order stay) and let the process that runs it take it up. If the
    process refuses, the file is put back: the two never differ.

    Exit codes: 0 it went well, 1 records of a spoke to be removed are not put back yet, 2 bad input: the file, a
    cluster, no such spoke.
    """


# ---------------------------------------------------------------- list


@command.command("list", context_settings=SETTINGS)
@_file
@output_option
@_lenient
@log_options
def list_(file: Path, output: str, lenient: bool) -> int:
    """Each spoke of FILE: its state, its lag, what waits in its shared topic, its rate, weight and cap.

    A spoke whose cluster cannot be reached is `dead`, and the others are what they are. `lag` is in its chosen topics,
    `waiting` in the shared one: not put back yet.
    """
    from heliograph.cli import spokes
    from heliograph.config.spokes import spokes_of
    from heliograph.control.client import processes

    there = spokes_of(load_config(file, lenient))
    found = spokes.rows(there, spokes.outlines(there, processes(file)))
    if output in ("json", "yaml"):
        echo_document(document([spokes.described(one) for one in found], output))
    elif found:
        echo_document(spokes.table(found))
    else:
        echo("none: no pair of this file has mux.topics", err=True)
    return 0


# ---------------------------------------------------------------- add


@command.command("add", context_settings=SETTINGS)
@_file
@_alias
@click.option("--bootstrap-servers", default="", help="Where it is, if the file does not say so yet.")
@click.option("--topics", required=True, help="Topics that travel: names or regular expressions.")
@click.option("--via", type=click.Choice(["straight", "intermediate"]), help="See mux.via.")
@click.option("--demux", type=click.Choice(["original", "prefixed", "none"]), default="original", show_default=True)
@click.option("--weight", type=click.IntRange(min=1), help="Its share of the hub, beside the others'.")
@click.option("--max-bytes-per-second", type=click.IntRange(min=1), help="At most so much is put back.")
@click.option("--property", "properties", multiple=True, metavar="KEY=VALUE", help=f"Of its cluster. {HELP}")
@click.option("--setting", "settings", multiple=True, metavar="KEY=VALUE", help="Further keys of the pair.")
@_hub
@_lenient
@_yes
@log_options
def add(
    file: Path,
    alias: str,
    bootstrap_servers: str,
    topics: str,
    via: str | None,
    demux: str,
    weight: int | None,
    max_bytes_per_second: int | None,
    properties: tuple[str, ...],
    settings: tuple[str, ...],
    hub: str,
    lenient: bool,
    yes: bool,
) -> int:
    """Add the spoke ALIAS to FILE, and let the process that runs FILE take it up; the other spokes go on.

    A secret that is given as `file:PATH` or `env:NAME` is written into FILE as it is found there; `${file:…}` or
    `${env:…}` (config.providers) keeps it out of FILE too.
    """
    from heliograph.cli import edited
    from heliograph.config.load import parse
    from heliograph.config.spokes import Wish, hub_of, spoke_of, with_spoke
    from heliograph.control.client import processes

    before = edited.read(file)
    hub = hub or hub_of(parse(before, str(file), lenient=lenient))
    pair = {"mux.via": via, "demux": None if demux == "none" else demux, "demux.weight": weight}
    pair |= {"demux.max.bytes.per.second": max_bytes_per_second}
    chosen = {key: str(value) for key, value in pair.items() if value is not None} | pairs_of(settings, "--setting")
    wish = Wish(alias, hub, topics, bootstrap_servers, pairs_of(properties, "--property"), chosen)
    after = with_spoke(before, str(file), wish, lenient=lenient)
    _show(before, after)
    if not yes:
        echo("nothing is written yet: say --yes", err=True)
        return 0
    running = processes(file)
    with audited(f"spoke add {alias}: {file}"):
        edited.take_up(file, before, after, running)
    _let_go_on(spoke_of(parse(after, str(file), lenient=lenient), alias, hub), running)
    return 0


def _show(before: bytes, after: bytes) -> None:
    from heliograph.config.edit import preview

    for line in preview(before, after):
        echo(line)


def _let_go_on(spoke: Spoke, running: Sequence[Process]) -> None:
    """One that was here before was stopped when it was removed."""
    from heliograph.cli.spokes import outlines
    from heliograph.control.client import speak

    name = spoke.mux.name
    if outlines([spoke], running).get(name, {}).get("ordered"):
        for process in running:
            speak(process.place, {"do": "resume", "flow": name, "by": who()}, ANSWER_S)
        echo(f"{name}: was stopped when it was removed, and goes on")


# ---------------------------------------------------------------- remove


@command.command("remove", context_settings=SETTINGS)
@_file
@_alias
@click.option("--drain-seconds", type=float, default=300.0, show_default=True, help="How long draining may take.")
@click.option("--leave-records", is_flag=True, help="Remove it at once; what is in its shared topic stays there.")
@_hub
@_lenient
@_yes
@log_options
def remove(
    file: Path, alias: str, drain_seconds: float, leave_records: bool, hub: str, lenient: bool, yes: bool
) -> int:
    """Remove the spoke ALIAS from FILE and from the process that runs it; the other spokes go on.

    First its mux is stopped and what is in its shared topic is put back; only then the file is edited and taken up. If
    that takes longer than --drain-seconds nothing is edited: said again, it goes on waiting.
    """
    from heliograph.cli import edited
    from heliograph.cli.spokes import left_of
    from heliograph.config.load import parse
    from heliograph.config.spokes import spoke_of, without_spoke
    from heliograph.control.client import processes
    from heliograph.review.spokes import dead as why_dead

    before = edited.read(file)
    spoke = spoke_of(parse(before, str(file), lenient=lenient), alias, hub)
    after = without_spoke(before, str(file), spoke, lenient=lenient)
    dead = why_dead(spoke.mux.source)
    _show(before, after)
    left = left_of(spoke, dead)
    echo(_words(spoke, left, dead), err=True)
    if not yes:
        echo("nothing is written yet: say --yes", err=True)
        return 0
    running = processes(file)
    if not leave_records:
        if not running and left.records != 0:
            _refuse_undrained(file, spoke)
        if running and not _drained(spoke, dead, running, drain_seconds):
            return 1
    with audited(f"spoke remove {alias}: {file}"):
        edited.take_up(file, before, after, running)
    return 0


def _refuse_undrained(file: Path, spoke: Spoke) -> None:
    raise ControlError(
        f"nobody runs {file} here, so records of {spoke.name} that wait in its shared topic cannot be put back first",
        fix=f"heliograph run {file}, and say it again; or --leave-records",
    )


def _words(spoke: Spoke, left: Left, dead: str) -> str:
    if spoke.rule is None:
        return f"{spoke.name} puts nothing back: what is in {spoke.mux.mux.topic if spoke.mux.mux else ''} stays there"
    state = f"{spoke.alias} is dead: {dead}; " if dead else ""
    if left.records is None:
        return f"{state}{left.why}; on {spoke.hub} {_count(left.on_hub)} records wait to be put back"
    return f"{state}{left.records:,} records of {spoke.rule.topic} wait to be put back"


def _count(records: int | None) -> str:
    return "an unknown number of" if records is None else f"{records:,}"


def _drained(spoke: Spoke, dead: str, running: Sequence[Process], seconds: float) -> bool:
    from heliograph.cli.spokes import Drain

    _stop_mux(spoke, dead, running)
    if spoke.rule is None:
        return True
    told: list[Left] = []

    def tell(left: Left) -> None:
        if not told or told[-1] != left:
            echo(f"draining: {_words(spoke, left, '')}", err=True)
            told.append(left)

    with Drain(spoke, dead) as drain:
        left = drain.wait(seconds, tell)
    if left.on_hub == 0 and (left.on_spoke == 0 or dead):
        echo(f"{spoke.name}: drained" + (f"; {left.why}" if left.why else ""))
        return True
    echo(f"{spoke.name}: not drained within {seconds:g} s, so it is not removed: {_words(spoke, left, '')}", err=True)
    echo(
        f"  fix: say it again to wait on, or with --leave-records; its mux is stopped, "
        f"`heliograph resume '{spoke.mux.name}'` lets it go on",
        err=True,
    )
    return False


def _stop_mux(spoke: Spoke, dead: str, running: Sequence[Process]) -> None:
    """So that nothing comes in while it is drained."""
    from heliograph.control.client import speak

    name = spoke.mux.name
    having = [process for process in running if name in process.flows]
    if not having:
        why = f"{name} is not run here: what it writes from now on is not waited for. Stop it where it runs"
        echo(f"warning: {why}", err=True)
    for process in having:
        try:
            answer = speak(process.place, {"do": "stop", "flow": name, "by": who()}, ANSWER_S)
        except HeliographError as error:
            if not dead:
                raise
            echo(f"warning: {process}: {error}", err=True)  # of a dead spoke nothing comes
            continue
        if answer.get("unwritten"):
            echo(f"warning: {process}: {answer['unwritten']}", err=True)
        echo(f"{name}: stopped")
