"""What the parts of a task report to its loop, and what the loop is to do when an incident is written.

The reading side, the appending side, the incident handler and the pauses do not call each other: each puts an event
into the task's queue, and the loop (`mirror.task`) hands it to the part that it concerns, one at a time. Everything
runs on the loop's thread.

Invariant: an event about a lane carries the lane's generation at the moment it was made. The loop drops it when the
lane has moved on (invariant h of `mirror.lane`): the lane's new state leads to the same question again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from heliograph.batch import Record
from heliograph.batch.demux import Strange
from heliograph.errors import RecordTooLarge
from heliograph.mirror.lane import Lane


@dataclass(frozen=True, slots=True)
class Arrived:
    """The source brought something for these lanes. `pull_after`: the session whose next fetch waits until it is sent,
    because so few bytes are a live partition's."""

    lanes: tuple[Lane, ...]
    pull_after: int | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """Batches of these lanes were sent: a lane that held too much may have room again."""

    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class LostTrack:
    """The lane must ask the target what it holds."""

    lane: Lane
    generation: int


@dataclass(frozen=True, slots=True)
class AllAnswered:
    """No answer to a batch that the lane forgot is due any more."""

    lane: Lane


@dataclass(frozen=True, slots=True)
class Parked:
    """The lane cannot go on for now, and says why."""

    lane: Lane
    generation: int


@dataclass(frozen=True, slots=True)
class Denied:
    """A cluster refused access. The lane is parked already."""

    lane: Lane
    code: int
    why: str


@dataclass(frozen=True, slots=True)
class DiskFailed:
    """A disk of the target's leader failed or is full. The lane keeps trying."""

    lane: Lane


@dataclass(frozen=True, slots=True)
class OverLimit:
    """The lane lost track because of this record: alone and compressed it is larger than the target takes."""

    lane: Lane
    generation: int
    record: Record
    error: RecordTooLarge


@dataclass(frozen=True, slots=True)
class Gap:
    """Retention on the source removed what these lanes were to read next. `behind` has each with its generation."""

    behind: tuple[tuple[Lane, int], ...]
    earliest: int


@dataclass(frozen=True, slots=True)
class Truncated:
    """The source's log ends before what this lane has read."""

    lane: Lane
    generation: int
    latest: int


@dataclass(frozen=True, slots=True)
class StrangeRecords:
    """Records of a shared topic whose labels name no target. The anchor waits before them."""

    anchor: Lane
    generation: int
    records: tuple[Strange, ...]


# ---------------------------------------------------------------- what follows when an incident is written


@dataclass(frozen=True, slots=True)
class Jump:
    """Go on at `earliest`, behind what retention removed."""

    behind: tuple[tuple[Lane, int], ...]
    earliest: int


@dataclass(frozen=True, slots=True)
class Park:
    why: str
    fix: str
    wish: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask the target again: the refused records are in the incidents topic now (rule H)."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """The anchor may pass these offsets."""

    offsets: frozenset[int]


@dataclass(frozen=True, slots=True)
class NoAction:
    """The lane goes on by itself."""


Action = Jump | Park | Probe | SetAside | NoAction


@dataclass(frozen=True, slots=True)
class IncidentWritten:
    """The incidents topic has it, or could not take it (then the action is to park)."""

    lane: Lane
    generation: int
    action: Action


Event = (
    Arrived
    | Appended
    | LostTrack
    | AllAnswered
    | Parked
    | Denied
    | DiskFailed
    | OverLimit
    | Gap
    | Truncated
    | StrangeRecords
    | IncidentWritten
)
Events = deque[Event]


def generations(lanes: Sequence[Lane]) -> tuple[tuple[Lane, int], ...]:
    return tuple((lane, lane.generation) for lane in lanes)
