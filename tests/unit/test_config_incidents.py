"""Policies in a file: each by its key, and those that contradict each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.config.load import load
from heliograph.errors import ConfigError
from heliograph.types import Policies

HEAD = "clusters = us, eu\nus.bootstrap.servers = a:1\neu.bootstrap.servers = b:1\nus->eu.enabled = true\n"


def policies(folder: Path, *lines: str) -> Policies:
    file = folder / "mm2.properties"
    file.write_text(HEAD + "\n".join(lines) + "\n")
    return load(file).flows[0].on


def test_the_defaults(tmp_path: Path) -> None:
    assert policies(tmp_path) == Policies("skip", "restart", "stop", "stop", "quarantine")


def test_for_one_flow_and_for_all(tmp_path: Path) -> None:
    said = ("on.gap = stop", "us->eu.on.refused = skip", "on.refused = stop", "us->eu.on.source.truncated = restart")
    assert policies(tmp_path, *said) == Policies(gap="stop", refused="skip", truncated="restart")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("on.gap = restart", "mm2.properties:5: on.gap = restart: must be skip or stop"),
        ("us->eu.on.source.recreated = skip", "must be restart or stop"),
        ("on.target.lost = quarantine", "must be restart or skip or stop"),
        ("us->eu.on.refused = restart", "must be quarantine or skip or stop"),
        ("on.gaps = stop", "did you mean on.gap?"),
    ],
)
def test_what_cannot_be_done_is_refused(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        policies(tmp_path, line)
    assert says in str(refused.value)


def test_a_contradiction_names_both_lines_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        policies(tmp_path, "on.gap = stop", "us->eu.on.target.lost = restart")
    said = str(refused.value)
    assert "mm2.properties:6: us->eu.on.target.lost = restart: contradicts on.gap = stop (line 5)" in said
    assert "Set on.target.lost = stop, or on.gap = skip" in said
