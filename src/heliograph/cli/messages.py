"""`heliograph messages TOPIC [FILE] --cluster ALIAS`: look at messages. Reading is `heliograph.messages`', drawing
`sheet`'s."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heliograph.cli.logs import log_options
from heliograph.cli.moments import moment
from heliograph.cli.out import echo, rendered, style
from heliograph.cli.site import Site, site, site_options
from heliograph.cli.ticker import Ticker
from heliograph.types import Isolation, StartPoint

if TYPE_CHECKING:
    from heliograph.cli.sheet import Topic
    from heliograph.messages.course import Follower
    from heliograph.messages.matching import Filter
    from heliograph.messages.reading import Message, Reading

LAST = 10
TIMEOUT_S = 10.0  # who looks would rather be told than wait


@dataclass(frozen=True, slots=True)
class Asked:
    """The options, understood."""

    topic: str
    partitions: tuple[int, ...] = ()
    begin: StartPoint | None = None  # None: the last `last` ones
    until: StartPoint | None = None
    last: int = LAST
    limit: int | None = None
    follow: bool = False
    uncommitted: bool = False
    wanted: Filter = field(default_factory=lambda: _filter((), (), (), False, None, None))


@click.command("messages", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("topic")
@site_options
@click.option(
    "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this; may be repeated."
)
@click.option("--from", "begin", metavar="WHERE", help="beginning, end, an offset, a time, or a time ago: -5m, -2h.")
@click.option("--until", metavar="WHERE", help="End before this: the same forms. [default: the end as it is now]")
@click.option("--last", type=click.IntRange(min=0), help=f"So many from the end. [default: {LAST}, without --from]")
@click.option("--limit", type=click.IntRange(min=1), help="End after so many.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on, until Ctrl-C.")
@click.option("--key", "keys", multiple=True, metavar="TEXT", help="Whose key contains this; =TEXT: is; /RE/: matches.")
@click.option("--value", "values", multiple=True, metavar="TEXT", help="The same of the value.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME[=TEXT]", help="That have this header, with this in it."
)
@click.option("--tombstones", is_flag=True, help="Only messages without a value.")
@click.option("--uncommitted", is_flag=True, help="Also what transactions aborted or have not yet committed.")
@click.option("--raw", is_flag=True, help="Decode nothing: internal topics and MUX headers as they are.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json"]),
    help="[default: table on a terminal, else json]",
)
@log_options
def command(
    topic: str,
    file: Path | None,
    alias: str | None,
    bootstrap_server: str | None,
    lenient: bool,
    begin: str | None,
    until: str | None,
    output: str | None,
    raw: bool,
    keys: tuple[str, ...],
    values: tuple[str, ...],
    headers: tuple[str, ...],
    tombstones: bool,
    **options: Any,
) -> int:
    """Look at messages of TOPIC on a cluster of FILE (mm2.properties): key, value, headers, time, partition, offset.

    The last ten unless told otherwise. Several partitions are merged by time. The topics of MirrorMaker 2 and of
    Heliograph (heartbeats, checkpoints, offset syncs, positions, offset map, incidents, quarantine) are decoded, and so
    are MUX headers. Nothing is changed on the cluster: no group, no commit, no topic made.

    \b
    Examples:
      heliograph messages orders --cluster us                    mm2.properties is here
      heliograph messages orders conf/mm2.properties --cluster us --follow
      heliograph messages orders --cluster us --from -5m --value '"customer": 17' --limit 20
      heliograph messages orders --cluster us --partition 3 --from 1041 --limit 1 -o json
      heliograph messages us.checkpoints.internal --cluster eu --from beginning --key billing
      heliograph messages us.orders --cluster eu --header 'trace=/^4bf9/' --last 1 -o wide

    With filters, --last means the last that pass them, however far back. In JSON, what is no UTF-8 is {"base64": …}.
    Times that producers set need not rise: with --until TIME a partition is read to its first message an hour later.

    Exit codes: 0 whatever was found, 1 a batch or a partition could not be read, 2 the file, a name or the cluster must
    be put right.
    """
    asked = _understood(topic, begin, until, keys, values, headers, tombstones, options)
    where = site(file, alias, bootstrap_server, lenient)
    return _look(where, asked, output or ("table" if sys.stdout.isatty() else "json"), raw)


# ---------------------------------------------------------------- what was asked


def _understood(
    topic: str,
    begin: str | None,
    until: str | None,
    keys: Iterable[str],
    values: Iterable[str],
    headers: Iterable[str],
    tombstones: bool,
    options: dict[str, Any],
) -> Asked:
    now_ms = time.time_ns() // 1_000_000
    first, end = _moment("--from", begin, now_ms), _moment("--until", until, now_ms)
    if first is not None and options["last"] is not None:
        raise click.UsageError("--last counts from the end and --from from a place: name one or the other")
    since_ms = first.value if first is not None and first.at == "timestamp" else None
    until_ms = end.value if end is not None and end.at == "timestamp" else None
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise click.UsageError(f"--until {until} is not after --from {begin}")
    return Asked(
        topic,
        options["partitions"],
        first,
        end,
        LAST if options["last"] is None else options["last"],
        options["limit"],
        options["follow"],
        options["uncommitted"],
        _filter(keys, values, headers, tombstones, since_ms, until_ms),
    )


def _moment(option: str, text: str | None, now_ms: int) -> StartPoint | None:
    try:
        return None if text is None else moment(text, now_ms)
    except ValueError as problem:
        raise click.BadParameter(str(problem), param_hint=option) from None


def _filter(
    keys: Iterable[str],
    values: Iterable[str],
    headers: Iterable[str],
    tombstones: bool,
    since_ms: int | None,
    until_ms: int | None,
) -> Filter:
    from heliograph.messages import matching

    try:
        tests = tuple(map(matching.test, keys)), tuple(map(matching.test, values))
        return matching.Filter(*tests, tuple(map(matching.header_test, headers)), tombstones, since_ms, until_ms)
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None


# ---------------------------------------------------------------- what is there


def _look(where: Site, asked: Asked, output: str, raw: bool) -> int:
    from heliograph.cli.sheet import Topic
    from heliograph.messages.meaning import kind_of
    from heliograph.wire import Client

    kind = None if raw else kind_of(asked.topic, where.flows)
    about = Topic(where.cluster.alias, asked.topic, kind, mux=not raw)
    with Client(where.cluster, timeout_s=TIMEOUT_S) as client:
        return Looking(client, asked, about, output).go()


class Looking:
    """One call: what has been shown, and whether that was enough."""

    def __init__(self, client: Reading, asked: Asked, about: Topic, output: str) -> None:
        from heliograph.cli import sheet
        from heliograph.messages import extent, reading

        self._client, self._asked = client, asked
        self._ticker = Ticker(self._progress)
        self._watch = reading.Watch(self._note, self._tick)
        self._offsets = 0  # to be looked at
        self._shown = 0
        isolation: Isolation = "read_uncommitted" if asked.uncommitted else "read_committed"
        numbers = extent.partitions(client, asked.topic, asked.partitions)
        self._held = extent.logs(client, asked.topic, numbers, isolation, self._note)
        self._absent = set(numbers) - set(self._held)
        share = reading.fetch_bytes(len(numbers))
        self._reader = reading.Reader(client, asked.topic, isolation, share, self._watch)
        end = max((span.end for span in self._held.values()), default=0)
        self._drawn = sheet.make(output, about, shutil.get_terminal_size().columns, numbers, end)
        self._styled = bool(self._drawn.heading())

    def go(self) -> int:
        try:
            ends = self._bounded()
            if self._asked.follow and not self._enough:
                self._follow(ends)
        except KeyboardInterrupt:
            if not self._asked.follow:
                raise
        finally:
            self._ticker.clear()
        self._conclude()
        return 1 if self._watch.unreadable or self._absent else 0

    def _bounded(self) -> dict[int, int]:
        """What is there already; where that ends in each partition."""
        from heliograph.messages import course, extent
        from heliograph.messages.extent import Span

        asked = self._asked
        begin = asked.begin or StartPoint("earliest")
        firsts = extent.begin(self._client, asked.topic, self._held, begin, self._note)
        ends = extent.finish(self._client, asked.topic, self._held, asked.until)
        spans = {number: Span(min(first, ends[number]), ends[number]) for number, first in firsts.items()}
        self._offsets = sum(span.end - span.first for span in spans.values())
        if heading := self._drawn.heading():
            echo(style(heading, bold=True))
        if asked.begin is None:
            self._show(course.last(self._reader, spans, asked.last, asked.wanted))
        else:
            self._show(course.bounded(self._reader, spans, asked.wanted))
        return {number: max(ends[number], firsts[number]) for number in ends} | dict.fromkeys(
            self._absent, course.UNSEEN
        )

    def _follow(self, ends: dict[int, int]) -> None:
        from heliograph.messages import course, extent

        asked = self._asked
        until = asked.until
        stops = dict.fromkeys(ends, until.value) if until is not None and until.at == "offset" else {}
        topic_id = extent.topic_id(self._client, asked.topic)
        follower = course.Follower(self._reader, ends, asked.wanted, not asked.partitions, stops, topic_id)
        while not self._enough and not self._over(follower):
            time.sleep(course.LOOK_EVERY_S)
            self._show(follower.look())

    def _over(self, follower: Follower) -> bool:
        until = self._asked.until
        if until is not None and until.at != "offset":
            return until.at != "timestamp" or time.time_ns() // 1_000_000 >= until.value
        return follower.done

    @property
    def _enough(self) -> bool:
        return self._asked.limit is not None and self._shown >= self._asked.limit

    def _show(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._ticker.clear()
            for line in self._drawn.lines(message):
                self._write(line)
            self._shown += 1
            if self._enough:
                break
        sys.stdout.flush()

    def _write(self, line: str) -> None:
        if self._styled:
            echo(line)
        else:  # as it may be a million lines, they are flushed where something is waited for
            sys.stdout.write(rendered(line) + "\n")

    # -- beside the data

    def _note(self, words: str) -> None:
        self._ticker.say(f"note: {words}")

    def _tick(self) -> None:
        sys.stdout.flush()
        self._ticker.tick()

    def _progress(self) -> str:
        where = f"{self._asked.topic} on {self._client.alias}"
        return f"… {where}: {self._watch.looked_at:,} of {self._offsets:,} offsets looked at, {self._shown:,} shown"

    def _conclude(self) -> None:
        if not self._shown or sys.stderr.isatty():
            found = (
                "no message" if not self._shown else "1 message" if self._shown == 1 else f"{self._shown:,} messages"
            )
            looked_at = f"{self._watch.looked_at:,} offsets looked at"
            echo(f"{self._asked.topic} on {self._client.alias}: {found}, {looked_at}", err=True)
