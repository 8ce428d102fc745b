"""Consumer groups' offsets, set on the target ahead of a failover (`sync.group.offsets.enabled`).

Invariants:
  a. Only a group without members on the target is written to. Whether it has any is asked right before; what joins in
     between, the broker protects: it refuses a commit from outside while there are members.
  b. No partition's offset is ever made smaller, also not when a coordinator that died says that it is smaller than it
     was: what was seen there once counts until the smaller one has lasted (`sync.rewinds`).
  c. The exception of b: an offset that a checkpoint had placed the group at, and that was withdrawn since (invariant d
     of `sync.checkpoints`): the copy that it told of was deleted or cut. It is set to where the group stands in the
     copy that is there now. An offset that the group committed itself is not ours to correct.
  d. Every write is logged: group, partition, from where to where.

What remains. Kafka has no commit under a condition. Offsets are read again right before the commit and right after it,
so that the time in which a member could join, commit and leave unseen is one round trip. What it committed then is
replaced by our checkpoint, which is never past a record that the group has not read: it reads some again. Where the
second reading shows that a member was there, that is logged, and its later commits count.
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
Offsets = Mapping[TopicPartition, Committed]


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
            elif self._ahead(group, wanted[group], there):
                written += self._advance(group, wanted[group])
        return written

    def _advance(self, group: str, wanted: Mapping[TopicPartition, Checkpoint]) -> int:
        """Read, commit, read again: as close together as can be."""
        before = self._read(group)
        ahead = self._ahead(group, wanted, before) if before is not None else {}
        if before is None or not ahead:
            return 0
        answers = self._target.commit_group_offsets(group, ahead)
        written = {tp for tp, error in answers.items() if error is None}
        for tp, error in answers.items():
            self._say(group, tp, before, ahead[tp].offset, error)
        self._check(group, before, {tp: ahead[tp] for tp in written})
        return len(written)

    def _read(self, group: str) -> Offsets | None:
        found = self._target.group_offsets([group])[group]
        return None if isinstance(found, BrokerError) else found

    def _ahead(
        self, group: str, wanted: Mapping[TopicPartition, Checkpoint], there: Offsets
    ) -> dict[TopicPartition, Committed]:
        """What is to be committed (invariants b and c)."""
        found = {}
        for tp, checkpoint in wanted.items():
            stands = self._stands(group, tp, there)
            if stands < checkpoint.downstream or (stands > checkpoint.downstream and self._misled(group, tp, stands)):
                found[tp] = Committed(checkpoint.downstream, -1, checkpoint.metadata)
        return found

    def _misled(self, group: str, tp: TopicPartition, stands: int) -> bool:
        """Whether a checkpoint that was withdrawn had placed the group there (invariant c)."""
        if stands in self._checkpoints.withdrawn.get((group, tp), ()):
            return True
        self._checkpoints.withdrawn.pop((group, tp), None)  # the group moved on by itself
        return False

    def _check(self, group: str, before: Offsets, written: Offsets) -> None:
        after = self._read(group)
        if after is None:
            return
        others = [tp for tp in before.keys() | after.keys() if tp not in written and before.get(tp) != after.get(tp)]
        others += [tp for tp, ours in written.items() if tp in after and after[tp].offset != ours.offset]
        for tp, ours in written.items():
            self._seen[group, tp] = after[tp].offset if tp in after else ours.offset
            self._rewinds.none((group, tp))
            self._checkpoints.withdrawn.pop((group, tp), None)
        if others:
            log.warning(
                "a member of the group committed while its offsets were set: its later commits count, and it may read "
                "records again",
                flow=self._flow.name,
                group=group,
                partitions=[str(tp) for tp in others[:5]],
            )

    def _say(
        self, group: str, tp: TopicPartition, before: Offsets, now: int, error: BrokerError | None
    ) -> None:  # fmt: skip
        said = log.bind(flow=self._flow.name, group=group, partition=str(tp))
        if error is None:
            was = before[tp].offset if tp in before else None
            said.info("group offset set", before=was, now=now)
        else:
            said.warning("group offset refused", why=str(error))

    def _stands(self, group: str, tp: TopicPartition, there: Offsets) -> int:
        """Where the group is on the target, as far as that can be believed."""
        key = group, tp
        read = there[tp].offset if tp in there else -1
        before = self._seen.get(key, -1)
        if read < before and not self._rewinds.believed(key, time.monotonic()):
            return before
        self._rewinds.none(key)
        self._seen[key] = read
        return read
