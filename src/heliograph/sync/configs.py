"""The settings of remote topics: which a new one is created with, and how they follow the source's from then on.

Answers for MirrorMaker 2's rules (what is carried over, what a default means, what is excluded) and for what we add to
them: settings that keep acknowledged records safe are never weakened unless the file says so, no setting makes the
target delete records that it keeps unless the file says so (`sync.retention`), a topic is never set so that appends are
refused, and only what differs is sent. `creation_configs` and `changes` are pure.

A new remote topic has no records yet: it is created with the source's retention, however short.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

import structlog

from heliograph import policy
from heliograph.errors import BrokerError
from heliograph.sync import retention
from heliograph.types import Flow
from heliograph.wire import Client, ConfigEntry, NewTopic
from heliograph.wire.codes import INVALID_CONFIG

log = structlog.get_logger()

MIN_INSYNC = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
# What these would do depends on the target's own values and its replicas, which can only be seen once the topic is
# there: a new topic gets them by `changes`, still before its data comes.
DURABILITY = (MIN_INSYNC, UNCLEAN_ELECTION)
LOWER_DURABILITY = "sync.topic.configs.lower.durability"  # the key of Flow.lower_durability
SHORTEN_RETENTION = "sync.topic.configs.shorten.retention"  # the key of Flow.shorten_retention

# Topics in one request: a topic has some 35 settings, so an answer stays well below a megabyte.
_AT_ONCE = 200

Entries = Mapping[str, ConfigEntry]
Described = Mapping[str, dict[str, ConfigEntry] | BrokerError]  # by topic


@dataclass(frozen=True, slots=True)
class Refusal:
    """A setting of the source that its copy does not get."""

    key: str
    why: str
    fix: str


@dataclass(frozen=True, slots=True)
class Changes:
    """What to do to a remote topic: values to set (None: the topic's own value removed), and what was not agreed to."""

    wanted: dict[str, str | None] = field(default_factory=dict)
    refused: tuple[Refusal, ...] = ()


# ---- rules ------------------------------------------------------------------------------------------------------


def creation_configs(flow: Flow, source: Entries) -> dict[str, str]:
    """The settings a new remote topic is created with, but for DURABILITY."""
    return {key: value for key, value in _carried(flow, source) if value is not None and key not in DURABILITY}


def needs_durability(flow: Flow, source: Entries) -> bool:
    """Whether `changes` may have more for a topic just created than `creation_configs` had."""
    return any(key in DURABILITY and value is not None for key, value in _carried(flow, source))


def changes(flow: Flow, source: Entries, target: Entries, *, replicas: int = 0) -> Changes:
    """How the remote topic must change to follow its source. `replicas`: how many its partitions have; 0: not known."""
    wanted: dict[str, str | None] = {}
    refused: list[Refusal] = []
    for key, value in _carried(flow, source):
        now = target.get(key)
        if now is None:
            if value is not None and not _is_default(source[key]):
                refused.append(_unknown(flow, key, value))
            continue
        if value == (None if now.is_default else now.value):
            continue  # the topic has it already
        refusal = _weakened(flow, key, value, now, replicas) or _shortened(flow, key, value, now)
        if refusal is None:
            wanted[key] = value
        else:
            refused.append(refusal)
    refusal = _cleaned(flow, wanted, target, {one.key for one in refused})
    if refusal is not None:
        del wanted[refusal.key]
        refused.append(refusal)
    return Changes(wanted, tuple(refused))


def _carried(flow: Flow, source: Entries) -> Iterator[tuple[str, str | None]]:
    """MM2's rules: setting -> its value for the copy, None where the copy shall have none of its own."""
    for key, entry in source.items():
        if entry.read_only or entry.sensitive or entry.source == "STATIC_BROKER_CONFIG":
            continue
        if not policy.accepts_config(flow, key):
            continue
        if _is_default(entry) and flow.use_defaults_from == "target":
            yield key, None
        elif entry.value is not None:
            yield key, entry.value


def _is_default(entry: ConfigEntry) -> bool:
    # Not `entry.is_default`: as in MM2, a default that was changed on the source's running brokers is not one.
    return entry.source == "DEFAULT_CONFIG"


def _weakened(flow: Flow, key: str, value: str | None, now: ConfigEntry, replicas: int) -> Refusal | None:
    """Why this change would risk records, or stop them from being appended; None: it does not."""
    if key not in DURABILITY:
        return None
    then = _effective(value, now)
    doing = _doing(key, value, then)
    if key == MIN_INSYNC:
        have, get = _number(now.value, 1), _number(then, 1)
        if replicas and get > replicas >= have:
            fix = f"Give the topic more replicas, lower {key} on {flow.source.alias}, or list it in "
            return Refusal(
                key, f"{doing} is more than its {replicas} replicas: nothing could be appended",
                f"{fix}config.properties.exclude",
            )  # fmt: skip
        weaker = get < have
    else:
        weaker = then == "true" and now.value != "true"
    if not weaker or flow.lower_durability:
        return None
    why = f"{doing} would keep its records less safe than {now.value}, which it has on {flow.target.alias}"
    return Refusal(key, why, _allow(flow, LOWER_DURABILITY))


def _shortened(flow: Flow, key: str, value: str | None, now: ConfigEntry) -> Refusal | None:
    """Why this change would delete records of the target; None: it would not. Not of `cleanup.policy`."""
    then = _effective(value, now)
    lost = "" if flow.shorten_retention or key == retention.CLEANUP_POLICY else retention.loses(key, now.value, then)
    return _deletes(flow, key, value, now, lost) if lost else None


def _cleaned(flow: Flow, wanted: Mapping[str, str | None], target: Entries, refused: Collection[str]) -> Refusal | None:
    """The same of `cleanup.policy`, which is judged by the retention that the topic has now and will have."""
    key = retention.CLEANUP_POLICY
    if key not in wanted or flow.shorten_retention:
        return None
    now = {name: entry.value for name, entry in target.items()}
    then = now | {name: _effective(value, target[name]) for name, value in wanted.items()}
    keeps_longer = not {retention.RETENTION_MS, retention.RETENTION_BYTES}.isdisjoint(refused)
    lost = retention.loses_by_policy(
        now[key], then[key],
        archive=retention.is_unlimited(now) or keeps_longer, unlimited_then=retention.is_unlimited(then),
    )  # fmt: skip
    return _deletes(flow, key, wanted[key], target[key], lost) if lost else None


def _deletes(flow: Flow, key: str, value: str | None, now: ConfigEntry, lost: str) -> Refusal:
    doing = _doing(key, value, _effective(value, now))
    why = f"{doing} instead of {now.value}, which it has on {flow.target.alias}: {lost}"
    return Refusal(key, why, f"{_allow(flow, SHORTEN_RETENTION)}; if not, list {key} in config.properties.exclude")


def _effective(value: str | None, now: ConfigEntry) -> str | None:
    """What holds once the topic's own value is this, or is removed (None)."""
    return now.inherited if value is None else value


def _doing(key: str, value: str | None, then: str | None) -> str:
    return f"{key} = {value}" if value is not None else f"the default of {key} ({then})"


def _allow(flow: Flow, key: str) -> str:
    # A flow that puts records back takes these keys from the spoke's pair.
    pair = f"{flow.source.alias}->{flow.target.alias}" if flow.staged else flow.name
    return f"If that is meant, set {pair}.{key} = true"


def _unknown(flow: Flow, key: str, value: str) -> Refusal:
    why = f"{key} = {value}: the brokers of {flow.target.alias} have no such setting"
    return Refusal(key, why, f"Upgrade them, or list {key} in config.properties.exclude")


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else otherwise


# ---- doing it ---------------------------------------------------------------------------------------------------


class ConfigSync:
    """Makes remote topics follow their sources' settings. What cannot be done for one topic is said once and left.

    `altered` is told the remote topics whose settings changed: the survey knows their max.message.bytes.
    """

    def __init__(
        self,
        flow: Flow,
        source: Client,
        target: Client,
        *,
        altered: Callable[[set[str]], None] = lambda topics: None,
    ) -> None:
        self.flow = flow
        self._source, self._target = source, target
        self._altered = altered
        self.refusals: dict[str, tuple[Refusal, ...]] = {}  # by remote topic, as of the last sync: for `plan`
        self._said: set[tuple[str, str]] = set()

    def sync(self, pairs: Mapping[str, str]) -> int:
        """Source topic -> remote topic. How many were changed. Raises WireError if a cluster cannot be asked at all."""
        self._said = {(topic, what) for topic, what in self._said if topic in pairs}
        self.refusals = {}
        left = iter(sorted(pairs.items()))
        changed: set[str] = set()
        while some := dict(islice(left, _AT_ONCE)):
            changed |= self._sync(some)
        if changed:
            self._altered(changed)
        return len(changed)

    def _sync(self, pairs: Mapping[str, str]) -> set[str]:
        theirs = self._source.describe_topic_configs(pairs)
        ours = self._with_defaults(theirs, self._target.describe_topic_configs(pairs.values(), inherited=True), pairs)
        replicas = self._replicas(pairs.values())
        wanted: dict[str, dict[str, str | None]] = {}
        for topic, remote in pairs.items():
            source, target = theirs[topic], ours[remote]
            if isinstance(source, BrokerError) or isinstance(target, BrokerError):
                error = source if isinstance(source, BrokerError) else target
                self._say(topic, "settings cannot be compared", why=str(error))
                continue
            found = changes(self.flow, source, target, replicas=replicas.get(remote, 0))
            if found.refused:
                self.refusals[remote] = found.refused
            for refusal in found.refused:
                self._say(
                    topic,
                    "a setting is not carried over",
                    remote=remote,
                    setting=refusal.key,
                    why=refusal.why,
                    fix=refusal.fix,
                )
            if found.wanted:
                wanted[remote] = found.wanted
        return self._alter(wanted, {remote: topic for topic, remote in pairs.items()})

    def _with_defaults(self, theirs: Described, ours: Described, pairs: Mapping[str, str]) -> Described:
        """With the defaults that a retention would fall back to and that brokers do not say: `log.retention.hours` is
        not among the synonyms of `retention.ms` unless `log.retention.ms` is set."""
        unknown: set[tuple[str, str]] = set()
        for topic, remote in pairs.items():
            source, target = theirs[topic], ours[remote]
            if isinstance(source, BrokerError) or isinstance(target, BrokerError):
                continue
            followed = (key for key, value in _carried(self.flow, source) if value is None and key in retention.KEYS)
            unknown |= {(remote, key) for key in followed if key in target and target[key].inherited is None}
        if not unknown:
            return ours
        defaults = self._defaults(next(iter(unknown))[0])
        filled = dict(ours)
        for remote, key in unknown:
            entries = filled[remote]
            if isinstance(entries, dict):
                filled[remote] = entries | {key: replace(entries[key], inherited=defaults.get(key))}
        return filled

    def _defaults(self, remote: str) -> dict[str, str | None]:
        """What a new topic would have: brokers say that of a creation that they only validate. Nothing: they do not."""
        asked = f"{remote[:200]}.default"
        found = self._target.foresee_topics([NewTopic(asked)])[asked]
        if isinstance(found, BrokerError) or found.configs is None:
            return {}
        return {key: entry.value for key, entry in found.configs.items()}

    def _replicas(self, remotes: Collection[str]) -> dict[str, int]:
        """Of the partition that has fewest. Asked only if it matters."""
        if not policy.accepts_config(self.flow, MIN_INSYNC):
            return {}
        topics = self._target.metadata(sorted(remotes)).topics
        return {
            name: min((len(p.replicas) for p in topic.partitions.values()), default=0) for name, topic in topics.items()
        }

    def _alter(self, wanted: Mapping[str, Mapping[str, str | None]], topic_of: Mapping[str, str]) -> set[str]:
        changed = set()
        for remote, error in self._target.alter_topic_configs(wanted).items():
            settings = wanted[remote]
            if error is None:
                changed.add(remote)
                log.info("topic settings follow the source", flow=self.flow.name, topic=remote, settings=settings)
            elif error.code == INVALID_CONFIG and len(settings) > 1:
                # One that this cluster does not take (tiered storage, say) must not hold up the others.
                for key, value in settings.items():
                    changed |= self._alter({remote: {key: value}}, topic_of)
            else:
                self._say(topic_of[remote], "settings refused", remote=remote, settings=settings, why=str(error))
        return changed

    def _say(self, topic: str, what: str, **details: object) -> None:
        """A warning, but not the same one again at every sync."""
        said = (topic, f"{what} {details}")
        if said not in self._said:
            self._said.add(said)
            log.warning(what, flow=self.flow.name, topic=topic, **details)
