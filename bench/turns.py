"""One peer's turn at a scenario: launched, watched until it is done or its time is up, stopped, judged.

Nothing a peer says about itself is used: progress is the target's end offsets, CPU and memory are the kernel's.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from bench import limit
from bench.load import Loaded
from bench.measure import Tree, copy_window, median, percentile, percentiles, value_at
from bench.peers import Job, launched
from bench.results import EXACT, Row
from bench.rig import Rig
from bench.scenarios import LIMIT, Scenario
from bench.stream import Sink, Source
from bench.watch import differences, verdict
from heliograph.embedded.process import Process

POLL_S = 0.05
START_LIMIT_S = 150  # for the first record
SETTLE_S = 1.0  # after the last record: a copier that doubles has the time to show it
DRAIN_S = 20  # how long the last records of a stream may be under way
WARM_S = 10  # of a stream before its latency counts

Say = Callable[[str, float], None]  # what is going on, and the share done


def job_of(rig: Rig, scenario: Scenario, topic: str, peer: str, run: int, folder: Path) -> Job:
    alias = f"{scenario.name}-{peer}-{run}"
    return Job(peer, alias, topic, rig.source.copier, rig.target.copier, scenario, folder)


def copy(rig: Rig, job: Job, loaded: Loaded, run: int, say: Say) -> Row:
    """A full topic copied from its start."""
    total, partitions = loaded.records, len(loaded.ends)
    began = time.monotonic()
    progress: list[tuple[float, float]] = [(began, 0)]
    deadline = began + START_LIMIT_S
    with launched(job) as process, Tree(process.pid) as tree:
        while progress[-1][1] < total and time.monotonic() < deadline and process.running:
            time.sleep(POLL_S)
            progress.append((time.monotonic(), sum(rig.target.watch.ends(job.remote, partitions))))
            if progress[-2][1] == 0 < progress[-1][1]:
                deadline = time.monotonic() + job.scenario.limit_s
            say("copies", progress[-1][1] / total)
        finished = progress[-1][1] >= total
        if finished:
            time.sleep(SETTLE_S)
        elif progress[-1][1] == 0:
            return Row(job.peer, run, "did not start", note=last_words(process))
    judged = verdict(loaded.ends, rig.target.watch.ends(job.remote, partitions), finished)
    if judged == EXACT:
        say("is compared", 1)
        judged = differences(rig.source.watch, job.topic, rig.target.watch, job.remote, loaded.ends) or EXACT
    return Row(job.peer, run, judged, copy_figures(progress, tree, loaded, began))


def copy_figures(progress: list[tuple[float, float]], tree: Tree, loaded: Loaded, began: float) -> dict[str, float]:
    figures = {"peak_mb": tree.peak_mb, "copied": progress[-1][1]}
    first = next((when for when, count in progress if count > 0), None)
    if first is not None:
        figures["first_record_s"] = first - began
    window = copy_window(progress, loaded.records)
    if window is None:
        return figures
    cpu_s = value_at(tree.cpu, window.end_s) - value_at(tree.cpu, window.begin_s)
    return figures | {
        "records_per_s": window.records_per_s,
        "mb_per_s": window.records_per_s * loaded.bytes / loaded.records / 1e6,
        "cpu_us_window": cpu_s / window.records * 1e6,
        "cpu_us_whole": value_at(tree.cpu, window.end_s) / min(progress[-1][1], loaded.records) * 1e6,
        "total_s": window.end_s - began,
    }


def bare_loops(rig: Rig, job: Job, loaded: Loaded, run: int, say: Say, records: int | None = None) -> Row:
    """The limit's turn (see `limit`); with `records`, a shorter one to warm the brokers."""
    say("runs its two loops", 0)
    partitions = len(loaded.ends)
    rig.target.watch.create(job.remote, partitions)
    clusters = (rig.source.cluster, rig.target.cluster)
    loops = limit.run(*clusters, job.topic, job.remote, partitions, records or loaded.records)
    slower = min(loops.values(), key=lambda loop: loop.records_per_s)
    figures = {
        "records_per_s": slower.records_per_s,
        "mb_per_s": slower.records_per_s * loaded.bytes / loaded.records / 1e6,
        "cpu_us_window": sum(loop.cpu_us for loop in loops.values()),
        "total_s": slower.total_s,
    }
    note = ", ".join(f"{name} {loop.records_per_s:,.0f} records/s" for name, loop in sorted(loops.items()))
    return Row(LIMIT, run, EXACT, figures, note)


def stream(rig: Rig, job: Job, run: int, say: Say) -> Row:
    """Records at a steady rate while the peer runs; how late are they on the target?"""
    scenario = job.scenario
    source, target = rig.source.watch, rig.target.watch
    began = time.monotonic()
    with launched(job) as process, Tree(process.pid) as tree:
        if not target.await_topic(job.remote, scenario.partitions, START_LIMIT_S):
            return Row(job.peer, run, "did not start", note=last_words(process))
        feed = Source(source, job.topic, scenario.partitions, scenario.rate_per_s, scenario.value_bytes)
        with Sink(target, job.remote, scenario.partitions) as sink, feed:
            await_(lambda: bool(sink.arrivals), began + START_LIMIT_S)
            counts_from, ended = streamed(feed, scenario.seconds, process, say)
            await_(lambda: len(sink.arrivals) >= feed.sent, time.monotonic() + DRAIN_S)
    expected, actual = (w.ends(t, scenario.partitions) for w, t in ((source, job.topic), (target, job.remote)))
    finished = len(sink.arrivals) >= feed.sent
    return Row(job.peer, run, verdict(expected, actual, finished), _stream_figures(sink, tree, counts_from, ended))


def streamed(
    feed: Source, seconds: float, process: Process, say: Say, *, warm_s: float = WARM_S
) -> tuple[float, float]:
    """At the full rate, for so long after it has warmed up, or until the copier ends; from when to when it counts."""
    feed.full()
    begins = time.monotonic() + min(warm_s, seconds / 4)
    ends = begins + seconds
    while time.monotonic() < ends and process.running:
        say("streams", max(0.0, 1 - (ends - time.monotonic()) / seconds))
        time.sleep(0.5)
    feed.finish()
    return begins, min(time.monotonic(), ends)


def _stream_figures(sink: Sink, tree: Tree, begin_s: float, end_s: float) -> dict[str, float]:
    # By the moment of sending: what was sent while the copier still started says nothing of its latency.
    late = [ms for when, ms in sink.arrivals if begin_s <= when - ms / 1e3 <= end_s]
    figures = {"peak_mb": tree.peak_mb, "measured": float(len(late))}
    if not late:
        return figures
    tenth_s = (end_s - begin_s) / 10
    early, last = (
        sorted(ms for when, ms in sink.arrivals if since <= when - ms / 1e3 <= since + tenth_s)
        for since in (begin_s + tenth_s, end_s - tenth_s)
    )
    steady = [mb for when, mb in tree.memory if begin_s <= when <= end_s]
    cpu_s = value_at(tree.cpu, end_s) - value_at(tree.cpu, begin_s)
    return figures | percentiles(late) | {
        "max_ms": max(late),
        "p99_drift": percentile(last, 99) / max(percentile(early, 99), 1.0),
        "steady_mb": median(steady) if steady else tree.peak_mb,
        "cpu_us_window": cpu_s / len(late) * 1e6,
    }  # fmt: skip


def start(rig: Rig, job: Job, loaded: Loaded, run: int, say: Say) -> Row:
    """From launching the command to the first record on the target."""
    partitions = len(loaded.ends)
    began = time.monotonic()
    first = None
    with launched(job) as process, Tree(process.pid) as tree:
        while first is None and time.monotonic() < began + START_LIMIT_S and process.running:
            time.sleep(POLL_S / 2)
            if sum(rig.target.watch.ends(job.remote, partitions)):
                first = time.monotonic()
            say("starts", 0)
        if first is None:
            return Row(job.peer, run, "did not start", note=last_words(process))
        everything = first + job.scenario.limit_s
        finished = await_(lambda: rig.target.watch.ends(job.remote, partitions) == loaded.ends, everything)
    judged = verdict(loaded.ends, rig.target.watch.ends(job.remote, partitions), finished)
    figures = {"first_record_s": first - began, "cpu_s": value_at(tree.cpu, first), "peak_mb": tree.peak_mb}
    return Row(job.peer, run, judged, figures)


def clear(rig: Rig, job: Job) -> None:
    """Removes what a turn left on the clusters, and lets the disk come to rest: the next peer starts even."""
    ours = [t for t in rig.target.watch.topics() if t.startswith(f"{job.alias}.") or f".{job.alias}." in t]
    rig.target.watch.delete([*ours, "heartbeats"])
    internal = [t for t in rig.source.watch.topics() if t.startswith("mm2-") or t == "heartbeats" or ".heartbeats" in t]
    rig.source.watch.delete(internal)
    os.sync()


def await_(condition: Callable[[], bool], deadline: float) -> bool:
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def last_words(process: Process) -> str:
    lines = [line.strip() for line in process.last_lines(5).splitlines() if line.strip()]
    # Results are committed: no folders of this machine in them.
    return re.sub(r"(?:/[\w.+-]+)+/", "…/", lines[-1])[:300] if lines else "it said nothing"
