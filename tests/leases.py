"""Processes that run one flow, as their leases see each other: a log of records, a clock, and a kernel, all of the
test's."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from heliograph.batch import Record
from heliograph.flow import leadership, presence
from heliograph.flow.changes import digest
from heliograph.flow.leadership import Leadership
from heliograph.flow.presence import Holder
from heliograph.types import Cluster, Flow

FLOW = Flow(Cluster("us"), Cluster("eu"))


class Log:
    """The partition where leases stand."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.records: list[Record] = []
        self.now = 1000.0
        self.dead: set[str] = set()  # as the kernel of this machine knows
        self._names = itertools.count(1)
        patched.setattr(Holder, "is_dead", property(lambda holder: holder.process in self.dead))
        patched.setattr(Holder, "lives", property(lambda holder: False))
        patched.setattr(Holder, "is_this_process", property(lambda holder: False))
        patched.setattr(Holder, "silent_s", property(lambda holder: None))

    def presence(self, name: str) -> Any:
        return SimpleNamespace(process=name, flow=FLOW, claim=0)

    def name(self) -> str:
        return f"process-{next(self._names)}"

    def append(self, process: str, about: dict[str, Any] | None) -> None:
        value = None if about is None else msgspec.json.encode(about)
        self.records.append(Record(len(self.records), 0, presence._key(FLOW, process), value, ()))


class Process:
    """Its name stands for its host too, so that words about it name it."""

    def __init__(self, log: Log) -> None:
        self._log, self.name = log, log.name()
        self.presence = log.presence(self.name)
        self.leadership = Leadership(self.presence, lambda: log.now)
        self._read = self._beats = 0
        self.beat_at = log.now
        self.digest = digest(FLOW)
        self.cannot_write = self.cannot_read = False

    @property
    def leads(self) -> bool:
        return self.leadership.leads

    def beat(self) -> None:
        if self.cannot_write:
            return
        self._beats += 1
        self.beat_at = self._log.now
        about = {
            "host": self.name,
            "pid": 1,
            "since": 0,
            "at": 0,
            "digest": self.digest,
            "beats": self._beats,
            "term": 1,
        }
        self._log.append(self.name, {**about, "claim": self.presence.claim})

    def leave(self) -> None:
        self._log.append(self.name, None)

    def look(self) -> None:
        """Read what is new, and judge, as the coordinator does every second."""
        self.leadership.stop_if_cut_off(self._log.now - self.beat_at)
        if self.cannot_read:
            return
        for record in self._log.records[self._read :]:
            self.leadership.hear(record)
        self._read = len(self._log.records)
        if self.leadership.judge():
            self.beat()

    def resign(self) -> None:
        self.leadership.resign()

    def start(self) -> None:
        self.beat()
        self.look()
        self.look()

    def live(self) -> None:
        self.beat()
        self.look()
        self.look()


assert leadership.GONE_S == presence.GONE_S
