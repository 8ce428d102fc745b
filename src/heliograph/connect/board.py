"""What the topics of a Connect cluster come to: connectors, what they shall do, their tasks, how they fare. Pure.

Folded record by record, in the order of the topics; handed out as `Board`s, which never change. Any node that has read
the topics to their ends has the same one.

Invariants:
  a. A connector is there while its configuration is; a target state alone makes none.
  b. Task configurations count when they are committed, all at once, and only if every one of them was there.
  c. What cannot be read changes nothing.
  d. A configuration that was decided on what the topic held at an offset counts only if no other configuration of the
     same connector stands between that offset and itself. So of two nodes that make one connector in the same moment
     the one whose record comes first has made it, and the other hears so: the topic's order decides, and nobody else.
  e. Compaction keeps the last record of a key, so the last one must be one that counts. A record that does not (it was
     overtaken, or it is a repeat whose answer was lost) leaves its key stale; any node that sees it writes again what
     counts (`repairs`), whichever node wrote the record and whether that one lives or not.
  f. A repair changes nothing. It counts only if no record of its key that counts came after what its node had read, so
     that it undoes no change that it did not see; otherwise the key is stale again. It names the offset of the record
     that it repeats: for d a node that finds only the repair, after compaction, knows as much as one that read all.
  g. A node that finds a record and not all before it, since compaction took some, may judge it otherwise than one that
     read all. So a key is stale as well when a record of it counts that was decided before one that does not; and a
     node repairs only what it judged on offsets that it has read without holes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from heliograph.batch import Record
from heliograph.connect import records
from heliograph.connect.records import Condition, Pair, Repair, Status, Target

Config = Mapping[str, str | None]
OVERTAKEN_KEPT = 1000  # who was overtaken asks at once


@dataclass(frozen=True, slots=True)
class Connector:
    name: str
    config: Config
    target: Target = "STARTED"
    tasks: tuple[Config, ...] = ()
    version: int = 0  # the offset of its configuration: another one is another configuration
    restarts: int = -1  # the offset of the last restart that was asked for
    restart_tasks: bool = False  # what that one said
    restart_failed: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    connectors: Mapping[str, Connector] = field(default_factory=dict)
    statuses: Mapping[tuple[str, int | None], Status] = field(default_factory=dict)
    topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # that a connector was seen to use
    levels: Mapping[str, str] = field(default_factory=dict)  # of loggers, for all nodes
    seen: int = 0  # the offset in the config topic up to which it was read


@dataclass(frozen=True, slots=True)
class Counted:
    """The last record of a key that counts: its bytes, its offset (invariant f), and its change's mark."""

    value: bytes | None
    version: int
    mark: str = ""


NOTHING = Counted(None, -1)


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be written again under a key that is stale."""

    pair: Pair
    repair: Repair


class Folding:
    """The board in the making. One thread folds; `board` may be taken by any."""

    def __init__(self) -> None:
        self._configs: dict[str, tuple[Config, int]] = {}
        self._targets: dict[str, Target] = {}
        self._written: dict[str, dict[int, Config]] = {}
        self._tasks: dict[str, tuple[Config, ...]] = {}
        self._restarts: dict[str, tuple[int, bool, bool]] = {}
        self._statuses: dict[tuple[str, int | None], Status] = {}
        self._topics: dict[str, dict[str, None]] = {}
        self._levels: dict[str, str] = {}
        self._counted: dict[bytes, Counted] = {}  # by the keys of configurations and target states
        self._stale: dict[bytes, int] = {}  # those of them to repair (e, g), by the last record that does not count
        self._unsure: set[bytes] = set()  # those that were judged over a hole (invariant g)
        self._hole_end = 0  # of the last hole
        self.seen = 0  # the offset in the config topic up to which it was read
        self._overtaken: deque[str] = deque(maxlen=OVERTAKEN_KEPT)
        self.strangers = 0

    def config(self, record: Record) -> bool:
        """A record of the config topic; whether it meant anything."""
        self._see(record)
        found = records.event(record.key, record.value)
        if isinstance(found, records.Configured | records.Targeted) and not self._counts(found, record):
            self._stale[record.key or b""] = record.offset
            return False
        match found:
            case records.Configured(name, None):
                for known in (self._configs, self._tasks, self._written):
                    known.pop(name, None)
            case records.Configured(name, config) if config is not None:
                self._configs[name] = config, self._counted[record.key or b""].version
            case records.Targeted(name, None):
                self._targets.pop(name, None)
            case records.Targeted(name, target) if target is not None:
                self._targets[name] = target
            case records.TaskConfigured(name, task, config) if config is not None:
                self._written.setdefault(name, {})[task] = config
            case records.Committed(name, count):
                self._commit(name, count)
            case records.Restarted(name, include, failed):
                self._restarts[name] = record.offset, include, failed
            case records.Levelled(logger, level):
                self._levels[logger] = level
            case None:
                self.strangers += not records.is_for_others(record.key)
                if record.key in self._counted:  # invariant e: nonsense would be all that compaction keeps
                    self._stale[record.key] = record.offset
                return False
        return True

    def _see(self, record: Record) -> None:
        if record.offset > self.seen:
            self._hole_end = record.offset
        self.seen = record.offset + 1

    def _counts(self, found: records.Configured | records.Targeted, record: Record) -> bool:
        """Invariants d and f. A change writes its configuration last, so what has its mark after it is a repeat."""
        key, decider = record.key or b"", record.key or b""
        condition, repair = records.condition_of(record.headers), records.repair_of(record.headers)
        version, mark, seen = record.offset, "", record.offset
        if repair is not None:
            version, seen = repair.version, repair.seen
        elif condition is not None:
            mark, seen, decider = condition.mark, condition.seen, records.connector_key(found.name)
        last = self._counted.get(decider, NOTHING)
        if last.version >= seen:
            if condition is not None and last.mark != mark:
                self._overtaken.append(mark)
            return False
        self._counted[key] = Counted(record.value, version, mark)
        self._judged(key, decider, seen, record.offset)
        return True

    def _judged(self, key: bytes, decider: bytes, seen: int, offset: int) -> None:
        """A record that counts, decided on what was there before `seen` (invariant g)."""
        doubted = self._stale.get(decider, -1) >= seen
        if doubted:
            self._stale[key] = offset
        else:
            self._stale.pop(key, None)
        if self._hole_end > seen:
            self._unsure.add(key)
        else:
            self._unsure.discard(key)

    def repeated(self, record: Record) -> None:
        """A record of the config topic that was stored before: it does not count (invariant e)."""
        self._see(record)
        if isinstance(records.event(record.key, record.value), records.Configured | records.Targeted):
            self._stale[record.key or b""] = record.offset

    def repairs(self) -> list[Due]:
        """What counts under each key that is stale."""
        due = []
        for key in self._stale.keys() - self._unsure:
            counts = self._counted.get(key, NOTHING)
            due.append(Due((key, counts.value), Repair(self.seen, counts.version)))
        return due

    def was_overtaken(self, condition: Condition) -> bool:
        return condition.mark in self._overtaken

    def _commit(self, name: str, count: int) -> None:
        written = self._written.get(name, {})
        before = dict(enumerate(self._tasks.get(name, ())))
        found = {**before, **written}
        if all(n in found for n in range(count)):  # invariant b
            self._tasks[name] = tuple(found[n] for n in range(count))
            self._written.pop(name, None)

    def status(self, record: Record) -> bool:
        """A record of the status topic."""
        about = records.subject(record.key)
        seen = records.topic_subject(record.key)
        if about is not None:
            status = records.status_of(record.value)
            if record.value is None or (status is not None and status.state == "DESTROYED"):
                self._statuses.pop(about, None)
            elif status is not None:
                self._statuses[about] = status
        elif seen is not None and record.value is None:
            self._topics.get(seen[0], {}).pop(seen[1], None)
        elif seen is not None:
            self._topics.setdefault(seen[0], {})[seen[1]] = None
        else:
            self.strangers += 1
            return False
        return True

    def board(self) -> Board:
        connectors = {
            name: Connector(
                *(name, config, self._targets.get(name, "STARTED"), self._tasks.get(name, ()), version),
                *self._restarts.get(name, (-1, False, False)),
            )
            for name, (config, version) in sorted(self._configs.items())
        }
        topics = {name: tuple(sorted(found)) for name, found in self._topics.items() if found}
        return Board(connectors, dict(self._statuses), topics, dict(self._levels), self.seen)
