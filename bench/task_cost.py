"""`python -m bench.task_cost`: what copying a batch costs one task in CPU; without Spark.

Batches as a stock Java producer makes them, 130 records and some 13 KB each. A task in a process of its own
(`bench.task_run`) copies a topic of them, several times over; the median counts. CPU seconds, not seconds: the machine
may be busy. A backlog is there before the task starts; with `--live` so many batches a second come while it runs.

The clusters are models (`bench.model_broker`), which cost little; with `--kafka` they are embedded brokers, and what a
batch costs these is said too. `--against DIR` measures the sources of another checkout in turn with these.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import click

from bench.batches import Appender, Batch, connect
from bench.load import value
from bench.measure import median
from bench.model_broker import LOOPBACK, Stock, serve
from bench.rig import BROKER_CONFIG
from bench.task_run import Order
from bench.watch import Watch
from heliograph.batch import Record, encode
from heliograph.batch.codec import NAMES
from heliograph.embedded.broker import SERVER_JVM
from heliograph.embedded.kafka import Kafka, running
from heliograph.wire.produce import produce_request

RECORDS = 130  # of a batch
BATCH_BYTES = 13_000
TEMPLATES = 200
HERE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Load:
    codec: str
    partitions: int
    batches: int
    live_per_s: float  # 0: a backlog

    def stock(self) -> list[Batch]:
        """Distinct batches of about BATCH_BYTES as they are stored."""
        chance = random.Random(7)
        size = BATCH_BYTES // RECORDS - 20
        if self.codec != "none":
            size = size * 7 // 4  # about what the codecs make of these records
        made = []
        for _ in range(TEMPLATES):
            keys = [b"user-%06d" % chance.randrange(200_000) for _ in range(RECORDS)]
            records = [Record(n, 1, key, value(chance, size)[:size]) for n, key in enumerate(keys)]
            made.append(Batch(encode(records, codec=NAMES.index(self.codec)), RECORDS))
        return made


@dataclass(frozen=True, slots=True)
class Cost:
    """In µs of CPU for each batch of the source."""

    task_us: float
    source_us: float
    target_us: float
    merged: float  # batches of the source in one of the target
    in_request: float  # batches of the target in one request
    peak_mb: float

    @classmethod
    def of(cls, found: dict[str, Any]) -> Cost:
        first, last = found["first"], found["last"]
        moved = {name: last[name] - first[name] for name in last}
        batches = max(moved["records"] / RECORDS, 1)
        cpu = [moved[name] / batches * 1e6 for name in ("task_s", "source_s", "target_s")]
        sent = max(moved["batches"], 1)
        return cls(*cpu, batches / sent, sent / max(moved["requests"], 1), found["peak_mb"])


class Stand(Protocol):
    """Two clusters and a topic between them."""

    def order(self, runs: int) -> Order:
        """So many copies of it."""
        ...


class AtModels:
    def __init__(self, load: Load) -> None:
        self._load, self._stock = load, [one.data for one in load.stock()]
        self._model: Any = None

    def order(self, runs: int) -> Order:
        self.close()
        load, (ours, theirs) = self._load, multiprocessing.Pipe()
        each = load.batches // load.partitions
        stock = Stock(self._stock, each, per_s=load.live_per_s, partitions=load.partitions)
        context = multiprocessing.get_context("spawn")
        self._model = context.Process(target=serve, args=(load.partitions, stock, theirs), daemon=True)
        self._model.start()
        source, target = (f"{LOOPBACK}:{port}" for port in ours.recv())
        ends = [each * RECORDS] * load.partitions
        remotes = [f"a.events.{n}" for n in range(runs)]
        return Order(source, target, "events", remotes, load.partitions, ends, "positions", "map", model=True)

    def close(self) -> None:
        if self._model is not None:
            self._model.terminate()
            self._model.join()


class AtKafka:
    def __init__(self, load: Load, source: Kafka, target: Kafka, name: str) -> None:
        self._load, self._stock, self._name, self._copies = load, load.stock(), name, 0
        self._source, self._target = source, target
        self._watches = [Watch(one.confluent(), one.cluster()) for one in (source, target)]
        for topic in ("positions", "map"):
            self._watches[1].create(f"{topic}-{name}", 1)
        self._topic = self._create()
        if not load.live_per_s:
            self._fill()

    def _create(self) -> str:
        topic = f"{self._name}-{self._copies}"
        self._watches[0].create(topic, self._load.partitions)
        return topic

    def _fill(self) -> None:
        left = [self._load.batches // self._load.partitions] * self._load.partitions

        def supply(partition: int) -> Batch | None:
            if not left[partition]:
                return None
            left[partition] -= 1
            return self._stock[(left[partition] * 7 + partition) % len(self._stock)]

        appender = Appender(self._source.cluster(), self._topic, self._load.partitions)
        appender.run(supply, now_ms=time.time_ns() // 1_000_000)
        appender.close()

    def order(self, runs: int) -> Order:
        load = self._load
        remotes = [f"copy.{self._name}-{n}" for n in range(self._copies, self._copies + runs)]
        self._copies += runs
        if load.live_per_s:
            self._topic = self._create()
            threading.Thread(target=self._trickle, args=(self._topic,), daemon=True).start()
        for remote in remotes:
            self._watches[1].create(remote, load.partitions)
        ends = [load.batches // load.partitions * RECORDS] * load.partitions
        return Order(
            self._source.bootstrap, self._target.bootstrap, self._topic, remotes, load.partitions, ends,
            f"positions-{self._name}", f"map-{self._name}", self._source.brokers[0].pid, self._target.brokers[0].pid,
        )  # fmt: skip

    def _trickle(self, topic: str) -> None:
        """One batch a request, each to the next partition, evenly in time."""
        load, connection = self._load, connect(self._source.cluster())
        version, began = connection.version("produce"), time.monotonic()
        for n in range(load.batches):
            time.sleep(max(began + n / load.live_per_s - time.monotonic(), 0.0))
            batch = self._stock[n % len(self._stock)].data
            connection.call(produce_request(version, [(topic, n % load.partitions, batch)]))
        connection.close()


def copied(order: Order, code: Path) -> list[Cost]:
    """By the sources in this checkout."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.task_run"], input=json.dumps(asdict(order)), cwd=HERE, text=True, check=True,
        env={**os.environ, "PYTHONPATH": f"{code / 'src'}{os.pathsep}{HERE}"}, stdout=subprocess.PIPE,
    )  # fmt: skip
    return [Cost.of(one) for one in json.loads(done.stdout.splitlines()[-1])]


@contextmanager
def stands(loads: list[Load], *, kafka: bool) -> Iterator[list[Stand]]:
    """One for each load."""
    if not kafka:
        models = [AtModels(load) for load in loads]
        try:
            yield list(models)
        finally:
            for model in models:
                model.close()
        return
    source, target = (Kafka(name, config=BROKER_CONFIG, jvm=SERVER_JVM) for name in ("source", "target"))
    with running(source, target):
        warm = AtKafka(replace(loads[0], live_per_s=0.0), source, target, "warm")
        copied(warm.order(2), HERE)
        yield [AtKafka(load, source, target, load.codec) for load in loads]


@click.command()
@click.option("--codec", "codecs", multiple=True, default=("none", "lz4"), type=click.Choice(NAMES), show_default=True)
@click.option("--partitions", default=4, show_default=True)
@click.option("--batches", default=16_000, show_default=True)
@click.option("--live", default=0.0, help="Batches a second; 0: a backlog.")
@click.option("--runs", default=5, show_default=True)
@click.option("--kafka", is_flag=True, help="Embedded brokers in the place of models.")
@click.option("--against", type=click.Path(exists=True, path_type=Path), help="Another checkout.")
@click.option("--profile", default="", help="Once more under cProfile, its figures into this file.")
def main(
    codecs: tuple[str, ...], partitions: int, batches: int, live: float, runs: int, kafka: bool, against: Path | None,
    profile: str,
) -> None:  # fmt: skip
    """Print the CPU of a task, and of both brokers, for each batch of 130 records."""
    codes = [HERE] if against is None else [against.resolve(), HERE]
    loads = [Load(codec, partitions, batches, live) for codec in codecs]
    with stands(loads, kafka=kafka) as places:
        for load, place in zip(loads, places, strict=True):
            for code in codes:
                # What is live is over after one copy.
                costs = [cost for _ in range(runs) for cost in copied(place.order(1), code)] if live else []
                costs = costs or copied(place.order(runs), code)
                click.echo(f"{load.codec}, {'here' if code == HERE else code}: {_in_words(costs)}")
            if profile:
                copied(replace(place.order(1), profile=f"{profile}.{load.codec}"), HERE)


def _in_words(costs: list[Cost]) -> str:
    def of(name: str) -> str:
        values = sorted(getattr(one, name) for one in costs)
        return f"{median(values):.1f} ({values[0]:.1f}-{values[-1]:.1f})"

    brokers = f", source {of('source_us')}, target {of('target_us')}" if costs[0].target_us else ""
    return (
        f"task {of('task_us')} µs a batch{brokers}; {of('merged')} batches merged into one, {of('in_request')} in a"
        f" request; peak {of('peak_mb')} MB"
    )


if __name__ == "__main__":
    main()
