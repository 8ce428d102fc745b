"""What a task does when something happens that should not: written down first, then what the flow's policy says.

Gaps, a source that was cut, a target that lost what it had, records it refuses, permissions withdrawn, disks that are
full. The warden decides nothing about how these are noticed (`fetch`, `append` and rule D do that), and cannot give up
a position: a lane that is to begin anew is parked with a wish, and the coordinator fulfils it.

Invariant: of `mirror.incidents`, a: the callback that goes on runs when the incident is acknowledged, never before.
When it cannot be written the lane is parked, and tried again as every parked lane.

Writing blocks, so it is done by errands beside the loop, on a thread and a connection that exist once they are needed.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from heliograph.batch import Piece, Record
from heliograph.batch.demux import Strange
from heliograph.errors import BatchError, BrokerError, HeliographError, RecordTooLarge, WireError
from heliograph.mirror import annals, quarantine
from heliograph.mirror.annals import Annals, IncidentLog, why_not
from heliograph.mirror.assignment import Assignment
from heliograph.mirror.errands import Errands
from heliograph.mirror.incidents import Incident, Kind, runs_of
from heliograph.mirror.lane import Lane, State
from heliograph.mirror.quarantine import Kept, Place
from heliograph.wire import Client, Produced, broker_error
from heliograph.wire.codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    TOPIC_AUTHORIZATION_FAILED,
)

log = structlog.get_logger()

# Of a batch: some record in it will never be taken. Any other refusal is about the topic, or about us.
RECORD_CODES = frozenset({MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD})
DENIALS = frozenset({TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED})

NOTE_BYTES = 512 << 10  # refused records go to quarantine in batches of about this size
DOUBTS = 3  # how often in a row the target must seem to have lost something: a new leader may be behind for a moment
ANEW = "remove its record from the positions topic, or set {key} = restart"


@dataclass(frozen=True, slots=True)
class Hands:
    """What the warden has a task do."""

    leave: Callable[[Lane], None]  # stop fetching it
    ask: Callable[[list[Lane]], None]  # rule D
    parked: Callable[[Lane], None]  # it was parked: say so, and try again later


class Warden:
    def __init__(self, assignment: Assignment, selector: selectors.BaseSelector, hands: Callable[[], Hands]) -> None:
        self._a = assignment
        self.on = assignment.on  # replaced when the file changes
        self._selector = selector
        self._hands = hands
        self._told: dict[Lane, set[tuple[str, int, str]]] = {}
        self._writing: set[Lane] = set()
        self._errands: Errands | None = None
        self._client: Client | None = None
        self._log: IncidentLog | None = None
        self._quarantine: Annals | None = None

    def close(self) -> None:
        if self._errands is None:
            return
        self._selector.unregister(self._errands.fileno())
        if self._client is not None:
            self._errands.submit(self._client.close, lambda _, __: None)  # not to wait for a call that hangs
        self._errands.close()

    # ---------------------------------------------------------------- the source

    def gap(self, lane: Lane, earliest: int, go_on: Callable[[], None]) -> None:
        first, policy = lane.first_lost(earliest), self.on.gap
        again, why = (
            lane.uncertain(earliest),
            f"retention was faster: the source begins at {earliest}, we were at {first}",
        )
        if again:
            why += (
                f"; which records {lane.spec.remote} has of it is not known, so that up to {again} may come twice there"
            )
        if first >= earliest:
            if again:
                log.warning("a strand goes on", flow=self._a.flow, partition=str(lane.spec.tp), why=why)
            go_on()  # the target has all of it
            return
        incident = self._incident(lane, Kind.GAP, first, earliest, policy, why)
        fix = "set on.gap = skip to go on behind it, and give the source a longer retention"
        self._write(lane, incident, go_on if policy == "skip" else lambda: self._park(lane, why, fix))

    def truncated(self, lane: Lane, latest: int) -> None:
        wanted, policy = lane.fetch_offset, self.on.truncated
        why = f"the source ends at offset {latest}, we were at {wanted}: it was truncated"
        fix = "check what happened to the topic; to copy it anew " + ANEW.format(key="on.source.truncated")
        incident = self._incident(lane, Kind.TRUNCATED, latest, wanted, policy, why)
        wish = "restart" if policy == "restart" else ""
        self._write(lane, incident, lambda: self._park(lane, why, fix, wish))

    # ---------------------------------------------------------------- the target

    def doubts(self, lane: Lane) -> bool:
        """The target seems to hold less than it acknowledged: whether to ask it once more before it is believed."""
        lane.doubts += 1
        return lane.doubts < DOUBTS

    def target_lost(self, lane: Lane, end: int, missing: int) -> None:
        acked, remote, policy = lane.acked, lane.spec.remote, self.on.target_lost
        if 0 <= end < acked.target:
            why = f"{remote} ends at offset {end}, it had acknowledged up to {acked.target}"
        else:
            why = f"{remote} holds {missing} records fewer than it acknowledged"
        why += ": deleted and made anew, or truncated"
        incident = self._incident(
            *(lane, Kind.TARGET_LOST, acked.next_offset, acked.next_offset, policy, why), target=(end, acked.target)
        )
        fix = f"check the target; on.target.lost = restart copies {lane.spec.tp.topic} anew, skip goes on where we are"
        wish = "" if policy == "stop" else policy
        self._write(lane, incident, lambda: self._park(lane, why, fix, wish))

    def denied(self, lane: Lane, code: int, why: str) -> None:
        """The lane is parked already, and will be tried again."""
        if code in DENIALS:
            at = lane.acked.next_offset
            self._write(lane, self._incident(lane, Kind.DENIED, at, at, "stop", why), _nothing, must=False)

    def storage(self, lane: Lane) -> None:
        """The batch is being sent again and again; it goes through when the disk does."""
        at = lane.acked.next_offset
        why = f"a disk of the broker that leads {lane.spec.remote} failed or is full"
        self._write(lane, self._incident(lane, Kind.STORAGE, at, at, "stop", why), _nothing, must=False)

    # ---------------------------------------------------------------- refused records

    def refused(self, lane: Lane, piece: Piece, result: Produced) -> None:
        """The target takes this batch never. It may say which records it is about; otherwise smaller batches tell."""
        hands = self._hands()
        lane.lose_track()
        hands.leave(lane)
        remote = lane.spec.remote
        error = broker_error(result.error, result.message, topic=remote.topic, partition=remote.partition)
        reasons = {index: f"{error.name}: {words or result.message}" for index, words in result.record_errors}
        try:
            records = quarantine.records_of(piece)
        except BatchError as problem:
            lane.park(f"the target refuses source offset {piece.first_offset} ff.: {error.message}", problem.fix)
            hands.parked(lane)
            return
        if len(records) == 1 and not reasons:
            reasons = {0: error.message}
        bad = [(records[i], reason) for i, reason in sorted(reasons.items()) if 0 <= i < len(records)]
        if bad:
            self._hold(lane, bad, error.fix)
        else:
            lane.narrow_to(len(records) // 2, piece.next_offset)
            hands.ask([lane])

    def too_large(self, lane: Lane, error: RecordTooLarge) -> None:
        """Before anything was sent: the limit is known. It may have been raised since."""
        record = lane.chunks[0].next_record()
        lane.lose_track()
        self._hands().leave(lane)
        assert record is not None  # it was just found too large
        client, topic = self._target(), lane.spec.remote.topic

        def ask() -> int:
            configs = client.describe_topic_configs([topic])[topic]
            entry = None if isinstance(configs, BrokerError) else configs.get("max.message.bytes")
            return int(entry.value) if entry and entry.value else lane.max_batch_bytes

        def answered(limit: int | None, failure: HeliographError | None) -> None:
            if lane.state is not State.LOST:
                return
            if limit is not None and limit != lane.max_batch_bytes:
                lane.max_batch_bytes = limit
                self._hands().ask([lane])
            else:
                self._hold(lane, [(record, f"MESSAGE_TOO_LARGE: {error.message}")], error.fix)

        self._beside().submit(ask, answered)

    def is_writing(self, lane: Lane) -> bool:
        """Whether something about it is on its way to be written down."""
        return lane in self._writing

    def strange(self, anchor: Lane, strange: Sequence[Strange], then: Callable[[], None]) -> None:
        """Records of a shared topic whose labels say nothing that can be followed. They are in nobody's count, so all
        that is due is to keep them and say so; the anchor goes on behind them `then`."""
        policy, why = self.on.refused, strange[0].why.words
        offsets = [one.record.offset for one in strange]
        incident = self._incident(
            *(anchor, Kind.REFUSED, offsets[0], offsets[-1] + 1, policy, why), offsets=runs_of(offsets)
        )
        if policy == "stop":
            words = f"the record at offset {offsets[0]} of {anchor.spec.tp} cannot be put back: {why}"
            fix = "find out who else writes to this topic; or set on.refused = quarantine, and the others go on"
            self._write(anchor, incident, lambda: self._park(anchor, words, fix))
            return
        spec = anchor.spec
        kept = [
            Kept(
                Place(spec.tp, spec.topic_id, one.record.offset, spec.remote), one.record, one.why.words, incident.at_ms
            )
            for one in strange
        ]
        self._write(anchor, incident, then, kept if policy == "quarantine" else ())

    def _hold(self, lane: Lane, bad: Sequence[tuple[Record, str]], fix: str) -> None:
        policy, why = self.on.refused, bad[0][1]
        offsets = [record.offset for record, _ in bad]
        incident = self._incident(
            *(lane, Kind.REFUSED, offsets[0], offsets[-1] + 1, policy, why), offsets=runs_of(offsets)
        )
        lane.write_trouble = f"{self._a.target.alias} refuses source offset {offsets[0]}: {why}"
        if policy == "stop":
            words = f"the record at source offset {offsets[0]} cannot be appended: {why}"
            fix = f"{fix}; or set on.refused = quarantine, and the others go on" if fix else fix
            self._write(lane, incident, lambda: self._park(lane, words, fix))
            return
        spec = lane.spec
        kept = [
            Kept(Place(spec.tp, spec.topic_id, record.offset, spec.remote), record, reason, incident.at_ms)
            for record, reason in bad
        ]
        # Rule D reads the incident and leaves these out (rule H).
        self._write(lane, incident, lambda: self._hands().ask([lane]), kept if policy == "quarantine" else ())

    # ---------------------------------------------------------------- writing

    def _incident(
        self,
        lane: Lane,
        kind: Kind,
        first: int,
        next_offset: int,
        policy: str,
        why: str,
        *,
        offsets: tuple[tuple[int, int], ...] = (),
        target: tuple[int, int] = (-1, -1),
    ) -> Incident:
        spec, now_ms = lane.spec, time.time_ns() // 1_000_000
        return Incident(
            *(kind, spec.tp, spec.topic_id, first, next_offset, policy, why, spec.remote, now_ms, offsets, target),
            producer=lane.acked.producer_id if kind is Kind.REFUSED else -1,
        )

    def _write(
        self,
        lane: Lane,
        incident: Incident,
        then: Callable[[], None],
        keep: Sequence[Kept] = (),
        *,
        must: bool = True,
    ) -> None:
        """`then` when it is acknowledged. `must`: without it the lane cannot go on."""
        known = self._told.setdefault(lane, set(lane.spec.told))
        identity = (str(incident.kind), incident.first, incident.policy)
        if not incident.lost and not incident.held and identity in known:
            then()  # it lasts, and is written down: once is enough
            return
        if not must and lane in self._writing:
            return  # it will be seen again
        self._writing.add(lane)
        log.warning("incident", flow=self._a.flow, what=incident.words)

        def answered(_: object, error: HeliographError | None) -> None:
            self._writing.discard(lane)
            if error is None:
                known.add(identity)
                then()
            elif must:
                self._unwritten(lane, incident, error)

        self._beside().submit(lambda: self._append(incident, keep), answered)

    def _append(self, incident: Incident, keep: Sequence[Kept]) -> None:
        """In the errand's thread. What is kept first: an incident says that it is."""
        client, a = self._target(), self._a
        if keep:
            if self._quarantine is None:
                spec = annals.quarantine_spec(a.quarantine_topic, a.storage_replication_factor)
                self._quarantine = Annals(client, spec)
            for records in _batches([quarantine.keep(a.source.alias, one) for one in keep]):
                self._quarantine.append(records)
        if self._log is None:
            self._log = IncidentLog(client, a.source.alias, a.incidents_topic, a.storage_replication_factor)
        self._log.write(incident)

    def _unwritten(self, lane: Lane, incident: Incident, error: HeliographError) -> None:
        topic = str(error.context.get("topic", self._a.incidents_topic))
        fix = why_not(error, topic) if isinstance(error, WireError) else error.fix
        why = f"{incident.words}; it cannot be written down, so nothing is passed over: {error.message}"
        self._park(lane, why, fix)

    def _park(self, lane: Lane, why: str, fix: str, wish: str = "") -> None:
        hands = self._hands()
        hands.leave(lane)
        lane.park(why, fix, wish)
        hands.parked(lane)

    def _beside(self) -> Errands:
        if self._errands is None:
            self._errands = errands = Errands(f"warden-{self._a.flow}")
            self._selector.register(errands.fileno(), selectors.EVENT_READ, lambda _: errands.settle())
        return self._errands

    def _target(self) -> Client:
        if self._client is None:
            self._client = Client(self._a.target)
        return self._client


def _batches(records: Sequence[Record]) -> list[list[Record]]:
    """Of about NOTE_BYTES each, numbered as a batch wants it."""
    found: list[list[Record]] = [[]]
    size = 0
    for record in records:
        grown = len(record.value or b"")
        if found[-1] and size + grown > NOTE_BYTES:
            found.append([])
            size = 0
        size += grown
        found[-1].append(Record(len(found[-1]), record.timestamp, record.key, record.value, record.headers))
    return found


def _nothing() -> None:
    """Somebody else sees to the lane."""
