"""Flow leases: which processes run a flow. Each says so in the positions topic every BEAT_S, until it ends.

MM2 passes these records over (their key names a connector it does not know), and so does `state.positions`. They stand
in one partition, where orders about the flow stand too (`flow.orders`). Two processes may well run one flow (rules E to
G see to it), as long as they do the same to it (`flow.tenure`); and whoever changes positions by hand must know.

Clocks of different machines are never compared: a process is silent for as long as a reader has *watched* its record
without seeing it change, by the reader's own monotonic clock. (Processes of one boot share a clock that nothing sets:
their records carry it, and their silence is known at once.)

Invariants:
  a. A process beats every BEAT_S, and its tasks end GONE_AFTER_S (`mirror.link`) after it fell silent. So a record that
     has not changed for GONE_S is that of a process that runs nothing: it ended, or it is frozen or cut off.
  b. A process that has been silent itself for LAPSE_S, for whatever reason, does not know what happened meanwhile: it
     reads leases, orders and positions again before it beats again (`flow.lease`). LAPSE_S < GONE_S: it never
     goes on after others took it for gone without having looked.
  c. Positions are changed by hand only when no process beats (`require_free`), or when a person insists. What a task
     that slept writes after that is void: the change says so in the topic (`state.fence`).
  d. No process is taken for gone that beats, whatever the clocks say. One that this machine's kernel knows to exist
     holds the flow also while it is frozen.
  e. Who has found a process gone removes its record, so that the next does not wait again; a process that finds its
     own record removed has been silent (b).
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
import structlog

from heliograph import policy
from heliograph.errors import BrokerError, Held, HeliographError
from heliograph.flow.changes import digest
from heliograph.flow.kernel import Where, has_ended, here, up_ms
from heliograph.flow.orders import LATEST_MS, home, is_about, whose
from heliograph.state.compacted import CompactedLog
from heliograph.types import Flow
from heliograph.wire import Client
from heliograph.wire.groups import DEAD, EMPTY

log = structlog.get_logger()

NAME = "HeliographProcess"
BEAT_S = 5.0
GONE_S = 20.0  # a beat, `mirror.link.GONE_AFTER_S`, and the time in which a task ends
LAPSE_S = GONE_S - BEAT_S
LOOK_AGAIN_S = 0.25
LEAVE_S = 0.5  # what taking it back may cost an end that should be quick


@dataclass(frozen=True, slots=True)
class Holder:
    process: str
    host: str
    pid: int
    since_ms: int
    at_ms: int
    digest: str = ""  # of what it does (`flow.changes`)
    file: str = ""
    where: Where = field(default_factory=Where)  # in records of older processes there is nothing of it
    term: int = 0  # of the configuration (`flow.tenure`); 0: a process of 0.1
    beats: int = 0  # so far: two beats are never the same record
    up_ms: int = 0  # by the clock of its machine's boot, when it beat
    claim: int = 0  # of the leadership (`flow.leadership`); 0: it stands by

    @property
    def silent_s(self) -> float | None:
        """For how long, where that can be known from the record alone: it is of this machine's boot."""
        boot = here().boot
        return (up_ms() - self.up_ms) / 1000 if boot and boot == self.where.boot and self.up_ms else None

    @property
    def is_over(self) -> bool:
        """Known for certain to be gone, and its tasks with it."""
        return not self.lives and (self.silent_s or 0.0) >= GONE_S

    @property
    def is_dead(self) -> bool:
        """Known for certain, since it was on this machine."""
        return self._is_here and has_ended(self.pid, self.where.started)

    @property
    def is_this_process(self) -> bool:
        """Or one before it that had its id."""
        return self._is_here and self.pid == os.getpid()

    @property
    def lives(self) -> bool:
        """Known for certain. Not so of this process itself: its record may be all that is left of an earlier run."""
        return self._is_here and not self.is_this_process and not self.is_dead

    @property
    def _is_here(self) -> bool:
        return self.pid > 0 and self.host == socket.gethostname() and here().shares_ids(self.where)

    @property
    def details(self) -> str:
        return f"{self}, since {_time(self.since_ms)}" + (f", by the file {self.file}" if self.file else "")

    def __str__(self) -> str:
        quiet = _now_ms() - self.at_ms >= GONE_S * 1000
        at = f" (last beat {_time(self.at_ms)} by its clock)" if quiet else ""
        return f"process {self.pid} on {self.host}{at}"


class Presence:
    """This process's side."""

    def __init__(self, flow: Flow, target: Client, file: str = "", now: Callable[[], Moment] | None = None) -> None:
        self.flow = flow  # replaced when its file changes
        self._client, self._file = target, file
        self._log = CompactedLog(target, flow.positions_topic or policy.positions_topic(flow.source.alias))
        self._lock = threading.Lock()  # beats of a chore that ends, and of the one that follows it
        self.since_ms, self._where = _now_ms(), here()
        self.process = uuid.uuid4().hex
        self.term = 0
        self.claim = 0  # of the leadership
        self._key = _key(flow, self.process)
        self._beats = 0
        self._left = False
        self._now = now or Moment.now
        self.beat_at = self._now()  # when the last beat that the target has acknowledged began, or this did

    def beat(self) -> None:
        with self._lock:
            began = self._now()
            if self._left:
                return  # a chore that was late: the lease would stay behind
            # Every time: in a topic that was recreated or has more partitions by now, leases stand in another one.
            if not self._log.look() and not self._log.partitions:
                self.beat_at = began
                return  # not made yet: there are no positions either
            about = {
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "since": self.since_ms,
                "at": _now_ms(),
                "digest": digest(self.flow),
                "file": self._file,
                "where": asdict(self._where),
                "term": self.term,
                "beats": self._beats + 1,
                "up": up_ms(),
                "claim": self.claim,
            }
            self._append(self._key, msgspec.json.encode(about))
            self._beats += 1
            self.beat_at = began

    def leave(self) -> None:
        """For good. Best effort: what is not taken back runs out."""
        self._left = True
        if self._log.partitions:
            self._client.timeout_s = LEAVE_S
            with contextlib.suppress(HeliographError):
                self._append(self._key, None)

    def close(self) -> None:
        self._client.close()

    def _append(self, key: bytes, value: bytes | None) -> None:
        self._log.append(home(self.flow, self._log.partitions), [(key, value)])


class Moment(NamedTuple):
    """By both clocks: one that stands still while the machine sleeps, and one that is set. The larger age counts, and a
    clock that was set costs one look too many."""

    monotonic: float
    wall: float

    @classmethod
    def now(cls) -> Moment:
        return cls(time.monotonic(), time.time())

    def since(self, earlier: Moment) -> float:
        return max(self.monotonic - earlier.monotonic, self.wall - earlier.wall)


def holders(flow: Flow, target: Client) -> list[Holder]:
    """The processes that say they run this flow, but for those that are over for certain. Whether the others beat,
    `living` finds out."""
    log = CompactedLog(target, flow.positions_topic or policy.positions_topic(flow.source.alias))
    if not log.count():
        return []
    found: dict[str, Holder] = {}
    for _, record in log.news(home(flow, log.partitions)):
        process = process_of(record.key, flow)
        if process is None:
            continue
        holder = holder_of(process, record.value)
        if holder is None:
            found.pop(process, None)
        else:
            found[process] = holder
    return sorted((one for one in found.values() if not one.is_over), key=lambda one: one.since_ms)


class Watch:
    """Which records change, by a reader's own clock."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Holder, float]] = {}  # as last seen, and since when it is unchanged
        self._looked = False

    def saw(self, found: Sequence[Holder], at: float) -> list[Holder]:
        """`at`: when this look began. Those that run the flow for certain: they beat while it was watched, or this
        machine's kernel knows them. The first look is the one to compare with."""
        first, self._looked = not self._looked, True
        living = []
        for one in found:
            before = self._seen.get(one.process)
            if before is None or before[0] != one:
                self._seen[one.process] = one, at - (one.silent_s or 0.0) if first else at
            if one.lives or (before is None and not first) or (before is not None and before[0] != one):
                living.append(one)
        return living

    def gone(self, one: Holder, at: float) -> bool:
        """Whether it was not seen to change for GONE_S."""
        seen, since = self._seen.get(one.process, (one, at))
        return one == seen and not one.lives and at - since >= GONE_S


def living(flow: Flow, look: Callable[[], Sequence[Holder]]) -> tuple[list[Holder], list[Holder]]:
    """Those of `look` that run the flow for certain; if there are none, those that do not (invariant a). Watches all
    others until one of them beats, GONE_S at most."""
    watch = Watch()
    for one in (found := look()):
        if not one.lives:
            log.warning("waiting for the next beat of a process", flow=flow.name, process=one.details, most_s=GONE_S)
    at = time.monotonic()
    while not (sure := watch.saw(found, at)) and not all(watch.gone(one, at) for one in found):
        time.sleep(LOOK_AGAIN_S)
        at = time.monotonic()  # before the look: what it finds was so afterwards, however long this process slept
        found = look()
    return sure, [] if sure else list(found)


def remove(flow: Flow, target: Client, gone: Sequence[Holder]) -> None:
    """Invariant e. Best effort: otherwise the next one waits again."""
    if not gone:
        return
    topic = CompactedLog(target, flow.positions_topic or policy.positions_topic(flow.source.alias))
    with contextlib.suppress(HeliographError):
        topic.count()
        topic.append(home(flow, topic.partitions), [(_key(flow, one.process), None) for one in gone])
    for one in gone:
        log.info("process is gone, its lease is removed", flow=flow.name, process=one.details)


def mm2_group(flow: Flow) -> str:
    """The group that the workers of an MM2 form on the target, unless its file names another."""
    return f"{flow.source.alias}-mm2"


def mm2_state(flow: Flow, target: Client) -> str:
    """Kafka's word for that group; why it could not be asked, behind a question mark."""
    group = mm2_group(flow)
    try:
        state = target.describe_groups([group])[group]
    except BrokerError as error:
        return f"? {error}"
    return f"? {state}" if isinstance(state, BrokerError) else state


def has_workers(state: str) -> bool:
    return state not in (DEAD, EMPTY) and not state.startswith("?")


def require_free(flow: Flow, target: Client) -> None:
    """Raises Held with who runs it: a Heliograph, or an MM2, which would write over any position with its next one."""
    if has_workers(mm2_state(flow, target)):
        found = [f"a MirrorMaker 2 (its group {mm2_group(flow)} has members)"]
    else:
        sure, gone = living(flow, lambda: holders(flow, target))
        found = [str(holder) for holder in sure]
    if not found:
        remove(flow, target, gone)
        return
    raise Held(
        f"{flow.name} is being run by {' and '.join(found)}",
        fix="stop it first, or insist with --force: it then goes on where it is until it is restarted",
        flow=flow.name,
    )


def _key(flow: Flow, process: str) -> bytes:
    about = {"cluster": flow.source.alias, "process": process, "target": flow.target.alias}
    return msgspec.json.encode([NAME, {**about, **whose(flow)}])


def process_of(key: bytes | None, flow: Flow) -> str | None:
    try:
        name, about = msgspec.json.decode(key or b"")
        if name != NAME or not is_about(about, flow):
            return None
        return str(about["process"])
    except (AttributeError, TypeError, ValueError, KeyError, RecursionError):
        return None


def holder_of(process: str, value: bytes | None) -> Holder | None:
    try:
        about = msgspec.json.decode(value or b"")
        told = (str(about.get("digest", "")), str(about.get("file", "")), _where(about.get("where")))
        counts = [int(about.get(name, 0)) for name in ("term", "beats", "up", "claim")]
        since_ms, at_ms = (min(max(int(about[name]), 0), LATEST_MS - 1) for name in ("since", "at"))
        return Holder(process, str(about["host"]), int(about["pid"]), since_ms, at_ms, *told, *counts)
    except (AttributeError, TypeError, ValueError, KeyError, OverflowError, RecursionError):
        return None


def _where(told: object) -> Where:
    try:
        return msgspec.convert(told, Where)
    except msgspec.ValidationError:
        return Where()


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
