"""What is wanted, in the words of the command line: filters, moments, and headers that say where a record came from."""

from __future__ import annotations

import pytest

from heliograph.batch import labels
from heliograph.batch.labels import Absurd, Stamp
from heliograph.cli.moments import moment
from heliograph.messages import matching, mux
from heliograph.messages.matching import Filter, header_test
from heliograph.messages.reading import Message
from heliograph.types import StartPoint, TopicPartition

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "fits", "not_this"),
    [
        ("customer-1", [b"customer-1", b"customer-17", b"\xff customer-1"], [b"customer-2", b"", None]),
        ("=customer-1", [b"customer-1"], [b"customer-17", b" customer-1", None]),
        ("=", [b""], [b"x", None]),
        ("/^customer-[0-9]$/", [b"customer-1"], [b"customer-17", None]),
        ("/é.$/", ["né!".encode()], [b"ne!", None]),
        ("/^.{2}$/", [b"ab", b"\xff\xfe"], [b"a", None]),  # bytes that are no text count one each
        ("/", [b"a/b"], [b"ab"]),
        ("//", [b"", b"x"], [None]),
    ],
)
def test_text_all_of_it_and_expressions(text: str, fits: list[bytes], not_this: list[bytes | None]) -> None:
    test = matching.test(text)
    assert all(test(data) for data in fits)
    assert not any(test(data) for data in not_this)


def test_an_expression_that_is_none_is_told() -> None:
    with pytest.raises(ValueError, match=r"/\[/ is no regular expression"):
        matching.test("/[/")


def message(**fields: object) -> Message:
    return Message(0, 0, **{"timestamp_ms": 1000, "key": b"k", "value": b"v", **fields})  # type: ignore[arg-type]


def test_headers_by_name_and_value_any_of_several() -> None:
    one = message(headers=(("trace", b"a"), ("trace", b"b=c"), ("none", None)))
    assert header_test("trace")(one)
    assert header_test("trace=b")(one)
    assert header_test("trace==b=c")(one)
    assert header_test("trace=/^a$/")(one)
    assert header_test("none")(one)
    assert not header_test("none=")(one)  # null is no text
    assert not header_test("Trace")(one)
    assert not header_test("trace==b")(one)
    with pytest.raises(ValueError, match="names no header"):
        header_test("=x")


def test_all_filters_must_fit() -> None:
    wanted = Filter((matching.test("k"),), (matching.test("v"),), (header_test("h"),), since_ms=1000, until_ms=1001)
    assert wanted(message(headers=(("h", None),)))
    assert not wanted(message())
    assert not wanted(message(headers=(("h", None),), timestamp_ms=999))
    assert not wanted(message(headers=(("h", None),), timestamp_ms=1001))
    assert not wanted(message(headers=(("h", None),), value=None))
    assert Filter(tombstones=True)(message(value=None))
    assert not Filter(tombstones=True)(message(value=b""))


# ---------------------------------------------------------------- moments


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("beginning", StartPoint("earliest")),
        ("earliest", StartPoint("earliest")),
        ("end", StartPoint("latest")),
        ("latest", StartPoint("latest")),
        ("0", StartPoint("offset", 0)),
        ("1200", StartPoint("offset", 1200)),
        ("offset:1200", StartPoint("offset", 1200)),
        ("now", StartPoint("timestamp", NOW_MS)),
        ("-5m", StartPoint("timestamp", NOW_MS - 300_000)),
        ("-1h30m", StartPoint("timestamp", NOW_MS - 5_400_000)),
        ("-250ms", StartPoint("timestamp", NOW_MS - 250)),
        ("+1w", StartPoint("timestamp", NOW_MS + 7 * 86_400_000)),
        ("-90000w", StartPoint("timestamp", 0)),
        ("2026-11-01T00:00:00Z", StartPoint("timestamp", 1_793_491_200_000)),
        ("2026-11-01T01:00:00+01:00", StartPoint("timestamp", 1_793_491_200_000)),
        ("timestamp:1793491200000", StartPoint("timestamp", 1_793_491_200_000)),
    ],
)
def test_moments(text: str, point: StartPoint) -> None:
    assert moment(text, NOW_MS) == point


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("someday", "'someday' is no time"),
        ("-5", "--last 5"),
        ("-5x", "is no time"),
        ("2026-11-01T00:00:00", "time zone"),
        ("offset:x", "is no offset"),
        ("", "is no time"),
    ],
)
def test_moments_that_are_none(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        moment(text, NOW_MS)


# ---------------------------------------------------------------- MUX headers


def test_where_a_record_came_from() -> None:
    headers = (
        ("own", b"1"),
        ("MUX_SOURCE_TOPIC", b"their own"),  # the record's, from before it was multiplexed
        ("MUX_SOURCE_TOPIC", b"topic"),
        ("MUX_SOURCE_TOPIC_PARTITION", b"3"),
        ("MUX_SOURCE_OFFSET", b"1041"),
        ("MUX_SOURCE_TIMESTAMP", b"1793491200000"),
        ("MUX_SOURCE_IDENTIFIER", b"spoke1"),
        ("MUX_SOURCE_CLUSTER_ID", b"abc"),
        ("MUX_SOURCE_BOOTSTRAP_SERVERS", b"spoke1:9092"),
        ("MUX_INTERMEDIATE_TOPIC", b"mux-replication_spoke1"),
    )
    fields = mux.read(headers)
    assert fields == {
        "source_topic": "topic",
        "source_partition": 3,
        "source_offset": 1041,
        "source_timestamp": 1_793_491_200_000,
        "source_identifier": "spoke1",
        "source_cluster_id": "abc",
        "source_bootstrap_servers": "spoke1:9092",
        "intermediate_topic": "mux-replication_spoke1",
    }
    assert mux.words(fields) == "spoke1 topic-3 offset 1041"
    assert mux.read((*headers, ("MUX_SOURCE_TOPIC", b"outer"), ("MUX_SOURCE_TOPIC_PARTITION", b"0"))) == {
        "source_topic": "outer",
        "source_partition": 0,
    }
    backwards = mux.read(headers[:1] + headers[:1:-1])  # shown in any order, which is not ours
    assert backwards == {**fields, "problem": Absurd.NO_PARTITION.words}


@pytest.mark.parametrize("timestamp", [0, 1_793_491_200_007, -5, 1 << 60])
def test_what_a_multiplexer_writes_is_read_to_the_millisecond(timestamp: int) -> None:
    stamp = Stamp(TopicPartition("topic", 3), "spoke1:9092", "mux-replication_spoke1", "spoke1", "abc")
    fields = mux.read((("own", b"1"), *labels.write(stamp, timestamp, 1041), ("added", b"on the way")))
    assert fields is not None
    assert (fields["source_timestamp"], fields["source_offset"], len(fields)) == (timestamp, 1041, 8)
    assert mux.words(fields) == "spoke1 topic-3 offset 1041"


def test_headers_that_are_absurd_are_shown_as_far_as_they_can_be() -> None:
    assert mux.read(()) is None
    assert mux.read((("trace", b"x"),)) is None
    bad = mux.read(
        (("MUX_SOURCE_TOPIC", b"\xff"), ("MUX_SOURCE_TOPIC_PARTITION", b"1"), ("MUX_SOURCE_IDENTIFIER", None))
    )
    assert bad == {"source_partition": 1, "problem": Absurd.TOPIC.words}
    assert mux.words(bad) == f"?-1 ({Absurd.TOPIC.words})"
    odd = mux.read(
        (("MUX_SOURCE_TOPIC_PARTITION", b"9" * 40), ("MUX_SOURCE_TIMESTAMP", b"2023-06-05 12:34:56 +0000 UTC"))
    )
    assert odd == {
        "source_partition": "9" * 40,
        "source_timestamp": "2023-06-05 12:34:56 +0000 UTC",
        "problem": Absurd.NO_TOPIC.words,
    }
    assert mux.words({"problem": "no"}) == "? (no)"
    assert mux.words({"source_partition": 3}) == "?-3"
    assert mux.words({"source_timestamp": 3}) == ""
