"""Everything that a verb prints: the only place that writes to a terminal (a test looks for others).

Whatever reaches the terminal is escaped here (`heliograph.escaping`), so no verb has to know which of its texts are
foreign. Colours are ours alone: `style` marks them by a token of this process, which no foreign text can hold.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Any

import click

from heliograph.escaping import escape

if TYPE_CHECKING:
    from rich.console import Console

_TOKEN = secrets.token_hex(8)
_MARK = re.compile(rf"\x00{_TOKEN}:(m[0-9;]*|K)\x00")
CLEAR_LINE = f"\x00{_TOKEN}:K\x00"  # of a terminal: whatever stands on the line goes


def style(text: str, **how: Any) -> str:
    """As `click.style`, for text that `echo` prints."""
    codes = click.style("", reset=False, **how).removeprefix("\x1b[").removesuffix("m").replace("m\x1b[", ";")
    return f"\x00{_TOKEN}:m{codes}\x00{text}\x00{_TOKEN}:m0\x00" if codes else text


def echo(text: str, *, err: bool = False, nl: bool = True, color: bool | None = None) -> None:
    """One line: an end of line in it is escaped too."""
    click.echo(rendered(text), err=err, nl=nl, color=color)


def echo_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Several lines, each of which is one."""
    click.echo("\n".join(map(rendered, lines)), err=err)


def echo_document(text: str, *, nl: bool = True) -> None:
    """A text whose lines are ours: JSON, YAML, a page, a table of escaped cells."""
    click.echo("\n".join(map(rendered, text.split("\n"))), nl=nl)


def rendered(text: str) -> str:
    """One line as it is printed."""
    pieces = _MARK.split(text)  # text and marks in turn
    return "".join(_code(piece) if at % 2 else escape(piece) for at, piece in enumerate(pieces))


def print_beside_table(text: str) -> None:
    """By print: while the live table is up rich stands behind sys.stderr, and click would write past it."""
    print(escape(text), file=sys.stderr)


def console(*, stderr: bool = False, file: IO[str] | None = None) -> Console:
    """A rich console that escapes whatever it renders, and takes no text for markup."""
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
    from rich.segment import Segment

    class Escaped:
        def __init__(self, inner: ConsoleRenderable) -> None:
            self._inner = inner

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for segment in console.render(self._inner, options):
                text = segment.text
                safe = text if segment.control or text == "\n" else "\n".join(map(escape, text.split("\n")))
                yield segment if safe == text else Segment(safe, segment.style, segment.control)

    class Escaping(RenderHook):
        def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
            return [Escaped(one) for one in renderables]

    made = Console(stderr=stderr, file=file, markup=False, emoji=False, highlight=False)
    made.push_render_hook(Escaping())
    return made


def _code(mark: str) -> str:
    return "\r\x1b[2K" if mark == "K" else f"\x1b[{mark[1:]}m"
