"""The reading side of a task: one incremental fetch session per connection to a source broker, chunks into lanes.

One fetch is outstanding per session. Live lanes and lanes far behind have sessions of their own (`mirror.ways`), and
what a flow or its topics may copy in a second is held here, by not asking (`mirror.budget`). Under a backlog the next
fetch is sent before the answer to the last is worked on, so the broker reads while we patch and append; a few live
records are passed on first. A lane that holds enough is taken out of the session until it has drained, which is what
bounds the memory of a task (invariant: queued bytes <= lanes with room × FETCH_PARTITION_BYTES + one response).
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from heliograph.batch import Chunk, Limits
from heliograph.errors import BatchError, HeliographError, WireError
from heliograph.mirror import ways
from heliograph.mirror.brokers import Brokers
from heliograph.mirror.budget import Budget
from heliograph.mirror.lane import Lane, State
from heliograph.mirror.warden import Warden
from heliograph.types import Cluster, Isolation, TopicPartition
from heliograph.wire import Connection, Fetched, FetchSession, broker_error, is_retriable
from heliograph.wire.codes import INCONSISTENT_TOPIC_ID, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_ID
from heliograph.wire.fetched import FIRST_VERSION_WITH_TOPIC_IDS

# One response. Large enough to fill a 100 ms link (8 MiB per 100 ms is 80 MB/s, and there is one per broker), small
# enough that the bytes are still warm when they are patched and sent.
FETCH_BYTES = 8 << 20
FETCH_PARTITION_BYTES = 4 << 20

# A lane stops being fetched above this and starts again below half of it: about a second of a fast partition's traffic
# would be wasted memory, less than a response or two would leave the appender idle between fetches.
LANE_BYTES = 8 << 20

# All lanes of a task together, history and live each. A thousand lanes that all have a backlog share it.
TASK_BYTES = 64 << 20

LONG_POLL_MS = 500
DRAIN_S = 0.1  # between two looks at a lane whose next records are gone, while it still holds some
# While a lane is stalled the others' fetch waits no longer than this. There is one fetch at a time, and the lane will
# be back in a moment: behind idle partitions' long poll it would get 8 MiB every half second.
SHORT_POLL_MS = 5

# An answer so small is a live partition's: what it brought goes out first, the next fetch behind it. With more, the
# broker had better read on while we patch.
PROMPT_BYTES = 64 << 10


@dataclass(slots=True)
class Puller:
    """A way to a source broker: its fetch session and the lanes in it."""

    key: int
    connection: Connection
    session: FetchSession
    lanes: dict[TopicPartition, Lane] = field(default_factory=dict)
    outstanding: bool = False
    reserved_bytes: int = 0  # of the budget, for the answer that is on its way

    @property
    def group(self) -> int:
        return ways.way_of(self.key) >> 1

    @property
    def is_history(self) -> bool:
        return bool(ways.way_of(self.key) & ways.HISTORY)


class Source:
    def __init__(
        self,
        cluster: Cluster,
        lanes: Iterable[Lane],
        selector: selectors.BaseSelector,
        *,
        isolation: Isolation,
        arrived: Callable[[Lane], None],
        pass_on: Callable[[], object],
        limits: Callable[[int], Limits],
        warden: Warden,
        budget: Budget | None = None,
    ) -> None:
        self._lanes = {lane.spec.tp: lane for lane in lanes}
        self._warden = warden
        self.budget = budget or Budget()
        self._groups = {tp: self.budget.group_of(tp.topic) for tp in self._lanes}
        self._isolation = isolation
        self._arrived, self._pass_on, self._limits = arrived, pass_on, limits
        self._pullers: dict[int, Puller] = {}
        self._fetched_at: dict[TopicPartition, int] = {}  # lanes in a session -> its key
        self._dry: dict[int, float] = {}  # sessions whose lanes have used up their budget -> when there is some again
        self._homeless: set[TopicPartition] = set(self._lanes)  # lanes without a session that should have one
        self._later: dict[TopicPartition, float] = {}  # when these become homeless
        self._stalled: set[TopicPartition] = set()  # lanes that hold enough for now
        self._wide: dict[TopicPartition, int] = {}  # lanes whose next batch needs more than the usual bytes
        self.stopped = False
        self.brokers = Brokers(cluster, {tp.topic for tp in self._lanes}, selector, self)
        self.brokers.refresh()

    # ---------------------------------------------------------------- the loop calls

    @property
    def due(self) -> float:
        """When `tick` has something to do, if nothing happens before."""
        return min(self._dry.values(), default=float("inf"))

    def tick(self, now: float) -> None:
        self.brokers.tick(now)
        for key in [key for key, at in self._dry.items() if now >= at]:
            del self._dry[key]
            if key in self._pullers:
                self._pull(self._pullers[key])
        for tp in [tp for tp, at in self._later.items() if now >= at]:
            del self._later[tp]
            self._homeless.add(tp)
        if self._homeless and not self.stopped:
            for tp in list(self._homeless):
                self._place(self._lanes[tp])
            self._pull_all()

    def reopen(self, lane: Lane) -> None:
        """The lane's place changed (rule D answered) or it has room again: fetch it from `fetch_offset`."""
        self._stalled.discard(lane.spec.tp)
        self._place(lane)
        key = self._fetched_at.get(lane.spec.tp)
        if key is not None:
            self._pull(self._pullers[key])

    def leave(self, lane: Lane) -> None:
        """Stop fetching it (parked, or lost track)."""
        tp = lane.spec.tp
        self._homeless.discard(tp)
        self._later.pop(tp, None)
        self._stalled.discard(tp)
        key = self._fetched_at.pop(tp, None)
        if key is not None and (puller := self._pullers.get(key)):
            puller.session.drop(tp)
            puller.lanes.pop(tp, None)

    def is_stalled(self, lane: Lane) -> bool:
        """Whether it holds enough, and is not fetched until it has drained."""
        return lane.spec.tp in self._stalled

    def throttled_ms(self, lane: Lane) -> int:
        """How long its broker makes us wait for a quota's sake, by the last answer."""
        puller = self._pullers.get(self._fetched_at.get(lane.spec.tp, -1))
        return puller.session.throttle_ms if puller else 0

    def key_of(self, lane: Lane) -> int | None:
        """The connection it is read by, or would be; None: nobody leads it."""
        if (key := self._fetched_at.get(lane.spec.tp)) is not None:
            return key
        home = self._home(lane)
        return self.brokers.leader(lane.spec.tp) if home is None else home.key

    def held_back(self, lane: Lane) -> str:
        """In words, if it is not fetched for the sake of a cap."""
        key = self._fetched_at.get(lane.spec.tp)
        behind = lane.high_watermark > lane.fetch_offset
        return self.budget.words(self._groups[lane.spec.tp]) if behind and key in self._dry else ""

    def drained(self, lane: Lane) -> None:
        """The appender took something: has a stalled lane room again?"""
        if lane.spec.tp in self._stalled and lane.queued_bytes < LANE_BYTES // 2:
            self.reopen(lane)

    def stop(self) -> None:
        """No more fetching; what is outstanding is not waited for, and not taken when it comes."""
        self.stopped = True

    def close(self) -> None:
        self.brokers.close()

    # ---------------------------------------------------------------- brokers' news

    def moved(self) -> None:
        for tp, key in list(self._fetched_at.items()):
            if self.brokers.leader(tp) != ways.node_of(key):
                self.leave(self._lanes[tp])
                self._homeless.add(tp)
        self.tick(time.monotonic())

    def opened(self, node: int, connection: Connection) -> None:
        # By topic id where every topic has one: then a topic that was created again is not mistaken for its old self.
        ids = all(lane.spec.topic_id is not None for lane in self._lanes.values())
        session = FetchSession(
            connection.version("fetch", at_most=None if ids else FIRST_VERSION_WITH_TOPIC_IDS - 1),
            isolation=self._isolation,
            max_wait_ms=LONG_POLL_MS,
            max_bytes=FETCH_BYTES,
        )
        self._pullers[node] = Puller(node, connection, session)
        self.tick(time.monotonic())

    def lost(self, node: int, error: HeliographError) -> None:
        puller = self._pullers.pop(node, None)
        if puller is None:
            return
        self._dry.pop(node, None)
        self.budget.reserve(puller.group, -puller.reserved_bytes)
        for tp in puller.lanes:
            self._fetched_at.pop(tp, None)
            self._homeless.add(tp)

    def received(self, node: int, tag: object, response: object) -> None:
        puller = self._pullers[node]
        puller.outstanding = False
        self.budget.reserve(puller.group, -puller.reserved_bytes)
        puller.reserved_bytes = 0
        if self.stopped:
            return
        try:
            parts = puller.session.take(response)
        except WireError as error:
            self.brokers.drop(node, error)
            return
        fresh: list[tuple[Lane, Fetched]] = []
        for part in parts:
            tp = TopicPartition(part.topic, part.partition)
            lane = puller.lanes.get(tp)
            # Invariant d of a lane: an answer to a question asked before the lane was reset is not for it.
            if lane is None or lane.state is not State.FLOWING or part.offset != lane.fetch_offset:
                continue
            if part.error:
                self._refused(lane, part)
                continue
            self._note(lane, part)
            if part.records:
                fresh.append((lane, part))
        for lane, part in fresh:  # headers only: cheap
            self._take(lane, part)
        prompt = bool(fresh) and sum(len(part.records) for _, part in fresh) <= PROMPT_BYTES
        if not prompt:
            self._pull(puller)
        for lane, _ in fresh:
            self._arrived(lane)
        if prompt:
            self._pass_on()
            self._pull(puller)

    # ---------------------------------------------------------------- inside

    def _take(self, lane: Lane, part: Fetched) -> None:
        tp, queued_bytes = lane.spec.tp, lane.queued_bytes
        committed = self._isolation == "read_committed"
        try:
            chunk = Chunk(
                part.records,
                wanted=lane.fetch_offset,
                aborted=part.aborted,
                read_committed=committed,
                limits=self._limits(lane.max_batch_bytes),
            )
            if chunk.next_offset == lane.fetch_offset:  # not one whole batch: ask for more at a time
                self._wide[tp] = min(self._wide.get(tp, FETCH_PARTITION_BYTES) * 4, 1 << 30)
            if (newest := chunk.newest_timestamp) >= 0:
                lane.age.note(max(time.time_ns() // 1_000_000 - newest, 0), chunk.remaining_records)
            came = chunk.next_offset - lane.fetch_offset
            lane.push(chunk)
            ways.judge(lane, len(part.records), came)
        except BatchError as error:
            lane.park(f"the source's bytes at offset {lane.fetch_offset} cannot be read: {error}")
            self.leave(lane)
            return
        self.budget.take(self._groups[tp], lane.queued_bytes - queued_bytes)
        if lane.queued_bytes >= LANE_BYTES or self._full(lane.history):
            self.leave(lane)
            self._stalled.add(tp)
        else:
            self._place(lane)

    def _full(self, history: bool) -> bool:
        # Only lanes that hold something count, and they are few: those stalled and those in the last response.
        stalled = (self._lanes[tp] for tp in self._stalled)
        return sum(lane.queued_bytes for lane in stalled if lane.history == history) >= TASK_BYTES

    def _place(self, lane: Lane) -> None:
        """Into the session of its way to its leader's broker, if that is known and connected; otherwise it waits,
        homeless. History goes with the live lanes until there is a way for it."""
        tp = lane.spec.tp
        if lane.state is not State.FLOWING:
            self._homeless.discard(tp)
            return
        puller = self._home(lane)
        if puller is None:
            self._homeless.add(tp)
            return
        self._homeless.discard(tp)
        former = self._fetched_at.get(tp)
        if former is not None and former != puller.key and (old := self._pullers.get(former)):
            old.session.drop(tp)
            old.lanes.pop(tp, None)
        self._fetched_at[tp] = puller.key
        puller.lanes[tp] = lane
        self._want(puller, lane)
        if former is not None and former != puller.key:
            self._pull(puller)

    def _home(self, lane: Lane) -> Puller | None:
        """Where it is to be fetched, if that is open; if it is not, it is being asked for."""
        node = self.brokers.leader(lane.spec.tp)
        if node is None:
            self.brokers.refresh()
            return None
        way = 2 * self._groups[lane.spec.tp] + lane.history
        key = ways.key_of(node, way)
        if key not in self._pullers:
            self.brokers.connection(key)
            key = ways.key_of(node, way & ~ways.HISTORY)
        return self._pullers.get(key)

    def _want(self, puller: Puller, lane: Lane) -> None:
        tp = lane.spec.tp
        puller.session.want(
            tp,
            lane.fetch_offset,
            topic_id=lane.spec.topic_id,
            max_bytes=self._wide.get(tp, FETCH_PARTITION_BYTES),
        )

    def _pull_all(self) -> None:
        for puller in list(self._pullers.values()):
            self._pull(puller)

    def _pull(self, puller: Puller) -> None:
        if puller.outstanding or not puller.lanes or self.stopped:
            return
        allowed = self.budget.allowance(puller.group, FETCH_BYTES, time.monotonic(), history=puller.is_history)
        if not allowed.bytes:
            self._dry[puller.key] = allowed.due
            return
        self._dry.pop(puller.key, None)
        waits = any(self._home(self._lanes[tp]) is puller for tp in self._stalled)
        puller.session.max_wait_ms = SHORT_POLL_MS if waits else LONG_POLL_MS
        puller.session.max_bytes = allowed.bytes
        try:
            puller.connection.send(puller.session.request())
        except WireError as error:
            self.brokers.drop(puller.key, error)
            return
        puller.outstanding = True
        if puller.is_history:  # a live one may wait for long, and keeps nothing from anybody meanwhile
            puller.reserved_bytes = allowed.bytes
            self.budget.reserve(puller.group, allowed.bytes)
        self.brokers.watch(puller.key)

    def _note(self, lane: Lane, part: Fetched) -> None:
        committed = self._isolation == "read_committed" and part.last_stable_offset >= 0
        lane.high_watermark = part.last_stable_offset if committed else part.high_watermark
        lane.failures = 0
        lane.read_trouble = ""

    def _refused(self, lane: Lane, part: Fetched) -> None:
        tp = lane.spec.tp
        self.leave(lane)
        if part.error == OFFSET_OUT_OF_RANGE:
            self._out_of_range(lane)
        elif part.error in (UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID) or is_retriable(part.error):
            self._homeless.add(tp)
            self.brokers.refresh()
            error = broker_error(part.error, topic=tp.topic, partition=tp.partition)
            lane.read_trouble = f"{self.brokers.cluster.alias} gives no records: {error}"
        else:
            error = broker_error(part.error, topic=tp.topic, partition=tp.partition)
            lane.park(why := f"the source refuses to be read: {error.message}", error.fix)
            self._warden.denied(lane, error.code, why)

    def _out_of_range(self, lane: Lane) -> None:
        """Before the log's start: retention was faster. Behind its end: the source was truncated or re-created."""
        tp, wanted = lane.spec.tp, lane.fetch_offset

        def ask() -> tuple[int, int]:
            earliest = self.brokers.client.list_offsets([tp], at="earliest")[tp]
            latest = self.brokers.client.list_offsets([tp], at="latest")[tp]
            for end in (earliest, latest):
                if isinstance(end, WireError):
                    raise end
            return int(earliest), int(latest)  # type: ignore[arg-type]  # errors were raised above

        def answered(ends: tuple[int, int] | None, error: object) -> None:
            if ends is None:
                self._homeless.add(tp)
                return
            earliest, latest = ends
            lies_outside = lane.state is State.FLOWING and lane.fetch_offset == wanted
            if lies_outside and (lane.waiting or lane.in_flight):
                # What was fetched goes out first: it may be nowhere else any more.
                self._later[tp] = time.monotonic() + DRAIN_S
            elif lies_outside and wanted > latest:
                self._warden.truncated(lane, latest)
            elif lies_outside and wanted < earliest:
                self._warden.gap(lane, earliest, lambda: self._jump(lane, wanted, earliest))
            else:
                self._homeless.add(tp)

        self.brokers.errands.submit(ask, answered)

    def _jump(self, lane: Lane, wanted: int, earliest: int) -> None:
        if lane.state is State.FLOWING and lane.fetch_offset == wanted:
            lane.jump(earliest)
            self.reopen(lane)
