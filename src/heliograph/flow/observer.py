"""What is seen of a flow's partitions: by the tasks that copy them, and by the coordinator's own look at the source.

Answers for putting the sightings together and for the reason in words when a partition does not move; whether that is
ill is decided by `health.verdict`. The two looks are independent on purpose: a task that lost sight of a partition
believes it idle, and only somebody else can know better.

Thread-safe by one lock: reports come from a thread a task, questions from whoever shows the flow.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from heliograph.flow.relay import TaskKey
from heliograph.flow.tally import Tally
from heliograph.health.status import Order, PartitionStatus
from heliograph.health.verdict import Health, Progress, Verdict
from heliograph.mirror.protocol import PartitionReport, Report
from heliograph.mirror.timing import Histogram, Spread
from heliograph.sync.windows import HistogramWindow, Window
from heliograph.types import TopicPartition

RECENT_S = 5.0  # p99 is of this long or twice as long: what is shown beside rates should move with them
SILENT_S = 3.0  # a task speaks every second; one that missed three turns is named
TASK, COORDINATOR = "task", "coordinator"  # who looked at a source's end


@dataclass(slots=True)
class TaskSeen:
    joined: int  # the how-manieth to join: epochs count from one again when a query is started again
    heard_at: float


@dataclass(slots=True)
class Row:
    """One partition."""

    remote: TopicPartition
    progress: Progress
    latency: Window
    age: Window
    moved: Window  # bytes
    task: TaskKey | None = None
    joined: int = -1  # of the task that spoke last
    end: int = -1
    why: str = ""
    blind: bool = True
    vague: bool = False
    clueless_at: float = 0.0  # since when its task has known nothing that is in its way, unless it does
    parked: str = ""
    parked_at: float = 0.0
    unseen: str = ""  # why the coordinator could not look
    oldest_ms: int = -1
    newest_ms: int = -1
    bytes: int = 0
    history: bool = False

    @property
    def known(self) -> bool:
        """Whether its task knows what is in its way."""
        return bool(self.why) and not self.vague


@dataclass(slots=True)
class Observer:
    tally: Tally
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    order_of: Callable[[TopicPartition], Order | None] = lambda tp: None  # what an operator said of it
    _rows: dict[TopicPartition, Row] = field(default_factory=dict)
    _tasks: dict[TaskKey, TaskSeen] = field(default_factory=dict)
    _latency: dict[str, Histogram] = field(default_factory=dict)
    _recent: dict[str, HistogramWindow] = field(default_factory=dict)
    _joined: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # ---------------------------------------------------------------- what is told

    def copy(self, routes: Mapping[TopicPartition, TopicPartition]) -> None:
        """These partitions are to be copied, and no others."""
        now = self.clock()
        with self._lock:
            for gone in self._rows.keys() - routes.keys():
                del self._rows[gone]
            for tp, remote in routes.items():
                if tp in self._rows:
                    self._rows[tp].remote = remote
                else:
                    self._rows[tp] = Row(remote, Progress(good_at=now), Window(now), Window(now), Window(now))

    def joined(self, task: TaskKey) -> None:
        with self._lock:
            self._join(task)

    def left(self, task: TaskKey) -> None:
        with self._lock:
            self._tasks.pop(task, None)

    def reported(self, task: TaskKey, report: Report) -> None:
        """After the tally: a task's word on the partitions that changed, and that it lives."""
        now = self.clock()
        with self._lock:
            # A task of a query that was started again may bear the name of one that is only now seen to leave.
            seen = self._tasks.get(task) or self._join(task)
            self._settle()
            seen.heard_at = now
            for lane in report.lanes:
                row = self._rows.get(lane.tp)
                if row is not None:
                    self._take(row, task, seen.joined, lane, now)
            for topic, (total, counts) in report.latency.items():
                self._latency.setdefault(topic, Histogram()).add(counts, total)
                self._recent.setdefault(topic, HistogramWindow(now, RECENT_S)).add(counts, total, now)

    def looked(self, ends: Mapping[TopicPartition, int | str], began: float) -> None:
        """The coordinator's own look at the sources' ends, begun at this moment; or why it could not."""
        with self._lock:
            for tp, end in ends.items():
                if (row := self._rows.get(tp)) is None:
                    continue
                if isinstance(end, str):
                    row.unseen = end
                else:
                    row.unseen = ""
                    row.progress.saw_end(COORDINATOR, end, began)

    def followed(self, positions: Mapping[TopicPartition, int]) -> None:
        """Where partitions stand that another process copies, by what it wrote down."""
        now = self.clock()
        with self._lock:
            for tp, next_offset in positions.items():
                if (row := self._rows.get(tp)) is not None:
                    row.progress.saw_position(next_offset, now)

    def freed(self, partitions: Iterable[TopicPartition]) -> None:
        """An operator let these go on: what they owe is counted from now."""
        now = self.clock()
        with self._lock:
            for tp in partitions:
                if (row := self._rows.get(tp)) is not None:
                    row.progress.begin_again(now)

    # ---------------------------------------------------------------- what is asked

    def verdicts(self, because: str = "") -> dict[TopicPartition, Verdict]:
        """`because`: what is in the way of the whole flow, for partitions that no task has."""
        now = self.clock()
        with self._lock:
            self._settle()
            return {tp: self._ordered(tp) or self._verdict(row, now, because) for tp, row in self._rows.items()}

    def lags(self) -> dict[TopicPartition, tuple[int | None, float | None]]:
        """Records and seconds."""
        now = self.clock()
        with self._lock:
            return {tp: (row.progress.lag, self._behind_s(row, now)) for tp, row in self._rows.items()}

    def partitions(self, because: str = "") -> tuple[PartitionStatus, ...]:
        verdicts = self.verdicts(because)
        now = self.clock()
        with self._lock:
            mean = _mean(self.tally.total("bytes"), self.tally.total("records"))
            rows = sorted((tp, row) for tp, row in self._rows.items() if tp in verdicts)
            return tuple(self._status(tp, row, verdicts[tp], mean, now) for tp, row in rows)

    def is_history(self, tp: TopicPartition) -> bool:
        """Whether its task said that it is far behind."""
        with self._lock:
            row = self._rows.get(tp)
            return row is not None and row.history

    def latency(self) -> dict[str, Histogram]:
        with self._lock:
            return {topic: histogram.copy() for topic, histogram in self._latency.items()}

    @property
    def has_begun(self) -> bool:
        """Whether a task has ever said anything of any partition."""
        with self._lock:
            return any(row.joined >= 0 for row in self._rows.values())

    def latency_p99_ms(self) -> float | None:
        """Of the last seconds; None: nothing was copied in them."""
        now, whole = self.clock(), Histogram()
        with self._lock:
            for window in self._recent.values():
                seen = window.seen(now)
                whole.add(seen.counts, seen.sum)
        return whole.quantile(0.99)

    def latencies_p99_ms(self) -> dict[str, float]:
        """The same by topic, of those that were copied in the last seconds."""
        now = self.clock()
        with self._lock:
            found = {topic: window.seen(now).quantile(0.99) for topic, window in self._recent.items()}
        return {topic: p99 for topic, p99 in found.items() if p99 is not None}

    # ---------------------------------------------------------------- inside

    def _join(self, task: TaskKey) -> TaskSeen:
        self._joined += 1
        self._tasks[task] = TaskSeen(self._joined, self.clock())
        return self._tasks[task]

    def _take(self, row: Row, task: TaskKey, joined: int, lane: PartitionReport, now: float) -> None:
        if row.joined < 0:  # its first task has begun; a task that dies and comes again is no new beginning
            row.progress.begin_again(now)
        if joined >= row.joined or lane.next_offset > row.progress.next_offset:
            row.progress.saw_position(lane.next_offset, now)
        row.newest_ms = max(row.newest_ms, lane.timestamp)
        row.latency.add(_spread(lane.latency), now)
        row.age.add(_spread(lane.age), now)
        total = self.tally.of(lane.tp)["bytes"]
        row.moved.add(Spread(1, total - row.bytes), now)
        row.bytes = total
        if joined < row.joined:
            return  # of an epoch that ends: what it copies counts, what it sees is the next one's to say
        if joined != row.joined or row.known:
            row.clueless_at = now
        row.task, row.joined = task, joined
        row.end, row.why, row.oldest_ms = lane.end_offset, lane.why, lane.oldest
        row.blind = lane.blind or row.end < 0
        row.vague = lane.vague
        row.history = lane.history
        if lane.state == "parked":
            row.parked, row.parked_at = f"{lane.reason}. {lane.fix}" if lane.fix else lane.reason, now
        if not row.blind:
            row.progress.saw_end(TASK, row.end, now)

    def _settle(self) -> None:
        """A task names what changed; of its other partitions it said by speaking that nothing did."""
        for row in self._rows.values():
            if not row.blind and row.task is not None and (seen := self._tasks.get(row.task)) is not None:
                row.progress.saw_end(TASK, row.end, seen.heard_at)

    def _ordered(self, tp: TopicPartition) -> Verdict | None:
        order = self.order_of(tp)
        return None if order is None else Verdict(Health(order.word), order.words)

    def _verdict(self, row: Row, now: float, because: str) -> Verdict:
        if row.parked and row.progress.good_at > row.parked_at:
            row.parked = ""  # tried again, and it goes
        if not row.parked and (verdict := row.progress.verdict(now)).health.healthy:
            return verdict
        because, clueless_at = self._because(row, now, because)
        return row.progress.verdict(now, because=because, clueless_at=clueless_at, parked=row.parked)

    def _because(self, row: Row, now: float, because: str) -> tuple[str, float | None]:
        """What is in the way, and since when that has been no more than a guess."""
        seen = self._tasks.get(row.task) if row.task is not None else None
        if row.task is None or seen is None:
            return because or row.unseen or "no task copies it: the next epoch is being planned", None
        if now - seen.heard_at > SILENT_S:
            return f"task {row.task[1]} of epoch {row.task[0]} is silent: its process may be frozen or gone", None
        if row.known:
            return row.why, None
        return (row.unseen, None) if row.unseen else (row.why, row.clueless_at)

    def _behind_s(self, row: Row, now: float) -> float | None:
        """The age of the oldest record that is not copied: by its own timestamp once it was fetched; before that,
        bounded by the moment at which nothing was missing and by the timestamp of the newest record copied."""
        lag = row.progress.lag
        if not lag:
            return None if lag is None else 0.0
        wall_ms = self.wall() * 1000
        if row.oldest_ms >= 0:
            return max(wall_ms - row.oldest_ms, 0.0) / 1000
        bounds = [now - row.progress.level_at]
        if row.newest_ms >= 0:
            bounds.append(max(wall_ms - row.newest_ms, 0.0) / 1000)
        return None if min(bounds) == float("inf") else min(bounds)

    def _status(
        self, tp: TopicPartition, row: Row, verdict: Verdict, mean: float | None, now: float
    ) -> PartitionStatus:
        counters = self.tally.of(tp)
        latency, moved = row.latency.seen(now), row.moved.seen(now)
        own = _mean(counters["bytes"], counters["records"]) or mean
        lag, progress = row.progress.lag, row.progress
        return PartitionStatus(
            topic=tp.topic,
            partition=tp.partition,
            remote_topic=row.remote.topic,
            state=verdict.health.value,
            reason=verdict.words,
            because=verdict.because,
            stalled_s=0.0 if verdict.health.healthy else verdict.still_s,
            task=row.task[1] if row.task in self._tasks and row.task is not None else None,
            position=progress.next_offset if progress.next_offset >= 0 else None,
            source_end=progress.end_offset if progress.end_offset >= 0 else None,
            lag_records=lag,
            lag_bytes=0 if lag == 0 else None if lag is None or own is None else round(lag * own),
            lag_seconds=self._behind_s(row, now),
            counters=counters,
            records_per_s=latency.count / row.latency.seconds(now),
            bytes_per_s=moved.sum / row.moved.seconds(now),
            latency=latency,
            age=row.age.seen(now),
            history=row.history,
        )


def _spread(told: list[int] | None) -> Spread:
    return Spread(*told) if told else Spread()


def _mean(size: int, records: int) -> float | None:
    return size / records if records else None
