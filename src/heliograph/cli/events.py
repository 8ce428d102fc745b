"""`heliograph events TOPIC [FILE] --cluster ALIAS`: sample events, to try things with. How they are made and sent is
`heliograph.messages`'."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heliograph.cli.logs import log_options
from heliograph.cli.moments import moment
from heliograph.cli.out import echo, echo_lines
from heliograph.cli.site import Site, site, site_options
from heliograph.cli.ticker import Ticker
from heliograph.errors import ConfigError

if TYPE_CHECKING:
    from heliograph.messages.producing import Order, Sent
    from heliograph.messages.sample import Recipe
    from heliograph.wire import Client, NewTopic

COUNT = 100
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MOST_BYTES = 64 << 20  # of a value: more than any broker takes as it comes
_SIZES = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


@click.command("events", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("topic")
@site_options
@click.option(
    "--count", type=click.IntRange(min=0), default=COUNT, show_default=True, help="How many; 0: until Ctrl-C."
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Events a second. [default: what goes]")
@click.option("--size", "sizes", default="100", show_default=True, metavar="N[-M]", help="Bytes of a value.")
@click.option("--keys", type=click.IntRange(min=0), default=100, show_default=True, help="Different keys; 0: none.")
@click.option("--headers", type=click.IntRange(0, 100), default=0, show_default=True, help="Made up, of each event.")
@click.option("--header", "own", multiple=True, metavar="NAME=TEXT", help="Of every event; may be repeated.")
@click.option("--values", "shape", type=click.Choice(["json", "text", "binary"]), default="json", show_default=True)
@click.option("--tombstones", type=click.FloatRange(0, 100), default=0, metavar="PERCENT", help="Without a value.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed makes the same events.")
@click.option("--first", type=click.IntRange(min=0), default=0, show_default=True, help="The first event's number.")
@click.option("--times-from", metavar="TIME", help="Their times: from then on, --rate a second, sent at once.")
@click.option("--codec", type=click.Choice(CODECS), default="none", show_default=True, help="How batches are packed.")
@click.option("--partition", type=click.IntRange(min=0), help="All into this one. [default: by key, as Kafka does]")
@click.option("--create", is_flag=True, help="Make the topic if it is not there.")
@click.option("--partitions", type=click.IntRange(1, 10_000), help="With --create: its partitions. [default: 1]")
@click.option("--replication-factor", type=click.IntRange(1, 100), help="With --create. [default: the broker's]")
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="With --create: a setting of the topic.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@log_options
def command(
    topic: str,
    file: Path | None,
    alias: str | None,
    bootstrap_server: str | None,
    lenient: bool,
    output: str,
    **options: Any,
) -> int:
    """Produce sample events to TOPIC on a cluster of FILE (mm2.properties), each once.

    Event number n of a seed is always the same, key, value and headers, to the byte; a second call with --first goes on
    where the first ended. Keys are unevenly spread, as customers are, and go where Kafka's default partitioner puts
    them.

    \b
    Examples:
      heliograph events orders --cluster us --create --partitions 3
      heliograph events orders --cluster us --count 100000 --rate 5000 --size 100-2000 --codec lz4
      heliograph events orders --cluster us --count 0 --rate 20 --header trace=abc      until Ctrl-C
      heliograph events history --cluster us --times-from -1d --rate 1 --count 86400
      heliograph events orders --bootstrap-server localhost:9092 --values binary --tombstones 5

    Exit codes: 0 all were sent (with --count 0 also by Ctrl-C), 1 the cluster refused some, 2 the file, a name or the
    cluster must be put right, 130 Ctrl-C before all were sent; what was sent is said in any case.
    """
    recipe, order, spec = _recipe(options), _order(options), _spec(topic, options)
    where = site(file, alias, bootstrap_server, lenient)
    _spare_internal(topic, where)
    return _produce(where, topic, recipe, order, spec, CODECS.index(options["codec"]), output)


# ---------------------------------------------------------------- what was asked


def _recipe(options: dict[str, Any]) -> Recipe:
    from heliograph.messages.sample import Recipe

    match = _SIZES.fullmatch(options["sizes"])
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if low > high or high > MOST_BYTES:
        raise click.BadParameter(
            f"{options['sizes']!r} is no size: write 100, or 100-2000, up to {MOST_BYTES:,} bytes", param_hint="--size"
        )
    own = tuple((name, text.encode()) for name, text in _pairs("--header", options["own"]))
    share = options["tombstones"] / 100
    return Recipe(options["seed"], (low, high), options["keys"], options["headers"], own, options["shape"], share)


def _order(options: dict[str, Any]) -> Order:
    from heliograph.messages.producing import Order

    from_ms = None
    if options["times_from"] is not None:
        try:
            begin = moment(options["times_from"], time.time_ns() // 1_000_000)
        except ValueError as problem:
            raise click.BadParameter(str(problem), param_hint="--times-from") from None
        if begin.at != "timestamp":
            raise click.BadParameter(f"{options['times_from']!r} is no time", param_hint="--times-from")
        from_ms = begin.value
    count, first, per_s, partition = (options[name] for name in ("count", "first", "rate", "partition"))
    if from_ms is None:
        return Order(count or None, first, per_s, partition)
    # A history is told, not lived through: the rate is that of their times.
    return Order(count or None, first, None, partition, from_ms, 1000 / per_s if per_s else 1.0)


def _spec(topic: str, options: dict[str, Any]) -> NewTopic | None:
    from heliograph.wire import NewTopic

    partitions, factor, configs = options["partitions"], options["replication_factor"], options["configs"]
    if not options["create"]:
        if partitions or factor or configs:
            raise click.UsageError("--partitions, --replication-factor and --config are about --create")
        return None
    return NewTopic(topic, partitions or 1, factor or -1, dict(_pairs("--config", configs)))


def _pairs(option: str, texts: Iterable[str]) -> list[tuple[str, str]]:
    pairs = [(name, text, equals) for name, equals, text in (one.partition("=") for one in texts)]
    for name, text, equals in pairs:
        if not name or not equals:
            raise click.BadParameter(f"{name + text!r} is not NAME=TEXT", param_hint=option)
    return [(name, text) for name, text, _ in pairs]


def _spare_internal(topic: str, where: Site) -> None:
    from heliograph.messages.meaning import kind_of

    kind = kind_of(topic, where.flows)
    if kind is not None or topic.startswith("__"):
        whose = f"{kind} records" if kind else "records of Kafka's own"
        raise ConfigError(f"{topic} holds {whose}: sample events would be strangers there. Name another topic")


# ---------------------------------------------------------------- what is done


def _produce(
    where: Site, topic: str, recipe: Recipe, order: Order, spec: NewTopic | None, codec: int, output: str
) -> int:
    from heliograph.messages import producing
    from heliograph.wire import Client

    with Client(where.cluster) as client:
        partitions = _partitions(client, topic, order, spec)
        sender = producing.Sender(client, topic, codec)
        course = Course(where.cluster.alias, topic, order, sender.sent)
        code = 0
        try:
            producing.run(sender, partitions, recipe, order, tick=course.ticker.tick)
        except KeyboardInterrupt:
            code = 0 if order.count is None else 130
        finally:
            course.ticker.clear()
            course.conclude(output)
        return code


def _partitions(client: Client, topic: str, order: Order, spec: NewTopic | None) -> int:
    """How many the topic has; made, if that is wanted."""
    from heliograph.messages import extent, producing

    if spec is not None and producing.make_topic(client, spec):
        echo(f"{topic} made on {client.alias}, partitions: {spec.partitions}", err=True)
    wanted = () if order.partition is None else (order.partition,)
    there = extent.partitions(client, topic, wanted, otherwise=" --create makes it")
    if order.partition is not None:
        return 1
    if spec is not None and spec.partitions > 1 and len(there) != spec.partitions:
        raise ConfigError(f"{topic} is on {client.alias} with {len(there)} partitions, not {spec.partitions}")
    return len(there)


class Course:
    """What is said while and after."""

    def __init__(self, alias: str, topic: str, order: Order, sent: Sent) -> None:
        self._alias, self._topic, self._order, self._sent = alias, topic, order, sent
        self._began_s = time.monotonic()
        self.ticker = Ticker(self._progress)

    def _took_s(self) -> float:
        return max(time.monotonic() - self._began_s, 1e-6)

    def _progress(self) -> str:
        sent, count = self._sent, self._order.count
        of = "" if count is None else f" of {count:,}"
        per_s = sent.events / self._took_s()
        text = f"… {self._topic} on {self._alias}: {sent.events:,}{of} events, {per_s:,.0f}/s"
        text += f", {sent.bytes / 1e6 / self._took_s():,.1f} MB/s"
        if count is not None and per_s:
            text += f", {max(count - sent.events, 0) / per_s:,.0f} s left"
        return text

    def conclude(self, output: str) -> None:
        sent, took_s = self._sent, self._took_s()
        per_s = sent.events / took_s
        if output == "json":
            offsets = {str(number): list(span) for number, span in sorted(sent.offsets.items())}
            about = {"cluster": self._alias, "topic": self._topic, "events": sent.events, "bytes": sent.bytes}
            echo(json.dumps({**about, "seconds": round(took_s, 3), "per_s": round(per_s, 1), "offsets": offsets}))
            return
        echo(
            f"{sent.events:,} events, {sent.bytes / 1e6:,.1f} MB to {self._topic} on {self._alias} in {took_s:.1f} s "
            f"({per_s:,.0f}/s)"
        )
        if sent.events and sys.stdout.isatty():
            echo_lines(_listed(sorted(sent.offsets.items())))


def _listed(spans: Sequence[tuple[int, tuple[int, int]]], most: int = 20) -> list[str]:
    lines = [f"  partition {number}: offsets {first} to {end - 1}" for number, (first, end) in spans[:most]]
    return [*lines, *([f"  and {len(spans) - most} more"] if len(spans) > most else [])]
