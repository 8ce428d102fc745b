"""Several clusters: a hub with three spokes, a chain, a ring. Names, hops and cycles are MM2's, as Java sees them.

Each test has aliases of its own on clusters that the module shares. Heartbeats of other tests are on these too, and hop
along; so names are asked for by alias.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from heliograph.embedded import Kafka, running
from heliograph.flow.specialists import Specialists
from heliograph.types import Flow
from tests.broker.engine import Engine, assert_same, one_flow, topics_of
from tests.broker.test_java_client import ask_java
from tests.kit import Record, create_topic, produce

QUICK_S = 0.2
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def four() -> Iterator[tuple[Kafka, ...]]:
    config = {"auto.create.topics.enable": "false"}
    with running(*(Kafka(name, config=config) for name in ("hub", "left", "right", "third"))) as clusters:
        yield clusters


@pytest.fixture
def three(four: tuple[Kafka, ...]) -> tuple[Kafka, ...]:
    return four[1:]


def hop(source: Kafka, target: Kafka, aliases: dict[str, str], topics: str, **more: Any) -> Flow:
    ends = source.cluster(aliases[source.name]), target.cluster(aliases[target.name])
    quick = {"refresh_topics_interval_seconds": QUICK_S, "emit_heartbeats_s": QUICK_S, "offset_storage_partitions": 1}
    return one_flow(*ends, rf"(.*\.)?{topics}", **{**quick, **more})


def aliases_of(three: tuple[Kafka, ...]) -> dict[str, str]:
    number = next(_numbers)
    return {kafka.name: f"{kafka.name}{number}" for kafka in three}


def names_on(kafka: Kafka, aliases: Iterable[str]) -> set[str]:
    """Of the topics there that came through one of these aliases."""
    wanted = set(aliases)
    return {name for name in topics_of(kafka.confluent()) if wanted & set(name.split(".")[:-1])}


def test_a_hub_with_three_spokes(four: tuple[Kafka, ...]) -> None:
    """Six flows: what a spoke has goes over the hub to the other two, and nothing goes home."""
    hub, *spokes = four
    aliases = aliases_of(four)
    centre = aliases["hub"]
    sales, prices = f"sales-{centre}", f"prices-{centre}"
    for spoke in spokes:
        create_topic(spoke.confluent(), sales)
        produce(spoke.confluent(), sales, [Record(b"k", b"%s-%d" % (spoke.name.encode(), n)) for n in range(40)])
    create_topic(hub.confluent(), prices)
    produce(hub.confluent(), prices, [Record(b"k", b"%d" % n) for n in range(40)])
    kinds = (sales, "heartbeats")
    on_hub = {f"{aliases[spoke.name]}.{kind}" for spoke in spokes for kind in kinds}
    on_spoke = {
        home.name: {f"{centre}.{prices}", f"{centre}.heartbeats"}
        | {f"{centre}.{aliases[other.name]}.{kind}" for other in spokes if other is not home for kind in kinds}
        for home in spokes
    }
    both_ways = [flow for spoke in spokes for flow in ((spoke, hub), (hub, spoke))]
    with ExitStack() as stack:
        pattern = f"({sales}|{prices})"
        engines = [stack.enter_context(Engine(hop(*ends, aliases, pattern))) for ends in both_ways]
        engines[0].wait(lambda: on_hub <= topics_of(hub.confluent()), what=f"{on_hub} on the hub")
        for home in spokes:
            wanted = on_spoke[home.name]
            engines[0].wait(lambda h=home, w=wanted: w <= topics_of(h.confluent()), what=f"{wanted}")  # type: ignore[misc]
        for (source, target), engine in zip(both_ways, engines, strict=True):
            if target is hub:
                engine.wait_copied(sales)
            else:
                others = [f"{aliases[other.name]}.{sales}" for other in spokes if other is not target]
                engine.wait_copied(prices, *others)
            assert engine.status().parked == (), source.name
    of_hub, *of_spokes = ask_java(*(kafka.bootstrap for kafka in four))
    spoke_aliases = [aliases[spoke.name] for spoke in spokes]
    assert [of_hub["hops"].get(alias) for alias in (centre, *spoke_aliases)] == [None, 1, 1, 1]
    assert names_on(hub, aliases.values()) - _internal(hub, aliases) == on_hub  # no `spoke.hub.…`
    assert set(of_hub["remote"]) >= on_hub
    for home, answer in zip(spokes, of_spokes, strict=True):
        hops = {alias: answer["hops"].get(alias) for alias in (centre, *spoke_aliases)}
        assert hops == {centre: 1} | {alias: None if alias == aliases[home.name] else 2 for alias in spoke_aliases}
        assert names_on(home, aliases.values()) - _internal(home, aliases) == on_spoke[home.name]  # nothing came home
        assert set(answer["remote"]) >= on_spoke[home.name]
        assert_same(home, hub, sales, f"{aliases[home.name]}.{sales}")
        assert_same(hub, home, prices, f"{centre}.{prices}")
        for other in spokes:
            if other is not home:
                assert_same(other, home, sales, f"{centre}.{aliases[other.name]}.{sales}")


def _internal(kafka: Kafka, aliases: dict[str, str]) -> set[str]:
    return {name for name in names_on(kafka, aliases.values()) if name.endswith(".internal")}


def test_a_chain_of_three(three: tuple[Kafka, ...]) -> None:
    """A->B->C: names grow by a hop each, and so do heartbeats; A gets them by a pair that copies nothing."""
    a, b, c = three
    aliases = aliases_of(three)
    one, two = aliases["left"], aliases["right"]
    topic = create_topic(a.confluent(), f"chain-{one}")
    produce(a.confluent(), topic, [Record(b"k", b"%d" % n) for n in range(50)])
    beats = Specialists(hop(b, a, aliases, topic, enabled=False))
    beats.start()
    try:
        with Engine(hop(a, b, aliases, topic)) as first, Engine(hop(b, c, aliases, topic)) as second:
            names = {f"{two}.{one}.{topic}", f"{two}.heartbeats", f"{two}.{one}.heartbeats"}
            first.wait_copied(topic)
            second.wait(lambda: names <= topics_of(c.confluent()), what=f"{names}", timeout_seconds=60)
            second.wait_copied(f"{one}.{topic}")
    finally:
        beats.stop()
        beats.close()
    assert_same(a, c, topic, f"{two}.{one}.{topic}")
    on_c, on_b = ask_java(c.bootstrap, b.bootstrap)
    assert {alias: on_c["hops"].get(alias) for alias in (one, two)} == {one: 2, two: 1}
    assert on_b["hops"][one] == 1
    assert two not in on_b["upstream"]
    assert f"{two}.{topic}" not in topics_of(a.confluent())


def test_a_ring_of_three(three: tuple[Kafka, ...]) -> None:
    """Each cluster's topic goes round and stops before it comes home; heartbeats likewise."""
    aliases = aliases_of(three)
    ring = [(three[n], three[(n + 1) % 3], three[(n + 2) % 3]) for n in range(3)]
    topic = f"ring-{aliases['left']}"
    for home, _, _ in ring:
        create_topic(home.confluent(), topic)
        produce(home.confluent(), topic, [Record(b"k", b"%s-%d" % (home.name.encode(), n)) for n in range(30)])
    wanted = {
        home.name: {
            f"{path}.{kind}"
            for path in (aliases[last.name], f"{aliases[last.name]}.{aliases[middle.name]}")
            for kind in (topic, "heartbeats")
        }
        for home, middle, last in ring
    }
    with ExitStack() as stack:
        engines = [stack.enter_context(Engine(hop(home, middle, aliases, topic))) for home, middle, _ in ring]
        for home, _, _ in ring:
            engines[0].wait(lambda h=home: wanted[h.name] <= topics_of(h.confluent()), what=home.name)  # type: ignore[misc]
        for engine in engines:
            engine.wait_copied(topic)
        for engine, (_, _, last) in zip(engines, ring, strict=True):  # what the others have brought by now
            engine.wait_copied(f"{aliases[last.name]}.{topic}")
    for (home, middle, last), answer in zip(ring, ask_java(*(k.bootstrap for k in three)), strict=True):
        assert_same(middle, home, topic, f"{aliases[last.name]}.{aliases[middle.name]}.{topic}")
        hops = {alias: answer["hops"].get(alias) for alias in aliases.values()}
        assert hops == {aliases[last.name]: 1, aliases[middle.name]: 2, aliases[home.name]: None}
        mine = {name for name in answer["remote"] if any(alias in name.split(".") for alias in aliases.values())}
        assert {name for name in mine if name.endswith(topic)} == {n for n in wanted[home.name] if n.endswith(topic)}
