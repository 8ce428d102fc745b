"""Words between a coordinator and a task, over the real connection on loopback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heliograph.flow.hub import Hub
from heliograph.flow.relay import TaskKey, Voice
from heliograph.mirror.assignment import Assignment
from heliograph.mirror.link import Link
from tests.kit import wait_until


class Station:
    """Says two things at once to whoever joins."""

    def last_epoch(self) -> int:
        return 0

    def next_epoch(self, after: int) -> int:
        return after

    def plan(self, epoch: int) -> list[Assignment]:
        return []

    def joined(self, task: TaskKey, voice: Voice) -> None:
        voice.say("positions", lanes=[])
        voice.say("shares", shares=[5.0])

    def reported(self, task: TaskKey, report: Mapping[str, Any]) -> None: ...
    def ready(self, task: TaskKey) -> None: ...
    def left(self, task: TaskKey) -> None: ...


def test_what_is_heard_while_waiting_for_another_word_is_kept() -> None:
    hub = Hub()
    hub.add("us->eu", Station())
    link = Link(hub.coordinates, {"say": "task", "flow": "us->eu", "epoch": 1, "task": 0, "attempt": 1})
    try:
        assert link.await_word("positions")["lanes"] == []
        heard: list[dict[str, Any]] = []
        wait_until(lambda: heard.extend(link.heard()) or heard, what="the other word", timeout_seconds=5)
        assert heard == [{"say": "shares", "shares": [5.0]}]
    finally:
        link.close()
        hub.close()
