"""The API held to its own OpenAPI description by schemathesis, with authentication on and off, over names that are
there and names that are made up: no answer is a 5xx, none is other than described, none is given without
credentials but /health's. A real server of ours over topics in memory; HELIOGRAPH_FUZZ_EXAMPLES=300 for a long look."""

from __future__ import annotations

import base64
import http.client
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from heliograph.batch import Record
from heliograph.connect import records
from heliograph.connect.asking import Sight
from heliograph.connect.endpoints import ENDPOINTS
from heliograph.connect.service import Api, Service
from heliograph.http.guard import Guard
from heliograph.http.passwords import digest
from heliograph.http.server import Server
from heliograph.http.users import User
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


@dataclass(frozen=True)
class Scene:
    server: Server
    secured: bool


@pytest.fixture(params=[False, True], ids=["open", "secured"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    secured = bool(request.param)
    users = {"admin": User("admin", "admin", digest(SECRET))} if secured else None
    server = Server("127.0.0.1", 0, Api(Service(Lasting(), secured=secured).routes(), Guard(users)))
    server.start()
    yield Scene(server, secured)
    server.close()


@pytest.mark.skipif(ST is None, reason="needs schemathesis 4.32: `uv pip install schemathesis==4.32.5`")
@pytest.mark.parametrize("names", [THERE, {}], ids=["there", "made-up"])
def test_it_answers_as_it_is_described(scene: Scene, names: dict[str, object], tmp_path: Path) -> None:
    file = tmp_path / "schemathesis.toml"
    told = "\n".join(f'"path.{name}" = {value!r}' for name, value in names.items())
    file.write_text(f"[parameters]\n{told}\n" if told else "")
    how = ["--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing", "--max-examples", str(EXAMPLES)]
    how += ["--seed", "1", "--rate-limit", "150/s", "--continue-on-failure", "--no-shrink", "--warnings", "off"]
    how += ["--auth", f"admin:{SECRET}"] if scene.secured else []
    words = [str(ST), "--no-color", "--config-file", str(file), "run", f"{scene.server.url}/openapi.json", *how]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=tmp_path, env=plain)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Tested: {len(ENDPOINTS)}" in done.stdout, "all of them were asked"


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
