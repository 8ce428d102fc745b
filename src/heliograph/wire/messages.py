"""Requests and responses as kio's versioned entities, from and to bytes.

Answers for: which class an (api, version) is, building a request from plain keyword fields whatever the version,
writing it as few buffers, reading a response. Does not know sockets, and holds no field layout: all of it is kio's.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from types import NoneType, UnionType
from typing import Any, TypeAlias, get_args, get_origin

from kio.index import UnknownEntity, load_entity_module, load_entity_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.serial.readers import read_error_code
from kio.static.constants import EntityType

from heliograph.errors import ProtocolError, VersionUnsupported
from heliograph.wire import acks, fetched
from heliograph.wire.bounded import bounded
from heliograph.wire.fields import skip_tagged

# kio's entities differ per version and are reached by attribute; a static type would fit one version only.
Message: TypeAlias = Any
Buffer: TypeAlias = bytes | bytearray | memoryview

API_KEYS: Mapping[str, int] = {name: key for key, name in api_key_map.items()}

# Below this a copy into the header's buffer is cheaper than one more entry in the gather list of sendmsg.
_OWN_BUFFER_BYTES = 4096
_PRODUCE, _FETCH, _API_VERSIONS = 0, 1, 18
_UNSUPPORTED_VERSION = 35
_CORRELATION_BYTES = 4
_MILLISECOND = datetime.timedelta(milliseconds=1)


def known_versions(api: str) -> range:
    """The versions of an api that kio has schemas for."""
    versions = [version for version, types in schema_name_map[api].items() if EntityType.request in types]
    return range(min(versions), max(versions) + 1)


@functools.cache
def request_type(api: str, version: int) -> type:
    try:
        return load_entity_schema(api, version, EntityType.request)
    except UnknownEntity as error:
        raise VersionUnsupported(f"no schema for {api} v{version}", api=api) from error


@functools.cache
def response_type(api_key: int, version: int) -> type:
    return load_response_schema(api_key, version)


def build(api: str, version: int, **values: Any) -> Message:
    """The request of this version from plain values.

    Nested entities are dicts, arrays are any iterable, durations are milliseconds. A field this version does not have
    is dropped; a field no version has is a mistake and a TypeError. A field left out takes the schema's default,
    or false, empty, null by its type; a number or a string without a default must be given.
    """
    return _builder(request_type(api, version), api)(values)


@functools.cache
def _builder(entity: type, api: str) -> Callable[[Mapping[str, Any]], Message]:
    converters: dict[str, Callable[[Any], Any]] = {}
    implied: dict[str, Any] = {}
    for field in fields(entity):
        optional, convert = _converter(field.type, api)
        converters[field.name] = convert
        if field.default is MISSING:
            if optional:
                implied[field.name] = None
            elif get_origin(field.type) is tuple:
                implied[field.name] = ()
            elif field.type is bool:
                implied[field.name] = False

    def make(values: Mapping[str, Any]) -> Message:
        given = dict(implied)
        for name, value in values.items():
            convert = converters.get(name)
            if convert is not None:
                given[name] = None if value is None else convert(value)
            elif not _is_of_another_version(api, name):
                raise TypeError(f"{api} has no field {name!r} in any version")
        return entity(**given)

    return make


def _converter(field_type: Any, api: str) -> tuple[bool, Callable[[Any], Any]]:
    optional = False
    if get_origin(field_type) is UnionType and NoneType in get_args(field_type):
        optional = True
        field_type = next(each for each in get_args(field_type) if each is not NoneType)
    if get_origin(field_type) is tuple:
        inner = get_args(field_type)[0]
        if hasattr(inner, "__dataclass_fields__"):
            make = _builder(inner, api)
            return optional, lambda values: tuple([make(v) if isinstance(v, dict) else v for v in values])
        return optional, tuple
    if hasattr(field_type, "__dataclass_fields__"):
        make = _builder(field_type, api)
        return optional, lambda value: make(value) if isinstance(value, dict) else value
    if isinstance(field_type, type) and issubclass(field_type, datetime.timedelta):
        return optional, lambda value: value if isinstance(value, datetime.timedelta) else value * _MILLISECOND
    return optional, lambda value: value


@functools.cache
def _is_of_another_version(api: str, name: str) -> bool:
    """Looks from the newest down and stops when found: each schema takes milliseconds to load."""
    return any(
        name in getattr(entity, "__dataclass_fields__", ())
        for version in reversed(known_versions(api))
        for entity in vars(load_entity_module(api, version, EntityType.request)).values()
    )


def throttle_ms(response: Message) -> int:
    """How long the broker asks us to hold back (quotas, KIP-219). 0: not at all."""
    throttled = getattr(response, "throttle_time", None)
    return 0 if throttled is None else round(throttled.total_seconds() * 1000)


class _Gather:
    """What kio's writers write to: small pieces are joined, large ones are kept as they are, uncopied."""

    __slots__ = ("buffers", "size", "small")

    def __init__(self) -> None:
        self.buffers: list[memoryview] = []
        self.small = bytearray(4)  # the frame's size comes here, once it is known
        self.size = 0

    def write(self, data: Buffer) -> None:
        self.size += len(data)
        if len(data) < _OWN_BUFFER_BYTES:
            self.small += data
        else:
            self.cut()
            self.buffers.append(memoryview(data))

    def cut(self) -> None:
        if self.small:
            self.buffers.append(memoryview(self.small))
            self.small = bytearray()


def encode(request: Message, correlation_id: int, client_id: str) -> list[memoryview]:
    """One frame: size, header, body. Large byte fields are in the list as they were given, not copied."""
    if hasattr(request, "frame"):  # it writes itself
        return request.frame(correlation_id, client_id)  # type: ignore[no-any-return]
    header = request.__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    out = _Gather()
    entity_writer(type(header))(out, header)  # type: ignore[arg-type]  # kio only calls write()
    entity_writer(type(request))(out, request)  # type: ignore[arg-type]
    out.cut()
    out.buffers[0][:4] = out.size.to_bytes(4, "big")
    return out.buffers


@dataclass(frozen=True, slots=True)
class Decoder:
    """Reads the response to one kind of request."""

    api_key: int
    version: int
    header: Callable[[memoryview], tuple[int, int]]  # the correlation id, and where the body begins
    body: Callable[[memoryview, int], tuple[Message, int]]

    def read(self, frame: memoryview) -> tuple[int, Message]:
        """(correlation id, response). The frame must be read-only; only a fetch's records may be views of it."""
        try:
            correlation_id, at = self.header(frame)
            if self.api_key == _API_VERSIONS and self.version and read_error_code(frame, at)[0] == _UNSUPPORTED_VERSION:
                # A broker that does not know this version of ApiVersions says so in version 0.
                return correlation_id, decoder(_API_VERSIONS, 0).body(frame, at)[0]
            return correlation_id, self.body(frame, at)[0]
        # LookupError: kio's KeyError for a tagged field that it does not know, within another tagged field.
        except (SerialError, ValueError, TypeError, OverflowError, LookupError) as error:
            name = api_key_map[self.api_key]
            raise ProtocolError(f"the response to {name} v{self.version} does not parse: {error}", api=name) from error


@functools.cache
def decoder(api_key: int, version: int) -> Decoder:
    entity = response_type(api_key, version)
    if api_key == _FETCH and version >= fetched.FIRST_READ_BY_HAND:
        return Decoder(api_key, version, _flexible_header, functools.partial(fetched.read, version=version))
    if api_key == _PRODUCE and acks.FIRST_READ_BY_HAND <= version <= acks.LAST_READ_BY_HAND:
        return Decoder(api_key, version, _flexible_header, acks.read)
    schema = entity.__header_schema__  # type: ignore[attr-defined]
    read_header = bounded(schema, entity_reader(schema))

    def header(frame: memoryview) -> tuple[int, int]:
        found, size = read_header(frame, 0)
        return found.correlation_id, size

    return Decoder(api_key, version, header, bounded(entity, entity_reader(entity)))


def _flexible_header(frame: memoryview) -> tuple[int, int]:
    """Of a response that is read by hand: the correlation id, then tagged fields (version 1 of the header)."""
    if len(frame) < _CORRELATION_BYTES:
        raise ValueError(f"it ends too early ({len(frame)} bytes)")
    return int.from_bytes(frame[:_CORRELATION_BYTES], "big", signed=True), skip_tagged(frame, _CORRELATION_BYTES)
