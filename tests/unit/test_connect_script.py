"""A script of curl and jq as people steer MirrorMaker 2 on Connect by (`tests/data/connect/by-hand.sh`): the calls it
makes, in order, and what it makes of our answers. `tests/broker/test_connect_clients.py` has records copied by it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from heliograph.connect.service import Api, Service
from heliograph.http.message import Request
from heliograph.http.routing import Match
from heliograph.http.server import Server
from tests.broker.conversation import DATA
from tests.unit.test_connect_api import SOURCE, Memory

pytestmark = pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="needs curl and jq")

NAMES = ["mm2-cpc-c", "mm2-hbc-c", "mm2-msc-c"]
CLASSES = dict(zip(NAMES, ("Checkpoint", "Heartbeat", "Source"), strict=True))


class Heard(Api):
    """Our API, with a list of what it was asked."""

    calls: list[str]

    def find(self, request: Request) -> Match:
        self.calls.append(f"{request.method} {request.path}")
        return super().find(request)


@dataclass
class Scene:
    memory: Memory
    heard: Heard
    server: Server
    folder: Path
    said: list[str] = field(default_factory=list)

    def script(self, action: str, *, code: int = 0) -> list[str]:
        """What it says of each, in order; `calls` is what it asked."""
        self.heard.calls.clear()
        words = [DATA / "by-hand.sh", action, self.server.url, self.folder, "c"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == code, done
        return done.stdout.splitlines()

    def calls(self, *patterns: str) -> list[str]:
        return [pattern.format(name) for name in NAMES for pattern in patterns]


LOOK, PUT, DELETE = "GET /connectors/{}/status", "PUT /connectors/{}/config", "DELETE /connectors/{}"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    memory = Memory()
    heard = Heard(Service(memory).routes())
    heard.calls = []
    server = Server("127.0.0.1", 0, heard)
    server.start()
    for name, kind in CLASSES.items():
        config = {**SOURCE, "connector.class": f"org.apache.kafka.connect.mirror.Mirror{kind}Connector", "name": name}
        # As people write it: a boolean among texts.
        (tmp_path / f"{name}.json").write_text(json.dumps({**config, "sync.topic.acls.enabled": False}))
    yield Scene(memory, heard, server, tmp_path)
    server.close()


def test_deploy_status_redeploy_undeploy(scene: Scene) -> None:
    assert scene.script("status") == [f"{name} null" for name in NAMES]
    assert scene.heard.calls == scene.calls(LOOK)
    assert scene.script("deploy") == [f"{name} deployed" for name in NAMES]
    assert scene.heard.calls == scene.calls(LOOK, PUT)
    assert [*scene.memory.folding.board().connectors] == NAMES
    for name in NAMES:
        scene.memory.runs(name)
    assert scene.script("status") == [f"{name} RUNNING" for name in NAMES]
    assert scene.script("deploy") == [f"{name} was there" for name in NAMES]
    assert scene.heard.calls == scene.calls(LOOK)
    deleted = [f"{name} deleted" for name in NAMES]
    assert scene.script("redeploy") == deleted + [f"{name} deployed" for name in NAMES]
    assert scene.heard.calls == [*scene.calls(DELETE), *scene.calls(LOOK, PUT)]
    assert scene.script("undeploy") == deleted
    assert scene.heard.calls == scene.calls(DELETE)
    assert scene.script("undeploy") == [f"{name} was not there" for name in NAMES]


def test_every_file_that_is_missing_is_named_and_nothing_is_asked(scene: Scene) -> None:
    for name in NAMES[:2]:
        (scene.folder / f"{name}.json").unlink()
    for action in ("deploy", "redeploy"):
        assert scene.script(action, code=1) == [f"{name}.json is missing" for name in NAMES[:2]]
        assert scene.heard.calls == []
    assert "usage" in scene.script("dance", code=2)[0]


def test_one_that_is_refused_keeps_the_others_from_nothing(scene: Scene) -> None:
    (scene.folder / "mm2-hbc-c.json").write_text("{}")
    said = scene.script("deploy")
    assert said == ["mm2-cpc-c deployed", "mm2-hbc-c refused", "mm2-msc-c deployed"]
    assert [*scene.memory.folding.board().connectors] == ["mm2-cpc-c", "mm2-msc-c"]
