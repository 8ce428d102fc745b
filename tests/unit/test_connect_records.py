"""Connect's own topics: what is written is read back, what Connect wrote is understood, nonsense changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.batch import Record
from heliograph.connect import records
from heliograph.connect.board import Board, Folding
from heliograph.connect.records import Pair, Status

NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)
CONFIGS = st.dictionaries(st.text(max_size=10), st.one_of(st.none(), st.text(max_size=10)), max_size=4)


def record(offset: int, pair: Pair) -> Record:
    return Record(offset, 0, *pair, ())


def fold(*pairs: Pair) -> Board:
    folding = Folding()
    for offset, pair in enumerate(pairs):
        folding.config(record(offset, pair))
    return folding.board()


# -------------------- bytes


def test_the_records_are_connects_own_byte_for_byte() -> None:
    assert records.configured("c", {"a": "1", "b": None}) == (b"connector-c", b'{"properties":{"a":"1","b":null}}')
    assert records.targeted("c", "STOPPED") == (b"target-state-c", b'{"state":"PAUSED","state.v2":"STOPPED"}')
    assert records.tasks("c", [{"x": "y"}]) == [
        (b"task-c-0", b'{"properties":{"x":"y"}}'),
        (b"commit-c", b'{"tasks":1}'),
    ]
    restart = records.restarted("c", include_tasks=True, only_failed=False)
    assert restart == (b"restart-connector-c", b'{"include-tasks":true,"only-failed":false}')
    assert records.deleted("c") == [(b"connector-c", None), (b"target-state-c", None)]
    status = Status("RUNNING", "h:8083", None, 3)
    assert records.status_value(status) == b'{"state":"RUNNING","trace":null,"worker_id":"h:8083","generation":3}'
    assert records.status_key("c") == b"status-connector-c"
    assert records.status_key("c", 2) == b"status-task-c-2"
    assert records.topic_key("c", "t") == b"status-topic-t:connector-c"
    assert records.topic_value("c", "t", 0, 7) == (
        b'{"topic":{"name":"t","connector":"c","task":0,"discoverTimestamp":7}}'
    )


@given(NAMES, CONFIGS)
def test_a_configuration_comes_back_whatever_is_in_it(name: str, config: dict[str, str | None]) -> None:
    assert records.event(*records.configured(name, config)) == records.Configured(name, config)


@given(NAMES, st.sampled_from(records.TARGETS))
def test_a_target_state_comes_back(name: str, target: records.Target) -> None:
    assert records.event(*records.targeted(name, target)) == records.Targeted(name, target)


@given(NAMES, st.one_of(st.none(), st.integers(0, 10**6)))
def test_a_status_names_its_connector_and_its_task(name: str, task: int | None) -> None:
    assert records.subject(records.status_key(name, task)) == (name, task)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (b"target-state-c", b'{"state":"PAUSED"}', records.Targeted("c", "PAUSED")),  # of a worker before 3.5
        (b"target-state-c", b'{"state":"FLYING"}', None),
        (b"connector-c", b'{"schema":{},"payload":{"properties":{"a":"b"}}}', records.Configured("c", {"a": "b"})),
        (b"connector-c", b'{"properties":{"a":1}}', None),
        (b"connector-c", b'{"properties":[]}', None),
        (b"connector-c", b"{", None),
        (b"connector-", b"null", None),
        (b"task-c-x", b'{"properties":{}}', None),
        (b"commit-c", b'{"tasks":-1}', None),
        (b"session-key", b'{"key":"","algorithm":"","creation-timestamp":1}', None),
        (b"\xff", b"{}", None),
        (None, b"{}", None),
    ],
)
def test_what_others_wrote(key: bytes | None, value: bytes, expected: object) -> None:
    assert records.event(key, value) == expected


@given(st.one_of(st.none(), st.binary(max_size=40)), st.one_of(st.none(), st.binary(max_size=60)))
def test_nonsense_is_passed_over(key: bytes | None, value: bytes | None) -> None:
    folding = Folding()
    folding.config(Record(0, 0, key, value, ()))
    folding.status(Record(0, 0, key, value, ()))
    folding.board()


def test_what_connect_keeps_for_itself_is_no_nonsense() -> None:
    folding = Folding()
    for key in (b"session-key", b"tasks-fencing-c"):
        assert not folding.config(record(0, (key, b"{}")))
    assert folding.strangers == 0
    folding.config(record(0, (b"connector-c", b"nonsense")))
    assert folding.strangers == 1


# -------------------- the board


def test_a_connector_is_there_from_its_configuration_to_its_deletion() -> None:
    assert not fold(records.targeted("c", "PAUSED")).connectors
    found = fold(records.targeted("c", "PAUSED"), records.configured("c", {"a": "1"})).connectors["c"]
    assert (found.target, found.config, found.version) == ("PAUSED", {"a": "1"}, 1)
    assert not fold(records.configured("c", {}), *records.deleted("c")).connectors
    again = fold(
        *records.tasks("c", [{}]), records.targeted("c", "PAUSED"), *records.deleted("c"), records.configured("c", {})
    )
    assert (again.connectors["c"].target, again.connectors["c"].tasks) == ("STARTED", ())


def test_tasks_count_when_they_are_committed_and_only_if_they_are_all_there() -> None:
    made = records.configured("c", {})
    one, two, commit = records.tasks("c", [{"n": "0"}, {"n": "1"}])
    assert fold(made, one, two).connectors["c"].tasks == ()
    assert fold(made, one, commit).connectors["c"].tasks == ()
    assert fold(made, one, two, commit).connectors["c"].tasks == ({"n": "0"}, {"n": "1"})
    assert fold(made, one, two, commit, *records.tasks("c", [])).connectors["c"].tasks == ()


def test_a_restart_is_one_more_each_time() -> None:
    made = records.configured("c", {})
    once = records.restarted("c", include_tasks=False, only_failed=True)
    assert fold(made).connectors["c"].restarts == -1
    first, second = fold(made, once).connectors["c"], fold(made, once, once).connectors["c"]
    assert first.restarts != second.restarts
    assert first.restart_failed


def test_statuses_and_topics_come_and_go() -> None:
    folding = Folding()

    def tell(key: bytes, value: bytes | None) -> Board:
        folding.status(Record(0, 0, key, value, ()))
        return folding.board()

    status = Status("FAILED", "h:1", "why", 1)
    assert tell(records.status_key("c", 0), records.status_value(status)).statuses == {("c", 0): status}
    assert tell(records.topic_key("c", "t"), records.topic_value("c", "t", 0, 1)).topics == {"c": ("t",)}
    assert tell(records.topic_key("c", "t"), None).topics == {}
    destroyed: Any = records.status_value(Status("DESTROYED", "h:1"))
    assert tell(records.status_key("c", 0), destroyed).statuses == {}
