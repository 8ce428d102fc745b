"""What `doctor` checks of a file and its clusters: read, reached, let in, told apart, allowed, and of the right shape.

What the features beside the copying may do is asked in `permissions`; how a cluster is asked without changing anything
is `patient`'s.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence

from heliograph.cli import permissions
from heliograph.cli.doctor import Finding
from heliograph.cli.patient import ASKED_AT_ONCE, Patient, Seen
from heliograph.cli.permissions import Lack, allowing, listed, missing
from heliograph.config.load import load
from heliograph.errors import BrokerError, ConfigError, HeliographError, WireError
from heliograph.policy import partitions_of, positions_topic, remote_topic, should_multiplex, should_replicate
from heliograph.state import replicas
from heliograph.survey.stages import put_back_as
from heliograph.types import COPIES_FACTOR, STORAGE_FACTOR, Cluster, Demux, Flow, Mux
from heliograph.wire.acls import DESCRIBE, READ, WRITE
from heliograph.wire.cluster import Client
from heliograph.wire.codes import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from heliograph.wire.topics import NewTopic

TIMEOUT_S = 10.0


def examine(file: str | os.PathLike[str], *, lenient: bool = False) -> Iterator[Finding]:
    try:
        config = load(file, lenient=lenient)
    except ConfigError as problem:
        yield from (Finding("file", False, text, "Correct the line") for text in problem.problems)
        return
    pairs = (*config.flows, *config.heartbeat_only)
    yield Finding("file", True, f"{file}: {', '.join(flow.name for flow in pairs)}")
    yield from (Finding("file", None, warning) for warning in config.warnings)
    patients: dict[tuple[str, str], Patient] = {}
    try:
        for flow in config.flows:
            yield from _admit(patients, "source", flow.source)
            yield from _admit(patients, "target", flow.target)
        for flow in config.heartbeat_only:
            if not _is_known(patients, flow.target):
                yield from _admit(patients, "target", flow.target)
        yield from _told_apart(list(patients.values()))
        for flow in config.flows:
            source, target = patients["source", flow.source.alias], patients["target", flow.target.alias]
            if not source.cluster_id or not target.cluster_id:
                continue
            if flow.staged:
                yield from _staged(flow, source, target, patients)
            elif source.cluster_id != target.cluster_id:
                yield from _flow(flow, source, target)
        for flow in config.heartbeat_only:
            target = patients["target", flow.target.alias]
            if target.cluster_id:
                yield permissions.heartbeats(flow, target)
                yield _replicas(flow, target)
    finally:
        for patient in patients.values():
            patient.client.close()


def _admit(patients: dict[tuple[str, str], Patient], role: str, cluster: Cluster) -> Iterator[Finding]:
    if (role, cluster.alias) not in patients:
        patients[role, cluster.alias] = patient = Patient(cluster, Client(cluster, timeout_s=TIMEOUT_S))
        yield _reach(role, patient)


def _is_known(patients: dict[tuple[str, str], Patient], target: Cluster) -> bool:
    """Whether a cluster that only gets heartbeats was reached already as a source, with the same settings."""
    source = patients.get(("source", target.alias))
    if ("target", target.alias) in patients or source is None or source.cluster.properties != target.properties:
        return False
    patients["target", target.alias] = source
    return True


def _reach(role: str, patient: Patient) -> Finding:
    name = f"cluster {patient.cluster.alias} ({role})"
    try:
        found = patient.client.metadata([])
        patient.topics = patient.see(None)
    except HeliographError as problem:
        return _failed(name, problem)
    patient.cluster_id = found.cluster_id
    protocol = patient.cluster.properties.get("security.protocol", "PLAINTEXT")
    detail = f"{patient.cluster.bootstrap} by {protocol}: id {found.cluster_id}, {len(found.brokers)} brokers"
    return Finding(name, True, detail)


def _failed(name: str, problem: HeliographError) -> Finding:
    passing = isinstance(problem, WireError) and problem.retriable
    return Finding(name, False, f"{problem.condition}: {problem.message}", problem.fix, retriable=passing)


def _replicas(flow: Flow, *places: Patient) -> Finding:
    """Whether every topic gets the replicas that it should."""
    name, needed = f"flow {flow.name}: replicas", replicas.needed_by(flow)
    short: list[replicas.Shortfall] = []
    refused: list[str] = []
    for place in {one.cluster.alias: one for one in places}.values():
        its = [one for one in needed if one.cluster.alias == place.cluster.alias]
        seen = replicas.look(place.client, its)
        short += replicas.shortfalls(its, seen)
        refused += replicas.refusals(its, seen)
    if refused:
        return Finding(name, False, "; ".join(refused), "Set what the cluster can hold, or remove the line")
    if not short:
        return Finding(name, True, "every topic has, or gets, as many as it should")
    return Finding(name, None, " ".join(replicas.words(short)), "Nothing must be done; to choose them, set these keys")


def _told_apart(patients: Sequence[Patient]) -> Iterator[Finding]:
    aliases: dict[str, set[str]] = {}
    for patient in patients:
        if patient.cluster_id:
            aliases.setdefault(patient.cluster_id, set()).add(patient.cluster.alias)
    for cluster_id, names in aliases.items():
        if len(names) > 1:
            keys = " or ".join(f"{name}.bootstrap.servers" for name in sorted(names))
            yield Finding(
                "cluster ids",
                False,
                f"{' and '.join(sorted(names))} are one cluster (id {cluster_id}): a flow would copy into itself",
                f"Correct {keys}",
            )


def _flow(flow: Flow, source: Patient, target: Patient) -> Iterator[Finding]:
    try:
        wanted = {topic: seen for topic, seen in source.topics.items() if should_replicate(flow, topic)}
        yield from _source(flow, source, list(wanted), flow.topics)
        needed = {
            remote_topic(flow, topic): partitions_of(flow, topic) or seen.partitions for topic, seen in wanted.items()
        }
        yield _target(flow, target, needed)
        yield _partitions(flow, target, wanted)
        yield from permissions.examine(flow, source, target, wanted)
        yield _replicas(flow, source, target)
    except HeliographError as problem:
        yield _failed(f"flow {flow.name}", problem)


def _staged(
    flow: Flow, source: Patient, target: Patient, patients: Mapping[tuple[str, str], Patient]
) -> Iterator[Finding]:
    try:
        if flow.mux is not None:
            needed = yield from _multiplexes(flow, flow.mux, source)
        else:
            needed = yield from _puts_back(flow, source, target, patients)
        yield _target(flow, target, needed)
        yield from permissions.honesty(flow, target)
        yield _replicas(flow, target)
    except HeliographError as problem:
        yield _failed(f"flow {flow.name}", problem)


def _multiplexes(flow: Flow, mux: Mux, source: Patient) -> Generator[Finding, None, dict[str, int]]:
    """What was chosen. The shared topic, if there will be one, with its partitions."""
    chosen = [topic for topic in source.topics if should_multiplex(flow, topic)]
    yield from _source(flow, source, chosen, mux.topics, key="mux.topics")
    return {mux.topic: mux.partitions} if chosen else {}


def _puts_back(
    flow: Flow, hub: Patient, target: Patient, patients: Mapping[tuple[str, str], Patient]
) -> Generator[Finding, None, dict[str, int]]:
    """The shared topics, and what the spokes that were reached have for the hub: that, with its partitions."""
    yield from (_shared(flow, rule, hub) for rule in flow.demux)
    needed: dict[str, int] = {}
    for rule in flow.demux:
        spoke = patients.get(("source", rule.spoke.alias))
        if spoke is None:
            continue
        names = _put_back(flow, rule, spoke)
        needed |= {name: spoke.topics[topic].partitions for topic, name in names.items()}
        following = names.values() if rule.sync_configs_s is not None else None
        about = f"flow {flow.name}: settings of {rule.spoke.alias}'s topics"
        yield from permissions.settings(about, spoke, target, names, following)
    return needed


def _shared(flow: Flow, rule: Demux, hub: Patient) -> Finding:
    name = f"flow {flow.name}: records of {rule.spoke.alias}"
    if rule.topic not in hub.topics:
        why = f"{hub.cluster.alias} has no topic {rule.topic} yet (or hides it from us)"
        return Finding(name, None, why, "Start what multiplexes there, and the link; this flow waits for it")
    lacks = permissions.topic_lacks(hub.refused([rule.topic], READ, DESCRIBE))
    return permissions.verdict(name, hub, lacks, f"{rule.topic} may be read")


def _put_back(flow: Flow, rule: Demux, spoke: Patient) -> dict[str, str]:
    """The topics that a spoke has for the hub -> as they would be called there."""
    return {topic: name for topic in spoke.topics if (name := put_back_as(flow, rule, topic)) is not None}


def _source(
    flow: Flow, source: Patient, readable: Sequence[str], patterns: Sequence[str], *, key: str = "topics"
) -> Iterator[Finding]:
    name = f"flow {flow.name}: source topics"
    refused = [topic for topic in readable if not source.topics[topic].allows(READ)]
    # A topic that we may not even describe is not in the list; one that the file names can be asked for.
    named = [topic for topic in patterns if topic.replace("-", "").replace("_", "").isalnum()]
    asked = source.see([topic for topic in named if topic not in source.topics])
    refused += [topic for topic, seen in asked.items() if seen.error == TOPIC_AUTHORIZATION_FAILED]
    absent = [topic for topic, seen in asked.items() if seen.error == UNKNOWN_TOPIC_OR_PARTITION]
    may_read = [Lack("topic", topic, frozenset({READ, DESCRIBE})) for topic in refused]
    if refused:
        yield Finding(
            name, False, f"no permission to read {listed(refused)}",
            f"Allow our user READ and DESCRIBE on them in {flow.source.alias}: {allowing(source, may_read)}",
        )  # fmt: skip
    if absent:
        yield Finding(
            name, None, f"not there (or hidden from us): {listed(absent)}", f"Create them, or correct `{key}`"
        )
    if not readable and not refused:
        fix = f"Correct `{key}`{' and `topics.exclude`' if key == 'topics' else ''}, if that is not meant"
        yield Finding(name, None, f"none matches `{key}`", fix)
    elif not refused:
        yield Finding(name, True, f"{len(readable)} may be read: {listed(readable)}")


def _target(flow: Flow, target: Patient, needed: Mapping[str, int]) -> Finding:
    """Whether what is missing could be created, and all of it written and read back (where does it end? whose are its
    last records?); the positions topic included."""
    name = f"flow {flow.name}: target topics"
    positions = flow.positions_topic or positions_topic(flow.source.alias)
    copies, storage = flow.factor(COPIES_FACTOR), flow.factor(STORAGE_FACTOR)
    new = [
        NewTopic(topic, count, copies.replicas, lowerable=copies.lowerable)
        for topic, count in needed.items()
        if topic not in target.topics
    ][:ASKED_AT_ONCE]
    if positions not in target.topics:
        new.append(permissions.own_topic(positions, flow.offset_storage_partitions, storage))
    uncreatable = target.uncreatable(new)
    lacks = permissions.with_create(target.refused([*needed, positions], READ, WRITE), uncreatable)
    problems = _reasons(uncreatable)
    if lacks:
        problems.append(missing(lacks))
    if not problems:
        there = len(needed) + 1 - len(new)
        return Finding(name, True, f"{there} there may be written, {len(new)} missing may be created")
    fixes = []
    if lacks:
        fixes.append(f"Allow our user CREATE, WRITE and READ in {flow.target.alias}: {allowing(target, lacks)}")
    if any(problem.name == "INVALID_REPLICATION_FACTOR" for problem in uncreatable.values()):
        fixes.append(f"{copies.key} and {storage.key} must fit {flow.target.alias}'s brokers")
    return Finding(name, False, "; ".join(problems), "; ".join(fixes))


def _reasons(uncreatable: Mapping[str, BrokerError]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for topic, problem in uncreatable.items():
        by_reason.setdefault(problem.name, []).append(topic)
    return [f"{listed(topics)} could not be created: {reason}" for reason, topics in by_reason.items()]


def _partitions(flow: Flow, target: Patient, wanted: dict[str, Seen]) -> Finding:
    name = f"flow {flow.name}: partitions"
    few, wrong = [], []
    for topic, seen in wanted.items():
        remote, chosen = remote_topic(flow, topic), partitions_of(flow, topic)
        copy = target.topics.get(remote)
        if copy and chosen is not None and copy.partitions != chosen:
            wrong.append(f"{remote} has {copy.partitions}, chosen are {chosen}")
        elif copy and chosen is None and copy.partitions < seen.partitions:
            few.append((remote, copy.partitions, seen.partitions))
    if wrong:
        fix = f"Set {flow.name}.target.partitions to what is there, or delete the copies: they are parked otherwise"
        return Finding(name, False, listed(wrong), fix)
    if not few:
        return Finding(name, True, "every copy has as many as it should")
    detail = listed([f"{topic} has {has} of {needs}" for topic, has, needs in few])
    return Finding(name, True, f"{detail}: the missing ones are added when the flow starts")
