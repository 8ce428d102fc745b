"""Replication factors at the start of flows: refused where the file asks for too much, lowered where it does not say.

A default factor is lowered only to what the cluster has brokers for, never because some of them are down:
  a. brokers that are registered and fenced count, and so do brokers that hold replicas of any topic
     (`wire.placement.registered`);
  b. a cluster that has just been started may have registered only some of its brokers, and no topic that would tell.
     While a bootstrap server of the file cannot be connected to, a start that would lower a factor waits for it, as
     long as it has patience.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog

from heliograph.errors import ConfigError, WireError
from heliograph.flow.patience import Patience, insist
from heliograph.state.replicas import Needed, Seen, Shortfall, look, needed_by, refusals, shortfalls, words
from heliograph.types import Cluster, Flow
from heliograph.wire import Address, Client, bootstrap_addresses
from heliograph.wire.link import connect

log = structlog.get_logger()

ASK_S = 10.0  # a cluster that is up answers in milliseconds
CONNECT_S = 2.0  # to one bootstrap server
LOOK_EVERY_S = 60.0  # at the replicas of a flow that runs


def check_factors(flows: Iterable[Flow], patience: Patience | None = None) -> None:
    """Before anything is written. Raises ConfigError with every factor of the file that a cluster cannot hold; says
    once which topics get fewer replicas than by default."""
    check_needed([one for flow in flows for one in needed_by(flow)], patience)


def check_needed(needed: Sequence[Needed], patience: Patience | None = None) -> None:
    by_cluster = _by_cluster(needed)
    seen = insist(lambda: _look(by_cluster), patience)
    while short := _lowered(by_cluster, seen):
        silent = [text for one in short for text in _silent(one)]
        if not silent or patience is None or not patience.again(_waits(short, silent)):
            break
        seen = insist(lambda: _look(by_cluster), patience)
    refused = [text for cluster, some in by_cluster for text in refusals(some, seen[cluster.alias])]
    if refused:
        raise ConfigError(list(dict.fromkeys(refused)))
    found = [one for cluster, some in by_cluster for one in shortfalls(some, seen[cluster.alias])]
    if found:
        log.warning("topics have fewer replicas than wanted", why=" ".join(words(found)))


def fewer_replicas(flow: Flow) -> list[Shortfall]:
    """As the clusters are now. Raises what is wrong with them."""
    by_cluster = _by_cluster(needed_by(flow))
    seen = _look(by_cluster)
    return [one for cluster, some in by_cluster for one in shortfalls(some, seen[cluster.alias])]


def _by_cluster(needed: Iterable[Needed]) -> list[tuple[Cluster, list[Needed]]]:
    """By alias: how a cluster is reached may differ between its roles, and either way tells what it has."""
    found: dict[str, tuple[Cluster, list[Needed]]] = {}
    for one in needed:
        found.setdefault(one.cluster.alias, (one.cluster, []))[1].append(one)
    return list(found.values())


def _look(by_cluster: Sequence[tuple[Cluster, Sequence[Needed]]]) -> dict[str, Seen]:
    with ThreadPoolExecutor(max(len(by_cluster), 1), thread_name_prefix="factors") as pool:
        return dict(pool.map(_look_at, by_cluster))


def _look_at(one: tuple[Cluster, Sequence[Needed]]) -> tuple[str, Seen]:
    cluster, needed = one
    with Client(cluster, timeout_s=ASK_S) as client:
        return cluster.alias, look(client, needed)


def _lowered(by_cluster: Sequence[tuple[Cluster, list[Needed]]], seen: Mapping[str, Seen]) -> list[Cluster]:
    """Clusters on which topics would be created with fewer replicas than by default, or could not be created."""
    return [
        cluster
        for cluster, some in by_cluster
        if any(not one.has for one in shortfalls(some, seen[cluster.alias])) or refusals(some, seen[cluster.alias])
    ]


def _silent(cluster: Cluster) -> list[str]:
    """Bootstrap servers that cannot be connected to, and why."""
    addresses = bootstrap_addresses(cluster)
    with ThreadPoolExecutor(len(addresses), thread_name_prefix="bootstrap") as pool:
        return [text for text in pool.map(lambda one: _tried(cluster, one), addresses) if text]


def _tried(cluster: Cluster, address: Address) -> str:
    try:
        connect(address, cluster.alias, None, time.monotonic() + CONNECT_S).close()
    except WireError as error:
        return error.message
    return ""


def _waits(clusters: Sequence[Cluster], silent: Sequence[str]) -> str:
    aliases = ", ".join(one.alias for one in clusters)
    return f"{aliases} may not have registered all its brokers yet ({'; '.join(silent)})"


class ReplicaWatch:
    """Which topics of a running flow have fewer replicas than wanted, looked at now and then."""

    def __init__(self, flow: Callable[[], Flow], source: Client, target: Client) -> None:
        """`flow`: as it is now, for a file may be applied while it runs."""
        self._flow, self._source, self._target = flow, source, target
        self.words: tuple[str, ...] = ()  # replaced, never changed

    def look(self) -> None:
        """A cluster that cannot be asked has what it had; that it is away is said by those who need it."""
        found: list[Shortfall] = []
        try:
            flow = self._flow()
            for cluster, needed in _by_cluster(needed_by(flow)):
                client = self._source if cluster.alias == flow.source.alias else self._target
                found += shortfalls(needed, look(client, needed))
        except WireError:
            return
        self.words = tuple(words(found))
