"""What a request to the API comes to: an answer, and what must be done before it is true. Pure.

A decision sees the board, the request and nothing else; it neither reads nor writes. `connect.service` does what it
says (its deeds) and sends the answer. Shapes, codes and words are Connect's, so that its clients cannot tell the
difference; where we differ, docs/connect.md says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import quote

from heliograph.config.connectors import CLASSES, Worker, class_of, masked, unmasked
from heliograph.connect import definitions, records, validation
from heliograph.connect.board import Board, Config, Connector
from heliograph.connect.records import Pair, Status, Target
from heliograph.connect.siblings import siblings_of

LARGEST_BYTES = 400_000  # of a configuration: below what a broker takes in a batch by default


class Refusal(Exception):
    """Connect's error shape."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclass(frozen=True, slots=True)
class Level:
    level: str
    last_modified_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """What a decision rests on."""

    board: Board
    worker: Worker
    version: str
    cluster_id: str
    worker_id: str
    ready: bool = True
    trouble: str = ""  # why it is not healthy
    topic_tracking: bool = True
    topic_reset: bool = True
    levels: Mapping[str, Level] = field(default_factory=dict)
    writable: bool = True  # False: the flows are of a file, which says what they are


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, taken apart: path segments, query, and the body as JSON."""

    named: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, list[str]] = field(default_factory=dict)
    body: Any = None

    def flag(self, name: str, default: bool = False) -> bool:
        told = self.query.get(name)
        return told[-1].strip().lower() == "true" if told else default


# ---------------------------------------------------------------- deeds


@dataclass(frozen=True, slots=True)
class Write:
    """Records of the config topic, all in one batch."""

    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class ForgetTopics:
    name: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Offsets:
    """Read, alter or reset a connector's offsets. The answer's body is made of it where it is read."""

    name: str
    what: Literal["read", "alter", "reset"]
    entries: tuple[tuple[Mapping[str, Any], Mapping[str, Any] | None], ...] = ()


@dataclass(frozen=True, slots=True)
class SetLevel:
    logger: str
    level: str


Deed = Write | ForgetTopics | Offsets | SetLevel


@dataclass(frozen=True, slots=True)
class Decision:
    status: HTTPStatus
    body: Any = None
    deeds: tuple[Deed, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


# ---------------------------------------------------------------- the worker


def root(sight: Sight, ask: Ask) -> Decision:
    about = {"version": sight.version, "commit": "heliograph", "kafka_cluster_id": sight.cluster_id}
    return Decision(HTTPStatus.OK, about)


def health(sight: Sight, ask: Ask) -> Decision:
    if not sight.ready:
        message = sight.trouble or "Worker is still starting up."
        return Decision(HTTPStatus.SERVICE_UNAVAILABLE, {"status": "starting", "message": message})
    if sight.trouble:
        return Decision(HTTPStatus.INTERNAL_SERVER_ERROR, {"status": "unhealthy", "message": sight.trouble})
    message = "Worker has completed startup and is ready to handle requests."
    return Decision(HTTPStatus.OK, {"status": "healthy", "message": message})


# ---------------------------------------------------------------- connectors seen


def listing(sight: Sight, ask: Ask) -> Decision:
    wanted = ask.query.get("expand")
    if not wanted:
        return Decision(HTTPStatus.OK, list(sight.board.connectors))
    found: dict[str, dict[str, Any]] = {}
    of_tasks = _tasks_by_name(sight.board) if "status" in wanted else {}
    for name, connector in sight.board.connectors.items():
        one: dict[str, Any] = {}
        if "status" in wanted and (name, None) in sight.board.statuses:
            one["status"] = _status_json(name, sight.board.statuses[name, None], of_tasks.get(name, ()))
        if "info" in wanted:
            one["info"] = info_json(connector)
        found[name] = one
    return Decision(HTTPStatus.OK, found)


def info(sight: Sight, ask: Ask) -> Decision:
    return Decision(HTTPStatus.OK, info_json(_connector(sight, ask)))


def config(sight: Sight, ask: Ask) -> Decision:
    return Decision(HTTPStatus.OK, masked(_connector(sight, ask).config))


def status(sight: Sight, ask: Ask) -> Decision:
    name = ask.named["connector"]
    if (name, None) not in sight.board.statuses or name not in sight.board.connectors:
        raise Refusal(HTTPStatus.NOT_FOUND, f"No status found for connector {name}")
    return Decision(HTTPStatus.OK, status_json(sight.board, name))


def tasks(sight: Sight, ask: Ask) -> Decision:
    one = _connector(sight, ask)
    about = [{"id": {"connector": one.name, "task": n}, "config": masked(c)} for n, c in enumerate(one.tasks)]
    return Decision(HTTPStatus.OK, about)


def tasks_config(sight: Sight, ask: Ask) -> Decision:
    one = _connector(sight, ask)
    return Decision(HTTPStatus.OK, {f"{one.name}-{n}": masked(c) for n, c in enumerate(one.tasks)})


def task_status(sight: Sight, ask: Ask) -> Decision:
    name, task = ask.named["connector"], _task(ask)
    found = sight.board.statuses.get((name, task))
    if found is None or name not in sight.board.connectors:
        raise Refusal(HTTPStatus.NOT_FOUND, f"No status found for task {name}-{task}")
    return Decision(HTTPStatus.OK, task_json(task, found))


def topics(sight: Sight, ask: Ask) -> Decision:
    _require_tracking(sight)
    name = ask.named["connector"]
    return Decision(HTTPStatus.OK, {name: {"topics": list(sight.board.topics.get(name, ()))}})


def reset_topics(sight: Sight, ask: Ask) -> Decision:
    _require_tracking(sight)
    if not sight.topic_reset:
        raise Refusal(HTTPStatus.FORBIDDEN, "Topic tracking reset is disabled.")
    name = ask.named["connector"]
    seen = sight.board.topics.get(name, ())
    return Decision(HTTPStatus.ACCEPTED, deeds=(ForgetTopics(name, seen),) if seen else ())


# ---------------------------------------------------------------- connectors changed


def create(sight: Sight, ask: Ask) -> Decision:
    body = _object(ask.body, 'a connector: {"name": …, "config": {…}}')
    unknown = sorted(set(body) - {"name", "config", "initial_state"})
    if unknown:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"unknown field {unknown[0]!r}: there are name, config and initial_state")
    if not isinstance(body.get("name") or "", str):
        raise Refusal(HTTPStatus.BAD_REQUEST, "name must be a text")
    name = (body.get("name") or "").strip()
    given = _named(name, _texts(body.get("config"), "config"))
    target = _initial(body.get("initial_state"))
    _require_sound(sight, name, given)
    if name in sight.board.connectors:
        raise Refusal(HTTPStatus.CONFLICT, f"Connector {name} already exists")
    return _put(sight, name, given, HTTPStatus.CREATED, target)


def put(sight: Sight, ask: Ask) -> Decision:
    name = ask.named["connector"]
    given = _named(name, _texts(ask.body, "a connector's configuration"))
    stored = sight.board.connectors.get(name)
    if stored is not None:
        given = unmasked(given, stored.config)
    _require_sound(sight, name, given)
    return _put(sight, name, given, HTTPStatus.OK if stored is not None else HTTPStatus.CREATED)


def patch(sight: Sight, ask: Ask) -> Decision:
    one = _connector(sight, ask)
    change = unmasked(_texts(ask.body, "a change of a connector's configuration"), one.config)
    merged = {**one.config, **change}
    given = _named(one.name, {k: v for k, v in merged.items() if v is not None})
    _require_sound(sight, one.name, given)
    return _put(sight, one.name, given, HTTPStatus.OK)


def delete(sight: Sight, ask: Ask) -> Decision:
    one = _connector(sight, ask)
    return Decision(HTTPStatus.NO_CONTENT, deeds=(Write(tuple(records.deleted(one.name))),))


def pause(sight: Sight, ask: Ask) -> Decision:
    return _target(sight, ask, "PAUSED", HTTPStatus.ACCEPTED)


def resume(sight: Sight, ask: Ask) -> Decision:
    return _target(sight, ask, "STARTED", HTTPStatus.ACCEPTED)


def stop(sight: Sight, ask: Ask) -> Decision:
    return _target(sight, ask, "STOPPED", HTTPStatus.NO_CONTENT)


def restart(sight: Sight, ask: Ask) -> Decision:
    name = ask.named["connector"]
    if name not in sight.board.connectors:
        raise Refusal(HTTPStatus.NOT_FOUND, f"Unknown connector: {name}")
    include, only_failed = ask.flag("includeTasks"), ask.flag("onlyFailed")
    deed = Write((records.restarted(name, include_tasks=include, only_failed=only_failed),))
    if not include and not only_failed:
        return Decision(HTTPStatus.NO_CONTENT, deeds=(deed,))
    if (name, None) not in sight.board.statuses:
        raise Refusal(HTTPStatus.NOT_FOUND, f"Status for connector {name} not found")
    shown = _as_restarting(sight.board, name, include=include, only_failed=only_failed)
    return Decision(HTTPStatus.ACCEPTED, status_json(shown, name), (deed,))


def restart_task(sight: Sight, ask: Ask) -> Decision:
    name, task = ask.named["connector"], _task(ask)
    if name not in sight.board.connectors:
        raise Refusal(HTTPStatus.NOT_FOUND, f"Unknown connector: {name}")
    if task >= len(sight.board.connectors[name].tasks):
        raise Refusal(HTTPStatus.NOT_FOUND, f"Unknown task: {name}-{task}")
    return Decision(
        HTTPStatus.NO_CONTENT, deeds=(Write((records.restarted(name, include_tasks=True, only_failed=False),)),)
    )


# ---------------------------------------------------------------- offsets


def offsets(sight: Sight, ask: Ask) -> Decision:
    one = _connector(sight, ask)
    return Decision(HTTPStatus.OK, deeds=(Offsets(one.name, "read"),))


def alter_offsets(sight: Sight, ask: Ask) -> Decision:
    body = _object(ask.body, 'offsets: {"offsets": [{"partition": {…}, "offset": {…}}]}')
    listed = body.get("offsets")
    if not listed:
        why = "Partitions / offsets need to be provided for an alter offsets request"
        raise Refusal(HTTPStatus.BAD_REQUEST, why)
    one = _stopped(sight, ask)
    kind = _kind(one)
    entries = tuple(_entry(kind, entry) for entry in (listed if isinstance(listed, list) else [listed]))
    said = {"message": "The offsets for this connector have been altered successfully"}
    return Decision(HTTPStatus.OK, said, (Offsets(one.name, "alter", entries),))


def reset_offsets(sight: Sight, ask: Ask) -> Decision:
    one = _stopped(sight, ask)
    said = {"message": "The offsets for this connector have been reset successfully"}
    return Decision(HTTPStatus.OK, said, (Offsets(one.name, "reset"),))


def _stopped(sight: Sight, ask: Ask) -> Connector:
    one = _connector(sight, ask)
    state = sight.board.statuses.get((one.name, None))
    if one.target != "STOPPED" or one.tasks or (state is not None and state.state != "STOPPED"):
        raise Refusal(
            HTTPStatus.BAD_REQUEST,
            "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the "
            f"specified connector by issuing a 'PUT' request to the '/connectors/{one.name}/stop' endpoint",
        )
    return one


_PARTITION_FIELDS: Mapping[str, Mapping[str, type]] = {
    "source": {"cluster": str, "topic": str, "partition": int},
    "checkpoint": {"group": str, "topic": str, "partition": int},
    "heartbeat": {"sourceClusterAlias": str, "targetClusterAlias": str},
}


def _entry(kind: str, entry: Any) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    about = _object(entry, "an entry of offsets")
    partition, offset = about.get("partition"), about.get("offset")
    if not isinstance(partition, dict):
        raise Refusal(HTTPStatus.BAD_REQUEST, "The partition for a connector offset cannot be null or missing")
    if offset is None:
        return partition, None
    for name, wanted in _PARTITION_FIELDS[kind].items():
        value: Any = partition.get(name)
        right = isinstance(value, wanted) and not isinstance(value, bool)
        if not right or (wanted is int and not 0 <= value < 1 << 31):
            what = "a number from 0 to 2147483647" if wanted is int else "a text"
            raise Refusal(HTTPStatus.BAD_REQUEST, f"{name!r} in a partition of this connector must be {what}")
    at = offset.get("offset") if isinstance(offset, dict) else None
    if not isinstance(at, int) or isinstance(at, bool) or not 0 <= at < (1 << 63) - 1:
        raise Refusal(HTTPStatus.BAD_REQUEST, "'offset' must be a whole number from 0 on: {\"offset\": 41}")
    if kind != "source" and at != 0:
        raise Refusal(HTTPStatus.BAD_REQUEST, "this connector has no offsets but 0: give 0, or null to reset")
    return partition, {"offset": at}


def offsets_json(found: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, Any]:
    """Connect's shape, of offsets by their key's text, in order."""
    listed = [{"partition": dict(p), "offset": dict(o)} for _, (p, o) in sorted(found.items())]
    return {"offsets": listed}


# ---------------------------------------------------------------- plugins


def plugins(sight: Sight, ask: Ask) -> Decision:
    listed = [{"class": name, "type": "source", "version": sight.version} for name in sorted(CLASSES)]
    return Decision(HTTPStatus.OK, listed)


def plugin_config(sight: Sight, ask: Ask) -> Decision:
    name = ask.named["plugin"]
    full = class_of(name)
    if full is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"Unknown plugin {name}.")
    return Decision(HTTPStatus.OK, [one.json() for one in definitions.of(CLASSES[full]).values()])


def validate(sight: Sight, ask: Ask) -> Decision:
    plugin = ask.named["plugin"]
    given = _texts(ask.body, "a connector's configuration")
    told = given.get("connector.class")
    if told is None:
        raise Refusal(
            HTTPStatus.BAD_REQUEST, "the configuration contains no connector type: connector.class is missing"
        )
    if not told.strip().removesuffix("Connector").endswith(plugin.removesuffix("Connector").rpartition(".")[2]):
        why = f"Included connector type {told} does not match request type {plugin}"
        raise Refusal(HTTPStatus.BAD_REQUEST, why)
    name = given.get("name") or ""
    verdict = validation.judge(name, given, sight.worker, siblings_of(sight.board, given))
    return Decision(HTTPStatus.OK, validation.infos(plugin, verdict))


# ---------------------------------------------------------------- loggers

LEVELS = ("OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL")


def loggers(sight: Sight, ask: Ask) -> Decision:
    return Decision(HTTPStatus.OK, {name: _level_json(one) for name, one in sorted(sight.levels.items())})


def logger(sight: Sight, ask: Ask) -> Decision:
    name = ask.named["logger"]
    found = sight.levels.get(name)
    if found is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"Logger {name} not found.")
    return Decision(HTTPStatus.OK, _level_json(found))


def set_level(sight: Sight, ask: Ask) -> Decision:
    name = ask.named["logger"]
    told = _object(ask.body, 'a level: {"level": "DEBUG"}').get("level")
    if told is None:
        raise Refusal(HTTPStatus.BAD_REQUEST, "Desired 'level' parameter was not specified in request.")
    level = str(told).upper()
    if level not in LEVELS:
        raise Refusal(HTTPStatus.NOT_FOUND, f"invalid log level '{told}'.")
    if ask.query.get("scope", ["worker"])[-1].lower() == "cluster":
        return Decision(HTTPStatus.NO_CONTENT, deeds=(Write((records.levelled(name, level),)),))
    return Decision(HTTPStatus.OK, [name], (SetLevel(name, level),))


def _level_json(one: Level) -> dict[str, Any]:
    return {"level": one.level, "last_modified": one.last_modified_ms}


# ---------------------------------------------------------------- shapes


def info_json(one: Connector) -> dict[str, Any]:
    listed = [{"connector": one.name, "task": n} for n in range(len(one.tasks))]
    kind = "source" if class_of(one.config.get("connector.class") or "") else "unknown"
    return {"name": one.name, "config": masked(one.config), "tasks": listed, "type": kind}


def status_json(board: Board, name: str) -> dict[str, Any]:
    return _status_json(name, board.statuses[name, None], _tasks_by_name(board).get(name, ()))


def _tasks_by_name(board: Board) -> dict[str, list[tuple[int, Status]]]:
    found: dict[str, list[tuple[int, Status]]] = {}
    for (name, task), status in board.statuses.items():
        if task is not None:
            found.setdefault(name, []).append((task, status))
    return found


def _status_json(name: str, own: Status, of_tasks: Sequence[tuple[int, Status]]) -> dict[str, Any]:
    return {
        "name": name,
        "connector": _state(own),
        "tasks": [task_json(task, one) for task, one in sorted(of_tasks, key=lambda pair: pair[0])],
        "type": "source",
    }


def task_json(task: int, found: Status) -> dict[str, Any]:
    return {"id": task, **_state(found)}


def _state(found: Status) -> dict[str, Any]:
    plain = {"state": found.state, "worker_id": found.worker_id}
    if found.version:
        plain["version"] = found.version
    return {**plain, "trace": found.trace} if found.trace else plain


def _as_restarting(board: Board, name: str, *, include: bool, only_failed: bool) -> Board:
    def shown(key: tuple[str, int | None], one: Status) -> Status:
        concerned = key[0] == name and (key[1] is None or include)
        if not concerned or (only_failed and one.state != "FAILED"):
            return one
        return replace(one, state="RESTARTING")

    return replace(board, statuses={key: shown(key, one) for key, one in board.statuses.items()})


# ---------------------------------------------------------------- parts of decisions


def _connector(sight: Sight, ask: Ask) -> Connector:
    name = ask.named["connector"]
    found = sight.board.connectors.get(name)
    if found is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"Connector {name} not found")
    return found


def _kind(one: Connector) -> str:
    return CLASSES[class_of(one.config.get("connector.class") or "") or next(iter(CLASSES))]


def _task(ask: Ask) -> int:
    text = ask.named["task"]
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise Refusal(HTTPStatus.NOT_FOUND, "HTTP 404 Not Found")
    return int(text)


def _require_tracking(sight: Sight) -> None:
    if not sight.topic_tracking:
        raise Refusal(HTTPStatus.FORBIDDEN, "Topic tracking is disabled.")


def _target(sight: Sight, ask: Ask, target: Target, status: HTTPStatus) -> Decision:
    name = ask.named["connector"]
    found = sight.board.connectors.get(name)
    if found is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"Unknown connector {name}")
    if found.target == target:
        return Decision(status)
    pairs = [records.targeted(name, target)]
    if target == "STOPPED":  # a stopped connector has no tasks; whoever resumes it deals them anew
        pairs = [*records.tasks(name, []), *pairs]
    return Decision(status, deeds=(Write(tuple(pairs)),))


def _object(body: Any, what: str) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise Refusal(HTTPStatus.BAD_REQUEST, f"the body must be a JSON object, {what}")
    return body


def _texts(body: Any, what: str) -> dict[str, str | None]:
    """A map of texts; numbers and truth values become texts, as in Connect."""
    given: dict[str, str | None] = {}
    for key, value in _object(body, what).items():
        if value is None or isinstance(value, str):
            given[key] = value
        elif isinstance(value, bool):
            given[key] = str(value).lower()
        elif isinstance(value, int | float):
            given[key] = str(value)
        else:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"{what}: {key!r} must be a text, not a list or an object")
    return given


def _named(name: str, given: dict[str, str | None]) -> dict[str, str | None]:
    told = given.get("name")
    if told is not None and told != name:
        why = f"Connector name configuration ({told}) doesn't match connector name in the URL ({name})"
        raise Refusal(HTTPStatus.BAD_REQUEST, why)
    return {**given, "name": name}


def _initial(told: Any) -> Target | None:
    if told is None:
        return None
    states: Mapping[str, Target] = {"RUNNING": "STARTED", "PAUSED": "PAUSED", "STOPPED": "STOPPED"}
    found = states.get(told.upper()) if isinstance(told, str) else None
    if found is None:
        raise Refusal(HTTPStatus.BAD_REQUEST, "initial_state must be RUNNING, PAUSED or STOPPED")
    return found


def _require_sound(sight: Sight, name: str, given: Config) -> None:
    verdict = validation.judge(name, given, sight.worker, siblings_of(sight.board, given))
    if verdict.count:
        raise Refusal(HTTPStatus.BAD_REQUEST, verdict.words)


def _put(sight: Sight, name: str, given: Config, status: HTTPStatus, target: Target | None = None) -> Decision:
    written = records.configured(name, given)
    if len(written[0]) + len(written[1] or b"") > LARGEST_BYTES:
        why = f"a connector's configuration may have {LARGEST_BYTES:,} bytes: a record of the config topic holds it"
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)
    before = sight.board.connectors.get(name)
    tasks_before = before.tasks if before is not None else ()
    shown = Connector(name, given, tasks=tasks_before)
    pairs = [records.targeted(name, target)] if target is not None else []
    headers = {"Location": f"/connectors/{quote(name, safe='')}"} if status is HTTPStatus.CREATED else {}
    warnings = validation.judge(name, given, sight.worker).made.warnings
    if warnings:
        headers["Warning"] = f'299 heliograph "{_header(warnings[0])}"'
    return Decision(status, info_json(shown), (Write((*pairs, written)),), headers)


def _header(text: str) -> str:
    return text.encode("ascii", "replace").decode().replace('"', "'").replace("\\", "/")[:300]
