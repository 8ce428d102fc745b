"""The handover between epochs against a model: connections that break, messages that are late, repeated, lost or of
another task, at every step. The real `Relay` on the driver's side, the real `Inbox` on the tasks'."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.flow.relay import Relay, Released, TaskKey
from heliograph.mirror.inbox import Inbox
from heliograph.mirror.protocol import DriverMessage, Finish, GaveUp, Go, Halt, Ready, TaskHello, ToTask, Turn

TASKS = 2


class Wire:
    """A connection: messages to the task in order, as far as it stays open."""

    def __init__(self, key: TaskKey) -> None:
        self.key, self.open = key, True
        self.to_task: deque[DriverMessage] = deque()
        self.to_driver: deque[Ready | GaveUp] = deque()

    def send(self, message: DriverMessage) -> None:
        if self.open:
            self.to_task.append(message)


@dataclass
class Model:
    relay: Relay = field(default_factory=Relay)
    tasks: dict[TaskKey, Task] = field(default_factory=dict)
    reading: list[Released] = field(default_factory=list)  # positions are read for these
    closing: list[Wire] = field(default_factory=list)  # ended, and not noticed by the driver yet
    epoch: int = 0
    revision: int = 0

    def turn(self) -> None:
        self.epoch += 1
        self.relay.turn_to(self.epoch, TASKS)

    def task(self, number: int, attempt: int) -> None:
        key = (self.epoch, number, attempt)
        if self.epoch and key not in self.tasks:
            self.tasks[key] = Task(self, key)

    def free(self, released: list[Released]) -> None:
        for one in released:
            earlier = [key for key, task in self.tasks.items() if task.connected and key[0] < one.key[0]]
            assert not any(self.tasks[key].wire in self.known for key in earlier), "an earlier task is connected"
        self.reading += released

    @property
    def known(self) -> list[object]:
        return list(self.relay._channels.values())


class Task:
    def __init__(self, model: Model, key: TaskKey) -> None:
        self.model, self.key = model, key
        self.inbox = Inbox(TaskHello("us->eu", *key))
        self.copies = self.finished = False
        self.gone = 0  # `Go`s that counted
        self.halted = -1
        self.connect()

    @property
    def connected(self) -> bool:
        return self.wire.open and not self.finished

    def connect(self) -> None:
        self.wire = Wire(self.key)
        self.model.relay.joined(self.key, self.wire)
        if self.inbox.waiting:
            self.wire.to_driver.append(self.inbox.ready())

    def ready(self) -> None:
        if not self.copies and not self.inbox.waiting and not self.finished:
            self.wire.to_driver.append(self.inbox.ready())

    def give_up(self) -> None:
        if (word := self.inbox.give_up()) is not None:
            self.wire.to_driver.append(word)
            self.copies = True

    def receive(self, to: TaskKey | None = None) -> None:
        if not self.wire.open or not self.wire.to_task:
            return
        message = self.inbox.accept(ToTask(to or self.key, self.wire.to_task.popleft()))
        if to is not None:
            assert message is None, "a message for another attempt counts for nothing"
        if isinstance(message, Go):
            assert not self.copies, "a partition that copies is moved back"
            self.copies = True
            self.gone += 1
        elif isinstance(message, Halt):
            assert message.revision >= self.halted, "an older state replaces a newer one"
            self.halted = message.revision
        elif isinstance(message, Finish):
            self.finished = True
            self.drop()

    def drop(self) -> None:
        """The connection fails; the driver notices later."""
        if self.wire.open:
            self.wire.open = False
            self.model.closing.append(self.wire)


def drive(model: Model, what: str, number: int, pick: int) -> None:
    tasks = list(model.tasks.values())
    task = tasks[pick % len(tasks)] if tasks else None
    if what == "turn":
        model.turn()
    elif what == "task":
        model.task(number % TASKS, pick % 2)
    elif what == "notice" and model.closing:
        wire = model.closing.pop(pick % len(model.closing))
        model.free(model.relay.left(wire.key, wire)[1])
    elif what == "send" and model.reading:
        one = model.reading.pop(pick % len(model.reading))
        for _ in range(1 + number % 2):  # once, or as a careless driver might
            if number == 3 or model.relay.may_go(one):
                one.channel.send(Go(one.request))
    elif what == "halt":
        model.revision += 1
        model.relay.send_all(Halt(model.revision - number % 2 if model.revision > 1 else 1, []))
    elif what == "end":
        model.relay.send_all(Turn() if number % 2 else Finish())
    elif task is not None:
        act(model, task, what, number)


def act(model: Model, task: Task, what: str, number: int) -> None:
    if what == "ready":
        task.ready()
    elif what == "give up":
        task.give_up()
    elif what == "receive":
        task.receive()
    elif what == "misdirect":
        task.receive(to=(task.key[0], task.key[1], task.key[2] + 7))
    elif what == "repeat" and task.wire.to_task:
        task.wire.to_task.append(task.wire.to_task[0])  # late, and twice
    elif what == "drop":
        task.drop()
    elif what == "reconnect" and not task.wire.open and not task.finished:
        task.connect()
    elif what == "deliver" and task.wire.to_driver:
        word = task.wire.to_driver.popleft()
        hears = model.relay.ready if isinstance(word, Ready) else model.relay.gave_up
        model.free(hears(task.key, word.request, task.wire))


WHAT = [
    *("turn", "task", "notice", "send", "halt", "end", "ready", "give up", "receive", "misdirect", "repeat", "drop"),
    *("reconnect", "deliver"),
]
steps = st.lists(
    st.tuples(st.sampled_from(WHAT), st.integers(0, 3), st.integers(0, 7)),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(steps)
def test_no_copying_partition_is_moved_back_whatever_comes_when(done: list[tuple[str, int, int]]) -> None:
    model = Model()
    model.turn()
    model.task(0, 0)
    for step in done:
        drive(model, *step)
    assert all(task.gone <= 1 for task in model.tasks.values())


@settings(max_examples=300, deadline=None)
@given(steps)
def test_whatever_went_wrong_before_every_task_copies_or_ends_in_the_end(done: list[tuple[str, int, int]]) -> None:
    """And the driver knows exactly the tasks that are connected."""
    model = Model()
    model.turn()
    for number in range(TASKS):
        model.task(number, 0)
    for step in done:
        drive(model, *step)
    for _ in range(12):  # from here on nothing fails, and nobody gives up
        for task in list(model.tasks.values()):
            if not task.finished and not task.wire.open:
                task.connect()
            if not task.inbox.waiting:
                task.ready()
            while task.wire.to_driver:
                act(model, task, "deliver", 0)
            while task.wire.open and task.wire.to_task:
                task.receive()
        while model.closing:
            drive(model, "notice", 0, 0)
        while model.reading:
            drive(model, "send", 0, 0)
    live = [task for task in model.tasks.values() if not task.finished]
    newest = [task for task in live if task.key[0] == model.epoch]
    there = {task.key[1] for task in newest}
    if len(there) == TASKS:  # the whole epoch is there: the earlier ones have ended
        assert live == newest
        assert all(task.copies for task in newest)
    assert set(model.known) == {task.wire for task in live}
