"""Carried over permissions against a model of Kafka's authorizer: whatever the two clusters have, the sync takes
nothing from us, opens nothing that the source does not allow, and takes from others only what the source denies."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.sync.acl_rules import remote_acls
from heliograph.wire import Acl
from heliograph.wire.acls import (
    ALL,
    ALLOW,
    ALTER,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    LITERAL,
    PREFIXED,
    READ,
    WRITE,
)

US = "User:mirror"
PEOPLE, HOSTS = (US, "User:alice", "User:eve"), ("10.0.0.1", "10.0.0.2")
OPERATIONS = (READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS, DELETE, ALTER)
READING = (READ, DESCRIBE, DESCRIBE_CONFIGS)
IMPLIED = {DESCRIBE: (READ, WRITE, DELETE, ALTER)}  # by Kafka, and only for ALLOWs
TOPICS = {"orders": "us.orders", "orders-old": "us.orders-old"}


def acls(*names: tuple[int, str]) -> st.SearchStrategy[list[Acl]]:
    one = st.builds(
        lambda named, who, what, may, host: Acl(named[1], who, what, may, host, named[0]),
        st.sampled_from(names),
        st.sampled_from((*PEOPLE, "User:*")),
        st.sampled_from((*OPERATIONS, ALL)),
        st.sampled_from((ALLOW, DENY)),
        st.sampled_from((*HOSTS, "*")),
    )
    return st.lists(one, max_size=8)


ON_SOURCE = acls((LITERAL, "orders"), (LITERAL, "orders-old"), (LITERAL, "*"), (PREFIXED, "ord"), (PREFIXED, "orders-"))
ON_TARGET = acls((LITERAL, "us.orders"), (LITERAL, "*"), (PREFIXED, "us."), (PREFIXED, "us.orders-"))


def allows(acls: Iterable[Acl], who: str, host: str, topic: str, operation: int) -> bool:
    """As Kafka's StandardAuthorizer decides, for whoever is no super user."""
    matching = [
        acl
        for acl in acls
        if acl.principal in (who, "User:*")
        and acl.host in (host, "*")
        and (topic.startswith(acl.name) if acl.pattern == PREFIXED else acl.name in (topic, "*"))
    ]
    if any(acl.permission == DENY and acl.operation in (operation, ALL) for acl in matching):
        return False
    enough = (operation, ALL, *IMPLIED.get(operation, ()))
    return any(acl.permission == ALLOW and acl.operation in enough for acl in matching)


@settings(max_examples=400, deadline=None)
@given(ON_SOURCE, ON_TARGET, st.sampled_from([US, None]))
def test_nothing_is_taken_from_us_and_nothing_opened_that_the_source_denies(
    theirs: list[Acl], ours: list[Acl], known: str | None
) -> None:
    found = remote_acls(theirs, TOPICS, ours=known, there=set(ours))
    after = {*ours, *found.denials, *(one.acl for one in found.permissions)}
    for (topic, remote), who, host, operation in product(TOPICS.items(), PEOPLE, HOSTS, OPERATIONS):
        before, now = (allows(on, who, host, remote, operation) for on in (ours, after))
        at_source = allows(theirs, who, host, topic, operation)
        if before and not now:
            assert who != US
            assert not at_source
        if now and not before:
            assert operation in READING
            assert at_source or who == US


@settings(max_examples=200, deadline=None)
@given(ON_SOURCE, ON_TARGET)
def test_a_second_look_finds_nothing_more_to_do(theirs: list[Acl], ours: list[Acl]) -> None:
    first = remote_acls(theirs, TOPICS, ours=US, there=set(ours))
    there = {*ours, *first.denials, *(one.acl for one in first.permissions)}
    second = remote_acls(theirs, TOPICS, ours=US, there=there)
    assert {*second.denials, *(one.acl for one in second.permissions)} <= there
