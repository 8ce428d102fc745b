"""The flows of a file behind the same API: each is seen as a source connector that is called as the flow is.

Seen, paused, resumed, stopped and restarted; what they are is the file's word, so that configurations are not written
here (`heliograph apply` takes up an edited file).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Protocol

import structlog

from heliograph import __version__
from heliograph.config.connectors import Worker
from heliograph.config.keys import MIRROR
from heliograph.config.providers import Providers
from heliograph.connect import positions, records
from heliograph.connect.asking import Deed, Offsets, Refusal, SetLevel, Sight, Write
from heliograph.connect.board import Board, Connector
from heliograph.connect.loggers import Loggers
from heliograph.connect.records import Status, Target
from heliograph.connect.service import Service
from heliograph.connect.shapes import offsets_json
from heliograph.errors import HeliographError
from heliograph.flow.helm import Steered
from heliograph.health.status import FlowReport, Scope, Word
from heliograph.http.message import Request, Response
from heliograph.http.notices import Notices
from heliograph.http.pages import Pages
from heliograph.http.routing import Handler, Route
from heliograph.policy import positions_topic
from heliograph.types import Cluster, Flow

WORDS: Mapping[Target, Word] = {"STARTED": "running", "PAUSED": "paused", "STOPPED": "stopped"}
STATES = {
    "starting": "UNASSIGNED",
    "running": "RUNNING",
    "idle": "RUNNING",
    "stalled": "RUNNING",
    "parked": "RUNNING",
    "paused": "PAUSED",
    "restarting": "RESTARTING",
    "failed": "FAILED",
    "stopped": "STOPPED",
}
BY = "the REST API"

log = structlog.get_logger()


class Runner(Protocol):
    """What is needed of `flow.runner.Runner`."""

    def report(self) -> tuple[FlowReport, ...]: ...
    def steer(self, flow: str, scope: Scope, word: Word, by: str) -> Steered: ...
    def restart(self, name: str) -> object: ...
    def flow(self, name: str) -> Flow: ...


class FlowsBackend:
    def __init__(self, runner: Runner, worker_id: str) -> None:
        self._runner, self._worker_id = runner, worker_id
        self._loggers = Loggers()

    def sight(self, *, fresh: bool = False) -> Sight:
        return Sight(
            board=self._board(),
            worker=Worker(Cluster(""), {}, Providers({})),
            version=__version__,
            cluster_id="",
            worker_id=self._worker_id,
            topic_reset=False,
            levels=self._loggers.levels(),
            writable=False,
        )

    def do(self, deed: Deed, seen: int = 0) -> Any:
        match deed:
            case Write(pairs):
                for key, value in pairs:
                    self._obey(records.event(key, value))
            case SetLevel(logger, level):
                self._loggers.set(logger, level)
            case Offsets(name, "read"):
                try:
                    flow = self._runner.flow(name)
                except KeyError as error:
                    raise Refusal(HTTPStatus.NOT_FOUND, f"Connector {name} not found") from error
                return offsets_json(positions.read(flow, positions_topic(flow.source.alias)))
            case _:
                raise Refusal(HTTPStatus.CONFLICT, "these flows are a file's")
        return None

    def await_end(self, deed: Offsets) -> None:
        raise Refusal(HTTPStatus.CONFLICT, "these flows are a file's")

    def _obey(self, event: records.Event | None) -> None:
        match event:
            case records.Targeted(name, target) if target is not None:
                self._runner.steer(name, (None, None), WORDS[target], BY)
            case records.Restarted(name, _, only_failed):
                state = next((one.status.state for one in self._runner.report() if one.status.name == name), "")
                if not only_failed or state == "failed":
                    # It takes seconds, and whoever asked is not to wait.
                    threading.Thread(target=self._restart, args=(name,), name="restart", daemon=True).start()

    def _restart(self, name: str) -> None:
        try:
            self._runner.restart(name)
        except HeliographError as error:
            log.warning("the flow was not restarted", flow=name, why=str(error))

    def _board(self) -> Board:
        connectors: dict[str, Connector] = {}
        statuses: dict[tuple[str, int | None], Status] = {}
        topics: dict[str, tuple[str, ...]] = {}
        for report in self._runner.report():
            name = report.status.name
            try:
                config = _config(name, self._runner.flow(name))
            except KeyError:  # gone since the report was made
                continue
            shares = _shares(report)
            tasks = tuple({**config, "task.assigned.partitions": ",".join(share)} for share in shares.values())
            connectors[name] = Connector(name, config, _target(report), tasks)
            state = STATES.get(report.status.state, "RUNNING")
            trace = report.because if state in ("FAILED", "RESTARTING") else None
            statuses[name, None] = Status(state, self._worker_id, trace, version=__version__)
            for number in range(len(shares)):
                statuses[name, number] = Status(state, self._worker_id, trace, version=__version__)
            topics[name] = tuple(sorted({one.remote_topic for one in report.partitions}))
        return Board(connectors, statuses, topics)


def _shares(report: FlowReport) -> dict[int, list[str]]:
    """Partitions by the task that has them."""
    found: dict[int, list[str]] = {}
    for one in report.partitions:
        if one.task is not None:
            found.setdefault(one.task, []).append(f"{one.topic}-{one.partition}")
    return dict(sorted(found.items()))


def _target(report: FlowReport) -> Target:
    word = next((order.word for order in report.status.orders if order.topic is None), "running")
    return next(target for target, one in WORDS.items() if one == word)


def _config(name: str, flow: Flow) -> dict[str, str | None]:
    """As much of it as a connector of MM2's would have; the file has all."""
    clusters = {"source": flow.source, "target": flow.target}
    reached = {
        f"{side}.cluster.{key}": value for side, one in clusters.items() for key, value in one.properties.items()
    }
    plain: dict[str, str | None] = {
        "name": name,
        "connector.class": f"{MIRROR}MirrorSourceConnector",
        "source.cluster.alias": flow.source.alias,
        "target.cluster.alias": flow.target.alias,
        "topics": ",".join(flow.topics),
        "topics.exclude": ",".join(flow.topics_exclude),
        "replication.policy.class": flow.naming.policy,
    }
    if flow.tasks_max is not None:
        plain["tasks.max"] = str(flow.tasks_max)
    return {**plain, **reached}


def routes(
    runner: Runner, pages: Pages, worker_id: str, *, secured: bool, notices: Notices | None = None
) -> tuple[Route, ...]:
    """The API beside the pages. Both have an index and a health: which one is meant is said by what is accepted."""
    api = Service(FlowsBackend(runner, worker_id), secured=secured, notices=notices).routes()
    shown = {(route.method, route.path): route for route in pages.routes()}
    merged = [_either(route, shown.pop((route.method, route.path), None)) for route in api]
    return (*merged, *shown.values())


def _either(route: Route, page: Route | None) -> Route:
    if page is None:
        return route
    if page.path == "/health":  # of flows, which says more than that of a worker
        return replace(page, role=route.role)
    return Route(route.method, route.path, _chosen(route.handler, page.handler), page.doc, route.role)


def _chosen(api: Handler, page: Handler) -> Handler:
    def answer(request: Request, named: Mapping[str, str]) -> Response:
        wants_json = "application/json" in request.headers.get("accept", "").lower()
        return (api if wants_json else page)(request, named)

    return answer
