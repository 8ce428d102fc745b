"""Incremental fetch sessions (KIP-227): a thousand partitions on one connection, requests that name what changed.

Answers for which partitions a broker has to watch, from which offset, and for reading its answers. Does not decide
where to start, does not look into records, does not own the connection.

Invariants:
A. One request at a time: request() -> send -> take(). A session belongs to one connection; restart() moves it on.
B. request() costs as much as has changed since the last one; only a full request (a new session) names everything.
C. What take() returns is still wanted at the offset it was fetched from; answers overtaken by want() or drop() are not.
D. A partition whose want() is not moved on comes again with the same data: the broker keeps the old offset.
"""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

from heliograph.errors import VersionUnsupported
from heliograph.types import Isolation, TopicPartition
from heliograph.wire import codes
from heliograph.wire.fetch_request import (
    FIRST_WRITTEN_BY_HAND,
    FetchFrame,
    ForgottenTopic,
    Partition,
    Topic,
    kio_request,
)
from heliograph.wire.fetched import FIRST_VERSION_WITH_TOPIC_IDS, FetchAnswer, Fetched
from heliograph.wire.messages import Message, throttle_ms

_LAST_EPOCH = 0x7FFFFFFF
_NO_SESSION = -1
_START_OVER = {
    codes.FETCH_SESSION_ID_NOT_FOUND,
    codes.INVALID_FETCH_SESSION_EPOCH,
    codes.FETCH_SESSION_TOPIC_ID_ERROR,
}


class _Want(NamedTuple):
    offset: int
    topic_id: uuid.UUID | None
    max_bytes: int
    leader_epoch: int


class FetchSession:
    def __init__(
        self,
        version: int,
        *,
        isolation: Isolation = "read_committed",
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 << 20,
        once: bool = False,
    ) -> None:
        """`once`: one full request outside any session, nothing kept on the broker."""
        self.version = version
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.throttle_ms = 0  # of the last answer
        self._by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
        self._isolation = 1 if isolation == "read_committed" else 0
        self._wants: dict[TopicPartition, _Want] = {}
        self._changed: dict[TopicPartition, None] = {}  # to be named in the next incremental request, in order
        self._forget: dict[tuple[TopicPartition, uuid.UUID | None], None] = {}
        self._sent: dict[TopicPartition, _Want] = {}  # what the broker's session holds, as far as requests went out
        self._names: dict[uuid.UUID, str] = {}
        self._session_id = 0
        self._epoch = 0  # 0: the next request is a full one
        self._once = once
        self._in_flight = False
        self._rotation = 0

    def __len__(self) -> int:
        return len(self._wants)

    @property
    def in_flight(self) -> bool:
        return self._in_flight

    def wanted(self, tp: TopicPartition) -> int | None:
        """The offset this partition is wanted from, None if it is not."""
        want = self._wants.get(tp)
        return None if want is None else want.offset

    def want(
        self, tp: TopicPartition, offset: int, *, topic_id: uuid.UUID | None, max_bytes: int, leader_epoch: int = -1
    ) -> None:
        """Fetch this partition from `offset` on. Call again to move on; nothing happens if nothing changed."""
        if self._by_id:
            if topic_id is None:
                raise VersionUnsupported(
                    f"fetch v{self.version} goes by topic id, and {tp.topic} has none: use version 12 or lower",
                    api="fetch",
                )
            self._names[topic_id] = tp.topic
        else:
            topic_id = None
        new = _Want(offset, topic_id, max_bytes, leader_epoch)
        self._wants[tp] = new
        sent = self._sent.get(tp)
        if sent is not None:
            # The broker drops forgotten partitions after it has added new ones: never both for the same one.
            self._forget.pop((tp, topic_id), None)
            if sent.topic_id != topic_id:
                self._forget[tp, sent.topic_id] = None  # made anew under the same name
            elif sent == new:
                self._changed.pop(tp, None)
                return
        self._changed[tp] = None

    def drop(self, tp: TopicPartition) -> None:
        """Do not fetch this partition any more; what is under way for it will not be returned."""
        if self._wants.pop(tp, None) is None:
            return
        self._changed.pop(tp, None)
        sent = self._sent.get(tp)
        if sent is not None:
            self._forget[tp, sent.topic_id] = None

    def restart(self, version: int | None = None) -> None:
        """Forget the broker's session (a new connection), keep the wants."""
        if version is not None and version != self.version:
            self.version = version
            self._by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
        self._session_id = 0
        self._start_over()

    def _start_over(self) -> None:
        self._epoch = 0
        self._in_flight = False

    def farewell(self) -> Message | None:
        """The request that ends the broker's session, to be sent before the connection is closed; None if there is
        none. Brokers keep a thousand sessions; abandoned ones take up room for two minutes."""
        if not self._session_id or self._in_flight:
            return None
        request = FetchFrame(
            self.version,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=self.max_bytes,
            isolation_level=self._isolation,
            session_id=self._session_id,
            session_epoch=_NO_SESSION,
            topics=[],
            forgotten_topics_data=[],
        )
        self.restart()
        return self._written(request)

    # -- requests ----------------------------------------------------------------------------------------------------

    def request(self) -> Message:
        if self._in_flight:
            raise RuntimeError("a fetch of this session is under way: take() its answer first")
        self._in_flight = True
        if self._epoch == 0:
            named = self._everything()
            self._sent = dict(self._wants)
            forgotten: list[tuple[TopicPartition, uuid.UUID | None]] = []
        else:
            named = list(self._changed)
            forgotten = list(self._forget)
            for tp, topic_id in forgotten:
                sent = self._sent.get(tp)
                if sent is not None and sent.topic_id == topic_id:
                    del self._sent[tp]
            for tp in named:
                self._sent[tp] = self._wants[tp]
        self._changed.clear()
        self._forget.clear()
        return self._written(
            FetchFrame(
                self.version,
                max_wait_ms=self.max_wait_ms,
                min_bytes=self.min_bytes,
                max_bytes=self.max_bytes,
                isolation_level=self._isolation,
                session_id=self._session_id,
                session_epoch=_NO_SESSION if self._once else self._epoch,
                topics=self._topics(named),
                forgotten_topics_data=self._forgotten(forgotten),
            )
        )

    def _written(self, request: FetchFrame) -> Message:
        return request if self.version >= FIRST_WRITTEN_BY_HAND else kio_request(request)

    def _everything(self) -> list[TopicPartition]:
        """All wants, starting elsewhere each time: the broker fills an answer from the front until it is full."""
        every = list(self._wants)
        if every:
            self._rotation = (self._rotation + 1) % len(every)
        return every[self._rotation :] + every[: self._rotation]

    def _topics(self, named: list[TopicPartition]) -> list[Topic]:
        grouped: dict[tuple[str, uuid.UUID | None], list[Partition]] = {}
        for tp in named:
            want = self._wants[tp]
            partition = Partition(tp.partition, want.offset, want.max_bytes, want.leader_epoch)
            grouped.setdefault((tp.topic, want.topic_id), []).append(partition)
        return [Topic(topic, topic_id, tuple(parts)) for (topic, topic_id), parts in grouped.items()]

    def _forgotten(self, gone: list[tuple[TopicPartition, uuid.UUID | None]]) -> list[ForgottenTopic]:
        grouped: dict[tuple[str, uuid.UUID | None], list[int]] = {}
        for tp, topic_id in gone:
            grouped.setdefault((tp.topic, topic_id), []).append(tp.partition)
        return [ForgottenTopic(topic, topic_id, tuple(parts)) for (topic, topic_id), parts in grouped.items()]

    # -- answers -----------------------------------------------------------------------------------------------------

    def take(self, response: Message) -> list[Fetched]:
        """What came. Empty after a session error: the next request starts over. Other errors are raised."""
        answer = response if isinstance(response, FetchAnswer) else _by_kio(response)
        self._in_flight = False
        self.throttle_ms = answer.throttle_ms
        code = answer.error_code
        if code:
            if code == codes.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = 0
            # Otherwise the old id goes along with epoch 0, and the broker closes that session.
            self._start_over()
            if code in _START_OVER:
                return []
            raise codes.broker_error(code, "fetch")
        self._session_id = answer.session_id
        if not self._session_id:
            self._epoch = 0  # the broker has no room for a session: full requests until it has
        else:
            self._epoch = self._epoch + 1 if self._epoch < _LAST_EPOCH else 1
        return [part for topic_id, part in answer.parts if self._is_wanted(topic_id, part)]

    def _is_wanted(self, topic_id: uuid.UUID | None, part: Fetched) -> bool:
        """Whether it answers what is still asked (invariant C); then it learns its topic's name and its offset."""
        if self._by_id:
            name = self._names.get(topic_id) if topic_id is not None else None
            if name is None:
                return False
            part.topic = name
        else:
            topic_id = None
        tp = part.tp
        want, sent = self._wants.get(tp), self._sent.get(tp)
        if want is None or sent is None or want.offset != sent.offset or want.topic_id != topic_id:
            return False
        part.offset = sent.offset
        return True


def _by_kio(response: Any) -> FetchAnswer:
    """The same from kio's entity of an older version."""
    parts = []
    for topic in response.responses:
        for part in topic.partitions:
            leader = getattr(part, "current_leader", None)
            fetched = Fetched(
                str(getattr(topic, "topic", "")),
                int(part.partition_index),
                int(part.error_code),
                int(part.high_watermark),
                int(part.last_stable_offset),
                int(getattr(part, "log_start_offset", -1)),
                tuple((int(each.producer_id), int(each.first_offset)) for each in part.aborted_transactions or ()),
                part.records or b"",
                -1 if leader is None else int(leader.leader_id),
                -1 if leader is None else int(leader.leader_epoch),
            )
            parts.append((getattr(topic, "topic_id", None), fetched))
    error, session_id = int(getattr(response, "error_code", 0)), int(getattr(response, "session_id", 0))
    return FetchAnswer(throttle_ms(response), error, session_id, parts)
