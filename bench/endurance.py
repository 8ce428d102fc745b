"""An hour, or as long as is asked, at half the maximum rate: memory, descriptors and latency, minute by minute.

The maximum is measured first, by copying a full topic. Then a process of its own appends batches at half of that rate
to a topic that keeps little (`retention.bytes`), and records at a low rate go to a second topic of the same flow: how
late those are is the latency under that load. What grows shows between the first tenth, when JVM and caches have
settled, and the end.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import TYPE_CHECKING

from bench.batches import Appender, Batch
from bench.load import Loaded, templates
from bench.measure import Tree, median, percentile
from bench.peers import Job, launched
from bench.results import EXACT, Row
from bench.rig import Rig
from bench.stream import Sink, Source
from bench.turns import START_LIMIT_S, Say, await_, clear, copy, last_words
from bench.watch import verdict
from heliograph.types import Cluster

if TYPE_CHECKING:
    Counter = Synchronized[int]

MINUTE_S = 60.0
SHARE = 0.5  # of the maximum
SLICE_S = 0.5  # batches get a fresh time this often
DRAIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Minute:
    """What was seen of one minute."""

    minute: int
    records_per_s: float  # written to the source
    lag_records: int  # at its end
    memory_mb: float
    descriptors: int
    p50_ms: float
    p99_ms: float


def soak(rig: Rig, job: Job, loaded: Loaded, run: int, say: Say, plot: Path) -> Row:
    first = replace(job, alias=f"{job.alias}-max", scenario=replace(job.scenario, kind="copy"))
    fastest = copy(rig, first, loaded, run, say)
    clear(rig, first)
    rate = fastest.figures.get("records_per_s", 0.0) * SHARE
    if fastest.verdict != EXACT or rate <= 0:
        return Row(job.peer, run, f"no maximum: {fastest.verdict}", note=fastest.note)
    batches = templates(rig.source.watch, rig.source.cluster, job.scenario)
    steady = replace(job, topic=f"{job.topic}-steady")
    partitions = job.scenario.partitions
    rig.source.watch.create(steady.topic, partitions, dict(job.scenario.topic_config))
    rig.source.watch.create(steady.live, 1)
    try:
        return _stream(rig, steady, batches, rate, run, say, plot)
    finally:
        rig.source.watch.delete([steady.topic, steady.live])


def _stream(rig: Rig, job: Job, batches: list[Batch], rate: float, run: int, say: Say, plot: Path) -> Row:
    source, target, partitions = rig.source.watch, rig.target.watch, job.scenario.partitions
    minutes: list[Minute] = []
    with launched(job) as process, Tree(process.pid) as tree:
        if not target.await_topic(job.remote_live, 1, START_LIMIT_S):
            return Row(job.peer, run, "did not start", note=last_words(process))
        probe = Source(source, job.live, 1, job.scenario.rate_per_s, job.scenario.value_bytes)
        with Sink(target, job.remote_live, 1) as sink, probe, Load(rig.source.cluster, job, batches, rate) as load:
            probe.full()
            began, before = time.monotonic(), 0
            count = max(round(job.scenario.seconds / MINUTE_S), 1)
            for minute in range(1, count + 1):
                while time.monotonic() < began + minute * MINUTE_S and process.running and load.running:
                    time.sleep(0.5)
                    say(f"minute {minute} of {count}", (time.monotonic() - began) / (count * MINUTE_S))
                if not process.running or not load.running:
                    break
                written = load.sent
                lag = sum(source.ends(job.topic, partitions)) - sum(target.ends(job.remote, partitions))
                minutes.append(_minute(minute, (written - before) / MINUTE_S, lag, tree, sink, began))
                before = written
                _keep(minutes, plot)
        ended = await_(
            lambda: target.ends(job.remote, partitions) == source.ends(job.topic, partitions),
            time.monotonic() + DRAIN_S,
        )
        arrived = await_(lambda: len(sink.arrivals) >= probe.sent, time.monotonic() + 1)
        alive = process.running
    judged = verdict(source.ends(job.topic, partitions), target.ends(job.remote, partitions), ended and arrived)
    note = "" if alive else f"ended by itself: {last_words(process)}"
    return Row(job.peer, run, judged, figures(minutes, sink.arrivals), note)


def _minute(minute: int, rate: float, lag: int, tree: Tree, sink: Sink, began: float) -> Minute:
    since, until = began + (minute - 1) * MINUTE_S, began + minute * MINUTE_S
    late = sorted(ms for when, ms in list(sink.arrivals) if since <= when < until)
    memory = [mb for when, mb in list(tree.memory) if since <= when < until]
    return Minute(
        *(minute, rate, lag, median(memory) if memory else 0.0, tree.descriptors()),
        *(percentile(late, 50), percentile(late, 99)),
    )


def figures(minutes: Sequence[Minute], arrivals: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Early: the second tenth of the minutes (the first is the start). Late: the last one."""
    if not minutes:
        return {}
    tenth = max(len(minutes) // 10, 1)
    early = minutes[tenth : 2 * tenth] or minutes[:1]
    late = minutes[-tenth:]
    ordered = sorted(ms for _, ms in arrivals)
    memory = [median([one.memory_mb for one in part]) for part in (early, late)]
    descriptors = [median([float(one.descriptors) for one in part]) for part in (early, late)]
    p99 = [median([one.p99_ms for one in part]) for part in (early, late)]
    return {
        "minutes": float(len(minutes)),
        "records_per_s": median([one.records_per_s for one in minutes]),
        "p50_ms": percentile(ordered, 50),
        "p99_ms": percentile(ordered, 99),
        "p99_early_ms": p99[0],
        "p99_late_ms": p99[1],
        "p99_drift": p99[1] / max(p99[0], 1.0),
        "memory_early_mb": memory[0],
        "memory_late_mb": memory[1],
        "memory_growth_percent": (memory[1] / memory[0] - 1) * 100 if memory[0] else 0.0,
        "descriptors_early": descriptors[0],
        "descriptors_late": descriptors[1],
        "descriptor_growth": descriptors[1] - descriptors[0],
        "lag_records": float(minutes[-1].lag_records),
    }


# ---- the load ----------------------------------------------------------------------------------------------------


class Load:
    """A process that appends batches at a steady rate until the block ends."""

    def __init__(self, cluster: Cluster, job: Job, batches: list[Batch], rate: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._count: Counter = context.Value("q", 0)
        self._stop = context.Event()
        arguments = (cluster, job.topic, job.scenario.partitions, batches, rate, self._count, self._stop)
        self._process = context.Process(target=append_steadily, args=arguments, daemon=True)

    @property
    def sent(self) -> int:
        return int(self._count.value)

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    def __enter__(self) -> Load:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._process.join(30)


def append_steadily(
    cluster: Cluster,
    topic: str,
    partitions: int,
    batches: list[Batch],
    rate: float,
    count: Counter,
    stop: Event,
) -> None:
    """`rate` records a second, in slices with a fresh time each. A slice that was late is made up for by the next."""
    appender, supply = Appender(cluster, topic, partitions), itertools.cycle(batches)
    began, sent = time.monotonic(), 0

    def next_batch(_: int) -> Batch | None:
        nonlocal sent
        if sent >= (time.monotonic() - began) * rate:
            return None
        batch = next(supply)
        sent += batch.count
        return batch

    while not stop.is_set():
        appender.run(next_batch, now_ms=time.time_ns() // 1_000_000)
        count.value = sent
        stop.wait(min(max(sent / rate - (time.monotonic() - began), 0.005), SLICE_S))
    appender.close()


# ---- kept --------------------------------------------------------------------------------------------------------


def _keep(minutes: Sequence[Minute], plot: Path) -> None:
    """After every minute, so that a soak that is broken off leaves what it saw."""
    raw = plot.parent / "out" / "soak.json"
    raw.parent.mkdir(parents=True, exist_ok=True)
    raw.write_text(json.dumps([asdict(one) for one in minutes], indent=1) + "\n", encoding="utf-8")
    draw(minutes, plot)


def draw(minutes: Sequence[Minute], path: Path) -> None:
    """Latency, memory and descriptors over the minutes, one above the other."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "heliograph"  # the same minutes give the same file
    matplotlib.rcParams["svg.fonttype"] = "none"
    at = [one.minute for one in minutes]
    figure, axes = plt.subplots(3, 1, figsize=(7, 6), sharex=True)
    axes[0].plot(at, [one.p99_ms for one in minutes], color="#e08a1e", label="p99")
    axes[0].plot(at, [one.p50_ms for one in minutes], color="#7d8ca3", label="p50")
    axes[0].legend(fontsize=7, frameon=False)
    axes[1].plot(at, [one.memory_mb for one in minutes], color="#3b3b3b")
    axes[2].plot(at, [one.descriptors for one in minutes], color="#3b3b3b")
    for axis, what in zip(axes, ("latency, ms", "memory, MB", "descriptors"), strict=True):
        axis.set_ylabel(what, fontsize=8)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("minute", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
