"""How each kind of fault is done, and undone. What happens when is `plan`'s affair."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import psutil
from confluent_kafka import ElectionType, KafkaException
from tests.broker.processes import Run
from tests.kit import wait_until

from heliograph.embedded import Broker, Cuts
from heliograph.errors import EmbeddedError
from storm.clusters import TOPICS, WITHDRAWN, Side, persist
from storm.load import Load
from storm.logs import read_source
from storm.mirror import Mirror
from storm.plan import Fault
from storm.verify import SourceLog

VICTIM_S = 120.0  # so long a fault waits for something to do it to, or for a process to start on a busy machine
LEAST_GAP_S = 0.2  # between the end of a fault and the next of its lane
CUT_BYTES = 60_000
COPYING_S = 60.0
SETTLE_S = 5.0  # a process is left alone so long after it has begun to copy
START_S = 30.0  # from the moment a process is started until it has asked for every topic
One = TypeVar("One")


@dataclass
class Done:
    """What was done so far; read by the progress line."""

    by_kind: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    words: list[str] = field(default_factory=list)  # of faults that could not be done or undone
    trouble: list[str] = field(default_factory=list)  # what the mirror should have refused
    last_ended: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, fault: Fault, skipped: str = "") -> None:
        with self.lock:
            (self.skipped if skipped else self.by_kind)[fault.kind] += 1
            self.last_ended = time.monotonic()
            if skipped:
                self.words.append(f"{fault.kind} {fault.number} on {fault.side} was not done: {skipped}")


class Faults:
    """Does faults to the two sides and to the mirror. Lanes call it at the same time."""

    def __init__(self, sides: Mapping[str, Side], loads: Mapping[str, Load], mirror: Mirror) -> None:
        self._sides, self._loads, self._mirror = sides, loads, mirror
        self.stopping = threading.Event()  # ends every hold: what a fault took away is given back at once
        self.done = Done()
        self.past: dict[str, dict[int, dict[int, SourceLog]]] = {side: {} for side in sides}  # deleted generations
        self._kinds: dict[str, Callable[[Fault], None]] = {
            "cut": self._cut,
            "refuse": self._refuse,
            "task-kill": self._kill_tasks,
            "task-freeze": self._freeze_task,
            "driver-freeze": self._freeze_driver,
            "process-kill": self._kill_process,
            "second-process": self._second_process,
            "other-file": self._other_file,
            "broker-kill": self._kill_broker,
            "broker-freeze": self._freeze_broker,
            "leader-move": self._move_leaders,
            "topic-recreate": self._recreate_topic,
            "permission": self._withdraw_permission,
        }

    def run_lane(self, faults: Sequence[Fault]) -> None:
        began = time.monotonic()
        for fault in faults:
            if self.stopping.wait(max(LEAST_GAP_S, began + fault.at_s - time.monotonic())):
                return
            try:
                self._kinds[fault.kind](fault)
            except (TimeoutError, KafkaException, EmbeddedError, psutil.Error, OSError) as error:
                self.done.note(fault, skipped=f"{type(error).__name__}: {str(error)[:300]}")
            else:
                self.done.note(fault)

    # Connections

    def _cut(self, fault: Fault) -> None:
        link = pick(self._sides[fault.side].links.all(), fault.draw)
        if fault.variant < 0.3:
            link.cut()
            return
        # Somewhere inside a request or an answer. An idle link may not carry so much: then at once, after a while.
        link.cut_after(Cuts(seed=fault.number, low_bytes=1, high_bytes=int(CUT_BYTES * fault.variant), limit=1))
        deadline = time.monotonic() + 2
        while not link.counts().cuts and time.monotonic() < deadline:
            time.sleep(0.02)
        link.cut_after(None)
        if time.monotonic() >= deadline:
            link.cut()

    def _refuse(self, fault: Fault) -> None:
        link = pick(self._sides[fault.side].links.all(), fault.draw)
        link.refuse()
        try:
            link.cut()
            self.stopping.wait(fault.hold_s)
        finally:
            link.refuse(False)

    # Tasks

    def _tasks(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        wait_until(lambda: found.extend(self._mirror.workers()) or found, what="a task", timeout_seconds=VICTIM_S)
        return sorted(found, key=lambda one: one.pid)

    def _kill_tasks(self, fault: Fault) -> None:
        tasks = self._tasks()
        victims = {pick(tasks, one) for one in ((fault.draw, fault.variant) if fault.variant < 0.3 else (fault.draw,))}
        for one in victims:
            one.kill()

    def _freeze_task(self, fault: Fault) -> None:
        self._freeze([pick(self._tasks(), fault.draw)], fault.hold_s)

    def _freeze(self, processes: Sequence[psutil.Process], hold_s: float) -> None:
        for one in processes:
            one.send_signal(signal.SIGSTOP)
        try:
            self.stopping.wait(hold_s)
        finally:
            for one in processes:
                try:
                    one.send_signal(signal.SIGCONT)
                except psutil.NoSuchProcess:
                    continue

    # Processes

    def _copying(self, fault: Fault) -> Run:
        """The main process, once it has tasks; in three of four faults once it has copied records too."""
        with self._mirror.lock:
            run = self._mirror.main
        wait_until(lambda: run.workers(), what=f"tasks of {run.folder.name}", timeout_seconds=VICTIM_S)
        if fault.draw * 4 % 1 >= 0.25:
            deadline = time.monotonic() + COPYING_S
            while time.monotonic() < deadline and not any(int(one.get("records") or 0) for one in run.flows()):
                self.stopping.wait(0.2)
            self.stopping.wait(SETTLE_S)
        return run

    def _freeze_driver(self, fault: Fault) -> None:
        run = self._copying(fault)
        workers = {one.pid for one in run.workers()}
        below = [one for one in run.family() if one.pid not in workers and one.name() == "java"]
        self._freeze([run.process, *(below if fault.variant < 0.5 else [])], fault.hold_s)

    def _kill_process(self, fault: Fault) -> None:
        run = self._copying(fault)
        with self._mirror.lock:
            if run is not self._mirror.main:
                raise TimeoutError(f"{run.folder.name} had ended by itself")
            self._mirror.kill(run)
            self.stopping.wait(fault.hold_s * fault.variant)
            self._mirror.restart()

    def _second_process(self, fault: Fault) -> None:
        """One process copies and a second stands by for a while; then either goes, in order or not."""
        first = self._copying(fault)
        second = self._launch(self._mirror.file)
        self.stopping.wait(fault.hold_s)
        with self._mirror.lock:
            leaving, self._mirror.main = (first, second) if fault.draw < 0.5 else (second, first)
            self._end(leaving, fault.variant < 0.5)

    def _other_file(self, fault: Fault) -> None:
        """Without --take-over it is refused and nothing changes; with it the first lets go, and ends later."""
        first = self._copying(fault)
        other = next(name for name in self._mirror.files if name != self._mirror.file)
        if fault.variant < 0.4:
            self._refused(self._mirror.launch(other))
            return
        with self._mirror.lock:  # from here on the first may end by itself
            second = self._mirror.launch(other, "--take-over")
            self._mirror.main, self._mirror.file = second, other
        try:
            wait_until(lambda: second.workers(), what="tasks after the take-over", timeout_seconds=VICTIM_S)
            self.stopping.wait(fault.hold_s)
        finally:
            self._end(first, fault.draw < 0.5)

    def _refused(self, run: Run) -> None:
        try:
            code = run.wait_ended(VICTIM_S)
        except psutil.TimeoutExpired:
            code = None
            self._mirror.kill(run)
        if code != 2:
            self.done.trouble.append(f"{run.folder.name}: another file was not refused (exit {code}): {run.words(5)}")

    def _launch(self, file: str, *arguments: str) -> Run:
        """One more process, once it copies or stands by; killed if it does neither."""
        run = self._mirror.launch(file, *arguments)
        try:
            run.wait(lambda: run.workers() or _stands_by(run), what="tasks or standby", timeout_seconds=VICTIM_S)
        except (TimeoutError, AssertionError) as error:
            if run.process.poll() is None:
                self._mirror.kill(run)
            raise TimeoutError(str(error)) from error
        return run

    def _end(self, run: Run, in_order: bool) -> None:
        if run.process.poll() is not None:
            return
        if in_order:
            run.stop()
        else:
            self._mirror.kill(run)

    # Brokers

    def _broker(self, fault: Fault) -> Broker:
        return pick(self._sides[fault.side].kafka.brokers, fault.draw)

    def _kill_broker(self, fault: Fault) -> None:
        with self._sides[fault.side].lock:
            broker = self._broker(fault)
            broker.kill()
            self.stopping.wait(fault.hold_s)
            restart(broker)

    def _freeze_broker(self, fault: Fault) -> None:
        with self._sides[fault.side].lock:
            broker = self._broker(fault)
            broker.pause()
            try:
                self.stopping.wait(fault.hold_s)
            finally:
                broker.resume()

    def _move_leaders(self, fault: Fault) -> None:
        side = self._sides[fault.side]
        with side.lock:
            broker = self._broker(fault)
            broker.stop()
            self.stopping.wait(fault.hold_s)
            restart(broker)
            admin = side.admin()
            persist(lambda: admin.elect_leaders(ElectionType.PREFERRED, None).result(20), what="a preferred election")

    # Topics and permissions

    def _recreate_topic(self, fault: Fault) -> None:
        """What the source held is read first: of a deleted generation the copy may lack the tail, and nothing else."""
        side = self._sides[fault.side]
        shape = next(one for one in TOPICS if one.recreated)
        with side.lock, self._loads[fault.side].paused(shape.name) as load:
            self.past[fault.side][load.generation] = read_source(side.client, shape.name, load.generation)
            side.recreate(shape, fault.hold_s)
            load.begin_generation()

    def _withdraw_permission(self, fault: Fault) -> None:
        side = self._sides[fault.side]
        permission = pick(WITHDRAWN, fault.draw)
        self._mirror.withdrawn_until = time.monotonic() + fault.hold_s + START_S
        with side.lock:
            side.withdraw(permission)
        try:
            self.stopping.wait(fault.hold_s)
        finally:
            persist(lambda: side.allow([permission]), what=f"{permission[2]} on {side.name}")


def pick(several: Sequence[One], draw: float) -> One:
    return several[min(int(draw * len(several)), len(several) - 1)]


def restart(broker: Broker) -> None:
    """A broker on a busy machine may take its time, and is needed at the end whatever happened."""
    try:
        broker.start(120)
    except EmbeddedError:
        broker.kill()
        broker.start(120)


def _stands_by(run: Run) -> bool:
    return bool(run.flows()) and all(one["state"] == "standby" for one in run.flows())
