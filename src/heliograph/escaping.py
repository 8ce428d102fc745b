"""Foreign text made fit for a terminal and a text log: the one function for it.

Names of topics and groups, headers, keys, and words of brokers, workers and plugins are anybody's. Raw they could move
the cursor, recolour or retitle a terminal (ANSI, OSC), turn the direction of what stands beside them (bidi overrides),
or forge a line of a log. What is not printable, by Unicode's categories, is written as an escape: ESC as `\\x1b`.

Everything printed goes through `cli.out`, everything logged as text through `escape_event`.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape(text: str) -> str:
    """One line; printable, whatever it was."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def escape_lines(text: str) -> str:
    """The same with line ends kept: for texts of several lines whose lines are ours."""
    return "\n".join(map(escape, text.split("\n")))


def escape_event(_logger: object, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor, before a renderer of text: names and values, whatever their types print."""
    return {escape(str(key)): one if key == "exc_info" else _value(one) for key, one in event.items()}


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return escape(value)
    shown = repr(value)
    return value if shown.isprintable() else escape(shown)


def _escaped(char: str) -> str:
    code = ord(char)
    return _SHORT.get(char) or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )
