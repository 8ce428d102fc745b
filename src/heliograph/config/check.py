"""The keys of a file, one by one: known or not, in the right place or not, with a value they may hold.

Answers for every complaint that can be made about a line by itself. What lines come to together is `flows`'s affair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heliograph.config import keys, place, values
from heliograph.config.place import ARROW, Place, Standing
from heliograph.config.properties import Entry
from heliograph.config.report import Report, printable
from heliograph.config.shape import Key, Scope
from heliograph.config.views import Setting

CONVERTERS = ("key.converter", "value.converter", "header.converter")
UNLESS_LENIENT = " (--lenient: go on without it)"


def check_keys(settings: Mapping[str, Setting], aliases: Sequence[str], report: Report, *, lenient: bool) -> None:
    moot: list[Entry] = []
    bad_flows: set[tuple[str, str]] = set()
    for setting in settings.values():
        entry = setting.entry
        where = place.locate(entry.key, aliases)
        if where.flow and (reason := _bad_flow(where.flow, aliases)):
            if where.flow not in bad_flows:
                known = place.judge(where).standing is not Standing.UNKNOWN
                report.refuse(entry, reason, _nearest_flow(where, aliases), known=known)
            bad_flows.add(where.flow)
        elif entry.value.startswith(ARROW) and entry.key in aliases:
            why = f"a flow is written without blanks: {entry.key}{ARROW}<alias>.enabled = true"
            report.refuse(entry, why, known=False)
        elif entry.key.startswith(keys.HTTPS) and entry.key.removeprefix(keys.HTTPS) not in keys.LISTENER_KEYS:
            _check_listener(entry, report, lenient)
        elif _check_key(setting, where, aliases, report, lenient):
            moot.append(entry)
    if moot:
        listed = ", ".join(f"{printable(entry.key)} (line {entry.line})" for entry in moot)
        report.note(f"known to MM2, without effect here: {listed}")


def _check_key(setting: Setting, where: Place, aliases: Sequence[str], report: Report, lenient: bool) -> bool:
    """True for a key that is known, in its place, and has nothing to act on here."""
    entry = setting.entry
    verdict = place.judge(where)
    match verdict.standing:
        case Standing.UNKNOWN:
            near = place.nearest(where, aliases)
            if lenient:
                report.warn(entry, "unknown key", near)
            else:
                report.refuse(entry, f"unknown key{UNLESS_LENIENT}", near, known=False)
        case Standing.USELESS:
            report.warn(entry, verdict.why)
        case Standing.HONOURED:
            assert verdict.key
            _check_value(setting, verdict.key, report)
        case Standing.MOOT if verdict.key and verdict.key.decisive:
            _check_decisive(setting, verdict.key, report, lenient)
        case Standing.MOOT:
            _check_converter(setting, where, report)
            return True
    return False


def _check_listener(entry: Entry, report: Report, lenient: bool) -> None:
    """A key of the HTTP server's TLS that is not honoured: a mistyped one may be what keeps strangers out."""
    near = keys.near_listener_key(entry.key)
    if lenient or keys.find(entry.key.removeprefix(keys.HTTPS), (Scope.CLIENT,)) is not None:
        report.warn(entry, "of no effect on the HTTP server", near)
    else:
        report.refuse(entry, f"unknown key{UNLESS_LENIENT}", near, known=False)


def _check_value(setting: Setting, key: Key, report: Report) -> None:
    if setting.entry.key in report.refused:
        return
    try:
        values.check(key, setting.value)
    except ValueError as problem:
        # The reason may quote the value, which is a secret if a provider gave it.
        reason = f"what the provider gave is not a {key.kind.value}" if setting.provided else str(problem)
        report.refuse(setting.entry, reason)


def _check_decisive(setting: Setting, key: Key, report: Report, lenient: bool) -> None:
    if key.name in keys.FLOW_ALIASES or setting.value.strip() in key.allowed:
        return  # what an alias may be depends on the flow: `naming` looks at it
    reason = "a Java class cannot be loaded here, and without it other records would be written or other offsets synced"
    if lenient:
        report.warn(setting.entry, f"{reason}: left out, as --lenient asks")
    else:
        report.refuse(setting.entry, reason + UNLESS_LENIENT)


def _check_converter(setting: Setting, where: Place, report: Report) -> None:
    if where.name in CONVERTERS and not setting.value.strip().endswith("ByteArrayConverter"):
        report.warn(setting.entry, "records are copied as they are: no converter decodes them here")


def needs_its_value(where: Place) -> bool:
    """Whether a `${…}` left in this value is a mistake: an address or a secret would be the text itself."""
    verdict = place.judge(where)
    return verdict.standing is Standing.HONOURED and verdict.key is not None and verdict.key.scope is Scope.CLIENT


def _bad_flow(flow: tuple[str, str], aliases: Sequence[str]) -> str | None:
    undeclared = [alias for alias in dict.fromkeys(flow) if alias not in aliases]
    if undeclared:
        names = " and ".join(repr(alias) for alias in undeclared)
        return f"the flow names {names}, which clusters does not declare ({', '.join(aliases)})"
    if flow[0] == flow[1]:
        return f"a flow from {flow[0]!r} to itself would copy for ever"
    return None


def _nearest_flow(where: Place, aliases: Sequence[str]) -> str | None:
    assert where.flow
    near = [alias if alias in aliases else place.nearest_alias(alias, aliases) for alias in where.flow]
    if None in near or near[0] == near[1]:
        return None
    return f"{near[0]}{ARROW}{near[1]}.{where.name}"
