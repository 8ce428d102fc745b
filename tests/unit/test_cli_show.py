"""The table and the JSON lines, drawn from made-up statuses."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from heliograph.cli.show import PARKED_SHOWN, JsonView, TableView, json_line, short, table, view
from heliograph.health.status import CapStatus, FlowStatus, ParkedPartition

BUSY = FlowStatus(
    "us->eu", "running", topics=12, partitions=1_024, tasks=16, records=123_456_789, bytes=987_654_321_000,
    records_per_s=1_234_567.8, bytes_per_s=345_678_901.2, lag_records=12_345_678, epoch=7,
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
    for heading in ("flow", "state", "records/s", "MB/s", "lag", "tasks", "topics/parts"):
        assert heading in text
    row = next(line for line in lines if "us->eu" in line)
    for cell in ("running", "1,234,568", "345.7", "12.3M", "16", "12/1024"):
        assert cell in row


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


def test_a_lag_that_is_not_known_is_not_zero() -> None:
    assert "?" in "\n".join(drawn(FlowStatus("a->b", "starting")))


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
    with JsonView(out, report_seconds=3600) as shown:
        for records in range(5):
            shown.update([FlowStatus("a->b", "running", records=records)])
        assert len(out.getvalue().splitlines()) == 1
    said = [json.loads(line)["flows"][0]["records"] for line in out.getvalue().splitlines()]
    assert said == [0, 4]


def test_a_terminal_gets_the_table_and_a_pipe_json() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert isinstance(view(5, io.StringIO()), JsonView)
    terminal = Terminal()
    with view(5, terminal) as shown:
        assert isinstance(shown, TableView)
        shown.update([BUSY])
    assert "us->eu" in terminal.getvalue()
