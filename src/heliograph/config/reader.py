"""Reads single values out of a view, and keeps where each came from.

Answers for defaults, for a refused value counting as absent, and for what `heliograph explain` shows, secrets masked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from heliograph.config import keys, values
from heliograph.config.model import Explained
from heliograph.config.report import Report, printable
from heliograph.config.shape import Scope
from heliograph.config.views import Setting, View
from heliograph.types import is_secret

T = TypeVar("T")

# "Never" where a number is wanted: ten years, which every timer can hold.
NEVER_S = 10 * 365 * 86_400.0


class Reader:
    """Reads values out of views and keeps where each came from. A value that was refused counts as absent."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.rows: list[Explained] = []

    def read(self, view: View, name: str, parse: Callable[[str], T], default: T, *, label: str = "") -> T:
        setting = self.setting(view, name)
        value = default
        if setting:
            try:
                value = parse(setting.value)
            except ValueError as problem:
                self.report.refuse(setting.entry, "not right here" if setting.provided else str(problem))
                setting = None
        self.rows.append(explained(label or name, value, setting))
        return value

    def setting(self, view: View, name: str) -> Setting | None:
        found = view.get(name)
        return None if found is None or found.entry.key in self.report.refused else found

    def boolean(self, view: View, name: str, default: bool) -> bool:
        return self.read(view, name, values.boolean, default)

    def integer(self, view: View, name: str, default: int) -> int:
        key = keys.find(name, tuple(Scope))
        assert key is not None
        return self.read(view, name, lambda text: values.integer(key, text), default)

    def choice(self, view: View, name: str, default: str) -> str:
        key = keys.find(name, tuple(Scope))
        assert key is not None
        return self.read(view, name, lambda text: values.choice(key, text), default)

    def interval_s(self, view: View, stem: str, default_s: int, *, enabled: bool = True) -> float | None:
        """`<stem>.enabled` and `<stem>.interval.seconds` as one: None for never."""
        on = self.boolean(view, f"{stem}.enabled", enabled)
        seconds = self.integer(view, f"{stem}.interval.seconds", default_s)
        return min(float(seconds), NEVER_S) if on and seconds > 0 else None

    def patterns(self, view: View, name: str, old: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """A list of exclusions, under its own name or under the one it had before 4.0."""
        former, current = self.setting(view, old), self.setting(view, name)
        if former and current:
            why = f"the old name of {name}, which is set too (line {current.entry.line}) and wins"
            self.report.warn(former.entry, why)
        elif former:
            self.report.warn(former.entry, f"the old name of {name}: honoured here, while MM2 4.x ignores it")
        return self.read(view, old if former and not current else name, values.regexes, default, label=name)


def explained(name: str, value: object, setting: Setting | None) -> Explained:
    text = text_of(value)
    if is_secret(name) or (setting and setting.provided):
        text = "***" if text else ""
    if setting is None:
        return Explained(name, text)
    entry = setting.entry
    shown = printable(entry.value) if setting.provided else ""
    return Explained(name, text, entry.line, printable(entry.key), shown)


def text_of(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
