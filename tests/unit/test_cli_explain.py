"""`heliograph explain`: values, origins, masks, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heliograph.cli.clinic import examine
from heliograph.cli.main import run

TEXT = """clusters = us, eu
us.bootstrap.servers = us1:9092
eu.bootstrap.servers = eu1:9092
eu.ssl.key.password = hunter2
us->eu.enabled = true
us->eu.topics = orders
status.storage.partitions = 1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mm2.properties"
    path.write_text(TEXT)
    return path


def test_text(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", str(file)]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0] == "us->eu"
    assert any(line.split() == ["topics", "orders", "line", "6:", "us->eu.topics"] for line in lines)
    assert any(line.split() == ["groups", ".*", "default"] for line in lines)
    assert any(line.split()[:3] == ["target:", "ssl.key.password", "***"] for line in lines)
    assert "eu->us  (not enabled: heartbeats only)" in lines
    assert "hunter2" not in said.out + said.err
    assert "status.storage.partitions (line 7)" in said.err


def test_json_of_one_flow(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", str(file), "us->eu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["flows"]) == ["us->eu"]
    assert found["clusters"] == {}
    (topics,) = [row for row in found["flows"]["us->eu"] if row["key"] == "topics"]
    assert topics == {
        "key": "topics",
        "value": "orders",
        "default": False,
        "line": 6,
        "written": "us->eu.topics",
        "provider": None,
    }


def test_a_flow_that_is_not_there(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", str(file), "eu->ap"]) == 2
    assert "there are us->eu, eu->us, us, eu" in capsys.readouterr().err


def test_lenient(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(TEXT + "zebra = 1\n")
    assert run(["explain", str(file)]) == 2
    assert "zebra: unknown key" in capsys.readouterr().err
    assert run(["explain", str(file), "--lenient"]) == 0
    assert "zebra: unknown key" in capsys.readouterr().err


def test_doctor_is_lenient_too(file: Path) -> None:
    file.write_text(TEXT + "zebra = 1\n")
    refused = next(iter(examine(file)))
    assert (refused.name, refused.ok) == ("file", False)
    assert "zebra" in refused.detail
    assert next(iter(examine(file, lenient=True))).ok  # the clusters would be asked next
