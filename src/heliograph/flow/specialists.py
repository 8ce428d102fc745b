"""The specialists of one flow: everything MM2 does beside copying, each a chore with connections of its own.

Heartbeats, offset syncs, checkpoints, group offsets, topics' settings and permissions. None of them touches the
data, and none of them waits for another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from heliograph.flow.chores import Chore
from heliograph.flow.ends import LOOK_EVERY_S, Ends
from heliograph.flow.observer import Observer
from heliograph.state.offsets import TRIM_EVERY_S, OffsetMap
from heliograph.state.positions import PositionsLog
from heliograph.survey.places import ASK_S
from heliograph.sync.acls import AclSync
from heliograph.sync.checkpoints import Checkpoints
from heliograph.sync.configs import ConfigSync
from heliograph.sync.groups import GroupSync
from heliograph.sync.heartbeats import Heartbeats
from heliograph.sync.putback import Pairs, PutBackConfigs
from heliograph.sync.syncs import OffsetSyncs
from heliograph.sync.windows import Latencies
from heliograph.types import Cluster, Flow, TopicPartition
from heliograph.wire import Client

SYNC_EVERY_S = 1.0  # offset syncs; when one is due is MM2's rule, this bounds how many are written
JOIN_S = 0.3  # for all of them: who hangs in a call is left to it


class Specialists:
    def __init__(
        self,
        flow: Flow,
        offsets: OffsetMap | None = None,
        positions: PositionsLog | None = None,
        topics: Callable[[], Mapping[str, str]] = dict,
        altered: Callable[[set[str]], None] = lambda topics: None,
    ) -> None:
        """`topics` gives the topics copied now: source name -> remote name; `altered` is told the remote topics whose
        settings changed. A flow that copies nothing has heartbeats
        only, and needs none of the rest."""
        self.flow = flow
        self._clients: list[Client] = []
        self._chores: list[Chore] = []
        self._syncs: OffsetSyncs | None = None
        self._beats: Heartbeats | None = None
        self.checkpoint_latencies: Latencies | None = None
        self.checkpoints: Checkpoints | None = None
        self.resting: Callable[[], bool] = lambda: False  # whether an operator stopped the flow
        self.leads: Callable[[], bool] = lambda: True  # whether this process copies it
        self._heartbeats()
        if flow.enabled and offsets is not None and positions is not None:
            if flow.copies:
                if not flow.staged:
                    self._add("offset map", lambda: self._trim(offsets), TRIM_EVERY_S, delay_s=TRIM_EVERY_S)
                self._offset_syncs()
                self._topics(topics, altered)
            self._checkpoints(offsets, positions)

    def _trim(self, offsets: OffsetMap) -> None:
        if self.leads():
            offsets.trim()

    def _heartbeats(self) -> None:
        every_s = self.flow.emit_heartbeats_s
        if every_s is not None:
            self._beats = Heartbeats(self.flow, self._client(self.flow.target))
            self._add("heartbeats", self._beats.beat, every_s, delay_s=every_s)

    def _offset_syncs(self) -> None:
        if self.flow.emit_offset_syncs:
            self._syncs = OffsetSyncs(self.flow, self._client(self.flow.source), self._client(self.flow.target))
            self._add("offset syncs", self._syncs.write, SYNC_EVERY_S)

    def _checkpoints(self, offsets: OffsetMap, positions: PositionsLog) -> None:
        flow = self.flow
        if flow.emit_checkpoints_s is None or not flow.emit_offset_syncs:  # MM2 has no checkpoints without syncs
            return
        source, target = self._client(flow.source), self._client(flow.target)
        checkpoints = Checkpoints(flow, source, target, offsets, positions)
        self.checkpoints, self.checkpoint_latencies = checkpoints, checkpoints.latencies
        self._add("checkpoints", checkpoints.emit, flow.emit_checkpoints_s)
        if flow.sync_group_offsets_s is not None:
            groups = GroupSync(flow, self._client(flow.target), checkpoints)
            self._add("group offsets", groups.sync, flow.sync_group_offsets_s, delay_s=flow.sync_group_offsets_s)

    def _topics(self, topics: Callable[[], Mapping[str, str]], altered: Callable[[set[str]], None]) -> None:
        flow = self.flow
        if flow.sync_topic_configs_s is not None:
            configs = ConfigSync(flow, self._client(flow.source), self._client(flow.target), altered=altered)
            self._add("topic configs", lambda: configs.sync(topics()), flow.sync_topic_configs_s)
        if flow.sync_topic_acls_s is not None:
            acls = AclSync(flow, self._client(flow.source), self._client(flow.target))
            self._add("topic ACLs", lambda: acls.sync(topics()), flow.sync_topic_acls_s)

    def follow(self, pairs: Callable[[], Pairs], altered: Callable[[set[str]], None]) -> None:
        """Topics that records are put back into follow their spokes' settings."""
        configs = PutBackConfigs(
            *(self.flow, self._client(self.flow.target)),
            lambda spoke: self._client(spoke, timeout_s=ASK_S),
            *(pairs, altered),
        )
        if configs.every_s is not None:
            self._add("topic configs", configs.sync, configs.every_s)

    def watch(
        self,
        observer: Observer,
        partitions: Callable[[], Collection[TopicPartition]],
        recover: Callable[[], None],
    ) -> None:
        """Look at the sources' ends too, and see to partitions that stall for no reason."""
        ends = Ends(self.flow, self._client(self.flow.source), observer, partitions)
        self._add("source ends", ends.look, LOOK_EVERY_S, rests=False)
        self._add("recovery", recover, LOOK_EVERY_S, rests=False)

    def also(self, what: str, action: Callable[[], object], interval_s: float, *, delay_s: float | None = None) -> None:
        """A chore of somebody else's; the first time after an interval, unless told otherwise."""
        self._add(what, action, interval_s, delay_s=interval_s if delay_s is None else delay_s, rests=False)

    def _client(self, cluster: Cluster, *, timeout_s: float | None = None) -> Client:
        client = Client(cluster, timeout_s=timeout_s or self.flow.admin_timeout_s)
        self._clients.append(client)
        return client

    def _add(
        self,
        what: str,
        action: Callable[[], object],
        interval_s: float,
        delay_s: float = 0.0,
        *,
        rests: bool = True,  # while the flow is stopped
    ) -> None:
        wanted = action if not rests else lambda: None if self.resting() else action()
        self._chores.append(Chore(self.flow.name, what, wanted, interval_s=interval_s, delay_s=delay_s))

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        for chore in self._chores:
            chore.start()

    def stop(self) -> None:
        for chore in self._chores:
            chore.stop()

    def close(self) -> None:
        deadline = time.monotonic() + JOIN_S
        for chore in self._chores:
            chore.join(max(deadline - time.monotonic(), 0))
        for client in self._clients:
            client.close()

    def has_ended(self, what: str) -> bool:
        """Whether this chore has come to its end. A turn that is on its way is waited for, one that hangs is not."""
        chores = [chore for chore in self._chores if chore.what == what]
        for chore in chores:
            chore.join(JOIN_S)
        return all(chore.ended for chore in chores)

    # ---------------------------------------------------------------- what it hears and says

    def copied(self, tp: TopicPartition, run: Sequence[int] | None) -> None:
        if self._syncs is not None:
            self._syncs.note(tp, run)

    @property
    def heartbeat_age_s(self) -> float | None:
        beat_at = self._beats.beat_at if self._beats is not None else None
        return None if beat_at is None else time.monotonic() - beat_at

    @property
    def troubles(self) -> tuple[str, ...]:
        return tuple(f"{chore.what}: {chore.trouble}" for chore in self._chores if chore.trouble is not None)
