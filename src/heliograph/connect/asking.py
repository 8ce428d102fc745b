"""What is asked, what a decision rests on, and what it may come to: the values between the API's rooms. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal

from heliograph.config.connectors import Worker
from heliograph.connect.board import Board
from heliograph.connect.records import Pair


class Refusal(Exception):
    """Connect's error shape."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Overtaken(Exception):
    """Somebody else changed the connector between the decision and its record: decide again."""


@dataclass(frozen=True, slots=True)
class Level:
    level: str
    last_modified_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """What a decision rests on."""

    board: Board
    worker: Worker
    version: str
    cluster_id: str
    worker_id: str
    ready: bool = True
    trouble: str = ""  # why it is not healthy
    topic_tracking: bool = True
    topic_reset: bool = True
    levels: Mapping[str, Level] = field(default_factory=dict)
    notices: tuple[str, ...] = ()  # what an operator should see to: a certificate that ends, say
    writable: bool = True  # False: the flows are of a file, which says what they are


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, taken apart: path segments, query, and the body as JSON."""

    named: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, list[str]] = field(default_factory=dict)
    body: Any = None
    role: str = "reader"  # of who asks

    def flag(self, name: str, default: bool = False) -> bool:
        told = self.query.get(name)
        return told[-1].strip().lower() == "true" if told else default


# ---------------------------------------------------------------- deeds


@dataclass(frozen=True, slots=True)
class Write:
    """Records of the config topic, all in one batch."""

    pairs: tuple[Pair, ...]
    made: str = ""  # the connector whose configuration it is: it counts only if nobody else's came between (board, d)


@dataclass(frozen=True, slots=True)
class ForgetTopics:
    name: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Offsets:
    """Read, alter or reset a connector's offsets. The answer's body is made of it where it is read."""

    name: str
    what: Literal["read", "alter", "reset"]
    entries: tuple[tuple[Mapping[str, Any], Mapping[str, Any] | None], ...] = ()


@dataclass(frozen=True, slots=True)
class SetLevel:
    logger: str
    level: str


Deed = Write | ForgetTopics | Offsets | SetLevel


@dataclass(frozen=True, slots=True)
class Decision:
    status: HTTPStatus
    body: Any = None
    deeds: tuple[Deed, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
