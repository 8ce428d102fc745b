"""Decisions about one partition at a time, and a flow's from its partitions'."""

from __future__ import annotations

from heliograph.health.recovery import Recovery
from heliograph.health.verdict import LIMIT_S, NO_REASON, Health, Progress, Verdict, summary
from heliograph.types import TopicPartition

WHY = "east broker 127.0.0.1:9092: refused; tried again within 2 s"


def level(at: float = 100.0, offset: int = 50) -> Progress:
    """A partition that was level with its source at this moment."""
    progress = Progress(good_at=at)
    progress.saw_position(offset, at)
    progress.saw_end("task", offset, at)
    return progress


def test_nothing_seen_yet_is_starting_and_not_healthy() -> None:
    progress = Progress(good_at=0.0)
    assert progress.verdict(LIMIT_S).health is Health.STARTING
    assert not Health.STARTING.healthy
    assert progress.lag is None


def test_nothing_seen_for_long_is_stalled_and_says_that_the_source_was_not_seen() -> None:
    verdict = Progress(good_at=0.0).verdict(LIMIT_S + 2, because="Spark is being started")
    assert verdict.health is Health.STALLED
    assert verdict.words == "source not seen for 7 s, because Spark is being started"


def test_a_source_that_does_not_move_is_idle_as_long_as_somebody_looks() -> None:
    progress = level(100.0)
    for second in range(60):
        progress.saw_end("task", 50, 100.0 + second)
        assert progress.verdict(100.0 + second).health is Health.IDLE
    assert progress.verdict(159.0 + LIMIT_S).health is Health.IDLE
    unseen = progress.verdict(159.0 + LIMIT_S + 0.1, because=WHY)
    assert unseen.health is Health.STALLED
    assert "source not seen for 5 s" in unseen.words
    assert WHY in unseen.words


def test_a_source_that_moved_while_we_did_not() -> None:
    progress = level(100.0)
    progress.saw_end("task", 62, 101.0)
    assert progress.verdict(102.0).health is Health.MOVING
    for second in range(10):
        progress.saw_end("task", 62 + second, 101.0 + second)
        progress.saw_position(50, 101.0 + second)
    verdict = progress.verdict(110.0, because=WHY)
    assert verdict == Verdict(Health.STALLED, WHY, 21, 10.0, clueless_s=0.0)
    assert verdict.words == f"source moved (21 records), we did not, for 10 s, because {WHY}"


def test_one_acknowledgement_is_enough_to_be_moving() -> None:
    progress = level(100.0)
    progress.saw_end("task", 1_000_000, 100.5)
    progress.saw_position(51, 104.0)
    assert progress.verdict(104.0 + LIMIT_S).health is Health.MOVING
    assert progress.verdict(104.0 + LIMIT_S + 0.1).health is Health.STALLED


def test_moved_and_level_is_moving_for_a_while_and_then_idle() -> None:
    progress = level(100.0)
    progress.saw_position(60, 101.0)
    progress.saw_end("task", 60, 101.0)
    assert progress.verdict(101.5).health is Health.MOVING
    progress.saw_end("task", 60, 110.0)
    assert progress.verdict(110.0).health is Health.IDLE


def test_the_second_look_overrules_a_task_that_lost_sight() -> None:
    progress = level(100.0)
    for second in range(12):
        progress.saw_end("coordinator", 55, 100.0 + second)
        progress.saw_end("task", 50, 100.5 + second)
    verdict = progress.verdict(112.0)
    assert verdict.health is Health.STALLED
    assert verdict.behind == 5
    assert verdict.because == NO_REASON


def test_whether_the_reason_is_known_is_told() -> None:
    progress = level(100.0)
    assert progress.verdict(110.0, because=WHY).clueless_s == 0.0
    assert progress.verdict(110.0, clueless_at=104.0).clueless_s == 6.0
    vague = progress.verdict(110.0, because="east is being asked", clueless_at=90.0)
    assert vague.clueless_s == vague.still_s == 10.0  # it went on meanwhile
    assert "because east is being asked" in vague.words


def test_a_reason_alone_is_not_ill() -> None:
    assert level(100.0).verdict(101.0, because=WHY).health is Health.IDLE


def test_parked_says_so_at_once() -> None:
    verdict = level(100.0).verdict(100.0, parked="no permission. Allow WRITE")
    assert verdict.health is Health.PARKED
    assert verdict.words == "no permission. Allow WRITE"


def test_a_topic_made_anew_moved() -> None:
    progress = level(100.0, offset=1_000)
    progress.saw_position(0, 120.0)
    assert progress.verdict(121.0).health.healthy


# -------------------- recovery


def stalled(clueless_s: float, still_s: float = 1_000.0) -> dict[TopicPartition, Verdict]:
    return {tp(0): Verdict(Health.IDLE), tp(1): Verdict(Health.STALLED, NO_REASON, 5, still_s, clueless_s)}


def test_what_stalls_for_no_reason_gets_new_tasks_ever_more_seldom() -> None:
    recovery = Recovery(first_s=30, most_s=100)
    assert recovery.due(stalled(29.0), 1_000.0) == []
    cures = [second for second in range(500) if recovery.due(stalled(31.0 + second), 1_001.0 + second)]
    assert cures == [0, 30, 90, 190, 290, 390, 490]
    assert recovery.due({tp(0): Verdict(Health.IDLE)}, 2_000.0) == []
    assert recovery.due(stalled(30.0), 2_050.0) == [tp(1)]
    assert recovery.due(stalled(60.0), 2_080.0) == []
    assert recovery.due(stalled(90.0), 2_110.0) == [tp(1)]


def test_what_stalls_for_a_known_reason_is_left_to_it() -> None:
    assert Recovery(first_s=30).due(stalled(0.0), 5_000.0) == []


# -------------------- a flow


def tp(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


def test_a_flow_is_as_ill_as_its_worst_partition() -> None:
    sound = {tp(0): Verdict(Health.IDLE), tp(1): Verdict(Health.MOVING)}
    assert summary(sound).health is Health.MOVING
    assert summary(sound).words == ""
    parked = Verdict(Health.PARKED, "no permission")
    assert summary({**sound, tp(2): parked}).health is Health.PARKED
    ill = {**sound, tp(2): parked}
    ill |= {tp(n): Verdict(Health.STALLED, WHY, 5, 10.0 + n) for n in range(3, 8)}
    found = summary(ill)
    assert found.health is Health.STALLED
    assert found.because == WHY
    assert found.words == (
        "5 of 8 partitions stalled (orders-3, orders-4, orders-5, …): "
        f"source moved (5 records), we did not, for 17 s, because {WHY}"
    )
    assert found.counts[Health.STALLED] == 5
    assert found.counts[Health.PARKED] == 1


def test_no_partitions_no_illness() -> None:
    assert summary({}).health is Health.IDLE
