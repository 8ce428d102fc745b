"""Flow leases against a model: processes with clocks an hour apart that start, freeze, wake up, are cut off and killed.

All run the real `Presence`, `Tenure`, `Lease` and `Watch` over one log in memory and a clock that the test turns. The
clock of each process is its own: two clocks are never compared.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.batch import Record
from heliograph.errors import Unreachable
from heliograph.flow import presence as presences
from heliograph.flow.changes import digest
from heliograph.flow.kernel import Where
from heliograph.flow.lease import Lease
from heliograph.flow.presence import BEAT_S, GONE_S, LAPSE_S, Holder, Moment, Presence, Watch, holder_of, process_of
from heliograph.flow.tenure import APPLY_S, Tenure
from heliograph.types import Cluster, Flow

FLOW = Flow(Cluster("us"), Cluster("eu"))
FLOWS = [FLOW, replace(FLOW, topics=("orders",)), replace(FLOW, topics=("clicks",))]


@dataclass
class World:
    """The partition of the positions topic where leases stand, and the time."""

    now: float = 10_000.0
    log: list[Record] = field(default_factory=list)
    found: dict[str, Holder | None] = field(default_factory=dict)
    position_at: int = 0  # record offset of the operator's last change of positions

    def append(self, key: bytes, value: bytes | None) -> None:
        self.log.append(Record(len(self.log), 0, key, value, ()))
        process = process_of(key, FLOW)
        if process is not None:
            self.found[process] = holder_of(process, value)

    def holders(self) -> list[Holder]:
        return [one for one in self.found.values() if one is not None]


class Topic:
    """A process's way to the log; cut off, it raises."""

    partitions = 1

    def __init__(self, world: World) -> None:
        self.world, self.reachable = world, True

    def look(self) -> bool:
        return True

    def append(self, partition: int, pairs: list[tuple[bytes, bytes | None]]) -> None:
        if not self.reachable:
            raise Unreachable("cut off")
        for key, value in pairs:
            self.world.append(key, value)


class Process:
    def __init__(self, world: World, flow: Flow, skew_s: float) -> None:
        self.world, self.skew_s, self.frozen, self.ended = world, skew_s, False, False
        self.topic = Topic(world)
        self.read_to = self.positions_to = 0
        self.presence = Presence(flow, None, now=self.moment)  # type: ignore[arg-type]
        self.presence._log = self.topic  # type: ignore[assignment]
        self.presence.process = uuid.uuid4().hex
        self.presence._key = presences._key(flow, self.presence.process)
        self.presence._where = Where(f"machine {self.presence.process}", "pid:[1]", 1)
        self.presence.since_ms = int((world.now + skew_s) * 1000)
        self.tenure = Tenure(self.presence, clock=lambda: world.now)
        self.tenure.let_go = self.let_go
        self.lease = Lease(self.presence, self.tenure, look=self.look, reread=self.reread, now=self.moment)
        self.read()
        self.tenure.claim(supersede=True)
        self.lease.begin()
        self.presence.beat()  # before it reads positions
        self.reread()
        self.beat_due = world.now + BEAT_S

    def moment(self) -> Moment:
        return Moment(self.world.now, self.world.now + self.skew_s)

    def let_go(self, state: str, why: str) -> bool:
        self.ended = True
        self.world.append(self.presence._key, None)
        return True

    def read(self) -> None:
        if not self.topic.reachable:
            raise Unreachable("cut off")
        news, self.read_to = self.world.log[self.read_to :], len(self.world.log)
        for record in news:
            self.tenure.hear(record)

    def look(self) -> None:
        self.read()
        self.tenure.judge()

    def reread(self) -> None:
        self.positions_to = len(self.world.log)

    @property
    def runs(self) -> bool:
        return not (self.frozen or self.ended)

    @property
    def writes_positions(self) -> bool:
        """As its plan has them: a plan is made only while the lease is held."""
        if not self.runs:
            return False
        try:
            return self.lease.holds()
        except Unreachable:
            return not self.lease.frozen and self.topic.reachable

    def step(self) -> None:
        if not self.runs:
            return
        try:
            self.look()
            if not self.ended and self.world.now >= self.beat_due:
                self.beat_due = self.world.now + BEAT_S
                self.lease.beat()
        except Unreachable:
            pass


class Model:
    def __init__(self) -> None:
        self.world = World()
        self.processes: list[Process] = []

    def settles(self, flow: Flow) -> bool:
        """What `tenure.settle` does at a start: whether no process runs the flow otherwise. Takes its time."""
        return not self.watch(lambda one: one.digest != digest(flow))

    def watch(self, concerns: Any) -> bool:
        watch, at = Watch(), self.world.now
        found = [one for one in self.world.holders() if concerns(one)]
        while not (sure := watch.saw(found, at)) and not all(watch.gone(one, at) for one in found):
            self.tick(1.0)
            at = self.world.now
            found = [one for one in self.world.holders() if concerns(one)]
        for one in [] if sure else found:
            self.world.append(presences._key(FLOW, one.process), None)
        return bool(sure)

    def tick(self, seconds: float) -> None:
        until = self.world.now + seconds
        while self.world.now < until:
            self.world.now += 1.0
            for one in self.processes:
                one.step()

    def start(self, flow: Flow, skew_s: float) -> None:
        if self.settles(flow):
            self.processes.append(Process(self.world, flow, skew_s))

    def set_positions(self) -> None:
        """An operator's `offsets set`: refused while a process beats."""
        if self.watch(lambda one: True):
            return
        self.world.append(b"a position", b"set")
        self.world.position_at = len(self.world.log)

    def check(self) -> None:
        """A process that writes positions has read them after the operator set them."""
        for one in self.processes:
            if one.writes_positions:
                assert one.positions_to >= self.world.position_at


skews = st.sampled_from([0.0, 3600.0, -3600.0, 17.0])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.integers(0, 2), skews),
        st.tuples(st.just("freeze"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("wake"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("kill"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("set"), st.just(0), st.just(0)),
        st.tuples(st.just("clock"), st.integers(0, 3), skews),
        st.tuples(st.just("tick"), st.integers(1, 40), st.just(0)),
    ),
    max_size=14,
)


def act(model: Model, what: str, which: int, value: float) -> None:
    if what == "start":
        model.start(FLOWS[which], value)
    elif what == "set":
        model.set_positions()
    elif what == "tick":
        model.tick(which)
    elif which < len(model.processes):
        one = model.processes[which]
        if what in ("freeze", "wake"):
            one.frozen = what == "freeze"
        elif what == "cut":
            one.topic.reachable = not one.topic.reachable
        elif what == "kill":
            one.ended = True
        else:
            one.skew_s = value


@settings(max_examples=100, deadline=None)
@given(steps)
def test_what_an_operator_set_is_read_before_a_process_that_slept_goes_on(
    done: list[tuple[str, int, float]],
) -> None:
    model = Model()
    for what, which, value in done:
        act(model, what, which, value)
        model.check()


@settings(max_examples=100, deadline=None)
@given(steps)
def test_two_configurations_never_run_for_good(done: list[tuple[str, int, float]]) -> None:
    model = Model()
    for what, which, value in done:
        act(model, what, which, value)
    for one in model.processes:  # from here on all that are left run undisturbed
        one.frozen, one.topic.reachable = False, True
    model.tick(2 * APPLY_S + 2 * GONE_S + LAPSE_S)
    left = [one for one in model.processes if one.runs]
    assert len({digest(one.presence.flow) for one in left}) <= 1
    assert all(one.lease.holds() for one in left)


@given(skews, skews)
def test_clocks_an_hour_apart_change_nothing(mine_s: float, theirs_s: float) -> None:
    """A process that beats is found, and one that does not is gone after the same time."""
    model = Model()
    model.start(FLOWS[0], theirs_s)
    model.tick(30)
    assert not model.settles(FLOWS[1])
    model.processes[0].ended = True  # killed
    began = model.world.now
    model.start(FLOWS[1], mine_s)
    assert len(model.processes) == 2
    assert model.world.now - began <= GONE_S + 1
    model.tick(3 * APPLY_S)
    assert model.processes[1].runs
