"""`heliograph messages`: options in, lines out. The table at 80 columns, JSON to the byte, and what is said beside."""

from __future__ import annotations

import base64
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from heliograph.batch import Record, encode
from heliograph.cli import sheet
from heliograph.cli.main import run
from heliograph.cli.out import rendered
from heliograph.cli.sheet import JsonLines, Table, Topic, Wide, cut, fitted, shown, when
from heliograph.cli.ticker import Ticker
from heliograph.escaping import escape
from heliograph.formats import Checkpoint
from heliograph.messages.reading import Message
from heliograph.types import TopicPartition
from tests.unit.logs import Logs

T0 = 1_793_491_200_000  # 2026-11-01T00:00:00Z
NASTY = "a\x1b[2Jb\r\n\tc\u202ed".encode()


# ---------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "∅"),
        (b"", '""'),
        (b"plain", "plain"),
        ("grün 漢字".encode(), "grün 漢字"),
        (b"\x00\xffabc", r"b'\x00\xffabc'"),
        (NASTY, r"a\x1b[2Jb\r\n\tc\u202ed"),
        ("\U000e0001x".encode(), r"\U000e0001x"),
        (b"\x7f\x00", r"\x7f\x00"),
    ],
)
def test_nothing_that_moves_a_cursor_is_shown(data: bytes | None, text: str) -> None:
    assert shown(data) == text
    assert shown(data).isprintable()


@pytest.mark.parametrize("width", range(12))
def test_cut_and_fitted_go_by_columns_not_characters(width: int) -> None:
    for text in ("", "abc", "漢字漢字漢字", "e\u0301galite", "👩‍🚀 moon", "x" * 50):
        assert cell_len(cut(text, width)) <= width
        assert cell_len(fitted(text, width)) == width


def test_times() -> None:
    assert when(T0 + 7) == "2026-11-01 00:00:00.007"
    assert when(-1) == "no time"
    assert when(0) == "1970-01-01 00:00:00.000"
    assert when(1 << 62) == str(1 << 62)
    assert when(-5) == "-5"


# ---------------------------------------------------------------- the table


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", rendered(text))


def drawn(width: int, messages: list[Message], kind: str | None = None, end: int = 1000) -> list[str]:
    table = Table(Topic("us", "orders", kind), width, [0, 11], end)
    return [table.heading(), *(plain(line) for message in messages for line in table.lines(message))]


def test_the_table_at_80_columns() -> None:
    headers = (("trace", b"a"), ("trace", b"b"), ("empty", None))
    assert drawn(
        80,
        [
            Message(11, 104, T0, b"customer-17", b'{"event": 104, "kind": "order", "note": "x"}', headers),
            Message(0, 7, T0 + 1, None, None),
        ],
    ) == [
        "time (UTC)               part  offset  key            value",
        '2026-11-01 00:00:00.000    11     104  customer-17    {"event": 104, "kind": "o…',
        "  trace=a  trace=b  empty=∅",
        "2026-11-01 00:00:00.001     0       7  ∅              ∅",
    ]


HARD = [
    Message(11, 123_456_789_012, T0, ("漢字" * 40).encode(), b"\xff" * 400, (("h" * 300, b"v"),) * 5),
    Message(0, 1, -1, NASTY * 9, NASTY * 9, (("\x1b[2J", NASTY),)),
    Message(0, 2, 1 << 62, b"", b""),
]


@pytest.mark.parametrize("width", [44, 60, 69, 70, 80, 81, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for line in drawn(width, HARD, end=123_456_789_013):
        assert cell_len(line) <= width, line
        assert line.isprintable()


def test_a_narrow_terminal_gets_the_time_of_day() -> None:
    assert drawn(60, [Message(0, 7, T0 + 1, b"k", b"v")])[1].startswith("00:00:00.001     0")


def test_what_is_decoded_takes_the_place_of_key_and_value() -> None:
    one = Checkpoint("billing", TopicPartition("us.orders", 3), 1200, 980)
    lines = drawn(80, [Message(0, 7, T0, one.key(), one.value()), Message(0, 8, T0, b"?", b"??")], "checkpoint")
    assert lines[0] == "time (UTC)               part  offset  checkpoint"
    assert lines[1] == "2026-11-01 00:00:00.000     0       7  billing: us.orders-3 at 980, upstream 12…"
    assert lines[2] == "2026-11-01 00:00:00.000     0       8  ?              ??"
    assert lines[3] == "  ! not a record of this kind: checkpoint"


def test_mux_headers_are_said_in_words() -> None:
    headers = (
        ("MUX_SOURCE_TOPIC", b"topic"),
        ("MUX_SOURCE_TOPIC_PARTITION", b"3"),
        ("MUX_SOURCE_IDENTIFIER", b"spoke1"),
    )
    lines = drawn(80, [Message(0, 7, T0, b"k", b"v", headers)])
    assert lines[2] == "  from spoke1 topic-3"
    raw = Table(Topic("us", "orders", None, mux=False), 80, [0], 9)
    assert len(list(raw.lines(Message(0, 7, T0, b"k", b"v", headers)))) == 2


def test_wide_cuts_nothing() -> None:
    message = Message(3, 9, T0, b"k" * 100, b"v" * 500, (("h", b"x" * 300),), appended=True)
    (line,) = Wide(Topic("us", "orders")).lines(message)
    assert "k" * 100 in line
    assert "v" * 500 in line
    assert "h=" + "x" * 300 in line
    assert "  append  " in line


# ---------------------------------------------------------------- JSON


def back(text: Any) -> bytes | None:
    """What a reader of the JSON does."""
    if isinstance(text, dict):
        return base64.b64decode(text["base64"])
    return None if text is None else text.encode()


@pytest.mark.parametrize("data", [None, b"", b"text", b"\xff\x00", NASTY, b'{"base64": "x"}', "漢\u2028".encode()])
def test_json_loses_nothing(data: bytes | None) -> None:
    name = b"\xfe name".decode(errors="surrogateescape")
    message = Message(3, 9, T0, data, data, (("h", data), ("h", data), (name, None)))
    (line,) = JsonLines(Topic("us", "orders")).lines(message)
    assert line.isascii()
    assert "\n" not in line
    found = json.loads(line)
    assert back(found["key"]) == back(found["value"]) == data
    assert [(back(key), back(value)) for key, value in found["headers"]] == [
        (b"h", data),
        (b"h", data),
        (b"\xfe name", None),
    ]
    assert (found["cluster"], found["topic"], found["partition"], found["offset"]) == ("us", "orders", 3, 9)
    assert (found["timestamp"], found["timestamp_ms"], found["timestamp_type"]) == (
        "2026-11-01T00:00:00.000Z",
        T0,
        "CreateTime",
    )


def test_json_without_a_time_and_with_one_that_no_calendar_has() -> None:
    for timestamp_ms in (-1, 1 << 62):
        (line,) = JsonLines(Topic("us", "orders")).lines(Message(0, 0, timestamp_ms, None, None))
        assert json.loads(line)["timestamp"] is None
        assert json.loads(line)["timestamp_ms"] == timestamp_ms


# ---------------------------------------------------------------- the verb


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    """A cluster `us` with a topic `orders` of two partitions, ten messages, a second apart."""
    made = Logs({"orders": 2, "empty": 1, "us.checkpoints.internal": 1})
    for n in range(10):
        headers = (("n", b"%d" % n),) if n % 2 else ()
        made.append("orders", [Record(n // 2, T0 + n * 1000, b"key-%d" % (n % 3), b"value %d" % n, headers)], n % 2)
    monkeypatch.setattr("heliograph.wire.Client", lambda cluster, **_how: made)
    return made


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters = us, eu\nus.bootstrap.servers = a:1\neu.bootstrap.servers = b:1\nus->eu.enabled = true\n"
    )
    return str(path)


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert run(["messages", *arguments]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_last_ten_of_all_partitions_by_time(logs: Logs, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "orders", file, "--cluster", "us")
    assert [one["value"] for one in found] == [f"value {n}" for n in range(10)]
    assert {one["cluster"] for one in found} == {"us"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--last", "3"], [7, 8, 9]),
        (["--from", "beginning", "--limit", "2"], [0, 1]),
        (["--from", "end"], []),
        (["--from", "3"], [6, 7, 8, 9]),
        (["--from", "3", "--until", "4"], [6, 7]),
        (["--from", "2026-11-01T00:00:04Z", "--until", "2026-11-01T00:00:07Z"], [4, 5, 6]),
        (["--partition", "1"], [1, 3, 5, 7, 9]),
        (["--key", "=key-1"], [1, 4, 7]),
        (["--key", "=key-1", "--last", "1"], [7]),
        (["--value", "/ [89]$/"], [8, 9]),
        (["--header", "n"], [1, 3, 5, 7, 9]),
        (["--header", "n==3", "--from", "beginning"], [3]),
        (["--tombstones"], []),
    ],
)
def test_which_are_shown(
    options: list[str], expected: list[int], logs: Logs, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = asked(capsys, "orders", file, "--cluster", "us", *options)
    assert [one["value"] for one in found] == [f"value {n}" for n in expected]


def test_a_time_ago(logs: Logs, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    now_ms = time.time_ns() // 1_000_000
    logs.append("empty", [Record(0, now_ms - 600_000, None, b"old"), Record(1, now_ms - 60_000, None, b"young")])
    assert [one["value"] for one in asked(capsys, "empty", file, "--cluster", "us", "--from", "-5m")] == ["young"]


def test_an_address_in_the_place_of_a_file(logs: Logs, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(asked(capsys, "orders", "--bootstrap-server", "a:1", "--limit", "1")) == 1


def test_the_file_that_lies_here(
    logs: Logs, file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(file).parent)
    assert len(asked(capsys, "orders", "--cluster", "us")) == 10


def test_internal_topics_are_decoded_unless_told_otherwise(
    logs: Logs, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one = Checkpoint("billing", TopicPartition("us.orders", 3), 1200, 980)
    logs.append("us.checkpoints.internal", [Record(0, T0, one.key(), one.value())])
    (found,) = asked(capsys, "us.checkpoints.internal", file, "--cluster", "us")
    assert found["decoded"]["kind"] == "checkpoint"
    assert found["decoded"]["downstream"] == 980
    assert back(found["key"]) == one.key()
    (raw,) = asked(capsys, "us.checkpoints.internal", file, "--cluster", "us", "--raw")
    assert "decoded" not in raw


def test_a_table_where_it_is_asked_for(
    logs: Logs, file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["messages", "orders", file, "--cluster", "us", "--last", "2", "-o", "table"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("time (UTC)")
    assert lines[1].endswith("key-2          value 8")
    assert all(len(line) <= 80 for line in lines)
    assert run(["messages", "orders", file, "--cluster", "us", "--last", "1", "-o", "wide"]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith("key-0  value 9  n=9")


def test_following_ends_with_its_limit(
    logs: Logs, file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = iter(range(100, 200))

    def wait(_seconds: float) -> None:
        logs.append("orders", [Record(0, T0, None, b"value %d" % next(turns))])

    monkeypatch.setattr("heliograph.cli.messages.time.sleep", wait)
    found = asked(capsys, "orders", file, "--cluster", "us", "--follow", "--last", "1", "--limit", "4")
    assert [one["value"] for one in found] == ["value 9", "value 100", "value 101", "value 102"]


@pytest.mark.parametrize(("options", "code"), [(["--follow"], 0), (["--from", "beginning"], 130)])
def test_ctrl_c_ends_it_at_once(
    options: list[str], code: int, logs: Logs, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_arguments: object, **_more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(logs, "fetch" if code else "list_offsets", _after(1 if code else 3, logs, interrupted, code))
    monkeypatch.setattr("heliograph.cli.messages.time.sleep", lambda _seconds: None)
    assert run(["messages", "orders", file, "--cluster", "us", *options]) == code


def _after(calls: int, logs: Logs, then: Any, code: int) -> Any:
    real = logs.fetch if code else logs.list_offsets
    seen = [0]

    def call(*arguments: Any, **more: Any) -> Any:
        seen[0] += 1
        return real(*arguments, **more) if seen[0] <= calls else then()

    return call


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["orders", "FILE"], "say which cluster with --cluster: it has us, eu"),
        (["orders", "FILE", "--cluster", "mars"], "--cluster mars is not in the file: it has us, eu"),
        (["orders", "absent.properties", "--cluster", "us"], "absent.properties: cannot be read"),
        (["orders", "--cluster", "us"], "no FILE is named"),
        (["orders", "FILE", "--bootstrap-server", "a:1"], "one or the other"),
        (
            ["ordrs", "FILE", "--cluster", "us"],
            "us has no topic 'ordrs', or hides it from this principal: did you mean orders?",
        ),
        (["orders", "FILE", "--cluster", "us", "--partition", "7"], "it has partitions 0 to 1"),
        (["orders", "FILE", "--cluster", "us", "--from", "99"], "has no offset 99: it ends before 5"),
        (["orders", "FILE", "--cluster", "us", "--from", "someday"], "'someday' is no time"),
        (["orders", "FILE", "--cluster", "us", "--until", "-5"], "--last 5"),
        (["orders", "FILE", "--cluster", "us", "--from", "-5m", "--until", "-6m"], "not after"),
        (["orders", "FILE", "--cluster", "us", "--from", "0", "--last", "5"], "one or the other"),
        (["orders", "FILE", "--cluster", "us", "--key", "/[/"], "is no regular expression"),
        (["orders", "FILE", "--cluster", "us", "--header", "=x"], "names no header"),
        (["orders", "FILE", "--cluster", "us", "-o", "xml"], "xml"),
    ],
)
def test_bad_input_is_code_2(
    arguments: list[str],
    words: str,
    logs: Logs,
    file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run(["messages", *(file if one == "FILE" else one for one in arguments)]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


def test_nothing_found_is_said_and_is_no_error(logs: Logs, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["messages", "empty", file, "--cluster", "us"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "empty on us: no message, 0 offsets looked at" in said.err


def test_a_batch_that_cannot_be_read_is_code_1(logs: Logs, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    broken = bytearray(encode([Record(0, T0, b"k", b"v")]))
    broken[-1] ^= 1
    logs.put("empty", bytes(broken))
    logs.append("empty", [Record(1, T0, None, b"behind")])
    assert run(["messages", "empty", file, "--cluster", "us"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["value"] == "behind"
    assert "note: empty-0: offsets 0 to 0 cannot be read" in said.err


# ---------------------------------------------------------------- progress


class Terminal:
    def __init__(self, tty: bool = True) -> None:
        self.text, self._tty = "", tty

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return self._tty


def test_progress_only_where_it_takes_long_and_somebody_looks() -> None:
    now = [0.0]
    out = Terminal()
    ticker = Ticker(lambda: "half", out=out, clock=lambda: now[0])  # type: ignore[arg-type]
    ticker.tick()
    assert out.text == ""
    now[0] = 1.1
    ticker.tick()
    ticker.tick()
    assert out.text == "\r\x1b[2Khalf"
    ticker.clear()
    ticker.clear()
    assert out.text == "\r\x1b[2Khalf\r\x1b[2K"
    pipe = Terminal(tty=False)
    silent = Ticker(lambda: "half", out=pipe, clock=lambda: now[0])  # type: ignore[arg-type]
    now[0] = 99.0
    silent.tick()
    assert pipe.text == ""
    silent.say("a note")
    assert pipe.text == "a note\n"


def test_safe_leaves_text_alone() -> None:
    assert escape("né 漢 «x»") == "né 漢 «x»"
    assert sheet.NULL not in escape("null")
