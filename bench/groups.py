"""The load of `translation`: three topics in which source and target offsets part, groups that stand anywhere in them,
and what their places on the target are worth.

A plain topic, a compacted one with holes, and one written in transactions of which some are aborted. Each record says
which it is, so that a copy's offset leads back to its source's. confluent-kafka writes, commits and reads; judging is
pure.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from bench.measure import median
from bench.results import EXACT
from bench.watch import TIMEOUT_S, Watch

PARTITIONS = {"plain": 3, "compacted": 1, "transactional": 2}
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.0001"}
PLAIN, KEYED, TRANSACTIONS = 700, 600, 40  # a turn: records of each partition, records, transactions
KEYS = 90

Place = tuple[str, int]  # topic, partition


class Entry(NamedTuple):
    """A record, as far as it matters here."""

    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Topics:
    """Of one run."""

    prefix: str

    def name(self, kind: str) -> str:
        return f"{self.prefix}-{kind}"

    @property
    def partitions(self) -> dict[str, int]:
        return {self.name(kind): count for kind, count in PARTITIONS.items()}

    @property
    def places(self) -> list[Place]:
        return [(topic, p) for topic, count in self.partitions.items() for p in range(count)]

    def create(self, watch: Watch) -> None:
        for kind, count in PARTITIONS.items():
            watch.create(self.name(kind), count, COMPACTED if kind == "compacted" else {})

    def fill(self, watch: Watch, turn: int) -> None:
        """Values are source offsets where these are known beforehand, else different from all others."""
        ends = watch.ends(self.name("plain"), PARTITIONS["plain"])
        producer = Producer({**watch.settings, "enable.idempotence": True, "linger.ms": 5, "batch.num.messages": 37})
        for n in range(PLAIN):
            for p, end in enumerate(ends):
                producer.produce(self.name("plain"), b"%d" % (end + n), b"k", partition=p)
        end = watch.ends(self.name("compacted"), 1)[0]
        for n in range(KEYED):
            producer.produce(self.name("compacted"), b"%d" % (end + n), b"%d" % (n * n % KEYS), partition=0)
        _flush(producer)
        self._clean(watch)
        self._transact(watch, turn)

    def _clean(self, watch: Watch) -> None:
        """The broker's cleaner takes closed segments only: one record now and then closes them."""
        topic = self.name("compacted")
        total = watch.ends(topic, 1)[0]
        producer = Producer({**watch.settings, "linger.ms": 0})
        deadline = time.monotonic() + TIMEOUT_S
        while len(read(watch, {topic: 1})[topic, 0]) >= total // 3:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic} was not compacted within {TIMEOUT_S} s: see the broker's log-cleaner.log")
            producer.produce(topic, b"%d" % watch.ends(topic, 1)[0], b"roll", partition=0)
            _flush(producer)
            time.sleep(0.1)

    def _transact(self, watch: Watch, turn: int) -> None:
        topic = self.name("transactional")
        producer = Producer({**watch.settings, "transactional.id": topic, "linger.ms": 0})
        producer.init_transactions(TIMEOUT_S)
        for n in range(TRANSACTIONS):
            producer.begin_transaction()
            for i in range(n % 7 + 1):
                producer.produce(topic, b"%d-%d-%d" % (turn, n, i), b"k", partition=i % PARTITIONS["transactional"])
            _flush(producer)  # what is still queued when a transaction is aborted would never be written
            (producer.abort_transaction if n % 3 == 2 else producer.commit_transaction)(TIMEOUT_S)


def _flush(producer: Producer) -> None:
    if producer.flush(TIMEOUT_S):
        raise RuntimeError("the source broker does not take records: see its log")


def commit(watch: Watch, topics: Topics, groups: Iterable[str], chance: random.Random) -> dict[str, dict[Place, int]]:
    """Each group anywhere from the first offset to the end: on records, on markers, in holes, at the end."""
    ends = {
        (topic, p): end for topic, count in topics.partitions.items() for p, end in enumerate(watch.ends(topic, count))
    }
    wanted = {group: {place: chance.randint(0, end) for place, end in ends.items()} for group in groups}
    for group, places in wanted.items():
        with watch.consumer(**{"group.id": group}) as consumer:
            done = consumer.commit(offsets=[TopicPartition(*p, at) for p, at in places.items()], asynchronous=False)
            failed = [tp for tp in done or () if tp.error is not None]
            if failed:
                raise RuntimeError(f"group {group} cannot commit: {failed[0].error}")
    return wanted


def read(watch: Watch, partitions: Mapping[str, int], isolation: str = "read_committed") -> dict[Place, list[Entry]]:
    """Every record of these topics up to their ends as of now."""
    settings = {"isolation.level": isolation, "enable.partition.eof": True, "fetch.wait.max.ms": 10}
    with watch.consumer(**settings) as consumer:
        places = [(topic, p) for topic, count in partitions.items() for p in range(count)]
        found: dict[Place, list[Entry]] = {place: [] for place in places}
        consumer.assign([TopicPartition(*place, 0) for place in places])
        _read_on(consumer, found, set(places))
        return found


def _read_on(consumer: Consumer, found: dict[Place, list[Entry]], open_: set[Place]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while open_:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{sorted(open_)} could not be read to the end in {TIMEOUT_S} s")
        for message in consumer.consume(10_000, timeout=0.2):
            place = str(message.topic()), int(message.partition() or 0)
            if message.error() is None:
                found[place].append(Entry(int(message.offset() or 0), message.key(), message.value()))
            elif message.error().code() == KafkaError._PARTITION_EOF:  # type: ignore[union-attr]
                open_.discard(place)


# ---- judging: pure


@dataclass(frozen=True, slots=True)
class Copies:
    """Of one partition: (target offset, source offset) of each copy, by target offset; and what should be there."""

    pairs: tuple[tuple[int, int], ...]
    committed: frozenset[int]  # source offsets of records a reader of committed records gets

    def again(self, committed: int, placed: int) -> int:
        """Records that a group placed there reads a second time."""
        return sum(1 for target, source in self.pairs if target >= placed and source < committed)

    def missed(self, committed: int, placed: int) -> int:
        """Records that it has not read, and will not."""
        due = {source for source in self.committed if source >= committed}
        return len(due - {source for target, source in self.pairs if target >= placed})

    @property
    def verdict(self) -> dict[str, int]:
        sources = [source for _, source in self.pairs]
        return {
            "lost": len(self.committed - set(sources)),
            "doubled": len(sources) - len(set(sources)),
            "aborted ones copied": len(set(sources) - self.committed),
        }


def copies(everything: Sequence[Entry], committed: Sequence[Entry], copy: Sequence[Entry]) -> Copies:
    """From the partition's records, those of them committed, and the records of the copy. A record that compaction has
    taken from the source since is known by its value, which is its offset."""
    origin = {entry.value: entry.offset for entry in everything}
    taken = {entry.value: int(entry.value or b"") for entry in copy if entry.value not in origin}
    at = origin | taken
    should = frozenset({entry.offset for entry in committed} | set(taken.values()))
    return Copies(tuple((entry.offset, at[entry.value]) for entry in copy), should)


def figures(
    wanted: Mapping[str, Mapping[Place, int]], placed: Mapping[tuple[str, Place], int], copied: Mapping[Place, Copies]
) -> dict[str, float]:
    """What it means for the groups to be placed there on the target."""
    again: list[float] = []
    missed: list[int] = []
    for group, places in wanted.items():
        for place, offset in places.items():
            if (group, place) in placed:
                there = placed[group, place]
                again.append(copied[place].again(offset, there))
                missed.append(copied[place].missed(offset, there))
    total = sum(len(places) for places in wanted.values())
    exact = sum(1 for a, m in zip(again, missed, strict=True) if not a and not m)
    found = {
        "places": float(total),
        "exact": float(exact),
        "exact_percent": 100 * exact / total,
        "not_exact": float(total - exact),
        "missed": float(sum(missed)),
        "untranslated": float(total - len(again)),
        "groups_without": float(sum(1 for g, places in wanted.items() if not any((g, p) in placed for p in places))),
    }
    return found | ({"again_median": median(again), "again_max": max(again)} if again else {})


def verdict(copied: Iterable[Copies]) -> str:
    totals: dict[str, int] = {}
    for one in copied:
        for what, count in one.verdict.items():
            totals[what] = totals.get(what, 0) + count
    return ", ".join(f"{what}: {count:,}" for what, count in totals.items() if count) or EXACT
