"""Where a node listens: on this machine, where passwords are asked for, or where somebody insists. And its batches."""

from __future__ import annotations

import http.client
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher

from heliograph.config import worker
from heliograph.config.worker import Listener, WorkerFile
from heliograph.connect.asking import Sight
from heliograph.connect.serving import Serving, _require_safe
from heliograph.connect.store import BATCH_BYTES, _parted
from heliograph.embedded.certificates import Authority
from heliograph.errors import ConfigError
from tests.unit.test_config_connectors import FIELD
from tests.unit.test_connect_api import Memory

USERS = Path("users")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_this_machine_may(host: str) -> None:
    _require_safe(Listener(host, 8083), None, insecure=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "worker-1"])
def test_others_may_with_a_password_or_when_somebody_insists(host: str) -> None:
    with pytest.raises(ConfigError, match="--users FILE, or say --insecure"):
        _require_safe(Listener(host, 8083), None, insecure=False)
    _require_safe(Listener(host, 8083), None, insecure=True)
    _require_safe(Listener(host, 8083, tls=True), USERS, insecure=False)


def test_what_goes_into_one_batch_goes_into_one() -> None:
    small = [(b"a", b"1"), (b"b", None), (b"c", b"2")]
    assert list(_parted(small)) == [small]
    assert list(_parted([])) == []
    large = [(b"%d" % n, b"x" * (BATCH_BYTES // 2)) for n in range(4)]
    parts = list(_parted(large))
    assert [pair for part in parts for pair in part] == large
    assert all(len(part) == 1 for part in parts)


class FakeNode:
    """A node that runs nothing: what `Serving` needs of one."""

    def __init__(self, file: WorkerFile) -> None:
        self.file = file

    def sight(self) -> Sight:
        return Memory().sight()

    def start(self) -> None:
        return

    def stop(self, timeout_s: float) -> None:
        return


def test_https_users_and_names_are_those_of_the_workers_file_and_the_command(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "heliograph")
    lines = ["", "listeners=https://0.0.0.0:0", "rest.advertised.host.name=worker-1"]
    lines += [f"listeners.https.{key}={value}" for key, value in authority.issue("w").key_properties("PKCS12").items()]
    users = tmp_path / "users"
    users.write_text(f"alice admin {PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash('one')}\n")
    node: Any = FakeNode(worker.parse(FIELD + "\n".join(lines).encode()))
    serving = Serving(node, users=users, allowed_hosts=["connect.example.org"])
    serving.start()
    try:
        port = int(serving.urls[0].rpartition(":")[2])
        context = ssl.create_default_context(cafile=str(authority.certificate_pem))

        def status(host: str, path: str = "/health", **headers: str) -> int:
            connection = http.client.HTTPSConnection("localhost", port, timeout=30, context=context)
            try:
                connection.request("GET", path, headers={"Host": host, **headers})
                return connection.getresponse().status
            finally:
                connection.close()

        for host in ("localhost", "worker-1:8083", "connect.example.org", "10.0.0.9"):
            assert status(host) == 200
        assert status("evil.example") == 421
        assert status("localhost", "/connectors") == 401
        assert status("localhost", "/connectors", Authorization="Bearer alice.one") == 200
    finally:
        serving.stop()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1)
