"""The copiers that are compared: their settings files and how each is started and stopped.

Every peer gets the same file but for its tuning, reads the same topic, and writes to a remote topic of its own
(`<alias>.<topic>`, an alias for each peer and run), so that all of them copy from the start. What a peer does is
measured elsewhere, from outside.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench import labelled
from bench.scenarios import BULK, MM2, STEPS, STRAIGHT, TUNED, Scenario
from heliograph.embedded.mirrormaker import SINGLE_COPIES, MirrorMaker
from heliograph.embedded.process import Process

TARGET_ALIAS = "target"
STOP_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Job:
    """One peer's turn: copy `topic` of the source under `alias`."""

    peer: str
    alias: str
    topic: str
    source: str  # bootstrap servers, as the copier reaches them (through the far link if there is one)
    target: str
    scenario: Scenario
    folder: Path
    target_alias: str = TARGET_ALIAS
    more: tuple[tuple[str, str], ...] = ()  # settings of this turn alone

    @property
    def remote(self) -> str:
        return self.copy_of(self.topic)

    def copy_of(self, topic: str) -> str:
        return f"{self.alias}.{topic}"

    @property
    def live(self) -> str:
        """Of kinds that stream beside the topic: where to."""
        return f"{self.topic}-live"

    @property
    def pair(self) -> dict[str, str]:
        """Of its settings: the two clusters, and that it copies."""
        return {
            "clusters": f"{self.alias}, {self.target_alias}",
            f"{self.alias}.bootstrap.servers": self.source,
            f"{self.target_alias}.bootstrap.servers": self.target,
            f"{self.alias}->{self.target_alias}.enabled": "true",
        }

    @property
    def remote_live(self) -> str:
        return self.copy_of(self.live)


def properties(job: Job) -> dict[str, str]:
    """The settings file of a turn."""
    if job.scenario.kind in (*STEPS, "spokes"):
        own = {**labelled.settings(job), **SINGLE_COPIES, **dict(job.more)}
        return {**own, **(tuning(job) if job.peer == TUNED else {})}
    flow = f"{job.alias}->{job.target_alias}"
    base = {**job.pair, f"{flow}.topics": job.topic, **SINGLE_COPIES}
    if job.scenario.kind in ("beside", "soak"):
        base[f"{flow}.topics"] = f"{job.topic}, {job.live}"
    if job.scenario.kind == "growth":
        base[f"{flow}.topics"] = f"{job.topic}-.*"
        base["refresh.topics.interval.seconds"] = str(job.scenario.refresh_s)
    if job.scenario.cap_bytes_per_s:
        base[f"{flow}.max.bytes.per.second"] = str(job.scenario.cap_bytes_per_s)
    if job.scenario.kind == "groups":  # a copy that is not compacted itself: its offsets can be compared
        base["config.properties.exclude"] = ".*"
    return {**base, **(tuning(job) if job.peer == TUNED else {})}


def tuning(job: Job) -> dict[str, str]:
    """MM2 as well tuned as we know how.

    Records are written by the Connect worker's producer, which only `<target>.producer.*` (or
    `<flow>.producer.override.*`) reaches; they are read by the task's consumer: `<source>.consumer.*`.
    """
    if job.scenario.kind == "groups":
        return _tuning_for_offsets(job)
    producer = {
        "batch.size": str(512 * 1024),
        "linger.ms": "100"
        if job.scenario.kind in BULK
        else "0",  # waiting fills batches, and is what latency is made of
        "compression.type": job.scenario.codec,
        "buffer.memory": str(128 << 20),
        "max.request.size": str(8 << 20),
        "send.buffer.bytes": str(2 << 20),
        # Connect's worker sends one request at a time; with idempotence five keep their order.
        "max.in.flight.requests.per.connection": "5",
        "enable.idempotence": "true",
    }
    consumer = {
        "max.poll.records": "10000",
        "max.partition.fetch.bytes": str(8 << 20),
        "fetch.max.bytes": str(64 << 20),
        "receive.buffer.bytes": str(2 << 20),
        "check.crcs": "false",
    }
    return {
        "tasks.max": str(min(job.scenario.partitions, 4)),
        "offset.lag.max": "10000",  # an offset sync each 100 records is a second stream of produce requests
        f"{job.target_alias}->{job.alias}.emit.heartbeats.enabled": "false",  # no second worker for the way back
        **{f"{job.target_alias}.producer.{key}": value for key, value in producer.items()},
        **{f"{job.alias}.consumer.{key}": value for key, value in consumer.items()},
    }


def _tuning_for_offsets(job: Job) -> dict[str, str]:
    """An offset sync for every record, and everything that waits for an interval once a second."""
    return {
        "offset.lag.max": "0",
        "emit.checkpoints.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        f"{job.target_alias}.offset.flush.interval.ms": "1000",  # when syncs that wait go out, too
        f"{job.alias}.consumer.isolation.level": "read_committed",  # otherwise it copies aborted records as well
        f"{job.target_alias}->{job.alias}.emit.heartbeats.enabled": "false",
    }


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()), encoding="utf-8")
    return path


@contextmanager
def launched(job: Job) -> Iterator[Process]:
    """The peer of a job, started now; ended, with all it left on the disk, when the block is."""
    if job.peer in (MM2, TUNED):
        maker = MirrorMaker(properties(job))
        try:
            yield maker.start().process
            maker.stop(STOP_SECONDS)
        finally:
            maker.close()
        return
    path = write_properties(job.folder / f"{job.alias}.properties", properties(job))
    command: list[str | Path] = [Path(sys.executable).with_name("heliograph"), "run", path, *job.scenario.arguments]
    if job.peer == STRAIGHT:
        command = [sys.executable, "-m", "bench.straight", *labelled.straight(job)]
    process = Process(f"{job.peer} run", command, log_path=job.folder / f"{job.alias}.log")
    try:
        yield process
    finally:
        started = _descendants(process.pid)
        process.stop(STOP_SECONDS)
        for left in started:  # of a copier that had to be killed, its JVM and workers may be left
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()  # psutil checks that the pid is still the same process


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
