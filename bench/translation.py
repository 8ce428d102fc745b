"""A run of `translation`: all peers copy the same topics in turns, with restarts; then groups commit at random, every
peer starts once more, and its checkpoints are read.

Turns alternate between the peers, so that all of them get the very same records and holes, and each is started and
stopped in order as often. A peer has a target alias of its own as well: MM2's offset syncs are kept under it, on the
source. Judged are the checkpoints, since `translateOffsets` answers from them and group offsets are set by them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench import groups, turns
from bench.groups import Place, Topics
from bench.peers import Job, launched
from bench.results import Row
from bench.rig import Rig
from bench.scenarios import TUNED, Scenario
from bench.turns import Say
from heliograph.formats import Checkpoint

FILLS = 3
POLL_S = 0.5
SETTLED_S = 8.0  # no new checkpoint for so long: the round is complete. MM2 tuned has had several by then
COPY_LIMIT_S = 120.0
# MM2's first checkpoints come an interval after its start, which is 60 s as it comes and one second tuned.
CHECKPOINT_LIMIT_S = {TUNED: 45.0}
CHECKPOINT_LIMIT_ELSE_S = 120.0


def rows(rig: Rig, scenario: Scenario, peers: list[str], run: int, folder: Path, say: Say) -> list[Row]:
    topics = Topics(f"{scenario.name}-{run}")
    jobs = {peer: _job(rig, scenario, topics, peer, run, folder) for peer in peers}
    topics.create(rig.source.watch)
    try:
        for turn in range(FILLS):
            say(f"fills {turn + 1}/{FILLS}", 0)
            topics.fill(rig.source.watch, turn)
            read = groups.read(rig.source.watch, topics.partitions)
            last = {place: entries[-1].value for place, entries in read.items()}
            for peer, job in jobs.items():
                say(f"{peer} copies {turn + 1}/{FILLS}", 0)
                _copy(rig, job, last)
        say("groups commit", 0)
        names = [f"{topics.prefix}-group-{n}" for n in range(scenario.groups)]
        wanted = groups.commit(rig.source.watch, topics, names, random.Random(4))
        return [_row(rig, job, topics, wanted, run, say) for job in jobs.values()]
    finally:
        for job in jobs.values():
            turns.clear(rig, job)
        rig.source.watch.delete(list(topics.partitions))


def _job(rig: Rig, scenario: Scenario, topics: Topics, peer: str, run: int, folder: Path) -> Job:
    job = turns.job_of(rig, scenario, ",".join(topics.partitions), peer, run, folder)
    return replace(job, target_alias=f"{job.target_alias}-{peer}")


def _copy(rig: Rig, job: Job, last: Mapping[Place, bytes | None]) -> None:
    """From a start to an end in order: until the last record of each partition is there."""
    deadline = time.monotonic() + COPY_LIMIT_S
    with launched(job) as process:
        while not all(_has(rig, job, place, value) for place, value in last.items()):
            if time.monotonic() > deadline or not process.running:
                raise RuntimeError(f"{job.peer} has not copied {job.topic}: {turns.last_words(process)}")
            time.sleep(POLL_S)


def _has(rig: Rig, job: Job, place: Place, value: bytes | None) -> bool:
    topic, partition = f"{job.alias}.{place[0]}", place[1]
    watch = rig.target.watch
    count = watch.topics().get(topic, 0)
    end = watch.ends(topic, count)[partition] if count else 0
    return bool(end) and any(m.value() == value for m in watch.read(topic, partition, end - 1, 1))


def _row(rig: Rig, job: Job, topics: Topics, wanted: Mapping[str, Mapping[Place, int]], run: int, say: Say) -> Row:
    limit_s = CHECKPOINT_LIMIT_S.get(job.peer, CHECKPOINT_LIMIT_ELSE_S)
    began = changed = time.monotonic()
    placed: dict[tuple[str, Place], int] = {}
    total = sum(len(places) for places in wanted.values())
    with launched(job):
        while len(placed) < total and time.monotonic() < began + limit_s:
            time.sleep(POLL_S)
            before, placed = placed, _placed(rig, job)
            now = time.monotonic()
            changed = now if placed != before else changed
            if placed and now > changed + SETTLED_S:
                break
            say(f"{job.peer} translates", len(placed) / total)
    say(f"{job.peer} is judged", 1)
    placed = _placed(rig, job)
    everything = groups.read(rig.source.watch, topics.partitions, "read_uncommitted")
    committed = groups.read(rig.source.watch, topics.partitions)
    there = groups.read(rig.target.watch, {f"{job.alias}.{t}": count for t, count in topics.partitions.items()})
    copied = {
        (topic, p): groups.copies(everything[topic, p], committed[topic, p], there[f"{job.alias}.{topic}", p])
        for topic, p in topics.places
    }
    return Row(job.peer, run, groups.verdict(copied.values()), groups.figures(wanted, placed, copied))


def _placed(rig: Rig, job: Job) -> dict[tuple[str, Place], int]:
    """What the peer's checkpoints say so far: downstream offset by group and source partition."""
    topic = f"{job.alias}.checkpoints.internal"
    if topic not in rig.target.watch.topics():
        return {}
    found = {}
    for entry in groups.read(rig.target.watch, {topic: 1})[topic, 0]:
        checkpoint = Checkpoint.read(entry.key, entry.value)
        if checkpoint is not None:
            source = checkpoint.tp.topic.removeprefix(f"{job.alias}.")
            found[checkpoint.group, (source, checkpoint.tp.partition)] = checkpoint.downstream
    return found
