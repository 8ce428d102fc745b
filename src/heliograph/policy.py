"""Which topics and groups a flow takes and what its topics are called on the target. Pure functions of names.

Answers for MirrorMaker 2's replication policies (remote names, cycles, internal topics), its filters and the names of
its own topics. A policy does not ask a cluster anything, and like MM2's it does not know which aliases exist:
`my.topic` looks like a copy from cluster `my`.

A policy of the user's own is a subclass of `Policy`. `replication.policy.class` names it in one of two ways:
  - by the name of an entry point in the group `heliograph.policies` of an installed package, anywhere;
  - as `package.module:Class`, in a file of the operator that lists it in `heliograph.policy.classes` too.
Nothing else is ever imported: configurations also come from readers of the REST API (`validate`).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata

from heliograph.errors import ConfigError
from heliograph.javaregex import java_regex
from heliograph.types import Cap, Flow, Naming, StartPoint, TopicPartition

HEARTBEATS = "heartbeats"
DEFAULT_POLICY = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
IDENTITY_POLICY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
ENTRY_POINTS = "heliograph.policies"  # the group in which installed packages name their policies
ALLOWED_CLASSES = "heliograph.policy.classes"
DEFAULT_EXCLUDE = {4: (r"mm2.*\.internal", r".*\.replica", "__.*"), 3: (r".*[\-\.]internal", r".*\.replica", "__.*")}


# ---- names ------------------------------------------------------------------------------------------------------


class Policy:
    """MM2's DefaultReplicationPolicy: remote names carry the alias of the cluster they came from."""

    def __init__(self, naming: Naming, source_alias: str) -> None:
        self.naming = naming
        self.source_alias = source_alias
        self.separator = naming.separator
        self._internal_separator = naming.separator if naming.internal_separator else "."

    def remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{source_alias}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        """The alias a remote topic was copied from, None when the name does not look like a copy."""
        # Java's split drops empty trailing pieces, so `orders.` is not a copy from `orders`.
        while topic.endswith(self.separator):
            topic = topic[: -len(self.separator)]
        source, separator, _ = topic.partition(self.separator)
        return source if separator else None

    def upstream_topic(self, topic: str) -> str | None:
        """What a remote topic is called on the cluster it was copied from."""
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def hops(self, topic: str) -> tuple[str, ...]:
        """The aliases a topic came through, the latest first: `b.a.orders` came from b, which had it from a."""
        aliases: list[str] = []
        while (source := self.topic_source(topic)) is not None:
            aliases.append(source)
            upstream = self.upstream_topic(topic)
            if upstream is None or upstream == topic:
                break
            topic = upstream
        return tuple(aliases)

    def original_topic(self, topic: str) -> str:
        """The name on the cluster where the topic began, all hops peeled off."""
        while (upstream := self.upstream_topic(topic)) is not None and upstream != topic:
            topic = upstream
        return topic

    def is_cycle(self, topic: str, target_alias: str) -> bool:
        """Whether the topic has already been on the target: every hop in its name counts, so rings end as well."""
        return target_alias in self.hops(topic)

    def checkpoints_topic(self, source_alias: str) -> str:
        return f"{source_alias}{self._internal_separator}checkpoints{self._internal_separator}internal"

    def offset_syncs_topic(self, other_alias: str) -> str:
        return f"mm2-offset-syncs{self._internal_separator}{other_alias}{self._internal_separator}internal"

    def is_heartbeats(self, topic: str) -> bool:
        """`heartbeats` and its copies over any number of hops."""
        return self.original_topic(topic) == HEARTBEATS

    def is_checkpoints(self, topic: str) -> bool:
        return topic.endswith(f"{self._internal_separator}checkpoints{self._internal_separator}internal")

    def is_internal(self, topic: str) -> bool:
        """By MM2 4.x's rule a user's `orders.internal` or `orders-internal` is copied, by 3.x's it is not."""
        suffix = f"{self._internal_separator}internal"
        if topic.startswith(("__", ".")) or self.is_checkpoints(topic):
            return True
        if self.naming.rules == 3:
            return topic.endswith((suffix, ".internal", "-internal"))
        return topic.startswith("mm2") and topic.endswith(suffix)


class IdentityPolicy(Policy):
    """MM2's IdentityReplicationPolicy: names are kept, but for heartbeats, whose names count the hops."""

    def remote_topic(self, source_alias: str, topic: str) -> str:
        return super().remote_topic(source_alias, topic) if _like_heartbeats(topic) else topic

    def topic_source(self, topic: str) -> str | None:
        return super().topic_source(topic) if _like_heartbeats(topic) else self.source_alias or None

    def upstream_topic(self, topic: str) -> str | None:
        return super().upstream_topic(topic) if _like_heartbeats(topic) else topic


def _like_heartbeats(topic: str) -> bool:
    return topic.endswith(HEARTBEATS)  # MM2's rule, so `my-heartbeats` too


POLICIES: dict[str, type[Policy]] = {DEFAULT_POLICY: Policy, IDENTITY_POLICY: IdentityPolicy}


@lru_cache(maxsize=256)
def make(naming: Naming, source_alias: str) -> Policy:
    return policy_class(naming.policy, allowed=naming.allowed)(naming, source_alias)


def policy_class(name: str, *, allowed: bool = False) -> type[Policy]:
    """Raises ConfigError with the reason when there is none of this name, or it is not to be imported. `allowed`: the
    operator's file allows this name."""
    if name in POLICIES:
        return POLICIES[name]
    installed = next(iter(metadata.entry_points(group=ENTRY_POINTS, name=name)), None) if name else None
    if installed is None and not (allowed and ":" in name):
        raise ConfigError(f"replication.policy.class = {name}: {_not_importable(name)}")
    try:
        found = installed.load() if installed is not None else _imported(name)
    except (ImportError, AttributeError, ValueError) as problem:
        raise ConfigError(
            f"replication.policy.class = {name}: cannot be loaded: {problem}. Is it installed, or on PYTHONPATH?"
        ) from problem
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise ConfigError(f"replication.policy.class = {name}: must be a subclass of heliograph.policy.Policy")
    return found


def _imported(name: str) -> object:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _not_importable(name: str) -> str:
    where = f"an entry point in the group {ENTRY_POINTS!r} of an installed package"
    if ":" not in name:
        what = "a Java class cannot be loaded here" if "." in name else "there is no policy of this name"
        return f"{what}: write the policy in Python as a subclass of heliograph.policy.Policy and name it by {where}"
    return (
        f"may not be imported: name the class by {where}; in a file that `heliograph run` reads, "
        f"{ALLOWED_CLASSES} = {name} allows it too"
    )


def of(flow: Flow) -> Policy:
    return make(flow.naming, flow.source.alias)


def remote_topic(flow: Flow, topic: str) -> str:
    return of(flow).remote_topic(flow.source.alias, topic)


def positions_topic(source_alias: str) -> str:
    """Where Connect keeps the positions of flows from this alias, on the target. Never takes a custom separator."""
    return f"mm2-offsets.{source_alias}.internal"


def offset_map_topic(source_alias: str) -> str:
    """Heliograph's own, on the target: which source offsets became which target offsets. MM2 takes it for internal."""
    return f"mm2-offset-map.{source_alias}.internal"


def incidents_topic(source_alias: str) -> str:
    """Heliograph's own, on the target: what went wrong with records on their way. MM2 takes it for internal."""
    return f"mm2-heliograph-incidents.{source_alias}.internal"


def quarantine_topic(source_alias: str) -> str:
    """Heliograph's own, on the target: the records that it refused. MM2 takes it for internal."""
    return f"mm2-heliograph-quarantine.{source_alias}.internal"


def annals_of(flow: Flow) -> str:
    """Whose incidents and refused records a flow's are, in the names of their topics: its source's, or its mux's, which
    may end in the same cluster."""
    return f"{flow.source.alias}.mux" if flow.mux else flow.source.alias


# ---- filters ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Filter:
    """Names or regular expressions, joined with `|`, matched in full. Exclusion wins; an empty `include` takes none."""

    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    _patterns: tuple[re.Pattern[str] | None, re.Pattern[str] | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_patterns", (_joined(self.include), _joined(self.exclude)))

    def accepts(self, name: str) -> bool:
        include, exclude = self._patterns
        if include is None or not include.fullmatch(name):
            return False
        return exclude is None or not exclude.fullmatch(name)


def _joined(patterns: Sequence[str]) -> re.Pattern[str] | None:
    return java_regex("|".join(patterns)) if patterns else None


@lru_cache(maxsize=256)
def _filter(include: tuple[str, ...], exclude: tuple[str, ...]) -> Filter:
    return Filter(include, exclude)


def fits(patterns: tuple[str, ...], name: str) -> bool:
    """Whether one of these names or regular expressions is this name, in full."""
    return _filter(patterns, ()).accepts(name)


def accepts_topic(flow: Flow, topic: str) -> bool:
    """The topic filter alone, which is what decides about the offsets of groups."""
    return _filter(tuple(flow.topics), tuple(flow.topics_exclude)).accepts(topic)


def accepts_group(flow: Flow, group: str) -> bool:
    return _filter(tuple(flow.groups), tuple(flow.groups_exclude)).accepts(group)


def accepts_config(flow: Flow, name: str) -> bool:
    """Whether a topic's setting is carried over."""
    return _filter((".*",), tuple(flow.config_properties_exclude)).accepts(name)


def start_of(flow: Flow, tp: TopicPartition) -> StartPoint:
    """Where a partition begins that nobody has copied yet: the first rule that fits, else `auto.offset.reset`."""
    for rule in flow.start:
        if rule.partition in (None, tp.partition) and _filter((rule.topics,), ()).accepts(tp.topic):
            return rule.point
    return StartPoint(flow.start_at)


def partitions_of(flow: Flow, topic: str) -> int | None:
    """How many partitions the copy of this topic is to have; None: as many as it has itself. Heartbeats are never
    divided: MM2's clients look for them in partition 0."""
    if of(flow).is_heartbeats(topic):
        return None
    fits = (rule.partitions for rule in flow.target_partitions if _filter((rule.topics,), ()).accepts(topic))
    return next(fits, None)


def cap_of(caps: Sequence[Cap], topic: str) -> int | None:
    """Which of the caps for topics this one is under: the first that fits. (It is under the flow's in any case.)"""
    for index, cap in enumerate(caps):
        if cap.topics is not None and _filter((cap.topics,), ()).accepts(topic):
            return index
    return None


def should_replicate(flow: Flow, topic: str) -> bool:
    """MM2's rule: (the filter accepts it, or it carries heartbeats) and it is not internal and has not been there."""
    policy = of(flow)
    forced = flow.heartbeats_replication and policy.is_heartbeats(topic)
    wanted = forced or accepts_topic(flow, topic)
    return wanted and not policy.is_internal(topic) and not policy.is_cycle(topic, flow.target.alias)


def should_multiplex(flow: Flow, topic: str) -> bool:
    """Chosen by `mux.topics`, nobody's internal one, not the shared one itself, and it has not come from the hub."""
    mux, policy = flow.mux, of(flow)
    if mux is None or topic == mux.topic or not _filter(mux.topics, ()).accepts(topic):
        return False
    return not (policy.is_internal(topic) or policy.is_heartbeats(topic) or policy.is_cycle(topic, mux.hub))
