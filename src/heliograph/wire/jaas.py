"""`sasl.jaas.config`: one login module and its options, as Kafka's Java clients read it.

Answers for the text only (quotes, escapes, comments); what the options mean is `security`'s. Problems never quote the
text: it holds passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_CONTROL_FLAGS = {"required", "requisite", "sufficient", "optional"}
# The escapes of Java's StreamTokenizer; any other character after a backslash stands for itself.
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_TOKEN = re.compile(
    # A comment that is not closed reaches to the end, as in Java; else each of many `/*` would be searched to the end.
    r"""\s+ | //[^\n]* | /\*.*?(?:\*/|\Z)
      | (?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<sign>[=;])
      | (?P<word>[^\s=;"']+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LoginModule:
    name: str
    options: dict[str, str] = field(repr=False)


def parse(text: str) -> LoginModule:
    """`Module required key="value" …;` — ValueError says what is wrong with it."""
    tokens = list(_tokens(text))
    words = [kind for kind, _ in tokens]
    if len(tokens) < 2 or words[0] != "word":
        raise ValueError('it must read: LoginModule required key="value" …;')
    if tokens[1][1].lower() not in _CONTROL_FLAGS:
        raise ValueError("the word after the login module must be 'required'")
    if tokens[-1] != ("sign", ";"):
        raise ValueError("it must end with ';'")
    options, rest = {}, tokens[2:-1]
    if ("sign", ";") in rest:
        raise ValueError("it must name one login module only")
    for at in range(0, len(rest), 3):
        entry = rest[at : at + 3]
        if len(entry) < 3 or entry[0][0] == "sign" or entry[1] != ("sign", "=") or entry[2][0] == "sign":
            raise ValueError(f'option {at // 3 + 1} is not key="value" (a quote may be missing)')
        options[entry[0][1]] = entry[2][1]
    return LoginModule(tokens[0][1], options)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError("a quote is not closed")
        at = match.end()
        kind = match.lastgroup
        if kind == "quoted":
            yield "quoted", _ESCAPED.sub(_unescape, match["quoted"][1:-1])
        elif kind is not None:
            yield kind, match[kind]


def _unescape(match: re.Match[str]) -> str:
    what = match[1]
    return chr(int(what, 8)) if what[0] in "01234567" else _ESCAPES.get(what, what)
