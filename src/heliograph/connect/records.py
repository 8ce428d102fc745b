"""The records of a Connect cluster's own topics: configurations, target states, tasks, restarts, statuses. Pure.

Byte for byte what Connect's JsonConverter writes without schemas, so that a real worker goes on from topics that we
wrote and we from its. What cannot be read is None, and a reader goes on behind it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from heliograph.batch.records import Headers

Target = Literal["STARTED", "PAUSED", "STOPPED"]
TARGETS: tuple[Target, ...] = ("STARTED", "PAUSED", "STOPPED")
Pair = tuple[bytes, bytes | None]

CONNECTOR, TARGET, TASK, COMMIT = "connector-", "target-state-", "task-", "commit-"
RESTART, LOGGER = "restart-connector-", "logger-cluster-"
SESSION_KEY, FENCING = "session-key", "tasks-fencing-"
STATUS_CONNECTOR, STATUS_TASK, STATUS_TOPIC = "status-connector-", "status-task-", "status-topic-"
BY_CONNECTOR = ":connector-"
# Headers: Connect reads none, so the records stay its own.
CONDITION, REPAIR = "heliograph.seen", "heliograph.repair"
_REPAIR = re.compile(rb"([0-9]{1,18}) (-1|[0-9]{1,18})")
STATES = ("UNASSIGNED", "RUNNING", "PAUSED", "FAILED", "RESTARTING", "STOPPED", "DESTROYED")


@dataclass(frozen=True, slots=True)
class Configured:
    """`config` None: the connector is deleted."""

    name: str
    config: Mapping[str, str | None] | None


@dataclass(frozen=True, slots=True)
class Targeted:
    name: str
    target: Target | None


@dataclass(frozen=True, slots=True)
class TaskConfigured:
    name: str
    task: int
    config: Mapping[str, str | None] | None


@dataclass(frozen=True, slots=True)
class Committed:
    """So many tasks of those written before count from now on."""

    name: str
    tasks: int


@dataclass(frozen=True, slots=True)
class Restarted:
    name: str
    include_tasks: bool
    only_failed: bool


@dataclass(frozen=True, slots=True)
class Levelled:
    logger: str
    level: str


Event = Configured | Targeted | TaskConfigured | Committed | Restarted | Levelled


@dataclass(frozen=True, slots=True)
class Status:
    """Of a connector or of one of its tasks, as a worker last said."""

    state: str
    worker_id: str
    trace: str | None = None
    generation: int = 0
    version: str | None = None  # of the connector's class; workers before 4.1 say none


@dataclass(frozen=True, slots=True)
class Condition:
    """What a change rests on: all of the config topic before this offset. `mark` is the change's own."""

    seen: int
    mark: str

    def headers(self) -> Headers:
        return ((CONDITION, f"{self.seen} {self.mark}".encode()),)


def condition_of(headers: Headers) -> Condition | None:
    """None: it counts whatever happened; so does nonsense, since Connect itself sets no conditions."""
    told = next((value for name, value in headers if name == CONDITION), None) or b""
    seen, _, mark = told.decode("latin-1").partition(" ")
    known = seen.isascii() and seen.isdigit() and len(seen) < 19 and bool(mark)
    return Condition(int(seen), mark) if known else None


@dataclass(frozen=True, slots=True)
class Repair:
    """A record that says again what counts under its key, since the last record of that key does not count. `seen`: all
    of the config topic before this offset was read. `version`: the offset of the record that counts, -1: there is
    none and the key has no value."""

    seen: int
    version: int

    def headers(self) -> Headers:
        return ((REPAIR, f"{self.seen} {self.version}".encode()),)


def repair_of(headers: Headers) -> Repair | None:
    """None also for nonsense: the record then counts like Connect's own."""
    told = next((value for name, value in headers if name == REPAIR), None) or b""
    match = _REPAIR.fullmatch(told)
    return Repair(int(match[1]), int(match[2])) if match is not None else None


# ---------------------------------------------------------------- the config topic


def configured(name: str, config: Mapping[str, str | None]) -> Pair:
    return _pair(f"{CONNECTOR}{name}", {"properties": dict(config)})


def connector_key(name: str) -> bytes:
    return f"{CONNECTOR}{name}".encode()


def deleted(name: str) -> list[Pair]:
    return [_pair(f"{CONNECTOR}{name}", None), _pair(f"{TARGET}{name}", None)]


def targeted(name: str, target: Target) -> Pair:
    """Workers before 3.5 know no STOPPED and read `state` only."""
    old = "PAUSED" if target == "STOPPED" else target
    return _pair(f"{TARGET}{name}", {"state": old, "state.v2": target})


def tasks(name: str, configs: Sequence[Mapping[str, str]]) -> list[Pair]:
    """All of them, and the record by which they count."""
    pairs = [_pair(f"{TASK}{name}-{n}", {"properties": dict(config)}) for n, config in enumerate(configs)]
    return [*pairs, _pair(f"{COMMIT}{name}", {"tasks": len(configs)})]


def restarted(name: str, *, include_tasks: bool, only_failed: bool) -> Pair:
    return _pair(f"{RESTART}{name}", {"include-tasks": include_tasks, "only-failed": only_failed})


def levelled(logger: str, level: str) -> Pair:
    return _pair(f"{LOGGER}{logger}", {"level": level})


def event(key: bytes | None, value: bytes | None) -> Event | None:
    """What a record of the config topic says; None for what we have no use for and for nonsense."""
    name = _key(key)
    about = _value(value)
    if name is None or (value is not None and about is None):
        return None
    if name.startswith(CONNECTOR):
        return _configured(name.removeprefix(CONNECTOR), about)
    if name.startswith(TARGET):
        return _targeted(name.removeprefix(TARGET), about)
    if name.startswith(TASK):
        return _task(name.removeprefix(TASK), about)
    if name.startswith(COMMIT) and about is not None and _whole(about.get("tasks")):
        return Committed(name.removeprefix(COMMIT), about["tasks"])
    if name.startswith(RESTART) and about is not None:
        flags = about.get("include-tasks", False), about.get("only-failed", False)
        return Restarted(name.removeprefix(RESTART), flags[0] is True, flags[1] is True)
    if name.startswith(LOGGER) and about is not None and isinstance(about.get("level"), str):
        return Levelled(name.removeprefix(LOGGER), about["level"])
    return None


def is_for_others(key: bytes | None) -> bool:
    """Connect's own, of which we have no use: between its workers, or of its transactions."""
    name = _key(key) or ""
    return name == SESSION_KEY or name.startswith(FENCING)


def _configured(name: str, about: dict[str, Any] | None) -> Configured | None:
    if about is None:
        return Configured(name, None) if name else None
    config = _texts(about.get("properties"))
    return Configured(name, config) if name and config is not None else None


def _targeted(name: str, about: dict[str, Any] | None) -> Targeted | None:
    if about is None:
        return Targeted(name, None)
    told = about.get("state.v2") or about.get("state")
    found = next((one for one in TARGETS if one == told), None)
    return Targeted(name, found) if found is not None else None


def _task(rest: str, about: dict[str, Any] | None) -> TaskConfigured | None:
    name, dash, number = rest.rpartition("-")
    if not dash or not name or not (number.isascii() and number.isdigit()) or len(number) > 9:
        return None
    config = _texts(about.get("properties")) if about is not None else None
    return TaskConfigured(name, int(number), config) if about is None or config is not None else None


# ---------------------------------------------------------------- the status topic


def status_key(name: str, task: int | None = None) -> bytes:
    return (f"{STATUS_CONNECTOR}{name}" if task is None else f"{STATUS_TASK}{name}-{task}").encode()


def status_value(status: Status) -> bytes:
    about = {"state": status.state, "trace": status.trace, "worker_id": status.worker_id}
    last = {"version": status.version} if status.version is not None else {}
    return msgspec.json.encode({**about, "generation": status.generation, **last})


def topic_key(name: str, topic: str) -> bytes:
    return f"{STATUS_TOPIC}{topic}{BY_CONNECTOR}{name}".encode()


def topic_value(name: str, topic: str, task: int, at_ms: int) -> bytes:
    about = {"name": topic, "connector": name, "task": task, "discoverTimestamp": at_ms}
    return msgspec.json.encode({"topic": about})


def subject(key: bytes | None) -> tuple[str, int | None] | None:
    """The connector, and the task, that a status speaks of."""
    name = _key(key) or ""
    if name.startswith(STATUS_CONNECTOR):
        return name.removeprefix(STATUS_CONNECTOR), None
    head, dash, number = name.removeprefix(STATUS_TASK).rpartition("-")
    if name.startswith(STATUS_TASK) and dash and number.isascii() and number.isdigit() and len(number) < 10:
        return head, int(number)
    return None


def topic_subject(key: bytes | None) -> tuple[str, str] | None:
    """The connector and the topic that it was seen to use."""
    name = _key(key) or ""
    topic, by, connector = name.removeprefix(STATUS_TOPIC).partition(BY_CONNECTOR)
    return (connector, topic) if name.startswith(STATUS_TOPIC) and by and topic and connector else None


def status_of(value: bytes | None) -> Status | None:
    about = _value(value)
    if about is None:
        return None
    state, worker, trace, generation = (about.get(k) for k in ("state", "worker_id", "trace", "generation"))
    if state not in STATES or not isinstance(worker, str) or not _whole(generation):
        return None
    version = about.get("version")
    said = (
        trace if isinstance(trace, str) else None,
        int(generation or 0),
        version if isinstance(version, str) else None,
    )
    return Status(str(state), worker, *said)


# ---------------------------------------------------------------- bytes


def _pair(key: str, value: Mapping[str, Any] | None) -> Pair:
    return key.encode(), None if value is None else msgspec.json.encode(value)


def _key(key: bytes | None) -> str | None:
    try:
        return key.decode() if key else None
    except UnicodeDecodeError:
        return None


def _value(value: bytes | None) -> dict[str, Any] | None:
    """Also of a worker that was told to write schemas."""
    try:
        found = msgspec.json.decode(value) if value is not None else None
    except (ValueError, RecursionError):
        return None
    if isinstance(found, dict) and found.keys() == {"schema", "payload"}:
        found = found["payload"]
    return found if isinstance(found, dict) else None


def _texts(found: object) -> dict[str, str | None] | None:
    if not isinstance(found, dict) or not all(v is None or isinstance(v, str) for v in found.values()):
        return None
    return found


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31
