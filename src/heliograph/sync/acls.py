"""Remote topics get their sources' permissions: who may read a topic may read its copy. The rules are `acl_rules`'s.

Answers for asking both clusters, for adding only what is missing, denials first, and for saying each thing once.
Nothing is ever removed on the target: a denial that the source has no more is removed there by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from heliograph.errors import BrokerError
from heliograph.sync.acl_rules import EVERY_TOPIC, Permission, RemoteAcls, remote_acls
from heliograph.types import Flow
from heliograph.wire import Acl, Client
from heliograph.wire.acls import ALLOW, LITERAL
from heliograph.wire.codes import SECURITY_DISABLED
from heliograph.wire.security import principal_of

log = structlog.get_logger()

_AT_ONCE = 500  # in one CreateAcls
OWN_PRINCIPAL = "sync.topic.acls.own.principal"  # the key of Flow.own_principal


def own_principal(flow: Flow) -> str | None:
    """Ours on the target; None: neither the file nor the login tells."""
    return flow.own_principal or principal_of(flow.target)


class AclSync:
    """Gives remote topics their sources' permissions. What cannot be done is said once."""

    def __init__(self, flow: Flow, source: Client, target: Client) -> None:
        self.flow = flow
        self.withheld: list[str] = []  # as of the last sync: for `plan`
        self._source, self._target = source, target
        self._made: set[Acl] = set()  # for a target that lets us add permissions and not read them
        self._said: set[str] = set()

    def sync(self, topics: Mapping[str, str]) -> int:
        """Source topic -> remote topic. How many were added. Raises WireError if a cluster cannot be asked at all."""
        self.withheld = []
        theirs = self._source.describe_acls()
        if isinstance(theirs, BrokerError):
            self._cannot(self.flow.source.alias, "read", theirs, "DESCRIBE")
            return 0
        if any(acl.name == EVERY_TOPIC and acl.pattern == LITERAL and acl.permission == ALLOW for acl in theirs):
            self._inform("permissions on every topic (*) are not carried over: give them on the target by hand")
        if not _concern(theirs, topics):
            return 0
        ours = self._target.describe_acls()
        if isinstance(ours, BrokerError):
            if ours.code == SECURITY_DISABLED:
                self._cannot(self.flow.target.alias, "added", ours, "ALTER")
                return 0
            ours = list(self._made)
        there = set(ours)
        wanted = remote_acls(theirs, topics, ours=own_principal(self.flow), there=there)
        self._say_withheld(wanted)
        refused = self._create([acl for acl in wanted.denials if acl not in there])
        allows = [one.acl for one in self._safe(wanted.permissions, refused) if one.acl not in there]
        missing = [acl for acl in dict.fromkeys([*wanted.denials, *allows]) if acl not in there]
        return len(missing) - len(refused) - len(self._create(allows))

    def _safe(self, permissions: Sequence[Permission], refused: set[Acl]) -> list[Permission]:
        """Those whose denials the target has now."""
        for one in permissions:
            for denial in one.needs & refused:
                self._withhold(one.acl, f"it needs {denial}, which {self.flow.target.alias} refused")
        return [one for one in permissions if not one.needs & refused]

    def _say_withheld(self, wanted: RemoteAcls) -> None:
        for one in wanted.withheld:
            self._withhold(one.acl, one.why, is_there=one.is_there, covered=one.covered)

    def _withhold(self, acl: Acl, why: str, *, is_there: bool = False, covered: bool = False) -> None:
        what = "denial" if acl.permission != ALLOW else "permission"
        self.withheld.append(f"{acl.name}: {what} withheld: {acl}: {why}")
        fix = f"Give it on {self.flow.target.alias} by hand, if that is meant"
        if covered:
            fix = (
                f"Remove that denial from {self.flow.source.alias}, if it is not meant: were the permission given on "
                f"{self.flow.target.alias} by hand, the denial would be made there too"
            )
        elif is_there:
            fix = (
                f"{self.flow.target.alias} has it already: remove it there by hand, or it opens what the source denies"
            )
        elif own_principal(self.flow) is None:
            fix += f"; or set {self.flow.name}.{OWN_PRINCIPAL} to our principal on {self.flow.target.alias}"
        self._warn(f"{what} withheld", topic=acl.name, principal=acl.principal, acl=str(acl), why=why, fix=fix)

    def _create(self, acls: Sequence[Acl]) -> set[Acl]:
        """Those that were refused."""
        refused = set()
        for start in range(0, len(acls), _AT_ONCE):
            for acl, error in self._target.create_acls(acls[start : start + _AT_ONCE]).items():
                if error is None:
                    self._made.add(acl)
                    log.info("permission added", flow=self.flow.name, topic=acl.name, acl=str(acl))
                else:
                    refused.add(acl)
                    self._warn("permission refused", topic=acl.name, acl=str(acl), why=str(error))
        return refused

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


def _concern(acls: Sequence[Acl], topics: Mapping[str, str]) -> bool:
    """Whether any of them names one of these topics: without, the target need not be asked."""
    return any(acl.pattern == LITERAL and acl.name in topics for acl in acls)
