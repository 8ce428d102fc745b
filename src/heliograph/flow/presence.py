"""Who runs a flow: each process says so in the positions topic, every few seconds, and takes it back when it ends.

MM2 passes these records over (their key names a connector it does not know), and so does `state.positions`. They stand
in one partition, where orders about the flow stand too (`flow.orders`). Two processes may well run one flow (rules E to
G see to it), as long as they do the same to it (`flow.tenure`); and whoever changes positions by hand must know.

Invariants:
  a. A process that may still write positions has a record here that is younger than GONE_S, unless it could not write
     to the positions topic at all, in which case it wrote no positions either. So has a driver that was killed: its
     tasks outlive it by `mirror.link.GONE_AFTER_S`, and write positions until then.
  b. Positions are changed by hand only when there is no such record (`require_free`), or when a person insists: a
     running task goes on from where it is, and compaction may leave its next position as the only one.
  c. Nobody is taken for dead who may live: what is not known for certain is waited for, GONE_S at most (`living`).
Ages are by the clocks of the two machines, so they are taken as roughly true: GONE_S is four beats, or one and the time
of a task without its driver, and some to spare.
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

import msgspec
import structlog

from heliograph import policy
from heliograph.errors import BrokerError, Held, HeliographError
from heliograph.flow.changes import digest
from heliograph.flow.kernel import Where, has_ended, here
from heliograph.flow.orders import home, is_about, whose
from heliograph.state.compacted import CompactedLog
from heliograph.types import Flow
from heliograph.wire import Client
from heliograph.wire.groups import DEAD, EMPTY

log = structlog.get_logger()

NAME = "HeliographProcess"
BEAT_S = 5.0
GONE_S = 20.0
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

    def alive(self, now_ms: int) -> bool:
        """By its last beat."""
        return now_ms - self.at_ms < GONE_S * 1000

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
        since = datetime.fromtimestamp(self.since_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        return f"{self}, since {since}" + (f", by the file {self.file}" if self.file else "")

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Presence:
    """This process's side."""

    def __init__(self, flow: Flow, target: Client, file: str = "") -> None:
        self.flow = flow  # replaced when its file changes
        self._client, self._file = target, file
        self._log = CompactedLog(target, flow.positions_topic or policy.positions_topic(flow.source.alias))
        self._lock = threading.Lock()  # beats of a chore that ends, and of the one that follows it
        self.since_ms, self._where = _now_ms(), here()
        self.process = uuid.uuid4().hex
        self._key = _key(flow, self.process)

    def beat(self) -> None:
        with self._lock:
            if not self._log.partitions and not self._log.count():
                return  # not made yet: there are no positions either
            about = {
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "since": self.since_ms,
                "at": _now_ms(),
                "digest": digest(self.flow),
                "file": self._file,
                "where": asdict(self._where),
            }
            self._append(self._key, msgspec.json.encode(about))

    def leave(self) -> None:
        """Best effort: what is not taken back runs out."""
        if self._log.partitions:
            self._client.timeout_s = LEAVE_S
            with contextlib.suppress(HeliographError):
                self._append(self._key, None)

    def close(self) -> None:
        self._client.close()

    def _append(self, key: bytes, value: bytes | None) -> None:
        self._log.append(home(self.flow, self._log.partitions), [(key, value)])


def holders(flow: Flow, target: Client) -> list[Holder]:
    """The processes that run this flow now, as far as they say so."""
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
    now_ms = _now_ms()
    return sorted((one for one in found.values() if one.alive(now_ms)), key=lambda one: one.since_ms)


def living(flow: Flow, look: Callable[[], Sequence[Holder]]) -> list[Holder]:
    """Those of `look` that run the flow for certain. Waits for the next beat of all others, GONE_S at most."""
    found = look()
    beats = {one.process: one.at_ms for one in found}
    forgotten_at = time.monotonic() + GONE_S
    for one in found:
        if not one.lives:
            log.warning("waiting to see whether it lives", flow=flow.name, who=one.details, most_s=GONE_S)
    while found and time.monotonic() < forgotten_at:
        if sure := [one for one in found if one.lives or one.at_ms > beats.get(one.process, 0)]:
            return sure
        time.sleep(LOOK_AGAIN_S)
        found = look()
    return []


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
        found = [str(holder) for holder in living(flow, lambda: holders(flow, target))]
    if not found:
        return
    raise Held(
        f"{flow.name} is being run by {' and '.join(found)}",
        fix="stop it first, or insist with --force: its next positions may then undo the change",
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
        return Holder(process, str(about["host"]), int(about["pid"]), int(about["since"]), int(about["at"]), *told)
    except (AttributeError, TypeError, ValueError, KeyError, RecursionError):
        return None


def _where(told: object) -> Where:
    try:
        return msgspec.convert(told, Where)
    except msgspec.ValidationError:
        return Where()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
