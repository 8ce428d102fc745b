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


def output_option(function: F) -> F:
    return click.option(
        "-o", "--output", type=click.Choice(["text", "wide", "json", "yaml"]), default="text", show_default=True
    )(function)


def document(value: Any, output: str) -> str:
    """As JSON or as YAML."""
    if output == "json":
        return "\n".join(map(_escaped, json.dumps(value, indent=2, ensure_ascii=False).split("\n")))
    return "\n".join(yaml_lines(value))


def masked(value: Any) -> Any:
    """The same with *** for secrets: a worker may show them, a terminal and its log should not. Of MM2's connectors
    also for values of unknown keys, as our own API has it."""
    from heliograph.config import credentials
    from heliograph.config.connectors import class_of

    if isinstance(value, dict) and class_of(str(value.get("connector.class", ""))) is not None:
        return credentials.masked(value)
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
    elif isinstance(value, str) and _is_block(value):
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
    return _escaped(json.dumps(value, ensure_ascii=False))


def _is_block(value: str) -> bool:
    """Several lines that can stand in YAML as they are, and that a terminal may show."""
    if "\n" not in value or value.endswith("\n\n") or value[0].isspace():
        return False
    return all(line.replace("\t", " ").isprintable() for line in value.split("\n"))


def _escaped(quoted: str) -> str:
    """What stands in a text's quotes and is not printable, as JSON and YAML both write it: JSON leaves C1 control
    characters and bidi overrides as they are, and YAML does not allow some of them."""
    if quoted.isprintable():
        return quoted
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in quoted)


def plain(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as text, or as base64 where they are none: nothing is lost."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
