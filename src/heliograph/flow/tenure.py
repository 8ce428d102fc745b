"""Whose a flow is when processes were told to do different things to it: the first one's, until it is made to let go.

Processes with the same configuration may run a flow together: exactly once holds (rules D to G), and whichever copies a
record, it is the same copy. With different ones the topics, policies and settings would go back and forth between them.
So the second is refused, with who runs it; or it takes over, which is a record in the positions topic that the others
obey within a second or two.

Invariants:
  a. Before anything is written by a process, it has looked who runs its flows (`settle`).
  b. Of two that looked at the same moment and saw nobody, the later one lets go once it sees the other (`judge`).
  c. A process that was killed is not waited for longer than GONE_S, and not at all where its machine knows it is dead.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
import structlog

from heliograph import policy
from heliograph.batch import Record
from heliograph.errors import Held
from heliograph.flow.changes import digest
from heliograph.flow.orders import home, whose
from heliograph.flow.presence import (
    BEAT_S,
    GONE_S,
    LOOK_AGAIN_S,
    Holder,
    Presence,
    holder_of,
    holders,
    living,
    process_of,
)
from heliograph.state.compacted import CompactedLog
from heliograph.types import Flow
from heliograph.wire import Client

log = structlog.get_logger()

NAME = "HeliographLetGo"
ASK_S = 10.0  # a target that is up answers in milliseconds
YOUNG_S = 3 * BEAT_S  # so long after its start a process may still find out that another was first


class Tenure:
    """One running flow's side: it hears who else runs it, and whether it is to let go."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self._lock = threading.Lock()
        self._others: dict[str, Holder] = {}
        self._gone = False
        self.let_go: Callable[[str, str], None] = lambda state, why: None  # told the state and why, once

    def hear(self, record: Record) -> None:
        """A record of the partition where presences stand."""
        flow = self._presence.flow
        told = _told_to_let_go(record, flow, self._presence.process)
        if told:
            self._end("stopped", f"taken over by {told}")
        process = process_of(record.key, flow)
        if process is None or process == self._presence.process:
            return
        holder = holder_of(process, record.value)
        with self._lock:
            if holder is None:
                self._others.pop(process, None)
            else:
                self._others[process] = holder

    def judge(self) -> None:
        """Invariant b. Later changes are an operator's own, who applies them to one process after the other."""
        mine = self._presence
        now_ms = time.time_ns() // 1_000_000
        if now_ms - mine.since_ms > YOUNG_S * 1000:
            return
        with self._lock:
            others = list(self._others.values())
        does = digest(mine.flow)
        first = [
            one
            for one in others
            if one.alive(now_ms) and one.digest != does and (one.since_ms, one.process) < (mine.since_ms, mine.process)
        ]
        if first and not _is_nobody(first[0]):
            self._end("failed", _rivals(mine.flow, first[:1]))

    def _end(self, state: str, why: str) -> None:
        with self._lock:
            if self._gone:
                return
            self._gone = True
        self.let_go(state, why)


def settle(flows: Sequence[Flow], *, take_over: bool) -> None:
    """Before anything is written. Raises Held where others do different things to a flow and are not to let go."""

    def one(flow: Flow) -> None:
        with Client(flow.target, timeout_s=ASK_S) as target:
            _settle(flow, target, take_over=take_over)

    with ThreadPoolExecutor(max(len(flows), 1), thread_name_prefix="settle") as pool:
        for _ in pool.map(one, flows):
            pass  # raises the first that is wrong


def _settle(flow: Flow, target: Client, *, take_over: bool) -> None:
    does = digest(flow)

    def rivals() -> list[Holder]:
        others = (one for one in holders(flow, target) if not _is_nobody(one))
        return [one for one in others if take_over or one.digest != does]

    if take_over:
        _take_over(flow, target, rivals)
    elif found := living(flow, rivals):
        raise Held(
            _rivals(flow, found),
            fix="run it with the same settings, stop that process, or say --take-over: then it lets go of the flow",
            flow=flow.name,
        )


def _take_over(flow: Flow, target: Client, rivals: Callable[[], list[Holder]]) -> None:
    told = rivals()
    if told:
        _tell(flow, target, told)
    for one in told:
        log.warning("told to let go, waited for", flow=flow.name, who=one.details)
    asked = {one.process for one in told}
    deadline = time.monotonic() + GONE_S + BEAT_S
    while told:
        if time.monotonic() > deadline:
            raise Held(
                f"{flow.name}: {', '.join(one.details for one in told)} was told to let go and has not",
                fix="see its log, or stop it",
                flow=flow.name,
            )
        time.sleep(LOOK_AGAIN_S)
        told = [one for one in rivals() if one.process in asked]


def _is_nobody(holder: Holder) -> bool:
    """Dead for certain, or what is left of ourselves. Its tasks may outlive it, and copy nothing twice (rules E, F)."""
    return holder.is_dead or holder.is_this_process


def _rivals(flow: Flow, found: Sequence[Holder]) -> str:
    return f"{flow.name} is run with other settings by {' and by '.join(one.details for one in found)}"


def _tell(flow: Flow, target: Client, rivals: Sequence[Holder]) -> None:
    topic = CompactedLog(target, flow.positions_topic or policy.positions_topic(flow.source.alias))
    topic.count()
    said = msgspec.json.encode({"by": f"process {os.getpid()} on {socket.gethostname()}"})
    topic.append(home(flow, topic.partitions), [(_key(flow, one.process), said) for one in rivals])


def _key(flow: Flow, process: str) -> bytes:
    about = {"cluster": flow.source.alias, "process": process, "target": flow.target.alias}
    return msgspec.json.encode([NAME, {**about, **whose(flow)}])


def _told_to_let_go(record: Record, flow: Flow, process: str) -> str:
    """By whom; "": it is nothing of the kind."""
    if record.key != _key(flow, process):
        return ""
    try:
        return str(msgspec.json.decode(record.value or b"")["by"])
    except (TypeError, ValueError, KeyError, RecursionError):
        return ""
