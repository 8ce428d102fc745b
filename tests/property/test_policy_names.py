"""Laws of the naming policy over arbitrary legal topic names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heliograph import policy
from heliograph.javaregex import java_regex
from heliograph.types import Cluster, Flow

DEFAULT = policy.of(Flow(Cluster("a"), Cluster("b")))
TOPICS = st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,30}", fullmatch=True)
ALIASES = st.from_regex(r"[a-zA-Z0-9_-]{1,6}", fullmatch=True)


@given(ALIASES, TOPICS)
def test_a_remote_name_gives_back_its_parts(alias: str, topic: str) -> None:
    remote = DEFAULT.remote_topic(alias, topic)
    if topic.strip("."):
        assert DEFAULT.topic_source(remote) == alias
        assert DEFAULT.upstream_topic(remote) == topic
        assert DEFAULT.original_topic(remote) == DEFAULT.original_topic(topic)


@given(st.lists(ALIASES, min_size=1, max_size=4), st.from_regex(r"[a-z]{1,8}", fullmatch=True))
def test_nothing_goes_back_to_a_cluster_it_came_through(route: list[str], topic: str) -> None:
    for alias in route:
        topic = DEFAULT.remote_topic(alias, topic)
    for alias in route:
        assert DEFAULT.is_cycle(topic, alias)
        flow = Flow(Cluster("somewhere"), Cluster(alias))
        assert not policy.should_replicate(flow, topic)


@given(st.text(alphabet="ab.*+?{}[]()|\\^$&-,~<>:=!idmsuxpQEkzZh0159", max_size=30))
def test_any_text_is_an_expression_or_a_value_error(pattern: str) -> None:
    try:
        compiled = java_regex(pattern)
    except ValueError:
        return
    compiled.fullmatch("ab")
