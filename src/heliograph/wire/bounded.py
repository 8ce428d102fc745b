"""Responses are walked through once before kio reads them, so that no length in them is believed unchecked.

kio's native reader reserves memory for an array by the length that the frame states: four bytes of a damaged or foreign
answer ask for hundreds of gigabytes, and the process is aborted; no exception can be caught. And kio refuses a tagged
field that it does not know, which a newer broker may send in any version (KIP-482).

Answers for: every array fits the frame that it is in and is null only where it may be (ValueError), and unknown tagged
fields are left out. Whatever else is wrong with a frame kio says itself. Layouts are kio's schemas; only their shapes
are looked at here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin

T = TypeVar("T")
Reader = Callable[[memoryview, int], tuple[T, int]]  # a value, and how many bytes it took

_FIXED_BYTES = dict.fromkeys(("bool", "int8"), 1)
_FIXED_BYTES |= dict.fromkeys(("int16", "uint16", "error_code"), 2)
_FIXED_BYTES |= dict.fromkeys(("int32", "uint32", "timedelta_i32"), 4)
_FIXED_BYTES |= dict.fromkeys(("int64", "float64", "timedelta_i64", "datetime_i64"), 8)
_FIXED_BYTES |= {"uuid": 16}
_LEGACY_LENGTH_BYTES = {"string": 2, "bytes": 4, "records": 4}
_MAX_VARINT_BYTES = 5


@dataclass(slots=True)
class _Walk:
    """One walk through a frame. `cuts`: (begin, end, what to read instead), of tagged fields that kio does not know."""

    frame: memoryview
    cuts: list[tuple[int, int, bytes]] = field(default_factory=list)
    in_tagged: int = 0  # depth: the sizes of tagged fields are stated, so nothing within them can be cut


# Takes where something begins, gives where it ends.
_Step = Callable[[_Walk, int], int]


def bounded(entity: type, read: Reader[T]) -> Reader[T]:
    """`read`, kio's reader of this entity, after a walk."""
    walk_through = _entity(entity)

    def checked(frame: memoryview, at: int) -> tuple[T, int]:
        walk = _Walk(frame)
        try:
            end = walk_through(walk, at)
        except IndexError:
            raise ValueError(f"it ends too early ({len(frame)} bytes)") from None
        if not walk.cuts:
            return read(frame, at)
        found, _ = read(_without(frame, at, end, walk.cuts), 0)
        return found, end - at

    return checked


def _without(frame: memoryview, begin: int, end: int, cuts: list[tuple[int, int, bytes]]) -> memoryview:
    parts: list[bytes | memoryview] = []
    for start, stop, instead in cuts:
        parts += [frame[begin:start], instead]
        begin = stop
    return memoryview(b"".join([*parts, frame[begin:end]]))


# ---- steps


@cache
def _entity(entity: type) -> _Step:
    flexible = bool(entity.__flexible__)  # type: ignore[attr-defined]  # every schema of kio has it
    plain = [one for one in fields(entity) if "tag" not in one.metadata]
    tagged = {int(one.metadata["tag"]): _field(one, flexible) for one in fields(entity) if "tag" in one.metadata}
    steps, rest = _joined([_field(one, flexible) for one in plain])

    def through(walk: _Walk, at: int) -> int:
        for skipped, step in steps:
            at = step(walk, at + skipped)
        at += rest
        if not flexible:
            return at
        return _tags(walk, at, tagged) if walk.frame[at] else at + 1

    return through


def _joined(steps: list[int | _Step]) -> tuple[list[tuple[int, _Step]], int]:
    """Each step with the bytes of fixed size before it, and those behind the last."""
    joined: list[tuple[int, _Step]] = []
    skipped = 0
    for step in steps:
        if isinstance(step, int):
            skipped += step
        else:
            joined.append((skipped, step))
            skipped = 0
    return joined, skipped


def _field(one: Field[Any], flexible: bool) -> int | _Step:
    kind: Any = one.type
    optional = False
    if get_origin(kind) is UnionType:
        optional = NoneType in get_args(kind)
        kind = next(each for each in get_args(kind) if each is not NoneType)
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        item = _entity(inner) if _is_entity(inner) else _primitive(one, flexible)
        return _array(item, flexible, optional=optional)
    if _is_entity(kind):
        return _nullable(_entity(kind)) if optional and "tag" not in one.metadata else _entity(kind)
    return _primitive(one, flexible)


def _is_entity(kind: object) -> bool:
    return isinstance(kind, type) and is_dataclass(kind)


def _primitive(one: Field[Any], flexible: bool) -> int | _Step:
    kind = one.metadata["kafka_type"]
    if kind in _FIXED_BYTES:
        return _FIXED_BYTES[kind]
    length_bytes = _LEGACY_LENGTH_BYTES[kind]
    return _compact_bytes if flexible else lambda walk, at: _legacy_bytes(walk, at, length_bytes)


def _array(item: int | _Step, flexible: bool, *, optional: bool) -> _Step:
    least = item if isinstance(item, int) else 1

    def through(walk: _Walk, at: int) -> int:
        frame = walk.frame
        if not flexible:
            count, at = int.from_bytes(frame[at : at + 4], "big", signed=True), at + 4
        elif (count := frame[at]) < 0x80:  # nearly always
            count, at = count - 1, at + 1
        else:
            count, at = _varint(frame, at)
            count -= 1
        if count <= 0:
            if count < 0 and not optional:
                raise ValueError(f"no array at {at}, where there must be one")  # kio would give None
            return at
        if count * least > len(frame) - at:
            raise ValueError(f"an array of {count} at {at}, of {len(frame)} bytes in all")
        if isinstance(item, int):
            return at + count * item
        for _ in range(count):
            at = item(walk, at)
        return at

    return through


def _nullable(entity: _Step) -> _Step:
    def through(walk: _Walk, at: int) -> int:
        marker = bytes(walk.frame[at : at + 1])
        return at + 1 if marker == b"\xff" else entity(walk, at + 1)

    return through


def _compact_bytes(walk: _Walk, at: int) -> int:
    length, at = _varint(walk.frame, at)
    return _inside(walk, at + max(length - 1, 0))


def _legacy_bytes(walk: _Walk, at: int, length_bytes: int) -> int:
    length = int.from_bytes(walk.frame[at : at + length_bytes], "big", signed=True)
    return _inside(walk, at + length_bytes + max(length, 0))


def _tags(walk: _Walk, begin: int, known: dict[int, int | _Step]) -> int:
    frame = walk.frame
    count, at = _varint(frame, begin)
    if not count:
        return at
    kept: list[bytes] = []
    walk.in_tagged += 1
    for _ in range(count):
        start = at
        tag, at = _varint(frame, at)
        size, at = _varint(frame, at)
        end = _inside(walk, at + size)
        step = known.get(tag)
        if step is not None:
            if not isinstance(step, int):
                step(walk, at)
            kept.append(bytes(frame[start:end]))
        at = end
    walk.in_tagged -= 1
    if len(kept) < count and not walk.in_tagged:
        if len(kept) >= 0x80:
            raise ValueError(f"{len(kept)} tagged fields")
        walk.cuts.append((begin, at, bytes([len(kept)]) + b"".join(kept)))
    return at


def _inside(walk: _Walk, at: int) -> int:
    if at > len(walk.frame):
        raise ValueError(f"a field ends at {at}, of {len(walk.frame)} bytes in all")
    return at


def _varint(frame: memoryview, at: int) -> tuple[int, int]:
    byte = frame[at]
    if byte < 0x80:  # nearly always
        return byte, at + 1
    value = 0
    for position, byte in enumerate(frame[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return value, at + position + 1
    raise ValueError(f"a number that does not end at {at}")
