"""Connectors, statuses, tasks and offsets in the shapes of Connect's answers, secrets masked. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from heliograph.config.connectors import class_of
from heliograph.config.credentials import masked
from heliograph.connect.board import Board, Connector
from heliograph.connect.records import Status


def info_json(one: Connector) -> dict[str, Any]:
    listed = [{"connector": one.name, "task": n} for n in range(len(one.tasks))]
    kind = "source" if class_of(one.config.get("connector.class") or "") else "unknown"
    return {"name": one.name, "config": masked(one.config), "tasks": listed, "type": kind}


def status_json(board: Board, name: str) -> dict[str, Any]:
    return standing_json(name, board.statuses[name, None], tasks_by_name(board).get(name, ()))


def tasks_by_name(board: Board) -> dict[str, list[tuple[int, Status]]]:
    found: dict[str, list[tuple[int, Status]]] = {}
    for (name, task), status in board.statuses.items():
        if task is not None:
            found.setdefault(name, []).append((task, status))
    return found


def standing_json(name: str, own: Status, of_tasks: Sequence[tuple[int, Status]]) -> dict[str, Any]:
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


def as_restarting(board: Board, name: str, *, include: bool, only_failed: bool) -> Board:
    def shown(key: tuple[str, int | None], one: Status) -> Status:
        concerned = key[0] == name and (key[1] is None or include)
        if not concerned or (only_failed and one.state != "FAILED"):
            return one
        return replace(one, state="RESTARTING")

    return replace(board, statuses={key: shown(key, one) for key, one in board.statuses.items()})


def offsets_json(found: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, Any]:
    """Connect's shape, of offsets by their key's text, in order."""
    listed = [{"partition": dict(p), "offset": dict(o)} for _, (p, o) in sorted(found.items())]
    return {"offsets": listed}
