"""Consumer groups' offsets, set on the target ahead of a failover (`sync.group.offsets.enabled`).

Invariants:
  a. Only a group without members on the target is written to. Whether it has any is asked right before; what joins in
     between, the broker protects: it refuses a commit from outside while there are members.
  b. No partition's offset is ever made smaller, also not when a coordinator that died says that it is smaller than it
     was: what was seen there once counts until the smaller one has lasted (`sync.rewinds`).
  c. Every write is logged: group, partition, from where to where.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import structlog

from heliograph.errors import BrokerError
from heliograph.formats import Checkpoint
from heliograph.sync.checkpoints import Checkpoints
from heliograph.sync.rewinds import Rewinds
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client, Committed

log = structlog.get_logger()

WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})


class GroupSync:
    def __init__(self, flow: Flow, target: Client, checkpoints: Checkpoints) -> None:
        self._flow = flow
        self._target = target
        self._checkpoints = checkpoints
        self._rewinds = Rewinds()
        self._seen: dict[tuple[str, TopicPartition], int] = {}  # where a group stood on the target; -1: nowhere

    def sync(self) -> int:
        """How many offsets were written."""
        wanted: dict[str, dict[TopicPartition, Checkpoint]] = {}
        for (group, tp), checkpoint in list(self._checkpoints.known.items()):
            wanted.setdefault(group, {})[tp] = checkpoint
        if not wanted:
            return 0
        states = self._target.describe_groups(wanted)
        free = [
            group for group, state in states.items() if not isinstance(state, BrokerError) and state in WITHOUT_MEMBERS
        ]
        written = 0
        for group, there in self._target.group_offsets(free).items() if free else ():
            if isinstance(there, BrokerError):
                log.warning("group cannot be read on the target", flow=self._flow.name, group=group, why=str(there))
                continue
            written += self._advance(group, wanted[group], there)
        return written

    def _advance(
        self, group: str, wanted: Mapping[TopicPartition, Checkpoint], there: Mapping[TopicPartition, Committed]
    ) -> int:
        ahead = {
            tp: Committed(c.downstream, -1, c.metadata)
            for tp, c in wanted.items()
            if self._stands(group, tp, there) < c.downstream  # invariant b
        }
        if not ahead:
            return 0
        written = 0
        for tp, error in self._target.commit_group_offsets(group, ahead).items():
            before = there[tp].offset if tp in there else None
            if error is None:
                written += 1
                self._seen[group, tp] = ahead[tp].offset
                log.info(
                    "group offset set", flow=self._flow.name, group=group, partition=str(tp), before=before,
                    now=ahead[tp].offset,
                )  # fmt: skip
            else:
                log.warning(
                    "group offset refused", flow=self._flow.name, group=group, partition=str(tp), why=str(error)
                )
        return written

    def _stands(self, group: str, tp: TopicPartition, there: Mapping[TopicPartition, Committed]) -> int:
        """Where the group is on the target, as far as that can be believed."""
        key = group, tp
        read = there[tp].offset if tp in there else -1
        before = self._seen.get(key, -1)
        if read < before and not self._rewinds.believed(key, time.monotonic()):
            return before
        self._rewinds.none(key)
        self._seen[key] = read
        return read
