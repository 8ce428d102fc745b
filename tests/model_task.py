"""A real task (lanes, reading and appending side, probe, incident handler) over a model of two clusters with one
partition each. Sockets, threads and clocks are replaced, so a test decides what happens next and in which order.

The target follows Kafka's rules for idempotent producers, which are what exactly once rests on:
  - a batch is validated first, then its sequence is compared with what the broker remembers of the producer id;
  - a repeat of one of the last five batches is answered with the offsets of the first copy;
  - a broker that does not remember an id accepts any sequence. It forgets ids by the time in their records.
"""

from __future__ import annotations

import types
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from heliograph.batch import Header, Record, decode, encode
from heliograph.errors import ConnectionLost, HeliographError
from heliograph.mirror import append, fetch, incident_handler, incidents, task
from heliograph.mirror.assignment import Assignment, Coordinates, LaneSpec
from heliograph.mirror.incidents import Book
from heliograph.mirror.lane import Lane, State
from heliograph.mirror.positions import SEQUENCES, Position
from heliograph.mirror.producer_state import ProducerStateProbe
from heliograph.types import Cluster, Policies, TopicPartition
from heliograph.wire import Produced, ProducerState
from heliograph.wire.fetched import FetchAnswer, Fetched

TOPIC_ID, PRODUCER, NODE = uuid.UUID(int=7), 4711, 1
TP, REMOTE = TopicPartition("t", 0), TopicPartition("us.t", 0)
CLAIM = Position(0, PRODUCER, 0, 0, TOPIC_ID, 0)
INVALID_RECORD, NOT_ENOUGH_REPLICAS, OUT_OF_ORDER = 87, 19, 45
LATER = 1e12  # by this time every pause is over


class BlockingCalls:
    """Beside the loop: `work` makes a call, `settle` hands its answer to the loop, both when the test says so."""

    def __init__(self, name: str) -> None:
        self.todo: deque[tuple[Callable[[], Any], Callable[..., None]]] = deque()
        self.done: deque[tuple[Callable[..., None], Any, HeliographError | None]] = deque()

    def fileno(self) -> object:
        return self

    def submit(self, call: Callable[[], Any], done: Callable[..., None]) -> None:
        self.todo.append((call, done))

    def work(self, index: int = 0) -> None:
        if self.todo:
            index %= len(self.todo)
            call, done = self.todo[index]
            del self.todo[index]
            try:
                self.done.append((done, call(), None))
            except HeliographError as error:
                self.done.append((done, None, error))

    def settle(self, index: int = 0, *, keep: bool = False) -> None:
        """`keep`: the same answer comes once more later."""
        if self.done:
            index %= len(self.done)
            done, result, error = self.done[index]
            if not keep:
                del self.done[index]
            done(result, error)

    def close(self) -> None: ...


class Connection:
    round_trip_s = 0.1
    wants_write = False  # a request that the socket has not taken

    def __init__(self) -> None:
        self.sent: deque[Any] = deque()

    def version(self, api: str, *, at_most: int | None = None) -> int:
        return 17

    def send(self, request: Any, tag: object = None) -> None:
        self.sent.append(request)


class Brokers:
    """One broker that leads everything."""

    def __init__(self, cluster: Cluster, topics: Iterable[str], selector: Any, owner: Any) -> None:
        self.cluster, self.client, self.trouble, self.metadata = cluster, None, None, None
        self.owner = owner
        self.the_connection = Connection()
        self.errands = BlockingCalls(cluster.alias)

    def leader(self, tp: TopicPartition) -> int:
        return NODE

    def connection(self, key: int) -> Connection | None:
        return self.the_connection if key == NODE else None

    def out_of_reach(self, tp: TopicPartition, now: float) -> bool:
        return False

    def drop(self, node: int, error: HeliographError) -> None:
        self.the_connection = Connection()  # dialled again at once
        self.owner.lost(node, error)
        self.owner.opened(node, self.the_connection)

    def refresh(self) -> None: ...
    def watch(self, node: int) -> None: ...
    def tick(self, now: float) -> None: ...
    def close(self) -> None: ...


class Link:
    def __init__(self, *_: object) -> None:
        self.gone, self.may_send, self.may_write_positions = False, True, True

    def heard(self) -> list[Any]:
        return []

    def tell(self, message: object) -> bool:
        return True

    def close(self) -> None: ...


class Selector:
    def register(self, *_: object) -> None: ...
    def unregister(self, *_: object) -> None: ...
    def select(self, timeout: float) -> list[Any]:
        return []

    def close(self) -> None: ...


@dataclass
class TargetPartition:
    """Also the client that the probe asks."""

    alias = "eu"

    bad: set[int] = field(default_factory=set)  # source offsets of records that are refused
    log: list[int] = field(default_factory=list)  # source offsets, in the order in which they were stored
    batches: list[tuple[int, bytes]] = field(default_factory=list)  # (last offset, bytes)
    remembered: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))
    waiting: deque[bytes] = field(default_factory=deque)  # read from a socket that has ended, not worked on yet
    unreplicated: int = 0  # records that the leader has and the followers have not
    written: list[tuple[bytes, bytes]] = field(default_factory=list)  # incidents

    def append(self, batch: bytes) -> Produced:
        self.work_on_waiting()
        return self._append(batch)

    def work_on_waiting(self) -> None:
        while self.waiting:
            self._append(self.waiting.popleft())

    def _append(self, batch: bytes) -> Produced:
        header, records = Header.parse(batch), decode(batch)
        errors = tuple((i, "refused") for i, one in enumerate(records) if int(one.value or b"") in self.bad)
        if errors:
            return _answer(INVALID_RECORD, errors=errors)
        first, last = header.base_sequence, (header.base_sequence + header.last_offset_delta) % SEQUENCES
        for known_first, known_last, base in self.remembered:
            if (first, last) == (known_first, known_last):
                return _answer(0, base)
        if self.remembered and first != (self.remembered[-1][1] + 1) % SEQUENCES:
            return _answer(OUT_OF_ORDER)
        base = len(self.log)
        self.log += [int(one.value or b"") for one in records]
        self.batches.append((len(self.log) - 1, base.to_bytes(8, "big") + batch[8:]))
        self.remembered.append((first, last, base))
        return _answer(0, base)

    def forget(self) -> None:
        """The broker's check for expired producer ids: our records are older than `producer.id.expiration.ms`."""
        self.remembered.clear()

    # ---- what the probe asks

    def describe_producers(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, dict[int, ProducerState]]:
        known = {PRODUCER: ProducerState(0, self.remembered[-1][1], 0)} if self.remembered else {}
        return {tp: dict(known) for tp in tps}

    def list_offsets(self, tps: Iterable[TopicPartition], *, at: str) -> dict[TopicPartition, int]:
        offset = {"earliest": 0, "latest": len(self.log) - self.unreplicated, "log_end": len(self.log)}[at]
        return dict.fromkeys(tps, offset)

    def fetch(self, tp: TopicPartition, offset: int, *, max_bytes: int) -> Any:
        high_watermark = len(self.log) - self.unreplicated
        data = b"".join(data for last, data in self.batches if offset <= last < high_watermark)
        return types.SimpleNamespace(records=data, high_watermark=high_watermark)


class IncidentLog:
    def __init__(self, target: TargetPartition) -> None:
        self.target, self.book, self._read = target, Book("us"), 0

    def catch_up(self) -> None:
        for key, value in self.target.written[self._read :]:
            self.book.add(key, value)
        self._read = len(self.target.written)


class ModelTask:
    def __init__(
        self,
        patched: pytest.MonkeyPatch,
        batches: list[tuple[int, int]],
        target: TargetPartition | None = None,
        position: Position = CLAIM,
        **on: str,
    ) -> None:
        """`batches` of the source: (first offset, count)."""
        self.batches = [
            (first + count, encode([Record(first + i, 1000, None, b"%d" % (first + i), ()) for i in range(count)]))
            for first, count in batches
        ]
        self.target = target or TargetPartition()
        self.now = 1000.0
        patch_task(patched)
        spec = LaneSpec(TP, TOPIC_ID, REMOTE, position, 1 << 20)
        assignment = Assignment(
            *("us->eu", Cluster("us"), Cluster("eu"), "read_committed", "p", 1, "", 0, 1, 0, 60.0, (spec,)),
            Coordinates("127.0.0.1", 1, b""),
            incidents_topic="incidents",
            quarantine_topic="quarantine",
            on=Policies(**on),  # type: ignore[arg-type]
        )
        self.task = made = task.Task(assignment)
        made._freeze._clock = lambda: self.now
        made._freeze.passed()
        made._probe = ProducerStateProbe(assignment, self.target, sleep=lambda _: self.target.work_on_waiting())  # type: ignore[arg-type]
        made._probe._incidents = IncidentLog(self.target)  # type: ignore[assignment]
        made._incidents._append = lambda incident, keep: self.target.written.append(  # type: ignore[method-assign]
            (incidents.key_of("us", incident), incidents.encode(incident))
        )
        made._halts.active = True
        self.answers: deque[list[Produced]] = deque()  # on their way back to the task
        self.into.sent.clear()
        made._source.opened(NODE, self.into)  # type: ignore[arg-type]
        made._target.opened(NODE, self.out)  # type: ignore[arg-type]
        made._ask(made._lanes, at_first=True)

    # ---- what the test looks at

    @property
    def lane(self) -> Lane:
        return self.task._lanes[0]

    @property
    def probes(self) -> Any:
        return self.task._target.brokers.errands

    @property
    def writes(self) -> BlockingCalls:
        """Of incidents."""
        return self.task._incidents._beside()  # type: ignore[return-value]

    @property
    def out(self) -> Any:
        return self.task._target.brokers.the_connection  # type: ignore[attr-defined]

    @property
    def into(self) -> Any:
        return self.task._source.brokers.the_connection  # type: ignore[attr-defined]

    @property
    def end(self) -> int:
        return self.batches[-1][0]

    @property
    def copied(self) -> bool:
        lane = self.lane
        return lane.state is State.FLOWING and lane.acked.next_offset >= self.end and not lane.in_flight

    # ---- what may happen

    def fetch(self, batches: int = 1) -> None:
        """The source's broker answers the fetch that is under way, from the offset that it asks for."""
        puller = self.task._source._pullers[NODE]
        if not puller.outstanding:
            return
        want = puller.session._sent.get(TP)
        if want is None:
            self.task._source.received(NODE, None, FetchAnswer(0, 0, 5, []))
        else:
            data = b"".join([data for end, data in self.batches if end > want.offset][:batches])
            part = Fetched("", 0, 0, self.end, self.end, 0, (), data)
            self.task._source.received(NODE, None, FetchAnswer(0, 0, 5, [(TOPIC_ID, part)]))
        self.task._dispatch()

    def push(self) -> None:
        self.task._target.push(LATER)
        self.task._dispatch()

    def deliver(self) -> None:
        """The target works on the oldest request; the answer is on its way."""
        if self.out.sent:
            parts = self.out.sent.popleft()
            self.answers.append([self.target.append(bytes(data)) for _, _, data in parts])

    def refuse(self, error: int = NOT_ENOUGH_REPLICAS) -> None:
        """Not stored this time."""
        if self.out.sent:
            self.out.sent.popleft()
            self.answers.append([_answer(error)])

    def answer(self) -> None:
        if self.answers:
            self.task._target.received(NODE, None, self.answers.popleft())
            self.task._dispatch()

    def answer_notes(self) -> None:
        """The target stores what the task wrote down, in the oldest request."""
        parts = self.out.sent.popleft()
        self.task._target.received(NODE, None, [Produced(*tp, 0, 0, -1, -1, "", ()) for *tp, _ in parts])
        self.task._dispatch()

    def cut(self, delivered: int = 0, late: int = 0) -> None:
        """The connection ends: so many requests arrived before it, so many wait inside the broker, no answer comes."""
        for _ in range(delivered):
            self.deliver()
        for _ in range(late):
            if self.out.sent:
                self.target.waiting.extend(bytes(data) for _, _, data in self.out.sent.popleft())
        self.out.sent.clear()
        self.answers.clear()
        self.task._target.lost(NODE, ConnectionLost("cut"))
        self.task._target.opened(NODE, self.out)
        self.task._dispatch()

    def due(self) -> None:
        """Every pause before a probe is over."""
        self.task._ask_due(LATER)
        self.task._dispatch()

    def pause(self) -> None:
        self.task._halts.set([TP])
        self.task._dispatch()

    def resume(self) -> None:
        self.task._halts.set([])
        self.task._dispatch()

    def freeze(self, seconds: float = 60.0) -> None:
        """The process stands still, then goes on where it was."""
        self.now += seconds

    def turn(self) -> None:
        self.task._turn(self.now, self.now)

    def settle(self, calls: BlockingCalls, index: int = 0, *, keep: bool = False) -> None:
        calls.settle(index, keep=keep)
        self.task._dispatch()

    def run_calls(self) -> None:
        """Every blocking call that is asked for, one after the other."""
        while any(calls.todo or calls.done for calls in (self.probes, self.writes)):
            for calls in (self.probes, self.writes):
                calls.work()
                self.settle(calls)

    def step(self) -> None:
        """Everything goes on once."""
        self.turn()
        self.due()
        self.run_calls()
        for _ in range(2):  # the answer to a fetch that was sent before a reset is dropped, the next one is taken
            if not (self.lane.waiting or self.lane.in_flight):
                self.fetch()
        self.push()
        while self.out.sent or self.answers:
            self.deliver()
            self.answer()
            self.push()

    def finish(self, steps: int = 400) -> None:
        for _ in range(steps):
            if self.copied:
                return
            self.step()


def _answer(error: int, base: int = -1, errors: tuple[tuple[int, str], ...] = ()) -> Produced:
    return Produced(*REMOTE, error, base, -1, -1, "refused" if error else "", errors)


def patch_task(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(task, "Link", Link)
    patched.setattr(task, "selectors", types.SimpleNamespace(DefaultSelector=Selector))
    patched.setattr(append, "Brokers", Brokers)
    patched.setattr(fetch, "Brokers", Brokers)
    patched.setattr(append, "produce_request", lambda version, parts: parts)
    patched.setattr(append, "produced", lambda response: response)
    patched.setattr(incident_handler, "Errands", BlockingCalls)
