"""The headers that say where a record came from, while it travels with others in one topic: names, values, order.

Answers for the format, in Python: a record's own headers stand first, ours behind them, in the order of `Label`, each a
text. What the kernels of `labelling` do to whole batches is specified here, and `read` is for whoever looks at single
records. Which of them are written is the flow's affair.

Invariants:
A. `MUX_SOURCE_TOPIC` comes first and is always written. So ours begin at the last header of that name, whatever headers
   a record has of its own, also of these names: mux and demux undo each other, also one inside the other.
B. Ours end at the first header that is not of these names, or stands before its place in the order: what somebody adds
   on the way is not ours. (The same name twice is taken; the last counts.)
C. What cannot be read is absurd, with the reason. Nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum

from heliograph.batch.records import Headers
from heliograph.types import MUX_HEADERS, TopicPartition


class Label(IntEnum):
    """In the order in which they stand."""

    TOPIC = 0
    PARTITION = 1
    TIMESTAMP = 2
    BOOTSTRAP_SERVERS = 3
    INTERMEDIATE_TOPIC = 4
    IDENTIFIER = 5
    CLUSTER_ID = 6
    OFFSET = 7

    @property
    def header(self) -> str:
        return NAMES[self]


NAMES = MUX_HEADERS
ALWAYS = frozenset({Label.TOPIC, Label.PARTITION})  # without these there is no way back
ALL = frozenset(Label)


class Absurd(IntEnum):
    """Why a record cannot be put back. The numbers are the kernels'."""

    NO_TOPIC = -2
    NO_PARTITION = -3
    TOPIC = -4
    PARTITION = -5
    TIMESTAMP = -6
    OFFSET = -7
    FORBIDDEN = -8  # readable, and not to be followed: whoever divides records says so

    @property
    def words(self) -> str:
        return {
            Absurd.NO_TOPIC: f"it has no header {NAMES[Label.TOPIC]}: whoever wrote it is not a multiplexer",
            Absurd.NO_PARTITION: f"it has no header {NAMES[Label.PARTITION]} behind its {NAMES[Label.TOPIC]}",
            Absurd.TOPIC: f"{NAMES[Label.TOPIC]} is no topic's name (1 to 249 of a-z A-Z 0-9 . _ -)",
            Absurd.PARTITION: f"{NAMES[Label.PARTITION]} is no partition's number",
            Absurd.TIMESTAMP: f"{NAMES[Label.TIMESTAMP]} is neither RFC 3339 nor milliseconds since 1970",
            Absurd.OFFSET: f"{NAMES[Label.OFFSET]} is no offset",
            Absurd.FORBIDDEN: (
                f"{NAMES[Label.TOPIC]} and {NAMES[Label.PARTITION]} name an internal topic, a shared topic, one that "
                f"is not among mux.topics (demux.topics), or a partition that the source does not have"
            ),
        }[self]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record came from, as its headers say."""

    tp: TopicPartition
    timestamp: int | None  # None: not said
    offset: int | None
    own: Headers  # the record's headers without ours


@dataclass(frozen=True, slots=True)
class Stamp:
    """What is the same in the labels of all records of a source partition."""

    tp: TopicPartition
    bootstrap_servers: str = ""
    intermediate_topic: str = ""
    identifier: str = ""
    cluster_id: str = ""
    chosen: frozenset[Label] = ALL  # what is written, beside ALWAYS

    def text(self, label: Label) -> str:
        return (
            *(self.tp.topic, str(self.tp.partition), "", self.bootstrap_servers, self.intermediate_topic),
            *(self.identifier, self.cluster_id, ""),
        )[label]

    @property
    def timed(self) -> bool:
        return Label.TIMESTAMP in self.chosen

    @property
    def labels(self) -> list[Label]:
        return sorted(self.chosen | ALWAYS)


def write(stamp: Stamp, timestamp: int, offset: int) -> Headers:
    """The labels of one record."""
    varying = {Label.TIMESTAMP: time_text(timestamp), Label.OFFSET: str(offset)}
    return tuple((one.header, (varying.get(one) or stamp.text(one)).encode()) for one in stamp.labels)


_TOPIC = re.compile(rb"[a-zA-Z0-9._-]{1,249}")
_PARTITION = re.compile(rb"0|[1-9][0-9]{0,9}")
_NUMBER = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_TIME = re.compile(
    rb"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2})"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_10000_MS = 253_402_300_800_000
MOST = (1 << 63) - 1


def read(headers: Headers) -> Origin | Absurd:
    begin = max((at for at, (name, _) in enumerate(headers) if name == NAMES[Label.TOPIC]), default=-1)
    if begin < 0:
        return Absurd.NO_TOPIC
    end, before = begin + 1, 0
    said: dict[int, bytes | None] = {0: headers[begin][1]}
    while end < len(headers) and headers[end][0] in NAMES[max(before, 1) :]:
        before = NAMES.index(headers[end][0])
        said[before] = headers[end][1]
        end += 1
    topic, partition = said[Label.TOPIC] or b"", said.get(Label.PARTITION)
    if Label.PARTITION not in said:
        return Absurd.NO_PARTITION
    if not _TOPIC.fullmatch(topic) or topic in (b".", b".."):
        return Absurd.TOPIC
    if not _PARTITION.fullmatch(partition or b"") or int(partition or b"") >= 1 << 31:
        return Absurd.PARTITION
    timestamp = time_of(said[Label.TIMESTAMP] or b"") if Label.TIMESTAMP in said else None
    if timestamp is None and Label.TIMESTAMP in said:
        return Absurd.TIMESTAMP
    offset = _offset(said[Label.OFFSET] or b"") if Label.OFFSET in said else None
    if offset is None and Label.OFFSET in said:
        return Absurd.OFFSET
    own = (*headers[:begin], *headers[end:])
    return Origin(TopicPartition(topic.decode(), int(partition or b"")), timestamp, offset, own)


def time_text(timestamp: int) -> str:
    """RFC 3339 in UTC with milliseconds; what has no such text, as a number."""
    if not 0 <= timestamp < _YEAR_10000_MS:
        return str(timestamp)
    when = _EPOCH + timedelta(milliseconds=timestamp)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{timestamp % 1000:03}Z"


def time_of(text: bytes) -> int | None:
    """Milliseconds since 1970. What is finer than that is cut off."""
    if _NUMBER.fullmatch(text):
        return number_of(text)
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    try:
        when = datetime(*(int(part) for part in match.groups()[:6]), tzinfo=UTC)  # type: ignore[misc,arg-type]
    except ValueError:
        return None
    zone = match[8]
    hours, minutes = (0, 0) if zone == b"Z" else (int(zone[1:3]), int(zone[4:6]))
    if hours > 23 or minutes > 59:
        return None
    shift_ms = (hours * 60 + minutes) * 60_000 * (-1 if zone[:1] == b"-" else 1)
    fraction_ms = int(((match[7] or b"") + b"000")[:3])
    return (when - _EPOCH) // timedelta(milliseconds=1) + fraction_ms - shift_ms


def number_of(text: bytes) -> int | None:
    """Of 64 bits, as we write it: no sign but a minus, no zeros before it."""
    number = int(text) if _NUMBER.fullmatch(text) else None
    return number if number is not None and -MOST - 1 <= number <= MOST else None


def _offset(text: bytes) -> int | None:
    number = number_of(text)
    return number if number is not None and number >= 0 else None


_INTERNAL = re.compile(r"__.*|mm2.*[.-]internal|.*\.checkpoints\.internal")


def is_internal(topic: str) -> bool:
    """Whether nobody may write to a topic of this name because some record says so."""
    return _INTERNAL.fullmatch(topic) is not None


def chosen(names: Collection[str] | Sequence[str]) -> frozenset[Label]:
    """Labels by the names of their headers. KeyError for one that is none of ours."""
    by_name = {one.header: one for one in Label}
    return frozenset(by_name[name] for name in names)
