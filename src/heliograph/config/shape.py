"""What a configuration key is: its name, where it may stand, what it may hold. The keys themselves are in `keys`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Scope(Enum):
    """Where a key may stand."""

    GLOBAL = "once in the file"
    FLOW = "for every flow, or `A->B.` for one"
    CLUSTER = "`<alias>.` of the target cluster"
    CLIENT = "for every cluster, `<alias>.` for one, `<alias>.consumer.` / `.producer.` for one use of it"


class Kind(Enum):
    STRING = "string"
    LIST = "list"
    REGEXES = "list of names or regular expressions"
    SERVERS = "list of host:port"
    INT = "int"
    LONG = "long"
    INTERVAL = "seconds; negative: never"
    FACTOR = "replication factor"
    BOOL = "boolean"
    PASSWORD = "password"
    CLASS = "class"
    START = "list of `[topic[:partition]=]start`"
    COUNTS = "list of `[topic:]count`"
    CAPS = "list of `[topic=]bytes`"


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    scope: Scope
    kind: Kind
    default: str | None  # None: there is none
    doc: str
    honoured: bool = False
    allowed: tuple[str, ...] = ()
    minimum: int | None = None
    flow_only: bool = False  # MM2 drops it at the top level: it must carry `A->B.`
    decisive: bool = False  # ignoring it would change what is written or where: refused, unless it holds its default

    @property
    def is_family(self) -> bool:
        return self.name.endswith("*")

    def covers(self, name: str) -> bool:
        return name.startswith(self.name[:-1]) if self.is_family else name == self.name
