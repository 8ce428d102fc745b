"""Before anything is written: every cluster of every flow reached and let in, no flow from a cluster to itself.

All flows are checked before the first may create a topic, so that a typing error in one leaves no traces of the others.
What a principal may do on topics is not asked here: it shows when a topic is used. A hub does not wait for a spoke that
is not there: its flows are begun when it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from heliograph.errors import HeliographError, SameCluster, TimedOut, Unreachable
from heliograph.types import Cluster, Flow
from heliograph.wire import Client

# A cluster that is up answers in milliseconds. So long is for one far away on a bad day; the person who mistyped an
# address waits it out.
ANSWER_S = 10.0


def check_clusters(flows: Sequence[Flow], timeout_s: float = ANSWER_S) -> None:
    """Raises the first thing that is wrong."""
    ids = _ids([cluster for flow in flows for cluster in (flow.source, flow.target)], timeout_s)
    for flow, source_id, target_id in zip(flows, ids[::2], ids[1::2], strict=True):
        if source_id == target_id and not flow.staged:
            raise same_cluster(flow, source_id)


def absent_spokes(flows: Sequence[Flow], timeout_s: float = ANSWER_S) -> frozenset[str]:
    """Aliases of spokes that do not answer. If none does, none is named: then something else is wrong, and is to be
    said."""
    clusters = {flow.source.alias: flow.source for flow in flows if flow.mux is not None}
    clusters |= {rule.spoke.alias: rule.spoke for flow in flows for rule in flow.demux}
    for hub in {flow.target.alias for flow in flows if flow.demux}:
        clusters.pop(hub, None)
    if not clusters:
        return frozenset()
    with ThreadPoolExecutor(len(clusters), thread_name_prefix="reach") as pool:
        asked = {alias: pool.submit(_cluster_id, cluster, timeout_s) for alias, cluster in clusters.items()}
    found = frozenset(alias for alias, one in asked.items() if isinstance(one.exception(), (Unreachable, TimedOut)))
    return found if len(found) < len(clusters) else frozenset()


def check_targets(flows: Sequence[Flow], timeout_s: float = ANSWER_S) -> None:
    """For pairs that only get heartbeats, whose sources nobody asks anything."""
    _ids([flow.target for flow in flows], timeout_s)


def _ids(clusters: Sequence[Cluster], timeout_s: float) -> list[str]:
    if not clusters:
        return []
    with ThreadPoolExecutor(len(clusters), thread_name_prefix="reach") as pool:
        asked = [pool.submit(_cluster_id, cluster, timeout_s) for cluster in clusters]
    for one in asked:
        problem = one.exception()
        if isinstance(problem, HeliographError) and not problem.retriable:
            raise problem  # a refused login says more than a cluster that did not answer
    return [one.result() for one in asked]


def same_cluster(flow: Flow, cluster_id: str) -> SameCluster:
    a, b = flow.source.alias, flow.target.alias
    return SameCluster(
        f"{flow.name}: {a} and {b} are one cluster (id {cluster_id})",
        fix=f"point {a}.bootstrap.servers or {b}.bootstrap.servers elsewhere",
        flow=flow.name,
    )


def _cluster_id(cluster: Cluster, timeout_s: float) -> str:
    with Client(cluster, timeout_s=timeout_s) as client:
        return client.cluster_id()
