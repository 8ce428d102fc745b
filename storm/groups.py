"""Consumer groups of one side: they commit on the source during the storm, and where the mirror puts them is noted.

What a group has read of a partition is what it committed, and commits only go forward, so `read` may be asked at any
later time: it never says less than was true when the mirror looked. An attempt counts as a commit, because one without
an answer may have been made.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.kit import wait_until

from storm.clusters import Side
from storm.load import Load, TopicLoad
from storm.logs import Checkpoint, consumer, group_offsets
from storm.verify import Placement, Read

GROUPS = 6
COMMIT_EVERY_S = 0.25
LOOK_EVERY_S = 7.0
LAST_COMMIT_S = 60.0


class Ledger:
    """What each group has read: by group and topic, by source partition."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: dict[tuple[str, str], dict[int, Read]] = defaultdict(dict)

    def note(self, group: str, topic: str, partition: int, read: Read) -> None:
        with self._lock:
            self._read[group, topic][partition] = read

    def read(self, group: str, topic: str) -> dict[int, Read]:
        with self._lock:
            return dict(self._read[group, topic])

    def committed(self, group: str, topic: str, partition: int, generation: int) -> int:
        with self._lock:
            read = self._read[group, topic].get(partition)
            return read.offset if read is not None and read.generation == generation else 0


@dataclass(frozen=True, slots=True)
class Commit:
    group: str
    load: TopicLoad


class Groups:
    """The groups of one side. They have no members: offsets are committed as a tool would, the mirror may sync them."""

    def __init__(self, side: Side, target: Side, load: Load, seed: int) -> None:
        self._side, self._target, self._load = side, target, load
        self._dice = random.Random(seed)
        self.ledger = Ledger()
        self.names = [f"readers-{side.name}-{n}" for n in range(GROUPS)]
        self.placements: dict[str, list[Placement]] = defaultdict(list)
        self.commits = 0
        self._consumers: dict[str, Consumer] = {}
        self.stopping = threading.Event()
        work: list[Callable[[], None]] = [self._commit_forever, self._look_forever]
        self._threads = [threading.Thread(target=one, name=f"groups-{side.name}", daemon=True) for one in work]

    def start(self) -> None:
        """Every group has an offset in every partition before the storm begins."""
        for group in self.names:
            settings: dict[str, object] = {"socket.timeout.ms": 10_000}
            self._consumers[group] = consumer(self._side.client, group, **settings)
            for load in self._load.topics.values():
                self._until_committed(Commit(group, load), lambda _group, _end, before: before)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join()

    def commit_last(self) -> None:
        """Once more, with an answer: half of the groups at the end, the others anywhere."""

        def last(number: int, end: int, before: int) -> int:
            return end if number % 2 else self._dice.randint(before, max(before, end))

        for group in self.names:
            for load in self._load.topics.values():
                self._until_committed(Commit(group, load), last)
        for one in self._consumers.values():
            one.close()

    def _until_committed(self, commit: Commit, choose: Callable[[int, int, int], int]) -> None:
        what = f"a commit of {commit.group} on {self._side.name}"
        wait_until(lambda: self._commit(commit, choose), what=what, timeout_seconds=LAST_COMMIT_S, every_seconds=0.2)

    def _commit(self, commit: Commit, choose: Callable[[int, int, int], int]) -> bool:
        """All partitions of a topic at once. False: no answer, or a refusal."""
        number, load = self.names.index(commit.group), commit.load
        with load.lock:  # not while the topic is being recreated: an old offset would be committed to the new topic
            generation, places = load.generation, []
            for partition, end in enumerate(load.ends):
                before = self.ledger.committed(commit.group, load.shape.name, partition, generation)
                offset = max(before, choose(number, end, before))
                self.ledger.note(commit.group, load.shape.name, partition, Read(generation, offset))
                places.append(TopicPartition(load.shape.name, partition, offset))
            try:
                done = self._consumers[commit.group].commit(offsets=places, asynchronous=False) or []
            except KafkaException:
                return False
        self.commits += 1
        return all(one.error is None for one in done)

    def _commit_forever(self) -> None:
        def forward(number: int, end: int, before: int) -> int:
            """The first group keeps up, each further one lags more."""
            return before + int((end - before) * self._dice.random() ** (1 + number))

        while not self.stopping.wait(COMMIT_EVERY_S):
            group = self._dice.choice(self.names)
            load = self._load.topics[self._dice.choice(list(self._load.topics))]
            self._commit(Commit(group, load), forward)

    # Where the mirror has put them

    def _look_forever(self) -> None:
        due = time.monotonic() + LOOK_EVERY_S
        while not self.stopping.wait(0.2):
            if time.monotonic() >= due:
                self.look(self._dice.choice(self.names))
                due = time.monotonic() + LOOK_EVERY_S / 2

    def look(self, group: str) -> bool:
        """Note the group's offsets on the target, and what it had read at most. False: the target gave no answer."""
        for topic, load in self._load.topics.items():
            remote = self._side.remote(topic)
            count = load.shape.copies or load.shape.partitions
            try:
                found = group_offsets(self._target.client, group, remote, count)
            except KafkaException:
                return False
            read = self.ledger.read(group, topic)  # after the look: a commit between the two is counted as read
            self.placements[remote] += [Placement(group, one, offset, read) for one, offset in found.items()]
        return True

    def add_checkpoints(self, found: Mapping[str, list[Checkpoint]]) -> None:
        """Checkpoints are judged by what they say themselves where that is one source offset of one partition."""
        for topic, load in self._load.topics.items():
            remote = self._side.remote(topic)
            exact = not load.shape.copies and not load.shape.recreated
            for one in found.get(remote, []):
                if one.group not in self.names:
                    continue
                read = self.ledger.read(one.group, topic)
                if exact:
                    read = {one.partition: Read(load.generation, one.upstream)}
                self.placements[remote].append(Placement(one.group, one.partition, one.downstream, read, "checkpoint"))
