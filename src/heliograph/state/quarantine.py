"""The records that a flow's target refused: listed, and sent again when the target takes them now.

For verbs: a flow may run meanwhile, or not. Sending again appends at the remote partition's end, so the record comes
later than it stood; it is in nobody's sequence (rule H), and the offset map does not know it.

Invariant: a record is sent again once. It is written with a producer id of its own before it is sent, and sent under
that id as often as it takes: the broker stores the first and answers a repeat with its offset (while it remembers the
id, which is a day by default).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from heliograph import policy
from heliograph.batch import Record, encode
from heliograph.errors import BrokerError
from heliograph.mirror import annals, quarantine
from heliograph.mirror.annals import Annals
from heliograph.mirror.quarantine import Kept
from heliograph.types import STORAGE_FACTOR, Flow
from heliograph.wire import Client, NewTopic
from heliograph.wire.codes import DUPLICATE_SEQUENCE

__all__ = ["Kept", "Quarantine", "Sent", "topic_of"]


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one."""

    kept: Kept
    offset: int  # on the target; -1: the broker did not say
    refused: str = ""  # why it is still in quarantine


def topic_of(flow: Flow) -> NewTopic:
    """As it is made when it is first needed."""
    return annals.quarantine_spec(policy.quarantine_topic(policy.annals_of(flow)), flow.factor(STORAGE_FACTOR))


class Quarantine:
    def __init__(self, client: Client, flow: Flow) -> None:
        self._client, self._alias = client, flow.source.alias
        self._annals = Annals(client, topic_of(flow))
        self._kept: dict[bytes, Kept] = {}
        self._annals.on_refold(self._forget)

    def _forget(self) -> None:
        self._kept = {}

    def read(self) -> list[Kept]:
        """All that is in it, in the order of where they stood. What an error left half read is read on next time."""
        for record in self._annals.news():
            found = quarantine.read(record, self._alias)
            if found is None:
                continue  # not ours
            key, kept = found
            if kept is None:
                self._kept.pop(key, None)
            else:
                self._kept[key] = kept
        return sorted(self._kept.values(), key=lambda kept: (kept.place.tp, kept.place.offset))

    def resend(self, chosen: Iterable[Kept]) -> Iterator[Sent]:
        for kept in chosen:
            yield self._resend(kept)

    def _resend(self, kept: Kept) -> Sent:
        if kept.sender is None:
            kept = replace(kept, sender=self._client.init_producer_ids(1)[0])
            self._annals.append([quarantine.keep(self._alias, kept)])
        assert kept.sender is not None
        producer_id, epoch = kept.sender
        once = encode([replace(kept.record, offset=0)], producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
        offset = -1
        try:
            offset = self._client.produce(kept.place.remote, once).base_offset
        except BrokerError as error:
            if error.code != DUPLICATE_SEQUENCE:
                return Sent(kept, -1, f"{error.message}. {error.fix}" if error.fix else error.message)
        now_ms = time.time_ns() // 1_000_000
        self._annals.append([Record(0, now_ms, quarantine.key_of(self._alias, kept.place), None, ())])
        return Sent(kept, offset)
