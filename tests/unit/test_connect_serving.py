"""Where a node listens: on this machine, where passwords are asked for, or where somebody insists. And its batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.config.worker import Listener
from heliograph.connect.serving import _require_safe
from heliograph.connect.store import BATCH_BYTES, _parted
from heliograph.errors import ConfigError

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
