"""The table and the JSON lines, drawn from made-up statuses."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console

from heliograph.cli import rows, scene
from heliograph.cli.show import PARKED_SHOWN, LineView, TableView, duration, json_line, short, table, view
from heliograph.health.status import CapStatus, FlowStatus, ParkedPartition

BUSY = FlowStatus(
    "us->eu", "running", topics=12, partitions=1_024, tasks=16, records=123_456_789, bytes=987_654_321_000,
    records_per_s=1_234_567.8, bytes_per_s=345_678_901.2, lag_records=12_345_678, epoch=7, lag_seconds=83.4,
    latency_p99_ms=8.4,
)  # fmt: skip
ILL = FlowStatus(
    "a-long-source-alias->a-long-target-alias", "restarting", reason="the Spark query ended: out of memory",
    parked=(
        ParkedPartition("orders", 3, "the target has 3 partitions", "Add partitions to us.orders"),
        ParkedPartition("payments", None, "no permission", "Allow WRITE"),
    ),
)  # fmt: skip


def drawn(*statuses: FlowStatus, width: int = 80) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(table(statuses, width))
    return out.getvalue().splitlines()


def test_everything_fits_80_columns() -> None:
    lines = drawn(BUSY, ILL)
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for heading in ("flow", "state", "records/s", "MB/s", "lag", "behind", "p99", "tasks"):
        assert heading in text
    row = next(line for line in lines if "us->eu" in line)
    for cell in ("running", "1,234,568", "345.7", "12.3M", "83s", "8ms", "16"):
        assert cell in row


def test_partitions_come_in_from_100_columns() -> None:
    lines = drawn(BUSY, ILL, width=100)
    assert max(map(len, lines)) <= 100
    assert "12/1024" in next(line for line in lines if "us->eu" in line)


def test_totals_come_in_on_a_wide_terminal() -> None:
    text = "\n".join(drawn(BUSY, ILL, width=140))
    assert "123M" in text
    assert "987,654" in text
    assert "a-long-source-alias->a-long-target-alias" in text


def test_reasons_and_parked_partitions_stand_below() -> None:
    text = " ".join(line.strip() for line in drawn(BUSY, ILL))
    assert "the Spark query ended: out of memory" in text
    assert "orders-3: the target has 3 partitions. Add partitions to us.orders" in text
    assert "payments: no permission. Allow WRITE" in text


def test_caps_stand_below_with_what_is_used() -> None:
    caps = (CapStatus(None, 10_000_000, 9_900_000.4), CapStatus("history", 2_500_000, 12_345.0))
    text = "\n".join(drawn(FlowStatus("us->eu", "running", caps=caps)))
    assert "us->eu: capped at 10 MB/s, using 9.9" in text
    assert "us->eu: history capped at 2.5 MB/s, using 0.0123" in text


def test_many_parked_partitions_are_counted_not_listed() -> None:
    parked = tuple(ParkedPartition("t", number, "why", "") for number in range(30))
    text = "\n".join(drawn(FlowStatus("a->b", "running", parked=parked)))
    assert text.count("parked a->b") == PARKED_SHOWN
    assert f"and {30 - PARKED_SHOWN} more parked" in text


def test_figures_that_are_not_known_are_not_zero() -> None:
    assert re.search(r"a->b +starting +0 +0\.0 +\? +\? +- +0", "\n".join(drawn(FlowStatus("a->b", "starting"))))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (0.0004, "0s"), (0.0084, "8ms"), (0.9994, "999ms"), (0.9996, "1.0s"), (9.94, "9.9s"), (9.96, "10s"),
        (99.4, "99s"), (99.6, "2m"), (5_969, "99m"), (5_971, "2h"), (99.4 * 3600, "99h"), (99.6 * 3600, "4d"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (99_999, "99,999"), (100_000, "100k"), (999_999, "1.0M"), (12_345_678, "12.3M"), (5 * 10**12, "5.0T")],
)
def test_short_numbers(number: int, text: str) -> None:
    assert short(number) == text


def test_a_json_line_holds_every_field() -> None:
    line = json_line([BUSY, ILL])
    assert "\n" not in line
    said = json.loads(line)
    assert said["time"].endswith("Z")
    assert [flow["name"] for flow in said["flows"]] == [BUSY.name, ILL.name]
    assert said["flows"][0]["lag_records"] == 12_345_678
    assert said["flows"][0]["records_per_s"] == 1_234_567.8
    assert said["flows"][1]["parked"][0] == {
        "topic": "orders",
        "partition": 3,
        "reason": "the target has 3 partitions",
        "fix": "Add partitions to us.orders",
    }


def test_json_lines_come_at_once_then_seldom_and_at_the_end() -> None:
    out = io.StringIO()
    with LineView(out, report_seconds=3600) as shown:
        for records in range(5):
            shown.update([FlowStatus("a->b", "running", records=records)])
        assert len(out.getvalue().splitlines()) == 1
    said = [json.loads(line)["flows"][0]["records"] for line in out.getvalue().splitlines()]
    assert said == [0, 4]


def test_rows_have_a_header_once_in_a_while_and_notes_once() -> None:
    said = rows.of_flows()
    first = said([BUSY, ILL]).splitlines()
    assert first[0].split() == ["time", "flow", "state", "records/s", "MB/s", "lag", "behind", "p99"]
    assert re.fullmatch(r"\d\d:\d\d:\d\d  us->eu +running +1,234,568 +345\.7 +12\.3M +83s +8ms", first[1])
    assert first[0].index("p99") + len("p99") == len(first[1])
    assert "a-long-source-alias->a-long-target-alias" in first[2]
    assert first[3].endswith("the Spark query ended: out of memory")
    assert len(said([BUSY, ILL]).splitlines()) == 2  # neither the header nor what was said before
    headers = sum("records/s" in said([BUSY]) for _ in range(2 * rows.AGAIN))
    assert headers == 2


def test_a_foreign_name_makes_no_line_of_its_own() -> None:
    said = rows.of_flows()([FlowStatus("us->eu\nforged\x1b[2J", "running")])
    assert len(said.splitlines()) == 2
    assert "\x1b" not in said


@pytest.mark.parametrize(("output", "is_json"), [("table", False), ("json", True)])
def test_a_demo_on_a_pipe_prints_rows_unless_json_is_asked_for(
    output: str, is_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with scene.view(output, 3600, rows.of_flows(), json_line) as shown:
        shown.update([BUSY])
    said = capsys.readouterr().out
    assert said.startswith("{") == is_json
    assert is_json or said.splitlines()[1].split()[1:3] == ["us->eu", "running"]


def test_a_terminal_gets_the_table_and_a_pipe_json() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert isinstance(view(5, io.StringIO()), LineView)
    terminal = Terminal()
    with view(5, terminal) as shown:
        assert isinstance(shown, TableView)
        shown.update([BUSY])
    assert "us->eu" in terminal.getvalue()
