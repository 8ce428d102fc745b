"""Who may do what on remote topics: the permissions of their sources, by MirrorMaker 2's rules.

A copy is for reading. So permission to write is not carried over, permission to do all becomes permission to read, and
the rest comes over as it is, denials too. Only permissions on single topics are; nothing is ever removed on the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import structlog

from heliograph.errors import BrokerError
from heliograph.types import Flow
from heliograph.wire import Acl, Client
from heliograph.wire.acls import ALL, ALLOW, LITERAL, READ, TOPIC, WRITE
from heliograph.wire.codes import SECURITY_DISABLED

log = structlog.get_logger()

_AT_ONCE = 500  # in one CreateAcls


def remote_acls(acls: Iterable[Acl], remote_of: Mapping[str, str]) -> Iterator[Acl]:
    """What the permissions of source topics become on their copies (source topic -> remote topic).

    Unlike MM2 we take a literal `*` for what it means to Kafka, every topic, and not for a topic of that name: MM2
    makes the useless `A.*` of it, or, with the identity policy, gives rights to all else on the target as well.
    """
    for acl in acls:
        remote = remote_of.get(acl.name) if acl.resource_type == TOPIC and acl.pattern == LITERAL else None
        if remote is None:
            continue
        if acl.permission == ALLOW and acl.operation == WRITE:
            continue
        operation = READ if acl.permission == ALLOW and acl.operation == ALL else acl.operation
        yield replace(acl, name=remote, operation=operation)


class AclSync:
    """Gives remote topics their sources' permissions. What cannot be done is said once."""

    def __init__(self, flow: Flow, source: Client, target: Client) -> None:
        self.flow = flow
        self._source, self._target = source, target
        self._made: set[Acl] = set()  # for a target that lets us add permissions and not read them
        self._said: set[str] = set()

    def sync(self, topics: Mapping[str, str]) -> int:
        """Source topic -> remote topic. How many were added. Raises WireError if a cluster cannot be asked at all."""
        theirs = self._source.describe_acls()
        if isinstance(theirs, BrokerError):
            self._cannot(self.flow.source.alias, "read", theirs, "DESCRIBE")
            return 0
        if any(acl.name == "*" and acl.pattern == LITERAL for acl in theirs):
            self._inform("permissions on every topic (*) are not carried over: give them on the target by hand")
        wanted = list(dict.fromkeys(remote_acls(theirs, topics)))
        if not wanted:
            return 0
        ours = self._target.describe_acls()
        if isinstance(ours, BrokerError):
            if ours.code == SECURITY_DISABLED:
                self._cannot(self.flow.target.alias, "added", ours, "ALTER")
                return 0
            ours = list(self._made)
        there = set(ours)
        return self._create([acl for acl in wanted if acl not in there])

    def _create(self, acls: list[Acl]) -> int:
        made = 0
        for start in range(0, len(acls), _AT_ONCE):
            for acl, error in self._target.create_acls(acls[start : start + _AT_ONCE]).items():
                if error is None:
                    made += 1
                    self._made.add(acl)
                    log.info("permission added", flow=self.flow.name, acl=str(acl))
                else:
                    self._warn("permission refused", acl=str(acl), why=str(error))
        return made

    def _cannot(self, alias: str, done: str, error: BrokerError, needs: str) -> None:
        if error.code == SECURITY_DISABLED:
            self._inform("no ACLs are synced: no authorizer", cluster=alias)
            return
        fix = f"give this principal {needs} on cluster {alias}, or set {self.flow.name}.sync.topic.acls.enabled = false"
        self._warn(f"ACLs cannot be {done}", cluster=alias, why=error.message, fix=fix)

    def _inform(self, what: str, **details: object) -> None:
        if self._first(what, details):
            log.info(what, flow=self.flow.name, **details)

    def _warn(self, what: str, **details: object) -> None:
        if self._first(what, details):
            log.warning(what, flow=self.flow.name, **details)

    def _first(self, what: str, details: Mapping[str, object]) -> bool:
        """Whether this is said for the first time: every sync would say it again."""
        text = f"{what} {details}"
        new = text not in self._said
        self._said.add(text)
        return new
