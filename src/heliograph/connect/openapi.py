"""The OpenAPI description of the API, made of the table of endpoints. Pure."""

from __future__ import annotations

import re
from typing import Any

from heliograph.connect.endpoints import ENDPOINTS, Endpoint, Query

_NAMED = re.compile(r"\{(\w+)\}")
TEXT, WHOLE, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
NULLABLE = {"type": ["string", "null"]}
TEXTS = {"type": "object", "additionalProperties": NULLABLE}
# What is taken: numbers and truth values become texts, as in Connect, and people's files have them.
GIVEN = {"type": "object", "additionalProperties": {"type": ["string", "null", "number", "boolean"]}}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(needed: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": needed.split()}


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _map(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": of}


STATE = {"enum": ["UNASSIGNED", "RUNNING", "PAUSED", "FAILED", "RESTARTING", "STOPPED"]}
TASK_ID = _object("connector task", connector=TEXT, task=WHOLE)
STANDING = {"state": STATE, "worker_id": TEXT, "trace": TEXT}

SCHEMAS: dict[str, dict[str, Any]] = {
    "Error": _object("error_code message", error_code=WHOLE, message=NULLABLE),
    "ServerInfo": _object("version commit kafka_cluster_id", version=TEXT, commit=TEXT, kafka_cluster_id=TEXT),
    "WorkerStatus": _object("status message", status={"enum": ["healthy", "starting", "unhealthy"]}, message=TEXT),
    "Config": TEXTS,
    "GivenConfig": GIVEN,
    "CreateConnector": _object(
        *("name config",), name=TEXT, config=GIVEN, initial_state={"enum": ["RUNNING", "PAUSED", "STOPPED"]}
    ),
    "ConnectorInfo": _object("name config tasks type", name=TEXT, config=TEXTS, tasks=_list(TASK_ID), type=TEXT),
    "Connectors": {
        "oneOf": [_list(TEXT), _map(_object("", status=_ref("ConnectorStatus"), info=_ref("ConnectorInfo")))]
    },
    "ConnectorStatus": _object(
        *("name connector tasks type",),
        name=TEXT,
        connector=_object("state worker_id", **STANDING),
        tasks=_list(_ref("TaskState")),
        type=TEXT,
    ),
    "TaskState": _object("id state worker_id", id=WHOLE, **STANDING),
    "Tasks": _list(_object("id config", id=TASK_ID, config=TEXTS)),
    "TasksConfig": _map(TEXTS),
    "ActiveTopics": _map(_object("topics", topics=_list(TEXT))),
    "Offsets": _object(
        *("offsets",),
        offsets=_list(_object("partition", partition={"type": "object"}, offset={"type": ["object", "null"]})),
    ),
    "Message": _object("message", message=TEXT),
    "Plugins": _list({**_object("class type", type=TEXT, version=TEXT), "description": "and class, the full name"}),
    "Keys": _list(_ref("Key")),
    "Key": _object(
        *("name type required default_value importance documentation group width display_name dependents",),
        name=TEXT,
        type=TEXT,
        required=FLAG,
        default_value=NULLABLE,
        importance=TEXT,
        documentation=TEXT,
        group=NULLABLE,
        width=TEXT,
        display_name=TEXT,
        dependents=_list(TEXT),
        order_in_group=WHOLE,
    ),
    "ConfigInfos": _object(
        *("name error_count groups configs",),
        name=TEXT,
        error_count=WHOLE,
        groups=_list(TEXT),
        configs=_list(
            _object(
                *("definition value",),
                definition={"anyOf": [_ref("Key"), {"type": "null"}]},
                value=_object(
                    *("name value recommended_values errors visible",),
                    name=TEXT,
                    value=NULLABLE,
                    visible=FLAG,
                    recommended_values=_list(TEXT),
                    errors=_list(TEXT),
                ),
            )
        ),
    ),
    "Loggers": _map(_ref("Logger")),
    "Logger": _object("level last_modified", level=TEXT, last_modified={"type": ["integer", "null"]}),
    "LoggerNames": _list(TEXT),
    "Level": _object("level", level=TEXT),
}
SCHEMAS["Plugins"]["items"]["properties"]["class"] = TEXT

ALWAYS = {
    400: "what was sent makes no sense",
    401: "no credentials, or none that are known",
    403: "credentials that may not do this",
    408: "the request was not whole in time",
    413: "the body is too large",
    421: "the Host header is not a name of this server: see --allow-host",
    429: "too many requests: come again later",
    500: "the worker's topics cannot be reached in time",
    503: "all connections or threads are taken, or the worker is starting",
}


def description(version: str, *, secured: bool) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for one in ENDPOINTS:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, secured)
    schemes = {"basic": {"type": "http", "scheme": "basic"}, "bearer": {"type": "http", "scheme": "bearer"}}
    components: dict[str, Any] = {"schemas": SCHEMAS}
    if secured:
        components["securitySchemes"] = schemes
    about = {
        "title": "Heliograph's connectors",
        "version": version,
        "description": "Kafka Connect's REST API for MirrorMaker 2's three connectors.",
    }
    return {"openapi": "3.1.0", "info": about, "paths": paths, "components": components}


def _operation(one: Endpoint, secured: bool) -> dict[str, Any]:
    answers = {str(code): _answer(schema, _words(code)) for code, schema in sorted(one.answers.items())}
    for code, words in ALWAYS.items():
        answers.setdefault(str(code), _answer("Error", words))
    operation: dict[str, Any] = {
        "operationId": one.decide.__name__,
        "summary": one.doc,
        "parameters": [_path(name) for name in _NAMED.findall(one.path)] + [_query(q) for q in one.query],
        "responses": answers,
    }
    if one.body is not None:
        content = {"application/json": {"schema": _ref(one.body)}}
        operation["requestBody"] = {"required": True, "content": content}
    if secured and one.role != "anybody":
        operation["security"] = [{"basic": []}, {"bearer": []}]
        operation["x-role"] = one.role
    return operation


def _answer(schema: str | None, words: str) -> dict[str, Any]:
    if schema is None:
        return {"description": words}
    return {"description": words, "content": {"application/json": {"schema": _ref(schema)}}}


def _words(code: int) -> str:
    words = {
        200: "it is so",
        201: "it was made",
        202: "it will be done",
        204: "it is done",
        404: "there is no such thing",
    }
    return words.get(code, ALWAYS.get(code, "it is not possible"))


def _path(name: str) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": 0} if name == "task" else {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query(one: Query) -> dict[str, Any]:
    # As Connect reads them: `true`, and anything else is false. One that is said twice is taken as it was said last.
    schema = {"type": "array", "items": {"type": "string"}}
    return {"name": one.name, "in": "query", "required": False, "description": one.doc, "schema": schema}
