"""Many spokes of one hub, one of them flooding: how late are the others' records?

The spokes are aliases of one broker, each with topics of its own names: twenty brokers would need more memory than they
would tell us, and what spokes could take from one another is ours and the hub's: a process, its workers, the hub's
broker, and the one flow that puts back. From being produced on the spoke to being consumed at the hub, by one clock.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import KafkaError, Producer, TopicPartition

from bench import labelled
from bench.measure import Tree, median, percentiles, value_at
from bench.peers import Job, launched
from bench.results import Row
from bench.rig import Rig
from bench.scenarios import Scenario
from bench.stream import stamp_of, stamped
from bench.turns import DRAIN_S, WARM_S, Say, await_, last_words
from bench.watch import Watch, verdict

FLOODS = 0  # which spoke
START_LIMIT_S = 400  # until every topic of every spoke is at the hub: each is made when its first record comes
TRICKLE_PER_S = 100  # records in all while they start, so that nobody starts with a backlog


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


class Feed:
    """A thread that produces to all spokes: first a record to every topic, then a trickle, then at the rates."""

    def __init__(self, watch: Watch, scenario: Scenario) -> None:
        self.sent: dict[str, int] = {topic: 0 for some in _topics(scenario) for topic in some}
        self.failed: list[str] = []
        self._full_per_s = scenario.rate_per_s * (scenario.spokes - 1 + scenario.flood)
        self._rate_per_s = TRICKLE_PER_S
        self._order = topics_in_turn(scenario)
        self._values = stamped(random.Random(20), scenario.value_bytes)
        self._producer = Producer({**watch.settings, "linger.ms": 0, "enable.idempotence": True})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def full(self) -> None:
        self._rate_per_s = self._full_per_s

    def finish(self) -> None:
        """Ends the stream; returns when all of it is on the spokes."""
        self._stop.set()
        self._thread.join()
        self._producer.flush(20)

    def _run(self) -> None:
        due = time.monotonic()
        first = iter(tuple(self.sent))
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due += 1 / self._rate_per_s
            topic = next(first, None) or next(self._order)
            self._producer.produce(topic, next(self._values), partition=0, on_delivery=self._delivered)
            self._producer.poll(0)
            self.sent[topic] += 1

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self.failed.append(str(error))


class Sink:
    """A thread that reads all topics at the hub and keeps (moment of arrival, milliseconds since sending) by spoke."""

    def __init__(self, watch: Watch, topics: Sequence[str]) -> None:
        self.arrivals: dict[str, list[tuple[float, float]]] = {}
        self.count = 0
        self._watch, self._topics = watch, topics
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sink", daemon=True)

    def __enter__(self) -> Sink:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with self._watch.consumer(**{"fetch.min.bytes": 1, "fetch.wait.max.ms": 100}) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0) for topic in self._topics])
            while not self._stop.is_set():
                for message in consumer.consume(200, timeout=0.02):
                    if message.error() is None:
                        now_ns, now_s = time.time_ns(), time.monotonic()
                        spoke = (message.topic() or "").partition("-")[0]
                        late_ms = (now_ns - stamp_of(message.value() or b"")) / 1e6
                        self.arrivals.setdefault(spoke, []).append((now_s, late_ms))
                        self.count += 1


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
        with Sink(hub, topics) as sink:
            await_(lambda: sink.count >= len(topics), time.monotonic() + DRAIN_S)
            feed.full()
            begins = time.monotonic() + min(WARM_S, scenario.seconds / 4)
            ends = begins + scenario.seconds
            while time.monotonic() < ends and process.running:
                say("streams", max(0.0, 1 - (ends - time.monotonic()) / scenario.seconds))
                time.sleep(0.5)
            feed.finish()
            ended = min(time.monotonic(), ends)
            sent = sum(feed.sent.values())
            finished = await_(lambda: sink.count >= sent, time.monotonic() + DRAIN_S)
    expected, actual = ([end for topic in topics for end in watch.ends(topic, 1)] for watch in (source, hub))
    found = figures(sink.arrivals, begins, ended) | {"all_s": all_s, "peak_mb": tree.peak_mb}
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
