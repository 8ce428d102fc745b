"""Permissions on topics as an administrator sees them: read all, add some.

Answers for the shape of these calls. Nothing is ever removed, and which permissions a copy should have is decided
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heliograph.errors import BrokerError
from heliograph.wire import codes
from heliograph.wire.calls import Calls

TOPIC = 2
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 2, 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
_ANY = 1  # in every filter

_PATTERNS = {LITERAL: "LITERAL", PREFIXED: "PREFIXED"}
_PERMISSIONS = {DENY: "DENY", ALLOW: "ALLOW"}
OPERATIONS = {
    ALL: "ALL",
    READ: "READ",
    WRITE: "WRITE",
    CREATE: "CREATE",
    DELETE: "DELETE",
    ALTER: "ALTER",
    DESCRIBE: "DESCRIBE",
    CLUSTER_ACTION: "CLUSTER_ACTION",
    DESCRIBE_CONFIGS: "DESCRIBE_CONFIGS",
    ALTER_CONFIGS: "ALTER_CONFIGS",
    IDEMPOTENT_WRITE: "IDEMPOTENT_WRITE",
}


@dataclass(frozen=True, slots=True)
class Acl:
    """One permission. Numbers are Kafka's codes, so that one we have no name for is carried over all the same."""

    name: str
    principal: str
    operation: int
    permission: int = ALLOW
    host: str = "*"
    pattern: int = LITERAL
    resource_type: int = TOPIC

    def __str__(self) -> str:
        may = f"{_PERMISSIONS.get(self.permission, self.permission)} {OPERATIONS.get(self.operation, self.operation)}"
        kind = "" if self.pattern == LITERAL else f"{_PATTERNS.get(self.pattern, self.pattern)} "
        host = "" if self.host == "*" else f" from {self.host}"
        return f"{may} on {kind}{self.name} to {self.principal}{host}"


def describe(client: Calls, *, timeout_s: float) -> list[Acl] | BrokerError:
    """Every permission on topics. SECURITY_DISABLED: this cluster has no authorizer."""
    answer = client.call(
        "describe_acls",
        timeout_s=timeout_s,
        resource_type_filter=TOPIC,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    if answer.error_code:
        return codes.broker_error(answer.error_code, answer.error_message, cluster=client.alias)
    return [
        Acl(
            name=str(resource.resource_name),
            principal=str(acl.principal),
            operation=int(acl.operation),
            permission=int(acl.permission_type),
            host=str(acl.host),
            pattern=int(resource.pattern_type),
            resource_type=int(resource.resource_type),
        )
        for resource in answer.resources
        for acl in resource.acls
    ]


def create(client: Calls, acls: Sequence[Acl], *, timeout_s: float) -> dict[Acl, BrokerError | None]:
    """One that is there already is no error."""
    wanted = list(dict.fromkeys(acls))
    if not wanted:
        return {}
    answer = client.call(
        "create_acls",
        controller=True,
        timeout_s=timeout_s,
        creations=[
            {
                "resource_type": acl.resource_type,
                "resource_name": acl.name,
                "resource_pattern_type": acl.pattern,
                "principal": acl.principal,
                "host": acl.host,
                "operation": acl.operation,
                "permission_type": acl.permission,
            }
            for acl in wanted
        ],
    )
    return {
        acl: codes.broker_error(result.error_code, result.error_message, cluster=client.alias, topic=acl.name)
        if result.error_code
        else None
        for acl, result in zip(wanted, answer.results, strict=True)
    }
