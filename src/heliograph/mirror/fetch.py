"""The reading side of a task: one incremental fetch session per connection to a source broker, chunks into lanes.

One fetch is outstanding per session. What is live and what is far behind have sessions of their own (`mirror.ways`),
and what a flow or its topics may copy in a second is held here, by not asking (`mirror.budget`). Under a backlog the
next fetch is sent before the answer to the last is worked on, so the broker reads while we patch and append; a few live
records are passed on first. A lane that holds enough is taken out of the session until it has drained.

Memory (`mirror.memory`) is checked before a broker is asked. Invariant: the lanes of a task hold at most TASK_BYTES for
live partitions and TASK_BYTES for history (twice that where spokes share it), plus one batch for each fetch under way.
The more partitions have a backlog, the less is fetched of each at a time, so that every partition has its turn.

What is fetched is a source partition; where it has several lanes, one fetch is for all of them (`mirror.strands`): it
goes one way, and what it brings counts once.
"""

from __future__ import annotations

import selectors
import time
from collections import Counter
from collections.abc import Callable, Iterable

import structlog

from heliograph.batch import Limits, header, ready
from heliograph.batch.sharing import MOST_BYTES
from heliograph.errors import BatchError, CorruptBatch, HeliographError, WireError
from heliograph.mirror import compiler, ways
from heliograph.mirror.brokers import Brokers
from heliograph.mirror.budget import Budget
from heliograph.mirror.events import (
    Arrived,
    Denied,
    Events,
    Gap,
    Jump,
    LostTrack,
    Parked,
    StrangeRecords,
    Truncated,
    generations,
)
from heliograph.mirror.lane import Lane, State
from heliograph.mirror.memory import LEAST_ROOM_BYTES, Memory
from heliograph.mirror.pace import backoff_s
from heliograph.mirror.puller import Puller
from heliograph.mirror.strands import Brought, Bundle, bundles
from heliograph.mirror.turns import party_of, shares
from heliograph.types import Cluster, Isolation, TopicPartition
from heliograph.wire import Connection, Fetched, FetchSession, broker_error, is_retriable
from heliograph.wire.codes import INCONSISTENT_TOPIC_ID, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_ID
from heliograph.wire.fetched import FIRST_VERSION_WITH_TOPIC_IDS

log = structlog.get_logger()

# One response. Large enough to fill a 100 ms link (8 MiB per 100 ms is 80 MB/s, and there is one per broker), small
# enough that the bytes are still warm when they are patched and sent.
FETCH_BYTES = 8 << 20
FETCH_PARTITION_BYTES = 4 << 20

# A lane stops being fetched above this and starts again below half of it: about a second of a fast partition's traffic
# would be wasted memory, less than a response or two would leave the appender idle between fetches.
LANE_BYTES = 8 << 20

# Also above this many chunks: those of a live partition are small, and each costs more than its bytes.
LANE_CHUNKS = 256

# All lanes of a task together, history and live each. A thousand lanes that all have a backlog share it, of spokes each
# by its weight: who holds less than its share goes on where others have filled theirs (at most twice this altogether).
TASK_BYTES = 64 << 20

# Fetched of a partition at a time, at least, however many have a backlog and share TASK_BYTES. Smaller reads would cost
# the source's broker more than their bytes do.
LEAST_PARTITION_BYTES = 256 << 10

# How long a response is divided for: what a task's other partitions, its reports and its driver wait meanwhile. Where a
# batch holds one record that is a few thousand batches, and less is fetched of such a partition at a time.
DIVIDE_S = 0.2
LEAST_BITE_BYTES = 32 << 10

SHORT_S = 0.01  # between two checks whether memory is free again
PROBE_BYTES = 16 << 10  # fetched of a partition whose target took nothing: enough to see whether it does now
LOOK_EVERY_S = 1.0  # between two checks for lanes that hold memory and do not move

# A batch whose length field says more is corrupt: a response that held it would exceed `connection.FRAME_LIMIT_BYTES`.
MOST_BATCH_BYTES = 128 << 20
INCOMPLETE = 2  # responses in a row without a whole batch before the batch counts as corrupt

LONG_POLL_MS = 500
MOST_UNKNOWN = 1_000  # targets that are asked for at a time: the others when the anchor has come to them
COMPILED_S = 0.2  # between two looks whether the kernels are loaded
DRAIN_S = 0.1  # between two looks at a lane whose next records are gone, while it still holds some
# While a lane is stalled the others' fetch waits no longer than this. There is one fetch at a time, and the lane will
# be back in a moment: behind idle partitions' long poll it would get 8 MiB every half second.
SHORT_POLL_MS = 5

# An answer so small is a live partition's: what it brought goes out first, the next fetch behind it. With more, the
# broker had better read on while we patch.
PROMPT_BYTES = 64 << 10


class Source:
    def __init__(
        self,
        cluster: Cluster,
        lanes: Iterable[Lane],
        selector: selectors.BaseSelector,
        *,
        isolation: Isolation,
        limits: Callable[[int], Limits],
        events: Events,
        budget: Budget | None = None,
    ) -> None:
        self._bundles = bundles(lanes)
        self._events = events
        self.budget = budget or Budget()
        self._memory = Memory(lane for bundle in self._bundles.values() for lane in bundle.lanes)
        self._room = shares({party_of(one.lanes[0].spec) for one in self._bundles.values()}, TASK_BYTES)
        self._groups = {tp: self.budget.group_of(tp.topic) for tp in self._bundles}
        self._isolation = isolation
        self._limits = limits
        self._pullers: dict[int, Puller] = {}
        self._fetched_at: dict[TopicPartition, int] = {}  # those in a session -> its key
        self._dry: dict[int, float] = {}  # sessions that have used up their budget -> when there is some again
        self._homeless: set[TopicPartition] = set(self._bundles)  # those without a session that should have one
        self._later: dict[TopicPartition, float] = {}  # when these become homeless
        self._uncompiled: set[TopicPartition] = set()  # those that are not fetched until the kernels are loaded
        self._stalled: set[Lane] = set()  # lanes that hold enough for now
        self._reached: dict[Lane, int] = {}  # where they stood at the last look
        self._release_at = 0.0  # when those of them that hold nothing are looked at
        self._wide: dict[TopicPartition, int] = {}  # those whose next batch needs more than the usual bytes
        self._incomplete: Counter[TopicPartition] = Counter()  # answers in a row without a whole batch
        self._behind: set[TopicPartition] = set()  # those whose last answer did not reach the end
        self._partition_bytes = FETCH_PARTITION_BYTES
        self._passed_over: set[TopicPartition] = set()  # their part of a response was dropped: too much was unpacked
        self._short: set[int] = set()  # sessions that wait for memory
        self._short_until = 0.0
        self._probed: set[Lane] = set()  # lanes that gave up what they held, until the target takes a batch of them
        self._look_at = 0.0  # when to check for lanes that do not move
        self.stopped = False
        for bundle in self._bundles.values():
            bundle.reading.update(dict.fromkeys(bundle.lanes))
        self.brokers = Brokers(cluster, {tp.topic for tp in self._bundles}, selector, self)
        self.brokers.refresh()

    # ---------------------------------------------------------------- the loop calls

    @property
    def due(self) -> float:
        """When `tick` has something to do, if nothing happens before."""
        dry = min(self._dry.values(), default=float("inf"))
        return min(dry, self._short_until) if self._short else dry

    def tick(self, now: float) -> None:
        self.brokers.tick(now)
        if self._stalled and now >= self._release_at:
            self._release_at = now + DRAIN_S
            self._memory.recount()
            self._release_drained()
            self._release_empty()
        if self._short and now >= self._short_until:
            self._pull_short(now)
        for key in [key for key, at in self._dry.items() if now >= at]:
            del self._dry[key]
            if key in self._pullers:
                self._pull(self._pullers[key])
        for tp in [tp for tp, at in self._later.items() if now >= at]:
            del self._later[tp]
            self._homeless.add(tp)
        if self._homeless and not self.stopped:
            for tp in list(self._homeless):
                self._place(self._bundles[tp])
            self._pull_all()

    def _pull_short(self, now: float) -> None:
        """Ask again for the sessions that waited for memory."""
        self._short_until = now + SHORT_S
        self._memory.recount()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            for history in (False, True):
                self._give_up(self._memory.stuck(TASK_BYTES, now, history=history))
        waiting, self._short = self._short, set()
        for key in waiting:
            if key in self._pullers:
                self._pull(self._pullers[key])

    def _give_up(self, lanes: list[Lane]) -> None:
        """Drop what they have queued, so that other partitions can use the memory; it is fetched again later. Behind
        the probe where the position does not have what it passed over."""
        if lanes:
            log.info(
                "dropping queued records of partitions whose target takes none; they are fetched again later",
                partitions=[f"{lane.spec.tp} -> {lane.spec.remote}" for lane in lanes[:5]], count=len(lanes),
                bytes=sum(lane.queued_bytes for lane in lanes),
            )  # fmt: skip
        for lane in lanes:
            if not lane.can_discard:
                lane.lose_track()
                self._memory.note(lane)
                self._events.append(LostTrack(lane, lane.generation))
                continue
            lane.discard()
            self._probed.add(lane)
            self._memory.note(lane)
            if lane in self._bundles[lane.spec.tp].reading:
                self.leave(lane)
                self._stalled.add(lane)

    def _release_drained(self) -> None:
        """Reopen lanes that drained while the task's memory was full."""
        for lane in [lane for lane in self._stalled if lane.queued_bytes and self._has_drained(lane)]:
            if not self.stopped:
                self.reopen(lane)

    def _has_drained(self, lane: Lane) -> bool:
        low = lane.queued_bytes < LANE_BYTES // 2 and len(lane.chunks) < LANE_CHUNKS // 2
        return low and not self._full(lane)

    def _release_empty(self) -> None:
        """A strand may be stalled for the sake of all and hold nothing itself: it will never drain. It goes on when
        there is room for all, or when those beside it have drained; one of them that does not move holds up nobody."""
        before, self._reached = self._reached, {lane: lane.acked.next_offset for lane in self._stalled}
        empty = [lane for lane in self._stalled if not lane.queued_bytes]
        alike = {(lane.history, party_of(lane.spec)): lane for lane in empty}
        full = {kind: self._full(lane) for kind, lane in alike.items()}
        for lane in empty:
            moving = [
                one
                for one in self._bundles[lane.spec.tp].lanes
                if one not in before or one.acked.next_offset > before[one]
            ]
            drained = all(one.queued_bytes < LANE_BYTES // 2 for one in moving)
            if not self.stopped and (drained or not full[lane.history, party_of(lane.spec)]):
                self.reopen(lane)

    def reopen(self, lane: Lane) -> None:
        """The lane's place changed (rule D answered) or it has room again: fetch it from `fetch_offset`."""
        self._stalled.discard(lane)
        bundle = self._bundles[lane.spec.tp]
        bundle.reading[lane] = None
        self._place(bundle)
        key = self._fetched_at.get(bundle.tp)
        if key is not None:
            self._pull(self._pullers[key])

    def leave(self, lane: Lane) -> None:
        """Stop fetching it (parked, or lost track)."""
        bundle, tp = self._bundles[lane.spec.tp], lane.spec.tp
        self._stalled.discard(lane)
        bundle.reading.pop(lane, None)
        if not bundle.reading:
            self._homeless.discard(tp)
            self._later.pop(tp, None)
            self._uncompiled.discard(tp)
            self._unseat(bundle)
        elif (key := self._fetched_at.get(tp)) is not None:
            self._want(self._pullers[key], bundle)  # the others may be further

    def place_others(self, lane: Lane) -> None:
        """The lanes beside this one are fetched on, whatever became of it: a partition whose offset was out of range
        is in no session."""
        tp = lane.spec.tp
        if self._bundles[tp].reading and tp not in self._fetched_at and tp not in self._later:
            self._homeless.add(tp)

    def is_stalled(self, lane: Lane) -> bool:
        """Whether it holds enough, and is not fetched until it has drained."""
        return lane in self._stalled

    def throttled_ms(self, lane: Lane) -> int:
        """How long its broker makes us wait for a quota's sake, by the last answer."""
        puller = self._pullers.get(self._fetched_at.get(lane.spec.tp, -1))
        return puller.session.throttle_ms if puller else 0

    @property
    def is_throttled(self) -> bool:
        """Whether any broker makes us wait for a quota's sake."""
        return any(puller.session.throttle_ms for puller in self._pullers.values())

    def key_of(self, lane: Lane) -> int | None:
        """The connection it is read by, or would be; None: nobody leads it."""
        if (key := self._fetched_at.get(lane.spec.tp)) is not None:
            return key
        home = self._home(lane.spec.tp, history=lane.history)
        return self.brokers.leader(lane.spec.tp) if home is None else home.key

    def held_back(self, lane: Lane) -> str:
        """In words, if it is not fetched for the sake of a cap, or until there are kernels to divide it."""
        tp = lane.spec.tp
        if tp in self._uncompiled:
            return compiler.of_process().waiting
        wants = lane in self._bundles[tp].reading and lane.high_watermark > lane.fetch_offset
        return self.budget.words(self._groups[tp]) if wants and self._fetched_at.get(tp) in self._dry else ""

    def drained(self, lane: Lane) -> None:
        """The appender took something: has a stalled lane room again?"""
        self._memory.note(lane)
        self._probed.discard(lane)
        if not self._stalled:
            return
        if lane in self._stalled and self._has_drained(lane):
            self.reopen(lane)
        self._release_at = min(self._release_at, time.monotonic() + SHORT_S)

    def stop(self) -> None:
        """No more fetching; what is outstanding is not waited for, and not taken when it comes."""
        self.stopped = True

    def close(self) -> None:
        self.brokers.close()

    # ---------------------------------------------------------------- brokers' news

    def moved(self) -> None:
        for tp, key in list(self._fetched_at.items()):
            if self.brokers.leader(tp) != ways.node_of(key):
                self._unseat(self._bundles[tp])
                self._homeless.add(tp)
        self.tick(time.monotonic())

    def opened(self, node: int, connection: Connection) -> None:
        # By topic id where every topic has one: then a topic that was created again is not mistaken for its old self.
        ids = all(bundle.lanes[0].spec.topic_id is not None for bundle in self._bundles.values())
        session = FetchSession(
            connection.version("fetch", at_most=None if ids else FIRST_VERSION_WITH_TOPIC_IDS - 1),
            isolation=self._isolation,
            max_wait_ms=LONG_POLL_MS,
            max_bytes=FETCH_BYTES,
        )
        self._pullers[node] = puller = Puller(node, connection, session)
        if puller.is_history:  # until now these went with the live ones, and filled their memory
            for tp in [tp for tp in self._fetched_at if self._bundles[tp].history]:
                self._place(self._bundles[tp])
        self.tick(time.monotonic())

    def lost(self, node: int, error: HeliographError) -> None:
        puller = self._pullers.pop(node, None)
        if puller is None:
            return
        self._dry.pop(node, None)
        self._short.discard(node)
        self._unreserve(puller)
        for tp in puller.bundles:
            self._fetched_at.pop(tp, None)
            self._homeless.add(tp)

    def received(self, node: int, tag: object, response: object) -> None:
        puller = self._pullers[node]
        puller.outstanding = False
        self._unreserve(puller)
        if self.stopped:
            return
        try:
            parts = puller.session.take(response)
        except WireError as error:
            self.brokers.drop(node, error)
            return
        answered: list[tuple[Bundle, list[Lane]]] = []
        fresh: list[tuple[Bundle, list[Lane], Fetched]] = []
        for part in parts:
            bundle = puller.bundles.get(TopicPartition(part.topic, part.partition))
            takers = bundle.takers(part.offset) if bundle is not None else []
            if bundle is None or not takers:
                continue
            if part.error:
                self._refused(bundle, part)
                continue
            bundle.read_failures = 0
            self._note(takers, part)
            answered.append((bundle, takers))
            if part.records:
                fresh.append((bundle, takers, part))
        if self._passed_over:
            fresh.sort(key=lambda one: one[0].tp not in self._passed_over)  # so that none is dropped twice in a row
        made_bytes, until = 0, time.monotonic() + DIVIDE_S
        for bundle, takers, part in fresh:
            # Headers only, unless it is divided: cheap.
            if bundle.divides and (made_bytes >= MOST_BYTES or time.monotonic() >= until):
                self._passed_over.add(bundle.tp)
                continue
            self._passed_over.discard(bundle.tp)
            made_bytes += self._take(bundle, takers, part, MOST_BYTES - made_bytes, until)
        came_bytes = sum(len(part.records) for *_, part in fresh)
        puller.unpacked(came_bytes, made_bytes, is_small=came_bytes <= PROMPT_BYTES)
        self._share_memory(answered)
        prompt = bool(fresh) and came_bytes <= PROMPT_BYTES
        if not prompt:
            self._pull(puller)
        if fresh:
            lanes = tuple(lane for _, takers, _ in fresh for lane in takers)
            self._events.append(Arrived(lanes, pull_after=node if prompt else None))

    def pull(self, key: int) -> None:
        """The next fetch of a session, if it is still there."""
        if key in self._pullers:
            self._pull(self._pullers[key])

    # ---------------------------------------------------------------- inside

    def _unreserve(self, puller: Puller) -> None:
        self.budget.reserve(puller.group, -puller.reserved_bytes)
        self._memory.reserve(-puller.expected_bytes, history=puller.is_history)
        puller.reserved_bytes = puller.expected_bytes = 0

    def _share_memory(self, answered: list[tuple[Bundle, list[Lane]]]) -> None:
        """After a response: fetch as much of a partition at a time as lets all that have a backlog share the memory."""
        for bundle, takers in answered:
            if any(lane.high_watermark > lane.fetch_offset for lane in takers):
                self._behind.add(bundle.tp)
            else:
                self._behind.discard(bundle.tp)
        share = TASK_BYTES // max(len(self._behind), 1)
        share = 1 << max(share.bit_length() - 1, 0)  # a power of two: each change resends all partitions
        share = min(max(share, LEAST_PARTITION_BYTES), FETCH_PARTITION_BYTES)
        if share != self._partition_bytes:
            self._partition_bytes = share
            for tp, key in self._fetched_at.items():
                self._want(self._pullers[key], self._bundles[tp])

    def _take(self, bundle: Bundle, takers: list[Lane], part: Fetched, most_bytes: int, until: float) -> int:
        """Push what a response holds for one partition into its lanes. Returns how many bytes were unpacked for it."""
        tp, held_bytes = bundle.tp, sum(lane.queued_bytes for lane in takers)
        committed = self._isolation == "read_committed"
        try:
            brought = bundle.brought(
                takers, part, self._limits, read_committed=committed, most_bytes=most_bytes, until=until
            )
            self._fit(bundle, part, brought)
            moved = [(lane, chunk) for lane, chunk in brought.chunks if chunk.next_offset > lane.fetch_offset]
            if moved or brought.strange or brought.unknown:
                self._incomplete.pop(tp, None)
            elif any(lane.fetch_offset == part.offset for lane in takers):  # the others may be further than it reaches
                self._widen(bundle, part)
            now_ms = time.time_ns() // 1_000_000
            for lane, chunk in moved:
                if (newest := chunk.newest_timestamp) >= 0:
                    lane.age.note(max(now_ms - newest, 0) + lane.aged_ms, chunk.remaining_records)
                lane.push(chunk)
        except BatchError as error:
            offset = error.context.get("offset", part.offset)
            for lane in takers:
                lane.park(f"the source's bytes of {tp} at offset {offset} cannot be read: {error.message}", error.fix)
                self.leave(lane)
                self._events.append(Parked(lane, lane.generation))
                self._memory.note(lane)
            return 0
        if brought.strange or brought.unknown:
            self._nobodys(bundle, brought)
        # What rule D skips or a strand has seen is free; what strands share is unpacked, and counts as it came.
        queued_bytes = sum(lane.queued_bytes for lane in takers) - held_bytes
        self.budget.take(self._groups[tp], min(queued_bytes, brought.bytes))
        came = max((chunk.next_offset for _, chunk in moved), default=part.offset) - part.offset
        for lane in takers:
            ways.judge(lane, len(part.records), came)
            self._memory.note(lane)
            waits = lane not in bundle.reading  # before a record that is nobody's
            enough = lane.queued_bytes >= LANE_BYTES or len(lane.chunks) >= LANE_CHUNKS or lane in self._probed
            if not waits and (enough or self._full(lane)):
                self.leave(lane)
                self._stalled.add(lane)
        if bundle.reading:
            self._place(bundle)
        return brought.made

    def _fit(self, bundle: Bundle, part: Fetched, brought: Brought) -> None:
        """What there was no time for was fetched in vain: less is asked for, and twice as much again when it is done in
        time."""
        if brought.is_late:
            bundle.bite_bytes = max(brought.bytes, LEAST_BITE_BYTES)
        elif bundle.bite_bytes and len(part.records) > bundle.bite_bytes // 2:
            bundle.bite_bytes = 2 * bundle.bite_bytes if bundle.bite_bytes < FETCH_PARTITION_BYTES else 0

    def _widen(self, bundle: Bundle, part: Fetched) -> None:
        """A response without one whole batch. The partition is asked once more, with max_bytes for the claimed size.
        Brokers return a first batch whole whatever its size (KIP-74), so a second such response proves a wrong length
        field: CorruptBatch. Then the partition is parked and tried again like every parked one, not at once."""
        tp, claimed = bundle.tp, header.claimed_bytes(part.records)
        self._incomplete[tp] += 1
        if claimed > MOST_BATCH_BYTES or self._incomplete[tp] >= INCOMPLETE:
            del self._incomplete[tp]
            raise CorruptBatch(
                f"The record batch at source offset {part.offset} of {tp} is corrupt: its length field says {claimed:,}"
                f" bytes, the broker returned {len(part.records):,}",
                fix="Check the source broker's disk with kafka-dump-log; `heliograph offsets set` steps over the batch",
                offset=part.offset,
            )
        self._wide[tp] = max(claimed, FETCH_PARTITION_BYTES)

    def _nobodys(self, bundle: Bundle, brought: Brought) -> None:
        """Of a shared topic, records that go nowhere: the anchor waits before them, the others go on."""
        anchor = bundle.anchor
        if anchor is None:
            return
        before = len(anchor.unknown)
        for origin, offset in brought.unknown.items():
            if len(anchor.unknown) < MOST_UNKNOWN:
                anchor.unknown.setdefault(origin, offset)
        if len(anchor.unknown) > before:
            named = ", ".join(map(str, sorted(anchor.unknown)[:5]))
            anchor.read_trouble = f"records of {named} wait until there is a topic for them"
        if anchor not in bundle.reading:
            return
        waits = any(at <= anchor.fetch_offset for at in brought.unknown.values())
        if brought.strange and brought.strange[0].record.offset <= anchor.fetch_offset:
            self.leave(anchor)
            self._events.append(StrangeRecords(anchor, anchor.generation, brought.strange))
        elif waits:
            self.leave(anchor)

    def set_aside(self, anchor: Lane, offsets: frozenset[int]) -> None:
        """They are written down: the anchor may pass them."""
        self._bundles[anchor.spec.tp].aside |= offsets
        if anchor.state is State.FLOWING:
            self.reopen(anchor)

    def _full(self, lane: Lane) -> bool:
        if self._memory.held(history=lane.history) < TASK_BYTES:
            return False
        party = party_of(lane.spec).name
        return self._memory.held_by(party, history=lane.history) >= self._room[party]

    def _place(self, bundle: Bundle) -> None:
        """Into the session of its way to its leader's broker, if that is known and connected; otherwise it waits,
        homeless. History goes with what is live until there is a way for it."""
        tp = bundle.tp
        for lane in [lane for lane in bundle.reading if lane.state is not State.FLOWING]:
            del bundle.reading[lane]
        if not bundle.reading:
            self._homeless.discard(tp)
            self._unseat(bundle)
            return
        if bundle.divides and not ready():
            self._homeless.discard(tp)
            self._uncompiled.add(tp)
            self._later[tp] = time.monotonic() + COMPILED_S
            return
        self._uncompiled.discard(tp)
        puller = self._home(tp, history=bundle.history)
        if puller is None:
            self._homeless.add(tp)
            return
        self._homeless.discard(tp)
        changes = self._fetched_at.get(tp, puller.key) != puller.key
        if changes:
            self._unseat(bundle)
        self._fetched_at[tp] = puller.key
        self._want(puller, bundle)
        if changes:
            self._pull(puller)

    def _home(self, tp: TopicPartition, *, history: bool) -> Puller | None:
        """Where it is to be fetched, if that is open; if it is not, it is being asked for."""
        node = self.brokers.leader(tp)
        if node is None:
            self.brokers.refresh()
            return None
        way = 2 * self._groups[tp] + history
        key = ways.key_of(node, way)
        if key not in self._pullers:
            self.brokers.connection(key)
            key = ways.key_of(node, way & ~ways.HISTORY)
        return self._pullers.get(key)

    def _unseat(self, bundle: Bundle) -> None:
        """Out of the session it is in, if it is in one."""
        key = self._fetched_at.pop(bundle.tp, None)
        if key is not None and (puller := self._pullers.get(key)):
            puller.unseat(bundle.tp)

    def _want(self, puller: Puller, bundle: Bundle) -> None:
        usual = PROBE_BYTES if self._probed and not self._probed.isdisjoint(bundle.reading) else self._partition_bytes
        usual = min(usual, bundle.bite_bytes or usual)
        puller.seat(bundle, self._wide.get(bundle.tp, usual))

    def _pull_all(self) -> None:
        for puller in list(self._pullers.values()):
            self._pull(puller)

    def _pull(self, puller: Puller) -> None:
        if puller.outstanding or not puller.bundles or self.stopped:
            return
        room = self._room_for(puller)
        if room < LEAST_ROOM_BYTES:
            self._short.add(puller.key)
            return
        most = min(FETCH_BYTES, int(room / puller.expansion))
        allowed = self.budget.allowance(puller.group, most, time.monotonic(), history=puller.is_history)
        if not allowed.bytes:
            self._dry[puller.key] = allowed.due
            return
        self._dry.pop(puller.key, None)
        waits = any(self._home(lane.spec.tp, history=lane.history) is puller for lane in self._stalled)
        try:
            most = max(allowed.bytes, self._widest(puller))
            puller.ask(max_wait_ms=SHORT_POLL_MS if waits else LONG_POLL_MS, max_bytes=most)
        except WireError as error:
            self.brokers.drop(puller.key, error)
            return
        if puller.is_history:  # a live one may wait for long, and keeps nothing from anybody meanwhile
            puller.reserved_bytes = allowed.bytes
            self.budget.reserve(puller.group, allowed.bytes)
        puller.expected_bytes = int(allowed.bytes * puller.expansion)
        self._memory.reserve(puller.expected_bytes, history=puller.is_history)
        self.brokers.watch(puller.key)

    def _room_for(self, puller: Puller) -> int:
        """Bytes a session may ask for: what is left of its pool, but no more than its share of half of it, so that the
        reservations of long polls do not block each other. Where spokes share the task the pool is twice as large: one
        spoke that has filled its share must not block the others (`_full`)."""
        history = puller.is_history
        pool = TASK_BYTES * (2 if len(self._room) > 1 else 1)
        alike = sum(one.is_history == history for one in self._pullers.values())
        share = max(pool // (2 * alike), LEAST_ROOM_BYTES)
        return min(self._memory.room(pool, history=history), share)

    def _widest(self, puller: Puller) -> int:
        """The max_bytes that a response needs for batches that were cut off in the last one."""
        if not self._incomplete:
            return 0
        return max((self._wide.get(tp, 0) for tp in self._incomplete if tp in puller.bundles), default=0)

    def _note(self, lanes: Iterable[Lane], part: Fetched) -> None:
        committed = self._isolation == "read_committed" and part.last_stable_offset >= 0
        for lane in lanes:
            lane.high_watermark = part.last_stable_offset if committed else part.high_watermark
            lane.read_trouble = ""

    def _refused(self, bundle: Bundle, part: Fetched) -> None:
        tp = bundle.tp
        self._unseat(bundle)
        if part.error == OFFSET_OUT_OF_RANGE:
            self._out_of_range(bundle)
            return
        error = broker_error(part.error, topic=tp.topic, partition=tp.partition)
        lanes = list(bundle.reading)
        if part.error in (UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID) or is_retriable(part.error):
            bundle.read_failures += 1
            if bundle.read_failures > 1:  # the first time it is asked again at once: its leader has changed
                self._later[tp] = time.monotonic() + backoff_s(bundle.read_failures - 1)
            else:
                self._homeless.add(tp)
            self.brokers.refresh()
            for lane in lanes:
                lane.read_trouble = f"{self.brokers.cluster.alias} gives no records: {error}"
            return
        why = f"the source refuses to be read: {error.message}"
        for lane in lanes:
            self.leave(lane)
            lane.park(why, error.fix)
            self._events.append(Parked(lane, lane.generation))
        self._events.append(Denied(lanes[0], error.code, why))  # one partition of the source, one incident

    def _out_of_range(self, bundle: Bundle) -> None:
        """Before the log's start: retention was faster. Behind its end: the source was truncated or re-created."""
        tp, wanted = bundle.tp, bundle.fetch_offset
        asked = generations(list(bundle.reading))

        def ask() -> tuple[int, int]:
            earliest = self.brokers.client.list_offsets([tp], at="earliest")[tp]
            latest = self.brokers.client.list_offsets([tp], at="latest")[tp]
            for end in (earliest, latest):
                if isinstance(end, WireError):
                    raise end
            return int(earliest), int(latest)  # type: ignore[arg-type]  # errors were raised above

        def answered(ends: tuple[int, int] | None, error: object) -> None:
            lanes = [lane for lane, generation in asked if lane.generation == generation and lane in bundle.reading]
            lies_outside = bool(lanes) and bundle.fetch_offset == wanted
            if ends is None or not lies_outside:
                self._homeless.add(tp)
                return
            earliest, latest = ends
            if any(lane.waiting or lane.in_flight for lane in lanes):
                # What was fetched goes out first: it may be nowhere else any more.
                self._later[tp] = time.monotonic() + DRAIN_S
            elif wanted > latest:
                for lane in lanes:
                    self._events.append(Truncated(lane, lane.generation, latest))
            elif wanted < earliest:
                behind = [lane for lane in lanes if lane.fetch_offset < earliest]
                self._events.append(Gap(generations(behind), earliest))
            else:
                self._homeless.add(tp)

        self.brokers.errands.submit(ask, answered)

    def jump(self, jump: Jump, first: Lane) -> None:
        """All that stood before what retention left, and have not moved on since. What is lost of the source is counted
        once, by the first."""
        for lane, generation in jump.behind:
            if lane.generation == generation and lane.fetch_offset < jump.earliest:
                lane.jump(jump.earliest, counted=lane is first)
                self.reopen(lane)
