"""What a task does when something happens that should not: written down first, then what the flow's policy says.

Gaps, a source that was cut, a target that lost what it had, records it refuses, permissions withdrawn, disks that are
full. How these are noticed is the affair of `fetch`, `append` and the probe. What follows is an `Action` in an event
(`IncidentWritten`), which the task's loop carries out. A position is given up by the coordinator alone: a lane that is
to begin again is parked with a wish.

Invariants:
  a. Of `mirror.incidents`, a: the action becomes an event when the incident is acknowledged, never before. When it
     cannot be written the lane is parked, and tried again as every parked lane.
  b. The event carries the lane's generation of the moment the incident was noticed. If the lane has moved on since, the
     loop drops it; the incident stands in the topic all the same, and what is noticed again has the same key.

Writing blocks, so it is done beside the loop, on a thread and a connection that exist once they are needed.
"""

from __future__ import annotations

import selectors
import time
from collections import Counter
from collections.abc import Callable, Sequence

import structlog

from heliograph.batch import Record
from heliograph.errors import BatchError, BrokerError, HeliographError, WireError
from heliograph.mirror import annals, quarantine
from heliograph.mirror.annals import Annals, IncidentLog, why_not
from heliograph.mirror.assignment import Assignment
from heliograph.mirror.errands import Errands
from heliograph.mirror.events import (
    Action,
    Events,
    Gap,
    IncidentWritten,
    Jump,
    LostTrack,
    NoAction,
    OverLimit,
    Park,
    Parked,
    Probe,
    SetAside,
    StrangeRecords,
    Truncated,
)
from heliograph.mirror.incidents import Incident, Kind, runs_of
from heliograph.mirror.lane import Lane, Refusal
from heliograph.mirror.quarantine import Kept, Place
from heliograph.wire import Client, broker_error
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


class IncidentHandler:
    def __init__(self, assignment: Assignment, selector: selectors.BaseSelector, events: Events) -> None:
        self._a = assignment
        self.on = assignment.on  # replaced when the file changes
        self._selector = selector
        self._events = events
        self._told: dict[Lane, set[tuple[str, int, str]]] = {}
        self._writing: Counter[Lane] = Counter()
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

    def gap(self, event: Gap) -> None:
        """What is lost of the source is counted once, by the lane that is least far."""
        earliest, policy = event.earliest, self.on.gap
        lane = min((lane for lane, _ in event.behind), key=lambda lane: lane.first_lost(earliest))
        first, again = lane.first_lost(earliest), lane.uncertain(earliest)
        why = f"retention was faster: the source begins at {earliest}, we were at {first}"
        if again:
            why += (
                f"; which records {lane.spec.remote} has of it is not known, so that up to {again} may come twice there"
            )
        jump = Jump(event.behind, earliest)
        if first >= earliest:
            if again:
                log.warning("a strand goes on", flow=self._a.flow, partition=str(lane.spec.tp), why=why)
            self._events.append(IncidentWritten(lane, lane.generation, jump))  # the target has all of it
            return
        incident = self._incident(lane, Kind.GAP, first, earliest, policy, why)
        fix = "set on.gap = skip to go on behind it, and give the source a longer retention"
        self._write(lane, incident, jump if policy == "skip" else Park(why, fix))

    def truncated(self, event: Truncated) -> None:
        lane, latest = event.lane, event.latest
        wanted, policy = lane.fetch_offset, self.on.truncated
        why = f"the source ends at offset {latest}, we were at {wanted}: it was truncated"
        fix = "check what happened to the topic; to copy it anew " + ANEW.format(key="on.source.truncated")
        incident = self._incident(lane, Kind.TRUNCATED, latest, wanted, policy, why)
        self._write(lane, incident, Park(why, fix, "restart" if policy == "restart" else ""))

    # ---------------------------------------------------------------- the target

    def doubts(self, lane: Lane) -> bool:
        """The target seems to hold less than it acknowledged: whether to ask it once more before it is believed."""
        lane.doubts += 1
        return lane.doubts < DOUBTS

    def target_lost(self, lane: Lane, end: int, fewer: int, missing: int = 0) -> None:
        """`fewer`: records that it acknowledged and does not hold. `missing`: records before the last one that it
        holds."""
        acked, remote, policy = lane.acked, lane.spec.remote, self.on.target_lost
        if missing:
            why = f"{remote} lacks {missing} records before the last ones that it holds: it stored batches out of order"
        elif 0 <= end < acked.target:
            why = f"{remote} ends at offset {end}, it had acknowledged up to {acked.target}"
        else:
            why = f"{remote} holds {fewer} records fewer than it acknowledged"
        if not missing:
            why += ": deleted and made anew, or truncated"
        incident = self._incident(
            *(lane, Kind.TARGET_LOST, acked.next_offset, acked.next_offset, policy, why), target=(end, acked.target)
        )
        fix = f"check the target; on.target.lost = restart copies {lane.spec.tp.topic} anew, skip goes on where we are"
        self._write(lane, incident, Park(why, fix, "" if policy == "stop" else policy))

    def denied(self, lane: Lane, code: int, why: str) -> None:
        """The lane is parked already, and will be tried again."""
        if code in DENIALS:
            at = lane.acked.next_offset
            self._write(lane, self._incident(lane, Kind.DENIED, at, at, "stop", why), NoAction(), must=False)

    def storage(self, lane: Lane) -> None:
        """The batch is sent again and again; it goes through when the disk does."""
        at = lane.acked.next_offset
        why = f"a disk of the broker that leads {lane.spec.remote} failed or is full"
        self._write(lane, self._incident(lane, Kind.STORAGE, at, at, "stop", why), NoAction(), must=False)

    # ---------------------------------------------------------------- refused records

    def refused(self, lane: Lane, refusal: Refusal) -> None:
        """The target will never take this batch, and the probe has found that it is not stored. The lane is LOST, and
        waits for what follows here."""
        if refusal.result.error == MESSAGE_TOO_LARGE:
            self._ask_limit(lane, lambda: self._refused(lane, refusal))
        else:
            self._refused(lane, refusal)

    def _refused(self, lane: Lane, refusal: Refusal) -> None:
        """The answer may name the records it is about; otherwise smaller batches tell."""
        piece, result, remote = refusal.sent.piece, refusal.result, lane.spec.remote
        error = broker_error(result.error, result.message, topic=remote.topic, partition=remote.partition)
        if result.error not in RECORD_CODES:
            why = f"the target refuses source offset {piece.first_offset} ff.: {error.message}"
            lane.park(why, error.fix)
            self._events.append(Parked(lane, lane.generation))
            self.denied(lane, error.code, why)
            return
        reasons = {index: f"{error.name}: {words or result.message}" for index, words in result.record_errors}
        try:
            records = quarantine.records_of(piece)
        except BatchError as problem:
            lane.park(f"the target refuses source offset {piece.first_offset} ff.: {error.message}", problem.fix)
            self._events.append(Parked(lane, lane.generation))
            return
        if len(records) == 1 and not reasons:
            reasons = {0: error.message}
        bad = [(records[i], reason) for i, reason in sorted(reasons.items()) if 0 <= i < len(records)]
        if bad:
            self._hold(lane, bad, error.fix)
        else:
            lane.narrow_to(len(records) // 2, piece.next_offset)
            self._events.append(LostTrack(lane, lane.generation))

    def over_limit(self, event: OverLimit) -> None:
        """Before anything was sent: the limit is known. It may have been raised since."""
        record, error = event.record, event.error
        self._ask_limit(
            event.lane, lambda: self._hold(event.lane, [(record, f"MESSAGE_TOO_LARGE: {error.message}")], error.fix)
        )

    def _ask_limit(self, lane: Lane, unchanged: Callable[[], None]) -> None:
        """The target's `max.message.bytes` may be another now: then the lane goes on by it."""
        client, topic, generation = self._target(), lane.spec.remote.topic, lane.generation

        def ask() -> int:
            configs = client.describe_topic_configs([topic])[topic]
            if isinstance(configs, BrokerError):
                if configs.retriable:
                    raise configs
                return lane.max_batch_bytes  # it may not be asked for: what is known counts
            entry = configs.get("max.message.bytes")
            return int(entry.value) if entry and entry.value else lane.max_batch_bytes

        def answered(limit: int | None, failure: HeliographError | None) -> None:
            if lane.generation != generation:
                return  # whatever leads here again asks again
            if limit is None:
                lane.write_trouble = f"{self._a.target.alias} cannot say how large a batch may be: {failure}"
                self._events.append(LostTrack(lane, generation))  # sent again, refused again, asked again
            elif limit != lane.max_batch_bytes:
                lane.max_batch_bytes = limit
                self._events.append(LostTrack(lane, generation))
            else:
                unchanged()

        self._beside().submit(ask, answered)

    def is_writing(self, lane: Lane) -> bool:
        """Whether something about it is on its way to be written down."""
        return self._writing[lane] > 0

    def strange(self, event: StrangeRecords) -> None:
        """Records of a shared topic whose labels say nothing that can be followed. No producer id counts them, so all
        that is due is to keep them and say so; the anchor goes on behind them."""
        anchor, strange = event.anchor, event.records
        policy, why = self.on.refused, strange[0].why.words
        offsets = [one.record.offset for one in strange]
        incident = self._incident(
            *(anchor, Kind.REFUSED, offsets[0], offsets[-1] + 1, policy, why), offsets=runs_of(offsets)
        )
        if policy == "stop":
            words = f"the record at offset {offsets[0]} of {anchor.spec.tp} cannot be put back: {why}"
            fix = "find out who else writes to this topic; or set on.refused = quarantine, and the others go on"
            self._write(anchor, incident, Park(words, fix))
            return
        kept = [self._kept(anchor, one.record, one.why.words, incident.at_ms) for one in strange]
        self._write(anchor, incident, SetAside(frozenset(offsets)), kept if policy == "quarantine" else ())

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
            self._write(lane, incident, Park(words, fix))
            return
        kept = [self._kept(lane, record, reason, incident.at_ms) for record, reason in bad]
        # The probe reads the incident and leaves these out (rule H).
        self._write(lane, incident, Probe(), kept if policy == "quarantine" else ())

    def _kept(self, lane: Lane, record: Record, reason: str, at_ms: int) -> Kept:
        spec = lane.spec
        return Kept(Place(spec.tp, spec.topic_id, record.offset, spec.remote), record, reason, at_ms)

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
        self, lane: Lane, incident: Incident, action: Action, keep: Sequence[Kept] = (), *, must: bool = True
    ) -> None:
        """`must`: without it the lane cannot go on."""
        known = self._told.setdefault(lane, set(lane.spec.told))
        identity = (str(incident.kind), incident.first, incident.policy)
        done = IncidentWritten(lane, lane.generation, action)
        if not incident.lost and not incident.held and identity in known:
            self._events.append(done)  # it lasts, and is written down: once is enough
            return
        if not must and self._writing[lane]:
            return  # it will be seen again
        self._writing[lane] += 1
        log.warning("incident", flow=self._a.flow, what=incident.words)

        def answered(_: object, error: HeliographError | None) -> None:
            self._writing[lane] -= 1
            if error is None:
                known.add(identity)
                self._events.append(done)
            elif must:
                self._events.append(IncidentWritten(lane, done.generation, self._unwritten(incident, error)))

        self._beside().submit(lambda: self._append(incident, keep), answered)

    def _append(self, incident: Incident, keep: Sequence[Kept]) -> None:
        """Beside the loop. What is kept first: an incident says that it is."""
        client, a = self._target(), self._a
        if keep:
            if self._quarantine is None:
                spec = annals.quarantine_spec(a.quarantine_topic, a.storage_factor)
                self._quarantine = Annals(client, spec)
            for records in _batches([quarantine.keep(a.source.alias, one) for one in keep]):
                self._quarantine.append(records)
        if self._log is None:
            self._log = IncidentLog(client, a.source.alias, a.incidents_topic, a.storage_factor)
        self._log.write(incident)

    def _unwritten(self, incident: Incident, error: HeliographError) -> Park:
        topic = str(error.context.get("topic", self._a.incidents_topic))
        fix = why_not(error, topic) if isinstance(error, WireError) else error.fix
        return Park(f"{incident.words}; it cannot be written down, so nothing is passed over: {error.message}", fix)

    def _beside(self) -> Errands:
        if self._errands is None:
            self._errands = errands = Errands(f"incidents-{self._a.flow}")
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
