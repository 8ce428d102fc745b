"""At most one process copies a flow, whatever order beats, looks, freezes and kills come in; and one does in the end.

A process that leads is taken to copy until it is killed, frozen or yields, and for MUTE_S longer: that is when its
tasks stop sending. Freezes are longer than the lease or shorter; a process that runs may be unable to write beats
(`mute`), or to read as well (`cut`).
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.flow.presence import GONE_S
from heliograph.mirror.link import MUTE_S
from tests.leases import Log, Process

BEAT_S = 5.0
ACTIONS = ("look", "look", "look", "beat", "kill", "freeze", "wake", "resign", "cut", "mute", "mend", "pass")
SECONDS = (1, 4, 11)
STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(ACTIONS)),
    max_size=80,
)


class World:
    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.log = Log(patched)
        self.processes = [Process(self.log) for _ in range(3)]
        self.frozen: set[Process] = set()
        self.sent_until: dict[Process, float] = {}  # until when its tasks may send

    def alive(self, one: Process) -> bool:
        return one.name not in self.log.dead and one not in self.frozen

    def act(self, number: int, action: str) -> None:
        one = self.processes[number]
        if action == "pass":
            for _ in range(SECONDS[number]):
                self.second()
                self.check()
        elif action in ("cut", "mute", "mend"):
            one.cannot_write, one.cannot_read = action != "mend", action == "cut"
        elif action == "freeze":
            self.frozen.add(one)
        elif action == "kill":
            self.log.dead.add(one.name)
        elif action == "wake":
            if one in self.frozen and one.name not in self.log.dead:
                self.frozen.discard(one)
                one.look()  # a process that was silent reads leases first (`flow.lease`)
        elif self.alive(one):
            getattr(one, action)()
        self.note()

    def second(self) -> None:
        self.log.now += 1.0
        for each in self.processes:  # who runs beats and looks in time
            if self.alive(each):
                if int(self.log.now) % BEAT_S == 0:
                    each.beat()
                each.look()
        self.note()

    def note(self) -> None:
        for each in self.processes:
            if each.leads and self.alive(each):
                self.sent_until[each] = self.log.now + MUTE_S

    def sending(self) -> list[str]:
        return [one.name for one in self.processes if one.leads and self.alive(one)]

    def check(self) -> None:
        leads = [one for one in self.processes if one.leads and self.alive(one)]
        assert len(leads) <= 1, [one.name for one in leads]
        for one in leads:
            others = [each for each, until in self.sent_until.items() if each is not one and until > self.log.now]
            others = [each for each in others if not self.alive(each)]
            assert not others, f"{one.name} leads while tasks of {[each.name for each in others]} may send"


@settings(max_examples=300, deadline=None)
@given(steps=STEPS)
def test_no_two_processes_copy_at_once_and_one_does_in_the_end(steps):
    with pytest.MonkeyPatch.context() as patched:
        world = World(patched)
        for number, action in steps:
            world.act(number, action)
            world.check()
        living = [one for one in world.processes if world.alive(one)]
        for number in range(len(world.processes)):
            world.act(number, "mend")
        for _ in range(int(4 * GONE_S)):
            world.act(0, "pass")
        assert bool(world.sending()) == bool(living)
