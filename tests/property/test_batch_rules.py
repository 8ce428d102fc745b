"""What a broker checks of a produced batch (mm2-compat §10.2), as a function for other tests; and that it refuses."""

from __future__ import annotations

import struct

import pytest

from heliograph.batch import Header, Limits, Record, decode, encode, patch, verify_crc
from heliograph.batch import codec as codecs


def broker_would_accept(batch: bytes | bytearray, limits: Limits) -> str:
    """The first rule broken, or nothing."""
    if len(batch) < 61 or batch[16] != 2:
        return "one whole batch of magic 2"
    head = Header.parse(batch)
    if head.size_bytes != len(batch):
        return "exactly one batch"
    if head.base_offset != 0:
        return "base offset 0"
    if len(batch) > limits.max_batch_bytes:
        return "size"
    if not verify_crc(batch):
        return "CRC"
    if head.count <= 0 or head.last_offset_delta + 1 != head.count:
        return "lastOffsetDelta + 1 == count"
    if head.attributes & ~0x07:
        return "no flag but the codec"
    if head.codec > codecs.ZSTD or limits.codec_of_target not in (None, head.codec):
        return "codec"
    if head.producer_id >= 0 and head.base_sequence < 0:
        return "sequence"
    records = decode(batch)
    if [r.offset for r in records] != list(range(head.count)):
        return "inner deltas 0, 1, 2 …"
    if head.max_timestamp != max(r.timestamp for r in records):
        return "max timestamp"
    return ""


RECORDS = [Record(0, 5, b"k", b"v"), Record(1, 7, None, b"w", (("h", None),))]


def ready(records: list[Record] = RECORDS, **how: int) -> bytearray:
    batch = bytearray(encode(records, **how))  # type: ignore[arg-type]
    patch(batch, 9, 0, 3)
    return batch


def test_a_good_batch_is_accepted() -> None:
    for codec in range(5):
        assert not broker_would_accept(ready(codec=codec), Limits())


@pytest.mark.parametrize(
    ("rule", "spoil"),
    [
        ("exactly one batch", lambda b: b + b),
        ("base offset 0", lambda b: b[:7] + b"\1" + b[8:]),
        ("CRC", lambda b: b[:-1] + bytes((b[-1] ^ 1,))),
        ("one whole batch of magic 2", lambda b: b[:60]),
        ("sequence", lambda b: ready_with(b, 53, struct.pack(">i", -1))),
        ("no flag but the codec", lambda b: ready_with(b, 22, b"\x20")),
        ("lastOffsetDelta + 1 == count", lambda b: ready_with(b, 23, struct.pack(">i", 2))),
        ("max timestamp", lambda b: ready_with(b, 35, struct.pack(">q", 6))),
    ],
)
def test_a_bad_one_is_refused(rule: str, spoil) -> None:  # type: ignore[no-untyped-def]
    assert broker_would_accept(spoil(bytes(ready())), Limits()) == rule


def test_limits_are_looked_at() -> None:
    assert broker_would_accept(ready(), Limits(max_batch_bytes=60)) == "size"
    assert broker_would_accept(ready(codec=3), Limits(codec_of_target=4)) == "codec"


def ready_with(batch: bytes, at: int, field: bytes) -> bytes:
    """A batch with other bytes in its header and a CRC that says so."""
    from heliograph.batch.header import checksum

    changed = bytearray(batch)
    changed[at : at + len(field)] = field
    struct.pack_into(">I", changed, 17, checksum(changed))
    return bytes(changed)
