"""What permissions become on a copy, and that AclSync adds only what is missing and says each trouble once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest
from structlog.typing import EventDict

from heliograph.errors import BrokerError
from heliograph.sync.acls import AclSync, remote_acls
from heliograph.types import Cluster, Flow
from heliograph.wire import Acl, Client
from heliograph.wire.acls import ALL, ALLOW, DENY, DESCRIBE, PREFIXED, READ, WRITE
from heliograph.wire.codes import broker_error

FLOW = Flow(Cluster("us"), Cluster("eu"))
TOPICS = {"orders": "us.orders", "events": "us.events"}
ALTER = 7
CLUSTER_AUTHORIZATION_FAILED, SECURITY_DISABLED = 31, 54


def acl(operation: int, permission: int = ALLOW, name: str = "orders") -> Acl:
    return Acl(name, "User:alice", operation, permission)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (acl(READ), acl(READ)),
        (acl(DESCRIBE), acl(DESCRIBE)),
        (acl(ALTER), acl(ALTER)),
        (acl(WRITE), None),
        (acl(ALL), acl(READ)),
        (acl(WRITE, DENY), acl(WRITE, DENY)),
        (acl(ALL, DENY), acl(ALL, DENY)),
        (replace(acl(READ), host="10.0.0.1"), replace(acl(READ), host="10.0.0.1")),
        (replace(acl(READ), pattern=PREFIXED), None),
        (acl(READ, name="other"), None),
        (acl(READ, name="*"), None),
        (replace(acl(READ), resource_type=3), None),  # a group that is called like a topic
        (acl(99), acl(99)),  # an operation of a newer Kafka
    ],
)
def test_what_a_permission_becomes(theirs: Acl, ours: Acl | None) -> None:
    expected = [] if ours is None else [replace(ours, name="us.orders")]
    assert list(remote_acls([theirs], TOPICS)) == expected


def test_a_permission_reads_well() -> None:
    assert str(acl(READ)) == "ALLOW READ on orders to User:alice"
    odd = Acl("ord", "User:bob", 99, DENY, "10.0.0.1", PREFIXED)
    assert str(odd) == "DENY 99 on PREFIXED ord to User:bob from 10.0.0.1"


class FakeCluster:
    def __init__(self, acls: Sequence[Acl] = (), *, error: int = 0, refuses: Sequence[Acl] = ()) -> None:
        self.acls = list(acls)
        self.error = error
        self.refuses = refuses
        self.created: list[Acl] = []

    def describe_acls(self) -> list[Acl] | BrokerError:
        return broker_error(self.error) if self.error else list(self.acls)

    def create_acls(self, wanted: Sequence[Acl]) -> dict[Acl, BrokerError | None]:
        self.created += wanted
        self.acls += [one for one in wanted if one not in self.refuses]
        return {one: broker_error(42, "no") if one in self.refuses else None for one in wanted}


def a_sync(source: FakeCluster, target: FakeCluster) -> AclSync:
    return AclSync(FLOW, cast(Client, source), cast(Client, target))


def test_only_what_is_missing_is_added() -> None:
    source = FakeCluster([acl(READ), acl(ALL), acl(WRITE), acl(DESCRIBE), acl(READ, name="events")])
    target = FakeCluster([replace(acl(DESCRIBE), name="us.orders")])
    sync = a_sync(source, target)
    assert sync.sync(TOPICS) == 2  # READ and ALL are one permission on the copy
    assert target.created == [replace(acl(READ), name="us.orders"), replace(acl(READ), name="us.events")]
    assert sync.sync(TOPICS) == 0
    assert len(target.created) == 2


@pytest.mark.parametrize("without", ["source", "target"])
def test_no_authorizer_is_one_line_of_information(without: str, logs: list[EventDict]) -> None:
    source = FakeCluster([acl(READ)], error=SECURITY_DISABLED if without == "source" else 0)
    target = FakeCluster(error=SECURITY_DISABLED if without == "target" else 0)
    sync = a_sync(source, target)
    assert [sync.sync(TOPICS) for _ in range(3)] == [0, 0, 0]
    assert [(line["log_level"], line["cluster"]) for line in logs] == [("info", "us" if without == "source" else "eu")]
    assert target.created == []


def test_a_source_that_does_not_let_us_read_is_said_once_with_the_fix(logs: list[EventDict]) -> None:
    sync = a_sync(FakeCluster(error=CLUSTER_AUTHORIZATION_FAILED), FakeCluster())
    assert [sync.sync(TOPICS) for _ in range(3)] == [0, 0, 0]
    [line] = logs
    assert line["log_level"] == "warning"
    assert "DESCRIBE on cluster us" in line["fix"]
    assert "sync.topic.acls.enabled" in line["fix"]


def test_a_target_that_lets_us_add_and_not_read() -> None:
    target = FakeCluster(error=CLUSTER_AUTHORIZATION_FAILED)
    sync = a_sync(FakeCluster([acl(READ)]), target)
    assert [sync.sync(TOPICS) for _ in range(3)] == [1, 0, 0]
    assert len(target.created) == 1


def test_one_that_is_refused_is_said_once_and_the_others_are_added(logs: list[EventDict]) -> None:
    bad = replace(acl(READ), name="us.orders")
    target = FakeCluster(refuses=[bad])
    sync = a_sync(FakeCluster([acl(READ), acl(DESCRIBE)]), target)
    assert [sync.sync(TOPICS) for _ in range(3)] == [1, 0, 0]
    assert [line["acl"] for line in logs if line["log_level"] == "warning"] == [str(bad)]


def test_permissions_on_every_topic_are_left_to_people_and_said_once(logs: list[EventDict]) -> None:
    target = FakeCluster()
    sync = a_sync(FakeCluster([acl(READ, name="*")]), target)
    assert [sync.sync(TOPICS) for _ in range(2)] == [0, 0]
    assert len(logs) == 1
    assert target.created == []
