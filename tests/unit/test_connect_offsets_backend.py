"""Offsets are changed by a node only of what has ended there: the connector may be resumed while its end is waited for,
and after it."""

from __future__ import annotations

import types
from typing import Any

import pytest

from heliograph.config import worker as worker_file
from heliograph.connect import positions, service
from heliograph.connect.asking import Offsets, Refusal
from heliograph.connect.service import NodeBackend
from tests.unit.test_config_connectors import FIELD
from tests.unit.test_connect_api import SOURCE

CHANGE = Offsets("mirror", "reset")


class Node:
    """Whether the connector has ended, at each look."""

    def __init__(self, *ended: bool) -> None:
        self.ended = list(ended)
        self.looks = 0
        self.file = types.SimpleNamespace(
            worker=worker_file.parse(FIELD).worker, offsets=types.SimpleNamespace(name="connect-offsets")
        )
        mirror = types.SimpleNamespace(config={**SOURCE, "name": "mirror"})
        self.store = types.SimpleNamespace(board=types.SimpleNamespace(connectors={"mirror": mirror}))

    def has_ended(self, connector: str) -> bool:
        self.looks += 1
        return self.ended.pop(0) if len(self.ended) > 1 else self.ended[0]


@pytest.fixture
def did(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    monkeypatch.setattr(positions, "require_stopped", lambda flow: done.append("asked the flow's leases"))
    monkeypatch.setattr(positions, "change", lambda flow, topic, deed: done.append(f"changed in {topic}"))
    return done


def backend(node: Node) -> NodeBackend:
    made: Any = node
    return NodeBackend(made)


def test_its_end_is_waited_for_and_then_other_processes_are_asked_for(did: list[str]) -> None:
    node = Node(False, False, True)
    backend(node).await_end(CHANGE)
    assert node.looks == 3
    assert did == ["asked the flow's leases"]


def test_what_was_resumed_after_its_end_is_refused(did: list[str]) -> None:
    with pytest.raises(Refusal, match="has not ended yet on this worker"):
        backend(Node(False)).do(CHANGE)
    assert did == []


def test_what_has_ended_is_changed(did: list[str]) -> None:
    backend(Node(True)).do(CHANGE)
    assert did == ["changed in connect-offsets"]


def test_one_that_does_not_end_is_left_to_the_leases(did: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is this one, so they say that it holds the flow."""
    monkeypatch.setattr(service, "ENDED_S", 0.2)
    backend(Node(False)).await_end(CHANGE)
    assert did == ["asked the flow's leases"]


def test_a_connector_that_is_gone_is_not_found(did: list[str]) -> None:
    with pytest.raises(Refusal, match="Connector other not found"):
        backend(Node(True)).do(Offsets("other", "reset"))
