"""A Connect worker of a few lines on loopback: enough of the API for `heliograph connectors` to be tested by its words.

What a real one answers is in tests/data/connect; where tests need more than this has, they take a real one.
"""

from __future__ import annotations

import json
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

ABSENT = (404, {"error_code": 404, "message": "Connector not found"})


@dataclass
class Connector:
    config: dict[str, Any]
    state: str = "RUNNING"
    tasks: list[str] = field(default_factory=lambda: ["RUNNING"])
    trace: str = ""
    polls_until_running: int = 0  # statuses that are UNASSIGNED before this one


class FakeConnect:
    """`connectors` may be changed by tests at any time; `answers` holds fixed ones by "METHOD /path"; `calls` is a list
    of all that was asked."""

    def __init__(self, *, context: ssl.SSLContext | None = None) -> None:
        self.connectors: dict[str, Connector] = {}
        self.offsets: dict[str, list[Any]] = {}
        self.answers: dict[str, list[tuple[int, Any]]] = {}  # the last one stays
        self.errors: dict[str, list[str]] = {}  # what `validate` finds, by the connector's name
        self.new = Connector({})  # what a created one is like
        self.authorization = ""  # asked for, if set
        self.calls: list[str] = []
        self.bodies: list[Any] = []
        self.heads: list[dict[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._scheme = "http"
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def changes(self) -> list[str]:
        """Everything asked for that is no question."""
        return [call for call in self.calls if not call.startswith("GET") and not call.endswith("/validate")]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                content = self.rfile.read(length)
                body = json.loads(content) if content else None
                fake.heads.append({name.lower(): value for name, value in self.headers.items()})
                status, answer = fake.respond(self.command, self.path, body, self.headers.get("Authorization", ""))
                text = (
                    answer.encode()
                    if isinstance(answer, str)
                    else b""
                    if answer is None
                    else json.dumps(answer).encode()
                )
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_PUT = do_POST = do_PATCH = do_DELETE = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                return

        return Handler

    def respond(self, method: str, target: str, body: Any, authorization: str) -> tuple[int, Any]:
        path = urlsplit(target).path
        self.calls.append(f"{method} {target}")
        self.bodies.append(body)
        if self.authorization and authorization != self.authorization:
            return 401, {"error_code": 401, "message": "who are you?"}
        if fixed := self.answers.get(f"{method} {path}"):
            return fixed.pop(0) if len(fixed) > 1 else fixed[0]
        steps = [unquote(step) for step in path.strip("/").split("/")]
        if steps[0] == "connectors":
            if path == "/connectors" and "expand" not in target:
                return 200, list(self.connectors)
            return self._connectors(method, steps[1:], body)
        if steps[-1] == "validate":
            errors = self.errors.get(body["name"], [])
            value = {"name": "topics", "value": "", "recommended_values": [], "errors": errors, "visible": True}
            return 200, {"name": steps[1], "error_count": len(errors), "configs": [{"definition": {}, "value": value}]}
        return 200, {"version": "4.3.1", "commit": "x", "kafka_cluster_id": "y"}

    def _connectors(self, method: str, steps: list[str], body: Any) -> tuple[int, Any]:
        if not steps:
            return 200, {name: {"info": self._info(name), "status": self._status(name)} for name in self.connectors}
        name, *what = steps
        if (method, what) == ("PUT", ["config"]):
            created = name not in self.connectors
            new = self.new
            self.connectors[name] = Connector(
                {"name": name, **body}, new.state, list(new.tasks), new.trace, new.polls_until_running
            )
            return 201 if created else 200, self._info(name)
        if name not in self.connectors:
            return ABSENT
        if method == "DELETE" and not what:
            del self.connectors[name]
            return 204, None
        return self._asked(name, what) if method == "GET" else self._told(name, method, what, body)

    def _asked(self, name: str, what: list[str]) -> tuple[int, Any]:
        one = self.connectors[name]
        answers: dict[str, Any] = {
            "": self._info(name),
            "config": one.config,
            "tasks": [{"id": {"connector": name, "task": n}, "config": {}} for n in range(len(one.tasks))],
            "topics": {name: {"topics": ["b", "a"]}},
            "offsets": {"offsets": self.offsets.get(name, [])},
        }
        if what == ["status"]:
            return 200, self._status(name)
        return 200, answers[what[0] if what else ""]

    def _told(self, name: str, method: str, what: list[str], body: Any) -> tuple[int, Any]:
        one = self.connectors[name]
        if what == ["offsets"]:
            if one.state != "STOPPED":
                return 400, {"error_code": 400, "message": "Connectors must be in the STOPPED state before …"}
            self.offsets[name] = body["offsets"] if method == "PATCH" else []
            return 200, {"message": "altered" if method == "PATCH" else "reset"}
        if what[-1] == "restart":
            one.state, one.trace, one.tasks = "RUNNING", "", ["RUNNING" for _ in one.tasks]
            return 204, None
        one.state = {"pause": "PAUSED", "resume": "RUNNING", "stop": "STOPPED"}[what[0]]
        one.tasks = [] if one.state == "STOPPED" else [one.state for _ in one.tasks]
        return (204, None) if what[0] == "stop" else (202, None)

    def _info(self, name: str) -> dict[str, Any]:
        one = self.connectors[name]
        tasks = [{"connector": name, "task": n} for n in range(len(one.tasks))]
        return {"name": name, "config": one.config, "tasks": tasks, "type": "source"}

    def _status(self, name: str) -> dict[str, Any]:
        one = self.connectors[name]
        waiting = one.polls_until_running > 0
        one.polls_until_running -= waiting
        failed = {"trace": one.trace} if one.trace else {}
        state = "UNASSIGNED" if waiting else one.state
        return {
            "name": name,
            "type": "source",
            "connector": {"state": state, "worker_id": "a:8083", **(failed if state == "FAILED" else {})},
            "tasks": []
            if waiting
            else [
                {"id": n, "state": task, "worker_id": "a:8083", **(failed if task == "FAILED" else {})}
                for n, task in enumerate(one.tasks)
            ],
        }
