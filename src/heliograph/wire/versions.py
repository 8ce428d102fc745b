"""Which version of each call to use: the newest that the broker and we both speak.

Answers for: the versions Heliograph is written for (brokers 2.8 to 4.x) and the choice between them and a broker's
answer to ApiVersions. Does not talk to brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kio.index import load_entity_module
from kio.static.constants import EntityType

from heliograph.errors import VersionUnsupported
from heliograph.wire.messages import API_KEYS, decoder, known_versions

# api -> (lowest, highest) we use. The lowest is what 2.8 offers or what a feature needs; the highest is kio's newest
# unless a reason is given. An api that is not here is used in every version kio knows.
SPOKEN: Mapping[str, tuple[int, int]] = {
    "produce": (7, 12),  # v7: zstd. v13 names topics by id, and we append by name
    "fetch": (10, 18),  # v10: zstd. From v13 topics go by id
    "list_offsets": (4, 11),
    "metadata": (7, 13),  # v7: leader epochs; topic ids from v10
    "api_versions": (0, 3),  # every broker since 2.4 speaks v3: no second round trip
    "sasl_handshake": (1, 1),  # v0 would leave SASL unframed
    "sasl_authenticate": (0, 2),
    "init_producer_id": (1, 5),  # v6 is about two-phase commit
    "offset_for_leader_epoch": (3, 4),  # v3: asked by consumers, not by replicas
    "describe_producers": (0, 0),
    "create_topics": (4, 7),  # v4: the broker's own defaults by -1
    "create_partitions": (1, 3),
    "delete_topics": (1, 6),
    "describe_configs": (1, 4),
    "incremental_alter_configs": (1, 1),
    "describe_cluster": (0, 2),  # v2: fenced brokers too (KIP-1073)
    "alter_partition_reassignments": (0, 1),
    "list_partition_reassignments": (0, 0),
    "list_groups": (4, 5),  # v4: with their states
    "find_coordinator": (3, 6),  # v4: many at once
    "describe_groups": (5, 6),
    "offset_fetch": (7, 9),  # v8: many groups at once. v10 names topics by id
    "offset_commit": (8, 9),  # v10 names topics by id
    "join_group": (5, 9),  # v5: static members, of which we are none; errors as v4 has them
    "sync_group": (3, 5),
    "heartbeat": (3, 4),
    "leave_group": (3, 5),
    "describe_acls": (2, 3),
    "create_acls": (2, 3),
}

Ranges = Mapping[int, tuple[int, int]]

# The fix if versions do not meet: which side is too old.
_BROKER_OLD = "Heliograph needs brokers of Kafka 2.8 or newer"
_WE_OLD = "This broker is newer than this Heliograph knows: upgrade Heliograph"


def spoken(api: str) -> tuple[int, int]:
    if api in SPOKEN:
        return SPOKEN[api]
    known = known_versions(api)
    return known.start, known.stop - 1


def ranges_of(api_versions_response: Any) -> dict[int, tuple[int, int]]:
    """What a broker offers, from its answer to ApiVersions: api key -> (lowest, highest)."""
    keys: Iterable[Any] = api_versions_response.api_keys
    return {int(each.api_key): (int(each.min_version), int(each.max_version)) for each in keys}


def warm() -> None:
    """Load the newest schemas of the calls a mirror task makes, which takes kio some 20 ms each."""
    for api in ("api_versions", "metadata", "fetch", "list_offsets", "describe_producers", "produce"):
        _, newest = spoken(api)
        load_entity_module(api, newest, EntityType.request)
        decoder(API_KEYS[api], newest)


def pick(api: str, broker_ranges: Ranges, *, at_most: int | None = None) -> int:
    """The newest version of `api` that both sides speak (and not above `at_most`)."""
    low, high = spoken(api)
    if at_most is not None:
        high = min(high, at_most)
    offered = broker_ranges.get(API_KEYS[api])
    if offered is None:
        raise VersionUnsupported(f"the broker does not offer {api} to this client", fix=_BROKER_OLD, api=api)
    version = min(high, offered[1])
    if version < max(low, offered[0]):
        raise VersionUnsupported(
            f"{api}: the broker speaks v{offered[0]} to v{offered[1]}, Heliograph v{low} to v{high}",
            fix=_WE_OLD if offered[0] > high else _BROKER_OLD,
            api=api,
        )
    return version
