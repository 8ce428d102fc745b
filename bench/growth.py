"""A flow that grows under a live load: topics appear, partitions are added; how soon are they copied, who notices?

Some topics are written to at an even rate from beginning to end: the others. Beside them topics are created and
written to, one after another, and then each of those gets one more partition. When the first record of it has been
copied is asked of the target; how late the others' records are is taken by one clock, as in `latency`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import Producer

from bench.measure import percentiles
from bench.peers import Job, launched
from bench.results import Row
from bench.rig import Rig
from bench.stream import Sink, Source
from bench.turns import DRAIN_S, START_LIMIT_S, WARM_S, Say, await_, last_words
from bench.watch import Watch, verdict

TOPICS = 4  # the others
NEW_PARTITIONS = 2
# Of each kind. Found at the next look at the source, so how long it takes depends on when it happens: a third of the
# scenario's seconds apart, they meet the interval at different moments (`scenarios`), and the slowest counts.
EVENTS = 3
WRITTEN = 100  # records to each partition that is new
LIMIT_S = 30.0  # what is not copied by then is not found

What = Literal["topic", "partition"]
KINDS: tuple[What, What] = ("topic", "partition")


@dataclass(frozen=True, slots=True)
class Event:
    what: What
    began_s: float  # when the source was asked for it
    took_s: float | None  # until a copy of its first record was there; None: not within LIMIT_S


def growth(rig: Rig, job: Job, run: int, say: Say) -> Row:
    """The others stream, then topics are created, then partitions are added."""
    source = rig.source.watch
    others = {f"{job.topic}-{number}": job.scenario.partitions for number in range(TOPICS)}
    new = {f"{job.topic}-new-{number}": NEW_PARTITIONS + 1 for number in range(EVENTS)}  # in the end
    for topic, partitions in others.items():
        source.create(topic, partitions)
    try:
        return _beside(rig, job, others, new, run, say)
    finally:
        source.delete([*others, *new])


def _beside(rig: Rig, job: Job, others: Mapping[str, int], new: Mapping[str, int], run: int, say: Say) -> Row:
    scenario, source, target = job.scenario, rig.source.watch, rig.target.watch
    shape, rate = {**others, **new}, scenario.rate_per_s // TOPICS
    with ExitStack() as stack:
        process = stack.enter_context(launched(job))
        if not all(target.await_topic(job.copy_of(topic), count, START_LIMIT_S) for topic, count in others.items()):
            return Row(job.peer, run, "did not start", note=last_words(process))
        sinks = [stack.enter_context(Sink(target, job.copy_of(topic), count)) for topic, count in others.items()]
        feeds = [Source(source, topic, count, rate, scenario.value_bytes) for topic, count in others.items()]
        for feed in feeds:
            stack.enter_context(feed).full()
        await_(lambda: all(sink.arrivals for sink in sinks), time.monotonic() + START_LIMIT_S)
        time.sleep(min(WARM_S, scenario.seconds / 4))
        events = [one for what in KINDS for one in _half(rig, job, what, list(new), say)]
        for feed in feeds:
            feed.finish()
        expected = [end for topic, count in shape.items() for end in source.ends(topic, count)]

        def copied() -> list[int]:
            return [end for topic, count in shape.items() for end in target.ends(job.copy_of(topic), count)]

        finished = await_(lambda: copied() == expected, time.monotonic() + DRAIN_S)
        sent = sum(feed.sent for feed in feeds)
        await_(lambda: sum(len(sink.arrivals) for sink in sinks) >= sent, time.monotonic() + DRAIN_S)
        note = "" if process.running else f"ended by itself: {last_words(process)}"
    arrivals = [one for sink in sinks for one in sink.arrivals]
    judged = verdict(expected, copied(), finished)
    return Row(job.peer, run, judged, figures(events, arrivals, scenario.seconds), note)


def _half(rig: Rig, job: Job, what: What, topics: Sequence[str], say: Say) -> list[Event]:
    """All events of one kind, evenly over the scenario's seconds."""
    found: list[Event] = []
    apart_s = job.scenario.seconds / EVENTS
    for number, topic in enumerate(topics):
        found.append(_event(rig, job, what, topic))
        left = max(found[-1].began_s + apart_s - time.monotonic(), 0.0)
        say(f"copies new {what}s", (number + 1) / EVENTS)
        time.sleep(left)
    return found


def _event(rig: Rig, job: Job, what: What, topic: str) -> Event:
    source, target, copy = rig.source.watch, rig.target.watch, job.copy_of(topic)
    added = range(NEW_PARTITIONS) if what == "topic" else range(NEW_PARTITIONS, NEW_PARTITIONS + 1)
    began = time.monotonic()
    if what == "topic":
        source.create(topic, added.stop)
    else:
        source.grow(topic, added.stop)
    _write(source, topic, added)
    in_time = await_(lambda: any(target.ends(copy, added.stop)[added.start :]), began + LIMIT_S)
    return Event(what, began, time.monotonic() - began if in_time else None)


def _write(watch: Watch, topic: str, partitions: Sequence[int]) -> None:
    producer = Producer({**watch.settings, "linger.ms": 5})
    for number in range(WRITTEN):
        for partition in partitions:
            producer.produce(topic, b"record %d of partition %d" % (number, partition), partition=partition)
    if producer.flush(LIMIT_S):
        raise RuntimeError(f"the source does not take records of {topic}: see its broker's log")


def figures(events: Sequence[Event], arrivals: Sequence[tuple[float, float]], seconds: float) -> dict[str, float]:
    """Of each kind the slowest, and how late the others' records were that were sent while such things happened."""
    found: dict[str, float] = {}
    for what in KINDS:
        mine = [event for event in events if event.what == what]
        if not mine:
            continue
        took = [event.took_s for event in mine if event.took_s is not None]
        if len(took) == len(mine):
            found[f"{what}_s"] = max(took)
            found[f"{what}_soonest_s"] = min(took)
        begin = mine[0].began_s
        end = max(begin + seconds, mine[-1].began_s + seconds / EVENTS)
        late = [ms for when, ms in arrivals if begin <= when - ms / 1e3 < end]
        if late:
            found |= {f"{what}_p99_ms": percentiles(late)["p99_ms"], f"{what}_max_ms": max(late)}
            found[f"{what}_measured"] = float(len(late))
    return found
