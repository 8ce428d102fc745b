"""The positions topic under a coordinator: what it knows is what the topic says, and what the topic has lost is written
again before it is forgotten, since a partition without its position is copied twice."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from structlog.typing import EventDict

from heliograph.batch import Record
from heliograph.errors import BrokerError
from heliograph.mirror import positions
from heliograph.mirror.positions import Position
from heliograph.state.positions import PositionsLog, Wanted
from heliograph.topiclog import reader
from heliograph.types import Cluster, Flow, TopicPartition
from tests.unit.brokers import Brokers

FLOW = Flow(Cluster("a"), Cluster("b"), offset_storage_partitions=1)
TOPIC = TopicPartition("mm2-offsets.a.internal", 0)
ONE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
ID = UUID(int=7)


@pytest.fixture
def brokers() -> Any:
    return Brokers(**{"mm2-offsets.a.internal": 1})


def known_to(brokers: Any) -> PositionsLog:
    log = PositionsLog(brokers, FLOW)
    log.find()
    log.catch_up()
    return log


def at(offset: int, producer_id: int = 9) -> Position:
    return Position(offset, producer_id, 0, offset, ID, offset)


def put(brokers: Any, tp: TopicPartition, value: bytes | None) -> None:
    brokers.append(TOPIC, Record(0, 0, positions.key_of("a", tp), value))


def test_a_process_that_starts_while_a_new_leader_lags_knows_every_position(brokers: Any) -> None:
    known_to(brokers).write({ONE: at(100)})
    brokers.logs[TOPIC].lag = [0]
    assert known_to(brokers).known == {ONE: at(100)}, "otherwise it would claim anew, and copy everything twice"


def test_what_a_recreated_topic_has_lost_is_written_again(brokers: Any, logs: list[EventDict]) -> None:
    log = known_to(brokers)
    log.write({ONE: at(100), OTHER: Position(5)})
    log.catch_up()
    brokers.make(TOPIC.topic)
    put(brokers, OTHER, positions.encode(at(300)))  # a task wrote the next one of this partition meanwhile
    assert log.catch_up() == {ONE: at(100), OTHER: at(300)}
    assert known_to(brokers).known == {ONE: at(100), OTHER: at(300)}, "who starts now knows as much"
    (line,) = [line for line in logs if "written again" in line["event"]]
    assert (line["topic"], line["partitions"]) == (TOPIC.topic, 1)


def test_a_claim_in_a_lost_tail_is_not_claimed_anew(brokers: Any) -> None:
    put(brokers, ONE, b'{"offset":41}')  # MM2's
    log = known_to(brokers)
    log.claim({ONE: Wanted((42,), ID, (42,))})
    mine = log.known[ONE]
    assert mine.claimed
    brokers.truncate(TOPIC, 1)
    assert log.catch_up() == {ONE: mine}
    assert known_to(brokers).known == {ONE: mine}


def test_a_later_era_in_a_lost_tail_comes_back_with_its_beginning(brokers: Any) -> None:
    log = known_to(brokers)
    log.write({ONE: at(100, producer_id=1)})
    log.write({ONE: Position(10)})
    log.write({ONE: at(20, producer_id=2)})
    log.catch_up()
    brokers.truncate(TOPIC, 1)
    assert log.catch_up() == {ONE: at(20, producer_id=2)}
    assert known_to(brokers).known == {ONE: at(20, producer_id=2)}


@pytest.mark.parametrize("said", [b'{"offset":6}', None], ids=["set", "reset"])
def test_what_an_operator_said_after_the_loss_stands(brokers: Any, said: bytes | None) -> None:
    log = known_to(brokers)
    log.write({ONE: at(50)})
    log.write({ONE: at(100)})
    log.catch_up()
    brokers.truncate(TOPIC, 1)
    put(brokers, ONE, said)
    expected = {} if said is None else {ONE: Position(7)}
    assert log.catch_up() == expected
    assert known_to(brokers).known == expected


def test_an_older_position_of_the_same_producer_id_needs_no_repair(brokers: Any) -> None:
    log = known_to(brokers)
    log.write({ONE: at(50)})
    log.write({ONE: at(100)})
    log.catch_up()
    brokers.truncate(TOPIC, 1)
    sent = brokers.sent
    assert log.catch_up() == {ONE: at(50)}
    assert brokers.sent == sent


def test_the_old_positions_stay_until_the_new_read_is_complete(brokers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "WAIT_S", 0.0)
    log = known_to(brokers)
    log.write({ONE: at(100), OTHER: at(200)})
    log.catch_up()
    brokers.make(TOPIC.topic)
    put(brokers, ONE, positions.encode(at(110)))
    put(brokers, OTHER, positions.encode(at(210)))
    brokers.logs[TOPIC].lag = [1, 1]
    with pytest.raises(BrokerError, match="OFFSET_NOT_AVAILABLE"):
        log.catch_up()
    assert log.known == {ONE: at(100), OTHER: at(200)}
    assert log.catch_up() == {ONE: at(110), OTHER: at(210)}


def test_strangers_that_were_named_are_not_named_again_after_a_lost_tail(brokers: Any, logs: list[EventDict]) -> None:
    brokers.append(TOPIC, Record(0, 0, b"nonsense", b"v"))
    put(brokers, ONE, b'{"offset":1}')
    log = known_to(brokers)
    brokers.truncate(TOPIC, 1)
    brokers.append(TOPIC, Record(0, 0, b"more nonsense", b"v"))
    log.catch_up()
    named = [line["offsets"] for line in logs if line["event"].startswith("records that are not ours")]
    assert named == ["0", "1"]
