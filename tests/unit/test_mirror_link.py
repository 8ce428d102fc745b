"""Words between a coordinator and a task, over the real connection on loopback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from heliograph.flow.hub import Hub
from heliograph.flow.relay import TaskKey, Voice
from heliograph.mirror.assignment import Assignment
from heliograph.mirror.link import Link
from tests.kit import wait_until


class Station:
    """Says three things at once to whoever joins."""

    def last_epoch(self) -> int:
        return 0

    def next_epoch(self, after: int) -> int:
        return after

    def plan(self, epoch: int) -> list[Assignment]:
        return []

    def joined(self, task: TaskKey, voice: Voice) -> None:
        voice.say("positions", lanes=[])
        voice.say("shares", shares=[5.0])
        voice.say("halt", partitions=[["t", 0]])

    def reported(self, task: TaskKey, report: Mapping[str, Any]) -> None: ...
    def ready(self, task: TaskKey) -> None: ...
    def left(self, task: TaskKey) -> None: ...


@pytest.fixture
def link() -> Iterator[Link]:
    hub = Hub()
    hub.add("us->eu", Station())
    link = Link(hub.coordinates, {"say": "task", "flow": "us->eu", "epoch": 1, "task": 0, "attempt": 1})
    yield link
    link.close()
    hub.close()


def test_what_is_heard_while_waiting_for_another_word_is_kept(link: Link) -> None:
    assert link.await_word("positions")["lanes"] == []
    heard: list[dict[str, Any]] = []
    wait_until(lambda: heard.extend(link.heard()) or len(heard) > 1, what="the other words", timeout_seconds=5)
    assert heard == [{"say": "shares", "shares": [5.0]}, {"say": "halt", "partitions": [["t", 0]]}]


def test_what_was_kept_is_there_for_who_waits_for_it_next(link: Link) -> None:
    assert link.await_word("halt")["partitions"] == [["t", 0]]
    assert link.await_word("nothing", timeout_s=0.05) == {}
    assert link.await_word("positions", timeout_s=0.05)["lanes"] == []
    assert link.heard() == [{"say": "shares", "shares": [5.0]}]
