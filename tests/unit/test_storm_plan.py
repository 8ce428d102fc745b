"""The plan of a storm: every decision from the seed, kinds by their shares, and a summary that judges."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from click.testing import CliRunner
from storm.__main__ import main
from storm.plan import BY_NAME, KINDS, Fault, draw_plan
from storm.report import Bounds, Summary, as_json
from storm.verify import Finding


def faults(lanes: dict[str, list[Fault]]) -> list[Fault]:
    return [fault for lane in lanes.values() for fault in lane]


def test_the_same_seed_draws_the_same_storm() -> None:
    assert draw_plan(7, 200, minutes=6) == draw_plan(7, 200, minutes=6)
    assert draw_plan(7, 200, minutes=6) != draw_plan(8, 200, minutes=6)


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 5, 30, 1000])
def test_as_many_faults_as_asked_for(count: int, brokers: int) -> None:
    assert len(faults(draw_plan(1, count, minutes=count * 0.03, brokers=brokers))) == count


def test_every_kind_is_in_a_storm_of_some_size() -> None:
    kinds = Counter(fault.kind for fault in faults(draw_plan(1, 40, minutes=1, brokers=3)))
    assert set(kinds) == set(BY_NAME)
    assert "leader-move" not in {fault.kind for fault in faults(draw_plan(1, 1000, minutes=30, brokers=1))}


def test_only_some_kinds() -> None:
    assert {fault.kind for fault in faults(draw_plan(1, 50, minutes=1, only=("cut", "task-kill")))} == {
        "cut",
        "task-kill",
    }


def test_faults_last_as_long_as_their_kind_allows_and_fill_the_time() -> None:
    lanes = draw_plan(3, 1000, minutes=30, brokers=3)
    for fault in faults(lanes):
        kind = BY_NAME[fault.kind]
        assert kind.low_s <= fault.hold_s <= kind.high_s
    for lane in lanes.values():
        moments = [fault.at_s for fault in lane]
        assert moments == sorted(moments)
        assert 0 <= moments[0] <= 10 * 60
        assert 20 * 60 <= moments[-1] <= 30 * 60


def test_faults_of_one_broker_never_overlap() -> None:
    """They queue in the lane of their side."""
    lanes = draw_plan(3, 300, minutes=10, brokers=3)
    for lane, found in lanes.items():
        assert {fault.lane for fault in found} == {lane}
    assert {lane for lane in lanes if lane.startswith("brokers")} == {"brokers-west", "brokers-east"}
    assert len({kind.lane for kind in KINDS if kind.name.startswith(("broker", "leader"))}) == 1


def test_an_unknown_kind_is_refused_with_those_there_are() -> None:
    done = CliRunner().invoke(main, ["--only", "flood"])
    assert done.exit_code == 2
    assert "no kind of fault called flood" in done.output
    assert "broker-freeze" in done.output


class TestJudgement:
    BOUNDS = Bounds(level_s=60, task_mb=512, driver_mb=512)

    def summary(self, **more: object) -> Summary:
        summary = Summary(1, False, 1)
        summary.level_s, summary.task_mb, summary.driver_mb = 10, 300, 300
        for key, value in more.items():
            setattr(summary, key, value)
        summary.judge(self.BOUNDS)
        return summary

    def test_all_is_well(self) -> None:
        assert self.summary().passed

    @pytest.mark.parametrize(
        "wrong",
        [
            {"level_s": None},
            {"level_s": 61.0},
            {"task_mb": 600.0},
            {"driver_mb": 600.0},
            {"findings": [Finding("lost", "west.t", 2, ("record 1",))]},
        ],
    )
    def test_something_is_wrong(self, wrong: dict[str, object]) -> None:
        summary = self.summary(**wrong)
        assert not summary.passed
        said = json.loads(as_json(summary))
        assert said["passed"] is False
        assert said["counts"]["lost"] == (2 if "findings" in wrong else 0)
