"""How a flow's topics are called: the policy, its separator, and what an alias may be.

Answers for the class named in `replication.policy.class`, for the separator, and for the two ways in which files change
names behind a policy's back: `source.cluster.alias` and an empty separator. What names come to is `policy`'s affair.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from heliograph import policy
from heliograph.config import keys
from heliograph.config.reader import Reader
from heliograph.config.report import Report
from heliograph.config.views import Pair, View
from heliograph.errors import ConfigError
from heliograph.types import Naming

SEPARATOR = "replication.policy.separator"
INTERNAL_SEPARATOR = "replication.policy.internal.topic.separator.enabled"
CLASS = "replication.policy.class"

_TOPIC_CHARACTERS = re.compile(r"[a-zA-Z0-9._-]+")


def naming_of(base: View, reader: Reader, allowed: Collection[str] = ()) -> Naming:
    """`allowed`: classes that may be imported, beside those of installed packages."""
    known = (CLASS, SEPARATOR, INTERNAL_SEPARATOR)
    further = sorted(k for k in base if k.startswith("replication.policy.") and k not in known)
    keeps_names = _keeps_names(base)
    if keeps_names:
        why = (
            "with an empty source.cluster.alias this keeps names, as IdentityReplicationPolicy does, which is taken "
            "here; positions that MM2 kept under the empty alias are not found, so that the copy begins anew"
        )
        reader.report.warn(base[SEPARATOR].entry, why)
    found = reader.read(base, CLASS, _policy(allowed), policy.DEFAULT_POLICY)
    separator = reader.read({} if keeps_names else base, SEPARATOR, _separator, ".")
    return Naming(
        policy=policy.IDENTITY_POLICY if keeps_names else found,
        separator=separator,
        internal_separator=reader.boolean(base, INTERNAL_SEPARATOR, True),
        rules=int(reader.choice(base, "heliograph.mm2.rules", "4")),
        settings=tuple((name, reader.read(base, name, str, "")) for name in further),
        allowed=found in allowed and not keeps_names,
    )


def _keeps_names(base: View) -> bool:
    """A trick that went round before there was an IdentityReplicationPolicy: "" + "" + topic."""
    return all(name in base and not base[name].value.strip() for name in (SEPARATOR, keys.FLOW_ALIASES[0]))


def check_overrides(pair: Pair, base: View, report: Report, *, lenient: bool) -> None:
    """MM2 calls topics by these, and everything else by the aliases of `clusters`."""
    if _keeps_names(base):
        return
    for name, alias in zip(keys.FLOW_ALIASES, pair, strict=True):
        setting = base.get(name)
        if setting is None or setting.value.strip() in ("", alias):
            continue  # an empty one alone: MM2 would write to `.topic`; nobody means that
        reason = (
            f"topics would be named by it, and everything else by the alias {alias!r}: call the cluster so in clusters"
        )
        if lenient:
            report.warn(setting.entry, f"{reason}; the alias of clusters is taken")
        else:
            report.refuse(setting.entry, f"{reason} (--lenient: go on without it)")


def check_alias(source: str, naming: Naming, line: int, report: Report) -> None:
    if not _TOPIC_CHARACTERS.fullmatch(source):
        report.problem(line, f"the alias {source!r} stands in the names of topics: use letters, digits, _ and - only")
    elif naming.separator in source and naming.policy != policy.IDENTITY_POLICY:
        report.problem(
            line,
            f"the alias {source!r} contains {naming.separator!r}, which separates alias and topic in remote names: "
            f"rename it, or choose another {SEPARATOR}",
        )


def positions_topic(source: str) -> Callable[[str], str | None]:
    """The name of the positions topic, None for the one that it has anyway."""

    def read(text: str) -> str | None:
        name = text.strip()
        if not _TOPIC_CHARACTERS.fullmatch(name) or len(name) > 249 or name in (".", ".."):
            raise ValueError("not a name that a topic may have")
        return None if name == policy.positions_topic(source) else name

    return read


def _policy(allowed: Collection[str]) -> Callable[[str], str]:
    """The class's name in full. Raises ValueError for one that cannot be loaded, or may not."""

    def read(text: str) -> str:
        name = text.strip()
        full = f"{keys.MIRROR}{name}"
        name = full if full in policy.POLICIES else name
        if ":" in name and not re.fullmatch(r"\w+(\.\w+)*:\w+", name):
            raise ValueError("must be package.module:Class")
        try:
            policy.policy_class(name, allowed=name in allowed)
        except ConfigError as problem:
            raise ValueError(problem.problems[0].partition(": ")[2] or str(problem)) from problem
        except Exception as problem:
            raise ValueError(f"cannot be loaded: {type(problem).__name__}: {problem}") from problem
        return name

    return read


def _separator(text: str) -> str:
    if not _TOPIC_CHARACTERS.fullmatch(text):
        hint = "" if text else f"; to keep names write {CLASS} = {policy.IDENTITY_POLICY}"
        raise ValueError(f"must be of letters, digits, '.', '_' and '-', as names of topics are{hint}")
    return text
