"""Incidents and quarantined records as they are written down."""

from __future__ import annotations

from dataclasses import replace
from typing import cast
from uuid import UUID

import pytest
import structlog

from heliograph.batch import Chunk, Limits, Record, decode, encode
from heliograph.mirror import incidents, quarantine
from heliograph.mirror.annals import IncidentLog
from heliograph.mirror.incidents import Book, Incident, Kind, runs_of, span
from heliograph.mirror.offsetmap import Subject
from heliograph.mirror.quarantine import Kept, Place
from heliograph.types import Factor, TopicPartition
from heliograph.wire import Client
from tests.memory_cluster import MemoryCluster

TP, REMOTE, ID = TopicPartition("orders", 3), TopicPartition("us.orders", 3), UUID(int=9)
GAP = Incident(Kind.GAP, TP, ID, 100, 150, "skip", "retention was faster", REMOTE, 1_700_000_000_000)
REFUSED = Incident(
    Kind.REFUSED, TP, ID, 7, 12, "quarantine", "no key", REMOTE, 1_700_000_000_001, ((7, 1), (10, 2)), producer=5
)
LOST = Incident(Kind.TARGET_LOST, TP, None, 40, 40, "stop", "made anew", REMOTE, 1, (), (0, 40))


def book(*known: Incident) -> Book:
    found = Book("us")
    for one in known:
        found.add(incidents.key_of("us", one), incidents.encode(one))
    return found


@pytest.mark.parametrize("incident", [GAP, REFUSED, LOST])
def test_what_is_written_is_read(incident: Incident) -> None:
    key, value = incidents.key_of("us", incident), incidents.encode(incident)
    assert incidents.decode(key, value, "us") == incident
    assert incidents.decode(key, value, "eu") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"[]", b"{}"),
        (b'["HeliographIncident", 3]', b"{}"),
        (b'["HeliographIncident", {"cluster": "us"}]', b"{}"),
        (incidents.key_of("us", GAP), None),
        (incidents.key_of("us", GAP), b"nonsense"),
        (incidents.key_of("us", GAP), incidents.encode(GAP).replace(b"150", b"-150")),
        (incidents.key_of("us", REFUSED), incidents.encode(REFUSED).replace(b"[10,2]", b"[10,0]")),
        (incidents.key_of("us", GAP).replace(b"gap", b"gulf"), incidents.encode(GAP)),
    ],
)
def test_nonsense_is_none(key: bytes | None, value: bytes | None) -> None:
    assert incidents.decode(key, value, "us") is None


def test_what_is_noticed_again_after_a_crash_counts_once() -> None:
    wider = replace(GAP, next=170, at_ms=GAP.at_ms + 5)
    known = book(GAP, REFUSED, wider)
    assert sum(one.lost for one in known.incidents) == 70
    assert [one.kind for one in known.incidents] == [Kind.REFUSED, Kind.GAP]


def test_refused_offsets_only_grow() -> None:
    """A second writer with smaller batches writes {7} under the key of {7, 10, 11}, later: 10 and 11 were appended
    behind, uncounted, all the same."""
    smaller = replace(REFUSED, next=8, offsets=((7, 1),), at_ms=REFUSED.at_ms + 5)
    stopped = replace(smaller, policy="stop")
    overlapping = replace(REFUSED, first=10, next=14, offsets=((10, 1), (13, 1)))
    known = book(REFUSED, smaller, stopped, overlapping)
    assert known.held(Subject(TP, ID), 0, 5) == {7, 10, 11, 13}
    assert known.held_records() == {TP: 4}
    assert [(one.policy, one.offsets) for one in known.incidents if one.first == 7] == [
        ("quarantine", ((7, 1), (10, 2)))
    ]


def test_a_writer_of_an_earlier_copy_takes_nothing_from_a_later_one() -> None:
    """The copy began again under another producer id; a process that slept writes what the first one was refused."""
    later = replace(REFUSED, producer=6, at_ms=REFUSED.at_ms + 5)
    known = book(REFUSED, later, replace(REFUSED, offsets=((7, 1),), at_ms=REFUSED.at_ms + 9))
    assert known.held(Subject(TP, ID), 0, 6) == {7, 10, 11}
    assert known.held_records() == {TP: 3}


def test_what_stands_still_has_lost_nothing() -> None:
    assert replace(GAP, policy="stop").lost == 0
    assert replace(REFUSED, policy="stop").held == 0
    assert (GAP.lost, REFUSED.held) == (50, 3)


def test_held_offsets_are_those_of_one_producer_id_from_the_position_on() -> None:
    known, subject = book(GAP, REFUSED), Subject(TP, ID)
    assert known.held(subject, 0, 5) == {7, 10, 11}
    assert known.held(subject, 11, 5) == {11}
    assert known.held(subject, 0, 6) == set()
    assert known.held(Subject(TP, UUID(int=1)), 0, 5) == set()
    assert book(replace(REFUSED, policy="stop")).held(subject, 0, 5) == set()


def test_offsets_in_words() -> None:
    assert (span(GAP), span(REFUSED), span(LOST)) == ("100-149", "7, 10-11", "40")
    assert runs_of([1, 2, 3, 7, 9, 10]) == ((1, 3), (7, 1), (9, 2))


# ---- quarantine

RECORDS = [
    Record(20, 5, b"k", b"v", (("h", b"1"), ("h", None))),
    Record(21, 9, None, None, ()),
    Record(24, 7, b"", b"", ()),
]


def piece_of(records: list[Record], codec: int = 0):  # type: ignore[no-untyped-def]
    chunk = Chunk(encode(records, codec=codec), wanted=0, limits=Limits())
    piece = chunk.take(merge=False)
    assert piece is not None
    return piece


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_batch_without_its_bad_record(codec: int) -> None:
    piece = piece_of(RECORDS, codec)
    assert quarantine.records_of(piece) == RECORDS
    (one,) = quarantine.parts(piece, {21})
    assert quarantine.records_of(one) == [RECORDS[0], RECORDS[2]]
    assert (one.first_offset, one.next_offset, one.runs, one.max_timestamp) == (20, 25, ((20, 1), (24, 1)), 7)
    assert [record.offset for record in decode(one.data)] == [0, 1]
    assert quarantine.parts(piece, {20, 21, 24}) == []
    assert quarantine.parts(piece, {22}) == [piece]
    assert [p.runs for p in quarantine.parts(piece, set(), 1)] == [((20, 1),), ((21, 1),), ((24, 1),)]


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_in_quarantine_is_what_it_was(record: Record) -> None:
    kept = Kept(Place(TP, ID, record.offset, REMOTE), record, "INVALID_RECORD: no key", 77)
    written = quarantine.keep("us", kept)
    assert written.value is not None
    assert quarantine.read(written, "us") == (written.key, kept)
    assert quarantine.read(written, "eu") is None
    assert quarantine.read(replace(written, value=None), "us") == (written.key, None)
    claimed = replace(kept, sender=(4, 0))
    assert quarantine.read(quarantine.keep("us", claimed), "us") == (written.key, claimed)
    assert quarantine.read(replace(written, value=b"nonsense"), "us") is None


def test_the_record_that_comes_next() -> None:
    chunk = Chunk(encode(RECORDS), wanted=21, limits=Limits())
    assert chunk.next_record() == RECORDS[1]
    chunk.skip(1)
    assert chunk.next_record() == RECORDS[2]


@pytest.mark.parametrize(
    "runs", ["[[7,4611686018427387904]]", "[[7,2000000],[9000000,1]]", "[[9223372036854775807,2]]", "[[true,2]]"]
)
def test_runs_that_no_batch_can_have_are_nobodys(runs: str) -> None:
    """Every offset of a run is held in memory: one record of 2^62 of them ended the process that read the topic."""
    value = incidents.encode(REFUSED).replace(b"[[7,1],[10,2]]", runs.encode())
    assert incidents.decode(incidents.key_of("us", REFUSED), value, "us") is None
    with pytest.raises(incidents.NotAnIncident):
        incidents.read(incidents.key_of("us", REFUSED), value, "us")
    assert incidents.decode(incidents.key_of("us", REFUSED), incidents.encode(REFUSED), "us") == REFUSED


def test_foreign_records_of_the_incidents_topic_are_named_once_by_partition_and_offset() -> None:
    cluster = MemoryCluster("eu")
    log = IncidentLog(cast("Client", cluster), "us", "incidents", Factor(1))
    log.write(REFUSED)
    absurd = incidents.encode(REFUSED).replace(b"[10,2]", b"[10,4611686018427387904]")
    key = incidents.key_of("us", REFUSED)
    log._annals.append([Record(0, 1, key, absurd, ()), Record(0, 1, b"nonsense", b"{}", ())])
    log._annals.append([Record(0, 1, incidents.key_of("ap", GAP), incidents.encode(GAP), ())])  # another cluster's
    with structlog.testing.capture_logs() as said:
        log.catch_up()
        log.catch_up()
    named = [(one["topic"], one["partition"], one["offsets"]) for one in said]
    assert named == [("incidents", 0, [1]), ("incidents", 0, [2])]
    assert log.book.held_records() == {TP: 3}
