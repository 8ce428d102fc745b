"""What a task writes down while the map's topic cannot be written, and how large the map gets."""

from __future__ import annotations

import pytest

from heliograph.mirror import offsetmap
from heliograph.mirror.offsetmap import Span, Subject, Writer
from heliograph.state import offsets as state_offsets
from heliograph.types import TopicPartition
from tests.mapped_copy import MAP, REMOTE, TP, MappedCopy
from tests.model_task import NODE, ModelTask

MAX_MESSAGE_BYTES = 1_048_588  # Kafka's default


def written(writer: Writer) -> int:
    segments = writer.take()
    writer.written(False, segments)
    return len(segments)


def test_failed_writes_of_the_map_do_not_multiply() -> None:
    writer = Writer()
    for i in range(600):
        writer.note(8 * i, 7 * i, 7)
    assert {written(writer) for _ in range(300)} == {1}
    for i in range(600, 2500):
        writer.note(8 * i, 7 * i, 7)
    assert {written(writer) for _ in range(300)} == {3}


def test_a_map_that_could_not_be_written_for_long_goes_out_in_batches_that_brokers_take() -> None:
    copy = MappedCopy()
    copy.claim()
    task = copy.task()
    task.refused = True
    for round_ in range(300):
        task.transactions(200 * round_, 100 * round_, 100)
        task.write()
    assert copy.translate(10_001) is None or copy.translate(10_001) == 0  # positions wait for the map
    task.refused = False
    for _ in range(30):
        task.write()
    assert max(task.batches) < MAX_MESSAGE_BYTES // 2
    assert copy.positions.catch_up()[TP].next_offset == 59_999
    assert [copy.translate(2 * n) for n in (0, 5000, 29_999)] == [0, 5000, 29_999]


def test_what_waits_for_the_map_is_bounded_and_stays_safe() -> None:
    writer = Writer()
    for i in range(200_000):
        writer.note(3 * i, 2 * i, 2)
    waiting = sum(map(len, writer.full)) + len(writer.open)
    assert waiting <= (offsetmap.UNWRITTEN_SEGMENTS + 2) * (offsetmap.SEGMENT_RUNS + 1)
    assert writer.full[0][0] == Span(0, 0, 2)
    assert writer.last == Span(599_997, 399_998, 2)


def test_positions_do_not_pile_up_while_their_topic_has_no_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are copied meanwhile, so there is a newer position every second."""
    model = ModelTask(monkeypatch, [(i * 10, 10) for i in range(50)])
    model.run_calls()
    target, journal = model.task._target, model.task._journal
    with monkeypatch.context() as away:
        away.setattr(target.brokers, "leader", lambda tp: None if tp.topic == "p" else NODE)
        for _ in range(30):
            model.step()
            journal.write()
    assert model.lane.acked.next_offset >= 200, "records go on"
    assert target.notes_waiting == 1
    model.push()
    model.answer_notes()
    assert target.notes_waiting == 1, "the newest position follows the one that waited"
    model.push()
    model.answer_notes()
    assert not journal.unanswered
    assert model.lane.written == model.lane.acked


# ---------------------------------------------------------------- the bound


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_offsets, "TOTAL_RUNS", 2000)
    monkeypatch.setattr(state_offsets, "LEAST_RUNS", 100)
    monkeypatch.setattr(offsetmap, "SEGMENT_RUNS", 50)
    monkeypatch.setattr("heliograph.state.generations.SEGMENT_RUNS", 50)


def held(copy: MappedCopy) -> int:
    partition = copy.offsets._partitions[Subject(TP, copy.topic_id)]
    return sum(len(stored.runs) for stored in partition.stored.values())


def worst(copy: MappedCopy) -> float:
    """How much earlier than its record a group is placed, as a share of how far it is behind."""
    found = [(n, copy.translate(2 * n)) for n in range(0, 29_000, 100)]
    assert all(place is not None and place <= n for n, place in found)
    return max((n - (place or 0)) / (30_000 - n) for n, place in found)


@pytest.mark.usefixtures("small")
def test_the_map_of_a_transactional_topic_is_bounded_in_memory_and_in_its_topic() -> None:
    copy = MappedCopy()
    copy.claim()
    task = copy.task()
    sizes, keys = [], []
    for round_ in range(60):
        task.transactions(1000 * round_, 500 * round_, 500)
        task.write()
        copy.offsets.trim()
        copy.target.compact(MAP)
        sizes.append(copy.target.size(MAP))
        keys.append(len(copy.target.logs[TopicPartition(MAP, 0)]))
        assert held(copy) <= 2000
    assert max(sizes[30:]) < 1.5 * max(sizes[:30])  # it stays, while the topic has grown from 15,000 runs to 30,000
    assert max(keys) < 150
    exact = [copy.translate(2 * n) for n in range(29_000, 30_000)]
    assert exact == list(range(29_000, 30_000))
    assert worst(copy) < 0.03
    copy.open()
    assert [copy.translate(2 * n) for n in range(29_900, 30_000)] == list(range(29_900, 30_000))
    assert worst(copy) < 0.03


@pytest.mark.usefixtures("small")
def test_what_lies_before_the_targets_log_start_is_dropped() -> None:
    copy = MappedCopy()
    copy.claim()
    task = copy.task()
    task.transactions(0, 0, 900)
    for _ in range(3):
        task.write()
    copy.offsets.catch_up()
    assert held(copy) == 900
    copy.target.starts[REMOTE] = 800
    copy.offsets.trim()
    assert held(copy) <= 103
    assert [copy.translate(2 * n) for n in range(800, 900)] == list(range(800, 900))
    assert all((copy.translate(2 * n) or 0) <= 800 for n in range(800))


@pytest.mark.usefixtures("small")
def test_a_map_that_was_rewritten_is_read_by_another_process_that_had_read_it_before() -> None:
    copy = MappedCopy()
    copy.claim()
    reader = state_offsets.OffsetMap(copy.target, copy.offsets._flow)  # type: ignore[arg-type]
    reader.find()
    task = copy.task()
    for round_ in range(20):
        task.transactions(1000 * round_, 500 * round_, 500)
        task.write()
        if round_ % 3 == 0:
            copy.offsets.trim()
        reader.catch_up()
        known = dict(copy.positions.catch_up())
        for n in range(0, 500 * (round_ + 1), 37):
            place = reader.translate(TP, 2 * n, known)
            assert place is not None
            assert place <= n
