"""Topics that travel together: multiplexed on a spoke, carried over by a flow of our own, put back on the hub; and
straight to the hub. Each step crashes again and again. Judged by what confluent-kafka reads on both clusters: every
record once, in its own topic and partition, in order, with its time, key, value and headers."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from heliograph.batch import warm
from heliograph.batch.labels import NAMES, time_text
from heliograph.cli.main import run as heliograph
from heliograph.embedded import QUICK_MM2_JVM, Kafka, MirrorMaker, mm2_properties, running
from heliograph.errors import BrokerError
from heliograph.state.quarantine import Kept, Quarantine
from heliograph.types import Cluster, Demux, Factor, Flow, Mux, Policies
from heliograph.wire import Client
from tests.broker.engine import Engine, one_flow, topics_of
from tests.broker.processes import Feed, Run, assert_copied, records_in, wait_until_gone
from tests.kit import Record, create_topic, end_offsets, produce, read_all, wait_until

PROCESSES_KILLED = int(os.environ.get("HELIOGRAPH_KILLS", "1"))  # of each of the two; each costs a start of Spark
CRASHES = int(os.environ.get("HELIOGRAPH_KILLS", "2"))  # of each step
COUNT = 3_000  # of each topic
KEPT = {"retention.ms": "-1"}

warm()


def records(count: int, partitions: int, begin: int = 0) -> list[Record]:
    """With keys, values, headers and times of every shape, among them headers that are called like ours."""
    now_ms = int(time.time() * 1000) - 30 * 86_400_000  # older than a topic keeps records that does not say otherwise
    found = []
    for n in range(begin, begin + count):
        own: tuple[tuple[str, bytes | None], ...] = (("n", b"%d" % n),)
        if n % 5 == 1:
            own += ((NAMES[0], b"elsewhere"), (NAMES[1], b"77"), ("twice", None), ("twice", b""))
        elif n % 5 == 2:
            own += ((NAMES[7], b"absurd"),)
        key = None if n % 3 else b"key-%d" % (n % 50)
        value = None if n % 17 == 3 else b"%d:" % n + b"abcdefgh" * (n % 20)
        found.append(Record(key, value, own, now_ms + n * 7, n % partitions))
    return found


def muxes(source: Cluster, target: Cluster, shared: str, *topics: str, **more: Any) -> Flow:
    flow = one_flow(source, target, **{"positions_topic": f"mm2-mux.{shared}.internal", **more})
    return replace(flow, mux=Mux(topics, shared, "the spoke", 3, NAMES))


def demuxes(hub: Cluster, spoke: Cluster, shared: str, prefix: str, *, keep: bool, topics: str = ".*") -> Flow:
    flow = one_flow(hub, hub, positions_topic=f"mm2-demux.{shared}.internal")
    return replace(flow, demux=(Demux(shared, prefix, keep, spoke, Factor(1), topics=(topics,)),))


class Step:
    """An engine that is made to crash at a moment, as a worker that is killed: what it did not write down is lost."""

    def __init__(self, flow: Flow) -> None:
        self.engine = Engine(flow)

    def crash(self) -> None:
        before, self.engine.crash_after = self.engine.crashes, 50
        wait_until(lambda: self.engine.crashes > before, what=f"a crash of {self.engine.flow.name}", timeout_seconds=60)
        self.engine.crash_after = None


def of_topic(client: Mapping[str, str], topic: str) -> dict[int, list[tuple[Any, ...]]]:
    return {p: [one.content for one in some] for p, some in read_all(client, topic).items()}


def counted(client: Mapping[str, str], topic: str) -> int:
    try:
        return sum(end_offsets(client, topic).values())
    except KeyError:
        return 0


def test_mux_link_and_demux_each_record_once_whatever_crashes(primary: Kafka, backup: Kafka, topic_name: str) -> None:
    spoke, hub = primary.confluent(), backup.confluent()
    one, two = (
        create_topic(spoke, f"{topic_name}-one", 3, config=KEPT),
        create_topic(spoke, f"{topic_name}-two", 2, config=KEPT),
    )
    other = create_topic(spoke, f"{topic_name}-other", 1)
    shared = f"mux-{topic_name}"
    produce(spoke, one, records(COUNT, 3), config={"compression.type": "lz4"})
    produce(spoke, other, records(10, 1))
    steps = [
        Step(muxes(primary.cluster(), primary.cluster(), shared, one, two)),
        Step(one_flow(primary.cluster(), backup.cluster(), shared)),
        Step(demuxes(backup.cluster(), primary.cluster(), f"primary.{shared}", "back.", keep=False)),
    ]
    feeding = threading.Thread(target=_feed, args=(spoke, two), daemon=True)
    with steps[0].engine, steps[1].engine, steps[2].engine:
        steps[2].engine.wait(lambda: counted(hub, f"back.{one}") > 0, what="the first records back")
        feeding.start()
        for _ in range(CRASHES):
            for step in steps:
                step.crash()
        feeding.join(60)
        for topic in (one, two):
            steps[2].engine.wait(
                lambda topic=topic: counted(hub, f"back.{topic}") >= counted(spoke, topic),  # type: ignore[misc]
                what=f"all of {topic} at the hub",
            )
    assert [step.engine.crashes >= CRASHES for step in steps] == [True] * 3
    assert of_topic(hub, f"back.{one}") == of_topic(spoke, one)
    assert of_topic(hub, f"back.{two}") == of_topic(spoke, two)
    assert counted(hub, f"back.{other}") == 0
    _labels_are_right(primary, spoke, shared, {one, two})


def _feed(client: Mapping[str, str], topic: str) -> None:
    """In small batches, while everything crashes."""
    for begin in range(0, COUNT, 100):
        produce(client, topic, records(100, 2, begin))
        time.sleep(0.15)  # a rate, not a wait for anything


def _labels_are_right(kafka: Kafka, client: Mapping[str, str], shared: str, topics: set[str]) -> None:
    """All eight, on every record of the shared topic; and each source partition lies in one of its, in order."""
    sources = {topic: read_all(client, topic) for topic in topics}
    lies: dict[tuple[str, int], set[int]] = {}
    reached: dict[tuple[str, int], int] = {}
    for place, some in read_all(client, shared).items():
        for record in some:
            said = dict(record.headers[-8:])
            assert tuple(name for name, _ in record.headers[-8:]) == NAMES
            texts = [(said[name] or b"").decode() for name in NAMES]
            topic, partition, offset = texts[0], int(texts[1]), int(texts[7])
            origin = sources[topic][partition][offset]
            assert texts[2:7] == [
                *(time_text(origin.timestamp_ms), kafka.bootstrap, shared, "the spoke", kafka.cluster_id),
            ]
            assert (record.key, record.value, record.headers[:-8]) == (origin.key, origin.value, origin.headers)
            lies.setdefault((topic, partition), set()).add(place)
            assert offset == reached.get((topic, partition), -1) + 1, "once, and in order"
            reached[topic, partition] = offset
    assert {len(places) for places in lies.values()} == {1}
    assert sum(end + 1 for end in reached.values()) == 2 * COUNT


def test_straight_to_the_hub_kept_labels_strange_records_and_new_topics(
    primary: Kafka, backup: Kafka, topic_name: str
) -> None:
    """Under their own names, with the labels; somebody else writes to the shared topic; a chosen topic comes late."""
    spoke, hub = primary.confluent(), backup.confluent()
    early, late, shared = f"{topic_name}-early", f"{topic_name}-late", f"mux-{topic_name}"
    create_topic(spoke, early, 2, config={"retention.ms": "9999999999", "max.message.bytes": "2000000"})
    produce(spoke, early, records(200, 2))
    strangers = [
        Record(b"k", b"no labels", (("own", b"1"),)),
        Record(b"k", b"no partition", ((NAMES[0], b"topic"),)),
        Record(b"k", b"not UTF-8", ((NAMES[0], b"\xff\xfe"), (NAMES[1], b"0"))),
        Record(b"k", b"internal", ((NAMES[0], b"__consumer_offsets"), (NAMES[1], b"0"))),
        Record(b"k", b"itself", ((NAMES[0], shared.encode()), (NAMES[1], b"0"))),
        Record(b"k", b"not chosen", ((NAMES[0], f"connect-{topic_name}".encode()), (NAMES[1], b"0"))),
        Record(b"k", b"no such partition", ((NAMES[0], early.encode()), (NAMES[1], b"99"))),
    ]
    put_back = demuxes(backup.cluster(), primary.cluster(), shared, "", keep=True, topics=f"{topic_name}-.*")
    with (
        Engine(muxes(primary.cluster(), backup.cluster(), shared, f"{topic_name}-.*")) as mux,
        Engine(put_back) as demux,
    ):
        mux.wait(lambda: counted(hub, early) == 200, what="the first topic at the hub")
        produce(hub, shared, strangers)
        create_topic(spoke, late, 1, config=KEPT)
        produce(spoke, late, records(100, 1))
        produce(spoke, early, records(100, 2, 200))
        demux.wait(lambda: (counted(hub, early), counted(hub, late)) == (300, 100), what="both topics at the hub")
        demux.wait(lambda: len(_kept(backup, put_back, shared)) == len(strangers), what="strangers in quarantine")
        demux.wait_copied(shared)
        _another_spoke(primary, backup, topic_name, demux)
    kept = _kept(backup, put_back, shared)
    assert {one.record.value: one.record.headers for one in kept} == {one.value: one.headers for one in strangers}
    reasons = {one.record.value: one.reason for one in kept}
    assert "is not a multiplexer" in reasons[b"no labels"]
    assert "is no topic's name" in reasons[b"not UTF-8"]
    assert "a partition that the source does not have" in reasons[b"no such partition"]
    for topic in (early, late):
        theirs, ours = read_all(spoke, topic), read_all(hub, topic)
        assert sorted(ours) == sorted(theirs), "as many partitions as the source has"
        for partition, some in theirs.items():
            assert [(r.content[:2], r.headers[:-8], r.timestamp_ms) for r in ours[partition]] == [
                (r.content[:2], r.headers, r.timestamp_ms) for r in some
            ]
            assert [dict(r.headers[-8:])[NAMES[7]] for r in ours[partition]] == [b"%d" % r.offset for r in some]
    assert f"connect-{topic_name}" not in topics_of(hub), "no label makes a topic that was not chosen"
    assert _config(backup, early)["retention.ms"] == "9999999999"
    assert _config(backup, early)["max.message.bytes"] == "2000000"


def test_a_topic_at_the_hub_that_is_deleted_is_put_back_anew_and_nothing_else_is_repeated(
    primary: Kafka, backup: Kafka, topic_name: str
) -> None:
    """Under the prefix that the shared topic has too, with a stranger whose label leads into that topic itself."""
    spoke, hub = primary.confluent(), backup.confluent()
    one, two, shared = f"{topic_name}-one", f"{topic_name}-two", f"primary.mux-{topic_name}"
    for topic in (one, two):
        create_topic(spoke, topic, 2, config=KEPT)
        produce(spoke, topic, records(200, 2))
    create_topic(hub, shared, 1, config=KEPT)
    back = demuxes(
        backup.cluster(), primary.cluster(), shared, "primary.", keep=False, topics=f"{topic_name}-.*|mux-.*"
    )
    back = replace(back, on=Policies(target_lost="restart"))
    into_itself = Record(b"k", b"into itself", ((NAMES[0], f"mux-{topic_name}".encode()), (NAMES[1], b"0")))
    with Engine(muxes(primary.cluster(), backup.cluster(), shared, one, two)), Engine(back) as demux:
        demux.wait(lambda: [counted(hub, f"primary.{t}") for t in (one, two)] == [200, 200], what="both at the hub")
        produce(hub, shared, [into_itself])
        demux.wait(lambda: len(_kept(backup, back, shared)) == 1, what="the stranger in quarantine")
        admin = AdminClient(hub)
        admin.delete_topics([f"primary.{one}"])[f"primary.{one}"].result(30)
        for topic in (one, two):
            produce(spoke, topic, records(100, 2, 200))
        demux.wait(lambda: [counted(hub, f"primary.{t}") for t in (one, two)] == [300, 300], what="put back anew")
        demux.wait_copied(shared)
    for topic in (one, two):
        theirs, ours = read_all(spoke, topic), read_all(hub, f"primary.{topic}")
        assert {p: [r.content for r in some] for p, some in ours.items()} == {
            p: [r.content for r in some] for p, some in theirs.items()
        }
    assert counted(hub, shared) == 601, "nothing went into the shared topic but what was multiplexed, and the stranger"
    assert [one.record.value for one in _kept(backup, back, shared)] == [b"into itself"]


def test_a_real_mirrormaker_as_the_link(primary: Kafka, backup: Kafka, topic_name: str) -> None:
    """By a file that has our keys too, which it passes over."""
    spoke, hub = primary.confluent(), backup.confluent()
    one, two = (
        create_topic(spoke, f"{topic_name}-one", 3, config=KEPT),
        create_topic(spoke, f"{topic_name}-two", 2, config=KEPT),
    )
    produce(spoke, one, records(1_000, 3), config={"compression.type": "zstd"})
    produce(spoke, two, records(1_000, 2))
    shared, here = f"mux-{topic_name}", Cluster("oslo", primary.cluster().properties)
    there = Cluster("bergen", backup.cluster().properties)
    ours = {"mux_topics": f"{one},{two}", "mux_topic": shared, "mux_via": "intermediate", "demux": "prefixed"}
    properties = mm2_properties(here, there, topics=shared, **ours)
    with (
        Engine(muxes(here, here, shared, one, two)),
        MirrorMaker(properties, jvm=QUICK_MM2_JVM) as mm2,
        Engine(demuxes(there, here, f"oslo.{shared}", "from-oslo.", keep=False)),
    ):
        for topic in (one, two):
            wait_until(
                lambda topic=topic: mm2.require_running() or counted(hub, f"from-oslo.{topic}") >= 1_000,  # type: ignore[misc]
                what=f"all of {topic} at the hub",
                timeout_seconds=120,
            )
    for topic in (one, two):
        assert of_topic(hub, f"from-oslo.{topic}") == of_topic(spoke, topic)


def test_the_command_on_spoke_and_hub_killed_with_9(primary: Kafka, backup: Kafka, tmp_path: Path) -> None:
    """One file, two processes: one on the spoke multiplexes, one on the hub carries over and puts records back."""
    spoke, hub = primary.confluent(), backup.confluent()
    prefix = f"kills-{time.monotonic_ns()}"
    one, two = create_topic(spoke, f"{prefix}-one", 3), create_topic(spoke, f"{prefix}-two", 2)
    other = create_topic(spoke, f"{prefix}-other", 1)
    produce(spoke, other, records(10, 1))
    file = tmp_path / "mm2.properties"
    lines = [
        "clusters = primary, backup",
        f"primary.bootstrap.servers = {primary.bootstrap}",
        f"backup.bootstrap.servers = {backup.bootstrap}",
        "emit.heartbeats.enabled = false",
        "replication.factor = 1",
        "offset.storage.replication.factor = 1",
        "offset-syncs.topic.replication.factor = 1",
        "checkpoints.topic.replication.factor = 1",
        "primary->backup.enabled = true",
        f"primary->backup.mux.topics = {one}, {prefix}-t.*",
        f"primary->backup.mux.topic = mux-{prefix}",
        "primary->backup.mux.via = intermediate",
        "primary->backup.mux.partitions = 2",
        "primary->backup.demux = prefixed",
        "primary->backup.demux.headers = strip",
        "tasks.max = 1",
    ]
    file.write_text("\n".join(lines) + "\n")
    feeds = [Feed(spoke, one, 3, 1_500), Feed(spoke, two, 2, 700)]
    steps = ("primary", "backup")
    dice, orphans = random.Random(7), []
    runs = {alias: Run(file, tmp_path / alias, "--clusters", alias) for alias in steps}
    try:
        runs["backup"].wait(lambda: records_in(hub, f"primary.{two}") > 0, what="the first records back")
        for attempt in range(PROCESSES_KILLED):
            for alias in steps:
                for victim in dice.sample(workers := runs[alias].workers(), min(2, len(workers))):
                    victim.kill()
                feeds[0].wait_sent(dice.randrange(500, 2_000))
                orphans += runs[alias].kill()
                runs[alias] = Run(file, tmp_path / f"{alias}-{attempt}", "--clusters", alias)
                if dice.random() < 0.5:  # else the next one is killed while this one starts
                    had = records_in(hub, f"primary.{two}")
                    runs["backup"].wait(lambda: records_in(hub, f"primary.{two}") > had, what="more")  # noqa: B023
        expected = {feed.topic: feed.stop() for feed in feeds}
        for topic, count in expected.items():
            runs["backup"].wait(lambda: records_in(hub, f"primary.{topic}") >= count, what=topic)  # noqa: B023 - waited for
        for run in runs.values():
            assert run.stop() == 0, run.words()
    finally:
        for run in runs.values():
            run.__exit__(None, None, None)
    wait_until_gone(orphans, 30)
    for topic, count in expected.items():
        assert_copied(spoke, hub, topic, f"primary.{topic}", expected=count)
    assert f"primary.{other}" not in topics_of(hub)
    assert other not in topics_of(hub)


SPOKES = ("spoke1", "spoke2", "spoke3")
SEED = {"topic": 2, "topic2": 1, "nonreplicated": 1}  # partitions; two are chosen
ADDED = """
spoke3.bootstrap.servers = {bootstrap}
spoke3->hub.enabled = true
spoke3->hub.mux.topics = topic, topic2
spoke3->hub.demux = original
"""


def test_a_hub_with_two_spokes_and_a_third_while_it_runs(tmp_path: Path) -> None:
    """By one command and one file, under original names: records of all spokes meet in the hub's topics, each with the
    labels that say whose it is; what was not chosen stays where it is."""
    config = {"auto.create.topics.enable": "false"}
    hub, *spokes = (Kafka(name, config=config) for name in ("hub", *SPOKES))
    with running(hub, *spokes):
        for spoke in spokes:
            for topic, partitions in SEED.items():
                create_topic(spoke.confluent(), topic, partitions, config=KEPT)
                produce(spoke.confluent(), topic, records(300, partitions))
        file = _hub_file(tmp_path / "mm2.properties", hub, spokes[:2])
        with Run(file, tmp_path / "run") as run:
            run.wait(lambda: _all_back(hub, spokes[:2]), what="two spokes at the hub")
            text = file.read_text().replace("spoke2, hub", "spoke2, spoke3, hub")
            file.write_text(text + ADDED.format(bootstrap=spokes[2].bootstrap))
            assert heliograph(["apply", str(file)]) == 0
            run.wait(lambda: _all_back(hub, spokes), what="three spokes at the hub", timeout_seconds=90)
            produce(spokes[0].confluent(), "topic", records(100, 2, 300))
            run.wait(lambda: counted(hub.confluent(), "topic") == 1_000, what="the first spoke's further records")
            assert run.stop() == 0, run.words()
        for spoke in spokes:
            for topic in ("topic", "topic2"):
                _compare_spoke(spoke, hub, topic)
        assert not [name for name in topics_of(hub.confluent()) if "nonreplicated" in name]


def _hub_file(path: Path, hub: Kafka, spokes: list[Kafka]) -> Path:
    lines = ["clusters = spoke1, spoke2, hub", "emit.heartbeats.enabled = false", "tasks.max = 1"]
    factors = ("", "offset.storage.", "offset-syncs.topic.", "checkpoints.topic.")
    lines += [f"{one}replication.factor = 1" for one in factors]
    lines += [f"{kafka.name}.bootstrap.servers = {kafka.bootstrap}" for kafka in (hub, *spokes)]
    for spoke, via in zip(spokes, ("straight", "intermediate"), strict=True):
        pair = f"{spoke.name}->hub"
        lines += [f"{pair}.enabled = true", f"{pair}.mux.topics = topic, topic2", f"{pair}.mux.via = {via}"]
        lines += [f"{pair}.demux = original"]
    path.write_text("\n".join(lines) + "\n")
    return path


def _all_back(hub: Kafka, spokes: list[Kafka]) -> bool:
    return all(counted(hub.confluent(), topic) == 300 * len(spokes) for topic in ("topic", "topic2"))


def _compare_spoke(spoke: Kafka, hub: Kafka, topic: str) -> None:
    theirs, ours = read_all(spoke.confluent(), topic), read_all(hub.confluent(), topic)
    assert sorted(ours) == sorted(theirs)
    for partition, some in theirs.items():
        mine = [one for one in ours[partition] if dict(one.headers[-8:])[NAMES[5]] == spoke.name.encode()]
        assert [(one.key, one.value, one.headers[:-8], one.timestamp_ms) for one in mine] == [
            (one.key, one.value, one.headers, one.timestamp_ms) for one in some
        ]
        for copy, origin in zip(mine, some, strict=True):
            assert [text for _, text in copy.headers[-8:]] == [
                *(topic.encode(), b"%d" % partition, time_text(origin.timestamp_ms).encode()),
                *(spoke.bootstrap.encode(), f"mux-replication_{spoke.name}".encode(), spoke.name.encode()),
                *(spoke.cluster_id.encode(), b"%d" % origin.offset),
            ]


def _another_spoke(primary: Kafka, backup: Kafka, topic_name: str, demux: Engine) -> None:
    """Added while the hub's flow runs, as an edited file does it."""
    spoke, hub = primary.confluent(), backup.confluent()
    topic, shared = create_topic(spoke, f"second-{topic_name}", 2, config=KEPT), f"mux-second-{topic_name}"
    produce(spoke, topic, records(100, 2))
    here = Cluster("second", primary.cluster().properties)
    before = demux.flow.demux
    with Engine(muxes(here, backup.cluster(), shared, topic)):
        demux.coordinator.change(replace(demux.flow, demux=(*before, Demux(shared, "second.", False, here, Factor(1)))))
        demux.wait(lambda: counted(hub, f"second.{topic}") == 100, what="the second spoke's records")
    assert of_topic(hub, f"second.{topic}") == of_topic(spoke, topic)


def _kept(kafka: Kafka, flow: Flow, topic: str) -> list[Kept]:
    with Client(kafka.cluster()) as client:
        return [one for one in Quarantine(client, flow).read() if one.place.tp.topic == topic]


def _config(kafka: Kafka, topic: str) -> dict[str, str | None]:
    with Client(kafka.cluster()) as client:
        entries = client.describe_topic_configs([topic])[topic]
    assert not isinstance(entries, BrokerError)
    return {name: entry.value for name, entry in entries.items()}
