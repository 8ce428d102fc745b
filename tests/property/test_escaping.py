"""Foreign text reaches no terminal and no text log raw: control characters, ANSI and OSC, bidi overrides (fault E8)."""

from __future__ import annotations

import ast
import io
import json
import re
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from heliograph.cli import out, show
from heliograph.cli.chosen import columns
from heliograph.cli.documents import document
from heliograph.cli.ticker import CLEAR, Ticker
from heliograph.escaping import escape, escape_event
from heliograph.health.status import FlowStatus
from heliograph.textlog import text_renderers

SOURCE = Path(__file__).parent.parent.parent / "src" / "heliograph"
NASTY = st.sampled_from(
    [
        *("\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\x90q\x9c", "\r", "\n", "\x08", "\x7f", "\x00", "\t"),
        *("\u202e", "\u2066", "\u200f", "\u2028", "\u200b", "\ufeff", "\ud800", "\U000e0041", "[bold red]", ":boom:"),
        f"\x00{'0' * 16}:m31\x00",
    ]
)
FOREIGN = st.lists(st.one_of(NASTY, st.text(max_size=8)), max_size=6).map("".join)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def without_colours(text: str) -> str:
    return COLOURS.sub("", text)


@given(FOREIGN)
def test_whatever_it_was_it_is_printable(text: str) -> None:
    assert escape(text).isprintable()
    assert escape(text) == text or not text.isprintable()


@given(FOREIGN, FOREIGN)
def test_one_line_is_printed_as_one_and_colours_are_ours_alone(text: str, other: str) -> None:
    printed = out.rendered(f"{out.style('flow', fg='red', bold=True)} {text}: {other}")
    assert printed.startswith("\x1b[31;1mflow\x1b[0m ")
    assert printed.removeprefix("\x1b[31;1mflow\x1b[0m ").isprintable()
    assert out.rendered(text) == escape(text)


@given(st.lists(FOREIGN, min_size=1, max_size=4))
def test_cells_make_no_lines(cells: list[str]) -> None:
    lines = columns([f"c{at}" for at in range(len(cells))], [cells, cells]).split("\n")
    assert len(lines) == 3
    assert all(map(str.isprintable, lines))


@given(FOREIGN)
def test_json_and_yaml_are_the_same_documents_printable(text: str) -> None:
    shown = document({"key": text, text: [text]}, "json")
    assert all(map(str.isprintable, shown.split("\n")))
    assert json.loads(shown) == {"key": text, text: [text]}
    assert all(line.replace("\t", " ").isprintable() for line in document({"key": text}, "yaml").split("\n"))


@given(FOREIGN, FOREIGN)
def test_the_live_table_and_its_notes(name: str, reason: str) -> None:
    terminal = Terminal()
    console = out.console(file=terminal)
    drawn = show.table([FlowStatus(name, "stalled", reason)], width=console.width)
    console.print(drawn)
    shown = without_colours(terminal.getvalue())
    assert all(map(str.isprintable, shown.split("\n")))


@given(FOREIGN)
def test_a_console_escapes_also_what_nobody_escaped(text: str) -> None:
    terminal = Terminal()
    table = Table()
    table.add_column("x")
    table.add_row(Text(text))
    out.console(file=terminal).print(table, text)
    assert all(map(str.isprintable, without_colours(terminal.getvalue()).split("\n")))


@given(FOREIGN)
def test_a_progress_line(text: str) -> None:
    terminal = Terminal()
    ticker = Ticker(lambda: text, out=terminal, patience_s=-1)
    ticker.tick()
    ticker.say(text)
    assert terminal.getvalue().replace(CLEAR, "").removesuffix("\n").isprintable()


class Odd:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


@given(FOREIGN, FOREIGN)
def test_logs_as_text(event: str, value: str) -> None:
    """Also exceptions, whose words may be a broker's, and objects that print themselves."""
    error = ValueError(value)
    fields = {"event": event, "topic": value, value or "k": 1, "more": [value], "odd": Odd(value), "level": "warning"}
    escaping, rendering = text_renderers(colors=True)
    text = rendering(None, "warning", escaping(None, "warning", {**fields, "exc_info": error}))
    lines = without_colours(text).split("\n")
    assert all(map(str.isprintable, lines))
    assert sum("ValueError" in line for line in lines) >= 1
    assert all(isinstance(key, str) and key.isprintable() for key in escape_event(None, "", fields))


def test_no_log_of_ours_is_text_that_is_not_escaped() -> None:
    """structlog's default would be: the driver and the executors' processes configure it."""
    for path in SOURCE.rglob("*.py"):
        if "ConsoleRenderer(" in path.read_text():
            assert path.name == "textlog.py", path
    assert structlog.dev.ConsoleRenderer


PRINTERS = {"echo", "secho", "print", "Console", "style", "echo_via_pager"}


@pytest.mark.parametrize("path", sorted((SOURCE / "cli").glob("*.py")), ids=lambda path: path.stem)
def test_verbs_print_by_out_alone(path: Path) -> None:
    if path.stem in ("out", "users"):
        return
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PRINTERS:
            if isinstance(node.func.value, ast.Name) and node.func.value.id == "click":
                found.append(f"{path.name}:{node.lineno}: click.{node.func.attr}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "Console"):
            found.append(f"{path.name}:{node.lineno}: {node.func.id}")
    assert not found, "print by heliograph.cli.out, which escapes foreign text"
