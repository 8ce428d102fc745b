"""Which permissions a remote topic gets from its source. Pure: the ACLs of both clusters in, ACLs for the target out.

A copy is for reading: READ, DESCRIBE and DESCRIBE_CONFIGS are carried over, ALL becomes READ as in MM2, and nothing
else is, neither as permission nor as denial. (MM2 carries over CREATE, DELETE, ALTER and ALTER_CONFIGS too, and every
denial as it is.) Only ALLOWs on single topics are: a LITERAL `*` or a PREFIXED pattern is about names on the source.

Invariants:
a. No denial is made that covers our own principal: not for it, not for `User:*`, and not for anybody while it is not
   known who we are. Kafka lets denials win, so one of these would end the copying.
b. No ALLOW is made that opens on the target what the source denies, by whatever pattern, principal or host. A denial of
   the source that covers a part of an ALLOW is made for that part, on the remote topic; one that covers all of it, or
   may not be made because of (a), withholds the ALLOW.
c. An ALLOW is made after the denials that it needs, and not without them.

Kafka's rules that this follows: `User:*` is every principal, host `*` every host, operation ALL every operation; ALLOW
READ implies DESCRIBE, DENY READ does not deny it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from heliograph.wire import Acl
from heliograph.wire.acls import ALL, ALLOW, DENY, DESCRIBE, DESCRIBE_CONFIGS, LITERAL, PREFIXED, READ, TOPIC

EVERY_PRINCIPAL, EVERY_HOST, EVERY_TOPIC = "User:*", "*", "*"
# What an ALLOW of each operation that is carried over opens.
OPENS = {READ: (READ, DESCRIBE), DESCRIBE: (DESCRIBE,), DESCRIBE_CONFIGS: (DESCRIBE_CONFIGS,)}


@dataclass(frozen=True, slots=True)
class Permission:
    """An ALLOW for a remote topic, and the denials without which it would open too much."""

    acl: Acl
    needs: frozenset[Acl] = frozenset()


@dataclass(frozen=True, slots=True)
class Withheld:
    """An ACL that the remote topic does not get. `is_there`: the target has it nevertheless. `covered`: the source
    denies all of it, which would be denied on the target too if it were there."""

    acl: Acl
    why: str
    is_there: bool = False
    covered: bool = False


@dataclass(slots=True)
class RemoteAcls:
    denials: dict[Acl, None] = field(default_factory=dict)  # in order, each once
    permissions: list[Permission] = field(default_factory=list)
    withheld: list[Withheld] = field(default_factory=list)


def remote_acls(
    acls: Iterable[Acl], remote_of: Mapping[str, str], *, ours: str | None, there: Collection[Acl] = ()
) -> RemoteAcls:
    """`acls`: all of the source's; `remote_of`: source topic -> remote topic; `ours`: our principal on the target, None
    if that is not known; `there`: what the target has."""
    found, given = RemoteAcls(), _Acls(acls)
    for topic, remote in remote_of.items():
        for denial in given.denials.get(topic, ()):
            _carry_denial(found, denial, remote, ours)
        covering = list(given.covering(topic))
        for acl in dict.fromkeys(_carried(acl, remote) for acl in given.allows.get(topic, ())):
            if acl is not None:
                _carry_allow(found, acl, covering, ours, there)
    return found


class _Acls:
    """The source's ACLs on topics, by how they name them."""

    def __init__(self, acls: Iterable[Acl]) -> None:
        self.allows: dict[str, list[Acl]] = {}
        self.denials: dict[str, list[Acl]] = {}
        self._prefixed: list[Acl] = []
        for acl in acls:
            if acl.resource_type != TOPIC:
                continue
            if acl.pattern == LITERAL:
                kinds = {ALLOW: self.allows, DENY: self.denials}
                if acl.permission in kinds:
                    kinds[acl.permission].setdefault(acl.name, []).append(acl)
            elif acl.pattern == PREFIXED and acl.permission == DENY:
                self._prefixed.append(acl)

    def covering(self, topic: str) -> Iterator[Acl]:
        """Every denial that holds for this topic."""
        yield from self.denials.get(topic, ())
        yield from self.denials.get(EVERY_TOPIC, ()) if topic != EVERY_TOPIC else ()
        yield from (acl for acl in self._prefixed if topic.startswith(acl.name))


def _carried(acl: Acl, remote: str) -> Acl | None:
    operation = READ if acl.operation == ALL else acl.operation
    return replace(acl, name=remote, operation=operation) if operation in OPENS else None


def _carry_denial(found: RemoteAcls, denial: Acl, remote: str, ours: str | None) -> None:
    """A denial on this very topic, as far as it is about reading."""
    operations = tuple(OPENS) if denial.operation == ALL else (denial.operation,)
    for operation in operations:
        if operation not in OPENS:
            continue
        acl = replace(denial, name=remote, operation=operation)
        if danger := _danger(acl.principal, ours):
            found.withheld.append(Withheld(acl, danger))
        else:
            found.denials[acl] = None


def _carry_allow(found: RemoteAcls, acl: Acl, denials: Iterable[Acl], ours: str | None, there: Collection[Acl]) -> None:
    needs: dict[Acl, None] = {}
    for denial in denials:
        operations = _denied(denial, acl)
        principal = _meet(denial.principal, acl.principal, EVERY_PRINCIPAL)
        host = _meet(denial.host, acl.host, EVERY_HOST)
        if not operations or principal is None or host is None:
            continue
        is_there = acl in there
        if (principal, host) == (acl.principal, acl.host) and not is_there:
            found.withheld.append(Withheld(acl, f"the source has {denial}, which covers it", covered=True))
            return
        if principal == ours:
            continue  # the ALLOW opens nothing to us: we read and write this topic
        if danger := _danger(principal, ours):
            why = f"the source has {denial}, which covers a part of it and cannot be made here: {danger}"
            found.withheld.append(Withheld(acl, why, is_there))
            return
        needs |= {Acl(acl.name, principal, operation, DENY, host): None for operation in operations}
    found.denials |= needs
    found.permissions.append(Permission(acl, frozenset(needs)))


def _denied(denial: Acl, acl: Acl) -> tuple[int, ...]:
    """What of that which an ALLOW opens a denial denies."""
    opened = OPENS[acl.operation]
    return tuple(operation for operation in opened if denial.operation in (ALL, operation))


def _meet(one: str, other: str, everything: str) -> str | None:
    """Those that are both; None: nobody is."""
    if one == other or other == everything:
        return one
    return other if one == everything else None


def _danger(principal: str, ours: str | None) -> str:
    """Why a denial for this principal must not be made; nothing: it may be."""
    if principal == EVERY_PRINCIPAL:
        return "it would cover our own principal too"
    if ours is None:
        return "it may be our own principal, which is not known"
    return "it is our own principal" if principal == ours else ""


def locking_out(acls: Iterable[Acl], remotes: Collection[str], ours: str | None) -> list[Acl]:
    """ACLs of the target that deny us something on these topics."""
    names = sorted(remotes)
    mine = {EVERY_PRINCIPAL, ours}
    return [
        acl
        for acl in acls
        if acl.resource_type == TOPIC and acl.permission == DENY and acl.principal in mine and _names(acl, names)
    ]


def _names(acl: Acl, topics: Iterable[str]) -> bool:
    if acl.pattern == PREFIXED:
        return any(topic.startswith(acl.name) for topic in topics)
    return acl.name == EVERY_TOPIC or acl.name in topics
