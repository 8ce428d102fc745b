r"""Which topics a flow copies and what they are called on the target. Pure functions of names.

Answers for MirrorMaker 2's default replication policy (remote names, cycles, internal topics), its topic filter and the
names of its own topics. It does not ask a cluster anything, and like MM2 it does not know which aliases exist:
`my.topic` looks like a copy from cluster `my`.

Filters are Java regular expressions in MM2's files. `java_regex` turns the syntax that people use into Python's; what
has no equivalent (class intersections, flags switched in the middle) is refused by name instead of matching something
else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from heliograph.types import Flow

SEPARATOR = "."
HEARTBEATS = "heartbeats"


# ---- names ------------------------------------------------------------------------------------------------------


def remote_topic(source_alias: str, topic: str) -> str:
    return f"{source_alias}{SEPARATOR}{topic}"


def topic_source(topic: str) -> str | None:
    """The alias a remote topic was copied from, None when the name does not look like a copy."""
    # Java's split drops empty trailing pieces, so `orders.` is not a copy from `orders`.
    source, separator, _ = topic.rstrip(SEPARATOR).partition(SEPARATOR)
    return source if separator else None


def upstream_topic(topic: str) -> str | None:
    """What a remote topic is called on the cluster it was copied from."""
    source = topic_source(topic)
    return None if source is None else topic[len(source) + len(SEPARATOR) :]


def hops(topic: str) -> tuple[str, ...]:
    """The aliases a topic came through, the latest first: `b.a.orders` came from b, which had it from a."""
    aliases: list[str] = []
    while (source := topic_source(topic)) is not None:
        aliases.append(source)
        topic = topic[len(source) + len(SEPARATOR) :]
    return tuple(aliases)


def original_topic(topic: str) -> str:
    """The name on the cluster where the topic began, all hops peeled off."""
    return topic[sum(len(alias) + len(SEPARATOR) for alias in hops(topic)) :]


def is_cycle(topic: str, target_alias: str) -> bool:
    """Whether the topic has already been on the target: every hop in its name counts, so rings end as well."""
    return target_alias in hops(topic)


def positions_topic(source_alias: str) -> str:
    """Where Connect keeps the positions of flows from this alias, on the target. Never takes a custom separator."""
    return f"mm2-offsets.{source_alias}.internal"


def checkpoints_topic(source_alias: str) -> str:
    return f"{source_alias}{SEPARATOR}checkpoints{SEPARATOR}internal"


def offset_syncs_topic(other_alias: str) -> str:
    return f"mm2-offset-syncs{SEPARATOR}{other_alias}{SEPARATOR}internal"


def is_heartbeats(topic: str) -> bool:
    """`heartbeats` and its copies over any number of hops."""
    return original_topic(topic) == HEARTBEATS


def is_checkpoints(topic: str) -> bool:
    return topic.endswith(f"{SEPARATOR}checkpoints{SEPARATOR}internal")


def is_internal(topic: str) -> bool:
    """MM2 4.x's rule. Unlike 3.x's, a user's `orders.internal` or `orders-internal` is copied."""
    mm2_own = topic.startswith("mm2") and topic.endswith(f"{SEPARATOR}internal")
    return mm2_own or topic.startswith(("__", ".")) or is_checkpoints(topic)


# ---- filters ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Names or regular expressions, joined with `|`, matched in full. Exclusion wins; an empty `include` takes none."""

    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    _patterns: tuple[re.Pattern[str] | None, re.Pattern[str] | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_patterns", (_joined(self.include), _joined(self.exclude)))

    def accepts(self, topic: str) -> bool:
        include, exclude = self._patterns
        if include is None or not include.fullmatch(topic):
            return False
        return exclude is None or not exclude.fullmatch(topic)


def _joined(patterns: Sequence[str]) -> re.Pattern[str] | None:
    return java_regex("|".join(patterns)) if patterns else None


@lru_cache(maxsize=256)
def _filter(include: tuple[str, ...], exclude: tuple[str, ...]) -> TopicFilter:
    return TopicFilter(include, exclude)


def should_replicate(flow: Flow, topic: str) -> bool:
    """MM2's rule: (the filter accepts it, or it carries heartbeats) and it is not internal and has not been there."""
    forced = flow.heartbeats_replication and is_heartbeats(topic)
    wanted = forced or _filter(tuple(flow.topics), tuple(flow.topics_exclude)).accepts(topic)
    return wanted and not is_internal(topic) and not is_cycle(topic, flow.target.alias)


# ---- Java's regular expressions ---------------------------------------------------------------------------------

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
