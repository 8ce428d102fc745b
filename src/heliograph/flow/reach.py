"""Before anything is written: every cluster of every flow reached and let in, no flow from a cluster to itself.

All flows are checked before the first may create a topic, so that a typing error in one leaves no traces of the others.
What a principal may do on topics is not asked here: it shows when a topic is used. A hub does not wait for a spoke that
is not there: its flows are begun when it is. All others are waited for as long as the caller has patience.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import structlog

from heliograph.errors import HeliographError, SameCluster, Unreachable
from heliograph.flow.patience import Patience, is_passing
from heliograph.types import Cluster, Flow
from heliograph.wire import Client
from heliograph.wire import metadata as wire_metadata

log = structlog.get_logger()

# A cluster that is up answers in milliseconds. So long is for one far away on a bad day; the person who mistyped an
# address waits it out.
ANSWER_S = 10.0


def check_clusters(flows: Sequence[Flow], timeout_s: float = ANSWER_S, patience: Patience | None = None) -> None:
    """Raises the first thing that is wrong. Without `patience` a cluster has `timeout_s` to answer."""
    ids = reach([cluster for flow in flows for cluster in (flow.source, flow.target)], timeout_s, patience)
    for flow, source_id, target_id in zip(flows, ids[::2], ids[1::2], strict=True):
        if source_id == target_id and not flow.staged:
            raise same_cluster(flow, source_id)


def check_targets(flows: Sequence[Flow], timeout_s: float = ANSWER_S, patience: Patience | None = None) -> None:
    """For pairs that only get heartbeats, whose sources nobody asks anything."""
    reach([flow.target for flow in flows], timeout_s, patience)


def check_begin(flows: Sequence[Flow], patience: Patience | None = None) -> frozenset[str]:
    """Names of flows that are begun later, since a spoke is not there; whatever else is wrong is raised."""
    hub = any(flow.staged for flow in flows)
    # Spokes are given the time of an answer, and no more: the others of the hub do not wait for them.
    first = Patience(min(ANSWER_S, patience.left_s)) if patience is not None and hub else patience
    try:
        check_clusters(flows, patience=first)
        return frozenset()
    except HeliographError as error:
        if not is_passing(error):
            raise
        absent = absent_spokes(flows) if hub else frozenset()
        if not absent and first is patience:
            raise
        late = frozenset(flow.name for flow in flows if absent & {flow.source.alias, flow.target.alias})
        if late:
            log.warning(
                "a hub begins without some of its spokes", spokes=sorted(absent), flows=sorted(late), why=str(error)
            )
    check_clusters([flow for flow in flows if flow.name not in late], patience=patience)
    return late


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
    found = frozenset(alias for alias, one in asked.items() if is_passing(one.exception()))
    return found if len(found) < len(clusters) else frozenset()


def reach(clusters: Sequence[Cluster], timeout_s: float = ANSWER_S, patience: Patience | None = None) -> list[str]:
    """Their cluster ids, in order; or what is wrong with the first that is not reached."""
    different: list[Cluster] = []
    for one in clusters:
        if one not in different:
            different.append(one)
    while True:
        ids, problems = _ask_all(different, timeout_s, once=patience is not None)
        if not problems:
            return [ids[different.index(one)] for one in clusters]
        lasting = [problem for problem in problems if not is_passing(problem)]
        if lasting:
            raise lasting[0]  # a refused login says more than a cluster that did not answer
        why = "; ".join(dict.fromkeys(map(_said, problems)))
        if patience is None or not patience.again(why):
            raise problems[0]


def _ask_all(clusters: Sequence[Cluster], timeout_s: float, *, once: bool) -> tuple[list[str], list[BaseException]]:
    if not clusters:
        return [], []
    with ThreadPoolExecutor(len(clusters), thread_name_prefix="reach") as pool:
        ask = _ask_once if once else _cluster_id
        asked: list[Future[str]] = [pool.submit(ask, cluster, timeout_s) for cluster in clusters]
    problems = [problem for one in asked if (problem := one.exception()) is not None]
    return [one.result() for one in asked if one.exception() is None], problems


def _said(problem: BaseException) -> str:
    """Which broker and why, without the advice: that comes with the error, if it comes to that."""
    return getattr(problem, "message", str(problem))


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


def _ask_once(cluster: Cluster, timeout_s: float) -> str:
    """Every bootstrap server is tried once: whether to try again is for the caller to say. With a new client, so that
    names are resolved anew."""
    with Client(cluster, timeout_s=timeout_s) as client:
        fields = wire_metadata.request_fields([])
        found = wire_metadata.read(client.call("metadata", timeout_s=timeout_s, retry=False, **fields))
    if not found.brokers:
        raise Unreachable(f"{cluster.alias}: no broker has registered yet", cluster=cluster.alias)
    return found.cluster_id
