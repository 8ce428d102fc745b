"""What the demos have in common: clusters that come up before one's eyes, events, the flows, an end that is checked.

Answers for the course of a demo and its words. Which clusters and flows there are, and what a right copy is, each demo
says itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import click

from heliograph.cli import show, watch
from heliograph.cli.compare import Difference
from heliograph.cli.logs import F
from heliograph.cli.out import CLEAR_LINE, echo, print_beside_table, style
from heliograph.cli.traffic import Events
from heliograph.embedded.kafka import Kafka
from heliograph.errors import EmbeddedError
from heliograph.health.status import FlowStatus, Runner

REFRESH_S = 2.0  # refresh.topics.interval.seconds of the demos
CATCH_UP_S = 180.0  # a lone demo needs a second or two; on a machine ten times overloaded a minute was seen
FIRST_S = 120.0  # the first record is waited for so long
COMPARED = "key, value, headers, timestamp, order"


class FirstRecord:
    """Says, once, when the first record has been mirrored."""

    def __init__(self, begun_s: float, arrived: Callable[[FlowStatus], bool] = lambda status: status.records > 0):
        self._begun_s = begun_s
        self._arrived = arrived
        self.said = False

    def __call__(self, statuses: Sequence[FlowStatus]) -> None:
        if not self.said and any(map(self._arrived, statuses)):
            self.said = True
            after_s = time.monotonic() - self._begun_s
            print_beside_table(f"✓ first record mirrored {after_s:.1f} s after the command")


def view_options(command: F) -> F:
    """The options that `view` takes."""
    output = click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="On stdout: a live table (rows every few seconds where that is no terminal), or JSON lines.",
    )
    report_seconds = click.option(
        "--report-seconds",
        type=click.FloatRange(min=0.1),
        default=5.0,
        show_default=True,
        help="Between rows, or JSON lines.",
    )
    return output(report_seconds(command))


def view(
    output: str, report_seconds: float, rows: show.Line, json: show.Line, draw: show.Draw | None = None
) -> show.View:
    """`output`: table or json. The table is rows where stdout is no terminal."""
    if output == "json":
        return show.LineView(sys.stdout, report_seconds, json)
    return show.view(report_seconds, draw=draw, line=rows)


STOP_S = 2.0  # of the 5 s in which a demo ends: clusters end behind the flows, and nobody needs the positions


@dataclass(frozen=True, slots=True)
class Play:
    """A demo that is set up. `level`: whether the copies are as long as their sources, by the clusters' own word, not
    the flows'."""

    runner: Runner
    events: Events
    stop: watch.Stop
    first: FirstRecord
    level: Callable[[], bool]


def perform(play: Play, stack: ExitStack, flows: str, view: show.View, seconds: float | None) -> bool | None:
    """From the start of the flows to the last event copied. Returns whether that was in time, or None if somebody asked
    to stop. The seconds begin with the first record mirrored: before it there is nothing to see."""
    with step(f"Spark and {flows}"):
        started = watch.start(play.runner, play.stop)
    stack.callback(watch.end, play.runner, play.stop)
    if not started:
        return None
    play.events.start()
    with view:
        if seconds is not None:
            watch.follow(play.runner, play.stop, view, seconds=FIRST_S, each=play.first, done=lambda: play.first.said)
        watch.follow(play.runner, play.stop, view, seconds=seconds, each=play.first)
        play.events.stop(flush=not play.stop.asked)
        caught_up = seconds is not None and _catch_up(play, view)
    return None if play.stop.asked else caught_up


def _catch_up(play: Play, view: show.View) -> bool:
    deadline = time.monotonic() + CATCH_UP_S
    level = False
    while not level and time.monotonic() < deadline and not play.stop.wait(0.2):
        statuses = play.runner.status()
        view.update(statuses)
        play.first(statuses)
        level = play.level()
    return level


def summarise(
    produced: int,
    compared: int,
    differences: Sequence[Difference | str],
    caught_up: bool,
    statuses: Sequence[FlowStatus],
    what: str = COMPARED,
) -> int:
    """To stdout, in words; the code says whether the copy is right."""
    for status in statuses:
        refused = f", {status.duplicates_refused:,} duplicates refused" if status.duplicates_refused else ""
        echo(f"{status.name}: {status.records:,} records, {status.bytes / 1e6:,.1f} MB{refused}")
    right = not differences and compared == produced and caught_up
    echo(f"{produced:,} events produced, {compared:,} compared with their copies ({what})")
    if right:
        echo(style("every record arrived once, in order, unchanged", fg="green"))
        return 0
    if compared != produced:
        echo(style(f"the sources hold {compared:,} records, not the {produced:,} produced", fg="red"))
    if not caught_up:
        echo(style(f"the copies had not caught up {CATCH_UP_S:g} s after the last event", fg="red"))
    for difference in differences:
        echo(style(str(difference), fg="red"))
    return 1


# ---- what happens before the table ----


@contextmanager
def clusters(
    topics: Mapping[str, Sequence[str]], partitions: int, config: Mapping[str, str] | None = None
) -> Iterator[dict[str, Kafka]]:
    """One for each alias, side by side, with these topics."""
    with step("Kafka's jars"):
        from heliograph.embedded.jars import fetch_jars

        fetch_jars()
    made = {alias: Kafka(alias, config=config) for alias in topics}
    with ExitStack() as stack:
        for kafka in made.values():
            stack.callback(kafka.stop)
            kafka.launch()
        for alias, kafka in made.items():
            with step(f"cluster {alias}") as done:
                kafka.wait_ready()
                create_topics(kafka, topics[alias], partitions)
                done(f"cluster {alias} at {kafka.bootstrap}{_naming(topics[alias])}")
        yield made


def _naming(topics: Sequence[str]) -> str:
    if not topics:
        return ""
    return f", topics {' and '.join(filter(None, (', '.join(topics[:-1]), topics[-1])))}"


def create_topics(kafka: Kafka, topics: Sequence[str], partitions: int) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    if not topics:
        return
    admin = AdminClient({**kafka.confluent(), "log_level": 0})
    wanted = [NewTopic(topic, num_partitions=partitions, replication_factor=1) for topic in topics]
    for topic, created in admin.create_topics(wanted).items():
        try:
            created.result(30)
        except KafkaException as error:
            raise EmbeddedError(f"the topic {topic} could not be created: {error}", topic=topic) from error


@contextmanager
def step(what: str) -> Iterator[Callable[[str], None]]:
    """`… cluster us` while it lasts, `✓ cluster us (2.1 s)` when done; on a pipe only the second."""
    begun = time.monotonic()
    said = [what]
    terminal = sys.stderr.isatty()
    if terminal:
        echo(f"… {what}", err=True, nl=False)

    def done(text: str) -> None:
        said[0] = text

    yield done
    start = CLEAR_LINE if terminal else ""
    echo(f"{start}{style('✓', fg='green')} {said[0]} ({time.monotonic() - begun:.1f} s)", err=True)
