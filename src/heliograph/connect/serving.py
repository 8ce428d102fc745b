"""A node with its API on sockets. It listens first: a port that is taken ends the command before anything starts."""

from __future__ import annotations

import ssl
from pathlib import Path

import structlog

from heliograph.config.worker import Listener, WorkerFile
from heliograph.connect.node import Node
from heliograph.connect.service import Api, NodeBackend, Service
from heliograph.errors import ConfigError
from heliograph.http.guard import Guard, load_users
from heliograph.http.server import Server, is_loopback
from heliograph.wire.stores import StoreProblem, server_tls_of

log = structlog.get_logger()

EVERYWHERE = "0.0.0.0"


class Serving:
    def __init__(self, node: Node, *, users: Path | None = None, insecure: bool = False) -> None:
        """`users`: the file of those who may; None: everybody may, so only from this machine unless told otherwise."""
        self._node = node
        for listener in node.file.listeners:
            _require_safe(listener, users, insecure)
        guard = Guard(load_users(users) if users is not None else None)
        router = Api(Service(NodeBackend(node), secured=users is not None).routes(), guard)
        tls = _tls(node.file) if any(listener.tls for listener in node.file.listeners) else None
        self._servers = [
            Server(one.host or EVERYWHERE, one.port, router, tls=tls if one.tls else None, named="listeners")
            for one in node.file.listeners
        ]

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(server.url for server in self._servers)

    def start(self) -> None:
        """The API answers from the beginning: /health says `starting`."""
        for server in self._servers:
            server.start()
        self._node.start()

    def stop(self, timeout_s: float = 4.0) -> None:
        for server in self._servers:
            server.close()
        self._node.stop(timeout_s)


def _tls(file: WorkerFile) -> ssl.SSLContext:
    try:
        return server_tls_of(file.tls)
    except StoreProblem as problem:
        raise ConfigError(f"listeners.https.{problem.key}: {problem}") from problem


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
