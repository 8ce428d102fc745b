"""The positions' format: Java's bytes, MM2's meaning, and the rule by which records of a key fold."""

from uuid import UUID

import pytest

from heliograph.mirror.positions import (
    Position,
    decode,
    encode,
    fold,
    key_of,
    murmur2,
    partition_for,
    partition_of_key,
)
from heliograph.types import TopicPartition

TP = TopicPartition("orders", 3)


def test_the_key_is_byte_for_byte_what_java_looks_up():
    assert key_of("A", TP) == b'["MirrorSourceConnector",{"cluster":"A","partition":3,"topic":"orders"}]'


def test_the_key_is_read_back_and_others_keys_are_not():
    assert partition_of_key(key_of("A", TP), "A") == TP
    assert partition_of_key(key_of("B", TP), "A") is None
    for nonsense in (b"", b"{}", b"[1,2]", b'["MirrorSourceConnector",{}]', b"\xff", b'["MirrorSourceConnector",null]',
                     b'["MirrorSourceConnector",{"cluster":"A","partition":true,"topic":"t"}]'):  # fmt: skip
        assert partition_of_key(nonsense, "A") is None


def test_mm2s_record_is_a_position_without_a_claim():
    assert decode(b'{"offset":41}') == Position(42)
    assert encode(Position(42)) == b'{"offset":41}'


def test_ours_round_trips_and_keeps_mm2s_field_first():
    position = Position(100, 7, 0, 2**31 - 1, UUID(int=5))
    assert encode(position).startswith(b'{"offset":99,')
    assert decode(encode(position)) == position


@pytest.mark.parametrize(
    "value", [None, b"", b"null", b"[]", b"{}", b'{"offset":"x"}', b'{"offset":true}', b"\xff\xfe"]
)
def test_nonsense_is_no_position(value):
    assert decode(value) is None


def test_a_half_written_claim_counts_as_mm2s():
    assert decode(b'{"offset":4,"producerId":9}') == Position(5)


def folded(*positions: Position | None) -> Position | None:
    result = None
    for position in positions:
        result = fold(result, encode(position) if position else None)
    return result


def test_the_first_claim_wins():
    first, second = Position(0, 1, 0, 0), Position(0, 2, 0, 0)
    assert folded(first, second) == first
    assert folded(first, second, Position(5, 2, 0, 5)) == first


def test_of_one_id_the_furthest_position_is_taken():
    ahead, behind = Position(9, 1, 0, 9), Position(4, 1, 0, 4)
    assert folded(behind, ahead, behind) == ahead


def test_a_record_without_an_id_starts_a_new_era():
    assert folded(Position(9, 1, 0, 9), Position(4)) == Position(4)
    assert folded(Position(9, 1, 0, 9), Position(4), Position(4, 2, 0, 0)) == Position(4, 2, 0, 0)
    assert folded(Position(9, 1, 0, 9), None) is None


def test_murmur2_is_kafkas():
    # Values of org.apache.kafka.common.utils.Utils.murmur2, as Kafka's own test has them, here unsigned.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
             b"a-little-bit-longer-string": -1486304829, b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
             b"abc": 479470107}  # fmt: skip
    for data, value in known.items():
        assert murmur2(data) == value & 0xFFFFFFFF
    assert 0 <= partition_for(b"21", 25) < 25
