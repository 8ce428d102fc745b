"""The course of a storm: load and groups begin, faults run in lanes, load ends, both sides are judged."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaException

from heliograph.errors import EmbeddedError
from storm.clusters import TOPICS, Side, TopicShape
from storm.faults import Faults
from storm.groups import Groups
from storm.load import Load
from storm.logs import consumer, ends, last_records, read_checkpoints, read_copies, read_source
from storm.mirror import Mirror
from storm.plan import Fault
from storm.report import Summary, kinds
from storm.verify import Topic, check, count_exact, repeated

FIRST_S = 180.0  # for the first copies after the start
LEVEL_LIMIT_S = 300.0  # waited longer than the bound, to tell what is late from what is lost
GROUPS_SETTLE_S = 12.0  # several rounds of checkpoints and group offsets
TELL_EVERY_S = 5.0
ABANDON_S = 20.0

Say = Callable[[str], None]


class Course:
    def __init__(
        self, sides: Mapping[str, Side], mirror: Mirror, *, seed: int, rate: float, old: bool, say: Say
    ) -> None:
        self._sides, self._mirror, self._say = sides, mirror, say
        self._old = old
        self._loads = {name: Load(side.client, TOPICS, rate=rate, old=old) for name, side in sides.items()}
        self._groups = {
            name: Groups(side, sides[side.other], self._loads[name], seed + place)
            for place, (name, side) in enumerate(sides.items())
        }
        self._faults = Faults(sides, self._loads, mirror)
        self._readers: dict[str, Consumer] = {name: consumer(side.client) for name, side in sides.items()}
        self._began = time.monotonic()
        self._threads: list[threading.Thread] = []

    # Until the last fault

    def begin(self) -> None:
        """Load and groups run, and every topic has a copy."""
        for name in self._sides:
            self._loads[name].start()
            self._groups[name].start()
        deadline = time.monotonic() + FIRST_S
        while not self._begun():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no copies after {FIRST_S:g} s:\n{self._mirror.main.words()}")
            time.sleep(0.5)

    def _begun(self) -> bool:
        try:
            return all(
                sum(ends(self._readers[side.other], side.remote(shape.name)).values()) > 0
                for side in self._sides.values()
                for shape in TOPICS
            )
        except KafkaException:
            return False

    def run(self, lanes: Mapping[str, list[Fault]]) -> None:
        for lane, faults in lanes.items():
            thread = threading.Thread(target=self._faults.run_lane, args=(faults,), name=lane, daemon=True)
            thread.start()
            self._threads.append(thread)
        total = sum(map(len, lanes.values()))
        while any(thread.is_alive() for thread in self._threads):
            self._require_links()
            self._tell(total)
            self._threads[0].join(0.01)
            deadline = time.monotonic() + TELL_EVERY_S
            while time.monotonic() < deadline and any(thread.is_alive() for thread in self._threads):
                time.sleep(0.2)

    def _require_links(self) -> None:
        """Without them nothing is copied, and it is no fault of the mirror's."""
        for side in self._sides.values():
            if not all(link.alive for link in side.links.all()):
                raise EmbeddedError(f"a link of {side.name}, through which the mirror reaches it, has died by itself")

    def _tell(self, total: int) -> None:
        done, memory = self._faults.done, self._mirror.memory
        records = sum(load.acknowledged() for load in self._loads.values())
        count = sum(done.by_kind.values()) + sum(done.skipped.values())
        self._say(
            f"{count}/{total} faults ({kinds(done.by_kind)}), {records:,} records, "
            f"lag {self._lag()}, task {memory.task:.0f} MB, driver {memory.driver:.0f} MB"
        )

    def _lag(self) -> str:
        """Of the topics that are never recreated, by ends; a broker that is down leaves it unknown."""
        lag = 0
        for side in self._sides.values():
            copied = 0
            for shape in TOPICS:
                if not shape.recreated:
                    lag += sum(self._loads[side.name].topics[shape.name].ends)
                    try:
                        copied += sum(_ends_now(self._readers[side.other], side.remote(shape.name)).values())
                    except KafkaException:
                        return "unknown"
            lag -= copied
        return f"{max(lag, 0):,}"

    def abandon(self) -> None:
        """Every hold ends, so that brokers and permissions are given back before they are torn down."""
        self._faults.stopping.set()
        for groups in self._groups.values():
            groups.stopping.set()
        for load in self._loads.values():
            load.stopping.set()
        deadline = time.monotonic() + ABANDON_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    # Afterwards

    def settle(self, summary: Summary) -> None:
        """No more load; how long it takes until both sides are level; groups placed for the last time."""
        for load in self._loads.values():
            load.stop()
        last = self._faults.done.last_ended or time.monotonic()
        summary.level_s = self._wait_level(last)
        for groups in self._groups.values():
            groups.stop()
            groups.commit_last()
        time.sleep(GROUPS_SETTLE_S)
        for groups in self._groups.values():
            for group in groups.names:
                if not groups.look(group):
                    summary.trouble.append(f"the offsets of {group} could not be read on the target")

    def _wait_level(self, since: float) -> float | None:
        told = 0.0
        while time.monotonic() - since < LEVEL_LIMIT_S:
            try:
                missing = [
                    side.remote(shape.name)
                    for side in self._sides.values()
                    for shape in TOPICS
                    if not self._level(side, shape)
                ]
            except (KafkaException, TimeoutError) as error:
                missing = [str(error)]
            if not missing:
                return time.monotonic() - since
            if time.monotonic() - told > TELL_EVERY_S:
                told = time.monotonic()
                self._say(f"{told - since:.0f} s after the last fault: not level yet: {', '.join(missing)}")
            time.sleep(0.3)
        return None

    def _level(self, side: Side, shape: TopicShape) -> bool:
        here, there = self._readers[side.name], self._readers[side.other]
        if shape.copies:
            return sum(ends(there, side.remote(shape.name)).values()) >= sum(ends(here, shape.name).values())
        copies = last_records(there, side.remote(shape.name))
        return all(
            last is None or copies.get(partition) == last for partition, last in last_records(here, shape.name).items()
        )

    def judge(self, summary: Summary) -> None:
        """Read everything on both sides and hold it against what was acknowledged and committed."""
        with ThreadPoolExecutor(1) as pool:  # off the main thread: a Ctrl-C is heard
            for side in self._sides.values():
                pool.submit(self._judge_side, side, summary).result()
        done = self._faults.done
        summary.faults, summary.skipped = dict(done.by_kind), dict(done.skipped)
        summary.notes += done.words
        summary.trouble += done.trouble
        summary.trouble += [f"a process ended by itself: {words}" for words in self._mirror.ended.words]
        if refused := self._mirror.ended.refused:
            summary.notes.append(f"{len(refused)} starts were refused while a permission was withdrawn, and repeated")
        memory = self._mirror.memory
        summary.task_mb, summary.driver_mb, summary.jvm_mb = memory.task, memory.driver, memory.jvm
        summary.minutes = (time.monotonic() - self._began) / 60

    def _judge_side(self, side: Side, summary: Summary) -> None:
        target, groups, loads = self._sides[side.other], self._groups[side.name], self._loads[side.name].topics
        groups.add_checkpoints(read_checkpoints(target.client, f"{side.name}.checkpoints.internal"))
        summary.commits += groups.commits
        for shape in TOPICS:
            self._say(f"reading {side.name}: {shape.name} and its copy")
            load, remote = loads[shape.name], side.remote(shape.name)
            past = self._faults.past[side.name] if shape.recreated else {}
            topic = Topic(
                f"{side.name}: {shape.name}",
                f"{target.name}: {remote}",
                sources={**past, load.generation: read_source(side.client, shape.name, load.generation)},
                copies=read_copies(target.client, remote),
                divided=bool(shape.copies),
                may_repeat=self._old,
                acknowledged=load.acknowledged(),
                placements=groups.placements[remote],
            )
            summary.findings += check(topic)
            if times := repeated(topic):
                summary.notes.append(f"{times:,} records are in {topic.name} more than once: the load sent them twice")
            summary.acknowledged += load.count()
            summary.unanswered += load.unknown
            summary.generations += len(past)
            summary.placements += len(topic.placements)
            summary.copied += sum(len(copy.offsets) for copy in topic.copies.values())
            exact, all_of_them = count_exact(topic)
            summary.groups_at_first_unread += exact
            summary.groups_at_end += all_of_them


def _ends_now(reader: Consumer, topic: str) -> dict[int, int]:
    """As the progress line asks: not for long."""
    return ends(reader, topic, timeout_s=1.0)
