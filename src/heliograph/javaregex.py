"""Java's regular expressions, which MM2's files are written in, as Python's. Pure.

`java_regex` turns the syntax that people use; what has no equivalent (class intersections, flags switched in the
middle) is refused by name instead of matching something else.
"""

from __future__ import annotations

import re

_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "XDigit": "0-9a-fA-F",
    "Blank": r" \t",
    "Space": r" \t\n\x0b\f\r",
    "L": "a-zA-Z",
    "Lu": "A-Z",
    "Ll": "a-z",
    "N": "0-9",
    "Nd": "0-9",
}  # ASCII is all a topic name can hold, so Unicode's categories come down to these

_FLAGS = re.compile(r"\(\?([idmsuxU]*)(?:-([idmsux]+))?\)")
_PROPERTY = re.compile(r"\\([pP])(?:\{(?:Is|java)?(\w+)\}|(\w))")


def java_regex(pattern: str) -> re.Pattern[str]:
    """Compiles a Java regular expression. Raises ValueError with the reason when it cannot be one."""
    try:
        return re.compile(_Translation(pattern).run(), re.ASCII)
    except (re.error, OverflowError, RecursionError) as problem:
        raise ValueError(str(problem) or type(problem).__name__) from None


class _Translation:
    """One pass over the pattern. `opened` counts, per open group, the flag groups that must close with it."""

    def __init__(self, pattern: str) -> None:
        self.text = pattern
        self.at = 0
        self.out: list[str] = []
        self.opened = [0]
        self.starts_alternative = True

    def run(self) -> str:
        while self.at < len(self.text):
            starts, self.starts_alternative = self.starts_alternative, False
            self._step(self.text[self.at], starts)
        self.out.append(")" * self.opened[0] if len(self.opened) == 1 else "")
        return "".join(self.out)

    def _step(self, char: str, starts_alternative: bool) -> None:
        if char == "\\":
            self._escape(in_class=False)
        elif char == "[":
            self._class()
        elif char == "(":
            self._group(starts_alternative)
        elif char == ")":
            self._take(1, ")" * (self.opened.pop() + 1) if len(self.opened) > 1 else ")")
        else:
            self.starts_alternative = char == "|"
            self._take(1, char)

    def _take(self, length: int, replacement: str) -> None:
        self.out.append(replacement)
        self.at += length

    def _group(self, starts_alternative: bool) -> None:
        flags = _FLAGS.match(self.text, self.at)
        if flags:
            self._flags(flags, starts_alternative)
            return
        if self.text.startswith("(?<", self.at) and self.text[self.at + 3 : self.at + 4] not in ("=", "!"):
            self._take(3, "(?P<")
        elif self.text.startswith("(?", self.at):
            end = self.at + 2
            self._take(2, "(?")
            while end < len(self.text) and self.text[end] in "idmsux-:=!<>":
                end += 1
                if self.text[end - 1] in ":=!>":
                    break
            self._take(end - self.at, _known_flags(self.text[self.at : end]))
        else:
            self._take(1, "(")
        self.starts_alternative = True
        self.opened.append(0)

    def _flags(self, match: re.Match[str], starts_alternative: bool) -> None:
        """`(?i)` holds to the end of its group, further alternatives included; at the start of one `(?i:…` does so."""
        if not starts_alternative:
            raise ValueError(f"{match[0]} in the middle of an expression: write (?i:…) around the part it is for")
        on, off = _known_flags(match[1]), _known_flags(match[2] or "")
        self._take(len(match[0]), f"(?{on}{'-' + off if off else ''}:" if on or off else "(?:")
        self.opened[-1] += 1
        self.starts_alternative = True

    def _escape(self, *, in_class: bool) -> None:
        rest = self.text[self.at : self.at + 2]
        if rest == "\\Q":
            end = self.text.find("\\E", self.at)
            end = len(self.text) if end < 0 else end
            literal = self.text[self.at + 2 : end]
            self._take(end + 2 - self.at, re.escape(literal))
        elif rest in ("\\p", "\\P"):
            self._property(in_class)
        elif rest == "\\k":
            name = re.match(r"\\k<(\w+)>", self.text[self.at :])
            if not name:
                raise ValueError("\\k without <name>")
            self._take(len(name[0]), f"(?P={name[1]})")
        elif rest == "\\h":
            self._take(2, r" \t" if in_class else r"[ \t]")
        elif rest in ("\\z", "\\Z"):
            self._take(2, r"\Z")
        elif rest[1:] and not rest[1:].isalnum():
            self._take(2, re.escape(rest[1:]))
        else:
            self._take(2, rest)  # \d \w \s \b and what else both know; Python refuses the others by name

    def _property(self, in_class: bool) -> None:
        match = _PROPERTY.match(self.text, self.at)
        name = (match[2] or match[3]) if match else ""
        members = _POSIX.get(name)
        if match is None or members is None or (in_class and match[1] == "P"):
            raise ValueError(f"{match[0] if match else self.text[self.at : self.at + 2]} is not supported")
        negated = "^" if match[1] == "P" else ""
        self._take(len(match[0]), members if in_class else f"[{negated}{members}]")

    def _class(self) -> None:
        self._take(1, "[")
        if self.text.startswith("^", self.at):
            self._take(1, "^")
        first = True
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "]" and not first:
                self._take(1, "]")
                return
            first = False
            if char == "\\":
                self._escape(in_class=True)
            elif char == "[":
                raise ValueError("a class inside a class ([a[bc]]) is not supported: write the members in one")
            elif self.text.startswith("&&", self.at):
                raise ValueError("an intersection of classes (&&) is not supported")
            elif self.text.startswith("--", self.at):
                raise ValueError("-- in a class is not supported: write \\- for a hyphen")
            else:
                self._take(1, re.escape(char) if char in "|~&]^" else char)
        raise ValueError("a class [… that is not closed")


def _known_flags(flags: str) -> str:
    """Without those that mean nothing for ASCII names: d (line ends), u and U (Unicode)."""
    return "".join(flag for flag in flags if flag not in "duU")
