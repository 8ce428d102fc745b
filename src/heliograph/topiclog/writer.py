"""Appends to a topic that holds state, each stored once.

A produce request whose answer is lost is sent again (`wire.cluster`). By then another process may have written: a
stale repeat behind its records would undo them, and compaction, which keeps the last record of a key, would keep the
repeat.

Invariants:
  a. A batch has a producer id and a sequence, so the broker stores it once, however often it is sent and whatever
     other writers append meanwhile. The repeat is answered with the offset of the first.
  b. A batch whose outcome is unknown ends its producer id: nothing is ever sent behind it under that id.
  c. Every record names its write in a header (`WRITE_HEADER`). Where a broker has forgotten the producer id (its memory
     goes by record timestamps) and stores a repeat, `TopicReader` hands on the first record of a write only. MM2 and
     Connect ignore headers.
  What a and c cannot do: after compaction only the repeat may be left. A reader that has seen both must write again
  what the repeat undid (`connect.board` does).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from dataclasses import replace

from heliograph.batch import Record, encode
from heliograph.errors import BrokerError
from heliograph.types import TopicPartition
from heliograph.wire import Client
from heliograph.wire.codes import (
    DUPLICATE_SEQUENCE,
    INVALID_PRODUCER_EPOCH,
    OUT_OF_ORDER_SEQUENCE,
    UNKNOWN_PRODUCER_ID,
)

WRITE_HEADER = "heliograph.write"
SEQUENCES = 1 << 31  # sequence numbers are counted modulo 2^31
# The broker has not stored the batch, and will not under this producer id: its state was lost, or the topic recreated.
_ID_REFUSED = frozenset({OUT_OF_ORDER_SEQUENCE, UNKNOWN_PRODUCER_ID, INVALID_PRODUCER_EPOCH})


class TopicWriter:
    """Thread-safe: one batch at a time, since sequences have an order."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client, self._topic = client, topic
        self._producer: tuple[int, int] | None = None  # id and epoch
        self._sequences: dict[int, int] = {}  # the next one, by partition
        self._lock = threading.Lock()

    def append(self, partition: int, records: Sequence[Record]) -> None:
        """In one batch, all or none. Raises what the broker says; after any other error the outcome is unknown."""
        write = secrets.token_hex(8)
        marked = [
            replace(record, offset=n, headers=(*record.headers, (WRITE_HEADER, f"{write}.{n}".encode())))
            for n, record in enumerate(records)
        ]
        with self._lock:
            try:
                self._send(partition, marked)
            except BrokerError as error:
                if error.code not in _ID_REFUSED:
                    raise
                self._send(partition, marked)

    def _send(self, partition: int, records: Sequence[Record]) -> None:
        producer, self._producer = self._producer, None  # invariant b: kept only once the broker has answered
        if producer is None:
            producer, self._sequences = self._client.init_producer_ids(1)[0], {}
        sequence = self._sequences.get(partition, 0)
        batch = encode(records, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence)
        try:
            self._client.produce(TopicPartition(self._topic, partition), batch)
        except BrokerError as error:
            if error.code != DUPLICATE_SEQUENCE:  # it is stored, and too far back for the broker to say where
                raise
        self._sequences[partition] = (sequence + len(records)) % SEQUENCES
        self._producer = producer
