"""The judge and the matrix of `make compat`: planted faults are named, and only what was run is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from compat import results
from compat.__main__ import main
from compat.compare import compare, compare_divided, compare_group
from compat.results import BLOCK, Cell, Row
from compat.topics import COLUMNS, HARD, varied

from heliograph.embedded.jars import read_lock
from heliograph.embedded.releases import PINNED, RELEASES
from tests.kit import Record


def records(*values: str, key: bytes | None = b"k") -> list[Record]:
    return [Record(key, value.encode(), offset=n) for n, value in enumerate(values)]


@pytest.mark.parametrize(
    ("copy", "said"),
    [
        (records("a", "b", "c"), ""),
        (records("a", "b", "b", "c"), "1 too many"),
        (records("a", "c"), "1 lost"),
        (records("b", "a", "c"), "first difference at 0"),
        (records("a", "b", "c", key=b"other"), "3 lost, 3 too many"),
    ],
)
def test_a_copy_is_compared_record_by_record(copy: list[Record], said: str) -> None:
    found = compare({0: records("a", "b", "c")}, {0: copy})
    assert said in found
    assert bool(said) == bool(found)


def test_partitions_have_to_be_the_same() -> None:
    assert compare({0: [], 1: []}, {0: []}) == "partitions [0, 1] became [0]"


class TestDivided:
    SOURCE = {0: records("0:0", "0:1"), 1: records("1:0", "1:1")}  # noqa: RUF012

    def test_a_right_one(self) -> None:
        assert compare_divided(self.SOURCE, {0: records("0:0", "1:0", "1:1", "0:1"), 1: []}, 2) == ""

    def test_a_loss_a_duplicate_and_a_reorder(self) -> None:
        assert "1 lost, 0 too many" in compare_divided(self.SOURCE, {0: records("0:0", "1:0", "1:1"), 1: []}, 2)
        twice = {0: records("0:0", "1:0", "1:1", "0:1", "0:1"), 1: []}
        assert "0 lost, 1 too many" in compare_divided(self.SOURCE, twice, 2)
        assert "lies behind" in compare_divided(self.SOURCE, {0: records("0:1", "1:0", "1:1", "0:0"), 1: []}, 2)

    def test_a_key_in_two_partitions(self) -> None:
        assert "is in partitions" in compare_divided(
            self.SOURCE, {0: records("0:0", "1:0"), 1: records("1:1", "0:1")}, 2
        )

    def test_another_number_of_partitions(self) -> None:
        assert "3 partitions were asked for" in compare_divided(self.SOURCE, {0: [], 1: []}, 3)


def test_groups_stand_on_the_very_record() -> None:
    source = [Record(b"k", b"%d" % n, offset=n + 10) for n in range(5)]
    copy = [Record(b"k", b"%d" % n, offset=n) for n in range(5)]
    assert compare_group(source, copy, 12, 2) == ""
    assert "skips 1 records" in compare_group(source, copy, 12, 3)
    assert "reads again 2 records" in compare_group(source, copy, 12, 0)
    assert "no offset" in compare_group(source, copy, 12, None)


class TestMatrix:
    def row(self, source: str = "2.8.2", target: str = PINNED, **more: object) -> Row:
        return Row(source, target, {"codecs": Cell(10)}, when="2026-11-17", **more)  # type: ignore[arg-type]

    def test_only_what_was_run_is_shown(self) -> None:
        text = results.markdown([self.row()])
        assert "| 2.8.2 → 4.3.1 | exact (10) | — |" in text
        assert "3.9.1" not in text

    def test_a_copy_that_differs_is_shown_and_named(self) -> None:
        row = self.row()
        row.note("codecs", "codec-lz4", 5, "1 lost")
        row.note("codecs", "codec-zstd", 5, "")
        assert not row.passed
        assert "**differs**" in results.markdown([row])
        assert results.wrong([row]) == ["2.8.2 → 4.3.1: codec-lz4: 1 lost"]

    def test_a_flow_that_did_not_finish_is_no_success(self) -> None:
        row = self.row(trouble="no copies after 240 s")
        assert not row.passed
        assert "did not finish" in results.markdown([row])

    def test_the_newest_run_of_a_pair_counts(self, tmp_path: Path) -> None:
        old, new, other = self.row(trouble="x"), self.row(), self.row(PINNED, "2.8.2")
        results.write(results.merge([self.row("3.9.1"), old], [other, new]), tmp_path / "results.json")
        rows = results.read(tmp_path / "results.json")
        assert [row.name for row in rows] == ["2.8.2 → 4.3.1", "4.3.1 → 2.8.2", "3.9.1 → 4.3.1"]
        assert rows[0].passed

    def test_the_readme_keeps_everything_else(self) -> None:
        text = f"before\n{BLOCK[0]}\nold\n{BLOCK[1]}\nafter\n"
        renewed = results.in_readme(text, [self.row()])
        assert renewed.startswith("before\n")
        assert renewed.endswith("\nafter\n")
        assert "old" not in renewed
        assert results.in_readme("no place", [self.row()]) == "no place"


def test_every_hard_topic_has_a_column_and_records_differ() -> None:
    assert {topic.column for topic in HARD} == set(COLUMNS)
    made = [record.content for part in range(3) for record in varied(part, 300, 3)]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("version", RELEASES)
def test_every_release_has_a_lock_with_its_broker(version: str) -> None:
    jars = {jar.coordinate for jar in read_lock(RELEASES[version].lock)}
    assert f"org.apache.kafka:kafka_2.13:{version}" in jars
    assert any("reload4j" in one or "log4j-slf4j-impl" in one for one in jars)
    assert not RELEASES[version].zookeeper or any(one.startswith("org.apache.zookeeper:zookeeper:") for one in jars)


def test_an_unknown_release_is_refused_with_those_there_are() -> None:
    done = CliRunner().invoke(main, ["--releases", "1.0.0"])
    assert done.exit_code == 2
    assert "1.0.0: there are 2.8.2, 3.3.2, 3.9.1, 4.0.2" in done.output
