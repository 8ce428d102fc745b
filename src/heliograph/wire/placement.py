"""Which brokers a cluster has, up or not, and which of them hold a partition.

Answers for DescribeCluster (KIP-700, with fenced brokers KIP-1073) and for partition reassignments (KIP-455). Sending
and retrying is the client's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heliograph.errors import BrokerError
from heliograph.types import TopicPartition
from heliograph.wire import codes, metadata
from heliograph.wire.calls import Calls
from heliograph.wire.codes import broker_error

_BROKERS = 1  # endpoint type of DescribeCluster: brokers, not controllers
# Partitions in one request: KRaft's controller writes a record for each, and refuses a request that makes 10,000.
_REASSIGNED_AT_ONCE = 2_000


def registered(client: Calls, *, at_least: int, timeout_s: float) -> dict[int, bool]:
    """Broker id -> whether it is up. A broker that restarts is still one of the cluster's: a default replication factor
    must not sink because of it. Brokers of Kafka 4.0 and newer name those that are registered and fenced. Older ones
    name the live ones only; if these are fewer than `at_least`, brokers that hold replicas of any topic count too."""
    answer = client.call(
        "describe_cluster",
        timeout_s=timeout_s,
        include_cluster_authorized_operations=False,
        endpoint_type=_BROKERS,
        include_fenced_brokers=True,
    )
    if int(answer.error_code):
        raise broker_error(int(answer.error_code), answer.error_message, cluster=client.alias)
    found = {int(one.broker_id): not getattr(one, "is_fenced", False) for one in answer.brokers}
    if len(found) < at_least:
        seen = metadata.read(client.call("metadata", timeout_s=timeout_s, **metadata.request_fields(None)))
        holders = {id_ for topic in seen.topics.values() for part in topic.partitions.values() for id_ in part.replicas}
        found = dict.fromkeys(holders - found.keys(), False) | found
    return found


def racks(client: Calls, *, timeout_s: float) -> dict[int, str | None]:
    """Broker that is up -> its rack."""
    answer = client.call(
        "describe_cluster",
        timeout_s=timeout_s,
        include_cluster_authorized_operations=False,
        endpoint_type=_BROKERS,
    )
    return {int(one.broker_id): one.rack for one in answer.brokers}


def brokers_away(client: Calls, topic: str, factor: int, brokers: Mapping[int, bool]) -> BrokerError:
    """The error of a topic that the cluster could hold if all its brokers were up."""
    away = ", ".join(str(one) for one, is_up in sorted(brokers.items()) if not is_up) or "some"
    return BrokerError(
        codes.INVALID_REPLICATION_FACTOR,
        codes.name_of(codes.INVALID_REPLICATION_FACTOR),
        f"{factor} replicas need {factor} brokers that are up, and of {len(brokers)} brokers {away} is not",
        retriable=True,
        fix="Wait until the broker is back, or start it",
        cluster=client.alias,
        topic=topic,
    )


def reassign(
    client: Calls, replicas: Mapping[TopicPartition, Sequence[int]], *, timeout_s: float
) -> dict[TopicPartition, BrokerError | None]:
    results: dict[TopicPartition, BrokerError | None] = {}
    tps = list(replicas)
    for start in range(0, len(tps), _REASSIGNED_AT_ONCE):
        topics: dict[str, list[dict[str, object]]] = {}
        for tp in tps[start : start + _REASSIGNED_AT_ONCE]:
            topics.setdefault(tp.topic, []).append({"partition_index": tp.partition, "replicas": list(replicas[tp])})
        answer = client.call(
            "alter_partition_reassignments",
            controller=True,
            timeout_s=timeout_s,
            timeout=int(timeout_s * 1000),
            allow_replication_factor_change=True,
            topics=[{"name": name, "partitions": parts} for name, parts in topics.items()],
        )
        if int(answer.error_code):
            raise broker_error(int(answer.error_code), answer.error_message, cluster=client.alias)
        for topic in answer.responses:
            for part in topic.partitions:
                tp, code = TopicPartition(str(topic.name), int(part.partition_index)), int(part.error_code)
                where = {"cluster": client.alias, "topic": tp.topic, "partition": tp.partition}
                results[tp] = broker_error(code, part.error_message, **where) if code else None
    return results


def under_way(client: Calls, tps: Sequence[TopicPartition], *, timeout_s: float) -> set[TopicPartition]:
    topics: dict[str, list[int]] = {}
    for tp in tps:
        topics.setdefault(tp.topic, []).append(tp.partition)
    answer = client.call(
        "list_partition_reassignments",
        controller=True,
        timeout_s=timeout_s,
        timeout=int(timeout_s * 1000),
        topics=[{"name": name, "partition_indexes": parts} for name, parts in topics.items()],
    )
    if int(answer.error_code):
        raise broker_error(int(answer.error_code), answer.error_message, cluster=client.alias)
    return {
        TopicPartition(str(topic.name), int(part.partition_index))
        for topic in answer.topics
        for part in topic.partitions
    }
