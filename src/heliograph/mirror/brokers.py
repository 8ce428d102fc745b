"""The brokers of one cluster as an event loop sees them: who leads what, and an open connection to whom it needs.

A connection goes by its key: a node's id, and above it which of several to that node (`mirror.ways`); who needs only
one says the id. Never blocks: connections are dialled and metadata is asked in the background (`Dialer`, `Errands`).
The loop's owner is told when a connection opened or was lost, and asks for metadata again when an answer says that a
leader moved.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from heliograph.errors import HeliographError, TimedOut, WireError
from heliograph.mirror.errands import Errands
from heliograph.mirror.ways import node_of
from heliograph.types import Cluster, TopicPartition
from heliograph.wire import Address, Client, Connection, Dialer, Metadata

# A refresh at most this often: a moved leader is visible after the first one or two, and a cluster that lost a broker
# must not be asked by a thousand lanes at once.
REFRESH_EVERY_S = 0.25

# A request that has had no answer for this long is given up with its connection: the broker may be frozen or its
# network gone. Longer than the broker's own wait in a produce (30 s) plus a slow disk.
REQUEST_TIMEOUT_S = 40.0

# Of blocking calls beside the loop. Whoever has one made asks again by himself, and all others of the task wait behind
# it, as does the news of who leads what: a partition without a leader, or a broker that is frozen, must not be theirs.
ERRAND_S, PATIENCE_S = 10.0, 0.5
# A broker that has not let us connect for so long is not waited for when an epoch takes over: the one before goes on
# for no more than twice that.
REACH_S = 5.0


class Owner(Protocol):
    """Who uses the connections: the fetching or the appending side of a task."""

    def opened(self, node: int, connection: Connection) -> None: ...
    def lost(self, node: int, error: HeliographError) -> None: ...
    def received(self, node: int, tag: object, response: object) -> None: ...
    def moved(self) -> None: ...


class Brokers:
    def __init__(self, cluster: Cluster, topics: Iterable[str], selector: selectors.BaseSelector, owner: Owner) -> None:
        self.cluster = cluster
        self.topics = sorted(set(topics))
        self.metadata: Metadata | None = None
        self.trouble: HeliographError | None = None  # why the cluster cannot be asked, while it cannot
        self.errands = Errands(cluster.alias)
        self.client = Client(cluster, timeout_s=ERRAND_S, patience_s=PATIENCE_S)
        self._selector = selector
        self._owner = owner
        self._dialer = Dialer()
        self._connections: dict[int, Connection] = {}
        self._descriptors: dict[int, int] = {}  # a connection that failed is closed and has no fileno any more
        self._writing: set[int] = set()  # connections that are watched for room in the socket too
        self._dialling: dict[Address, int] = {}
        self._failed: dict[int, HeliographError] = {}  # why there is no connection to a node, until there is one
        self._refreshing = False
        self._refresh_due = 0.0
        self._wanted = False
        selector.register(self.errands.fileno(), selectors.EVENT_READ, self._errands_done)
        selector.register(self._dialer.fileno(), selectors.EVENT_READ, self._dialled)

    # ---------------------------------------------------------------- who leads

    def leader(self, tp: TopicPartition) -> int | None:
        """The node that leads it, or None: unknown, in election, or the topic is gone (then a refresh is due)."""
        topic = self.metadata.topics.get(tp.topic) if self.metadata else None
        partition = topic.partitions.get(tp.partition) if topic else None
        if partition is None or partition.leader < 0 or self.metadata is None:
            return None
        return partition.leader if partition.leader in self.metadata.brokers else None

    def refresh(self) -> None:
        """Ask again who leads what, soon."""
        self._wanted = True

    def tick(self, now: float) -> None:
        if self._wanted and not self._refreshing and now >= self._refresh_due:
            self._wanted, self._refreshing = False, True
            self.errands.submit(lambda: self.client.metadata(self.topics), self._learnt)
        for node, connection in list(self._connections.items()):
            sent_at = connection.oldest_sent_at
            if sent_at is not None and now - sent_at > REQUEST_TIMEOUT_S:
                self.drop(node, self._frozen(connection))

    def _learnt(self, metadata: Metadata | None, error: HeliographError | None) -> None:
        self._refreshing = False
        self._refresh_due = time.monotonic() + REFRESH_EVERY_S
        if metadata is None:
            self.trouble = error
            self._wanted = True
            return
        self.trouble = None
        self.metadata = metadata
        self._owner.moved()

    # ---------------------------------------------------------------- connections

    def connection(self, node: int) -> Connection | None:
        """Open already, or None and being dialled."""
        if (connection := self._connections.get(node)) is not None:
            return connection
        address = self._address(node)
        # One dial at a time to an address: who is not served is asked for again with the next look.
        if address is not None and address not in self._dialling:
            self._dialling[address] = node
            self._dialer.dial(address, self.cluster)
        return None

    def _address(self, node: int) -> Address | None:
        return self.metadata.brokers.get(node_of(node)) if self.metadata else None

    def reach(self, tps: Iterable[TopicPartition], now: float) -> bool:
        """Whether all of their leaders are connected that can be; those that are not are being dialled."""
        if self.metadata is None:
            return False
        nodes = {node for tp in tps if (node := self.leader(tp)) is not None}
        missing = [node for node in nodes if self.connection(node) is None]
        return all(self._refuses(node, now) for node in missing)

    def out_of_reach(self, tp: TopicPartition, now: float) -> bool:
        """Whether its leader does not let us connect, or has not for a while; it is being tried again."""
        node = self.leader(tp)
        return node is not None and self.connection(node) is None and self._refuses(node, now)

    def _refuses(self, node: int, now: float) -> bool:
        since = self.trying_since(node)
        return node in self._failed or (since is not None and now - since > REACH_S)

    @property
    def connections(self) -> list[Connection]:
        """Those that are open."""
        return list(self._connections.values())

    def connected(self, node: int) -> Connection | None:
        """As `connection`, but only looks."""
        return self._connections.get(node)

    def failure(self, node: int) -> HeliographError | None:
        """Why there is no connection to a node: how the last one ended, or the last try."""
        return self._failed.get(node)

    def trying_since(self, node: int) -> float | None:
        """Since when a try to connect to a node has had no answer; None: none is under way."""
        address = self._address(node)
        return None if address is None else self._dialer.trying_since(address, self.cluster.alias)

    def drop(self, node: int, error: HeliographError) -> None:
        connection = self._connections.pop(node, None)
        if connection is None:
            return
        self._failed[node] = error
        self._writing.discard(node)
        self._selector.unregister(self._descriptors.pop(node))
        connection.close()
        self.refresh()
        self._owner.lost(node, error)

    def watch(self, node: int) -> None:
        """After a send: wait for room in the socket too, as long as bytes are left."""
        connection = self._connections[node]
        if connection.wants_write == (node in self._writing):
            return
        key = self._selector.get_key(self._descriptors[node])
        if connection.wants_write:
            self._writing.add(node)
            self._selector.modify(key.fd, selectors.EVENT_READ | selectors.EVENT_WRITE, key.data)
        else:
            self._writing.discard(node)
            self._selector.modify(key.fd, selectors.EVENT_READ, key.data)

    def _dialled(self, _: int) -> None:
        for address, result in self._dialer.ready():
            node = self._dialling.pop(address, None)
            if node is None:
                continue
            if isinstance(result, HeliographError):
                self.trouble = self._failed[node] = result
                self.refresh()
                self._owner.lost(node, result)
                continue
            self._failed.pop(node, None)
            self._connections[node], self._descriptors[node] = result, result.fileno()
            self._selector.register(result.fileno(), selectors.EVENT_READ, self._ready(node, result))
            self._owner.opened(node, result)

    def _ready(self, node: int, connection: Connection) -> Callable[[int], None]:
        def ready(events: int) -> None:
            if self._connections.get(node) is not connection:
                return  # dropped by somebody who was served before us in this very turn of the loop
            try:
                if events & selectors.EVENT_WRITE:
                    connection.flush()
                answers = connection.receive() if events & selectors.EVENT_READ else []
            except WireError as error:
                self.drop(node, error)
                return
            for tag, response in answers:
                self._owner.received(node, tag, response)
            if node in self._connections:
                self.watch(node)

        return ready

    def _frozen(self, connection: Connection) -> TimedOut:
        return TimedOut(
            f"{self.cluster.alias}: {connection.address} has not answered for {REQUEST_TIMEOUT_S:.0f} s",
            fix="the broker may be frozen or the network cut; connecting again",
        )

    def _errands_done(self, _: int) -> None:
        self.errands.settle()

    def close(self) -> None:
        for node, connection in self._connections.items():
            self._selector.unregister(self._descriptors[node])
            connection.close()
        self._connections.clear()
        self._selector.unregister(self.errands.fileno())
        self._selector.unregister(self._dialer.fileno())
        self._dialer.close()
        self.errands.submit(self.client.close, lambda _, __: None)
        self.errands.close()
