"""Internal topics in words: each kind recognised by its topic's name, read from real bytes, and nonsense left alone."""

from __future__ import annotations

from uuid import UUID

import pytest

from heliograph import policy
from heliograph.batch import Record
from heliograph.formats import Checkpoint, Heartbeat, OffsetSync
from heliograph.messages import meaning
from heliograph.messages.meaning import Meaning
from heliograph.messages.reading import Message
from heliograph.mirror import incidents, offsetmap, positions, quarantine
from heliograph.mirror.incidents import Incident, Kind
from heliograph.mirror.offsetmap import Span, Subject
from heliograph.mirror.positions import Position
from heliograph.mirror.quarantine import Kept, Place
from heliograph.types import Cluster, Flow, Naming, TopicPartition

ORDERS = TopicPartition("orders", 3)
REMOTE = TopicPartition("us.orders", 3)
ID = UUID(int=5)


def flow(**naming: object) -> Flow:
    return Flow(Cluster("us"), Cluster("eu"), naming=Naming(**naming))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("heartbeats", "heartbeat"),
        ("us.heartbeats", "heartbeat"),
        ("ap.us.heartbeats", "heartbeat"),
        ("us.checkpoints.internal", "checkpoint"),
        ("mm2-offset-syncs.eu.internal", "offset sync"),
        ("mm2-offsets.us.internal", "position"),
        ("mm2-offset-map.us.internal", "offset map"),
        ("mm2-heliograph-incidents.us.internal", "incident"),
        ("mm2-heliograph-quarantine.us.internal", "quarantine"),
        ("orders", None),
        ("us.orders", None),
        ("orders.internal", None),
        ("checkpoints", None),
    ],
)
def test_a_topics_name_says_what_it_holds(topic: str, kind: str | None) -> None:
    assert meaning.kind_of(topic, [flow()]) == kind
    assert meaning.kind_of(topic) == kind  # without a file the default names count


def test_names_follow_the_flows_own_rules() -> None:
    dashed = flow(separator="_")
    assert meaning.kind_of("us_checkpoints_internal", [dashed]) == "checkpoint"
    assert meaning.kind_of("mm2-offset-syncs_eu_internal", [dashed]) == "offset sync"
    assert meaning.kind_of("us_heartbeats", [dashed]) == "heartbeat"
    assert meaning.kind_of("us_heartbeats", [flow()]) is None
    identity = flow(policy=policy.IDENTITY_POLICY)
    assert meaning.kind_of("us.heartbeats", [identity]) == "heartbeat"
    assert meaning.kind_of("orders", [identity]) is None
    stored = Flow(Cluster("us"), Cluster("eu"), positions_topic="connect-offsets")
    assert meaning.kind_of("connect-offsets", [stored]) == "position"


def read(
    kind: str, key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...] = ()
) -> Meaning:
    return meaning.read(kind, Message(0, 9, 1234, key, value, headers))


def test_mm2s_own() -> None:
    beat = Heartbeat("us", "eu", 5000)
    found = read("heartbeat", beat.key(), beat.value())
    assert (found.words, found.fields) == ("us->eu", {"source": "us", "target": "eu", "timestamp_ms": 5000})

    point = Checkpoint("billing", REMOTE, 1200, 980, "m")
    found = read("checkpoint", point.key(), point.value())
    assert found.words == "billing: us.orders-3 at 980, upstream 1200"
    assert found.fields == {
        "topic": "us.orders",
        "partition": 3,
        "group": "billing",
        "upstream": 1200,
        "downstream": 980,
        "metadata": "m",
    }
    assert read("checkpoint", point.key(), None).words == "billing: none of us.orders-3"

    sync = OffsetSync(ORDERS, 7, 4)
    found = read("offset sync", sync.key(), sync.value())
    assert (found.words, found.fields["downstream"]) == ("orders-3: 7 became 4", 4)


def test_positions_of_mm2_of_ours_of_strands_and_what_else_stands_there() -> None:
    key = positions.key_of("us", ORDERS)
    assert read("position", key, b'{"offset":41}').words == "us orders-3: next 42"
    claimed = Position(100, 7001, 0, 90, ID, 88)
    found = read("position", key, positions.encode(claimed))
    assert found.words == "us orders-3: next 100, producer 7001:0, sequence 90"
    assert found.fields["target_offset"] == 88
    assert found.fields["topic_id"] == str(ID)
    divided = positions.join([Position(100, 1, 0, 4, ID, 4), Position(90, 2, 0, 5, ID, 5)])
    found = read("position", key, positions.encode(divided))
    assert found.words.endswith("2 strands")
    assert found.fields["strands"] == [100, 90]
    assert read("position", key, None).words == "us orders-3: none any more"
    other = read("position", b'["HeliographOrder",{"flow":"us->eu"}]', b'{"word":"paused"}')
    assert other.words == 'HeliographOrder {"flow":"us->eu"}: {"word":"paused"}'
    assert other.fields["says"] == {"word": "paused"}
    assert read("position", b'["MirrorHeartbeatConnector",{"a":1}]', None).readable


def test_the_offset_map() -> None:
    key = offsetmap.key_of("us", Subject(ORDERS, ID), 10)
    value = offsetmap.encode([Span(10, 8, 5), Span(20, 13, 1), Span(30, 14, 2), Span(40, 16, 2)])
    found = read("offset map", key, value)
    assert found.words == "us orders-3: 10+5 became 8, 20+1 became 13, 30+2 became 14 and 1 more"
    assert found.fields["runs"][3] == [40, 16, 2]
    assert read("offset map", key, None).words == "us orders-3: forgotten"
    strand = offsetmap.key_of("us", Subject(ORDERS, ID, 2), 10)
    assert read("offset map", strand, offsetmap.encode([Span(10, 8, 5)])).words.startswith(
        "us orders-3 to partition 2: "
    )


def test_incidents() -> None:
    one = Incident(Kind.GAP, ORDERS, ID, 100, 150, "skip", "retention was faster", REMOTE, 9000)
    found = read("incident", incidents.key_of("us", one), incidents.encode(one))
    assert found.words == "us gap orders-3 100-149 [skip]: retention was faster"
    assert (found.fields["incident"], found.fields["lost"], found.fields["remote_topic"]) == ("gap", 50, "us.orders")


def test_quarantine_shows_the_record_inside() -> None:
    refused = Record(1041, 77, b"k", b"\xff", (("h", None),))
    kept = Kept(Place(ORDERS, ID, 1041, REMOTE), refused, "too large", 9000)
    record = quarantine.keep("us", kept)
    found = read("quarantine", record.key, record.value, record.headers)
    assert found.words == "us orders-3 offset 1041, not in us.orders-3: too large"
    assert found.record == refused
    gone = read("quarantine", record.key, None)
    assert gone.words == "us orders-3 offset 1041: out of it"


KINDS = ("heartbeat", "checkpoint", "offset sync", "position", "offset map", "incident", "quarantine")
NONSENSE = (
    None,
    b"",
    b"\xff\xff",
    b"{}",
    b"[]",
    b'["x"]',
    b"[" * 5000,
    b'["HeliographIncident",{"cluster":5}]',
    b"\0\1a\0\1b\0\0",
)


@pytest.mark.parametrize("kind", KINDS)
def test_nonsense_is_said_to_be_that(kind: str) -> None:
    for key in NONSENSE:
        for value in NONSENSE:
            found = read(kind, key, value)
            assert found.kind == kind
            assert found.readable or found.words
