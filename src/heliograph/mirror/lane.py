"""A lane: one source partition on its way to its remote partition. No sockets; the task moves it.

Where the target has another number of partitions, a source partition has a lane for each of them, its strands
(`mirror.strands`); to a lane it makes no difference: its records are those that are pushed into it.

    fetch -> push(chunk) -> [chunks] -> next_batch() -> [in flight] -> acknowledged() -> acked position, runs

A lane is a state machine. Its states and the ways between them:

    LOST ----- found() ----> FLOWING          the target has said what it holds (the producer-state probe, rule D)
    FLOWING -- lose_track() -> LOST           an answer failed, the connection ended, the process slept
    any ------ park() -----> PARKED -- unpark() -> LOST      it cannot go on; tried again later
    any ------ halt() -----> HALTED -- go_on() --> LOST      an operator said so

Invariants:
  a. `acked` is true of the target: every record before `acked.next_offset` is there, `acked.sequence` of them.
  b. In-flight batches are consecutive: each begins where the one before ended, the last ends at `next_sequence`.
  c. At most IN_FLIGHT of them (rule F). Only one until the first acknowledgement after the probe: a broker that holds
     nothing of a producer id takes any sequence, so a second batch could be stored without the first, which would then
     be taken for stored too.
  d. What is fetched joins on: a chunk is taken only if it was asked for at `fetch_offset` (the caller checks).
  e. No batch is sent twice without a probe in between. Whatever fails makes the lane lose track: it forgets all it
     holds and starts again from `acked`. The probe waits until no answer is due any more (`unheard`), so that no batch
     of this lane is on its way while the target is asked what it holds.
  f. What is in `held` is never sent and never counted (rule H). It is set by the probe's answer and by nothing else.
  g. The target's offsets only rise: an acknowledgement at a lower one says that it lost what it had.
  h. `generation` grows with every change of state. A question that is asked about a lane carries it, and its answer
     counts only while it is the same: whatever was decided meanwhile was decided on something newer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum

from heliograph.batch import Chunk, Piece, base_timestamp, patch
from heliograph.errors import KernelsMissing, RecordTooLarge
from heliograph.mirror.assignment import LaneSpec
from heliograph.mirror.incidents import runs_of
from heliograph.mirror.ledger import IN_FLIGHT, advance
from heliograph.mirror.offsetmap import POINT_EVERY, Span, Writer
from heliograph.mirror.positions import Position
from heliograph.mirror.quarantine import parts
from heliograph.mirror.timing import Spread
from heliograph.types import TopicPartition
from heliograph.wire import Produced, is_retriable

# OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID: another writer
# moved on, the broker forgot the producer id, or a batch before this one failed (rules E and F). The probe tells.
SEQUENCE_CODES = frozenset({45, 46, 47, 59})


class Verdict(Enum):
    """What an answer to a batch means for its lane."""

    STORED = "stored"
    LOST_TRACK = "lost track"  # the probe is due; `refusal` says whether the target will refuse the batch for good


class State(Enum):
    LOST = "lost"  # the probe is due: what does the target hold?
    FLOWING = "flowing"
    PARKED = "parked"  # cannot go on; `reason` says why
    HALTED = "halted"  # an operator said so; what is in flight is still answered


# Invariant h: from a state to those that it may change into.
CHANGES: Mapping[State, frozenset[State]] = {
    State.LOST: frozenset(State),
    State.FLOWING: frozenset({State.LOST, State.PARKED, State.HALTED}),
    State.PARKED: frozenset({State.LOST, State.PARKED, State.HALTED}),
    State.HALTED: frozenset({State.LOST, State.PARKED, State.HALTED}),
}


@dataclass(slots=True, eq=False)
class Sent:
    """A batch on its way."""

    piece: Piece
    sequence: int
    base_offset: int | None = None  # where the target stored it; None: no answer yet


@dataclass(frozen=True, slots=True)
class Refusal:
    """The target refused a batch for good, by its answer. Believed only when the probe finds that it is not stored: a
    repeat of a stored batch may be refused for its age or by a newer setting (rule H)."""

    sent: Sent
    result: Produced


@dataclass(slots=True)
class Run:
    """Consecutive source offsets that became consecutive target offsets."""

    source_offset: int
    target_offset: int
    length: int
    bytes: int


@dataclass(slots=True)
class Counts:
    records: int = 0
    bytes: int = 0
    batches: int = 0
    skipped: int = 0  # control, aborted, empty batches
    retries: int = 0
    resyncs: int = 0
    repeated: int = 0  # records found on the target already (rule D) and not sent again
    lost: int = 0  # source offsets that retention took before they were read

    def told(self) -> dict[str, int]:
        """As a report has them. (`asdict` copies deeply: it was half of what a row cost.)"""
        return {name: getattr(self, name) for name in COUNTED}


COUNTED = tuple(one.name for one in fields(Counts))


@dataclass(slots=True, eq=False)
class Lane:
    spec: LaneSpec
    acked: Position
    state: State = State.LOST
    reason: str = ""
    fix: str = ""
    wish: str = ""  # what the coordinator is to do about a parked lane: restart or skip
    fetch_offset: int = 0
    skip: int = 0  # records still to be skipped (rule D)
    next_sequence: int = 0  # of the next record that is neither skipped nor in flight
    proven: bool = False  # the target has acknowledged something since rule D, so it checks our sequences (invariant c)
    high_watermark: int = -1
    queued_bytes: int = 0
    history: bool = False  # far behind its source: it gives way to lanes that are not (mirror.ways)
    max_batch_bytes: int = 0
    generation: int = 0  # invariant h
    failures: int = 0  # answers that failed in a row, for the pause before the next probe
    unheard: set[Sent] = field(default_factory=set)  # forgotten batches whose answers are still due (invariant e)
    unanswered: bool = False  # since the last probe: batches whose answers will never come
    unanswered_ms: int = 0  # the smallest of their timestamps
    refusal: Refusal | None = None  # why it lost track, if the target refused a batch for good
    written: Position | None = None  # the last position known to be in the positions topic
    held: frozenset[int] = frozenset()  # source offsets from `acked` on that are not to be sent
    narrow: int = 0  # batches of at most so many records, before the source offset `narrow_until`: one of them is bad
    narrow_until: int = 0
    doubts: int = 0  # how often in a row the target seemed to hold less than it acknowledged
    # Lists, not deques: they are short, and an empty deque takes 0.75 KB, which ten thousand lanes have four of.
    chunks: list[Chunk] = field(default_factory=list)
    parts: list[Piece] = field(default_factory=list)  # of a batch that was taken apart, before the chunks; last first
    in_flight: list[Sent] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    map: Writer = field(default_factory=Writer)
    unpointed: int = 0  # of a strand: records since the last point that its map got
    placed: list[tuple[int, int]] = field(default_factory=list)  # where the target has what is skipped, last first
    next_target: int = -1  # the target offset right after the last record settled or skipped; -1: not known
    counts: Counts = field(default_factory=Counts)
    last_timestamp: int = -1
    read_trouble: str = ""  # what the source said last instead of giving records
    write_trouble: str = ""  # what the target said last instead of taking them
    latency: Spread = field(default_factory=Spread)  # both since they were last told
    age: Spread = field(default_factory=Spread)
    aged_ms: int = 0  # records that are labelled get the time of the moment: so old were those of the last fetch then
    unknown: dict[TopicPartition, int] = field(default_factory=dict)  # of an anchor: targets that nobody has made yet

    @classmethod
    def of(cls, spec: LaneSpec) -> Lane:
        lane = cls(spec, spec.position, max_batch_bytes=spec.max_batch_bytes, written=spec.position)
        if spec.stage is not None:  # those before may not have known all strands: what they wrote must not be the last
            lane.written = None
        lane.fetch_offset = spec.position.next_offset
        lane.map.begin(spec.last_run)
        lane.next_target = spec.position.target
        lane.history = spec.history
        if spec.absent:
            lane.park(spec.absent)
        return lane

    def stand_at(self, position: Position, last_run: Span | None) -> None:
        """Before anything was fetched: the epoch before has handed over, and this is where it stood."""
        assert self.state is not State.FLOWING, f"{self.spec.tp} copies: its position is its own"
        self.generation += 1
        self.acked = position
        self.written = position if self.spec.stage is None else None
        self.fetch_offset = position.next_offset
        self.map.begin(last_run)
        self.next_target = position.target

    # ---------------------------------------------------------------- states

    def _enter(self, state: State) -> None:
        assert state in CHANGES[self.state], f"{self.spec.tp}: from {self.state.value} to {state.value}"
        self.state = state
        self.generation += 1  # invariant h

    def lose_track(self) -> None:
        """Invariant e. Answers that are still due are waited for and ignored (`heard`)."""
        self._enter(State.LOST)
        self._forget()
        self.counts.resyncs += 1

    def found(
        self, already_there: int, placed: Sequence[tuple[int, int]] = (), held: frozenset[int] = frozenset()
    ) -> None:
        """The probe's answer: so many records from `acked` on are there; `placed` says at which offsets, as
        (offset, length), if it is known; `held` which source offsets are not among them (rule H)."""
        self._enter(State.FLOWING)
        self.held = held
        self.doubts = 0
        self.unanswered = False
        if not self.failures:  # else it lasts until the target has stored something
            self.write_trouble = ""
        self.skip = already_there
        self.placed = list(reversed(placed))
        self.next_target = self.acked.target if not already_there or placed else -1
        self.proven = False
        self.fetch_offset = self.acked.next_offset
        self.next_sequence = self.acked.sequence

    def park(self, reason: str, fix: str = "", wish: str = "") -> None:
        self._enter(State.PARKED)
        self.reason, self.fix, self.wish = reason, fix, wish
        self._forget()

    def unpark(self) -> None:
        self._enter(State.LOST)
        self.reason, self.fix, self.wish = "", "", ""
        if self.spec.absent:
            self.park(self.spec.absent)

    def halt(self) -> None:
        """Nothing new is sent. Answers that are due still count, so that the position is where the target is."""
        if self.state is State.FLOWING:
            self.discard()
        self._enter(State.HALTED)
        self.reason, self.fix, self.wish = "", "", ""

    def go_on(self) -> None:
        """After a halt: by the probe, as after anything that may have left an answer unheard."""
        self._forget()
        self.unpark()

    def narrow_to(self, records: int, until: int) -> None:
        """The target refused a batch and did not say which record of it: smaller ones will tell."""
        self.narrow, self.narrow_until = max(records, 1), until

    def _forget(self) -> None:
        self.chunks.clear()
        self.parts.clear()
        self.unheard.update(sent for sent in self.in_flight if sent.base_offset is None)
        self.in_flight.clear()
        self.refusal = None
        self.queued_bytes = self.skip = 0
        self.fetch_offset = self.acked.next_offset

    def discard(self) -> None:
        """The epoch ends: what was fetched and not sent is left for the next one."""
        self.chunks.clear()
        self.parts.clear()
        self.queued_bytes = 0
        self.fetch_offset = self.in_flight[-1].piece.next_offset if self.in_flight else self.acked.next_offset

    # ---------------------------------------------------------------- in

    def push(self, chunk: Chunk) -> None:
        self.fetch_offset = chunk.next_offset
        self.counts.skipped += chunk.skipped_control + chunk.skipped_aborted + chunk.skipped_empty
        if self.skip:
            # `acked` stays where it is until a chunk is behind us as a whole: inside a batch with holes, the offset
            # that belongs to a sequence is not known without decoding.
            runs = self._pass_over(chunk)
            dropped = sum(length for _, length in runs)
            self._note_skipped(runs)
            self.skip -= dropped
            self.counts.repeated += dropped
            self.next_sequence = advance(self.next_sequence, dropped)
        if chunk.remaining_records:
            self.chunks.append(chunk)
            self.queued_bytes += chunk.remaining_bytes
        self._settle_idle()

    def _pass_over(self, chunk: Chunk) -> list[tuple[int, int]]:
        """Rule D: skip as many records as the target has; those it never got are passed over uncounted (rule H)."""
        found: list[tuple[int, int]] = []
        left = self.skip
        while left:
            runs: list[tuple[int, int]] = []
            dropped = chunk.skip(left, runs)
            kept = _without(runs, self.held) if self.held else runs
            found += kept
            if dropped < left:
                break
            left -= sum(length for _, length in kept)
        return found

    def _note_skipped(self, runs: list[tuple[int, int]]) -> None:
        for source_offset, length in runs:
            while length and self.placed:
                target, room = self.placed.pop()
                step = min(length, room)
                if self.spec.strands:
                    self._note_point(source_offset, target, step)
                else:
                    self._note_run(source_offset, target, step, 0)
                self.next_target = target + step
                source_offset, length = source_offset + step, length - step
                if room > step:
                    self.placed.append((target + step, room - step))

    def jump(self, offset: int, *, counted: bool = True) -> None:
        """Retention took everything before `offset`. What rule D says the target already holds of it is not lost; how
        many that are is certain when the range had no holes, and holes cannot be seen any more. (What is other strands'
        is a hole: of a strand, at most so many are taken for gone as there are offsets. So records that the target has
        may be sent again, and none is passed that it has not: `uncertain`.)"""
        gone = offset - self.fetch_offset - self._held_before(offset)
        there = min(self.skip, gone)
        self.skip -= there
        self.counts.lost += gone - there if counted else 0
        self.fetch_offset = offset
        self.next_sequence = advance(self.next_sequence, there)
        if there:
            self.placed.clear()  # which of them is which cannot be said any more
            self.next_target = -1
        self._settle_idle()

    def first_lost(self, offset: int) -> int:
        """The first source offset that a jump to `offset` would lose; `offset` itself: none."""
        return min(self.fetch_offset + self.skip + self._held_before(offset), offset)

    def uncertain(self, offset: int) -> int:
        """How many records of a strand a jump to `offset` may send again."""
        return min(self.skip, offset - self.fetch_offset) if self.spec.strands else 0

    def _held_before(self, offset: int) -> int:
        return sum(self.fetch_offset <= one < offset for one in self.held)

    # ---------------------------------------------------------------- out

    def sendable(self) -> bool:
        if self.state is not State.FLOWING:
            return False
        return self.waiting and len(self.in_flight) < (IN_FLIGHT if self.proven else 1)

    @property
    def waiting(self) -> bool:
        """Whether something is fetched and not sent."""
        return bool(self.chunks or self.parts)

    @property
    def held_bytes(self) -> int:
        """What it keeps in memory: fetched buffers, as long as something of them is left, and batches to be sent or
        acknowledged."""
        held = 0  # counted with every batch that is sent: plain loops are the quickest here
        for chunk in self.chunks:
            held += chunk.held_bytes
        for sent in self.in_flight:
            held += len(sent.piece.data)
        for piece in self.parts:
            held += len(piece.data)
        return held

    @property
    def can_discard(self) -> bool:
        """Whether what is queued may be dropped and fetched again without rule D: what was passed over as being on
        the target (`skip`) is in a count that the position does not have yet."""
        return bool(self.in_flight) or (not self.skip and self.next_sequence == self.acked.sequence)

    @property
    def idle(self) -> bool:
        """Nothing to send."""
        return self.state is not State.FLOWING or not self.waiting

    @property
    def oldest_timestamp(self) -> int:
        """When the first record was written that is fetched and not acknowledged; -1: none is, or it cannot be said."""
        first = next((sent for sent in self.in_flight if sent.base_offset is None), None)
        if first is not None:
            return base_timestamp(first.piece.data) - self.aged_ms
        if self.parts:
            return base_timestamp(self.parts[-1].data) - self.aged_ms
        return self.chunks[0].next_timestamp - self.aged_ms if self.chunks else -1

    def next_batch(self, merge: Callable[[Lane, Chunk], bool]) -> Sent | None:
        """The next batch under the next sequence (rule B). May raise RecordTooLarge or CorruptBatch."""
        while self.waiting:
            piece = self.parts.pop() if self.parts else self._take(merge)
            if piece is not None:
                sent = Sent(piece, self.next_sequence)
                patch(piece.data, self.acked.producer_id, self.acked.producer_epoch, sent.sequence)
                self.next_sequence = advance(sent.sequence, piece.records)
                self.in_flight.append(sent)
                return sent
        self._settle_idle()
        return None

    def _take(self, merge: Callable[[Lane, Chunk], bool]) -> Piece | None:
        """The next piece of the first chunk; None: what came next is not to be sent, or the chunk was at its end."""
        chunk = self.chunks[0]
        before = chunk.remaining_bytes
        piece: Piece | None = None
        ended = False
        try:
            piece = chunk.take(merge=merge(self, chunk))
            ended = piece is None
        except RecordTooLarge as error:
            if error.context.get("offset") not in self.held:
                raise
            chunk.skip(1)
        except KernelsMissing:  # it stays; batches before it that held nothing may be gone
            self.queued_bytes -= before - chunk.remaining_bytes
            raise
        self.queued_bytes -= before - chunk.remaining_bytes
        if ended or not chunk.remaining_records:
            del self.chunks[0]
            self.queued_bytes -= chunk.remaining_bytes
        if piece is None or not (self.held or self.narrow):
            return piece
        return self._taken_apart(piece)

    def join(self, count: int) -> None:
        """The first `count` chunks become one, so that their small batches can go as one."""
        self.chunks[:count] = [Chunk.joined(self.chunks[:count])]

    def _taken_apart(self, piece: Piece) -> Piece | None:
        """Invariant f, and smaller ones while a bad record is being looked for."""
        if self.narrow and piece.first_offset >= self.narrow_until:
            self.narrow = 0
        self.parts = list(parts(piece, self.held, self.narrow))[::-1]
        return self.parts.pop() if self.parts else None

    # ---------------------------------------------------------------- answers

    def answered(self, sent: Sent, result: Produced) -> Verdict:
        """An answer to a batch in flight."""
        if result.error == 0 and not 0 <= result.base_offset < self.next_target:  # invariant g
            self.acknowledged(sent, result.base_offset)
            return Verdict.STORED
        self.in_flight.remove(sent)  # its answer is in
        self.counts.retries += 1
        self.lose_track()
        if result.error and result.error not in SEQUENCE_CODES and not is_retriable(result.error):
            self.refusal = Refusal(sent, result)
        else:
            self.failures += 1
        return Verdict.LOST_TRACK

    def take_refusal(self) -> Refusal | None:
        """Each is judged once. If the answer is lost on the way the batch is sent, and refused, again."""
        refusal, self.refusal = self.refusal, None
        return refusal

    def cut_off(self, sent: Sent) -> None:
        """The connection ended before the answer to this batch came. It may be stored, now or in a moment."""
        self.unanswered_ms = (
            min(self.unanswered_ms, sent.piece.max_timestamp) if self.unanswered else (sent.piece.max_timestamp)
        )
        self.unanswered = True
        self.unheard.discard(sent)
        if sent in self.in_flight:
            self.in_flight.remove(sent)
            self.failures += 1
            self.counts.retries += 1
            self.lose_track()

    def heard(self, sent: Sent) -> bool:
        """The answer to a batch that was forgotten came in. Whether it was the last one that was due."""
        self.unheard.discard(sent)
        return not self.unheard

    def acknowledged(self, sent: Sent, base_offset: int) -> None:
        sent.base_offset = base_offset
        self.proven = True
        self.failures = 0
        while self.in_flight and (first := self.in_flight[0]).base_offset is not None:
            del self.in_flight[0]
            self._settle(first, first.base_offset)
        self._settle_idle()

    def _settle(self, sent: Sent, base_offset: int) -> None:
        piece = sent.piece
        self._note_runs(piece, base_offset)
        self.counts.records += piece.records
        self.counts.bytes += len(piece.data)
        self.counts.batches += 1
        self.last_timestamp = piece.max_timestamp - self.aged_ms
        self.next_target = base_offset + piece.records
        self._advance(piece.next_offset, advance(sent.sequence, piece.records))

    def _settle_idle(self) -> None:
        """With nothing waiting and nothing in flight, trailing markers and aborted records are behind us too, and
        records that are held."""
        if not self.waiting and not self.in_flight and self.fetch_offset > self.acked.next_offset:
            self._advance(self.fetch_offset, self.next_sequence)

    def _advance(self, next_offset: int, sequence: int) -> None:
        before, spec = self.acked, self.spec
        run, run_end = (None, -1) if spec.strands else self.map.named
        self.acked = Position(
            next_offset, before.producer_id, before.producer_epoch, sequence, spec.topic_id, self.next_target,
            run=run, run_end=run_end,
        )  # fmt: skip

    def _note_runs(self, piece: Piece, base_offset: int) -> None:
        if self.spec.strands:
            self._note_strand(piece.first_offset, base_offset, piece.records, len(piece.data))
            return
        share = len(piece.data) / max(piece.records, 1)
        for source_offset, length in piece.runs:
            self._note_run(source_offset, base_offset, length, round(share * length))
            base_offset += length

    def _note_point(self, source_offset: int, target_offset: int, records: int) -> None:
        """A strand's source offsets have holes at nearly every record: what is kept is where a stretch began."""
        if self.spec.stage is None and (self.map.last is None or self.unpointed >= POINT_EVERY):
            self.map.note(source_offset, target_offset, 1)
            self.unpointed = 0
        self.unpointed += records

    def _note_strand(self, source_offset: int, target_offset: int, records: int, size: int) -> None:
        self._note_point(source_offset, target_offset, records)
        last = self.runs[-1] if self.runs else None
        if last and last.target_offset + last.length == target_offset:
            last.length += records
            last.bytes += size
        else:
            self.runs.append(Run(source_offset, target_offset, records, size))

    def _note_run(self, source_offset: int, target_offset: int, length: int, size: int) -> None:
        self.map.note(source_offset, target_offset, length)
        last = self.runs[-1] if self.runs else None
        if (
            last
            and last.source_offset + last.length == source_offset
            and last.target_offset + last.length == target_offset
        ):
            last.length += length
            last.bytes += size
        else:
            self.runs.append(Run(source_offset, target_offset, length, size))


def _without(runs: list[tuple[int, int]], held: frozenset[int]) -> list[tuple[int, int]]:
    return list(runs_of(o for start, length in runs for o in range(start, start + length) if o not in held))
