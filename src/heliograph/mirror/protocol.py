"""The control protocol between a flow's driver and its tasks: every message, typed, and how bytes become one.

Both sides import this module. Names and numbers travel, never payload and never credentials. (Plans hold credentials;
Spark carries them, and the planner's connection answers with them behind the key both ends have proved.)

Invariants:
  a. The first message of a connection is a hello that names the protocol version. A driver refuses another version with
     `Refused`, whose form never changes, and serves the other connections as before.
  b. A message to a task names the task attempt it is for (`ToTask.to`).
  c. Messages that replace a state (halted partitions, shares, policies) carry a revision that grows with every change;
     `mirror.inbox` drops older revisions.
  d. `Go` repeats the number of the `Ready` it answers. It counts only while the task waits for that number.
  e. Bytes that do not decode raise `BadMessage` and change nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, field

from heliograph.mirror.offsetmap import Span
from heliograph.types import Policies, TopicPartition

VERSION = 2  # 1 was 0.1: dictionaries without a version
TaskId = tuple[int, int, int]  # epoch, task, attempt


class BadMessage(ValueError):
    """Bytes that are no message of this protocol version. The text says why."""


class WrongVersion(BadMessage):
    def __init__(self, version: int, flow: str) -> None:
        super().__init__(f"protocol version {version}, expected {VERSION}")
        self.version, self.flow = version, flow


# ---------------------------------------------------------------- the first message of a connection


class TaskHello(Struct, frozen=True, tag="task"):
    flow: str
    epoch: int
    task: int
    attempt: int
    version: int = VERSION

    @property
    def id(self) -> TaskId:
        return self.epoch, self.task, self.attempt


class PlannerHello(Struct, frozen=True, tag="planner"):
    flow: str
    version: int = VERSION


# ---------------------------------------------------------------- planner to driver; answers are pickled


class AskLastEpoch(Struct, frozen=True, tag="last-epoch"):
    pass


class AskNextEpoch(Struct, frozen=True, tag="next-epoch"):
    after: int


class AskPlan(Struct, frozen=True, tag="plan"):
    epoch: int


# ---------------------------------------------------------------- task to driver


class Ping(Struct, frozen=True, tag="ping"):
    """Answered by `Pong` with the same number, which proves that the driver lived after the ping was sent."""

    number: int


class Ready(Struct, frozen=True, tag="ready"):
    """The task could copy from here, and waits for `Go` with this number."""

    request: int


class GaveUp(Struct, frozen=True, tag="gave-up"):
    """The task no longer waits for the `Go` of this number: it copies."""

    request: int


class PartitionReport(Struct, frozen=True):
    """One source partition. Counters count from the start of the task attempt."""

    topic: str
    partition: int
    next_offset: int = field(name="next")
    end_offset: int = field(name="end")  # of the source; -1: not known
    state: str
    reason: str = ""
    fix: str = ""
    sequence: int = 0
    producer_id: int = field(name="producer", default=-1)
    target_offset: int = field(name="target", default=-1)
    wish: str = ""
    wished: list[tuple[str, int, int]] = []  # topic, partition, producer id: whose wish it is; none: all of it
    timestamp: int = -1
    run: Span | None = None  # that its offset map ends with
    map: Span | None = None  # the same, of what the offset map's topic has
    why: str = ""
    blind: bool = False
    vague: bool = False
    history: bool = False
    oldest: int = -1
    latency: list[int] = []
    age: list[int] = []
    unknown: list[tuple[str, int]] = []
    strands: str = ""
    records: int = 0
    bytes: int = 0
    batches: int = 0
    skipped: int = 0
    retries: int = 0
    resyncs: int = 0
    repeated: int = 0
    lost: int = 0

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Report(Struct, frozen=True, tag="report"):
    """The partitions that changed since the last report."""

    lanes: list[PartitionReport] = []
    trouble: list[str] = []
    final: bool = False
    latency: dict[str, tuple[int, list[int]]] = {}  # topic -> sum, counts
    caps: list[tuple[int, bool]] = []
    sizes: dict[str, float | int | bool] = {}


# ---------------------------------------------------------------- driver to task


class Pong(Struct, frozen=True, tag="pong"):
    number: int


class Finish(Struct, frozen=True, tag="finish"):
    """End. `abandon`: write no position any more, an operator has set them."""

    abandon: bool = False


class Turn(Struct, frozen=True, tag="turn"):
    """End the epoch for Spark; go on copying until the next epoch's tasks are ready."""


class LanePosition(Struct, frozen=True, array_like=True):
    topic: str
    partition: int
    position: str  # as `mirror.positions` encodes it
    run: Span | None = None  # that its offset map ends with

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Positions(Struct, frozen=True, tag="positions"):
    """For a repeated attempt, before it begins: where its partitions stand now."""

    lanes: list[LanePosition] = []


class Go(Struct, frozen=True, tag="go"):
    """The epoch before has ended; begin from these positions."""

    request: int
    lanes: list[LanePosition] = []


class Shares(Struct, frozen=True, tag="shares"):
    revision: int
    shares: list[float]  # of each cap, bytes/s


class Halt(Struct, frozen=True, tag="halt"):
    """These partitions are paused or stopped, and no others."""

    revision: int
    partitions: list[tuple[str, int]]


class SetPolicies(Struct, frozen=True, tag="policies"):
    revision: int
    on: Policies


class Refused(Struct, frozen=True, tag="refused"):
    """The driver will not talk to this task. Understood by all versions: keep its fields."""

    reason: str
    version: int = VERSION


Question = AskLastEpoch | AskNextEpoch | AskPlan
FromTask = Ping | Ready | GaveUp | Report
DriverMessage = Pong | Finish | Turn | Positions | Go | Shares | Halt | SetPolicies | Refused


class ToTask(Struct, frozen=True):
    to: TaskId
    message: DriverMessage


class _Header(Struct, frozen=True):
    """What any version's hello has; 0.1 named no version."""

    version: int = 1
    flow: str = ""


_HEADER = msgspec.json.Decoder(_Header)
_HELLO = msgspec.json.Decoder(TaskHello | PlannerHello)
_QUESTION = msgspec.json.Decoder(Question)
_FROM_TASK = msgspec.json.Decoder(FromTask)
_TO_TASK = msgspec.json.Decoder(ToTask)


def encode(message: Struct) -> bytes:
    return msgspec.json.encode(message)


def decode_hello(data: bytes) -> TaskHello | PlannerHello:
    """Raises WrongVersion or BadMessage."""
    header: _Header = _decode(_HEADER, data)
    if header.version != VERSION:
        raise WrongVersion(header.version, header.flow)
    hello: TaskHello | PlannerHello = _decode(_HELLO, data)
    return hello


def decode_question(data: bytes) -> Question:
    question: Question = _decode(_QUESTION, data)
    return question


def decode_from_task(data: bytes) -> FromTask:
    message: FromTask = _decode(_FROM_TASK, data)
    return message


def decode_to_task(data: bytes) -> ToTask:
    message: ToTask = _decode(_TO_TASK, data)
    return message


def partition_report(row: dict[str, Any]) -> PartitionReport:
    """From the row that the task's modules put together. Raises msgspec.ValidationError: a mistake of ours."""
    return msgspec.convert(row, PartitionReport)


def _decode(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(str(error)) from error
