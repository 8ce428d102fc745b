"""Many spokes of one hub, one of them flooding: how late are the others' records?

The spokes are aliases of one broker, each with topics of its own names: twenty brokers would need more memory than they
would tell us, and what spokes could take from one another is ours and the hub's: a process, its workers, the hub's
broker, and the one flow that puts back. From being produced on the spoke to being consumed at the hub, by one clock.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from confluent_kafka import TopicPartition

from bench import labelled
from bench.measure import Tree, median, percentiles, value_at
from bench.peers import Job, launched
from bench.results import Row
from bench.rig import Rig
from bench.scenarios import Scenario
from bench.stream import Sink, Source, stamped
from bench.turns import DRAIN_S, Say, await_, last_words, streamed
from bench.watch import Watch, verdict

FLOODS = 0  # which spoke
# A log's index begins with the append behind its first 4096 bytes, and on a slow disk that costs the broker 46 ms: with
# twelve hundred partitions half a minute of standing still, were it left to the small records. So the first are large.
FIRST, FIRST_BYTES = 2, 5000
WARM_S = 30  # at the full rates before it counts: brokers' JVMs, and what waits since the start
START_LIMIT_S = 400  # until every topic of every spoke is at the hub: each is made when its first record comes


def rota(spokes: int, flood: int) -> list[int]:
    """Whose record is next, for ever: each spoke once in a round, the flooding one `flood` times, spread evenly."""
    others = [spoke for spoke in range(spokes) if spoke != FLOODS]
    turns = [((n + 0.5) / flood, FLOODS) for n in range(flood)]
    turns += [((n + 0.25) / len(others), spoke) for n, spoke in enumerate(others)]
    return [spoke for _, spoke in sorted(turns)]


def topics_in_turn(scenario: Scenario) -> Iterator[str]:
    """The topic of each record, spoke by spoke as `rota` has it, each spoke's topics in turn."""
    topics = _topics(scenario)
    sent = [0] * scenario.spokes
    order = rota(scenario.spokes, scenario.flood)
    while True:
        for spoke in order:
            yield topics[spoke][sent[spoke] % scenario.topics]
            sent[spoke] += 1


def _topics(scenario: Scenario) -> list[list[str]]:
    return [labelled.topics_of(labelled.spoke(number), scenario.topics) for number in range(scenario.spokes)]


class Feed(Source):
    """Produces to all spokes: first two large records to every topic, then a trickle, then at the rates."""

    TRICKLE_PER_S = 100  # in all while they start, so that nobody starts with a backlog
    LINGER_MS = 5  # as Java's producers

    def __init__(self, watch: Watch, scenario: Scenario) -> None:
        rate_per_s = scenario.rate_per_s * (scenario.spokes - 1 + scenario.flood)
        super().__init__(watch, "", 1, rate_per_s, scenario.value_bytes)
        every = [topic for some in _topics(scenario) for topic in some] * FIRST
        self._order = itertools.chain(every, topics_in_turn(scenario))
        large = itertools.islice(stamped(random.Random(21), FIRST_BYTES), len(every))
        self._values = itertools.chain(large, self._values)

    def _place(self) -> tuple[str, bytes | None, int]:
        return next(self._order), None, 0


class SpokesSink(Sink):
    """Reads all topics at the hub, and keeps arrivals by spoke.

    Every 50 ms, which counts against us: a fetch makes the broker look at all four hundred partitions, and one for
    every record would take the hub's core for looking on."""

    FETCHING: ClassVar[dict[str, int]] = {"fetch.min.bytes": 1 << 20, "fetch.wait.max.ms": 50}

    def __init__(self, watch: Watch, topics: Sequence[str]) -> None:
        super().__init__(watch, "", 0)
        self._places = [TopicPartition(topic, 0, 0) for topic in topics]
        self.by_spoke: dict[str, list[tuple[float, float]]] = {}

    def _arrived(self, topic: str, now_s: float, late_ms: float) -> None:
        super()._arrived(topic, now_s, late_ms)
        self.by_spoke.setdefault(topic.partition("-")[0], []).append((now_s, late_ms))


def spokes(rig: Rig, job: Job, run: int, say: Say) -> Row:
    scenario, source, hub = job.scenario, rig.source.watch, rig.target.watch
    topics = [topic for some in _topics(scenario) for topic in some]
    say("makes topics", 0)
    source.create_all(topics)
    try:
        return _turn(rig, job, topics, run, say)
    finally:
        ours = [name for name in hub.topics() if name.startswith(("mux-replication_", "mm2-")) or name in set(topics)]
        hub.delete(ours)
        source.delete(topics)


def _turn(rig: Rig, job: Job, topics: Sequence[str], run: int, say: Say) -> Row:
    scenario, source, hub = job.scenario, rig.source.watch, rig.target.watch
    began = time.monotonic()
    with launched(job) as process, Tree(process.pid) as tree, Feed(source, scenario) as feed:

        def all_there() -> bool:
            present = hub.topics()
            there = sum(topic in present for topic in topics)
            say("start", there / len(topics))
            return there == len(topics) or not process.running

        if not await_(all_there, began + START_LIMIT_S) or not process.running:
            return Row(job.peer, run, "did not start", note=last_words(process))
        all_s = time.monotonic() - began
        with SpokesSink(hub, topics) as sink:
            await_(lambda: len(sink.arrivals) >= feed.sent - feed.TRICKLE_PER_S, time.monotonic() + DRAIN_S)
            begins, ended = streamed(feed, scenario.seconds, process, say, warm_s=WARM_S)
            finished = await_(lambda: len(sink.arrivals) >= feed.sent, time.monotonic() + DRAIN_S)
    expected, actual = ([end for topic in topics for end in watch.ends(topic, 1)] for watch in (source, hub))
    found = figures(sink.by_spoke, begins, ended) | {"all_s": all_s, "peak_mb": tree.peak_mb}
    if found["measured"]:
        cpu_s = value_at(tree.cpu, ended) - value_at(tree.cpu, begins)
        steady = [mb for when, mb in tree.memory if begins <= when <= ended]
        found |= {"cpu_us_window": cpu_s / found["sent"] * 1e6, "steady_mb": median(steady) if steady else tree.peak_mb}
    note = f"not produced: {feed.failed[0]}" if feed.failed else ""
    return Row(job.peer, run, verdict(expected, actual, finished), found, note)


def figures(arrivals: Mapping[str, Sequence[tuple[float, float]]], begin_s: float, end_s: float) -> dict[str, float]:
    """Of the others together, of the slowest of them, and of the one that floods; by the moment of sending."""
    late = {spoke: [ms for when, ms in some if begin_s <= when - ms / 1e3 <= end_s] for spoke, some in arrivals.items()}
    flooding = late.pop(labelled.spoke(FLOODS), [])
    others = [ms for some in late.values() for ms in some]
    found = {"measured": float(len(others)), "sent": float(len(others) + len(flooding))}
    if others:
        found |= percentiles(others) | {"max_ms": max(others)}
        found["slowest_p99_ms"] = max(percentiles(some)["p99_ms"] for some in late.values() if some)
    if flooding:
        found["flood_p99_ms"] = percentiles(flooding)["p99_ms"]
    return found
