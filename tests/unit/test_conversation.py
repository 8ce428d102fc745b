"""What plays and compares conversations with Connect workers: it sees every kind of difference, and only those."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.broker import differences_page
from tests.broker.conversation import (
    Answer,
    Call,
    Reason,
    conversation,
    differences,
    justified,
    merged,
    normal,
    recorded,
    shape,
    unjustified,
    values,
)

CALL = Call("status", "GET /connectors/a/status", same=["name", "tasks.*.{id,state}", "tasks.#"])
REAL = Answer(
    200,
    {"content-type": "application/json"},
    {"name": "a", "tasks": [{"id": 0, "state": "RUNNING"}, {"id": 1, "state": "FAILED", "trace": "x"}], "note": None},
)


def test_every_call_has_a_recorded_answer() -> None:
    assert [call.id for call in conversation()] == list(recorded())


def test_the_recording_is_like_itself() -> None:
    assert unjustified(recorded(), recorded(), reasons=[]) == []


def test_every_difference_that_is_justified_is_of_a_call() -> None:
    known = {call.id for call in conversation()} | {"*"}
    for one in justified():
        assert set(one.ids) <= known
        assert len(one.reason) > 20


def test_the_page_shows_every_difference_that_is_justified() -> None:
    assert differences_page.shown() == differences_page.rendered(), "python -m tests.broker.differences_page"
    assert all(one.reason in differences_page.shown() for one in justified())


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"status": 404}, ["status"]),
        ({"headers": {}}, ["header.content-type"]),
        ({"headers": {"content-type": "application/json;charset=utf-8"}}, []),
        ({"headers": {**REAL.headers, "location": "/x"}}, ["header.location"]),
        ({"body": None}, ["body", "same.name", "same.tasks.*.{id,state}", "same.tasks.#"]),
        ({"body": {**REAL.body, "name": "b"}}, ["same.name"]),
        ({"body": {**REAL.body, "more": 1}}, ["body.more"]),
        ({"body": {**REAL.body, "note": "x"}}, ["body.note"]),
        ({"body": {**REAL.body, "tasks": REAL.body["tasks"][::-1]}}, []),
        ({"body": {**REAL.body, "tasks": REAL.body["tasks"][:1]}},
         ["body.tasks.*.trace", "same.tasks.*.{id,state}", "same.tasks.#"]),
        ({"body": {**REAL.body, "tasks": []}}, ["same.tasks.*.{id,state}", "same.tasks.#"]),
        ({"body": {"name": "a", "tasks": REAL.body["tasks"]}}, ["body.note"]),
    ],
)  # fmt: skip
def test_differences_are_named_by_their_place(change: dict[str, Any], where: list[str]) -> None:
    assert [one.where for one in differences(CALL, REAL, replace(REAL, **change))] == where


def test_a_reason_that_nothing_needs_is_told() -> None:
    other = dict(recorded())
    first = next(iter(other))
    other[first] = replace(other[first], status=599)
    reason = Reason([first], ["status"], "why not")
    assert unjustified(recorded(), other, [reason]) == []
    assert unjustified(recorded(), other, []) == [f"{first}: status: 599, a real worker says 200"]
    gone = "is no difference any more: why not"
    assert unjustified(recorded(), other, [Reason([first, "health"], ["status", "body"], "why not")]) == [
        f"call health {gone}",
        f"place body {gone}",
    ]
    assert unjustified(recorded(), recorded(), [Reason(["*"], ["status"], "why not", sometimes=True)]) == []
    assert unjustified(recorded(), recorded(), [Reason(["*"], ["status"], "why not")]) == [
        f"call * {gone}",
        f"place status {gone}",
    ]


def test_shapes_are_keys_and_types() -> None:
    assert shape([{"a": 1}, {"a": None, "b": True}]) == [{"a": "integer|null", "b (some)": "boolean"}]
    assert shape({"x": {"k1": "a", "k2": None}}, maps=["x"]) == {"x": {"*": "null|string"}}
    assert shape({"k1": {"level": "INFO"}}, maps=["$"]) == {"*": {"level": "string"}}
    assert merged([[], ["string"]]) == ["string"]


def test_paths_lead_over_keys_with_dots() -> None:
    body = {"talk.source": {"topics": ["a", "b"]}, "list": [{"n": 1}, {"n": 2}]}
    assert list(values(body, "talk.source.topics.#")) == [2]
    assert list(values(body, "list.*.n")) == [1, 2]
    assert list(values(body, "list.1.n")) == [2]
    assert list(values(body, "list.7.n")) == []
    assert list(values(body, "absent")) == []


def test_answers_are_the_same_wherever_they_were_given() -> None:
    body = {"worker_id": "h:8083", "trace": "first\nsecond", "documentation": "long", "kafka_cluster_id": "Xy"}
    found = normal(Answer(200, {"location": "http://h:8083/a"}, body), {"h:8083": "$WORKER"})
    assert found.body == {
        "worker_id": "$WORKER",
        "trace": "first",
        "documentation": "…",
        "kafka_cluster_id": "$CLUSTER",
    }
    assert found.headers == {"location": "http://$WORKER/a"}
