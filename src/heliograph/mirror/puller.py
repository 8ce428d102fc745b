"""One connection to a source broker as the reading side uses it: its fetch session, and which bundles are in it.

Knows what is asked for, not whether it may be (`mirror.budget`) nor what becomes of the answer (`mirror.fetch`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from heliograph.mirror import ways
from heliograph.mirror.strands import Bundle
from heliograph.types import TopicPartition
from heliograph.wire import Connection, FetchSession


@dataclass(slots=True)
class Puller:
    key: int  # the broker's node, and which way to it (`mirror.ways`)
    connection: Connection
    session: FetchSession
    bundles: dict[TopicPartition, Bundle] = field(default_factory=dict)
    outstanding: bool = False
    reserved_bytes: int = 0  # of the budget, for the answer that is on its way
    expected_bytes: int = 0  # of memory, for the same answer once it is unpacked
    expansion: float = 1.0  # by how much answers grow when they are unpacked, by the last ones; 1: they are not

    @property
    def group(self) -> int:
        return ways.way_of(self.key) >> 1

    @property
    def is_history(self) -> bool:
        return bool(ways.way_of(self.key) & ways.HISTORY)

    def seat(self, bundle: Bundle, max_bytes: int) -> None:
        """Into the session, or on from where it is now."""
        self.bundles[bundle.tp] = bundle
        topic_id = bundle.lanes[0].spec.topic_id
        self.session.want(bundle.tp, bundle.fetch_offset, topic_id=topic_id, max_bytes=max_bytes)

    def unseat(self, tp: TopicPartition) -> None:
        self.session.drop(tp)
        self.bundles.pop(tp, None)

    def ask(self, *, max_wait_ms: int, max_bytes: int) -> None:
        """WireError if the connection is not there any more."""
        self.session.max_wait_ms, self.session.max_bytes = max_wait_ms, max_bytes
        self.connection.send(self.session.request())
        self.outstanding = True

    def unpacked(self, came_bytes: int, made_bytes: int, *, is_small: bool) -> None:
        """An answer of so many bytes was unpacked to so many. A small one says little: it never raises the estimate,
        and at most halves it. It has to lower it: behind an estimate that is too high all answers are small."""
        if not came_bytes:
            return
        ratio = max(made_bytes / came_bytes, 1.0)
        self.expansion = ratio if not is_small else max(min(ratio, self.expansion), self.expansion / 2)
