"""YAML as it is written; that other people's readers read the same is shown beside a real worker."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.cli.documents import document, masked


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{}"),
        ([], "[]"),
        (None, "null"),
        ("orders", "orders"),
        ("a.b/c_d-e", "a.b/c_d-e"),
        ("yes", '"yes"'),
        ("Null", '"Null"'),
        ("1", '"1"'),
        ("1e3", '"1e3"'),
        ("", '""'),
        ("- a", '"- a"'),
        ("a: b", '"a: b"'),
        ("a #b", '"a #b"'),
        ("http://a:1", '"http://a:1"'),
        ("ü", '"ü"'),
        ("a\x85b\u2028c\x07", '"a\\u0085b\\u2028c\\u0007"'),
        (True, "true"),
        (1, "1"),
        ({"a": 1, "b": [], "1": None}, 'a: 1\nb: []\n"1": null'),
        ({"a": {"b": {"c": "d"}}}, "a:\n  b:\n    c: d"),
        ([{"a": 1, "b": 2}, [1, [2]], "x"], "- a: 1\n  b: 2\n- - 1\n  - - 2\n- x"),
        ({"t": "first\n\tat x\n"}, "t: |\n  first\n  \tat x"),
        ({"t": "first\n\nlast"}, "t: |-\n  first\n\n  last"),
        ({"t": " first\nlast"}, 't: " first\\nlast"'),
        ({"t": "first\n\n"}, 't: "first\\n\\n"'),
        ("first\nlast", '"first\\nlast"'),
    ],
)
def test_yaml(value: Any, text: str) -> None:
    assert document(value, "yaml") == text


def test_values_of_unknown_keys_of_mm2s_connectors_are_masked() -> None:
    config = {"connector.class": "MirrorSourceConnector", "topics": "a", "source.cluster.sasl.pasword": "hunter2"}
    assert masked({"info": {"config": config}}) == {
        "info": {"config": {**config, "source.cluster.sasl.pasword": "***"}}
    }
    other = {
        "connector.class": "com.example.Sink",
        "url": "x",
        "password": "hunter2",
    }  # whose keys are not ours to know
    assert masked(other) == {**other, "password": "***"}
