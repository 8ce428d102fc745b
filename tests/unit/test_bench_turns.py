"""The pure parts of a turn: settings files, verdicts, stamps, values, and the limit's meter."""

from __future__ import annotations

import json
import random
import struct
import time
from pathlib import Path

import pytest
from bench.batches import split
from bench.limit import Meter
from bench.load import producer_settings, value
from bench.peers import Job, properties, write_properties
from bench.scenarios import SCENARIOS
from bench.show import eta_s
from bench.stream import stamp_of, stamped
from bench.watch import verdict


def job(peer: str, scenario: str = "lz4") -> Job:
    return Job(peer, "lz4-x-1", "events", "127.0.0.1:1", "127.0.0.1:2", SCENARIOS[scenario], Path("unused"))


def test_peers_differ_only_by_tuning() -> None:
    plain, tuned, ours = (properties(job(peer)) for peer in ("mm2", "mm2-tuned", "heliograph"))
    assert plain == ours
    assert plain["lz4-x-1->target.topics"] == "events"
    assert plain.items() <= tuned.items()
    assert "tasks.max" not in plain
    assert tuned["tasks.max"] == "4"


def test_tuning_follows_the_scenario() -> None:
    assert properties(job("mm2-tuned"))["target.producer.compression.type"] == "lz4"
    assert properties(job("mm2-tuned", "plain"))["target.producer.compression.type"] == "none"
    assert properties(job("mm2-tuned", "latency"))["target.producer.linger.ms"] == "0"


def test_settings_file_is_a_properties_file(tmp_path: Path) -> None:
    path = write_properties(tmp_path / "a.properties", {"clusters": "a, b", "a->b.enabled": "true"})
    assert path.read_text() == "clusters = a, b\na->b.enabled = true\n"


@pytest.mark.parametrize(
    ("actual", "finished", "says"),
    [
        ([10, 20], True, "exact"),
        ([10, 19], True, "lost 1"),
        ([11, 20], True, "doubled 1"),
        ([13, 18], True, "lost 2, doubled 3"),
        ([10, 5], False, "did not finish (15 of 30)"),
        ([10, 25], False, "doubled 5"),
    ],
)
def test_verdict_on_counts(actual: list[int], finished: bool, says: str) -> None:
    assert verdict([10, 20], actual, finished) == says


def test_stamp_is_the_moment_of_taking() -> None:
    values = stamped(random.Random(1), 230)
    before = time.time_ns()
    taken = next(values)
    assert before <= stamp_of(taken) <= time.time_ns()
    assert 180 <= len(taken) <= 260
    assert json.loads(taken)["sent_ns"] == stamp_of(taken)


@pytest.mark.parametrize("size", [230, 10_000])
def test_values_are_json_of_the_size_asked_for(size: int) -> None:
    chance = random.Random(1)
    made = [value(chance, size) for _ in range(200)]
    assert all(abs(len(one) - size) <= 20 for one in made)
    assert len(set(made)) == 200
    assert all(json.loads(one)["user"].startswith("user-") for one in made)


def test_tiny_makes_a_batch_of_each_record_and_lz4_counts_compressed_bytes() -> None:
    assert producer_settings(SCENARIOS["tiny"])["batch.num.messages"] == 1
    assert "batch.num.messages" not in producer_settings(SCENARIOS["plain"])
    assert producer_settings(SCENARIOS["plain"])["batch.size"] == 16 * 1024
    assert producer_settings(SCENARIOS["lz4"])["batch.size"] == 32 * 1024


def fake_batch(base: int, count: int, payload: bytes) -> bytes:
    size = 61 + len(payload) - 12
    return struct.pack(">qiibIhiqqqhii", base, size, 0, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count) + payload


def test_split_finds_whole_batches_and_leaves_the_cut_one() -> None:
    first, second = fake_batch(5, 3, b"abc"), fake_batch(8, 1, b"")
    data = first + second + fake_batch(9, 1, b"cut")[:-1]
    assert list(split(data)) == [(0, len(first), 8, 3), (len(first), len(first) + len(second), 9, 1)]


def test_meter_ends_once_with_what_it_counted() -> None:
    meter = Meter(100)
    meter.add(5)
    assert meter.result is None
    meter.add(95)
    result = meter.result
    assert result is not None
    assert result.records_per_s > 0
    meter.add(1)
    assert meter.result is result
    assert meter.count == 101


def test_eta_waits_until_there_is_something_to_go_by() -> None:
    assert eta_s(10, 0.25) == pytest.approx(30)
    assert eta_s(0.5, 0.25) is None
    assert eta_s(10, 0.0) is None
    assert eta_s(10, 1.0) is None
