"""What is wrong with a file and what its reader should hear: gathered in one go, each with file, line and key.

Answers for the words around a problem and for keeping secrets and control characters out of them.
"""

from __future__ import annotations

from heliograph.config.properties import Entry
from heliograph.errors import ConfigError
from heliograph.escaping import escape
from heliograph.types import is_secret

LONGEST = 120  # of a key or a value that is quoted


class Report:
    """One file's problems and warnings. A value that was refused counts as absent afterwards."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.refused: set[str] = set()
        self._problems: list[tuple[int, str]] = []
        self._warnings: list[str] = []

    def problem(self, line: int, text: str) -> None:
        self._problems.append((line, f"{self.source}:{line}: {text}" if line else f"{self.source}: {text}"))

    def refuse(self, entry: Entry, reason: str, near: str | None = None, *, known: bool = True) -> None:
        """`known`: whether the key is. What is given to another is not shown: it may be a password, mistyped."""
        self.refused.add(entry.key)
        if " #" in entry.value:
            reason += " (there are no comments at the end of a line: the # and what follows belong to the value)"
        what = shown(entry) if known else printable(entry.key)
        self.problem(entry.line, f"{what}: {reason}" + (f"; did you mean {near}?" if near else ""))

    def warn(self, entry: Entry, reason: str, near: str | None = None) -> None:
        text = f"{self.source}:{entry.line}: {printable(entry.key)}: {reason}"
        self._warnings.append(text + (f"; did you mean {near}?" if near else ""))

    def note(self, text: str) -> None:
        """A warning about the file as a whole."""
        self._warnings.append(f"{self.source}: {text}")

    @property
    def is_sound(self) -> bool:
        return not self._problems

    def raise_problems(self) -> None:
        if self._problems:
            texts = list(dict.fromkeys(escape(text) for _, text in sorted(self._problems)))
            raise ConfigError(texts, source=escape(self.source) if len(texts) > 1 else "")

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(escape, self._warnings)))


def shown(entry: Entry) -> str:
    value = "***" if is_secret(entry.key) else printable(entry.value)
    return f"{printable(entry.key)} = {value}"


def printable(text: str) -> str:
    return escape(text if len(text) <= LONGEST else text[: LONGEST - 3] + "…")
