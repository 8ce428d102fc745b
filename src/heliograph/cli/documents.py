"""`-o json|yaml|wide`: documents for programs, tables for people.

YAML is written here for what JSON can hold, and by rules that leave nothing to a reader's guess: whatever could be
taken for a number, a boolean, a date or syntax stands in double quotes, as JSON writes it; a text of several lines is a
block.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from heliograph.types import is_secret

F = TypeVar("F", bound=Callable[..., Any])

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})  # to readers of YAML 1.1
# What JSON leaves as it is inside quotes and YAML does not allow there, or takes for the end of a line.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")
_BLOCK = re.compile(r"[^\s\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]"
                    r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]*")  # fmt: skip


def output_option(function: F) -> F:
    return click.option(
        "-o", "--output", type=click.Choice(["text", "wide", "json", "yaml"]), default="text", show_default=True
    )(function)


def document(value: Any, output: str) -> str:
    """As JSON or as YAML."""
    return json.dumps(value, indent=2, ensure_ascii=False) if output == "json" else "\n".join(yaml_lines(value))


def masked(value: Any) -> Any:
    """The same with *** for secrets: a worker may show them, a terminal and its log should not."""
    if isinstance(value, dict):
        return {
            key: "***" if isinstance(one, str) and is_secret(str(key)) else masked(one) for key, one in value.items()
        }
    return [masked(one) for one in value] if isinstance(value, list) else value


def yaml_lines(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from _entry(f"{_text(str(key))}:", one)
    elif isinstance(value, list | tuple) and value:
        for one in value:
            yield from _entry("-", one)
    else:
        yield _scalar(value)


def _entry(head: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict | list | tuple) and value:
        lines = list(yaml_lines(value))
        if head == "-":  # a list's element begins on the line of its dash
            yield f"- {lines[0]}"
            lines = lines[1:]
        else:
            yield head
        yield from (f"  {line}" if line else "" for line in lines)
    elif isinstance(value, str) and "\n" in value and _BLOCK.fullmatch(value) and not value.endswith("\n\n"):
        yield f"{head} {'|' if value.endswith(chr(10)) else '|-'}"
        yield from (f"  {line}" if line else "" for line in value.removesuffix("\n").split("\n"))
    else:
        yield f"{head} {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    return json.dumps(list(value) if isinstance(value, tuple) else value)  # {} [] null true 1 1.5 are YAML as they are


def _text(value: str) -> str:
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def plain(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as text, or as base64 where they are none: nothing is lost."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
