"""The pure parts of the turns about hub and spokes: files, whose turn it is, figures, what `straight` does."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from bench import labelled, report, spokes, steps, straight
from bench.load import Loaded
from bench.peers import Job, properties
from bench.results import Measured, Row
from bench.scenarios import GROUPS, HELIOGRAPH, SCENARIOS, STRAIGHT, THRESHOLDS, TUNED, select

from heliograph.batch import labels
from heliograph.batch.labels import Origin, Stamp
from heliograph.config.load import parse
from heliograph.types import TopicPartition

STEPS = ("mux", "link", "demux")


def job(peer: str, kind: str) -> Job:
    alias = f"{kind}-{peer}-1"
    scenario = SCENARIOS[kind]
    return Job(peer, alias, f"events-{kind}", "127.0.0.1:1", "127.0.0.1:2", scenario, Path("unused"), f"hub-{alias}")


def file(one: Job) -> bytes:
    return "".join(f"{key} = {value}\n" for key, value in properties(one).items()).encode()


def test_they_are_measured_by_name_only() -> None:
    assert not {*GROUPS["hub"]} & {*GROUPS["all"]}
    assert [one.name for one in select(("hub",))] == [*STEPS, "spokes"]


def test_the_files_of_a_step_name_the_flows_it_needs() -> None:
    flows = {kind: {flow.name: flow for flow in parse(file(job(HELIOGRAPH, kind))).flows} for kind in STEPS}
    mux = flows["mux"]["mux-heliograph-1->hub-mux-heliograph-1.mux"].mux
    assert mux is not None
    assert (mux.topic, mux.partitions) == ("mux-heliograph-1.events-mux", 4)
    assert not any(flow.demux for flow in flows["mux"].values())
    link = flows["link"]["link-heliograph-1->hub-link-heliograph-1"]
    assert link.topics == ("events-link-shared",)
    demux = flows["demux"]["hub-demux-heliograph-1->hub-demux-heliograph-1.demux"]
    (rule,) = demux.demux
    assert (rule.topic, rule.prefix, rule.keep_headers) == ("events-demux-shared", "demux-heliograph-1.", False)
    assert rule.spoke.bootstrap == "127.0.0.1:1"


@pytest.mark.parametrize("kind", STEPS)
def test_mirrormaker_mirrors_what_the_step_reads(kind: str) -> None:
    tuned = job(TUNED, kind)
    topics = properties(tuned)[f"{tuned.alias}->{tuned.target_alias}.topics"]
    assert topics == ("events-mux-[0-9]+" if kind == "mux" else f"events-{kind}-shared")
    assert properties(tuned)[f"{tuned.target_alias}.producer.linger.ms"] == "100"
    assert not any("mux." in key and key.startswith(f"{tuned.alias}->") for key in properties(tuned))


def test_the_file_of_the_spokes() -> None:
    config = parse(file(job(HELIOGRAPH, "spokes")))
    stages = [flow for flow in config.flows if flow.staged]
    assert len([flow for flow in stages if flow.mux]) == 20
    (demux,) = [flow for flow in stages if flow.demux]
    assert len(demux.demux) == 20
    assert not [warning for warning in config.warnings if "mux" in warning]


def test_whose_turn_it_is() -> None:
    order = spokes.rota(20, 20)
    assert Counter(order) == {spokes.FLOODS: 20} | dict.fromkeys(range(1, 20), 1)
    assert max(len(run) for run in _runs(order, spokes.FLOODS)) <= 2  # spread, not in a lump
    scenario = SCENARIOS["spokes"]
    sent = Counter(islice(spokes.topics_in_turn(scenario), 39 * 20))
    assert Counter(sent[topic] for topic in labelled.topics_of("s00", 20)) == {20: 20}
    assert Counter(sent[topic] for topic in labelled.topics_of("s07", 20)) == {1: 20}


def _runs(order: list[int], whose: int) -> list[list[int]]:
    runs: list[list[int]] = [[]]
    for one in order:
        if one == whose:
            runs[-1].append(one)
        else:
            runs.append([])
    return runs


def test_the_others_are_judged_without_the_one_that_floods() -> None:
    arrivals = {
        "s00": [(10.0 + n / 100, 5_000.0) for n in range(100)],
        "s01": [(10.0 + n / 100, 10.0) for n in range(100)],
        "s02": [(10.0 + n / 100, 40.0) for n in range(100)] + [(99.0, 9_000.0)],  # sent after the end
    }
    found = spokes.figures(arrivals, 4.0, 20.0)
    assert (found["measured"], found["sent"]) == (200, 300)
    assert (found["p99_ms"], found["max_ms"], found["slowest_p99_ms"], found["flood_p99_ms"]) == (40, 40, 40, 5_000)
    assert spokes.figures({}, 0.0, 1.0) == {"measured": 0.0, "sent": 0.0}


class Message:
    def __init__(self, headers: list[tuple[str, bytes]], timestamp_ms: int) -> None:
        self._headers, self._timestamp_ms = headers, timestamp_ms

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp_ms

    def topic(self) -> str:
        return "topic"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 1041


def test_the_straightforward_way_writes_the_same_labels_and_takes_them_off_again() -> None:
    message: Any = Message([("own", b"1")], 1_793_491_200_007)
    into, partition, _, headers = straight.labelled(message, "spoke1:9092", "shared", "spoke1", "abc")
    assert (into, partition) == ("shared", -1)
    stamp = Stamp(TopicPartition("topic", 3), "spoke1:9092", "shared", "spoke1", "abc")
    assert tuple(headers[1:]) == labels.write(stamp, 1_793_491_200_007, 1041)
    origin = labels.read(tuple(headers))  # type: ignore[arg-type]
    assert isinstance(origin, Origin)
    carried: Any = Message(headers, 5)  # type: ignore[arg-type]
    assert straight.put_back(carried, "x.") == ("x.topic", 3, 1_793_491_200_007, [("own", b"1")])


def test_what_a_turn_makes_and_where() -> None:
    supply = steps.Supply(
        tuple(Loaded(f"events-demux-{n}", [10, 20], 300, 3) for n in range(labelled.ORIGINS)), "events-demux-shared"
    )
    assert supply.whole.records == 120
    assert supply.whole.bytes == 1_200
    rig: Any = type("Rig", (), {"source": "source", "target": "target"})()
    ours = steps.made_by(rig, job(HELIOGRAPH, "demux"), supply)
    assert (ours.face, ours.read) == ("target", "source")
    assert ours.topics == {f"demux-heliograph-1.events-demux-{n}": 2 for n in range(4)}
    theirs = steps.made_by(rig, job(TUNED, "demux"), supply)
    assert (theirs.face, theirs.read) == ("source", "target")
    assert theirs.topics == {"demux-mm2-tuned-1.events-demux-shared": 4}
    assert list(steps.made_by(rig, job(STRAIGHT, "mux"), supply).topics) == ["mux-straight-1.events-mux"]


def test_the_report_has_the_straightforward_way_where_it_was_measured() -> None:
    rows = (
        Row(TUNED, 1, "exact", {"records_per_s": 100.0, "cpu_us_window": 20.0}),
        Row(HELIOGRAPH, 1, "exact", {"records_per_s": 300.0, "cpu_us_window": 2.0}),
        Row(STRAIGHT, 1, "exact", {"records_per_s": 50.0, "cpu_us_window": 30.0}),
    )
    measured = Measured("mux", "now", 1.0, {}, rows)
    text = report.markdown({"mux": measured})
    assert "| mux | records/s at least 5 × record by record | 6.00 × | pass |" in text
    assert "| mux | CPU per record at most 1/4 of MM2 tuned | 0.10 × | pass |" in text
    assert "× record by record" in text
    readme = report.in_readme("<!-- bench:begin --><!-- bench:end -->", {"mux": measured})
    assert "| mux | records/s | — | 100 | 300 | — | 50 |" in readme
    assert all(THRESHOLDS[kind] for kind in (*STEPS, "spokes"))
