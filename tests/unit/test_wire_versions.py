"""The version picked for every call, by release of the broker."""

from __future__ import annotations

import pytest

from heliograph.errors import VersionUnsupported
from heliograph.wire.messages import API_KEYS, known_versions
from heliograph.wire.versions import SPOKEN, pick

# api -> (lowest, highest) on a client listener. 4.3 is what a 4.3.1 broker answered; 2.8 and 3.9 were written down from
# knowledge of those releases, not recorded: no such broker was at hand; so were the calls of a group's members.
BROKERS = {
    "2.8": {
        "produce": (0, 9),
        "fetch": (0, 12),
        "list_offsets": (0, 6),
        "metadata": (0, 11),
        "sasl_handshake": (0, 1),
        "api_versions": (0, 3),
        "create_topics": (0, 7),
        "delete_topics": (0, 6),
        "init_producer_id": (0, 4),
        "describe_configs": (0, 4),
        "sasl_authenticate": (0, 2),
        "create_partitions": (0, 3),
        "offset_for_leader_epoch": (0, 4),
        "describe_producers": (0, 0),
        "describe_cluster": (0, 0),
        "alter_partition_reassignments": (0, 0),
        "list_partition_reassignments": (0, 0),
        "incremental_alter_configs": (0, 1),
        "list_groups": (0, 4),
        "find_coordinator": (0, 3),
        "describe_groups": (0, 5),
        "offset_fetch": (0, 7),
        "offset_commit": (0, 8),
        "join_group": (0, 7),
        "sync_group": (0, 5),
        "heartbeat": (0, 4),
        "leave_group": (0, 4),
        "describe_acls": (0, 2),
        "create_acls": (0, 2),
    },
    "3.9": {
        "produce": (0, 11),
        "fetch": (0, 17),
        "list_offsets": (0, 9),
        "metadata": (0, 12),
        "sasl_handshake": (0, 1),
        "api_versions": (0, 4),
        "create_topics": (0, 7),
        "delete_topics": (0, 6),
        "init_producer_id": (0, 5),
        "describe_configs": (0, 4),
        "sasl_authenticate": (0, 2),
        "create_partitions": (0, 3),
        "offset_for_leader_epoch": (0, 4),
        "describe_producers": (0, 0),
        "describe_cluster": (0, 1),
        "alter_partition_reassignments": (0, 0),
        "list_partition_reassignments": (0, 0),
        "incremental_alter_configs": (0, 1),
        "list_groups": (0, 5),
        "find_coordinator": (0, 6),
        "describe_groups": (0, 5),
        "offset_fetch": (0, 9),
        "offset_commit": (0, 9),
        "join_group": (0, 9),
        "sync_group": (0, 5),
        "heartbeat": (0, 4),
        "leave_group": (0, 5),
        "describe_acls": (0, 3),
        "create_acls": (0, 3),
    },
    "4.3": {
        "produce": (0, 13),
        "fetch": (4, 18),
        "list_offsets": (1, 11),
        "metadata": (0, 13),
        "sasl_handshake": (0, 1),
        "api_versions": (0, 4),
        "create_topics": (2, 7),
        "delete_topics": (1, 6),
        "init_producer_id": (0, 5),
        "describe_configs": (1, 4),
        "sasl_authenticate": (0, 2),
        "create_partitions": (0, 3),
        "offset_for_leader_epoch": (2, 4),
        "describe_producers": (0, 0),
        "describe_cluster": (0, 2),
        "alter_partition_reassignments": (0, 1),
        "list_partition_reassignments": (0, 0),
        "incremental_alter_configs": (0, 1),
        "list_groups": (0, 5),
        "find_coordinator": (0, 6),
        "describe_groups": (0, 6),
        "offset_fetch": (1, 10),
        "offset_commit": (2, 10),
        "join_group": (0, 9),
        "sync_group": (0, 5),
        "heartbeat": (0, 4),
        "leave_group": (0, 5),
        "describe_acls": (1, 3),
        "create_acls": (1, 3),
    },
}
EXPECTED = {
    "2.8": {"produce": 9, "fetch": 12, "list_offsets": 6, "metadata": 11, "init_producer_id": 4, "api_versions": 3},
    "3.9": {"produce": 11, "fetch": 17, "list_offsets": 9, "metadata": 12, "init_producer_id": 5, "api_versions": 3},
    "4.3": {"produce": 12, "fetch": 18, "list_offsets": 11, "metadata": 13, "init_producer_id": 5, "api_versions": 3},
}


def ranges(release: str) -> dict[int, tuple[int, int]]:
    return {API_KEYS[api]: offered for api, offered in BROKERS[release].items()}


@pytest.mark.parametrize("release", BROKERS)
def test_every_call_we_use_meets_every_release(release: str) -> None:
    for api in SPOKEN:
        version = pick(api, ranges(release))
        low, high = BROKERS[release][api]
        assert low <= version <= high
        assert version in known_versions(api)


@pytest.mark.parametrize("release", BROKERS)
def test_the_newest_both_speak(release: str) -> None:
    assert {api: pick(api, ranges(release)) for api in EXPECTED[release]} == EXPECTED[release]


def test_a_fetch_by_topic_name_where_topics_have_no_id() -> None:
    assert pick("fetch", ranges("4.3"), at_most=12) == 12


@pytest.mark.parametrize(
    ("offered", "word"),
    [({1: (0, 9)}, "2.8 or newer"), ({1: (19, 20)}, "upgrade Heliograph"), ({}, "does not offer")],
)
def test_no_version_in_common(offered: dict[int, tuple[int, int]], word: str) -> None:
    with pytest.raises(VersionUnsupported) as caught:
        pick("fetch", offered)
    assert word in str(caught.value)


def test_a_call_outside_the_table_is_used_as_kio_knows_it() -> None:
    assert pick("consumer_group_describe", {69: (0, 99)}) == known_versions("consumer_group_describe")[-1]
