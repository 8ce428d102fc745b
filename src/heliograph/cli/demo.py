"""`heliograph demo`: two embedded clusters, events on both, both directions mirrored, and at the end the copy checked.

The check is the point: after the producer stops, the flows get a bounded time to catch up, and then every topic is
compared with its copy record by record.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import click

from heliograph import policy
from heliograph.cli import compare, show, watch
from heliograph.cli.compare import Difference
from heliograph.cli.logs import log_options
from heliograph.cli.run import make_runner
from heliograph.cli.traffic import Events, Stream
from heliograph.embedded.java import find_java
from heliograph.embedded.kafka import Kafka
from heliograph.errors import EmbeddedError
from heliograph.flow.status import FlowStatus, Runner
from heliograph.types import Flow, Naming

ALIASES = ("us", "eu")
TOPICS = {"us": ("orders", "clicks"), "eu": ("orders", "payments")}  # `orders` on both: remote names keep them apart
REFRESH_S = 2.0
CATCH_UP_S = 180.0  # a lone demo needs a second or two; on a machine ten times overloaded a minute was seen


@click.command("demo", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--seconds", type=click.FloatRange(min=1), help="Produce so long, then check the copy and end.")
@click.option("--rate", type=click.IntRange(1, 100_000), default=500, show_default=True, help="Events a second in all.")
@click.option("--partitions", type=click.IntRange(1, 64), default=3, show_default=True, help="Of each topic.")
@click.option(
    "--report-seconds", type=click.FloatRange(min=0.1), default=5.0, show_default=True, help="Between JSON lines."
)
@log_options
def command(seconds: float | None, rate: int, partitions: int, report_seconds: float) -> int:
    """Two embedded Kafka clusters, `us` and `eu`, that mirror each other while events are produced on both.

    Needs Java >= 17; Kafka's jars are fetched the first time. Leaves nothing behind.

    \b
    Examples:
      heliograph demo                      until Ctrl-C
      heliograph demo --seconds 20         ends by itself and compares every record with its copy
      heliograph demo --seconds 20 --rate 20000 --partitions 8

    Exit codes: 0 every record arrived once and unchanged (or Ctrl-C), 1 it did not, 2 Java is missing.
    """
    with watch.stopping() as stop, ExitStack() as stack:
        begun = time.monotonic()
        clusters = stack.enter_context(_clusters(partitions))
        runner = make_runner(_flows(clusters), None, {}, 60.0)
        streams = [
            Stream(alias, clusters[alias].confluent(), topic, partitions)
            for alias in ALIASES
            for topic in TOPICS[alias]
        ]
        events = Events(streams, rate)
        with _step("Spark and both flows"):
            started = watch.start(runner, stop)
        stack.callback(watch.end, runner, stop)
        if not started:
            return 0
        demo = Demo(runner, streams, events, clusters, stop, FirstRecord(begun))
        events.start()
        with show.view(report_seconds) as view:
            watch.follow(runner, stop, view, seconds=seconds, each=demo.first)
            produced = events.stop(flush=not stop.asked)
            caught_up = seconds is not None and _catch_up(demo, view)
        if stop.asked:
            return 0
        return check(demo, produced, caught_up)


class FirstRecord:
    """Says, once, when the first record has been mirrored."""

    def __init__(self, begun_s: float) -> None:
        self._begun_s = begun_s
        self._said = False

    def __call__(self, statuses: Sequence[FlowStatus]) -> None:
        if not self._said and any(status.records for status in statuses):
            self._said = True
            after_s = time.monotonic() - self._begun_s
            # By print: while the table is up rich stands behind sys.stderr, and click would write past it.
            print(f"✓ first record mirrored {after_s:.1f} s after the command", file=sys.stderr)


@dataclass(frozen=True, slots=True)
class Demo:
    runner: Runner
    streams: Sequence[Stream]
    events: Events
    clusters: dict[str, Kafka]
    stop: watch.Stop
    first: FirstRecord

    def copies(self) -> Iterator[tuple[Stream, Kafka, str]]:
        for stream in self.streams:
            other = next(alias for alias in ALIASES if alias != stream.cluster)
            yield (
                stream,
                self.clusters[other],
                policy.make(Naming(), stream.cluster).remote_topic(stream.cluster, stream.topic),
            )


def check(demo: Demo, produced: int, caught_up: bool) -> int:
    """Every topic compared with its copy. The summary goes to stdout; the code says whether the copy is right."""
    differences: list[Difference] = []
    compared = 0
    with _step(f"{produced:,} events produced; comparing every record with its copy"):
        for stream, target, remote in demo.copies():
            source = compare.read(stream.client, stream.topic)
            copy = compare.read(target.confluent(), remote) if compare.end_offsets(target.confluent(), remote) else {}
            compared += sum(map(len, source.values()))
            differences += compare.compare(f"{stream.cluster} {stream.topic}", source, copy)
    return summarise(produced, compared, differences, caught_up, demo.runner.status())


def _catch_up(demo: Demo, view: show.View) -> bool:
    """Waits until the copies are as long as their sources: by the clusters' own word, not the flows'."""
    deadline = time.monotonic() + CATCH_UP_S
    behind = list(demo.copies())
    while behind and time.monotonic() < deadline and not demo.stop.wait(0.2):
        statuses = demo.runner.status()
        view.update(statuses)
        demo.first(statuses)
        behind = [
            (stream, target, remote)
            for stream, target, remote in behind
            if compare.end_offsets(target.confluent(), remote) < compare.end_offsets(stream.client, stream.topic)
        ]
    return not behind


def summarise(
    produced: int,
    compared: int,
    differences: Sequence[Difference],
    caught_up: bool,
    statuses: Sequence[FlowStatus],
) -> int:
    for status in statuses:
        refused = f", {status.duplicates_refused:,} duplicates refused" if status.duplicates_refused else ""
        click.echo(f"{status.name}: {status.records:,} records, {status.bytes / 1e6:,.1f} MB{refused}")
    right = not differences and compared == produced and caught_up
    click.echo(
        f"{produced:,} events produced, {compared:,} compared with their copies (key, value, headers, timestamp, order)"
    )
    if right:
        click.echo(click.style("every record arrived once, in order, unchanged", fg="green"))
        return 0
    if compared != produced:
        click.echo(click.style(f"the sources hold {compared:,} records, not the {produced:,} produced", fg="red"))
    if not caught_up:
        click.echo(click.style(f"the copies had not caught up {CATCH_UP_S:g} s after the last event", fg="red"))
    for difference in differences:
        click.echo(click.style(str(difference), fg="red"))
    return 1


# ---- what happens before the table ----


@contextmanager
def _clusters(partitions: int) -> Iterator[dict[str, Kafka]]:
    with _step("Java") as done:
        java = find_java()
        done(f"Java {java.release}")
    with _step("Kafka's jars"):
        from heliograph.embedded.jars import fetch_jars

        fetch_jars()
    clusters = {alias: Kafka(alias) for alias in ALIASES}
    with ExitStack() as stack:
        for kafka in clusters.values():
            stack.callback(kafka.stop)
            kafka.launch()
        for alias, kafka in clusters.items():
            with _step(f"cluster {alias}") as done:
                kafka.wait_ready()
                _create_topics(kafka, TOPICS[alias], partitions)
                done(f"cluster {alias} at {kafka.bootstrap}, topics {' and '.join(TOPICS[alias])}")
        yield clusters


def _create_topics(kafka: Kafka, topics: Sequence[str], partitions: int) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({**kafka.confluent(), "log_level": 0})
    wanted = [NewTopic(topic, num_partitions=partitions, replication_factor=1) for topic in topics]
    for topic, created in admin.create_topics(wanted).items():
        try:
            created.result(30)
        except KafkaException as error:
            raise EmbeddedError(f"the topic {topic} could not be created: {error}", topic=topic) from error


def _flows(clusters: dict[str, Kafka]) -> tuple[Flow, ...]:
    us, eu = (clusters[alias].cluster(alias) for alias in ALIASES)
    return tuple(
        Flow(
            source,
            target,
            replication_factor=1,
            offset_storage_replication_factor=1,
            offset_syncs_replication_factor=1,
            checkpoints_replication_factor=1,
            heartbeats_replication_factor=1,
            refresh_topics_interval_seconds=REFRESH_S,
        )
        for source, target in ((us, eu), (eu, us))
    )


@contextmanager
def _step(what: str) -> Iterator[Callable[[str], None]]:
    """`… cluster us` while it lasts, `✓ cluster us (2.1 s)` when done; on a pipe only the second."""
    begun = time.monotonic()
    said = [what]
    terminal = sys.stderr.isatty()
    if terminal:
        click.echo(f"… {what}", err=True, nl=False)

    def done(text: str) -> None:
        said[0] = text

    yield done
    start = "\r\x1b[2K" if terminal else ""
    click.echo(f"{start}{_tick()} {said[0]} ({time.monotonic() - begun:.1f} s)", err=True)


def _tick() -> str:
    return click.style("✓", fg="green")
