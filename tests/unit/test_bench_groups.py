"""What a group's place on the target is worth, by the records."""

from __future__ import annotations

from pathlib import Path

from bench.groups import Copies, Entry, copies, figures, verdict
from bench.peers import Job, properties
from bench.report import markdown
from bench.results import Measured, Row
from bench.scenarios import SCENARIOS

PLACE = ("t", 0)
# Source offsets 0-4 and 6-9: 5 is a marker. One to one on the target but for that.
EVEN = Copies(tuple((n, n if n < 5 else n + 1) for n in range(9)), frozenset({0, 1, 2, 3, 4, 6, 7, 8, 9}))


def test_a_place_is_exact_before_it_is_again_behind_it_missed() -> None:
    assert [(EVEN.again(7, at), EVEN.missed(7, at)) for at in (3, 6, 8)] == [(3, 0), (0, 0), (0, 2)]
    assert (EVEN.again(5, 5), EVEN.missed(5, 5)) == (0, 0)  # the marker: the next record is the place
    assert (EVEN.again(10, 9), EVEN.missed(10, 9)) == (0, 0)  # the end


def test_a_record_that_is_there_twice_is_read_again_and_not_missed() -> None:
    twice = Copies(((0, 0), (1, 1), (2, 0), (3, 1), (4, 2)), frozenset({0, 1, 2}))
    assert (twice.again(1, 1), twice.missed(1, 1)) == (1, 0)
    assert (twice.again(1, 3), twice.missed(1, 3)) == (0, 0)
    assert verdict([twice, EVEN]) == "doubled: 2"


def entries(*values: tuple[int, bytes]) -> list[Entry]:
    return [Entry(offset, None, value) for offset, value in values]


def test_copies_lead_back_to_their_source_also_when_that_was_compacted_since() -> None:
    source = entries((1, b"1"), (4, b"4"))
    found = copies(source, source, entries((0, b"0"), (1, b"1"), (2, b"4")))
    assert found.pairs == ((0, 0), (1, 1), (2, 4))
    assert verdict([found]) == "exact"


def test_lost_and_aborted_records_are_named() -> None:
    everything, committed = entries((0, b"a"), (1, b"b"), (2, b"c")), entries((0, b"a"), (2, b"c"))
    found = copies(everything, committed, entries((0, b"b"), (1, b"c")))
    assert verdict([found]) == "lost: 1, aborted ones copied: 1"


def test_figures_count_offsets_and_groups() -> None:
    wanted = {"a": {PLACE: 7}, "b": {PLACE: 7}, "c": {PLACE: 7}, "d": {PLACE: 3}}
    placed = {("a", PLACE): 6, ("b", PLACE): 2, ("c", PLACE): 8}
    assert figures(wanted, placed, {PLACE: EVEN}) == {
        "places": 4, "exact": 1, "exact_percent": 25, "not_exact": 3, "missed": 2, "untranslated": 1,
        "groups_without": 1, "again_median": 0, "again_max": 4,
    }  # fmt: skip
    assert "again_max" not in figures(wanted, {}, {PLACE: EVEN})


def test_the_page_shows_how_near_each_peer_came() -> None:
    row = Row("heliograph", 1, "exact", figures({"a": {PLACE: 7}}, {("a", PLACE): 6}, {PLACE: EVEN}))
    text = markdown({"translation": Measured("translation", "now", 1, {}, (row,))})
    assert "| translation | offsets not placed on the very record: none | 0 | pass |" in text
    assert "| Heliograph | 1 | 1 | 0 | 0 | 0 | 0 | 0 | exact |" in text
    assert "translateOffsets" in text


def test_each_peer_has_a_target_alias_of_its_own_and_mm2_is_tuned_for_offsets() -> None:
    scenario = SCENARIOS["translation"]
    jobs = {p: Job(p, f"{p}-1", "a,b", "s:1", "t:1", scenario, Path("x"), f"to-{p}") for p in scenario.peers}
    tuned, plain = properties(jobs["mm2-tuned"]), properties(jobs["mm2"])
    assert tuned["offset.lag.max"] == "0"
    assert "offset.lag.max" not in plain
    assert plain["config.properties.exclude"] == ".*"
    assert plain["clusters"] == "mm2-1, to-mm2"
    assert tuned["to-mm2-tuned.offset.flush.interval.ms"] == "1000"
