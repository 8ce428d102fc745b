"""`heliograph demo hub-spoke` as a newcomer runs it: a hub, spokes, every record back in its place; and Ctrl-C."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.journey.demos import finished, interrupted


@pytest.mark.parametrize(("via", "spokes"), [("intermediate", 2), ("straight", 1)])
def test_the_demo_ends_by_itself_and_has_compared_every_record(via: str, spokes: int, tmp_path: Path) -> None:
    arguments = ["--spokes", str(spokes), "--seconds", "5", "--rate", "900", "--via", via, "-o", "json"]
    said, _ = finished(tmp_path, "hub-spoke", *arguments, at_least=2_000)  # two of three topics: 600 a second
    for name in _flows(via, spokes):
        assert re.search(rf"^{re.escape(name)}: [1-9]", said, re.MULTILINE), name
    last = json.loads([line for line in said.splitlines() if line.startswith("{")][-1])
    assert [one["spoke"] for one in last["spokes"]] == [f"spoke{number + 1}" for number in range(spokes)]
    assert all(one["put_back"] > 0 and one["muxed"] > 0 for one in last["spokes"]), last["spokes"]


def _flows(via: str, spokes: int) -> list[str]:
    names = [f"spoke{number + 1}" for number in range(spokes)]
    if via == "straight":
        return [*(f"{name}->hub.mux" for name in names), "hub->hub.demux"]
    return [flow for name in names for flow in (f"{name}->{name}.mux", f"{name}->hub")] + ["hub->hub.demux"]


def test_ctrl_c_ends_it_and_leaves_nothing(tmp_path: Path) -> None:
    arguments = ("hub-spoke", "--spokes", "1", "--partitions", "1", "--via", "straight")
    interrupted(tmp_path, *arguments, moment="first record mirrored", clusters="hs")
