"""What a flow may copy in a second, dealt out to its tasks: one figure, however many there are.

Every task says once a second how much it took of its share of each cap and whether it had to wait (`mirror.budget`);
those that did not keep what they use and a little more, the others share the rest alike. Answers for the shares and for
what is shown of caps; how a task keeps to its share is its own affair.

Invariant: the shares of one epoch's tasks add up to the cap, whether a task has spoken yet or not, has died or was
begun again. Tasks of two epochs do not copy at once (`flow.relay`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from heliograph.flow.relay import TaskKey
from heliograph.flow.tally import RATE_WINDOW_S, Tally
from heliograph.health.status import CapStatus
from heliograph.mirror.protocol import Report
from heliograph.policy import cap_of
from heliograph.types import Cap, Flow, TopicPartition

DEAL_EVERY_S = 0.9  # tasks speak once a second: about once for all of them
SPARE = 0.01  # beyond what a task took, and of the cap for those that took nothing: what they may begin with
CHANGED = 0.01  # shares that differ by less are not told


@dataclass(frozen=True, slots=True)
class Want:
    """What a task took of a cap in the last second, and whether it would have taken more."""

    bytes_per_s: float
    short: bool


def deal(limit: float, wants: Sequence[Want]) -> list[float]:
    """One share a task, together the limit: each what it wants if that can be, otherwise as much as the others."""
    floor = SPARE * limit / max(len(wants), 1)
    needs = [limit if want.short else min(want.bytes_per_s * (1 + SPARE) + floor, limit) for want in wants]
    shares = [0.0] * len(needs)
    left, waiting = limit, len(needs)
    for index in sorted(range(len(needs)), key=lambda i: needs[i]):  # the smallest first: what it leaves is the others'
        shares[index] = min(needs[index], left / waiting)
        left, waiting = left - shares[index], waiting - 1
    return [share + left / len(shares) for share in shares]


@dataclass(slots=True)
class Heard:
    """What a task said, by cap: bytes from `since` to `until`, and what that came to when enough was known last."""

    since: float
    until: float
    bytes: list[int]
    short: list[bool]
    wants: list[Want] = field(default_factory=list)

    def hear(self, said: Sequence[tuple[int, bool]], now: float) -> None:
        self.until = now
        for index, (size, short) in enumerate(said):
            self.bytes[index] += size
            self.short[index] |= bool(short)

    def judge(self) -> None:
        """By whole reports: a task that has not spoken since is taken at its last word."""
        elapsed = self.until - self.since
        if elapsed >= DEAL_EVERY_S / 2:
            self.wants = [Want(size / elapsed, short) for size, short in zip(self.bytes, self.short, strict=True)]
            self.since, self.bytes, self.short = self.until, [0] * len(self.bytes), [False] * len(self.short)


@dataclass(slots=True)
class Caps:
    """The caps of one flow."""

    caps: tuple[Cap, ...]
    tally: Tally
    clock: Callable[[], float] = time.monotonic
    _next: tuple[Cap, ...] | None = None  # told since the epoch began
    _epoch: int = 0
    _shares: list[list[float]] = field(default_factory=list)  # by task, then by cap
    _heard: dict[int, Heard] = field(default_factory=dict)  # of tasks that have spoken, since shares were dealt
    _dealt_at: float = 0.0
    _copied: deque[tuple[float, list[int]]] = field(default_factory=deque)  # when, and bytes by cap since the start
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def change(self, flow: Flow) -> None:
        """Other caps count from the next epoch on: the tasks of this one know theirs, and speak of them."""
        with self._lock:
            self._next = flow.caps

    def begin(
        self, epoch: int, tasks: Sequence[Iterable[TopicPartition]], rates: Mapping[TopicPartition, float]
    ) -> list[tuple[float, ...]]:
        """A new epoch's first shares: half of a cap alike, half by what the partitions moved last."""
        with self._lock:
            if self._next is not None and self._next != self.caps:
                self.caps, self._shares, self._heard = self._next, [], {}
                self._copied.clear()
            self._next = None
        moved = [[self._moved(index, tps, rates) for index in range(len(self.caps))] for tps in map(list, tasks)]
        with self._lock:
            self._epoch, self._heard = epoch, {}
            self._shares = [[0.0] * len(self.caps) for _ in moved]
            for index, cap in enumerate(self.caps):
                total = sum(row[index] for row in moved)
                for task, row in enumerate(moved):
                    part = row[index] / total if total > 0 else 1 / len(moved)
                    self._shares[task][index] = cap.bytes_per_s * (0.5 / len(moved) + 0.5 * part)
            return [tuple(row) for row in self._shares]

    def share(self, task: TaskKey) -> list[float]:
        """As it is now, for one that was begun again; none: it is not of this epoch."""
        with self._lock:
            here = task[0] == self._epoch and task[1] < len(self._shares)
            return list(self._shares[task[1]]) if here else []

    def reported(self, task: TaskKey, report: Report) -> dict[int, list[float]]:
        """After the tally. Who is to be told of another share than before."""
        if not self.caps:
            return {}
        now = self.clock()
        with self._lock:
            self._note(now)
            if task[0] != self._epoch or task[1] >= len(self._shares):
                return {}
            if (heard := self._heard.get(task[1])) is None:  # its first word: since when it took that is not known
                self._heard[task[1]] = Heard(now, now, [0] * len(self.caps), [False] * len(self.caps))
            else:
                heard.hear(report.caps, now)
            if len(self._shares) == 1 or now - self._dealt_at < DEAL_EVERY_S:
                return {}
            self._dealt_at = now
            return self._deal()

    def status(self) -> tuple[CapStatus, ...]:
        with self._lock:
            if len(self._copied) < 2:
                return tuple(CapStatus(cap.topics, cap.bytes_per_s, 0.0) for cap in self.caps)
            (began, first), (ended, last) = self._copied[0], self._copied[-1]
            ended = max(ended, self.clock() - 2.0)  # reports that do not come are no bytes either
            elapsed = max(ended - began, 0.001)
            rates = [(after - before) / elapsed for before, after in zip(first, last, strict=True)]
            return tuple(
                CapStatus(cap.topics, cap.bytes_per_s, rate) for cap, rate in zip(self.caps, rates, strict=True)
            )

    def _deal(self) -> dict[int, list[float]]:
        """Among those of whom enough is known; the others keep what they have."""
        for heard in self._heard.values():
            heard.judge()
        wants = {task: heard.wants for task, heard in sorted(self._heard.items()) if heard.wants}
        changed: set[int] = set()
        for index, cap in enumerate(self.caps):
            kept = sum(row[index] for task, row in enumerate(self._shares) if task not in wants)
            dealt = deal(cap.bytes_per_s - kept, [said[index] for said in wants.values()])
            shares = dict(zip(wants, dealt, strict=True))
            if all(abs(s - self._shares[t][index]) < CHANGED * cap.bytes_per_s for t, s in shares.items()):
                continue
            for task, share in shares.items():
                self._shares[task][index] = share
                changed.add(task)
        return {task: list(self._shares[task]) for task in changed}

    def _moved(self, index: int, tps: Iterable[TopicPartition], rates: Mapping[TopicPartition, float]) -> float:
        return sum(rates.get(tp, 0.0) for tp in tps if self._is_under(index, tp.topic))

    def _is_under(self, index: int, topic: str) -> bool:
        return self.caps[index].topics is None or cap_of(self.caps, topic) == index

    def _note(self, now: float) -> None:
        copied = self.tally.bytes_by_topic()
        sums = [sum(size for topic, size in copied.items() if self._is_under(i, topic)) for i in range(len(self.caps))]
        self._copied.append((now, sums))
        while len(self._copied) > 2 and self._copied[1][0] < now - RATE_WINDOW_S:
            self._copied.popleft()
