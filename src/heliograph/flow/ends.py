"""The coordinator's own look at the sources' ends: a second opinion on whether a source moved, by connections that no
task uses; and the only one while no task runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from heliograph.errors import HeliographError
from heliograph.flow.observer import Observer
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client

# A look and its time-out fit into the limit within which a stall is to be told; a thousand partitions cost a few ms.
LOOK_EVERY_S = 3.0
LOOK_TIMEOUT_S = 2.0


class Ends:
    def __init__(
        self, flow: Flow, source: Client, observer: Observer, partitions: Callable[[], Collection[TopicPartition]]
    ) -> None:
        self._flow, self._source = flow, source
        self._observer, self._partitions = observer, partitions

    def look(self) -> None:
        tps = list(self._partitions())
        if not tps:
            return
        began = time.monotonic()
        try:
            found = self._source.list_offsets(
                tps, at="latest", isolation=self._flow.isolation, timeout_s=LOOK_TIMEOUT_S
            )
        except HeliographError as error:
            self._observer.looked(dict.fromkeys(tps, error.message), began)
            raise
        self._observer.looked(
            {tp: end.message if isinstance(end, HeliographError) else end for tp, end in found.items()}, began
        )
