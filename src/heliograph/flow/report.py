"""A flow's state put into words: from its query, its partitions' health, and whatever troubles it.

Reads what the coordinator, the tally, the observer and the specialists know; keeps nothing. The order of precedence is
here alone: a query that does not run stands before partitions that do not move, and those before troubles that do not
keep records from moving.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace

from heliograph.flow.observer import Observer
from heliograph.flow.specialists import Specialists
from heliograph.flow.tally import Tally
from heliograph.health.status import SOUND, CapStatus, FlowReport, FlowStatus, Order, ParkedPartition, PartitionStatus
from heliograph.health.verdict import Health, Summary, summary
from heliograph.state.incidents import Counts
from heliograph.survey.topics import Survey
from heliograph.types import Flow, TopicPartition

FRESH_S = 3600.0  # an incident of the last hour is news


@dataclass(slots=True)
class Course:
    """How the flow's streaming query fares, by its supervisor's word."""

    state: str = "starting"
    reason: str = ""
    again_at: float | None = None  # monotonic: when the supervisor starts it again
    epochs: int = 0
    restarts: int = 0
    trouble: str = ""  # of the coordinator's own: looking for topics, planning

    def say(self, state: str, reason: str, again_at: float | None) -> None:
        self.restarts += state == "restarting"
        self.state, self.reason, self.again_at = state, reason, again_at

    @property
    def words(self) -> str:
        if not self.reason or self.again_at is None:
            return self.reason
        return f"{self.reason}; again in {max(math.ceil(self.again_at - time.monotonic()), 0)} s"


@dataclass(frozen=True, slots=True)
class Look:
    """Everything a state follows from, at one moment."""

    flow: Flow
    survey: Survey
    tasks: int
    epoch: int
    course: Course
    tally: Tally
    observer: Observer
    specialists: Specialists
    incidents: Counts = field(default_factory=Counts)
    orders: tuple[Order, ...] = ()
    generation: int = 1
    caps: tuple[CapStatus, ...] = ()

    @property
    def because(self) -> str:
        """What is in the way of the whole flow, for partitions that no task has."""
        course = self.course
        if course.state == "starting" and not course.reason:
            return "Spark is being started"
        first = "Spark has not started a task yet" if not self.tasks and not course.epochs else ""
        return course.reason or course.trouble or first


def status(look: Look) -> FlowStatus:
    return _status(look, summary(look.observer.verdicts(look.because)))


def report(look: Look, observer: Observer) -> FlowReport:
    found = summary(observer.verdicts(look.because))
    checkpoints = look.specialists.checkpoint_latencies
    status = _status(look, found)
    return FlowReport(
        source=look.flow.source.alias,
        target=look.flow.target.alias,
        status=status,
        because=_because(look, found, status),
        partitions=tuple(_counted(one, look.incidents) for one in observer.partitions(look.because)),
        latency=observer.latency(),
        latencies_p99_ms=observer.latencies_p99_ms(),
        checkpoint_latency=checkpoints.histogram() if checkpoints else None,
        checkpoint_latencies=checkpoints.spreads() if checkpoints else {},
        heartbeat_age_s=look.specialists.heartbeat_age_s,
        epochs=look.course.epochs,
        restarts=look.course.restarts,
        incidents=look.incidents.recent,
    )


def _counted(one: PartitionStatus, counts: Counts) -> PartitionStatus:
    """What was lost and held back is counted by the incidents, where a crash counts nothing twice."""
    tp = TopicPartition(one.topic, one.partition)
    told = {"lost": counts.lost.get(tp, 0), "held": counts.held.get(tp, 0)}
    return replace(one, counters={**one.counters, **told})


def _status(look: Look, found: Summary) -> FlowStatus:
    tally, survey = look.tally, look.survey
    parked = survey.parked + tally.parked()
    records_per_s, bytes_per_s = tally.per_second()
    lags = look.observer.lags().values()
    records, seconds = [lag for lag, _ in lags], [behind for _, behind in lags]
    state, reason = _state(look, found, parked, seen=any(lag is not None for lag in records))
    return FlowStatus(
        name=look.flow.name,
        state=state,
        reason=reason,
        topics=survey.topics,
        partitions=len(survey.routes),
        tasks=look.tasks,
        records=tally.total("records"),
        bytes=tally.total("bytes"),
        records_per_s=records_per_s,
        bytes_per_s=bytes_per_s,
        lag_records=None if None in records else sum(lag for lag in records if lag is not None),
        duplicates_refused=tally.total("repeated"),
        retries=tally.total("retries"),
        epoch=look.epoch,
        parked=parked,
        lag_seconds=None if None in seconds else round(max((s for s in seconds if s is not None), default=0.0), 3),
        latency_p99_ms=look.observer.latency_p99_ms(),
        stalled=found.counts[Health.STALLED],
        incidents=dict(look.incidents.kinds),
        gap_offsets=sum(look.incidents.lost.values()),
        refused_records=sum(look.incidents.held.values()),
        last_incident=_last(look.incidents),
        orders=look.orders,
        generation=look.generation,
        caps=look.caps,
    )


def _last(counts: Counts) -> str:
    last = counts.recent[-1] if counts.recent else None
    return last.words if last is not None and time.time() - last.at_ms / 1000 < FRESH_S else ""


def _state(look: Look, found: Summary, parked: tuple[ParkedPartition, ...], *, seen: bool) -> tuple[str, str]:
    course = look.course
    if course.state != "running":
        starting = look.because if course.state == "starting" else ""
        return course.state, course.words or _trouble(look) or starting
    whole = next((order for order in look.orders if order.topic is None), None)
    if whole is not None:
        return whole.word, whole.words
    if look.survey.routes and not seen and not _all_ordered(found):
        tasks = "" if look.observer.has_begun else "Spark is starting its tasks"
        return "starting", _trouble(look) or look.because or tasks or found.words
    if found.health is Health.STALLED:
        return "stalled", found.words
    if parked or found.health is Health.PARKED:
        return "parked", found.words or _words(parked[0])
    if not look.survey.routes:
        return "idle", _trouble(look) or "no topic matches yet"
    return "running", _trouble(look) or _ordered(found)


def _all_ordered(found: Summary) -> bool:
    return sum(found.counts.values()) == found.counts[Health.PAUSED] + found.counts[Health.STOPPED]


def _ordered(found: Summary) -> str:
    told = [f"{count} {health.value}" for health in (Health.PAUSED, Health.STOPPED) if (count := found.counts[health])]
    return f"of {sum(found.counts.values())} partitions {' and '.join(told)} by an operator" if told else ""


def _because(look: Look, found: Summary, status: FlowStatus) -> str:
    """Its reason without seconds; "" while it is sound."""
    if status.state in SOUND:
        return ""
    if status.state in ("stalled", "parked"):
        return found.because or _words(status.parked[0])
    return look.because or _trouble(look)


def _trouble(look: Look) -> str:
    """What troubles it without keeping records from moving: the coordinator's, then tasks', then specialists'."""
    said = (look.course.trouble, *look.tally.trouble, *look.specialists.troubles)
    return next((one for one in said if one), "")


def _words(one: ParkedPartition) -> str:
    where = one.topic if one.partition is None else f"{one.topic}-{one.partition}"
    return f"{where}: {one.reason}" + (f". {one.fix}" if one.fix else "")
