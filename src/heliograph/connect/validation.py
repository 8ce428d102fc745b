"""Whether a connector's configuration may be taken: Connect's answer to that, key by key. Pure.

Two judges: the types of `definitions`, in Connect's own words, so that programs that read them go on doing so; and the
reading that makes the flow (`config.connectors`), which knows what values mean together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heliograph.config.connectors import CLASSES, Kind, Made, Worker, class_of, make
from heliograph.config.credentials import MASK
from heliograph.connect import definitions
from heliograph.connect.definitions import Definition
from heliograph.types import is_secret

POINTER = (
    "\nYou can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
)
_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")
_LIMITS = {"SHORT": 1 << 15, "INT": 1 << 31, "LONG": 1 << 63}
_HIDDEN = "[hidden]"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with a configuration, by key, and the flow that it makes when nothing is."""

    made: Made
    errors: Mapping[str, tuple[str, ...]]
    config: Mapping[str, str | None]

    @property
    def count(self) -> int:
        return sum(map(len, self.errors.values()))

    @property
    def words(self) -> str:
        """As Connect puts it into a 400. That a class is not there stands alone: clients know it by its first words."""
        lines = [text for texts in self.errors.values() for text in texts]
        if self.made.kind is None:
            return "\n".join(lines)
        head = f"Connector configuration is invalid and contains the following {len(lines)} error(s):"
        return "\n".join([head, *lines]) + POINTER


def judge(name: str, config: Mapping[str, str | None], worker: Worker, siblings: Sequence[str] = ()) -> Verdict:
    given = {key: value for key, value in config.items() if value is not None}
    made = make(name, given, worker, siblings)
    errors: dict[str, list[str]] = {}
    if made.kind is None:
        errors["connector.class"] = [_no_class(given.get("connector.class"))]
        return Verdict(made, _fixed(errors), config)
    for key, definition in definitions.of(made.kind).items():
        value = config.get(key)
        if key in made.provided:
            continue  # not what is written: whoever made the flow judged what was given
        problem = _missing(definition) if value is None else _problem(definition, value)
        if problem:
            errors.setdefault(key, []).append(problem)
            if definition.at_least is not None and problem.endswith(f"Not a number of type {definition.type}"):
                errors[key].append(f"Invalid value null for configuration {key}: Value must be non-null")
    for key, texts in made.problems.items():
        if key not in errors:  # the type's complaint is about the same value
            errors[key] = list(texts)
    for key, text in _together(made.kind, given):
        errors.setdefault(key, []).append(text)
    return Verdict(made, _fixed(errors), config)


def _fixed(errors: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {key: tuple(texts) for key, texts in errors.items() if texts}


def _no_class(text: str | None) -> str:
    if not text:
        return 'Missing required configuration "connector.class" which has no default value.'
    known = ", ".join(CLASSES)
    what = f"Failed to find any class that implements Connector and which name matches {text}"
    return f"{what}, available connectors are: {known}"


def _missing(definition: Definition) -> str:
    if definition.required:
        return f'Missing required configuration "{definition.name}" which has no default value.'
    return ""


def _problem(definition: Definition, value: str) -> str:
    """Connect's words for a value of the wrong type."""
    text = value.strip()
    shown = MASK if is_secret(definition.name) else value

    def invalid(why: str) -> str:
        return f"Invalid value {shown} for configuration {definition.name}: {why}"

    if definition.type == "BOOLEAN" and text.lower() not in ("true", "false"):
        return invalid("Expected value to be either true or false")
    if definition.type in _LIMITS:
        if not _NUMBER.fullmatch(text) or not -_LIMITS[definition.type] <= int(text) < _LIMITS[definition.type]:
            return invalid(f"Not a number of type {definition.type}")
        if definition.at_least is not None and int(text) < definition.at_least:
            return invalid(f"Value must be at least {definition.at_least}")
    if definition.allowed and text.lower() not in map(str.lower, definition.allowed):
        return invalid(f"String must be one of: {', '.join(definition.allowed)}")
    if definition.name == "name":
        return _name_problem(value)
    return ""


def _name_problem(name: str) -> str:
    if not name.strip():
        return "Invalid value  for configuration name: String may not be empty"
    if "/" in name:  # no path could name it
        return f"Invalid value {name} for configuration name: String may not contain /"
    bad = [f"{ord(letter)}" for letter in name if ord(letter) < 32 or 127 <= ord(letter) < 160]
    if bad:
        what = "String may not contain control sequences but had the following ASCII chars"
        return f"Invalid value {name} for configuration name: {what}: {', '.join(bad)}"
    return ""


def _together(kind: Kind, config: Mapping[str, str]) -> list[tuple[str, str]]:
    """What MM2's own classes check besides types."""
    if config.get("enabled", "true").strip().lower() == "false":
        return []

    def off(key: str) -> bool:
        return config.get(key, "true").strip().lower() == "false"

    syncs = "emit.offset-syncs.enabled"
    found: list[tuple[str, str]] = []
    about_syncs = any(key.startswith(("offset-syncs.", "offset-syncs-")) for key in config)
    if kind == "source" and off(syncs) and about_syncs:
        found.append((syncs, f"MirrorSourceConnector can't setup offset-syncs feature while {syncs} set to false"))
    if kind == "checkpoint" and off(syncs):
        found.append((syncs, "MirrorCheckpointConnector can't run without offset syncs"))
    if kind == "checkpoint" and off("emit.checkpoints.enabled"):
        key = "emit.checkpoints.enabled"
        found.append((key, f"MirrorCheckpointConnector can't run with {key} set to false"))
    if kind != "source" and config.get("exactly.once.support", "").strip().lower() == "required":
        found.append(
            (
                "exactly.once.support",
                "The connector does not support exactly-once semantics with the provided configuration.",
            )
        )
    return found


def infos(kind: Kind, verdict: Verdict) -> dict[str, object]:
    """Connect's ConfigInfos."""
    defined = definitions.of(kind)
    rows = [_row(definition, verdict) for definition in defined.values()]
    known = set(defined)
    for key in [*verdict.config, *verdict.errors]:
        if key not in known:
            known.add(key)
            if key in verdict.errors:
                rows.append({"definition": None, "value": _value(key, None, verdict)})
    groups = list(dict.fromkeys(one.group for one in defined.values() if one.group))
    name = class_of(verdict.config.get("connector.class") or "")
    return {"name": name, "error_count": verdict.count, "groups": groups, "configs": rows}


def _row(definition: Definition, verdict: Verdict) -> dict[str, object]:
    key = definition.name
    value = verdict.config.get(key)
    value = definition.default if value is None else value
    if any(" of type " in text or "either true or false" in text for text in verdict.errors.get(key, ())):
        value = None  # Connect shows what it could read
    return {"definition": definition.json(), "value": _value(key, value, verdict)}


def _value(key: str, value: str | None, verdict: Verdict) -> dict[str, object]:
    shown = _HIDDEN if value and is_secret(key) else value
    errors = list(verdict.errors.get(key, ()))
    return {"name": key, "value": shown, "recommended_values": [], "errors": errors, "visible": True}
