"""What was decided, put into words: once, and again when it changes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from structlog.typing import EventDict

from heliograph.flow import sizing
from heliograph.flow.sizing import Sizing, foreseen, tasks_because
from heliograph.mirror.pace import FAR_REQUEST_BYTES, NEAR_REQUEST_BYTES, Pace
from heliograph.mirror.protocol import Report
from heliograph.mirror.sizes import decided
from heliograph.types import Cluster, Flow

FLOW = Flow(Cluster("us"), Cluster("eu"))


def report(round_trip_s: float, **more: Any) -> Report:
    pace = Pace()
    pace.opened(round_trip_s)
    pace.answered(round_trip_s)
    return Report(sizes={**asdict(decided(pace, [])), **more})


def test_sizes_follow_the_round_trip() -> None:
    near, far = report(0.0005).sizes, report(0.1).sizes
    assert (near["far"], near["request_bytes"], near["round_trip_ms"]) == (False, NEAR_REQUEST_BYTES, 0.5)
    assert (far["far"], far["request_bytes"], far["round_trip_ms"]) == (True, FAR_REQUEST_BYTES, 100.0)
    assert far["merge_compressed_below_bytes"] == 400_000 > near["merge_compressed_below_bytes"]
    assert far["merged_batch_bytes"] > near["merged_batch_bytes"]


def test_before_anything_is_known() -> None:
    assert decided(Pace(), []).round_trip_ms == 0.0
    assert Sizing(FLOW).decided() == {}


def test_tasks_are_put_together_and_the_log_says_it_once(
    logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizing, "log", sizing.structlog.get_logger())
    one = Sizing(FLOW)
    one.begin(1, 2, 5)
    one.reported((1, 0, 0), Report(sizes=asdict(decided(Pace(), []))))
    one.reported((1, 1, 0), Report(sizes=asdict(decided(Pace(), []))))
    assert not logs, "nothing was answered yet"
    one.begin(1, 2, 5)
    one.reported((1, 0, 0), report(0.001, live=2, history=1))
    assert not logs, "one of two has spoken"
    one.reported((1, 1, 0), report(0.002, live=2, history=0))
    one.reported((1, 1, 0), report(0.003, live=1, history=1))
    (line,) = logs
    assert line["event"] == "sized"
    assert "2 tasks for 5 partitions" in line["what"]
    assert "4 partitions live, 1 history" in line["what"]
    found = one.decided()
    assert (found["live"], found["history"], found["round_trip_ms"]) == (3, 2, 3.0)

    one.reported((1, 0, 0), report(0.1, live=2, history=1))
    assert len(logs) == 1, "not more than a line a minute"
    monkeypatch.setattr(one, "_logged_at", -1e9)
    one.reported((1, 0, 0), report(0.1, live=2, history=1))
    assert "far (100 ms)" in logs[-1]["what"]


def test_a_task_of_an_epoch_before_is_not_asked() -> None:
    one = Sizing(FLOW)
    one.begin(2, 1, 1)
    one.reported((1, 0, 0), report(0.1))
    assert one.decided() == {}


def test_why_so_many_tasks() -> None:
    assert tasks_because(None, 8) == "one for two of 8 cores, and no more than partitions"
    assert tasks_because(3, 8) == "tasks.max = 3, and no more than partitions"
    assert foreseen(Flow(Cluster("us"), Cluster("eu"), tasks_max=3)).startswith("at most 3 tasks (tasks.max = 3")
