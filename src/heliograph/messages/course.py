"""The messages of several partitions as one row: bounded ones merged by time, the last ones found, new ones followed.

Invariants:
  a. Messages of one partition come in the order of their offsets, whatever their times say.
  b. Among partitions, of the messages that come next the oldest comes first. Followed partitions are merged as far as
     they have come at each look: an old message that is written later cannot come before what was shown.
  c. Memory holds one fetch a partition, or the messages asked for by `last`; never a topic.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from heliograph.errors import BrokerError, WireError
from heliograph.messages import extent
from heliograph.messages.extent import Span
from heliograph.messages.reading import Message, Reader
from heliograph.types import TopicPartition
from heliograph.wire.codes import UNKNOWN_TOPIC_OR_PARTITION

Wanted = Callable[[Message], bool]

LEAST_WINDOW = 500  # offsets: the first look back; a batch rarely has more
WIDER = 4  # how much further each look back reaches
LOOK_EVERY_S = 0.1
GROWN_EVERY_S = 2.0  # added partitions are noticed within this
UNSEEN = -1
APART_S = 30.0  # between two notes that a partition cannot be asked


def bounded(reader: Reader, spans: Mapping[int, Span], wanted: Wanted) -> Iterator[Message]:
    """All wanted ones of these spans, merged."""
    return merged(_filtered(reader.read(number, *span), wanted) for number, span in spans.items())


def merged(streams: Iterable[Iterable[Message]]) -> Iterator[Message]:
    """Invariants a and b: streams need not be in the order of their times, and each keeps its own."""
    return heapq.merge(*streams, key=lambda message: message.timestamp_ms)


def _filtered(messages: Iterable[Message], wanted: Wanted) -> Iterator[Message]:
    return (message for message in messages if wanted(message))


def last(reader: Reader, spans: Mapping[int, Span], count: int, wanted: Wanted) -> list[Message]:
    """The last `count` wanted ones, however far back they lie: offsets say little where compaction or transactions left
    holes, so each partition is looked at from behind, in windows that grow."""
    found = deque(merged(_tail(reader, number, span, count, wanted) for number, span in spans.items()), maxlen=count)
    return list(found)


def _tail(reader: Reader, partition: int, span: Span, count: int, wanted: Wanted) -> list[Message]:
    found: deque[Message] = deque()
    end, window = span.end, max(count, LEAST_WINDOW)
    while end > span.first and len(found) < count:
        first = max(span.first, end - window)
        newer = deque(_filtered(reader.read(partition, first, end), wanted), maxlen=count)
        found.extendleft(reversed(newer))
        end, window = first, window * WIDER
    return list(found)[-count:] if count else []


@dataclass(slots=True)
class Follower:
    """What is written behind `at` from now on, look by look."""

    reader: Reader
    at: dict[int, int]  # the next offset of each partition; UNSEEN: from where it ends when it can be asked
    wanted: Wanted
    grows: bool = True  # partitions that are added belong to it
    until: Mapping[int, int] = field(default_factory=dict)  # offsets at which partitions are done
    topic_id: UUID | None = None
    _grown_s: float = 0.0
    _complained_s: dict[str, float] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return bool(self.until) and all(self.at[number] >= end for number, end in self.until.items())

    def look(self, now_s: float | None = None) -> list[Message]:
        """What passes is waited for: a cluster that is away for a while does not end it."""
        now_s = time.monotonic() if now_s is None else now_s
        found: list[list[Message]] = []
        try:
            self._grow(now_s)
            ends = self._ends(now_s)
        except WireError as error:
            self._bear(f"{self.reader.topic} on {self.reader.client.alias}", error, now_s)
            return []
        for number, end in ends.items():
            try:
                found.append(list(self._news(number, end)))
            except WireError as error:
                self._bear(f"{self.reader.topic}-{number}", error, now_s)
        return list(merged(found))

    def _grow(self, now_s: float) -> None:
        if self.grows and now_s - self._grown_s >= GROWN_EVERY_S:
            self._grown_s = now_s
            for number in extent.partitions(self.reader.client, self.reader.topic):
                self.at.setdefault(number, 0)

    def _ends(self, now_s: float) -> dict[int, int]:
        tps = [TopicPartition(self.reader.topic, number) for number in self.at]
        found = self.reader.client.list_offsets(tps, at="latest", isolation=self.reader.isolation)
        ends = {}
        for tp, end in found.items():
            if isinstance(end, BrokerError):
                self._bear(str(tp), end, now_s)
            else:
                if self.at[tp.partition] == UNSEEN:
                    self.at[tp.partition] = end
                ends[tp.partition] = min(end, self.until.get(tp.partition, end))
        return ends

    def _bear(self, what: str, error: WireError, now_s: float) -> None:
        gone = isinstance(error, BrokerError) and error.code == UNKNOWN_TOPIC_OR_PARTITION
        if gone or not error.retriable:
            raise error
        if now_s - self._complained_s.get(what, -APART_S) >= APART_S:
            self._complained_s[what] = now_s
            self.reader.watch.note(f"{what} cannot be asked now, still trying: {error}")

    def _news(self, number: int, end: int) -> Iterator[Message]:
        at = self.at[number]
        if end < at:
            if number in self.until:
                return
            at = self._anew(number, end)
        yield from _filtered(self.reader.read(number, at, end), self.wanted)
        self.at[number] = end

    def _anew(self, number: int, end: int) -> int:
        """Where to go on in a partition that is shorter than it was."""
        topic_id = extent.topic_id(self.reader.client, self.reader.topic)
        anew = topic_id is not None and topic_id != self.topic_id
        self.topic_id = topic_id
        why = "the topic was made anew: from its beginning" if anew else "it was cut: from its end"
        self.reader.watch.note(f"{self.reader.topic}-{number} ends at {end}, not {self.at[number]}; {why}")
        if anew:
            self.at.update(dict.fromkeys(self.at, 0))
        return 0 if anew else end
