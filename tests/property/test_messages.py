"""Laws of `heliograph messages`, over any records: what is shown is what lies in the log, JSON gives every byte back,
and no terminal is harmed."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from heliograph.batch import Record, encode
from heliograph.cli.out import rendered
from heliograph.cli.sheet import JsonLines, Table, Topic, Wide
from heliograph.messages import course, meaning
from heliograph.messages.extent import Span
from heliograph.messages.reading import Message, Reader
from heliograph.types import TopicPartition
from tests.unit.logs import Logs

MOST = (1 << 63) - 1
any_bytes = st.none() | st.binary(max_size=40) | st.text(max_size=40).map(str.encode)
names = st.binary(max_size=12).map(lambda name: name.decode(errors="surrogateescape"))
headers = st.lists(st.tuples(names, any_bytes), max_size=4).map(tuple)
times = st.sampled_from([-1, 0, MOST]) | st.integers(0, 1 << 45)
contents = st.tuples(times, any_bytes, any_bytes, headers)
kinds = st.sampled_from(
    [None, "heartbeat", "checkpoint", "offset sync", "position", "offset map", "incident", "quarantine"]
)


@st.composite
def logs(draw: st.DrawFn, partitions: int = 3) -> tuple[Logs, dict[int, list[Record]]]:
    """Batches of any codec, with holes inside and between them."""
    made, truth = Logs({"t": partitions}), {}
    for partition in range(partitions):
        at, records = 0, []
        for batch in draw(st.lists(st.lists(contents, min_size=1, max_size=4), max_size=3)):
            given = []
            for one in batch:
                at += draw(st.sampled_from([0, 0, 0, 1, 700]))
                given.append(Record(at, *one))
                at += 1
            tail = draw(st.sampled_from([0, 0, 3]))
            base = given[0].offset
            data = encode(given, codec=draw(st.integers(0, 4)), last_offset_delta=at + tail - 1 - base)
            made.put("t", data, partition)
            at += tail
            records += given
        truth[partition] = records
    return made, truth


def as_record(message: Message) -> Record:
    return Record(message.offset, message.timestamp_ms, message.key, message.value, message.headers)


@settings(deadline=None, max_examples=60)
@given(logs(), st.integers(0, 12), st.integers(1, 2000))
def test_what_is_shown_is_what_lies_there(
    case: tuple[Logs, dict[int, list[Record]]], count: int, fetch_bytes: int
) -> None:
    made, truth = case
    reader = Reader(made, "t", fetch_bytes=fetch_bytes)
    spans = {number: Span(0, made.logs[TopicPartition("t", number)].end) for number in truth}
    shown = list(course.bounded(reader, spans, lambda message: True))
    for number, records in truth.items():
        assert [as_record(one) for one in shown if one.partition == number] == records
    for wanted in (lambda one: True, lambda one: one.value is None):
        all_ = [one for one in shown if wanted(one)]
        last = course.last(reader, spans, count, wanted)
        assert len(last) == min(count, len(all_))
        for number in truth:  # of each partition the last ones, in order
            mine = [one for one in last if one.partition == number]
            assert mine == [one for one in all_ if one.partition == number][-len(mine) or MOST :]
        if all(records == sorted(records, key=lambda one: one.timestamp) for records in truth.values()):
            assert last == (all_[-count:] if count else [])


def back(text: Any) -> bytes | None:
    if isinstance(text, dict):
        return base64.b64decode(text["base64"])
    return None if text is None else text.encode()


messages = st.builds(
    Message, st.integers(0, 9999), st.integers(0, MOST), times, any_bytes, any_bytes, headers, st.booleans()
)


@settings(deadline=None, max_examples=150)
@given(messages, kinds)
def test_json_gives_every_byte_back(message: Message, kind: str | None) -> None:
    (line,) = JsonLines(Topic("us", "t", kind)).lines(message)
    assert line.isascii()
    assert "\n" not in line
    found = json.loads(line)
    assert (back(found["key"]), back(found["value"])) == (message.key, message.value)
    pairs = [((back(name) or b"").decode(errors="surrogateescape"), back(value)) for name, value in found["headers"]]
    assert tuple(pairs) == message.headers
    assert (found["partition"], found["offset"]) == (message.partition, message.offset)
    assert found["timestamp_ms"] == message.timestamp_ms


@settings(deadline=None, max_examples=150)
@given(messages, kinds, st.integers(55, 200))
def test_tables_fit_and_nothing_moves_the_cursor(message: Message, kind: str | None, width: int) -> None:
    topic = Topic("us", "t", kind)
    for line in Table(topic, width, [message.partition], message.offset).lines(message):
        plain = re.sub(r"\x1b\[(2|0)m", "", rendered(line))  # our own: dim, and its end
        assert plain.isprintable()
        assert cell_len(plain) <= width
    for line in Wide(topic).lines(message):
        assert line.isprintable()


@settings(deadline=None, max_examples=150)
@given(messages, kinds.filter(bool))
def test_nothing_is_too_absurd_to_be_looked_at(message: Message, kind: str) -> None:
    assert meaning.read(kind, message).words
