"""`heliograph demo`: two embedded clusters, events on both, both directions mirrored, and at the end the copy checked.

The check is the point: after the producer stops, the flows get a bounded time to catch up, and then every topic is
compared with its copy record by record. `heliograph demo hub-spoke` is `hubspoke`'s.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

import click
from click.core import ParameterSource

from heliograph import policy
from heliograph.cli import compare, hubspoke, preparing, rows, scene, show, watch
from heliograph.cli.compare import Difference
from heliograph.cli.logs import log_options
from heliograph.cli.run import make_runner
from heliograph.cli.traffic import Events, Stream
from heliograph.embedded.kafka import Kafka
from heliograph.types import Flow, Naming

ALIASES = ("us", "eu")
TOPICS = {"us": ("orders", "clicks"), "eu": ("orders", "payments")}  # `orders` on both: remote names keep them apart
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group("demo", context_settings=SETTINGS, invoke_without_command=True, subcommand_metavar="[hub-spoke]")
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    help="Produce so long after the first record came over, then check the copy and end.",
)
@click.option(
    "--rate", type=click.IntRange(1, 100_000), default=6_000, show_default=True, help="Events a second in all."
)
@click.option("--partitions", type=click.IntRange(1, 64), default=3, show_default=True, help="Of each topic.")
@scene.view_options
@log_options
@click.pass_context
def command(
    ctx: click.Context, seconds: float | None, rate: int, partitions: int, output: str, report_seconds: float
) -> int | None:
    """Two embedded Kafka clusters, `us` and `eu`, that mirror each other while events are produced on both.

    Needs Java >= 17; Kafka's jars are fetched the first time. Leaves nothing behind.

    \b
    Examples:
      heliograph demo                      until Ctrl-C
      heliograph demo --seconds 20         ends by itself and compares every record with its copy
      heliograph demo --seconds 20 --rate 20000 --partitions 8
      heliograph demo hub-spoke --help     a hub and its spokes instead

    Exit codes: 0 every record arrived once and unchanged (or Ctrl-C), 1 it did not, 2 Java is missing.
    """
    if ctx.invoked_subcommand is not None:
        _refuse_options(ctx)
        return None
    with watch.stopping(scene.STOP_S) as stop, ExitStack() as stack:
        begun = time.monotonic()
        prepared = stack.enter_context(preparing.prepared())
        clusters = stack.enter_context(scene.clusters(TOPICS, partitions))
        runner = make_runner(_flows(clusters), None, {}, 60.0, spark=prepared.spark)
        streams = [
            Stream(alias, clusters[alias].confluent(), topic, partitions)
            for alias in ALIASES
            for topic in TOPICS[alias]
        ]
        events = Events(streams, rate)
        view = scene.view(output, report_seconds, rows.of_flows(), show.json_line)
        play = scene.Play(runner, events, stop, scene.FirstRecord(begun), lambda: _level(streams, clusters))
        caught_up = scene.perform(play, stack, "both flows", view, seconds)
        return 0 if caught_up is None else check(play, streams, clusters, caught_up)


command.add_command(hubspoke.command)


def _refuse_options(ctx: click.Context) -> None:
    """Options before the name would be this demo's, and silently without effect."""
    for name in ctx.params:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{option} goes behind the name: heliograph demo {ctx.invoked_subcommand} {option} …"
            )


def copies(streams: Sequence[Stream], clusters: Mapping[str, Kafka]) -> Iterator[tuple[Stream, Kafka, str]]:
    for stream in streams:
        other = next(alias for alias in ALIASES if alias != stream.cluster)
        remote = policy.make(Naming(), stream.cluster).remote_topic(stream.cluster, stream.topic)
        yield stream, clusters[other], remote


def _level(streams: Sequence[Stream], clusters: Mapping[str, Kafka]) -> bool:
    return all(
        compare.end_offsets(target.confluent(), remote) >= compare.end_offsets(stream.client, stream.topic)
        for stream, target, remote in copies(streams, clusters)
    )


def check(play: scene.Play, streams: Sequence[Stream], clusters: Mapping[str, Kafka], caught_up: bool) -> int:
    """Every topic compared with its copy. The summary goes to stdout; the code says whether the copy is right."""
    differences: list[Difference] = []
    compared, produced = 0, play.events.produced
    with scene.step(f"{produced:,} events produced; comparing every record with its copy"):
        for stream, target, remote in copies(streams, clusters):
            source = compare.read(stream.client, stream.topic)
            copy = compare.read(target.confluent(), remote) if compare.end_offsets(target.confluent(), remote) else {}
            compared += sum(map(len, source.values()))
            differences += compare.compare(f"{stream.cluster} {stream.topic}", source, copy)
    return scene.summarise(produced, compared, differences, caught_up, play.runner.status())


def _flows(clusters: Mapping[str, Kafka]) -> tuple[Flow, ...]:
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
            refresh_topics_interval_seconds=scene.REFRESH_S,
        )
        for source, target in ((us, eu), (eu, us))
    )
