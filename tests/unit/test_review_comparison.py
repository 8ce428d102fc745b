"""A partition and its copy, record by record: what may be missing without harm, and what may not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from heliograph.batch import Record, encode
from heliograph.errors import BatchError
from heliograph.mirror.offsetmap import Span
from heliograph.review.comparison import Compared, compare, stretch
from heliograph.types import TopicPartition

TP = TopicPartition("orders", 0)
TRANSACTIONAL = 0x10


class Log:
    """A partition's batches, handed out a few at a time, from the batch that holds the offset asked for."""

    def __init__(self, *batches: Sequence[Record], attributes: int = 0) -> None:
        self.batches = [(b[-1].offset, encode(list(b), attributes=attributes)) for b in batches]

    def fetch(self, tp: TopicPartition, offset: int, *, max_bytes: int = 0) -> Any:
        class Fetched:
            records = b"".join([data for last, data in self.batches if last >= offset][:2])
            high_watermark = 100

        return Fetched


def records(*offsets: int, shift: int = 0) -> list[Record]:
    return [Record(n + shift, 1000 + n, b"k%d" % n, b"v%d" % n, (("h", b"%d" % n),)) for n in offsets]


def check(source: Log, target: Log, spans: list[Span], end: int = 100, **more: Any) -> Compared:
    return compare(stretch(source, TP, spans[0].source, end), stretch(target, TP, spans[0].target, 100), spans, **more)


def test_a_true_copy_over_holes_and_batches() -> None:
    source = Log(records(*range(5)), records(7, 8), records(*range(9, 20)))
    target = Log(records(*range(3), shift=10), records(3, 4, shift=10), records(*range(7, 20), shift=8))
    found = check(source, target, [Span(0, 10, 5), Span(7, 15, 13)])
    assert (found.same, found.problem) == (18, "")


def test_what_the_target_refused_is_not_missing() -> None:
    source = Log(records(*range(10)))
    target = Log(records(*range(4)), records(*range(5, 10), shift=-1))
    spans = [Span(0, 0, 4), Span(5, 4, 5)]
    assert check(source, target, spans).problem == "1 records missing, first at source offset 4"
    assert check(source, target, spans, passed_over={4}) == Compared(same=9)


def test_only_what_lies_before_the_end_is_compared() -> None:
    source, target = Log(records(*range(10))), Log(records(*range(5)))
    assert check(source, target, [Span(0, 0, 5)], end=5).problem == ""
    assert check(source, target, [Span(0, 0, 5)], end=6).problem == "1 records missing, first at source offset 5"


@pytest.mark.parametrize("change", [{"value": b"x"}, {"key": None}, {"headers": ()}, {"timestamp": 1}])
def test_a_changed_record_is_named(change: dict[str, Any]) -> None:
    copies = records(*range(6))
    copies[4] = replace(copies[4], **change)
    found = check(Log(records(*range(6))), Log(copies), [Span(0, 0, 6)])
    assert (found.same, found.changed, found.problem) == (5, 1, "1 records changed, first at source offset 4")


def test_a_lost_record_is_named_unless_retention_or_compaction_may_have_taken_it() -> None:
    source, target, map_ = Log(records(*range(6))), Log(records(0, 1, 3, 4, 5)), [Span(0, 0, 6)]
    assert check(source, target, map_).problem == "1 records missing, first at source offset 2"
    assert check(source, target, map_, compacted=True).problem == ""
    assert check(source, Log(records(3, 4, 5)), map_, target_start=3).same == 3
    assert check(Log(records(0, 5)), target, map_).same == 2  # compacted at the source since


def test_a_record_that_no_run_has_is_lost_unless_it_was_part_of_a_transaction() -> None:
    map_ = [Span(0, 0, 3), Span(5, 3, 1)]
    plain, target = records(0, 1, 2, 3, 4, 5), Log(records(0, 1, 2), records(5, shift=-2))
    assert check(Log(plain), target, map_).problem == "2 records missing, first at source offset 3"
    assert check(Log(plain, attributes=TRANSACTIONAL), target, map_).problem == ""


def test_what_cannot_be_read_is_not_called_equal() -> None:
    class Old:
        def fetch(self, tp: TopicPartition, offset: int, *, max_bytes: int = 0) -> Any:
            class Fetched:
                records = bytes(100)

            return Fetched

    with pytest.raises(BatchError, match="not compared"):
        list(stretch(Old(), TP, 0, 5))
