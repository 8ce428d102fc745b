"""What permissions become on a copy, and that AclSync adds only what is missing and says each trouble once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from structlog.typing import EventDict

from heliograph.errors import BrokerError
from heliograph.sync.acl_rules import RemoteAcls, locking_out, remote_acls
from heliograph.sync.acls import AclSync, own_principal
from heliograph.types import Cluster, Flow
from heliograph.wire import Acl, Client
from heliograph.wire.acls import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    LITERAL,
    PREFIXED,
    READ,
    WRITE,
)
from heliograph.wire.codes import broker_error

FLOW = Flow(Cluster("us"), Cluster("eu"))
TOPICS = {"orders": "us.orders", "events": "us.events"}
CLUSTER_AUTHORIZATION_FAILED, SECURITY_DISABLED = 31, 54


def acl(operation: int, permission: int = ALLOW, name: str = "orders") -> Acl:
    return Acl(name, "User:alice", operation, permission)


US = "User:mirror"  # our own principal on the target
EVERYBODY = "User:*"


def given(theirs: Sequence[Acl], ours: str | None = US, there: Sequence[Acl] = ()) -> RemoteAcls:
    return remote_acls(theirs, TOPICS, ours=ours, there=set(there))


def allowed(found: RemoteAcls) -> list[Acl]:
    return [one.acl for one in found.permissions]


def on_copy(one: Acl) -> Acl:
    return replace(one, name=f"us.{one.name}", pattern=LITERAL)


def deny(principal: str, operation: int = READ, name: str = "orders", **more: Any) -> Acl:
    return Acl(name, principal, operation, DENY, **more)


# ---- what a copy is for


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (acl(READ), [acl(READ)]),
        (acl(DESCRIBE), [acl(DESCRIBE)]),
        (acl(DESCRIBE_CONFIGS), [acl(DESCRIBE_CONFIGS)]),
        (acl(ALL), [acl(READ)]),
        (acl(WRITE), []),
        (acl(CREATE), []),
        (acl(DELETE), []),
        (acl(ALTER), []),
        (acl(ALTER_CONFIGS), []),
        (acl(99), []),  # an operation of a newer Kafka
        (acl(READ, DENY), [acl(READ, DENY)]),
        (acl(WRITE, DENY), []),
        (acl(DELETE, DENY), []),
        (acl(ALL, DENY), [acl(READ, DENY), acl(DESCRIBE, DENY), acl(DESCRIBE_CONFIGS, DENY)]),
        (replace(acl(READ), host="10.0.0.1"), [replace(acl(READ), host="10.0.0.1")]),
        (replace(acl(READ), pattern=PREFIXED), []),
        (acl(READ, name="other"), []),
        (acl(READ, name="*"), []),
        (replace(acl(READ), resource_type=3), []),  # a group that is called like a topic
    ],
)
def test_what_a_permission_becomes(theirs: Acl, ours: list[Acl]) -> None:
    found = given([theirs])
    assert [*found.denials, *allowed(found)] == [on_copy(one) for one in ours]


# ---- we do not lock ourselves out


@pytest.mark.parametrize("operation", [ALL, READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS, ALTER, 99])
@pytest.mark.parametrize("principal", [US, EVERYBODY])
@pytest.mark.parametrize("host", ["*", "10.0.0.1"])
def test_no_denial_covers_our_own_principal(operation: int, principal: str, host: str) -> None:
    allows = [
        Acl("orders", who, READ, host=where) for who in (US, EVERYBODY, "User:alice") for where in ("*", "10.0.0.1")
    ]
    for pattern, name in ((LITERAL, "orders"), (PREFIXED, "ord"), (LITERAL, "*")):
        denial = deny(principal, operation, name, host=host, pattern=pattern)
        assert all(made.principal == "User:alice" for made in given([denial, *allows]).denials)


@pytest.mark.parametrize("principal", ["User:alice", EVERYBODY, US])
def test_no_denial_is_made_while_our_principal_is_not_known(principal: str) -> None:
    found = given([deny(principal), Acl("orders", EVERYBODY, READ)], ours=None)
    assert (list(found.denials), allowed(found)) == ([], [])
    assert {one.acl.permission for one in found.withheld} == {ALLOW, DENY}


def test_a_denial_for_us_alone_withholds_nothing_from_others() -> None:
    everybody = Acl("orders", EVERYBODY, READ)
    found = given([deny(US), everybody])
    assert allowed(found) == [on_copy(everybody)]
    assert [one.acl for one in found.withheld] == [on_copy(deny(US))]
    assert "our own principal" in found.withheld[0].why


# ---- what the source denies is not opened


PATTERNS = [(LITERAL, "orders"), (PREFIXED, "ord"), (PREFIXED, ""), (LITERAL, "*")]


@pytest.mark.parametrize(("pattern", "name"), PATTERNS)
@pytest.mark.parametrize("operation", [READ, ALL])
def test_a_denial_that_covers_a_part_is_made_for_the_remote_topic(pattern: int, name: str, operation: int) -> None:
    """0.1 dropped PREFIXED denials and those on `*`, and carried ALLOW READ for everybody: so eve could read."""
    everybody = Acl("orders", EVERYBODY, READ)
    found = given([everybody, deny("User:eve", operation, name, pattern=pattern)])
    assert deny("User:eve", READ, "us.orders") in found.denials
    [permission] = found.permissions
    assert permission.acl == on_copy(everybody)
    assert deny("User:eve", READ, "us.orders") in permission.needs
    assert not found.withheld


@pytest.mark.parametrize(("pattern", "name"), PATTERNS)
@pytest.mark.parametrize("principal", ["User:alice", EVERYBODY])
def test_a_denial_that_covers_all_withholds_the_permission(pattern: int, name: str, principal: str) -> None:
    found = given([acl(READ), acl(READ, name="events"), deny(principal, READ, name, pattern=pattern)])
    assert on_copy(acl(READ)) not in allowed(found)
    withheld = [one for one in found.withheld if one.acl.permission == ALLOW]
    assert on_copy(acl(READ)) in [one.acl for one in withheld]
    assert all(f"DENY READ on {'PREFIXED ' if pattern == PREFIXED else ''}{name}" in one.why for one in withheld)


def test_a_denial_of_other_topics_or_principals_or_operations_changes_nothing() -> None:
    others = [
        deny("User:bob"), deny("User:alice", WRITE), deny("User:alice", DESCRIBE_CONFIGS), deny("User:alice", name="x"),
        deny("User:alice", name="orders-", pattern=PREFIXED),
    ]  # fmt: skip
    found = given([acl(READ), *others])
    assert allowed(found) == [on_copy(acl(READ))]
    assert found.permissions[0].needs == frozenset()


def test_reading_implies_describing_so_a_denial_of_that_counts() -> None:
    found = given([Acl("orders", EVERYBODY, READ), deny("User:eve", DESCRIBE, "ord", pattern=PREFIXED)])
    assert list(found.denials) == [deny("User:eve", DESCRIBE, "us.orders")]


@pytest.mark.parametrize(
    ("allow", "denial", "made"),
    [
        # A denial for everybody from one host, and one principal that may: made for the two together.
        (("User:alice", "*"), (EVERYBODY, "10.0.0.1"), ("User:alice", "10.0.0.1")),
        (("User:alice", "*"), ("User:alice", "10.0.0.1"), ("User:alice", "10.0.0.1")),
        ((EVERYBODY, "10.0.0.1"), ("User:eve", "*"), ("User:eve", "10.0.0.1")),
        ((EVERYBODY, "*"), ("User:eve", "10.0.0.1"), ("User:eve", "10.0.0.1")),
        (("User:alice", "10.0.0.2"), (EVERYBODY, "10.0.0.1"), None),  # they do not meet
    ],
)
def test_principals_and_hosts(allow: tuple[str, str], denial: tuple[str, str], made: tuple[str, str] | None) -> None:
    permission = Acl("orders", allow[0], READ, host=allow[1])
    found = given([permission, deny(denial[0], name="ord", host=denial[1], pattern=PREFIXED)])
    assert allowed(found) == [on_copy(permission)]
    assert list(found.denials) == ([] if made is None else [deny(made[0], name="us.orders", host=made[1])])


def test_everybody_from_one_host_cannot_be_denied_so_everybody_is_not_allowed() -> None:
    found = given([Acl("orders", EVERYBODY, READ), deny(EVERYBODY, host="10.0.0.1")])
    assert (allowed(found), list(found.denials)) == ([], [])
    assert "our own principal" in found.withheld[-1].why


def test_a_denial_that_came_later_is_made_where_the_permission_is_there_already() -> None:
    there = on_copy(acl(READ))
    found = given([acl(READ), deny("User:alice", name="*")], there=[there])
    assert list(found.denials) == [deny("User:alice", name="us.orders")]
    found = given([acl(READ), deny("User:alice", name="*")], ours=None, there=[there])
    assert [(one.acl, one.is_there) for one in found.withheld] == [(there, True)]


def test_denials_that_lock_us_out() -> None:
    acls = [
        deny(US, WRITE, "us.orders"), deny(EVERYBODY, WRITE, "us.", pattern=PREFIXED), deny(EVERYBODY, ALL, "*"),
        deny("User:eve", ALL, "us.orders"), deny(US, WRITE, "other"), Acl("us.orders", US, WRITE),
        deny(EVERYBODY, ALL, "eu.", pattern=PREFIXED),
    ]  # fmt: skip
    assert locking_out(acls, ["us.orders"], US) == acls[:3]
    assert locking_out(acls, ["us.orders"], None) == acls[1:3]


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


def test_denials_come_first_and_what_is_withheld_is_said_once_with_principal_and_topic(logs: list[EventDict]) -> None:
    everybody = Acl("orders", EVERYBODY, READ)
    target = FakeCluster()
    source = FakeCluster(
        [everybody, acl(READ, name="events"), deny("User:eve", name="*"), deny("User:alice", name="*")]
    )
    sync = a_sync(source, target)
    assert [sync.sync(TOPICS) for _ in range(3)] == [3, 0, 0]
    assert target.created[:2] == [deny(who, name="us.orders") for who in ("User:eve", "User:alice")]
    assert target.created[2:] == [on_copy(everybody)]
    [line] = [line for line in logs if line["log_level"] == "warning"]
    assert (line["topic"], line["principal"]) == ("us.events", "User:alice")
    assert "DENY READ on *" in line["why"]
    assert len(sync.withheld) == 1
    assert sync.withheld[0].startswith("us.events: permission withheld: ALLOW READ on us.events to User:alice")


def test_a_permission_is_not_added_without_its_denial(logs: list[EventDict]) -> None:
    everybody, eve = Acl("orders", EVERYBODY, READ), deny("User:eve", name="us.orders")
    target = FakeCluster(refuses=[eve])
    sync = a_sync(FakeCluster([everybody, deny("User:eve", name="*")]), target)
    assert [sync.sync(TOPICS) for _ in range(2)] == [0, 0]
    assert on_copy(everybody) not in target.acls
    assert any(line["event"] == "permission withheld" and str(eve) in line["why"] for line in logs)
    target.refuses = []
    assert sync.sync(TOPICS) == 2


def test_a_topic_that_appears_later_gets_its_denials_too() -> None:
    target = FakeCluster()
    sync = a_sync(FakeCluster([Acl("events", EVERYBODY, READ), deny("User:eve", name="ev", pattern=PREFIXED)]), target)
    assert sync.sync({"orders": "us.orders"}) == 0
    assert sync.sync(TOPICS) == 2
    assert target.created == [deny("User:eve", name="us.events"), Acl("us.events", EVERYBODY, READ)]


SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="mirror" password="x"'


@pytest.mark.parametrize(
    ("properties", "principal"),
    [
        ({}, "User:ANONYMOUS"),
        (SCRAM | {"sasl.jaas.config": f"{JAAS};"}, US),
        (SCRAM | {"sasl.username": "mirror"}, US),
        (SCRAM | {"sasl.jaas.config": f'{JAAS} tokenauth="true";'}, None),
        (SCRAM | {"sasl.jaas.config": "half"}, None),
        ({"security.protocol": "SSL"}, None),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
          "sasl.jaas.config": 'M required unsecuredLoginStringClaim_sub="mirror";'}, US),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
          "sasl.oauthbearer.token.endpoint.url": "https://x/",
          "sasl.jaas.config": 'M required clientId="mirror";'}, None),
    ],
)  # fmt: skip
def test_our_own_principal(properties: dict[str, str], principal: str | None) -> None:
    flow = Flow(Cluster("us"), Cluster("eu", properties))
    assert own_principal(flow) == principal
    assert own_principal(replace(flow, own_principal="User:CN=m")) == "User:CN=m"


def test_a_login_that_does_not_tell_who_we_are_names_the_key(logs: list[EventDict]) -> None:
    flow = Flow(Cluster("us"), Cluster("eu", {"security.protocol": "SSL"}))
    source = FakeCluster([Acl("orders", EVERYBODY, READ), deny("User:eve", name="*")])
    target = FakeCluster()
    assert AclSync(flow, cast(Client, source), cast(Client, target)).sync(TOPICS) == 0
    [line] = logs
    assert "us->eu.sync.topic.acls.own.principal" in line["fix"]
    told = replace(flow, own_principal=US)
    assert AclSync(told, cast(Client, source), cast(Client, target)).sync(TOPICS) == 2


def test_a_permission_that_the_source_denies_is_mended_there(logs: list[EventDict]) -> None:
    """Given on the target by hand it would meet the denial in the next round."""
    sync = a_sync(FakeCluster([acl(READ), deny("User:alice", name="ord", pattern=PREFIXED)]), FakeCluster())
    assert sync.sync(TOPICS) == 0
    [line] = logs
    assert line["fix"].startswith("Remove that denial from us")
