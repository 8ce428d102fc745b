"""What doctor says of a missing permission, and the line that gives it."""

from __future__ import annotations

import pytest

from heliograph.cli.patient import Patient, Seen
from heliograph.cli.permissions import Lack, allowing, carried_acls, missing, verdict
from heliograph.types import Cluster, Flow
from heliograph.wire import Acl, Client
from heliograph.wire.acls import ALTER, DENY, DESCRIBE, PREFIXED, READ, WRITE

ALICE = {
    "bootstrap.servers": "kafka.example:9093",
    "security.protocol": "SASL_SSL",
    "sasl.jaas.config": 'org.example.ScramLoginModule required username="alice" password="x";',
}


def patient(**properties: str) -> Patient:
    cluster = Cluster("eu", {key.replace("_", "."): value for key, value in properties.items()} or ALICE)
    return Patient(cluster, Client(cluster))


def lack(kind: str, name: str, *operations: int) -> Lack:
    return Lack(kind, name, frozenset(operations))


def test_topics_that_lack_the_same_share_a_line() -> None:
    lacks = [lack("topic", "b", READ, WRITE), lack("topic", "a", WRITE, READ), lack("topic", "c", ALTER)]
    assert missing(lacks) == "no permission for Alter on topic c; Read, Write on topic a, b"
    to = "kafka-acls --bootstrap-server kafka.example:9093 --command-config admin.properties --add"
    assert allowing(patient(), lacks).split(" && ") == [
        f"{to} --allow-principal User:alice --operation Alter --topic c",
        f"{to} --allow-principal User:alice --operation Read --operation Write --topic a --topic b",
    ]


def test_a_line_fits_a_shell_and_a_terminal() -> None:
    assert "--group '*'" in allowing(patient(), [lack("group", "*", DESCRIBE)])
    assert allowing(patient(), [lack("cluster", "", ALTER)]).endswith("--operation Alter --cluster")
    many = [lack("topic", f"t{n:02}", READ) for n in range(53)]
    assert allowing(patient(), many).endswith("--topic t49 (and 3 more)")
    assert missing(many).endswith("t04 and 48 more")


@pytest.mark.parametrize(
    ("properties", "principal"),
    [
        (ALICE, "User:alice"),
        ({"bootstrap.servers": "a:1"}, "User:ANONYMOUS"),
        ({"bootstrap.servers": "a:1", "security.protocol": "SSL"}, "User:<our name>"),
        ({"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.jaas.config": "x"}, "User:<our name>"),
    ],
)
def test_who_we_are_where_the_file_tells(properties: dict[str, str], principal: str) -> None:
    assert patient(**properties).principal == principal


def test_a_verdict_names_the_cluster_the_line_and_the_way_round() -> None:
    good = verdict("x", patient(), [], "may be read")
    assert (good.ok, good.detail, good.fix) == (True, "may be read", "")
    bad = verdict("x", patient(), [lack("cluster", "", ALTER)], "", otherwise="sync.topic.acls.enabled = false")
    assert (bad.ok, bad.detail) == (False, "no permission for Alter on cluster")
    assert bad.fix.startswith("In eu: kafka-acls ")
    assert bad.fix.endswith("; or set sync.topic.acls.enabled = false")


@pytest.mark.parametrize(
    ("seen", "allowed"),
    [
        (Seen(1, 1 << READ, 0), True),
        (Seen(1, 1 << WRITE, 0), False),
        (Seen(0, 1 << READ, 3), True),  # not there, and we might if it were
        (Seen(0, 1 << READ, 29), False),  # we may not even describe it
        (Seen(1, -(2**31), 0), True),  # a broker that does not say
    ],
)
def test_bits_and_errors_of_a_topic(seen: Seen, allowed: bool) -> None:
    assert seen.allows(READ) is allowed


def test_permissions_that_will_be_withheld_and_denials_that_lock_us_out() -> None:
    flow = Flow(Cluster("us"), Cluster("eu", ALICE))
    theirs = [Acl("orders", "User:bob", READ), Acl("*", "User:bob", READ, DENY)]
    ours = [Acl("us.", "User:alice", WRITE, DENY, pattern=PREFIXED), Acl("us.orders", "User:eve", WRITE, DENY)]
    withheld, denied = carried_acls(flow, "kafka.example:9093", theirs, ours, {"orders": "us.orders"})
    assert (withheld.name, withheld.ok) == ("flow us->eu: topic ACLs withheld", None)
    assert "ALLOW READ on us.orders to User:bob (the source has DENY READ on * to User:bob" in withheld.detail
    assert (denied.name, denied.ok) == ("flow us->eu: topic ACLs that deny us", None)
    assert "DENY WRITE on PREFIXED us. to User:alice" in denied.detail
    assert "User:eve" not in denied.detail
    assert denied.fix.endswith(
        "kafka-acls --bootstrap-server kafka.example:9093 --command-config admin.properties --remove --deny-principal "
        "User:alice --deny-host '*' --operation Write --topic us. --resource-pattern-type prefixed"
    )
    assert list(carried_acls(flow, "", [Acl("orders", "User:bob", READ)], [], {"orders": "us.orders"})) == []
