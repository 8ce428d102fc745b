"""Many topics through one, a step at a time: multiplexed, carried over, put back; each beside a mirror of the same.

The records are those of `lz4`, in a few topics. `link` and `demux` begin with a shared topic that our own mux has
made of them. MM2 knows no labels: what it is held against is how it mirrors the topics that the step reads. The
straightforward way (`straight`) does what the step does, where somebody would write a program for it; over the link it
would be a MirrorMaker too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import KafkaException

from bench import labelled, turns
from bench.labelled import SHARED_PARTITIONS
from bench.load import Loaded, load
from bench.measure import Tree
from bench.peers import Job, launched
from bench.results import EXACT, Row
from bench.rig import Face, Rig
from bench.scenarios import HELIOGRAPH, MM2, STRAIGHT, TUNED, Scenario
from bench.turns import POLL_S, SETTLE_S, START_LIMIT_S, Say, last_words
from bench.watch import differences, verdict
from heliograph.errors import HeliographError

Shape = Mapping[str, int]  # topics and their partitions


@dataclass(frozen=True, slots=True)
class Supply:
    """Topics that are ready: the origins, and the shared one that was made of them, but for `mux`."""

    origins: tuple[Loaded, ...]
    shared: str

    @property
    def whole(self) -> Loaded:
        """All origins as one, for the figures: bytes are those of the origins, before they had labels."""
        ends = [end for one in self.origins for end in one.ends]
        return Loaded(self.shared, ends, sum(o.bytes for o in self.origins), sum(o.batches for o in self.origins))


@dataclass(frozen=True, slots=True)
class Made:
    """What a turn writes, where, and where that can be compared with: origins, or the shared topic."""

    face: Face
    topics: Shape
    read: Face


def rows(
    rig: Rig, scenario: Scenario, topic: str, peers: list[str], runs: int, folder: Path, say: Say
) -> Iterator[Row]:
    supply = prepare(rig, scenario, topic, folder, say)
    try:
        for run in range(1, runs + 1):
            for peer in peers if run % 2 else reversed(peers):
                job = job_of(rig, scenario, topic, peer, run, folder)
                try:
                    yield turn(rig, job, supply, run, say)
                except (HeliographError, KafkaException, OSError, RuntimeError) as error:
                    yield Row(peer, run, f"failed: {type(error).__name__}", note=str(error))
                finally:
                    clear(rig, job)
    finally:
        for face in (rig.source, rig.target):
            face.watch.delete([*labelled.origins(topic), labelled.shared(topic)])


def job_of(rig: Rig, scenario: Scenario, topic: str, peer: str, run: int, folder: Path) -> Job:
    """Under a hub's alias of its own: a hub's positions are under its alias alone, and every turn begins anew."""
    job = turns.job_of(rig, scenario, topic, peer, run, folder)
    job = replace(job, target_alias=f"hub-{job.alias}")
    if scenario.kind == "demux" and peer in (MM2, TUNED):  # the shared topic is on the target: mirrored back from there
        return replace(job, source=job.target, target=job.source)
    return job


def prepare(rig: Rig, scenario: Scenario, topic: str, folder: Path, say: Say) -> Supply:
    each = replace(scenario, records=scenario.records // labelled.ORIGINS)
    filled: list[Loaded] = []
    for name in labelled.origins(topic):
        done = len(filled) * each.records
        filled.append(
            load(
                *(rig.source.watch, rig.source.cluster, name, each),
                lambda count, done=done: say("fills", (done + count) / scenario.records),  # type: ignore[misc]
            )
        )
    supply = Supply(tuple(filled), labelled.shared(topic))
    if scenario.kind == "mux":
        warm = turns.job_of(rig, scenario, filled[0].topic, "warm-up", 0, folder)
        turns.bare_loops(rig, warm, filled[0], 0, say)  # the brokers' JVMs; for the other steps the mux does it
        clear(rig, warm)
    else:
        _multiplex(rig, scenario, topic, supply, folder, say)
    return supply


def _multiplex(rig: Rig, scenario: Scenario, topic: str, supply: Supply, folder: Path, say: Say) -> None:
    """By our own mux, to where the step reads: on the source for `link`, on the target for `demux`."""
    face = rig.source if scenario.kind == "link" else rig.target
    job = job_of(rig, replace(scenario, kind="mux"), topic, HELIOGRAPH, 0, folder)
    flow = f"{job.alias}->{job.target_alias}"
    where = "intermediate" if scenario.kind == "link" else "straight"
    more = {f"{flow}.mux.topic": supply.shared, f"{flow}.mux.via": where}
    arguments = ("--clusters", job.alias if scenario.kind == "link" else job.target_alias)
    job = replace(job, scenario=replace(job.scenario, arguments=arguments), more=tuple(more.items()))
    total, deadline = supply.whole.records, time.monotonic() + START_LIMIT_S + scenario.limit_s
    with launched(job) as process:
        while (count := sum(face.watch.ends(supply.shared, SHARED_PARTITIONS))) < total:
            if time.monotonic() > deadline or not process.running:
                raise RuntimeError(f"{supply.shared} could not be made ({count:,} of {total:,}): {last_words(process)}")
            say("is multiplexed", count / total)
            time.sleep(POLL_S)
    clear(rig, job)


def turn(rig: Rig, job: Job, supply: Supply, run: int, say: Say) -> Row:
    whole, made = supply.whole, made_by(rig, job, supply)
    if job.peer == STRAIGHT:
        for topic, partitions in made.topics.items():
            made.face.watch.create(topic, partitions)
    began = time.monotonic()
    progress: list[tuple[float, float]] = [(began, 0)]
    deadline = began + START_LIMIT_S
    with launched(job) as process, Tree(process.pid) as tree:
        while progress[-1][1] < whole.records and time.monotonic() < deadline and process.running:
            time.sleep(POLL_S)
            progress.append((time.monotonic(), sum(_ends(made))))
            if progress[-2][1] == 0 < progress[-1][1]:
                deadline = time.monotonic() + job.scenario.limit_s
            say("copies", progress[-1][1] / whole.records)
        finished = progress[-1][1] >= whole.records
        if finished:
            time.sleep(SETTLE_S)
        elif progress[-1][1] == 0:
            return Row(job.peer, run, "did not start", note=last_words(process))
    judged = judge(rig, job, supply, made, finished, lambda: say("is compared", 1))
    return Row(job.peer, run, judged, turns.copy_figures(progress, tree, whole, began))


def made_by(rig: Rig, job: Job, supply: Supply) -> Made:
    kind, mirrors = job.scenario.kind, job.peer in (MM2, TUNED)
    shape = {one.topic: len(one.ends) for one in supply.origins}
    if kind == "mux":
        shared = {job.remote: SHARED_PARTITIONS}
        return Made(rig.target, {job.copy_of(name): n for name, n in shape.items()} if mirrors else shared, rig.source)
    if kind == "link":
        return Made(rig.target, {job.copy_of(supply.shared): SHARED_PARTITIONS}, rig.source)
    if mirrors:
        return Made(rig.source, {job.copy_of(supply.shared): SHARED_PARTITIONS}, rig.target)
    return Made(rig.target, {job.copy_of(name): n for name, n in shape.items()}, rig.source)


def judge(rig: Rig, job: Job, supply: Supply, made: Made, finished: bool, compares: Callable[[], None]) -> str:
    """Of copies topic by topic, with samples of their records; of a shared topic by how many it holds (whether they are
    right shows when they are put back)."""
    if job.scenario.kind == "mux" and job.peer not in (MM2, TUNED):
        return verdict([supply.whole.records], [sum(_ends(made))], finished)
    carried = list(made.topics) == [job.copy_of(supply.shared)]
    pairs = {job.copy_of(one.topic): (one.topic, one.ends) for one in supply.origins}
    if carried:
        pairs = {job.copy_of(supply.shared): (supply.shared, made.read.watch.ends(supply.shared, SHARED_PARTITIONS))}
    expected = [end for topic in made.topics for end in pairs[topic][1]]
    judged = verdict(expected, _ends(made), finished)
    if judged != EXACT:
        return judged
    compares()
    found = (differences(made.read.watch, topic, made.face.watch, copy, ends) for copy, (topic, ends) in pairs.items())
    return next(filter(None, found), EXACT)


def _ends(made: Made) -> list[int]:
    return [end for topic, count in made.topics.items() for end in made.face.watch.ends(topic, count)]


def clear(rig: Rig, job: Job) -> None:
    """What a turn left on either cluster: its alias is in all of it."""
    turns.clear(rig, job)
    for face in (rig.source, rig.target):
        face.watch.delete([name for name in face.watch.topics() if job.alias in name])
