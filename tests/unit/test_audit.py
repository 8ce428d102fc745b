"""Who changed what, in one line each, whatever the log's level; and faults in JSON logs with their tracebacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

import pytest
from click.testing import CliRunner
from structlog.typing import EventDict

from heliograph import audit
from heliograph.cli.audited import audited as by_command
from heliograph.cli.users import command as users_command
from heliograph.connect.service import Api, Service
from heliograph.errors import ConfigError
from heliograph.http.guard import Guard
from heliograph.http.message import Refused, Request, Response
from heliograph.http.passwords import digest
from heliograph.http.routing import Route, Router
from heliograph.http.server import Server
from heliograph.http.users import User
from tests.unit.test_connect_api import SOURCE, Memory
from tests.unit.test_connect_api import Api as Client

USERS = {"alice": User("alice", "admin", digest("a")), "bob": User("bob", "reader", digest("b"))}


def audited(logs: list[EventDict]) -> list[tuple[object, ...]]:
    return [(line["who"], line["role"], line["what"], line["outcome"]) for line in logs if line["event"] == "audit"]


def test_every_change_by_the_api_is_one_line_with_who_what_and_the_outcome(logs: list[EventDict]) -> None:
    """E10: nobody knew who had changed what."""
    memory = Memory()
    server = Server("127.0.0.1", 0, Api(Service(memory).routes(), Guard(USERS)))
    server.start()
    try:
        client = Client(server, memory)
        alice, bob, stranger = ({"Authorization": f"Bearer {one}"} for one in ("alice.a", "bob.b", "alice.x"))
        client("PUT", "/connectors/one/config", {**SOURCE, "name": "one"}, **alice)
        client("GET", "/connectors/one", **bob)
        client("DELETE", "/connectors/one", **bob)
        client("DELETE", "/connectors/one", **stranger)
        client("PUT", "/connectors/one/pause", **alice)
        client("PUT", "/connectors/one/stop", **alice)
        client("DELETE", "/connectors/one/offsets", **alice)
        client("PUT", "/admin/loggers/root", {"level": "debug"}, **alice)
        client("PUT", "/connector-plugins/MirrorSource/config/validate", SOURCE, **bob)
        client("POST", "/connectors/no%0Ane/restart", **alice)
    finally:
        server.close()
    a = ("alice", "admin")
    assert audited(logs) == [
        (*a, "PUT /connectors/one/config", 201),
        ("bob", "reader", "DELETE /connectors/one", 403),
        ("nobody that is known", "none", "DELETE /connectors/one", 401),
        (*a, "PUT /connectors/one/pause", 202),
        (*a, "PUT /connectors/one/stop", 204),
        (*a, "DELETE /connectors/one/offsets", 200),
        (*a, "PUT /admin/loggers/root", 200),
        (*a, "POST /connectors/no%0Ane/restart", 404),
    ]
    assert all(line["where"] == "127.0.0.1" for line in logs if line["event"] == "audit")
    assert "hunter2" not in str(logs), "no values of a configuration"


def test_strangers_who_try_to_change_something_are_named_and_do_not_fill_the_log(logs: list[EventDict]) -> None:
    """They were not logged at all: nobody saw that somebody without a password tried to delete connectors."""
    router = Router((Route("DELETE", "/x", lambda *_: Response(), "", "admin"),), Guard(USERS))
    refused = Refused(HTTPStatus.UNAUTHORIZED, "who?")
    match = router.find(Request("DELETE", "/x", raw_path="/x", client="10.0.0.9"))
    for _ in range(1000):
        router.refuse(match, refused, None)
    lines = [line for line in logs if line["event"] == "audit"]
    assert 10 <= len(lines) < 50
    assert (lines[0]["who"], lines[0]["where"], lines[0]["outcome"]) == ("nobody that is known", "10.0.0.9", 401)
    router._strangers.give_back()
    router.refuse(match, refused, None)
    assert logs[-1]["more_refused"] >= 1000 - 50


def test_changes_that_a_command_makes_by_itself_are_a_line_too(logs: list[EventDict], tmp_path: Path) -> None:
    """`offsets set`, `quarantine resend`, `replicas raise`, `spoke add` and `users` were in no log."""
    with by_command("offsets of us->eu: 1 of 2 partitions") as change:
        change.outcome = "written: 1"
    with pytest.raises(ConfigError), by_command("users add kim"):
        raise ConfigError("no")
    with pytest.raises(ZeroDivisionError), by_command("spoke add asia"):
        raise ZeroDivisionError
    users = [str(tmp_path / "users"), "kim", "--token", "--role", "admin"]
    result = CliRunner().invoke(users_command, users, standalone_mode=False)
    lines = [line for line in logs if line["event"] == "audit"]
    assert [(line["what"], line["outcome"]) for line in lines] == [
        ("offsets of us->eu: 1 of 2 partitions", "written: 1"),
        ("users add kim", "refused: CONFIG"),
        ("spoke add asia", "failed"),
        (f"users add kim as admin: {tmp_path / 'users'}", "done"),
    ]
    assert all(f"(uid {os.getuid()}, pid {os.getpid()})" in line["who"] for line in lines)
    token = next(word for word in result.output.split() if word.startswith("kim."))
    assert token.removeprefix("kim.") not in str(logs)


def test_a_change_that_fails_is_a_line_too(logs: list[EventDict]) -> None:
    def broken(request: Request, named: Mapping[str, str]) -> Response:
        raise ZeroDivisionError

    def refused(request: Request, named: Mapping[str, str]) -> Response:
        raise Refused(HTTPStatus.CONFLICT, "no")

    routes = (Route("PUT", "/broken", broken, "", "admin"), Route("PUT", "/refused", refused, "", "admin"))
    router = Router(routes, Guard(None))
    with pytest.raises(ZeroDivisionError):
        router.answer(Request("PUT", "/broken", raw_path="/broken"))
    with pytest.raises(Refused):
        router.answer(Request("PUT", "/refused", raw_path="/refused"))
    nobody = ("anybody (no password is asked for)", "admin")
    assert audited(logs) == [(*nobody, "PUT /broken", 500), (*nobody, "PUT /refused", 409)]


def test_names_from_outside_do_not_move_the_cursor(logs: list[EventDict]) -> None:
    audit.record("kim\x1b[2J", "control socket", "pause us->eu\nroot", "done")
    assert (logs[0]["who"], logs[0]["what"]) == ("kim?[2J", "pause us->eu?root")


def run(program: str) -> list[dict[str, object]]:
    """The lines that it logs where stderr is no terminal."""
    environment = {**os.environ, "PYTHONPATH": str(Path(audit.__file__).parents[1])}
    words = [sys.executable, "-c", f"from heliograph.cli import logs\n{program}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=environment, check=True)
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_tracebacks_are_in_json_logs() -> None:
    """E10: they were there with --debug only, when the fault had long passed."""
    fails = "import structlog\nlogs.configure()\ntry: dict()['no such key']\nexcept KeyError: {}"
    (line,) = run(fails.format("structlog.get_logger().exception('a request failed')"))
    assert "KeyError: 'no such key'" in str(line["exception"])
    assert "Traceback" in str(line["exception"])
    (line,) = run("import logging\n" + fails.format("logging.getLogger('x').exception('a library failed')"))
    assert "KeyError: 'no such key'" in str(line["exception"])


def test_changes_are_logged_also_where_the_log_is_quiet() -> None:
    program = "from heliograph import audit\nlogs.configure()\naudit.record('kim', '::1', 'PUT /x', 204)\n"
    program += "from heliograph.connect.loggers import Loggers\nLoggers().set('root', 'OFF')\n"
    program += "audit.record('kim', '::1', 'PUT /y', 204)"
    lines = run(program)
    assert [(one["level"], one["who"], one["what"], one["outcome"]) for one in lines] == [
        ("info", "kim", "PUT /x", 204),
        ("info", "kim", "PUT /y", 204),
    ]
