"""The writing side of a task: batches of many lanes in one produce request, answers back to their lanes.

A produce request takes one batch per partition, and a broker works on one request of a connection at a time; so a
request carries a batch of every lane that has one ready, and several requests are on their way so that the broker never
waits for us. What follows from an answer is an event for the task's loop. Positions go the same way, as records to the
positions topic. Lanes far behind have a connection of their own (`mirror.ways`): what is live does not wait for answers
to history.

Invariants:
  a. Batches of one lane travel on one connection in the order of their sequences; a lane changes it with no answer due,
     also when its leader moves. A new leader gets one batch until it has acknowledged one (invariant c of
     `mirror.lane`): its memory of producer ids is its own.
  b. A request holds at most one batch of a partition, also where several lanes write to it (a topic that is divided).
  c. A lane's answer is used only while the lane still holds the batch it is about. Otherwise it only says that one
     answer less is due (`Lane.heard`).
  d. A lane that was left out of a full request is before those in it next time; of several spokes each has its share of
     requests (`mirror.turns`), so what one floods waits for itself.
"""

from __future__ import annotations

import selectors
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from heliograph.batch import Chunk
from heliograph.batch.loading import ready
from heliograph.errors import BatchError, ConnectionLost, HeliographError, KernelsMissing, RecordTooLarge, WireError
from heliograph.mirror import compiler, ways
from heliograph.mirror.brokers import Brokers
from heliograph.mirror.events import AllAnswered, Appended, DiskFailed, Events, LostTrack, OverLimit, Parked
from heliograph.mirror.lane import Lane, Sent, State, Verdict
from heliograph.mirror.ledger import IN_FLIGHT
from heliograph.mirror.pace import Pace
from heliograph.mirror.timing import Tellings
from heliograph.mirror.turns import Party, Turns, party_of
from heliograph.types import Cluster, TopicPartition
from heliograph.wire import Connection, Produced, broker_error, produce_request, produced
from heliograph.wire.codes import KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION

# Requests on their way per broker. Rule F allows five batches a lane; with all lanes in every request that is five.
REQUESTS_IN_FLIGHT = 5


@dataclass(slots=True)
class Note:
    """A record batch that is not a lane's: positions, or what the offset map learns."""

    tp: TopicPartition
    data: bytes
    done: Callable[[bool], None]


@dataclass(slots=True, eq=False)
class Request:
    sent_at: float
    batches: list[tuple[Lane, Sent]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    size: int = 0

    def parts(self) -> list[tuple[str, int, bytes | bytearray | memoryview]]:
        parts: list[tuple[str, int, bytes | bytearray | memoryview]]
        parts = [(*lane.spec.remote, sent.piece.data) for lane, sent in self.batches]
        parts += [(*note.tp, note.data) for note in self.notes]
        return parts


@dataclass(slots=True)
class Pusher:
    """A way to a target broker."""

    key: int
    connection: Connection
    requests: deque[Request] = field(default_factory=deque)  # on their way; answers come in the same order
    turns: Turns = field(default_factory=Turns)


class Target:
    def __init__(
        self,
        cluster: Cluster,
        lanes: Iterable[Lane],
        notes_topics: set[str],
        selector: selectors.BaseSelector,
        *,
        events: Events,
        awake: Callable[[], bool] = lambda: True,
    ) -> None:
        """`awake`: whether the process has run without a long pause since the loop last looked, and its driver is
        there. If not, nothing is sent: another process may have taken over (`mirror.freeze`, `flow.leadership`)."""
        self._lanes = list(lanes)
        counted = Counter(lane.spec.remote for lane in self._lanes)
        self._shared = {remote for remote, times in counted.items() if times > 1}  # several lanes write to these
        parties = {lane: party_of(lane.spec) for lane in self._lanes}
        self._parties = parties if len(set(parties.values())) > 1 else {}  # one alone shares with nobody
        self._events, self._awake = events, awake
        self._pushers: dict[int, Pusher] = {}
        self._active: dict[Lane, None] = {}  # lanes with something to send, in turn
        self._ways: dict[Lane, int] = {}  # which way a lane's batches went last; live: not in here
        self._nodes: dict[Lane, int] = {}  # to which broker
        self._notes: list[Note] = []
        self.pace = Pace()
        self.latencies = Tellings()
        remotes = {lane.spec.remote.topic for lane in self._lanes if not lane.spec.absent}
        self.brokers = Brokers(cluster, remotes | notes_topics, selector, self)
        self.brokers.refresh()

    # ---------------------------------------------------------------- the loop calls

    def wake(self, lane: Lane) -> None:
        """The lane has something to send, or may send again."""
        self._active[lane] = None

    def note(self, note: Note) -> None:
        self._notes.append(note)

    def push(self, now: float) -> None:
        """Send what can be sent."""
        by_key: dict[int, list[Lane]] = {}
        for lane in list(self._active):
            node = self.brokers.leader(lane.spec.remote)
            if node is None:
                self.brokers.refresh()
            elif (key := self._choose(lane, node)) is not None and self.brokers.connection(key) is not None:
                by_key.setdefault(key, []).append(lane)
        notes: dict[int, list[Note]] = {}
        for note in self._notes:
            node = self.brokers.leader(note.tp)
            if node is None:
                self.brokers.refresh()
            elif self.brokers.connection(node) is not None:
                notes.setdefault(node, []).append(note)
        for key in sorted({*by_key, *notes}):  # live before history
            self._push(self._pushers[key], by_key.get(key, []), notes.get(key, []), now)

    def _choose(self, lane: Lane, node: int) -> int | None:
        """The connection for its next batch; None: not before the answers on another one are in (invariant a)."""
        way = self._ways.get(lane, ways.LIVE)
        history = lane.history and self.brokers.connection(ways.key_of(node, ways.HISTORY)) is not None
        wanted = ways.HISTORY if history else ways.LIVE
        has_moved = self._nodes.get(lane, node) != node
        if lane.in_flight and (has_moved or way != wanted):
            return None
        if has_moved:
            lane.proven = False
        self._nodes[lane], self._ways[lane] = node, wanted
        return ways.key_of(node, wanted)

    def key_of(self, lane: Lane) -> int | None:
        """The connection its batches go by; None: nobody leads it."""
        node = self.brokers.leader(lane.spec.remote)
        return None if node is None else ways.key_of(node, self._ways.get(lane, ways.LIVE))

    def tick(self, now: float) -> None:
        self.brokers.tick(now)

    def drop_unsent(self) -> None:
        """After a pause of the process: what sockets have not taken was decided before it, positions among it. Their
        connections end, which is the only way to take it back."""
        for key, pusher in list(self._pushers.items()):
            if pusher.connection.wants_write:
                self.brokers.drop(key, ConnectionLost("this process stood still while a request was being sent"))

    @property
    def outstanding(self) -> int:
        return sum(len(p.requests) for p in self._pushers.values())

    @property
    def notes_waiting(self) -> int:
        return len(self._notes)

    def close(self) -> None:
        self.brokers.close()

    # ---------------------------------------------------------------- sending

    def _push(self, pusher: Pusher, lanes: list[Lane], notes: list[Note], now: float) -> None:
        most = self.pace.request_bytes
        while len(pusher.requests) < REQUESTS_IN_FLIGHT and self._awake():
            request = Request(now)
            if self._parties:
                taken = self._fill_by_turns(pusher.turns, request, lanes, most)
            else:
                taken = self._fill(request, lanes, most)
            self._add_notes(request, notes)
            if not request.batches and not request.notes:
                break
            if request.size >= most or taken:
                lanes = self._rotated(lanes, request)
            pusher.requests.append(request)
            try:
                pusher.connection.send(produce_request(pusher.connection.version("produce"), request.parts()))
            except WireError as error:
                self.brokers.drop(pusher.key, error)
                return
            self.brokers.watch(pusher.key)
        for lane in lanes:
            if lane.idle:
                self._active.pop(lane, None)

    def _fill(
        self, request: Request, lanes: Iterable[Lane], most: int, taken: set[TopicPartition] | None = None
    ) -> set[TopicPartition]:
        """A batch of each, as far as they fit. Returns the partitions among them that others write to as well, with
        those that were `taken` before."""
        taken = set() if taken is None else taken
        for lane in lanes:
            if request.size >= most:
                break
            if taken and lane.spec.remote in taken:
                continue  # invariant b; its turn comes with the next request
            if not lane.sendable():
                continue
            if len(lane.chunks) > 1:
                self._join(lane)
            if (sent := self._next(lane)) is not None:
                request.batches.append((lane, sent))
                request.size += len(sent.piece.data)
                if self._shared and lane.spec.remote in self._shared:
                    taken.add(lane.spec.remote)
        if request.batches:
            self._events.append(Appended(tuple(lane for lane, _ in request.batches)))
        return taken

    def _join(self, lane: Lane) -> None:
        """A fetch of a live partition brings one batch, and merging works inside one chunk: a far target would get five
        batches per round trip however small they are. So waiting chunks are joined, but only when they have to wait
        anyway (the in-flight window is full, or more chunks wait than it holds), because merging compressed batches
        costs unpacking them. Strands share one in-flight window per partition, so their chunks are always joined."""
        waits = len(lane.in_flight) >= IN_FLIGHT - 1 or len(lane.chunks) >= IN_FLIGHT
        if (waits or lane.spec.strands) and ready() and (count := self.pace.joinable(lane.chunks)):
            lane.join(count)

    def _fill_by_turns(self, turns: Turns, request: Request, lanes: list[Lane], most: int) -> set[TopicPartition]:
        """The same, party by party (invariant d). Parties whose turn it is go first; the rest of the request is filled
        with those ahead of their share, because a request takes an in-flight slot whatever its size. These batches are
        not charged: no other party had anything to send in that place."""
        ready: dict[Party, list[Lane]] = {}
        for lane in lanes:
            if lane.sendable():
                ready.setdefault(self._parties[lane], []).append(lane)
        of = {party.name: some for party, some in ready.items()}
        first, ahead = turns.order(list(ready), most)
        taken = self._fill(request, (lane for name in first for lane in of[name]), most)
        in_turn = len(request.batches)
        if request.size < most:
            taken = self._fill(request, (lane for name in ahead for lane in of[name]), most, taken)
        for lane, sent in request.batches[: in_turn or None]:
            turns.took(self._parties[lane], len(sent.piece.data))
        return taken

    def _rotated(self, lanes: list[Lane], request: Request) -> list[Lane]:
        """Lanes served now go last next time, also when the next request goes out in another turn: a full request
        leaves nobody out for long (invariant d)."""
        served = {lane for lane, _ in request.batches}
        for lane, _ in request.batches:
            if lane in self._active:
                self._active[lane] = self._active.pop(lane)
        return [x for x in lanes if x not in served] + [x for x in lanes if x in served]

    def _next(self, lane: Lane) -> Sent | None:
        try:
            return lane.next_batch(self._merge)
        except KernelsMissing:  # the lane stays active, and is asked again in the loop's next turn
            lane.write_trouble = compiler.of_process().waiting
            return None
        except RecordTooLarge as error:
            record = lane.chunks[0].next_record()
            assert record is not None  # it was just found too large
            lane.lose_track()
            self._events.append(OverLimit(lane, lane.generation, record, error))
            return None
        except BatchError as error:
            offset = error.context.get("offset", lane.acked.next_offset)
            lane.park(f"the record at offset {offset} cannot be appended: {error.message}", error.fix)
            self._events.append(Parked(lane, lane.generation))
            return None

    def _merge(self, lane: Lane, chunk: Chunk) -> bool:
        """Only behind a batch that is on its way: a lone one is never held back. Strands share a partition, and with it
        the few batches that may be on their way there: what waits of one goes together, whatever it costs."""
        if lane.spec.strands:
            return chunk.small()
        return bool(lane.in_flight) and self.pace.merging_pays(chunk)

    def _add_notes(self, request: Request, notes: list[Note]) -> None:
        taken: set[TopicPartition] = set()
        for note in list(notes):
            if note.tp not in taken:  # invariant b
                taken.add(note.tp)
                notes.remove(note)
                self._notes.remove(note)
                request.notes.append(note)

    # ---------------------------------------------------------------- brokers' news

    def moved(self) -> None:
        for lane in self._lanes:
            if not lane.idle:
                self.wake(lane)

    def opened(self, node: int, connection: Connection) -> None:
        self._pushers[node] = Pusher(node, connection)
        self.pace.opened(connection.round_trip_s)

    def lost(self, node: int, error: HeliographError) -> None:
        pusher = self._pushers.pop(node, None)
        for request in pusher.requests if pusher else ():
            for lane, sent in request.batches:
                self._cut_off(lane, sent)
            for note in request.notes:
                note.done(False)

    def received(self, node: int, tag: object, response: object) -> None:
        request = self._pushers[node].requests.popleft()
        self.pace.answered(time.monotonic() - request.sent_at)
        now_ms = time.time_ns() // 1_000_000
        results = {result[:2]: result for result in produced(response)}  # by topic and partition
        for note in request.notes:
            note.done(results[note.tp].error == 0)
        for lane, sent in request.batches:
            if sent in lane.in_flight:
                self._answered(lane, sent, results[lane.spec.remote], now_ms)
            elif sent in lane.unheard and lane.heard(sent):  # invariant c
                self._events.append(AllAnswered(lane))

    # ---------------------------------------------------------------- answers

    def _answered(self, lane: Lane, sent: Sent, result: Produced, now_ms: int) -> None:
        if lane.answered(sent, result) is Verdict.STORED:
            lane.write_trouble = ""
            self._time(lane, sent, now_ms)
            if not lane.idle:
                self.wake(lane)
            return
        if result.error:
            lane.write_trouble = self._words(lane, result)
        if result.error == KAFKA_STORAGE_ERROR:
            self._events.append(DiskFailed(lane))
        self.brokers.refresh()
        self._events.append(LostTrack(lane, lane.generation))
        if result.error == UNKNOWN_TOPIC_OR_PARTITION:
            self._distrust(lane.spec.remote.topic)

    def _distrust(self, topic: str) -> None:
        """A topic that was deleted comes back empty, and would take any sequence of its other partitions too."""
        for lane in self._lanes:
            if lane.spec.remote.topic == topic and lane.state is State.FLOWING:
                lane.lose_track()
                self._events.append(LostTrack(lane, lane.generation))

    def _cut_off(self, lane: Lane, sent: Sent) -> None:
        """The connection ended before the answer came."""
        held = sent in lane.in_flight
        if not held and sent not in lane.unheard:
            return
        lane.cut_off(sent)
        if held:
            self._events.append(LostTrack(lane, lane.generation))
        elif not lane.unheard:
            self._events.append(AllAnswered(lane))

    def _time(self, lane: Lane, sent: Sent, now_ms: int) -> None:
        piece = sent.piece
        if piece.max_timestamp < 0:
            return  # records of old clients may have none
        latency_ms = max(now_ms - piece.max_timestamp, 0) + lane.aged_ms
        lane.latency.note(latency_ms, piece.records)
        self.latencies.note(lane.spec.tp.topic, latency_ms, piece.records)

    def _words(self, lane: Lane, result: Produced) -> str:
        remote = lane.spec.remote
        error = broker_error(result.error, result.message, topic=remote.topic, partition=remote.partition)
        return f"{self.brokers.cluster.alias} takes no records now: {error}"
