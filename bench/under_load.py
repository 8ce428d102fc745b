"""Two turns about what a flow does besides going as fast as it can: live records beside history, and a cap."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.load import Loaded
from bench.measure import Series, Tree, percentiles, value_at
from bench.peers import Job, launched
from bench.results import EXACT, Row
from bench.rig import Rig
from bench.stream import Sink, Source
from bench.turns import DRAIN_S, POLL_S, START_LIMIT_S, Say, await_, last_words
from bench.watch import verdict
from heliograph.types import TopicPartition
from heliograph.wire import Client

CAP_WINDOW_S = 30.0
CAP_POLL_S = 0.25
SETTLE_S = 2.0  # under a cap, before it counts: the first second of a start is not the cap's


def beside(rig: Rig, job: Job, loaded: Loaded, run: int, say: Say) -> Row:
    """A full topic copied from its start while records arrive in another one: how late are those meanwhile?"""
    scenario, target = job.scenario, rig.target.watch
    total, partitions = loaded.records, len(loaded.ends)
    rig.source.watch.create(job.live, partitions)
    progress: list[tuple[float, float]] = [(time.monotonic(), 0)]
    try:
        with launched(job) as process, Tree(process.pid) as tree:
            if not target.await_topic(job.remote_live, partitions, START_LIMIT_S):
                return Row(job.peer, run, "did not start", note=last_words(process))
            feed = Source(rig.source.watch, job.live, partitions, scenario.rate_per_s, scenario.value_bytes)
            with Sink(target, job.remote_live, partitions) as sink, feed:
                feed.full()
                deadline = time.monotonic() + scenario.limit_s
                while progress[-1][1] < total and time.monotonic() < deadline and process.running:
                    time.sleep(POLL_S)
                    progress.append((time.monotonic(), sum(target.ends(job.remote, partitions))))
                    say("copies history", progress[-1][1] / total)
                feed.finish()
                arrived = await_(lambda: len(sink.arrivals) >= feed.sent, time.monotonic() + DRAIN_S)
        judged = verdict(loaded.ends, target.ends(job.remote, partitions), progress[-1][1] >= total)
        live = verdict(rig.source.watch.ends(job.live, partitions), target.ends(job.remote_live, partitions), arrived)
        return Row(job.peer, run, judged if judged != EXACT else live, _beside_figures(progress, sink, tree, loaded))
    finally:
        rig.source.watch.delete([job.live])


def _beside_figures(progress: Series, sink: Sink, tree: Tree, loaded: Loaded) -> dict[str, float]:
    begin = next((when for when, count in progress if count > 0), progress[-1][0])
    end = next((when for when, count in progress if count >= progress[-1][1]), progress[-1][0])
    late = [ms for when, ms in sink.arrivals if begin <= when - ms / 1e3 <= end]
    figures = {"peak_mb": tree.peak_mb, "measured": float(len(late)), "history_s": end - begin}
    if end > begin:
        figures["mb_per_s"] = progress[-1][1] * loaded.bytes / loaded.records / 1e6 / (end - begin)
    return figures | percentiles(late) | {"max_ms": max(late)} if late else figures


def cap(rig: Rig, job: Job, loaded: Loaded, run: int, say: Say) -> Row:
    """A full topic under a cap: by the bytes in the target's log, how near to it is every half minute?"""
    scenario, partitions = job.scenario, len(loaded.ends)
    tps = [TopicPartition(job.remote, partition) for partition in range(partitions)]
    sizes: list[tuple[float, float]] = []
    with launched(job) as process, Client(rig.target.cluster) as client:
        deadline = time.monotonic() + START_LIMIT_S
        await_(lambda: not process.running or sum(rig.target.watch.ends(job.remote, partitions)) > 0, deadline)
        if not sum(rig.target.watch.ends(job.remote, partitions)):
            return Row(job.peer, run, "did not start", note=last_words(process))
        time.sleep(SETTLE_S)
        ends = time.monotonic() + scenario.seconds
        while time.monotonic() < ends and process.running:
            time.sleep(CAP_POLL_S)
            asked = time.monotonic()
            found = [size for size in client.log_sizes(tps).values() if isinstance(size, int)]
            if len(found) == partitions:
                sizes.append(((asked + time.monotonic()) / 2, float(sum(found))))
            say("is held back", 1 - (ends - time.monotonic()) / scenario.seconds)
    if sizes and sizes[-1][1] >= loaded.bytes * 0.98:
        return Row(job.peer, run, "the topic was too small: it came to its end", note="raise the scenario's records")
    return Row(job.peer, run, EXACT, cap_figures(sizes, scenario.cap_bytes_per_s))


def cap_figures(sizes: Series, limit: float) -> dict[str, float]:
    """Every stretch of 30 s against the limit, and the busiest second."""
    span = min(CAP_WINDOW_S, sizes[-1][0] - sizes[0][0])
    rates = _rates(sizes, span)
    return {
        "cap_mb_per_s": limit / 1e6,
        "mb_per_s": (sizes[-1][1] - sizes[0][1]) / (sizes[-1][0] - sizes[0][0]) / 1e6,
        "deviation_percent": max(abs(rate - limit) for rate in rates) / limit * 100,
        "least_mb_per_s": min(rates) / 1e6,
        "most_mb_per_s": max(rates) / 1e6,
        "peak_mb_per_s": max(_rates(sizes, 1.0)) / 1e6,
    }


def _rates(sizes: Series, span: float) -> Sequence[float]:
    last = sizes[-1][0]
    return [(value_at(sizes, when + span) - size) / span for when, size in sizes if when + span <= last + 1e-6]
