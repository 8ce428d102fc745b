"""What `doctor` asks for the features beside the copying: may we do what they need? With the line that allows it.

Settings, growth, offset syncs, checkpoints, group offsets, heartbeats, ACLs, what went wrong: each is asked about only
if the flow has it switched on. Reading the source and creating the copies is `clinic`'s.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from heliograph import policy
from heliograph.cli.doctor import Finding
from heliograph.cli.patient import Patient, Seen
from heliograph.errors import BrokerError
from heliograph.state import incidents, quarantine
from heliograph.sync.acl_rules import locking_out, remote_acls
from heliograph.sync.acls import OWN_PRINCIPAL, own_principal
from heliograph.types import CHECKPOINTS_FACTOR, HEARTBEATS_FACTOR, STORAGE_FACTOR, SYNCS_FACTOR, Factor, Flow
from heliograph.wire.acls import (
    ALTER,
    ALTER_CONFIGS,
    CREATE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    OPERATIONS,
    PREFIXED,
    READ,
    WRITE,
    Acl,
)
from heliograph.wire.codes import CLUSTER_AUTHORIZATION_FAILED, SECURITY_DISABLED, TOPIC_AUTHORIZATION_FAILED
from heliograph.wire.topics import NewTopic

NAMED = 5  # things named in a sentence before "and n more"
ALLOWED = 50  # in a line to be copied
GROUPS_ASKED = 100  # one question each; who may read so many may read the others
NOT_ALLOWED = (TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED)
COMPACT = {"cleanup.policy": "compact"}


@dataclass(frozen=True, slots=True)
class Lack:
    """Something our user may not do. `kind` is as kafka-acls has it: topic, group or cluster, which has no name."""

    kind: str
    name: str
    operations: frozenset[int]


def topic_lacks(refused: Mapping[str, frozenset[int]]) -> list[Lack]:
    return [Lack("topic", topic, operations) for topic, operations in refused.items()]


def with_create(refused: Mapping[str, frozenset[int]], uncreatable: Mapping[str, BrokerError]) -> list[Lack]:
    """Of topics that may not be used, nor be made."""
    unmade = {topic for topic, problem in uncreatable.items() if problem.code in NOT_ALLOWED}
    nothing: frozenset[int] = frozenset()
    return topic_lacks(
        {
            topic: refused.get(topic, nothing) | ({CREATE} if topic in unmade else nothing)
            for topic in sorted({*refused, *unmade})
        }
    )


def listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - NAMED} more" if len(ordered) > NAMED else ""
    return ", ".join(ordered[:NAMED]) + more


def missing(lacks: Iterable[Lack]) -> str:
    """no permission for Alter on topic a, b; …"""
    alike = _alike(lacks)
    return "no permission for " + "; ".join(
        f"{', '.join(words)} on {kind} {listed(names)}".rstrip() for (kind, words), names in alike.items()
    )


def allowing(patient: Patient, lacks: Iterable[Lack]) -> str:
    """The line (or lines) for somebody who may: kafka-acls --add …"""
    lines = []
    for (kind, words), names in _alike(lacks).items():
        parts = ["kafka-acls", "--bootstrap-server", patient.cluster.bootstrap, "--command-config", "admin.properties"]
        parts += ["--add", "--allow-principal", patient.principal]
        parts += [part for word in words for part in ("--operation", word)]
        parts += [part for name in names[:ALLOWED] for part in ((f"--{kind}", name) if name else (f"--{kind}",))]
        more = f" (and {len(names) - ALLOWED} more)" if len(names) > ALLOWED else ""
        lines.append(shlex.join(parts) + more)
    return " && ".join(lines)


def _alike(lacks: Iterable[Lack]) -> dict[tuple[str, tuple[str, ...]], list[str]]:
    """Names by kind and operations, so that one line serves many."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for lack in lacks:
        words = tuple(_word(operation) for operation in sorted(lack.operations))
        found.setdefault((lack.kind, words), []).append(lack.name)
    return {key: sorted(names) for key, names in sorted(found.items())}


def _word(operation: int) -> str:
    """As kafka-acls spells it: DescribeConfigs."""
    return OPERATIONS.get(operation, str(operation)).title().replace("_", "")


def verdict(name: str, patient: Patient, lacks: list[Lack], well: str, *, otherwise: str = "") -> Finding:
    """`otherwise`: what the file could say instead of asking for permission."""
    if not lacks:
        return Finding(name, True, well)
    fix = f"In {patient.cluster.alias}: {allowing(patient, lacks)}"
    return Finding(name, False, missing(lacks), f"{fix}; or set {otherwise}" if otherwise else fix)


# ---- the features ----


def examine(flow: Flow, source: Patient, target: Patient, wanted: Mapping[str, Seen]) -> Iterator[Finding]:
    """`wanted`: the source's topics that the flow copies."""
    remotes = {policy.remote_topic(flow, topic): seen.partitions for topic, seen in wanted.items()}
    following = remotes if flow.sync_topic_configs_s is not None else None
    yield from settings(f"flow {flow.name}: topic settings", source, target, wanted, following)
    chosen = {policy.remote_topic(flow, topic) for topic in wanted if policy.partitions_of(flow, topic) is not None}
    yield _growth(flow, target, {remote: count for remote, count in remotes.items() if remote not in chosen})
    if flow.emit_offset_syncs:
        yield _offset_syncs(flow, source, target)
        if flow.emit_checkpoints_s is not None:
            yield from _checkpoints(flow, source, target)
            if flow.sync_group_offsets_s is not None:
                yield _group_offsets(flow, source, target, remotes)
    if flow.emit_heartbeats_s is not None:
        yield heartbeats(flow, target)
    if flow.sync_topic_acls_s is not None:
        yield from _acls(flow, source, target, {topic: policy.remote_topic(flow, topic) for topic in wanted})
    yield from honesty(flow, target)


def settings(
    name: str, source: Patient, target: Patient, wanted: Iterable[str], following: Iterable[str] | None
) -> Iterator[Finding]:
    """Of the source's topics always: their copies are made with them. `following`: copies that follow them."""
    theirs, ours = source.cluster.alias, target.cluster.alias
    lacks = topic_lacks(source.refused(wanted, DESCRIBE_CONFIGS))
    yield verdict(f"{name} in {theirs}", source, lacks, "may be read")
    if following is not None:
        lacks = topic_lacks(target.refused(following, DESCRIBE_CONFIGS, ALTER_CONFIGS))
        otherwise = f"{theirs}->{ours}.sync.topic.configs.enabled = false"
        yield verdict(f"{name} in {ours}", target, lacks, "may be kept in step", otherwise=otherwise)


def _growth(flow: Flow, target: Patient, remotes: Mapping[str, int]) -> Finding:
    """Needed now where a copy has fewer partitions than its source; elsewhere on the day when the source grows."""
    name = f"flow {flow.name}: new partitions"
    refused = target.refused(remotes, ALTER)
    short = [topic for topic in refused if topic in target.topics and target.topics[topic].partitions < remotes[topic]]
    if refused and not short:
        fix = f"In {flow.target.alias}: {allowing(target, topic_lacks(refused))}"
        return Finding(name, None, f"{missing(topic_lacks(refused))}: if a source topic grows, its copy cannot", fix)
    return verdict(name, target, topic_lacks(refused), "may be added to copies")


def _offset_syncs(flow: Flow, source: Patient, target: Patient) -> Finding:
    name, names = f"flow {flow.name}: offset syncs", policy.of(flow)
    on_source = flow.offset_syncs_location == "source"
    place, other = (source, flow.target.alias) if on_source else (target, flow.source.alias)
    factor = flow.factor(SYNCS_FACTOR)
    topic = own_topic(names.offset_syncs_topic(other), 1, factor)
    off = f"{flow.name}.emit.offset-syncs.enabled = false"
    return internal(name, place, [(topic, factor.key)], WRITE, otherwise=off)


def _checkpoints(flow: Flow, source: Patient, target: Patient) -> Iterator[Finding]:
    name, off = f"flow {flow.name}: checkpoints", f"{flow.name}.emit.checkpoints.enabled = false"
    alias, storage = flow.source.alias, flow.offset_storage_partitions
    factors = flow.factor(CHECKPOINTS_FACTOR), flow.factor(STORAGE_FACTOR)
    topics = [
        (own_topic(policy.of(flow).checkpoints_topic(alias), 1, factors[0]), factors[0].key),
        (own_topic(policy.offset_map_topic(alias), storage, factors[1]), factors[1].key),
    ]
    yield internal(name, target, topics, READ, WRITE, otherwise=off)
    yield _groups_seen(flow, source, off)


def _groups_seen(flow: Flow, source: Patient, off: str) -> Finding:
    """Kafka does not list what we may not describe: only who may describe the cluster knows that none is hidden."""
    name = f"flow {flow.name}: groups in {flow.source.alias}"
    seen = _groups(flow, source)
    hidden = [group for group in _named(flow) if group not in seen and not source.may_describe_group(group)]
    if hidden:
        lacks = [Lack("group", group, frozenset({DESCRIBE})) for group in hidden]
        return verdict(name, source, lacks, "", otherwise=off)
    if seen or source.may(DESCRIBE):
        return Finding(name, True, f"{len(seen)} may be described: {listed(seen)}" if seen else "none is there")
    lacks = [Lack("group", "*", frozenset({DESCRIBE}))]
    return Finding(
        name, None, "none is to be seen; those that we may not describe are hidden",
        f"In {flow.source.alias}: {allowing(source, lacks)}; or set {off}",
    )  # fmt: skip


def _group_offsets(flow: Flow, source: Patient, target: Patient, remotes: Mapping[str, int]) -> Finding:
    """Committing for a group asks for READ on it, and READ on the topics."""
    name = f"flow {flow.name}: group offsets"
    groups = sorted({*_groups(flow, source), *_named(flow)})[:GROUPS_ASKED]
    lacks = [Lack("group", group, frozenset({READ})) for group in groups if not target.may_read_group(group)]
    lacks += topic_lacks(target.refused(remotes, READ))
    well = f"may be committed for {len(groups)} groups" if groups else "no group to ask for yet"
    return verdict(name, target, lacks, well, otherwise=f"{flow.name}.sync.group.offsets.enabled = false")


def _groups(flow: Flow, source: Patient) -> set[str]:
    return {group for group in source.client.list_groups() if policy.accepts_group(flow, group)}


def _named(flow: Flow) -> list[str]:
    """Those that the file names outright."""
    return [group for group in flow.groups if group.replace("-", "").replace("_", "").isalnum()]


def heartbeats(flow: Flow, target: Patient) -> Finding:
    factor = flow.factor(HEARTBEATS_FACTOR)
    topic = own_topic(policy.HEARTBEATS, 1, factor)
    return internal(
        f"flow {flow.name}: heartbeats",
        target,
        [(topic, factor.key)],
        WRITE,
        otherwise=f"{flow.name}.emit.heartbeats.enabled = false",
    )


def own_topic(name: str, partitions: int, factor: Factor) -> NewTopic:
    """As `CompactedLog` creates it."""
    return NewTopic(name, partitions, factor.replicas, COMPACT, lowerable=factor.lowerable)


def internal(
    name: str, place: Patient, topics: list[tuple[NewTopic, str]], *operations: int, otherwise: str = ""
) -> Finding:
    """Topics of our own (with the key of their replication factor): there or to be made, and used."""
    factors = {topic.name: key for topic, key in topics}
    new = [topic for topic, _ in topics if topic.name not in place.topics]
    uncreatable = place.uncreatable(new)
    lacks = with_create(place.refused(factors, *operations), uncreatable)
    other = {topic: problem for topic, problem in uncreatable.items() if problem.code not in NOT_ALLOWED}
    if other:
        topic, problem = next(iter(other.items()))
        fix = f"Set {factors[topic]} to what {place.cluster.alias} has brokers for"
        fix += f", or {otherwise}" if otherwise else ""
        return Finding(name, False, f"{listed(other)} could not be created: {problem.name}", fix)
    well = f"{listed(factors)} in {place.cluster.alias} may be {'made and ' if new else ''}used"
    return verdict(name, place, lacks, well, otherwise=otherwise)


def honesty(flow: Flow, target: Patient) -> Iterator[Finding]:
    """Topics that are made when something goes wrong. What cannot be written down there is not passed over."""
    name, factor = f"flow {flow.name}", flow.factor(STORAGE_FACTOR).key
    found = internal(f"{name}: incidents", target, [(incidents.topic_of(flow), factor)], READ, WRITE)
    yield _on_the_day(found, "when something goes wrong with a partition, it stops and waits")
    if flow.on.refused == "quarantine":
        otherwise, topics = f"{flow.name}.on.refused = stop", [(quarantine.topic_of(flow), factor)]
        found = internal(f"{name}: quarantine", target, topics, READ, WRITE, otherwise=otherwise)
        yield _on_the_day(found, "a partition with a record that the target refuses stops and waits")


def _on_the_day(found: Finding, then: str) -> Finding:
    """Nothing fails today: somebody should know."""
    return found if found.ok else replace(found, ok=None, detail=f"{found.detail}: {then}")


def _acls(flow: Flow, source: Patient, target: Patient, remote_of: Mapping[str, str]) -> Iterator[Finding]:
    name, off = f"flow {flow.name}: topic ACLs", f"{flow.name}.sync.topic.acls.enabled = false"
    acls: dict[str, list[Acl]] = {}  # by alias
    for place, operation, well in ((source, DESCRIBE, "may be read"), (target, ALTER, "may be added")):
        alias = place.cluster.alias
        found = place.client.describe_acls()
        if isinstance(found, BrokerError) and found.code == SECURITY_DISABLED:
            yield Finding(f"{name} in {alias}", True, "it has no authorizer: none are synced")
            return
        acls[alias] = [] if isinstance(found, BrokerError) else found
        lacks = [] if place.may(operation) else [Lack("cluster", "", frozenset({operation}))]
        yield verdict(f"{name} in {alias}", place, lacks, well, otherwise=off)
    theirs, ours = acls[source.cluster.alias], acls[target.cluster.alias]
    yield from carried_acls(flow, target.cluster.bootstrap, theirs, ours, remote_of)


def carried_acls(
    flow: Flow, bootstrap: str, theirs: Sequence[Acl], ours: Sequence[Acl], remote_of: Mapping[str, str]
) -> Iterator[Finding]:
    """What the sync will withhold, and denials on the target that lock us out (0.1 and MM2 carry these over)."""
    name, principal = f"flow {flow.name}: topic ACLs", own_principal(flow)
    withheld = remote_acls(theirs, remote_of, ours=principal, there=set(ours)).withheld
    if withheld:
        said = [f"{one.acl} ({one.why})" for one in withheld]
        fix = f"Give them on {flow.target.alias} by hand, if they are meant"
        if principal is None:
            fix += f", or set {flow.name}.{OWN_PRINCIPAL} to our principal there"
        yield Finding(f"{name} withheld", None, f"{len(said)} are not carried over: {listed(said)}", fix)
    denying = locking_out(ours, remote_of.values(), principal)
    if denying:
        lines = [_removal(acl, bootstrap) for acl in denying[:NAMED]]
        detail = f"{listed(map(str, denying))}: our principal {principal or '(not known)'} may be denied the copies"
        # A denial for every principal does not concern a super user.
        yield Finding(f"{name} that deny us", None, detail, f"In {flow.target.alias}: {' && '.join(lines)}")


def _removal(acl: Acl, bootstrap: str) -> str:
    parts = ["kafka-acls", "--bootstrap-server", bootstrap, "--command-config", "admin.properties", "--remove"]
    parts += ["--deny-principal", acl.principal, "--deny-host", acl.host, "--operation", _word(acl.operation)]
    parts += ["--topic", acl.name, "--resource-pattern-type", "prefixed" if acl.pattern == PREFIXED else "literal"]
    return shlex.join(parts)
