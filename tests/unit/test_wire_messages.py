"""Requests from plain values, whatever the version; error codes."""

from __future__ import annotations

import datetime

import pytest

from heliograph.errors import VersionUnsupported
from heliograph.wire import broker_error, build, is_retriable, name_of
from heliograph.wire.messages import encode, known_versions
from heliograph.wire.versions import SPOKEN


def test_fields_a_version_does_not_have_are_dropped() -> None:
    fields = {"topics": [{"name": "t", "topic_id": None}], "allow_auto_topic_creation": False}
    for version in known_versions("metadata"):
        request = build("metadata", version, **fields)
        assert request.topics[0].name == "t"
        assert getattr(request, "allow_auto_topic_creation", False) is False
        encode(request, 1, "me")


def test_a_field_of_no_version_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="alow_auto"):
        build("metadata", 12, topics=None, alow_auto_topic_creation=False)
    with pytest.raises(TypeError, match="nam"):
        build("metadata", 12, topics=[{"nam": "t"}])


def test_what_may_be_left_out() -> None:
    request = build("metadata", 9, topics=[])
    assert request.include_topic_authorized_operations is False
    assert build("metadata", 9).topics is None  # null: all
    with pytest.raises(TypeError):
        build("list_offsets", 7, topics=[])  # replica_id has no default


def test_durations_are_milliseconds() -> None:
    assert build("delete_topics", 5, topic_names=["a"], timeout=1500).timeout == datetime.timedelta(seconds=1.5)


def test_a_version_without_schema() -> None:
    with pytest.raises(VersionUnsupported):
        build("metadata", 99)


def test_every_version_we_speak_has_a_schema() -> None:
    for api, (low, high) in SPOKEN.items():
        assert low in known_versions(api)
        assert high in known_versions(api)


def test_error_codes() -> None:
    error = broker_error(29, "no", topic="orders", cluster="west")
    assert (error.code, error.name, error.retriable) == (29, "TOPIC_AUTHORIZATION_FAILED", False)
    assert str(error).startswith("TOPIC_AUTHORIZATION_FAILED (topic orders, cluster west): no. Give this principal")
    assert is_retriable(6)
    assert not is_retriable(2)  # CORRUPT_MESSAGE: the same bytes again would be as corrupt
    assert not is_retriable(45)
    assert name_of(3) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert (name_of(9999), is_retriable(9999)) == ("ERROR_9999", False)
