"""Mux then demux is the identity on any records; labels are as specified; what is strange is named."""

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.batch import header, kernels, labelling, labels  # noqa: F401 - compiled before the clock runs
from heliograph.batch.chunk import Chunk, Limits
from heliograph.batch.demux import Targets, demux
from heliograph.batch.labels import ALL, ALWAYS, NAMES, Absurd, Label, Origin, Stamp
from heliograph.batch.mux import mux
from heliograph.batch.records import Record, decode_all, encode
from heliograph.batch.split import split
from heliograph.errors import CorruptBatch
from heliograph.types import TopicPartition

NOW_MS = 1_790_000_000_000
LATER_MS = NOW_MS + 86_400_000  # when records are labelled
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
# Names like ours, also at the end, and doubled; values as ours have them, and as nobody has.
NAME = (
    st.sampled_from(NAMES)
    | st.sampled_from([f"{NAMES[0]}_", NAMES[0][:-1], "mux_source_topic", ""])
    | st.text(max_size=8)
)
TEXT = st.sampled_from([b"orders", b"0", b"7", b"2026-11-16T10:52:09.123Z", b"-1", b"a/b", b"\xff\xfe", b""])
HEADERS = st.lists(st.tuples(NAME, st.none() | TEXT | st.binary(max_size=12)), max_size=9).map(tuple)
STAMPS = st.builds(
    Stamp,
    st.builds(TopicPartition, st.sampled_from(["orders", "a.b_c-D", "x" * 249]), st.sampled_from([0, 7, 2**31 - 1])),
    st.text(max_size=70), st.text(max_size=30), st.text(max_size=9), st.text(max_size=22),
    st.frozensets(st.sampled_from(list(Label))),
)  # fmt: skip


@st.composite
def batches(draw, headers=HEADERS, gaps=True):
    """(records, buffer): batches as a log has them, with holes, codecs, append times and control batches."""
    offset = draw(st.integers(0, 1 << 40))
    kept, buffer = [], b""
    for _ in range(draw(st.integers(1, 4))):
        records = []
        for _ in range(draw(st.integers(1, 12))):
            offset += draw(st.sampled_from([0, 0, 0, 1, 70])) if gaps else 0
            time = NOW_MS + draw(st.integers(-(1 << 40), 1 << 40)) if draw(st.booleans()) else draw(INT64)
            key, value = draw(st.none() | st.binary(max_size=20)), draw(st.none() | st.binary(max_size=100))
            records.append(Record(offset, time, key, value, draw(headers)))
            offset += 1
        kind = draw(st.sampled_from(["data"] * 4 + ["control", "append time"]))
        if kind == "control":
            marker = Record(records[0].offset, NOW_MS, b"\0\0\0\1", b"\0\0\0\0\0\0")
            buffer += encode([marker], producer_id=7, attributes=header.CONTROL | header.TRANSACTIONAL)
            offset = marker.offset + 1
            continue
        codec = draw(st.sampled_from([0, 0, 1, 2, 3, 4]))
        if kind == "append time":
            buffer += encode(records, codec=codec, attributes=header.LOG_APPEND_TIME, max_timestamp=NOW_MS)
            records = [Record(r.offset, NOW_MS, r.key, r.value, r.headers) for r in records]
        else:
            buffer += encode(records, codec=codec)
        kept += records
    return kept, buffer, offset


def read(share, wanted=0):
    """What a lane would append of it, with the source's offsets; and how far it reaches."""
    chunk = Chunk(share, wanted=wanted, limits=Limits(), check_crc=True)
    found = []
    while (piece := chunk.take(merge=True)) is not None:
        data = bytearray(piece.data)
        header.patch(data, 1, 0, 0)
        records = [record for record, _ in decode_all(bytes(data)) if record is not None]
        assert piece.max_timestamp >= max(r.timestamp for r in records)
        offsets = [first + n for first, length in piece.runs for n in range(length)]
        found += [Record(o, r.timestamp, r.key, r.value, r.headers) for o, r in zip(offsets, records, strict=True)]
    return found, chunk.next_offset


def batch_of(records):
    """As the shared topic would hold them: numbered anew."""
    return encode([Record(n, r.timestamp, r.key, r.value, r.headers) for n, r in enumerate(records)])


@settings(max_examples=80, deadline=None)
@given(batches(), STAMPS)
def test_labels_are_as_specified_and_nothing_else_changes_but_times_that_are_in_a_label(drawn, stamp):
    records, buffer, end = drawn
    found, reached = read(mux(buffer, stamp, LATER_MS).shares.buffers[0])
    assert reached == end
    for record, own in zip(found, records, strict=True):
        time = LATER_MS if stamp.timed else own.timestamp
        headers = (*own.headers, *labels.write(stamp, own.timestamp, own.offset))
        assert record == Record(own.offset, time, own.key, own.value, headers)


@settings(max_examples=80, deadline=None)
@given(batches(), STAMPS, st.booleans())
def test_mux_then_demux_is_the_identity(drawn, stamp, other_times):
    """Whatever headers the records carry, also ones named like ours, and whatever the shared topic made of their times
    if the labels say them."""
    records, buffer, _ = drawn
    shared, _ = read(mux(buffer, stamp, LATER_MS).shares.buffers[0])
    if not shared:
        return
    carried = batch_of(shared)
    if other_times and stamp.timed:
        carried = encode(list(decode_records(carried)), attributes=header.LOG_APPEND_TIME, max_timestamp=NOW_MS)
    done = demux(carried, Targets([TopicPartition("other", 1), stamp.tp]), keep=False)
    assert not done.strange
    assert not done.unknown
    assert read(done.shares.buffers[0]) == ([], len(shared))
    back, reached = read(done.shares.buffers[1])
    assert reached == len(shared)
    assert [(r.timestamp, r.key, r.value, r.headers) for r in back] == [
        (r.timestamp, r.key, r.value, r.headers) for r in records
    ]


@settings(max_examples=40, deadline=None)
@given(batches(), STAMPS, STAMPS)
def test_one_mux_inside_another(drawn, inner, outer):
    records, buffer, _ = drawn
    first, _ = read(mux(buffer, inner, LATER_MS).shares.buffers[0])
    if not first:
        return
    second, _ = read(mux(batch_of(first), outer, LATER_MS).shares.buffers[0])
    once, _ = read(demux(batch_of(second), Targets([outer.tp]), keep=False).shares.buffers[0])
    twice, _ = read(demux(batch_of(once), Targets([inner.tp]), keep=False).shares.buffers[0])
    assert [(r.timestamp, r.key, r.value, r.headers) for r in twice] == [
        (r.timestamp, r.key, r.value, r.headers) for r in records
    ]


def decode_records(batch):
    return (record for record, _ in decode_all(batch) if record is not None)


TARGETS = [TopicPartition(topic, partition) for topic in ("orders", "a.b", "b") for partition in (0, 7, 12)]
LABELLED = st.tuples(
    HEADERS, st.sampled_from(["orders", "a.b", "b", "a", "..", "x" * 250, "a b"]),
    st.sampled_from(["0", "7", "12", "13", "-1", "+1", "07", "2147483648", "", "seven"]),
    st.none() | st.sampled_from(["0", "-1", "2026-11-16T10:52:09Z", "2026-02-30T10:52:09Z", "yesterday"]),
    st.none() | st.sampled_from(["0", "9223372036854775807", "9223372036854775808", "-1"]), HEADERS,
).map(
    lambda t: (
        *(*t[0], (NAMES[0], t[1].encode()), (NAMES[1], t[2].encode())),
        *(((NAMES[2], t[3].encode()),) if t[3] is not None else ()),
        *(((NAMES[7], t[4].encode()),) if t[4] is not None else ()),
        *t[5],
    )
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(batches(headers=HEADERS | LABELLED), st.booleans(), st.sets(st.sampled_from(TARGETS)).map(sorted), st.data())
def test_records_go_where_the_specification_says(drawn, keep, targets, data):
    records, buffer, end = drawn
    wanted = data.draw(st.integers(records[0].offset if records else 0, end))
    done = demux(buffer, Targets(targets), keep=keep)
    expected = {target: [] for target in targets}
    strange, unknown = [], {}
    for record in records:
        origin = labels.read(record.headers)
        if isinstance(origin, Absurd):
            strange.append((record, origin))
        elif origin.tp not in expected:
            unknown.setdefault(origin.tp, record.offset)
        else:
            time = record.timestamp if origin.timestamp is None else origin.timestamp
            own = record.headers if keep else origin.own
            expected[origin.tp].append(Record(record.offset, time, record.key, record.value, own))
    assert [(s.record, s.why) for s in done.strange] == strange
    assert done.unknown == unknown
    assert done.next_offset == end
    for share, target in zip(done.shares.buffers, targets, strict=True):
        assert read(share, wanted) == ([r for r in expected[target] if r.offset >= wanted], max(end, wanted))


@settings(max_examples=120, deadline=None)
@given(INT64 | st.integers(-(10**13), 3 * 10**14))
def test_times_as_texts_and_back(ms):
    stamp = Stamp(TopicPartition("t", 0))
    found, _ = read(mux(encode([Record(0, ms, None, b"v")]), stamp, LATER_MS).shares.buffers[0])
    text = dict(found[0].headers)[NAMES[2]]
    assert text == labels.time_text(ms).encode()
    assert labels.time_of(text) == ms


TIMES = [
    b"1970-01-01T00:00:00Z", b"2024-02-29T23:59:59.9Z", b"2023-02-29T23:59:59Z", b"2000-02-29T00:00:00+00:00",
    b"1900-02-29T00:00:00Z", b"0001-01-01T00:00:00Z", b"0000-01-01T00:00:00Z", b"9999-12-31T23:59:59.999999999-23:59",
    b"2026-11-16T10:52:09.1234567891Z", b"2026-11-16T10:52:09.Z", b"2026-11-16T10:52:60Z", b"2026-11-16T24:00:00Z",
    b"2026-11-16 10:52:09Z", b"2026-11-16T10:52:09", b"2026-11-16T10:52:09+0100", b"2026-11-16T10:52:09+24:00",
    b"2026-04-31T10:52:09Z", b"2026-12-16T10:52:09+05:30", b"12", b"-0", b"00", b"-", b"", b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775808", b"-9223372036854775809", b"99999999999999999999", b"1e3", b" 1",
]  # fmt: skip


@pytest.mark.parametrize("text", TIMES)
def test_texts_of_times_are_read_as_specified(text):
    headers = ((NAMES[0], b"t"), (NAMES[1], b"0"), (NAMES[2], text))
    done = demux(encode([Record(0, 5, None, b"v", headers)]), Targets([TopicPartition("t", 0)]), keep=False)
    expected = labels.time_of(text)
    if expected is None:
        assert [s.why for s in done.strange] == [Absurd.TIMESTAMP]
    else:
        assert [r.timestamp for r in read(done.shares.buffers[0])[0]] == [expected]


@settings(deadline=None)
@given(batches(), st.data())
def test_what_is_hurt_inside_a_sound_crc_is_an_error_or_records_and_never_passed(drawn, data):
    """A writer that made nonsense: the CRC is right, the records are not."""
    _, buffer, _ = drawn
    size = header.PREFIX + int.from_bytes(buffer[8:12], "big")
    hurt = bytearray(buffer[:size])
    where = data.draw(st.integers(header.SIZE, size - 1))
    hurt[where] ^= data.draw(st.integers(1, 255))
    hurt[header.CRC : header.ATTRIBUTES] = header.checksum(hurt).to_bytes(4, "big")
    later = encode([Record((1 << 41) + n, NOW_MS, b"k", b"v") for n in range(2)])
    stamp = Stamp(TopicPartition("t", 0))
    for work in (lambda b: mux(b, stamp, LATER_MS), lambda b: demux(b, Targets([stamp.tp]), keep=False)):
        try:
            work(bytes(hurt))
        except CorruptBatch:
            with pytest.raises(CorruptBatch):
                work(bytes(hurt) + later)


def test_a_batch_that_cannot_be_taken_apart_is_not_passed_by_the_shares_before_it():
    good = encode([Record(0, NOW_MS, b"k", b"v", ((NAMES[0], b"t"), (NAMES[1], b"0")))])
    bad = bytearray(encode([Record(1, NOW_MS, b"k", b"v")]))
    bad[header.SIZE] += 2  # the record's size
    bad[header.CRC : header.ATTRIBUTES] = header.checksum(bad).to_bytes(4, "big")
    assert read(demux(good + bytes(bad), Targets([TopicPartition("t", 0)]), keep=True).shares.buffers[0])[1] == 1
    assert read(mux(good + bytes(bad), Stamp(TopicPartition("t", 0)), LATER_MS).shares.buffers[0])[1] == 1
    assert [read(share)[1] for share in split(good + bytes(bad), 3).buffers] == [1, 1, 1]


def test_what_was_aborted_is_nobodys():
    """A stranger's transaction, and one of a target that is not known, between those of one that is."""
    mine = labels.write(Stamp(TopicPartition("t", 0)), NOW_MS, 0)
    other = labels.write(Stamp(TopicPartition("new", 0)), NOW_MS, 0)
    told = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "attributes": header.TRANSACTIONAL}
    log = b"".join(
        [
            encode([Record(0, NOW_MS, b"k", b"v", mine)]),
            encode([Record(1, NOW_MS, b"k", b"strange"), Record(2, NOW_MS, b"k", b"new", other)], **told),
            encode([Record(3, NOW_MS, b"k", b"mine, aborted", mine)], **told),
            encode(
                [Record(4, NOW_MS, b"\0\0\0\0", b"\0\0\0\0\0\0")],
                **{**told, "attributes": header.TRANSACTIONAL | header.CONTROL},
            ),
            encode([Record(5, NOW_MS, b"k", b"w", mine)]),
        ]
    )
    done = demux(log, Targets([TopicPartition("t", 0)]), keep=False, aborted=[(7, 1)])
    assert (done.strange, done.unknown, done.next_offset) == ((), {}, 6)
    chunk = Chunk(done.shares.buffers[0], wanted=0, aborted=[(7, 1)], limits=Limits(), check_crc=True)
    assert chunk.remaining_records == 2
    seen = demux(log, Targets([TopicPartition("t", 0)]), keep=False)  # read_uncommitted
    assert ([s.record.offset for s in seen.strange], seen.unknown) == ([1], {TopicPartition("new", 0): 2})


def test_what_was_aborted_is_told_also_behind_messages_of_the_oldest_format():
    """A log's beginning may be older than transactions: what comes behind it is judged all the same."""
    old = message(1, b"k", b"stray")
    told = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "attributes": header.TRANSACTIONAL}
    log = old + encode([Record(1, NOW_MS, b"k", b"aborted")], **told) + encode([Record(2, NOW_MS, b"k", b"stray too")])
    done = demux(log, Targets([TopicPartition("t", 0)]), keep=False, aborted=[(7, 1)])
    assert [s.record.offset for s in done.strange] == [0, 2]
    assert done.next_offset == 3


def message(magic, key, value):
    """One of before 0.11, at offset 0."""
    body = bytes([magic, 0]) + (NOW_MS.to_bytes(8, "big") if magic else b"")
    body += b"".join(len(one).to_bytes(4, "big") + one for one in (key, value))
    body = zlib.crc32(body).to_bytes(4, "big") + body
    return (0).to_bytes(8, "big") + len(body).to_bytes(4, "big") + body


def test_more_records_than_bytes_are_no_records():
    """No room is made for them before: 2^31 would be more than there is."""
    batch = bytearray(encode([Record(0, NOW_MS, b"k", b"v")]))
    for at in (header.LAST_OFFSET_DELTA, header.COUNT):
        batch[at : at + 4] = ((1 << 31) - 2).to_bytes(4, "big")
    batch[header.CRC : header.ATTRIBUTES] = header.checksum(batch).to_bytes(4, "big")
    stamp = Stamp(TopicPartition("t", 0))
    for work in (
        lambda: demux(bytes(batch), Targets([stamp.tp]), keep=False),
        lambda: mux(bytes(batch), stamp, LATER_MS),
        lambda: split(bytes(batch), 3),
    ):
        with pytest.raises(CorruptBatch, match="2147483646 records in"):
            work()


def test_each_origin_is_judged_once_and_all_its_records_are_strange():
    judged = []
    headers = [labels.write(Stamp(TopicPartition(name, 0)), NOW_MS, 0) for name in ("bad", "new")]
    records = [Record(n, NOW_MS, b"k", b"v", headers[n % 2]) for n in range(2_000)]
    done = demux(
        encode(records),
        Targets([TopicPartition("t", 0)]),
        keep=False,
        refuses=lambda origin: judged.append(origin) or origin.topic == "bad",
    )
    assert judged == [TopicPartition("bad", 0), TopicPartition("new", 0)]
    assert [(s.record.offset, s.why) for s in done.strange] == [(n, Absurd.FORBIDDEN) for n in range(0, 2_000, 2)]
    assert done.unknown == {TopicPartition("new", 0): 1}


def test_names_of_headers_that_are_not_utf_8_come_back_as_they_were():
    name = b"caf\xe9".decode(errors="surrogateescape")
    batch = encode([Record(0, NOW_MS, b"k", b"v", ((name, b"1"),))])
    assert b"caf\xe9" in batch
    (strange,) = demux(batch, Targets([TopicPartition("t", 0)]), keep=False).strange
    assert encode([strange.record]) == batch
    labelled, _ = read(mux(batch, Stamp(TopicPartition("t", 0)), LATER_MS).shares.buffers[0])
    assert labelled[0].headers[0] == (name, b"1")


def test_what_the_fields_own_multiplexers_write_is_read():
    """A time without milliseconds, in a zone, written twice; no offset and no cluster id."""
    time = b"2026-11-16T11:52:09+01:00"
    pairs = (
        (NAMES[0], b"topic2"), (NAMES[1], b"3"), (NAMES[2], time), (NAMES[2], time), (NAMES[3], b"kafka:9092"),
        (NAMES[4], b"mux-replication_spoke1"), (NAMES[5], b"spoke1"),
    )  # fmt: skip
    origin = labels.read((("own", b"1"), *pairs))
    assert origin == Origin(TopicPartition("topic2", 3), 1_794_826_329_000, None, (("own", b"1"),))
    done = demux(encode([Record(0, 5, None, b"v", (("own", b"1"), *pairs))]), Targets([origin.tp]), keep=False)
    assert read(done.shares.buffers[0])[0] == [Record(0, 1_794_826_329_000, None, b"v", (("own", b"1"),))]


def test_of_all_labels_two_are_always_written():
    assert {one.header for one in ALWAYS} == {"MUX_SOURCE_TOPIC", "MUX_SOURCE_TOPIC_PARTITION"}
    bare = labels.write(Stamp(TopicPartition("t", 3), chosen=frozenset()), 1, 2)
    assert bare == (("MUX_SOURCE_TOPIC", b"t"), ("MUX_SOURCE_TOPIC_PARTITION", b"3"))
    assert len(labels.write(Stamp(TopicPartition("t", 3), chosen=ALL), 1, 2)) == 8
