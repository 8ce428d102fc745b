"""What a request about connectors comes to: an answer, and what must be done before it is true. Pure.

A decision sees the board, the request and nothing else; it neither reads nor writes. `connect.service` does what it
says (its deeds) and sends the answer. Shapes, codes and words are Connect's, so that its clients cannot tell the
difference; where we differ, docs/connect.md says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from heliograph.config import credentials
from heliograph.config.credentials import SecretsNotKept, masked
from heliograph.connect import records, validation
from heliograph.connect.asking import Ask, Decision, ForgetTopics, Refusal, Sight, Write
from heliograph.connect.board import Config, Connector
from heliograph.connect.bodies import object_of, texts_of
from heliograph.connect.records import Target
from heliograph.connect.shapes import as_restarting, info_json, standing_json, status_json, task_json, tasks_by_name
from heliograph.connect.siblings import siblings_of

LARGEST_BYTES = 400_000  # of a configuration: below what a broker takes in a batch by default


# ---------------------------------------------------------------- seen


def listing(sight: Sight, ask: Ask) -> Decision:
    wanted = ask.query.get("expand")
    if not wanted:
        return Decision(HTTPStatus.OK, list(sight.board.connectors))
    found: dict[str, dict[str, Any]] = {}
    of_tasks = tasks_by_name(sight.board) if "status" in wanted else {}
    for name, connector in sight.board.connectors.items():
        one: dict[str, Any] = {}
        if "status" in wanted and (name, None) in sight.board.statuses:
            one["status"] = standing_json(name, sight.board.statuses[name, None], of_tasks.get(name, ()))
        if "info" in wanted:
            one["info"] = info_json(connector)
        found[name] = one
    return Decision(HTTPStatus.OK, found)


def info(sight: Sight, ask: Ask) -> Decision:
    return Decision(HTTPStatus.OK, info_json(connector_of(sight, ask)))


def config(sight: Sight, ask: Ask) -> Decision:
    return Decision(HTTPStatus.OK, masked(connector_of(sight, ask).config))


def status(sight: Sight, ask: Ask) -> Decision:
    name = ask.named["connector"]
    if (name, None) not in sight.board.statuses or name not in sight.board.connectors:
        raise Refusal(HTTPStatus.NOT_FOUND, f"No status found for connector {name}")
    return Decision(HTTPStatus.OK, status_json(sight.board, name))


def tasks(sight: Sight, ask: Ask) -> Decision:
    one = connector_of(sight, ask)
    about = [{"id": {"connector": one.name, "task": n}, "config": masked(c)} for n, c in enumerate(one.tasks)]
    return Decision(HTTPStatus.OK, about)


def tasks_config(sight: Sight, ask: Ask) -> Decision:
    one = connector_of(sight, ask)
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


# ---------------------------------------------------------------- changed


def create(sight: Sight, ask: Ask) -> Decision:
    body = object_of(ask.body, 'a connector: {"name": …, "config": {…}}')
    unknown = sorted(set(body) - {"name", "config", "initial_state"})
    if unknown:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"unknown field {unknown[0]!r}: there are name, config and initial_state")
    if not isinstance(body.get("name") or "", str):
        raise Refusal(HTTPStatus.BAD_REQUEST, "name must be a text")
    name = (body.get("name") or "").strip()
    given = _named(name, texts_of(body.get("config"), "config"))
    target = _initial(body.get("initial_state"))
    _require_sound(sight, name, given)
    if name in sight.board.connectors:
        raise Refusal(HTTPStatus.CONFLICT, f"Connector {name} already exists")
    return _put(sight, name, given, HTTPStatus.CREATED, target)


def put(sight: Sight, ask: Ask) -> Decision:
    name = ask.named["connector"]
    given = _named(name, texts_of(ask.body, "a connector's configuration"))
    stored = sight.board.connectors.get(name)
    if stored is not None:
        given = _kept(given, stored.config)
    _require_sound(sight, name, given)
    return _put(sight, name, given, HTTPStatus.OK if stored is not None else HTTPStatus.CREATED)


def _kept(given: Mapping[str, str | None], stored: Mapping[str, str | None]) -> dict[str, str | None]:
    """With `***` as what is stored."""
    try:
        return credentials.unmasked(given, stored)
    except SecretsNotKept as problem:
        raise Refusal(HTTPStatus.BAD_REQUEST, str(problem)) from problem


def patch(sight: Sight, ask: Ask) -> Decision:
    one = connector_of(sight, ask)
    change = texts_of(ask.body, "a change of a connector's configuration")
    try:
        merged = credentials.patched(change, one.config)
    except SecretsNotKept as problem:
        raise Refusal(HTTPStatus.BAD_REQUEST, str(problem)) from problem
    given = _named(one.name, {**merged})
    _require_sound(sight, one.name, given)
    return _put(sight, one.name, given, HTTPStatus.OK)


def delete(sight: Sight, ask: Ask) -> Decision:
    one = connector_of(sight, ask)
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
    shown = as_restarting(sight.board, name, include=include, only_failed=only_failed)
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


# ---------------------------------------------------------------- parts of decisions


def connector_of(sight: Sight, ask: Ask) -> Connector:
    name = ask.named["connector"]
    found = sight.board.connectors.get(name)
    if found is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"Connector {name} not found")
    return found


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
    return Decision(status, info_json(shown), (Write((*pairs, written), name),), headers)


def _header(text: str) -> str:
    return text.encode("ascii", "replace").decode().replace('"', "'").replace("\\", "/")[:300]
