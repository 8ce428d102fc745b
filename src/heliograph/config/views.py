"""MM2's order of resolution: what a cluster, a worker, a connector and its clients are given of a file.

Answers for the three maps that MM2 builds from a file (its clusterProps, workerConfig and connectorBaseConfig) and for
the client settings its connectors take from them, key by key, each with the line it came from. A broker test compares
them with what MM2's own classes compute. What a value means is `flows`'s affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from heliograph.config import keys
from heliograph.config.clients import CLIENTS
from heliograph.config.place import ARROW
from heliograph.config.properties import Entry
from heliograph.config.shape import Scope

Pair = tuple[str, str]
Side = Literal["source", "target"]

# Top-level keys that beat those of the target cluster in a worker's settings.
WORKER_OVERLAYS = (
    *("offset.storage", "config.storage", "status.storage", "key.converter", "value.converter", "header.converter"),
    *("task", "worker", "replication.policy"),
)
CONNECTOR_PREFIXES = ("config.providers", "replication.policy")


@dataclass(frozen=True, slots=True)
class Setting:
    value: str  # what counts: expressions of providers replaced
    entry: Entry  # where it stands and what is written there
    provided: bool = False  # a provider gave it, or part of it: not to be printed


View = dict[str, Setting]


class Views:
    """The maps of one file. `settings`: by the full key, as written."""

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        self._all = settings

    def cluster(self, alias: str) -> View:
        """`alias.k` bare; keys every client shares are handed to each client; those of the top level fill gaps."""
        view = self._stripped(f"{alias}.")
        for source in (dict(view), self._all):
            for name, setting in source.items():
                if not is_shared(name):
                    continue
                for client in CLIENTS:
                    view.setdefault(f"{client}.{name}", setting)
                view.setdefault(name, setting)
        return view

    def worker(self, target: str) -> View:
        return self.cluster(target) | self._beginning(WORKER_OVERLAYS)

    def connector(self, pair: Pair) -> View:
        """Later lines win. Nothing but a flow's own keys passes without being known."""
        view = {name: setting for name, setting in self._all.items() if is_connector_key(name)}
        view |= self._beginning(CONNECTOR_PREFIXES)
        for side, alias in zip(("source", "target"), pair, strict=True):
            for name, setting in self.cluster(alias).items():
                is_client = name.startswith(CLIENTS)
                view[f"{side}.{name}" if is_client else f"{side}.cluster.{name}"] = setting
        return view | self.own(pair)

    def own(self, pair: Pair) -> View:
        """What stands under the flow itself."""
        return self._stripped(f"{ARROW.join(pair)}.")

    def client(self, pair: Pair, side: Side, client: str) -> View:
        """What a connector's client gets: a cluster's `consumer.k` beats the flow's, unless that says `source.`"""
        base = self.connector(pair)
        shared = {k: s for k, s in stripped(base, f"{side}.cluster.").items() if is_shared(k)}
        return shared | stripped(base, f"{client}.") | stripped(base, f"{side}.{client}.")

    def writer(self, pair: Pair) -> View:
        """What the producer of records gets, which is the worker's: `B.producer.k`, `A->B.producer.override.k`."""
        worker = self.worker(pair[1])
        shared = {k: s for k, s in worker.items() if is_shared(k)}
        return shared | stripped(worker, "producer.") | stripped(self.connector(pair), "producer.override.")

    def _stripped(self, prefix: str) -> View:
        return stripped(self._all, prefix)

    def _beginning(self, prefixes: tuple[str, ...]) -> View:
        return {name: setting for name, setting in self._all.items() if name.startswith(prefixes)}


def stripped(view: Mapping[str, Setting], prefix: str) -> View:
    return {name[len(prefix) :]: setting for name, setting in view.items() if name.startswith(prefix)}


def is_shared(name: str) -> bool:
    """Address and security: what MM2 copies to every client of a cluster."""
    key = keys.find(name, (Scope.CLIENT,))
    return key is not None and not name.startswith("consumer.")


def is_connector_key(name: str) -> bool:
    """Whether MM2 takes this key from the top level into its connectors: a name of theirs, no family."""
    key = keys.find(name, (Scope.FLOW,))
    if key is not None:
        return not key.is_family and not key.flow_only
    return is_shared(name) and name != "bootstrap.servers"
