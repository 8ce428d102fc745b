"""The API as a table: each method and path, who may use it, who decides, what it takes and what it answers. Pure.

Routing and the OpenAPI description are made of it, so that neither can say what the other does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from heliograph.connect import catalogue, decisions, offsets
from heliograph.connect.asking import Ask, Decision, Sight

Role = Literal["anybody", "reader", "admin"]
Decide = Callable[[Sight, Ask], Decision]


@dataclass(frozen=True, slots=True)
class Query:
    name: str
    doc: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    decide: Decide
    doc: str
    answers: Mapping[int, str | None]  # status -> the schema of its body; None: there is none
    role: Role = "reader"
    body: str | None = None  # the schema that it takes
    query: tuple[Query, ...] = field(default=())
    changes: bool = False  # what the connectors are: not where the flows are a file's
    prompt: bool = False  # decided from what is known already: it is answered while others wait for Kafka

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.path.split("/")[1:])


C = "/connectors/{connector}"
EXPAND = Query("expand", "what to say of each: status, info, or both")
INCLUDE = Query("includeTasks", "true: restart its tasks too")
FAILED = Query("onlyFailed", "true: restart only what failed")
CONNECTORS_ONLY = Query("connectorsOnly", "connectors, or all plugins; there are no others here")
SCOPE = Query("scope", "cluster: all workers; anything else: this one, as Connect takes it")

MISSING = {404: "Error"}
BAD = {400: "Error", 413: "Error", 415: "Error"}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", "/", catalogue.root, "What runs here", {200: "ServerInfo"}),
    Endpoint(
        *("GET", "/health", catalogue.health, "Whether the worker is up: asked without credentials"),
        *({200: "WorkerStatus", 500: "WorkerStatus", 503: "WorkerStatus"}, "anybody"),
        prompt=True,
    ),
    Endpoint("GET", "/connectors", decisions.listing, "All connectors", {200: "Connectors"}, query=(EXPAND,)),
    Endpoint(
        *("POST", "/connectors", decisions.create, "Make a connector"),
        *({201: "ConnectorInfo", 409: "Error", **BAD}, "admin", "CreateConnector"),
        changes=True,
    ),
    Endpoint("GET", C, decisions.info, "One connector", {200: "ConnectorInfo", **MISSING}),
    Endpoint(
        "DELETE", C, decisions.delete, "Delete it; its offsets stay", {204: None, **MISSING}, "admin", changes=True
    ),
    Endpoint("GET", f"{C}/config", decisions.config, "Its configuration", {200: "Config", **MISSING}),
    Endpoint(
        *("PUT", f"{C}/config", decisions.put, "Make it, or configure it anew"),
        *({200: "ConnectorInfo", 201: "ConnectorInfo", **BAD}, "admin", "GivenConfig"),
        changes=True,
    ),
    Endpoint(
        *("PATCH", f"{C}/config", decisions.patch, "Change some of its keys; null removes one"),
        *({200: "ConnectorInfo", **BAD, **MISSING}, "admin", "GivenConfig"),
        changes=True,
    ),
    Endpoint("GET", f"{C}/status", decisions.status, "How it fares", {200: "ConnectorStatus", **MISSING}),
    Endpoint(
        *("POST", f"{C}/restart", decisions.restart, "Begin it anew"),
        *({204: None, 202: "ConnectorStatus", **MISSING}, "admin"),
        query=(INCLUDE, FAILED),
    ),
    Endpoint("PUT", f"{C}/pause", decisions.pause, "Hold it where it is", {202: None, **MISSING}, "admin"),
    Endpoint("PUT", f"{C}/resume", decisions.resume, "Let it go on", {202: None, **MISSING}, "admin"),
    Endpoint("PUT", f"{C}/stop", decisions.stop, "Stop it; it has no tasks then", {204: None, **MISSING}, "admin"),
    Endpoint("GET", f"{C}/tasks", decisions.tasks, "Its tasks", {200: "Tasks", **MISSING}),
    Endpoint(
        "GET", f"{C}/tasks-config", decisions.tasks_config, "Its tasks, as of old", {200: "TasksConfig", **MISSING}
    ),
    Endpoint(
        "GET", f"{C}/tasks/{{task}}/status", decisions.task_status, "How one fares", {200: "TaskState", **MISSING}
    ),
    Endpoint(
        "POST", f"{C}/tasks/{{task}}/restart", decisions.restart_task, "Begin one anew", {204: None, **MISSING}, "admin"
    ),
    Endpoint("GET", f"{C}/topics", decisions.topics, "Topics it used", {200: "ActiveTopics", 403: "Error"}),
    Endpoint("PUT", f"{C}/topics/reset", decisions.reset_topics, "Forget them", {202: None, 403: "Error"}, "admin"),
    Endpoint("GET", f"{C}/offsets", offsets.offsets, "Where it stands", {200: "Offsets", **MISSING}),
    Endpoint(
        *("PATCH", f"{C}/offsets", offsets.alter_offsets, "Let it go on elsewhere, once it is resumed"),
        *({200: "Message", **BAD, **MISSING}, "admin", "Offsets"),
        changes=True,
    ),
    Endpoint(
        *("DELETE", f"{C}/offsets", offsets.reset_offsets, "Let it begin anew, once it is resumed"),
        *({200: "Message", 400: "Error", **MISSING}, "admin"),
        changes=True,
    ),
    Endpoint("GET", "/connector-plugins", catalogue.plugins, "The classes", {200: "Plugins"}, query=(CONNECTORS_ONLY,)),
    Endpoint(
        "GET", "/connector-plugins/{plugin}/config", catalogue.plugin_config, "Its keys", {200: "Keys", **MISSING}
    ),
    Endpoint(
        *("PUT", "/connector-plugins/{plugin}/config/validate", catalogue.validate, "What is wrong with it"),
        *({200: "ConfigInfos", **BAD}, "reader", "GivenConfig"),
    ),
    Endpoint("GET", "/admin/loggers", catalogue.loggers, "Loggers", {200: "Loggers"}),
    Endpoint("GET", "/admin/loggers/{logger}", catalogue.logger, "One logger", {200: "Logger", **MISSING}),
    Endpoint(
        *("PUT", "/admin/loggers/{logger}", catalogue.set_level, "Let it say more or less"),
        *({200: "LoggerNames", 204: None, **BAD, **MISSING}, "admin", "Level"),
        query=(SCOPE,),
    ),
)
