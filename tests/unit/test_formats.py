"""MM2's records, held against bytes written down from its schemas, and against nonsense."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.formats import Checkpoint, Heartbeat, OffsetSync
from heliograph.types import TopicPartition

VECTORS = [
    (Heartbeat("A", "B", 1_700_000_000_000), "000141000142", "00000000018bcfe56800"),
    (
        Checkpoint("g1", TopicPartition("A.t", 3), 10, 12),
        "000267310003412e7400000003",
        "0000000000000000000a000000000000000c0000",
    ),
    (OffsetSync(TopicPartition("t", 3), 10, 12), "00017400000003", "000000000000000a000000000000000c"),
]


@pytest.mark.parametrize(("record", "key", "value"), VECTORS)
def test_byte_for_byte_and_back(record: Heartbeat | Checkpoint | OffsetSync, key: str, value: str) -> None:
    assert (record.key().hex(), record.value().hex()) == (key, value)
    assert type(record).read(bytes.fromhex(key), bytes.fromhex(value) + b"more") == record


@given(
    st.sampled_from([Heartbeat, Checkpoint, OffsetSync]),
    st.one_of(st.none(), st.binary(max_size=40)),
    st.one_of(st.none(), st.binary(max_size=40)),
)
def test_nonsense_is_none_or_a_record_never_an_exception(
    kind: type[Heartbeat | Checkpoint | OffsetSync], key: bytes | None, value: bytes | None
) -> None:
    assert isinstance(kind.read(key, value), kind | None)


def test_a_null_value_is_nobody() -> None:
    assert Checkpoint.read(Checkpoint("g", TopicPartition("t", 0), 1, 1).key(), None) is None


@pytest.mark.parametrize("record", [VECTORS[0][0], VECTORS[1][0]])
def test_a_version_that_is_not_known_is_not_guessed(record: Heartbeat | Checkpoint) -> None:
    assert type(record).read(record.key(), b"\x00\x01" + record.value()[2:]) is None


def test_offsets_and_partitions_below_zero_are_nonsense() -> None:
    for bad in (Checkpoint("g", TopicPartition("t", -1), 1, 1), Checkpoint("g", TopicPartition("t", 0), 1, -1)):
        assert Checkpoint.read(bad.key(), bad.value()) is None
    bad_sync = OffsetSync(TopicPartition("t", 0), -5, 1)
    assert OffsetSync.read(bad_sync.key(), bad_sync.value()) is None
