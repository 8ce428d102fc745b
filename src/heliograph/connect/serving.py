"""A node with its API on sockets. It listens first: a port that is taken ends the command before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import structlog

from heliograph.config.worker import Listener
from heliograph.connect.node import Node
from heliograph.connect.service import Api, NodeBackend, Service
from heliograph.errors import ConfigError
from heliograph.http.address import is_loopback
from heliograph.http.certificates import Certificates
from heliograph.http.guard import Guard
from heliograph.http.hosts import Hosts
from heliograph.http.notices import Notices
from heliograph.http.server import Server
from heliograph.http.users import UsersFile
from heliograph.http.watch import Watch

log = structlog.get_logger()

EVERYWHERE = "0.0.0.0"


class Serving:
    def __init__(
        self, node: Node, *, users: Path | None = None, insecure: bool = False, allowed_hosts: Sequence[str] = ()
    ) -> None:
        """`users`: the file of those who may; None: everybody may, so only from this machine unless told otherwise."""
        self._node = node
        for listener in node.file.listeners:
            _require_safe(listener, users, insecure)
        notices = Notices()
        known = UsersFile(users, notices) if users is not None else None
        self._guard = Guard(known)
        router = Api(Service(NodeBackend(node), secured=users is not None, notices=notices).routes(), self._guard)
        tls = Certificates(node.file.tls, notices) if any(one.tls for one in node.file.listeners) else None
        advertised = node.file.advertised.rpartition(":")[0]
        hosts = Hosts(advertised, *(one.host for one in node.file.listeners), more=allowed_hosts)
        self._watch = Watch([one for one in (known, tls) if one is not None])
        self._servers: list[Server] = []
        try:
            for one in node.file.listeners:
                how = {"hosts": hosts, "tls": tls if one.tls else None, "named": "listeners"}
                self._servers.append(Server(one.host or EVERYWHERE, one.port, router, **how))  # type: ignore[arg-type]
        except ConfigError:
            for server in self._servers:
                server.close()
            raise

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(server.url for server in self._servers)

    def start(self) -> None:
        """The API answers from the beginning: /health says `starting`."""
        for server in self._servers:
            server.start()
        self._watch.start()
        self._node.start()

    def stop(self, timeout_s: float = 4.0) -> None:
        self._watch.close()
        for server in self._servers:
            server.close()
        self._guard.close()
        self._node.stop(timeout_s)


def _require_safe(listener: Listener, users: Path | None, insecure: bool) -> None:
    if is_loopback(listener.host):
        return
    if users is not None and not listener.tls:
        log.warning("passwords come over the network in clear: serve https", port=listener.port)
    if users is None and not insecure:
        where = listener.host or "every address of this machine"
        raise ConfigError(
            f"listeners: whoever reaches {where}:{listener.port} could read, change and delete connectors, for nobody "
            "is asked for a password; listen on 127.0.0.1, name --users FILE, or say --insecure"
        )
