"""What tasks say and what the coordinator sees, put together: on a clock that the test turns."""

from __future__ import annotations

from typing import Any

from heliograph.flow.observer import RECENT_S, Observer
from heliograph.flow.tally import COUNTERS, Tally
from heliograph.health.verdict import NO_REASON, Health
from heliograph.mirror.protocol import Report, partition_report
from heliograph.mirror.timing import BOUNDS_MS, Histogram
from heliograph.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
TASK = (1, 0, 0)


class Scene:
    """An observer of two partitions, both with one task."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.tally = Tally()
        self.observer = Observer(self.tally, clock=lambda: self.now, wall=lambda: self.now)
        self.observer.copy({tp: TopicPartition(f"us.{tp.topic}", tp.partition) for tp in (A, B)})
        self.observer.joined(TASK)

    def lane(self, tp: TopicPartition, position: int, end: int, **more: Any) -> dict[str, Any]:
        counts = {**dict.fromkeys(COUNTERS, 0), "records": position, "bytes": position * 100}
        base = {"topic": tp.topic, "partition": tp.partition, "next": position, "end": end, "state": "flowing"}
        return (
            {**base, "reason": "", "fix": "", "why": "", "blind": False, "oldest": -1, "timestamp": -1} | counts | more
        )

    def report(self, *lanes: dict[str, Any], task: tuple[int, int, int] = TASK, **more: Any) -> None:
        report = Report([partition_report(lane) for lane in lanes], **more)
        self.tally.add(task, report)
        self.observer.reported(task, report)

    def health(self, tp: TopicPartition, because: str = "") -> tuple[Health, str]:
        verdict = self.observer.verdicts(because)[tp]
        return verdict.health, verdict.because


def test_a_partition_that_a_task_does_not_mention_has_not_changed() -> None:
    scene = Scene()
    scene.report(scene.lane(A, 10, 10), scene.lane(B, 5, 7))
    for _ in range(20):
        scene.now += 1
        scene.report()
    assert scene.health(A) == (Health.IDLE, "")
    assert scene.health(B) == (Health.STALLED, NO_REASON)


def test_a_blind_task_does_not_vouch_for_anything() -> None:
    scene = Scene()
    scene.report(scene.lane(A, 10, 10))
    scene.now += 1
    scene.report(scene.lane(A, 10, 10, blind=True, why="us broker x does not answer"))
    for _ in range(6):
        scene.now += 1
        scene.report()
    assert scene.health(A) == (Health.STALLED, "us broker x does not answer")


def test_a_silent_task_is_named() -> None:
    scene = Scene()
    scene.report(scene.lane(A, 10, 10))
    scene.now += 6
    assert scene.health(A) == (Health.STALLED, "task 0 of epoch 1 is silent: its process may be frozen or gone")


def test_without_a_task_the_flow_s_reason_counts() -> None:
    scene = Scene()
    scene.report(scene.lane(A, 10, 10))
    scene.observer.left(TASK)
    scene.now += 6
    assert scene.health(A, "the streaming query ended: oh") == (Health.STALLED, "the streaming query ended: oh")
    assert "the next epoch is being planned" in scene.health(A)[1]


def test_a_task_has_been_clueless_only_since_it_had_the_partition_and_knew_nothing() -> None:
    """Spark took a minute to start the first task, which was then ended for having stalled."""
    scene = Scene()
    scene.now += 60  # "Spark has not started a task yet"
    asked = scene.lane(A, 10, 20, blind=True, why="east is being asked what it holds", vague=True)

    def clueless_s(after_s: float) -> float:
        scene.now += after_s
        scene.report()
        return scene.observer.verdicts()[A].clueless_s

    scene.report(asked)
    assert clueless_s(0) == 0
    assert clueless_s(7) == 7
    scene.report({**asked, "why": "us.t-0 has no leader", "vague": False})
    assert clueless_s(20) == 0
    scene.report(asked)
    assert clueless_s(8) == 8
    scene.observer.joined((2, 0, 0))
    scene.report(asked, task=(2, 0, 0))
    scene.now += 9
    scene.report(task=(2, 0, 0))
    assert scene.observer.verdicts()[A].clueless_s == 9


def test_without_a_task_an_idle_source_is_still_seen_by_the_coordinator() -> None:
    scene = Scene()
    scene.report(scene.lane(A, 10, 10))
    scene.observer.left(TASK)
    for _ in range(4):
        scene.now += 3
        scene.observer.looked({A: 10}, scene.now)
    assert scene.health(A) == (Health.IDLE, "")
    scene.observer.looked({A: 11}, scene.now)
    scene.now += 6
    assert scene.health(A)[0] is Health.STALLED


def test_what_the_coordinator_sees_and_the_task_does_not() -> None:
    """A fetch that lost a partition: its task believes it idle for ever."""
    scene = Scene()
    scene.report(scene.lane(A, 10, 10))
    for _ in range(8):
        scene.now += 1
        scene.report()
        scene.observer.looked({A: 25}, scene.now)
    assert scene.health(A) == (Health.STALLED, NO_REASON)
    assert scene.observer.lags()[A][0] == 15


def test_parked_stays_while_it_is_tried_again_in_vain() -> None:
    scene = Scene()
    scene.report(scene.lane(A, 10, 12, state="parked", reason="refused", fix="allow it", blind=True, why="refused"))
    assert scene.health(A) == (Health.PARKED, "refused. allow it")
    scene.now += 10
    scene.report(scene.lane(A, 10, 12, state="lost", blind=True))
    assert scene.health(A) == (Health.PARKED, "refused. allow it")
    scene.now += 1
    scene.report(scene.lane(A, 12, 12))
    assert scene.health(A)[0] is Health.MOVING


def test_an_epoch_that_ends_may_still_move_a_partition_but_not_speak_for_it() -> None:
    scene = Scene()
    scene.report(scene.lane(A, 10, 50))
    scene.observer.joined((2, 0, 0))
    scene.report(scene.lane(A, 10, -1, state="lost", blind=True), task=(2, 0, 0))
    scene.now += 5
    scene.report(scene.lane(A, 20, 50, why="old"))
    scene.now += 1
    assert scene.health(A)[0] is Health.MOVING
    scene.now += 1.5
    scene.report(task=(2, 0, 0))
    scene.now += 3
    scene.report(task=(2, 0, 0))
    assert scene.health(A)[0] is Health.STALLED
    assert scene.health(A)[1] != "old"


def test_a_task_that_speaks_lives_whatever_was_said_of_its_namesake() -> None:
    """After a restart of the query the first epoch is the first again, and its old task may leave late."""
    scene = Scene()
    scene.observer.joined(TASK)
    scene.observer.left(TASK)
    scene.report(scene.lane(A, 10, 10))
    scene.now += 4
    scene.report()
    scene.now += 4
    assert scene.health(A)[0].healthy


def test_lag_in_seconds_is_the_age_of_the_oldest_record_not_copied() -> None:
    scene = Scene()
    ms = int(scene.now * 1000)
    scene.report(scene.lane(A, 10, 10), scene.lane(B, 10, 90, oldest=ms - 40_000))
    assert scene.observer.lags() == {A: (0, 0.0), B: (80, 40.0)}
    scene.now += 30  # nothing fetched of it: it is no older than the moment at which none was missing
    scene.observer.looked({A: 12}, scene.now)
    assert scene.observer.lags()[A] == (2, 30.0)
    scene.report(scene.lane(A, 11, 12, timestamp=int(scene.now * 1000) - 2_000))
    assert scene.observer.lags()[A] == (1, 2.0)


def test_lag_in_bytes_is_records_times_their_mean_size() -> None:
    scene = Scene()
    scene.report(scene.lane(A, 10, 14), scene.lane(B, 0, 3))
    first, second = scene.observer.partitions()
    assert (first.lag_records, first.lag_bytes) == (4, 400)
    assert (second.lag_records, second.lag_bytes) == (3, 300)  # by the flow's mean: none of its own was copied
    assert (first.remote_topic, first.task, first.position, first.source_end) == ("us.t", 0, 10, 14)


def test_latencies_are_added_up_over_tasks() -> None:
    scene = Scene()
    counts = [0] * 17
    counts[3] = 5
    scene.report(scene.lane(A, 5, 5, latency=[5, 60, 10, 15, 12]), latency={"t": [60, counts]})
    scene.observer.joined((2, 0, 0))
    scene.report(scene.lane(A, 10, 10, latency=[5, 100, 20, 20, 20]), latency={"t": [100, counts]}, task=(2, 0, 0))
    histogram = scene.observer.latency()["t"]
    assert (histogram.count, histogram.sum, histogram.counts[3]) == (10, 160, 10)
    spread = scene.observer.partitions()[0].latency
    assert (spread.count, spread.sum, spread.least, spread.most, spread.last) == (10, 160, 10, 20, 20)


def test_a_partition_that_is_copied_no_more_is_gone() -> None:
    scene = Scene()
    scene.report(scene.lane(A, 10, 10), scene.lane(B, 10, 10))
    scene.observer.copy({A: A})
    assert set(scene.observer.verdicts()) == {A}
    scene.report(scene.lane(B, 11, 11))
    assert set(scene.observer.lags()) == {A}


def test_p99_is_of_the_last_seconds() -> None:
    scene = Scene()
    assert scene.observer.latency_p99_ms() is None
    slow, quick = [0] * (len(BOUNDS_MS) + 1), [0] * (len(BOUNDS_MS) + 1)
    slow[-2], quick[0] = 100, 100
    scene.report(scene.lane(A, 5, 5), latency={"t": [1, slow]})
    assert (scene.observer.latency_p99_ms() or 0) > 600_000
    scene.now += 2 * RECENT_S
    scene.report(scene.lane(A, 10, 10), latency={"t": [1, quick], "u": [1, quick]})
    assert (scene.observer.latency_p99_ms() or 99) <= BOUNDS_MS[0]
    assert scene.observer.latencies_p99_ms().keys() == {"t", "u"}
    scene.now += 2 * RECENT_S
    assert scene.observer.latency_p99_ms() is None
    assert scene.observer.latencies_p99_ms() == {}


def test_a_quantile_of_a_histogram() -> None:
    histogram = Histogram()
    histogram.note(BOUNDS_MS[2], 99)
    histogram.note(BOUNDS_MS[-1] + 1, 1)
    assert histogram.quantile(0.99) == BOUNDS_MS[2]
    assert histogram.quantile(0.495) == (BOUNDS_MS[1] + BOUNDS_MS[2]) / 2
    assert histogram.quantile(1.0) == BOUNDS_MS[-1]
