"""`heliograph demo hub-spoke`: a hub and its spokes, many topics through one, and back to where they belong.

Every spoke has the topics `topic` and `topic2`, which are chosen, and `nonreplicated`, which is not. The chosen ones
travel in one shared topic a spoke, and at the hub every record goes back into its own topic and partition. By a file as
one would write it for `run`, and checked record by record at the end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import click

from heliograph.cli import compare, homecoming, hubtable, preparing, scene, watch
from heliograph.cli.logs import log_options
from heliograph.cli.run import make_runner
from heliograph.cli.traffic import Events, Stream
from heliograph.embedded.kafka import Kafka

HUB = "hub"
CHOSEN, NOT_CHOSEN = ("topic", "topic2"), ("nonreplicated",)
TOPICS = (*NOT_CHOSEN, *CHOSEN)
MOST_SPOKES = 8  # a broker each, of some 400 MB
BROKER_CONFIG = {"auto.create.topics.enable": "false"}  # what is at the hub was put there by the flows
COMPARED = "key, value, own headers, the eight labels, timestamp, order"


@click.command("hub-spoke", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--spokes", "count", type=click.IntRange(1, MOST_SPOKES), default=2, show_default=True, help="How many.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    help="Produce so long after the first record came over, then check the hub and end.",
)
@click.option(
    "--rate", type=click.IntRange(1, 100_000), default=3_000, show_default=True, help="Events a second in all."
)
@click.option("--partitions", type=click.IntRange(1, 64), default=3, show_default=True, help="Of each topic.")
@click.option(
    "--via",
    type=click.Choice(["intermediate", "straight"]),
    default="intermediate",
    show_default=True,
    help="Where the shared topics are: on the spoke, and copied over; or on the hub at once.",
)
@scene.view_options
@log_options
def command(
    count: int, seconds: float | None, rate: int, partitions: int, via: str, output: str, report_seconds: float
) -> int:
    """A hub and embedded spokes: each spoke's `topic` and `topic2` travel in one topic, `nonreplicated` stays.

    On a terminal a live table shows each spoke. Needs Java >= 17; Kafka's jars are fetched the first time. Leaves
    nothing behind.

    \b
    Examples:
      heliograph demo hub-spoke                            two spokes, until Ctrl-C
      heliograph demo hub-spoke --spokes 3 --seconds 20    ends by itself and compares every record
      heliograph demo hub-spoke --via straight             without a second copy on the spokes

    Exit codes: 0 every record came to its place once and unchanged, with its labels (or Ctrl-C), 1 it did not,
    2 Java is missing.
    """
    from heliograph.config.load import parse

    names = [f"spoke{number}" for number in range(1, count + 1)]
    with watch.stopping(scene.STOP_S) as stop, ExitStack() as stack:
        begun = time.monotonic()
        topics: dict[str, Sequence[str]] = {HUB: (), **dict.fromkeys(names, TOPICS)}
        prepared = stack.enter_context(preparing.prepared())
        clusters = stack.enter_context(scene.clusters(topics, partitions, BROKER_CONFIG))
        flows = parse(file_of(clusters, via).encode(), "the demo's file").flows
        runner = make_runner(flows, None, {}, 60.0, spark=prepared.spark)
        streams = [Stream(name, clusters[name].confluent(), topic, partitions) for name in names for topic in TOPICS]
        events = Events(streams, rate)
        steps = hubtable.steps_of(flows)

        def look() -> list[hubtable.Row]:
            reports = runner.report()
            return [hubtable.row(one, _produced(events, streams, one.spoke), reports) for one in steps]

        board = hubtable.Board(look)
        first = scene.FirstRecord(begun, lambda status: status.name == steps[0].demux and status.records > 0)
        play = scene.Play(runner, events, stop, first, lambda: _level(streams, clusters))
        view = scene.view(output, report_seconds, board.rows(), board.line, draw=board.draw)
        prepared.await_kernels(stop)
        caught_up = scene.perform(play, stack, f"{len(flows)} flows", view, seconds)
        return 0 if caught_up is None else check(play, streams, clusters, caught_up)


def file_of(clusters: Mapping[str, Kafka], via: str) -> str:
    """The mm2.properties of this demo."""
    names = [alias for alias in clusters if alias != HUB]
    lines = [f"clusters = {', '.join((*names, HUB))}"]
    lines += [f"{alias}.bootstrap.servers = {kafka.bootstrap}" for alias, kafka in clusters.items()]
    lines += [f"{one}replication.factor = 1" for one in ("", "offset.storage.")]
    lines += [f"{one}.topic.replication.factor = 1" for one in ("offset-syncs", "checkpoints", "heartbeats")]
    lines += [
        "emit.heartbeats.enabled = false",  # only what the picture is about
        "tasks.max = 1",
        f"refresh.topics.interval.seconds = {scene.REFRESH_S:.0f}",
    ]
    for name in names:
        pair = f"{name}->{HUB}"
        lines += [f"{pair}.enabled = true", f"{pair}.mux.topics = {', '.join(CHOSEN)}"]
        lines += [f"{pair}.mux.via = {via}", f"{pair}.demux = original"]
    return "\n".join(lines) + "\n"


def _produced(events: Events, streams: Sequence[Stream], spoke: str | None = None) -> int:
    """To the chosen topics, of one spoke or of all."""
    return sum(
        events.produced_to(index)
        for index, stream in enumerate(streams)
        if stream.topic in CHOSEN and spoke in (None, stream.cluster)
    )


def _level(streams: Sequence[Stream], clusters: Mapping[str, Kafka]) -> bool:
    hub = clusters[HUB].confluent()
    for topic in CHOSEN:
        produced = sum(compare.end_offsets(one.client, topic) for one in streams if one.topic == topic)
        if compare.end_offsets(hub, topic) < produced:
            return False
    return True


def check(play: scene.Play, streams: Sequence[Stream], clusters: Mapping[str, Kafka], caught_up: bool) -> int:
    """Every spoke's records looked for at the hub. The summary goes to stdout; the code says whether they are there."""
    produced = _produced(play.events, streams)
    asked = {
        homecoming.Spoke(alias, kafka.bootstrap, f"mux-replication_{alias}", kafka.cluster_id): kafka.confluent()
        for alias, kafka in clusters.items()
        if alias != HUB
    }
    with scene.step(f"{produced:,} events produced; comparing every record with its copy"):
        compared, wrong = homecoming.check(asked, clusters[HUB].confluent(), CHOSEN, NOT_CHOSEN)
    return scene.summarise(produced, compared, wrong, caught_up, play.runner.status(), COMPARED)
