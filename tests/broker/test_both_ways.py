"""Two files from the field, as they stand but for the addresses, both ways under load: no loop, no growth, each record
once.

The files take Kafka's defaults for what they do not say, three copies of internal topics among it, so the clusters have
three brokers. Both sides have topics under the same names, written at an even rate; in a long run one more comes when
the load is under way. What the topics on each side must be can be said beforehand: were a copy copied back, or a name
to grow by a hop, the lists would differ. For minutes instead of seconds:

    HELIOGRAPH_SOAK_SECONDS=600 make test ARGS='tests/broker/test_both_ways.py'
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from heliograph.embedded import Kafka, running
from tests.broker.processes import Feed, Run, assert_copied, difference, records_in
from tests.broker.test_translation import set_offsets
from tests.kit import contents, create_topic, read_all, wait_until

SECONDS = float(os.environ.get("HELIOGRAPH_SOAK_SECONDS", "4"))
pytestmark = pytest.mark.timeout(SECONDS * 2 + 500)

FILES = Path(__file__).parent.parent / "data" / "mm2"
TOPICS = {"ProductA": 3, "orders": 2}  # of each side, with their partitions
LATE = "late"  # comes under load
PER_SECOND = 250  # records into each topic
NOT_COORDINATED_YET = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)
BEATS_UNDER_WAY = 15  # heartbeats written while the last ones are copied, and after


@dataclass(frozen=True)
class Field:
    """A file: where its clusters are said to be, and how long it takes to see a new topic."""

    file: str
    aliases: tuple[str, str]
    addresses: tuple[str, str]
    refresh_s: float


FIELDS = {
    "active-active": Field(
        "02-active-active.properties", ("source", "target"), ("localhost:9093", "localhost:9095"), refresh_s=10
    ),
    "disaster-recovery": Field(
        "03-disaster-recovery.properties",
        ("cluster-a", "cluster-b"),
        ("kafka-01:29092", "kafka-02:29093"),
        refresh_s=30,
    ),
}


@dataclass(frozen=True)
class Side:
    """One cluster under the alias that the file gives it, and the other's alias."""

    kafka: Kafka
    alias: str
    other: str

    def topics(self) -> dict[str, int]:
        """Every topic but the brokers' own, with its partitions."""
        found = AdminClient({**self.kafka.confluent(), "log_level": "0"}).list_topics(timeout=30).topics
        return {name: len(topic.partitions) for name, topic in found.items() if not name.startswith("__")}

    def due(self, own: Iterable[str], *, beats: bool = True) -> set[str]:
        """By MM2's rules of names: nothing comes back, nothing internal is copied. `beats`: heartbeats, which begin
        when the flow does, have been found by a refresh."""
        copies = {f"{self.other}.{name}" for name in (*own, *(["heartbeats"] if beats else []))}
        internal = {f"mm2-{what}.{self.other}.internal" for what in ("offsets", "offset-map", "offset-syncs")}
        return {*own, "heartbeats", *copies, *internal, f"{self.other}.checkpoints.internal"}

    def commits(self, topic: str) -> bool:
        """As a group that has read nothing yet. A fresh cluster's coordinators still move."""
        try:
            set_offsets(self.kafka, "readers", [TopicPartition(topic, 0, 0)])
        except KafkaException as error:
            if not error.args[0].retriable() and error.args[0].code() not in NOT_COORDINATED_YET:
                raise
            return False
        return True

    def clear(self) -> None:
        """For the next file."""
        admin = AdminClient(self.kafka.confluent())
        names = list(self.topics())
        for future in (admin.delete_topics(names) if names else {}).values():
            future.result(30)
        wait_until(lambda: not self.topics(), what="an empty cluster")


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[Kafka, ...]]:
    config = {"auto.create.topics.enable": "false"}
    with running(*(Kafka(name, brokers=3, config=config) for name in ("one", "two"))) as both:
        yield both


@pytest.fixture(params=FIELDS)
def field(request: pytest.FixtureRequest) -> Field:
    return FIELDS[request.param]


@pytest.fixture
def sides(field: Field, clusters: tuple[Kafka, ...]) -> Iterator[tuple[Side, Side]]:
    first, second = field.aliases
    both = Side(clusters[0], first, second), Side(clusters[1], second, first)
    yield both
    for side in both:
        side.clear()


def test_both_ways_under_load(field: Field, sides: tuple[Side, Side], tmp_path: Path) -> None:
    own = list(TOPICS)
    refreshed = field.refresh_s < SECONDS + 5  # otherwise the file's interval is too long for a short run
    for side in sides:
        for name, partitions in TOPICS.items():
            create_topic(side.kafka.confluent(), name, partitions, replication_factor=3)
            wait_until(lambda s=side, n=name: s.commits(n), what=f"a commit to {name}")  # type: ignore[misc]
    began = time.monotonic()
    with Run(_as_it_stands(field, sides, tmp_path), tmp_path / "run") as run:
        feeds = [(side, _feed(side, name)) for side in sides for name in TOPICS]
        _wait_topics(run, sides, own, beats=refreshed, timeout_seconds=300)
        if refreshed:
            for side in sides:
                copy = f"{side.other}.heartbeats"
                wait_until(lambda s=side, c=copy: records_in(s.kafka.confluent(), c), what=copy, timeout_seconds=90)  # type: ignore[misc]
        until = time.monotonic() + SECONDS
        if field.refresh_s * 3 < SECONDS:
            own.append(LATE)
            for side in sides:
                create_topic(side.kafka.confluent(), LATE, 1, replication_factor=3)
                feeds.append((side, _feed(side, LATE)))
            _wait_topics(run, sides, own, timeout_seconds=field.refresh_s * 2 + 60)
        settled = [side.topics() for side in sides]
        while time.monotonic() < until:
            run.require_running()
            assert not refreshed or [side.topics() for side in sides] == settled
            time.sleep(1)  # the run's own length, not a wait for something
        counts = [(side, feed.topic, feed.stop()) for side, feed in feeds]
        for side, topic, count in counts:
            there = next(other for other in sides if other is not side)
            mine, theirs = side.kafka.confluent(), there.kafka.confluent()
            assert_copied(mine, theirs, topic, f"{side.alias}.{topic}", expected=count)
        flows = {flow["name"]: flow for flow in run.flows()}
        assert run.stop() == 0, run.words()
    for side, before in zip(sides, settled, strict=True):
        after = side.topics()
        assert not refreshed or after == before
        assert side.due(own, beats=refreshed) <= set(after) <= side.due(own)
    if refreshed:
        for here, there in (sides, sides[::-1]):
            _assert_heartbeats(here, there, time.monotonic() - began)
    _tell(counts, flows, settled)


def _as_it_stands(field: Field, sides: tuple[Side, Side], folder: Path) -> Path:
    text = (FILES / field.file).read_text()
    for address, side in zip(field.addresses, sides, strict=True):
        assert text.count(address) == 1
        text = text.replace(address, side.kafka.bootstrap)
    path = folder / "mm2.properties"
    path.write_text(text)
    return path


def _feed(side: Side, topic: str) -> Feed:
    return Feed(side.kafka.confluent(), topic, TOPICS.get(topic, 1), PER_SECOND)


def _wait_topics(
    run: Run, sides: tuple[Side, Side], own: list[str], *, beats: bool = True, timeout_seconds: float
) -> None:
    def there() -> bool:
        run.require_running()
        return all(set(side.topics()) >= side.due(own, beats=beats) for side in sides)

    try:
        wait_until(there, timeout_seconds=timeout_seconds)
    except TimeoutError:
        missing = [sorted(side.due(own, beats=beats) - set(side.topics())) for side in sides]
        raise AssertionError(f"not there: {missing}\n{run.words()}") from None


def _assert_heartbeats(here: Side, there: Side, seconds: float) -> None:
    """One a second and no more, and the copies are the first of them in order: nothing went round."""
    [own] = contents(read_all(here.kafka.confluent(), "heartbeats")).values()
    [copies] = contents(read_all(there.kafka.confluent(), f"{here.alias}.heartbeats")).values()
    assert difference(own[: len(copies)], copies) == ""
    assert len(own) - BEATS_UNDER_WAY <= len(copies)
    assert len(own) <= seconds + BEATS_UNDER_WAY


def _tell(
    counts: list[tuple[Side, str, int]], flows: dict[str, dict[str, object]], topics: list[dict[str, int]]
) -> None:
    """The figures of a long run, with `pytest -s`."""
    for side, topic, count in counts:
        print(f"{side.alias}: {topic}: {count:,} records, each once on the other side")
    for name, flow in flows.items():
        shown = {key: flow[key] for key in ("records", "epoch", "duplicates_refused", "retries", "parked")}
        print(f"{name}: {shown}")
    print(f"topics: {[len(one) for one in topics]}, the same from the first refresh to the end")
