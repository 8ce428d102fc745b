"""A strict reader of Prometheus' text format 0.0.4 and of OpenMetrics 1.0, for tests: what the formats forbid raises.

Written from the formats' descriptions, not from our writer. Checks order and uniqueness of families and samples, names,
escapes, numbers, and that a histogram's buckets grow, end with +Inf and agree with its count.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf"({NAME})(\{{(.*)\}})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\n"])*)"(,|$)')
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?Inf|NaN")
TYPES = {"counter", "gauge", "histogram", "summary", "untyped"}
OPEN_TYPES = {"counter", "gauge", "histogram", "summary", "unknown", "info", "stateset", "gaugehistogram"}

Labels = tuple[tuple[str, str], ...]


@dataclass
class Family:
    name: str
    kind: str = ""
    help: str = ""
    unit: str = ""
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def value(self, suffix: str = "", **labels: str) -> float:
        """Of the one sample with these labels, among others perhaps."""
        found = [
            value
            for (name, theirs), value in self.samples.items()
            if name == self.name + suffix and labels.items() <= dict(theirs).items()
        ]
        assert len(found) == 1, f"{self.name}{suffix} {labels}: {len(found)} samples"
        return found[0]


def parse(text: str, *, openmetrics: bool = False) -> dict[str, Family]:
    *lines, rest = text.split("\n")
    assert not rest, "the last line must end"
    if openmetrics:
        assert lines.pop() == "# EOF"
    families: dict[str, Family] = {}
    family: Family | None = None
    for line in lines:
        assert line, "empty lines are not for programs"
        if line.startswith("# "):
            _, word, name, rest = [*line.split(" ", 3), ""][:4]
            assert word in ("HELP", "TYPE", "UNIT"), line
            assert re.fullmatch(NAME, name), line
            if family is None or family.name != name:
                assert name not in families, f"{name} stands in two places"
                family = families[name] = Family(name)
            assert not family.samples, f"{word} of {name} behind its samples"
            key = {"HELP": "help", "TYPE": "kind", "UNIT": "unit"}[word]
            assert not getattr(family, key), f"two {word} of {name}"
            setattr(family, key, rest)
        else:
            assert family is not None, line
            _sample(family, line, openmetrics)
    for one in families.values():
        _check(one, openmetrics)
    return families


def _sample(family: Family, line: str, openmetrics: bool) -> None:
    match = SAMPLE.fullmatch(line)
    assert match, line
    name, _, inside, number = match.groups()
    assert NUMBER.fullmatch(number), line
    suffixes = {"histogram": ("_bucket", "_sum", "_count")}.get(family.kind, ("",))
    if openmetrics:
        suffixes = {"counter": ("_total",), "info": ("_info",)}.get(family.kind, suffixes)
    assert name in [family.name + suffix for suffix in suffixes], f"{line} under {family.name}"
    labels = _labels(inside or "")
    assert (name, labels) not in family.samples, f"twice: {line}"
    family.samples[name, labels] = float(number.replace("Inf", "inf"))


def _labels(inside: str) -> Labels:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(inside):
        match = LABEL.match(inside, at)
        assert match, inside
        name, value, comma = match.groups()
        assert comma or match.end() == len(inside)
        found.append((name, re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), value)))
        at = match.end()
    assert len({name for name, _ in found}) == len(found), inside
    return tuple(sorted(found))


def _check(family: Family, openmetrics: bool) -> None:
    assert family.kind in (OPEN_TYPES if openmetrics else TYPES), family
    assert family.help, family.name
    if family.unit:
        assert openmetrics
        assert family.name.endswith(f"_{family.unit}"), family.name
    if openmetrics and family.kind == "counter":
        assert not family.name.endswith("_total")
    for (name, labels), value in family.samples.items():
        if family.kind == "counter":
            assert value >= 0, name
        if family.kind == "info":
            assert value == 1, name
        if name.endswith("_bucket") and family.kind == "histogram":
            assert "le" in dict(labels), name
    if family.kind == "histogram":
        _check_histogram(family)


def _check_histogram(family: Family) -> None:
    buckets: dict[Labels, list[tuple[float, float]]] = defaultdict(list)
    for (name, labels), value in family.samples.items():
        if name == f"{family.name}_bucket":
            bound = float(dict(labels)["le"].replace("Inf", "inf"))
            buckets[tuple(pair for pair in labels if pair[0] != "le")].append((bound, value))
    for labels, found in buckets.items():
        assert [bound for bound, _ in found] == sorted({bound for bound, _ in found}), "bounds in order, each once"
        assert [count for _, count in found] == sorted(count for _, count in found), "cumulative"
        assert math.isinf(found[-1][0])
        assert family.samples[f"{family.name}_count", labels] == found[-1][1]
        assert (f"{family.name}_sum", labels) in family.samples
