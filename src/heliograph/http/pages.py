"""What `--http` serves of the running flows: /metrics, /status, /health, and a list of them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Protocol

from heliograph import __version__
from heliograph.health.status import FlowReport, Generation, PartitionStatus
from heliograph.http.message import Request, Response
from heliograph.http.notices import Notices
from heliograph.http.routing import Route
from heliograph.metrics.exposition import OPENMETRICS, TEXT, accepts_openmetrics
from heliograph.metrics.figures import page
from heliograph.state.incidents import Incident, span

ILL_SHOWN = 100  # partitions that /health names; /status has all


class Reporter(Protocol):
    """What is needed of a runner."""

    def report(self) -> tuple[FlowReport, ...]: ...


class Pages:
    def __init__(
        self,
        runner: Reporter,
        generation: Callable[[], Generation] = Generation,
        notices: Notices | None = None,
    ) -> None:
        """`generation`: of the file that the flows go by."""
        self._runner, self._generation = runner, generation
        self._notices = notices or Notices()
        self._started_at = time.time()

    def routes(self) -> tuple[Route, ...]:
        return (
            Route("GET", "/", self._index, "this list"),
            Route("GET", "/metrics", self._metrics, "figures for Prometheus (or OpenMetrics, if it is accepted)"),
            Route("GET", "/status", self._status, "every flow and partition as JSON"),
            Route(
                *("GET", "/health", self._health, "200 while every flow makes progress, otherwise 503 and the reasons"),
                prompt=True,
            ),
        )

    def _index(self, request: Request, _: Mapping[str, str]) -> Response:
        lines = [f"heliograph {__version__}", "", *(f"{route.path:<10} {route.doc}" for route in self.routes())]
        return Response(body="\n".join(lines).encode() + b"\n")

    def _metrics(self, request: Request, _: Mapping[str, str]) -> Response:
        openmetrics = accepts_openmetrics(request.headers.get("accept", ""))
        text = page(self._runner.report(), self._started_at, self._generation()).render(openmetrics=openmetrics)
        return Response(body=text.encode(), content_type=OPENMETRICS if openmetrics else TEXT)

    def _status(self, request: Request, _: Mapping[str, str]) -> Response:
        flows = [_flow(report) for report in self._runner.report()]
        configuration = dataclasses.asdict(self._generation())
        about = {"version": __version__, "time": _now(), "configuration": configuration}
        return Response.json({**about, "notices": self._notices.lines(), "flows": flows})

    def _health(self, request: Request, _: Mapping[str, str]) -> Response:
        told = request.role != "anybody"
        flows = [_health(report, told=told) for report in self._runner.report()]
        healthy = all(flow["healthy"] for flow in flows)
        status = HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE
        notices = {"notices": self._notices.lines()} if told else {}
        return Response.json({"healthy": healthy, "time": _now(), **notices, "flows": flows}, status)


def _flow(report: FlowReport) -> dict[str, Any]:
    return {
        **dataclasses.asdict(report.status),
        "source": report.source,
        "target": report.target,
        "healthy": report.healthy,
        "epochs": report.epochs,
        "query_restarts": report.restarts,
        "heartbeat_age_s": report.heartbeat_age_s,
        "sizes": dict(report.sizes),
        "fewer_replicas": list(report.fewer_replicas),
        "recent_incidents": [_incident(one) for one in report.incidents],
        "partition_status": [_partition(one) for one in report.partitions],
    }


def _incident(one: Incident) -> dict[str, Any]:
    plain = {"at_ms": one.at_ms, "kind": str(one.kind), "topic": one.tp.topic, "partition": one.tp.partition}
    return {**plain, "offsets": span(one), "policy": one.policy, "why": one.why}


def _partition(one: PartitionStatus) -> dict[str, Any]:
    plain = dataclasses.asdict(one)
    del plain["because"]
    for name in ("latency", "age"):
        spread = plain.pop(name)
        mean = round(spread["sum"] / spread["count"], 3) if spread["count"] else None
        plain[f"{name}_ms"] = {"mean": mean, "most": spread["most"]} if mean is not None else None
    return {**plain, "healthy": one.healthy}


def _health(report: FlowReport, *, told: bool) -> dict[str, Any]:
    """Not `told`: whether, and not why: reasons name topics and addresses."""
    status = report.status
    if not told:
        return {"name": status.name, "healthy": report.healthy, "state": status.state}
    ill = [one for one in report.partitions if not one.healthy]
    reasons = [f"{one.topic}-{one.partition}: {one.state}" + (f": {one.reason}" if one.reason else "") for one in ill]
    if len(ill) > ILL_SHOWN:
        reasons[ILL_SHOWN:] = [f"… and {len(ill) - ILL_SHOWN} more: see /status"]
    named = {(one.topic, one.partition) for one in ill}
    for parked in status.parked:  # whole topics, and partitions without a place on the target
        if (parked.topic, parked.partition) not in named:
            where = parked.topic if parked.partition is None else f"{parked.topic}-{parked.partition}"
            reasons.append(f"{where}: parked: {parked.reason}" + (f". {parked.fix}" if parked.fix else ""))
    if not report.healthy and status.state not in ("stalled", "parked"):
        reasons.insert(0, status.reason or status.state)
    ordered = [f"{one.where}: {one.words}" for one in status.orders]
    return {
        "name": status.name,
        "healthy": report.healthy,
        "state": status.state,
        "reasons": reasons,
        "ordered": ordered,  # paused or stopped, which is healthy
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
