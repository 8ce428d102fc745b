"""The walk through a response ends where kio's reader ends, for every response we ask for; a length that does not fit
is an error, and tagged fields that kio does not know are left out."""

from __future__ import annotations

import contextlib
import datetime
import io
import random
import uuid
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from heliograph.errors import ProtocolError
from heliograph.wire import versions
from heliograph.wire.bounded import bounded
from heliograph.wire.messages import API_KEYS, decoder, response_type

RESPONSES = [
    (api, version)
    for api in sorted(versions.SPOKEN)
    for version in range(versions.spoken(api)[0], versions.spoken(api)[1] + 1)
]
EPOCH = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def a_value(kind: Any, kafka_type: str, dice: random.Random) -> Any:
    """Some value of a field's type."""
    if get_origin(kind) is UnionType:
        inner = next(each for each in get_args(kind) if each is not NoneType)
        return None if dice.random() < 0.3 else a_value(inner, kafka_type, dice)
    if get_origin(kind) is tuple:
        return tuple(a_value(get_args(kind)[0], kafka_type, dice) for _ in range(dice.choice((0, 1, 2, 3))))
    if is_dataclass(kind):
        return an_entity(kind, dice)  # type: ignore[arg-type]
    small, long = dice.randrange(100), "x" * dice.choice((0, 3, 200))
    others = {
        **dict.fromkeys(("bytes", "records"), long.encode()),
        **dict.fromkeys(("timedelta_i32", "timedelta_i64"), datetime.timedelta(milliseconds=small)),
        "bool": True,
        "float64": 1.5,
        "datetime_i64": EPOCH,
        "string": long,
        "uuid": uuid.UUID(int=small + 1),
        "error_code": ErrorCode.none,
    }
    return others.get(kafka_type, small)


def an_entity(entity: type, dice: random.Random) -> Any:
    return entity(**{one.name: a_value(one.type, one.metadata.get("kafka_type", ""), dice) for one in fields(entity)})


def written(message: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(message))(out, message)
    return out.getvalue()


@pytest.mark.parametrize(("api", "version"), RESPONSES)
def test_every_response_reads_as_kio_reads_it(api: str, version: int) -> None:
    entity = response_type(API_KEYS[api], version)
    dice = random.Random(f"{api} {version}")
    for _ in range(20):
        message = an_entity(entity, dice)
        frame = memoryview(b"\0\0\0" + written(message))
        read = entity_reader(entity)
        assert bounded(entity, read)(frame, 3) == read(frame, 3) == (message, len(frame) - 3)


@settings(deadline=None)
@given(st.sampled_from(RESPONSES), st.randoms(use_true_random=False))
def test_a_damaged_response_is_an_error_or_a_value(which: tuple[str, int], dice: random.Random) -> None:
    """Lengths too: kio reserves memory by them, and once the process was aborted."""
    entity = response_type(API_KEYS[which[0]], which[1])
    body = bytearray(written(an_entity(entity, dice)))
    for _ in range(dice.randrange(1, 4)):
        if body:
            body[dice.randrange(len(body))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
    header = b"\0\0\0\7" + (b"\0" if "v1" in entity.__header_schema__.__module__ else b"")  # type: ignore[attr-defined]
    with contextlib.suppress(ProtocolError):
        decoder(API_KEYS[which[0]], which[1]).read(memoryview(header + bytes(body)).toreadonly())


HUGE = b"\xff\xff\xff\xff\x0f"  # a compact array of four billion


@pytest.mark.parametrize("length", [HUGE, b"\x80\x80\x80\x80\x08", b"\x10"])
def test_an_array_that_does_not_fit_its_frame(length: bytes) -> None:
    frame = memoryview(b"\0\0\0\7\0" + b"\0\0\0\0" + length + b"\1\1")
    with pytest.raises(ProtocolError, match="an array of"):
        decoder(API_KEYS["create_topics"], 7).read(frame)


def test_an_array_that_must_not_be_null() -> None:
    with pytest.raises(ProtocolError, match="no array"):
        decoder(API_KEYS["create_topics"], 7).read(memoryview(b"\0\0\0\7\0" + b"\0\0\0\0" + b"\0" + b"\0"))


def test_tagged_fields_of_a_newer_broker_are_left_out() -> None:
    """KIP-482: they may come in any version; ApiVersions v3 has got one without a new version before."""
    key = b"\0\x12\0\0\0\4"  # api_versions, 0 to 4
    unknown = b"\x7f\3abc"  # tag 127, three bytes
    ready = b"\3\1\1"  # tag 3, zk_migration_ready
    features = b"\0\x0a\2\2f\0\1\0\2\1" + unknown  # tag 0, ten bytes: one feature, which has an unknown field too
    plain = b"\0\0" + b"\2" + key + b"\1" + unknown + b"\0\0\0\0"
    for tagged, is_ready in ((b"\2" + unknown + ready, True), (b"\1" + unknown, False), (b"\0", False)):
        found, answer = decoder(API_KEYS["api_versions"], 3).read(memoryview(b"\0\0\0\7" + plain + tagged))
        assert found == 7
        assert versions.ranges_of(answer) == {18: (0, 4)}
        assert answer.zk_migration_ready is is_ready
    with pytest.raises(ProtocolError):  # within a tagged field, whose size is stated, it is not looked for
        decoder(API_KEYS["api_versions"], 3).read(memoryview(b"\0\0\0\7" + plain + b"\1" + features))
