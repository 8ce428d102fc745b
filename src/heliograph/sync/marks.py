"""What a checkpoint of ours says beside MM2's fields, in a record header: of which generation of the copy it tells, and
which offsets of the group it was made from.

MM2 and Java's clients read key and value and ignore headers. A checkpoint without the header is MM2's, or 0.1's.

    heliograph.copy: "0:4011:5000 1:4012:16000"     source partition : producer id of the copy : the group's offset

One part for a topic that is copied partition by partition, one for each source partition where it is divided.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from heliograph.batch import Record, encode
from heliograph.batch.records import Headers
from heliograph.formats import Checkpoint
from heliograph.types import TopicPartition
from heliograph.wire import Client

NAME = "heliograph.copy"
BATCH_BYTES = 256 << 10  # a quarter of the default of `max.message.bytes`
_PART = re.compile(r"([0-9]{1,10}):([0-9]{1,19}):([0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class Mark:
    producers: Mapping[int, int] = field(default_factory=dict)  # by source partition; empty: not known
    upstreams: Mapping[int, int] = field(default_factory=dict)  # the group's offsets, by source partition
    divided: bool = False  # over another number of partitions

    def went_back(self, new: Checkpoint, before: Mark, old: Checkpoint) -> bool:
        """Whether the group stands lower than before in any source partition. Of a divided topic `upstream` is a sum,
        which hides it; without a mark a lower place must be taken for it."""
        if before.upstreams:
            return any(self.upstreams.get(p, offset) < offset for p, offset in before.upstreams.items())
        return new.upstream < old.upstream or (self.divided and new.downstream < old.downstream)

    def headers(self) -> Headers:
        parts = " ".join(f"{p}:{pid}:{self.upstreams.get(p, 0)}" for p, pid in sorted(self.producers.items()))
        return ((NAME, parts.encode()),) if parts else ()


def mark_of(headers: Headers) -> Mark:
    """Without the header, or with one that cannot be read: of nothing."""
    text = next((value for name, value in headers if name == NAME and value is not None), b"")
    found = [_PART.fullmatch(part) for part in text.decode("latin-1").split(" ")] if text else []
    parts = [tuple(map(int, match.groups())) for match in found if match is not None]
    if len(parts) != len(found):
        return Mark()
    return Mark({p: pid for p, pid, _ in parts}, {p: offset for p, _, offset in parts}, len(parts) > 1)


def append(client: Client, tp: TopicPartition, checkpoints: Mapping[Checkpoint, Mark], now_ms: int) -> None:
    for batch in _batches(Record(0, now_ms, c.key(), c.value(), mark.headers()) for c, mark in checkpoints.items()):
        numbered = [Record(i, now_ms, one.key, one.value, one.headers) for i, one in enumerate(batch)]
        client.produce(tp, encode(numbered))


def _batches(records: Iterable[Record]) -> list[list[Record]]:
    found: list[list[Record]] = []
    room = 0
    for record in records:
        values = (value or b"" for _, value in record.headers)
        size = len(record.key or b"") + len(record.value or b"") + sum(map(len, values)) + 64
        if not found or size > room:
            found.append([])
            room = BATCH_BYTES
        found[-1].append(record)
        room -= size
    return found
