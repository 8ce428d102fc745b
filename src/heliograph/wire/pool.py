"""The connections of one cluster, by broker: opened when needed, replaced when lost or about to expire.

Answers for bootstrap (every listed server tried, every failure named) and for the addresses brokers advertise. Does not
retry over time: that is `cluster`'s.
"""

from __future__ import annotations

import random
import time

from heliograph.errors import TokenUnavailable, Unreachable, WireError
from heliograph.types import Cluster
from heliograph.wire.connection import Connection
from heliograph.wire.link import Address, bootstrap_addresses
from heliograph.wire.metadata import Metadata

# Where there are others to turn to, a server that is silent for so long is left until the others were asked: one that
# is frozen or behind a firewall would otherwise cost whoever meets it first all of its time.
QUICK_S = 2.0


class Pool:
    def __init__(self, cluster: Cluster, client_id: str, connect_timeout_s: float) -> None:
        self.cluster = cluster
        self._client_id = client_id
        self._connect_timeout_s = connect_timeout_s
        self._bootstrap = bootstrap_addresses(cluster)
        self._brokers: dict[int, Address] = {}
        self._open: dict[Address, Connection] = {}

    def learn(self, metadata: Metadata) -> None:
        """New addresses; connections to brokers that moved away are closed."""
        self._brokers = dict(metadata.brokers)
        known = {*self._brokers.values(), *self._bootstrap}
        for address in [each for each in self._open if each not in known]:
            self._open.pop(address).close()

    def to_broker(self, broker: int, deadline: float) -> Connection:
        address = self._brokers.get(broker)
        if address is None:
            raise Unreachable(
                f"{self.cluster.alias}: broker {broker} is not in the cluster now", cluster=self.cluster.alias
            )
        return self._to(address, deadline, self._connect_timeout_s)

    def to_any(self, deadline: float) -> Connection:
        """An open connection, or the first that opens, quickly if one does. If none does: what each address said."""
        for connection in self._open.values():
            if self._usable(connection):
                return connection
        addresses = [*dict.fromkeys([*self._brokers.values(), *self._bootstrap])]
        random.shuffle(addresses)  # many tasks must not all lean on the first server
        failures: list[WireError] = []
        for limit_s in (QUICK_S, self._connect_timeout_s) if len(addresses) > 1 else (self._connect_timeout_s,):
            failures = []
            for address in addresses:
                try:
                    return self._to(address, deadline, limit_s)
                except TokenUnavailable:
                    raise  # every broker would be shown the same token
                except WireError as error:
                    failures.append(error)
            if any(not error.retriable for error in failures):
                break
        raise self._none_of(failures)

    def _to(self, address: Address, deadline: float, limit_s: float) -> Connection:
        connection = self._open.get(address)
        if connection is not None and self._usable(connection):
            return connection
        if connection is not None:
            connection.close()
            del self._open[address]
        timeout_s = max(min(limit_s, deadline - time.monotonic()), 0.01)
        connection = Connection.open(address, self.cluster, timeout_s=timeout_s, client_id=self._client_id)
        self._open[address] = connection
        return connection

    @staticmethod
    def _usable(connection: Connection) -> bool:
        return not connection.closed and not connection.is_expiring

    def _none_of(self, failures: list[WireError]) -> WireError:
        for error in failures:
            if not error.retriable:
                return error  # a wrong password does not get better by waiting
        alias = self.cluster.alias
        said = "; ".join(dict.fromkeys(_said(error) for error in failures))
        fix = failures[0].fix if len(failures) == 1 and failures[0].fix else "Are the brokers up?"
        return Unreachable(
            f"{alias}: no broker can be reached ({said})",
            fix=f"{fix.rstrip('.')} See {alias}.bootstrap.servers and {alias}.security.protocol",
            cluster=alias,
        )

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()


def _said(error: WireError) -> str:
    broker = error.context.get("broker")
    reason = error.context.get("reason")
    return f"{broker}: {reason}" if broker and reason else error.message
