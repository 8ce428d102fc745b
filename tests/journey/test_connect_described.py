"""The API held to its own OpenAPI description by schemathesis, with authentication on and off, as admin and as reader,
over names that are there and names that are made up: no answer is a 5xx, none is other than described, none is given
without credentials but /health's; readers change nothing, and neither do pages of other sites, under whatever name they
reach this server. A real server of ours over topics in memory; HELIOGRAPH_FUZZ_EXAMPLES=300 for a long look."""

from __future__ import annotations

import base64
import http.client
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from heliograph.batch import Record
from heliograph.connect import records
from heliograph.connect.asking import Offsets, Sight
from heliograph.connect.endpoints import ENDPOINTS
from heliograph.connect.openapi import description
from heliograph.connect.service import Api, Service
from heliograph.http import logins
from heliograph.http.guard import Guard
from heliograph.http.message import Request
from heliograph.http.routing import Match
from heliograph.http.server import Server
from heliograph.http.users import ROLES, User
from tests.unit.test_connect_api import SOURCE, Memory

# How often each operation is asked with random data. A number of questions and not of seconds: on a busy machine the
# test takes longer instead of asking less.
EXAMPLES = int(os.environ.get("HELIOGRAPH_FUZZ_EXAMPLES", "10"))
TIMEOUT_S = 600.0
SECRET = "only a test's"
ST = shutil.which("schemathesis", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
CHECKS = (
    "not_a_server_error",
    "ignored_auth",
    "unsupported_method",
    "status_code_conformance",
    "response_schema_conformance",
    "content_type_conformance",
    "negative_data_rejection",
)
SHAPES = ("not_a_server_error", "status_code_conformance", "response_schema_conformance", "content_type_conformance")
THERE = {"connector": "one", "plugin": "MirrorSourceConnector", "logger": "root", "task": 0}


class Lasting(Memory):
    """With a connector that is there again whenever it was deleted, so that not everything is a 404."""

    def sight(self, *, fresh: bool = False) -> Sight:
        if "one" not in self.folding.board().connectors:
            made = records.configured("one", {**SOURCE, "name": "one"})
            self.folding.config(Record(self.offset, 0, *made, ()))
            self.offset += 1
            self.runs("one")
        return super().sight(fresh=fresh)


class Heard(Api):
    """Counts what got past the checks of Host and Origin."""

    methods: list[str]

    def find(self, request: Request) -> Match:
        self.methods.append(request.method)
        return super().find(request)


@dataclass(frozen=True)
class Scene:
    server: Server
    secured: bool
    memory: Memory
    heard: Heard

    def fuzz(self, folder: Path, names: dict[str, object], *more: str, checks: tuple[str, ...] = CHECKS) -> str:
        """What schemathesis says. The description comes from a file: not every stranger may read it."""
        config, schema = folder / "schemathesis.toml", folder / "openapi.json"
        told = "\n".join(f'"path.{name}" = {value!r}' for name, value in names.items())
        config.write_text(f"[parameters]\n{told}\n" if told else "")
        schema.write_text(json.dumps(description("1", secured=self.secured)))
        how = ["--checks", ",".join(checks), "--phases", "examples,coverage,fuzzing", "--max-examples", str(EXAMPLES)]
        how += ["--seed", "1", "--rate-limit", "150/s", "--continue-on-failure", "--no-shrink", "--warnings", "off"]
        words = [str(ST), "--no-color", "--config-file", str(config), "run", str(schema), "--url", self.server.url]
        plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            [*words, *how, *more], capture_output=True, text=True, timeout=TIMEOUT_S, cwd=folder, env=plain
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"Tested: {len(ENDPOINTS)}" in done.stdout, "all of them were asked"
        return done.stdout


@pytest.fixture(params=[False, True], ids=["open", "secured"])
def scene(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    secured = bool(request.param)
    monkeypatch.setattr(logins, "CLIENT_BURST", 1e6)  # here guesses are many, and each is to be told 401
    monkeypatch.setattr(logins, "USER_BURST", 1e6)
    cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)  # schemathesis guesses at every operation
    users = {role: User(role, role, cheap.hash(SECRET)) for role in ROLES} if secured else None
    memory = Lasting()
    heard = Heard(Service(memory, secured=secured).routes(), Guard(users))
    heard.methods = []
    server = Server("127.0.0.1", 0, heard)
    server.start()
    yield Scene(server, secured, memory, heard)
    server.close()


needs_schemathesis = pytest.mark.skipif(
    ST is None, reason="needs schemathesis 4.32: `uv pip install schemathesis==4.32.5`"
)


@needs_schemathesis
@pytest.mark.parametrize("names", [THERE, {}], ids=["there", "made-up"])
def test_it_answers_as_it_is_described(scene: Scene, names: dict[str, object], tmp_path: Path) -> None:
    scene.fuzz(tmp_path, names, *(["--auth", f"admin:{SECRET}"] if scene.secured else []))


@needs_schemathesis
@pytest.mark.parametrize("scene", [True], ids=["secured"], indirect=True)
def test_a_reader_changes_nothing(scene: Scene, tmp_path: Path) -> None:
    scene.fuzz(tmp_path, THERE, "--auth", f"reader:{SECRET}")
    assert len(scene.heard.methods) > 2 * len(ENDPOINTS)
    assert all(isinstance(deed, Offsets) and deed.what == "read" for deed in scene.memory.deeds)


@needs_schemathesis
@pytest.mark.parametrize("scene", [False], ids=["open"], indirect=True)
def test_a_page_that_rebinds_its_name_sees_and_changes_nothing(scene: Scene, tmp_path: Path) -> None:
    """E4, for every operation: with no password asked for, on loopback, as admin."""
    evil = f"evil.example:{scene.server.port}"
    strange = ["--header", f"Host: {evil}", "--header", f"Origin: http://{evil}"]
    scene.fuzz(tmp_path, THERE, *strange, checks=SHAPES)
    assert scene.heard.methods == []
    assert scene.memory.deeds == []


@needs_schemathesis
@pytest.mark.parametrize("scene", [False], ids=["open"], indirect=True)
def test_a_page_of_another_site_changes_nothing(scene: Scene, tmp_path: Path) -> None:
    scene.fuzz(tmp_path, THERE, "--header", "Origin: https://evil.example", checks=SHAPES)
    assert set(scene.heard.methods) <= {"GET", "HEAD", "OPTIONS"}
    assert all(isinstance(deed, Offsets) and deed.what == "read" for deed in scene.memory.deeds)


@pytest.mark.parametrize(
    "header", ["", "Basic", f"Basic {base64.b64encode(b'admin:guess').decode()}", "Bearer admin.x"]
)
def test_nothing_is_answered_without_credentials_but_health(scene: Scene, header: str) -> None:
    for one in ENDPOINTS:
        path = one.path
        for name, value in THERE.items():
            path = path.replace("{" + name + "}", str(value))
        connection = http.client.HTTPConnection("127.0.0.1", scene.server.port, timeout=30)
        connection.request(one.method, path, "{}", {"Authorization": header} if header else {})
        status = connection.getresponse().status
        connection.close()
        if scene.secured and one.role != "anybody":
            assert status == 401, f"{one.method} {path}"
        else:
            assert status not in (401, 403), f"{one.method} {path}"
            assert status < 500, f"{one.method} {path}"
