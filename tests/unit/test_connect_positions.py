"""Offsets by the API, in a topic kept in memory: what MM2 wrote and what we wrote is shown, altered, forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Literal, Self

import pytest

from heliograph.batch import Record, decode_all, encode
from heliograph.connect import positions
from heliograph.connect.asking import Offsets
from heliograph.mirror.positions import Position, key_of, partition_for
from heliograph.mirror.positions import encode as encode_position
from heliograph.types import Cluster, Flow, TopicPartition

TOPIC = "connect-offsets"
FLOW = Flow(Cluster("us"), Cluster("eu"), label="msc", positions_under=("msc",), positions_topic=TOPIC)
BESIDE = replace(FLOW, label="cpc", copies=False)


@dataclass
class Memory:
    """One topic of three partitions."""

    logs: dict[int, list[Record]] = field(default_factory=lambda: {n: [] for n in range(3)})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def metadata(self, names: Sequence[str]) -> Any:
        return SimpleNamespace(topics={TOPIC: SimpleNamespace(id=None, partitions=dict(self.logs), error=0)})

    def list_offsets(self, tps: Iterable[TopicPartition], *, at: str) -> dict[TopicPartition, int]:
        return {tp: len(self.logs[tp.partition]) for tp in tps}

    def init_producer_ids(self, count: int) -> list[tuple[int, int]]:
        return [(7, 0)] * count

    def produce(self, tp: TopicPartition, batch: bytes) -> None:
        log = self.logs[tp.partition]
        for record, _ in decode_all(batch):
            assert record is not None
            log.append(Record(len(log), record.timestamp, record.key, record.value, ()))

    def fetch(self, tp: TopicPartition, at: int, *, max_bytes: int) -> Any:
        return SimpleNamespace(records=encode(self.logs[tp.partition][at:]))

    def put(self, key: bytes, value: bytes | None) -> None:
        log = self.logs[partition_for(key, 3)]
        log.append(Record(len(log), 0, key, value, ()))

    def last(self, key: bytes) -> bytes | None:
        return [one.value for one in self.logs[partition_for(key, 3)] if one.key == key][-1]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    memory = Memory()
    monkeypatch.setattr(positions, "Client", lambda *_, **__: memory)
    monkeypatch.setattr(positions, "require_free", lambda *_: None)
    return memory


def source_key(partition: int, connector: str = "msc") -> bytes:
    return key_of("us", TopicPartition("t", partition), connector)


def shown(memory: Memory, flow: Flow = FLOW) -> list[tuple[Any, Any]]:
    return [positions.read(flow, TOPIC)[key] for key in sorted(positions.read(flow, TOPIC))]


def change(what: Literal["alter", "reset"], *entries: tuple[dict[str, Any], dict[str, Any] | None]) -> None:
    positions.change(FLOW, TOPIC, Offsets("msc", what, entries))


def test_positions_are_shown_as_mm2_would_have_written_them(memory: Memory) -> None:
    memory.put(source_key(0), b'{"offset":41}')
    memory.put(source_key(1), encode_position(Position(7, 5, 0, 7, target=7)))
    memory.put(source_key(1), encode_position(Position(9, 5, 0, 9, target=9)))
    memory.put(source_key(1), encode_position(Position(8, 5, 0, 8, target=8)))  # a stale writer's
    memory.put(source_key(2), encode_position(Position(0, 6, 0, 0)))  # begun, nothing copied
    memory.put(source_key(0, "other"), b'{"offset":1}')
    memory.put(b'["HeliographProcess",{"cluster":"us"}]', b"{}")
    memory.put(b"nonsense", b"nonsense")
    assert shown(memory) == [
        ({"cluster": "us", "partition": 0, "topic": "t"}, {"offset": 41}),
        ({"cluster": "us", "partition": 1, "topic": "t"}, {"offset": 8}),
    ]


def test_altered_they_begin_a_new_era_under_the_very_bytes_of_connect(memory: Memory) -> None:
    memory.put(source_key(0), encode_position(Position(42, 5, 0, 42, target=42)))
    memory.put(source_key(1), b'{"offset":3}')
    first = {"topic": "t", "partition": 0, "cluster": "us"}
    change("alter", (first, {"offset": 9}), ({**first, "partition": 1}, None))
    assert memory.last(b'["msc",{"cluster":"us","partition":0,"topic":"t"}]') == b'{"offset":9}'
    assert memory.last(source_key(1)) is None
    assert shown(memory) == [({"cluster": "us", "partition": 0, "topic": "t"}, {"offset": 9})]


def test_reset_forgets_its_own_and_nobody_elses(memory: Memory) -> None:
    memory.put(source_key(0), b'{"offset":41}')
    memory.put(source_key(0, "other"), b'{"offset":1}')
    change("reset")
    assert shown(memory) == []
    assert memory.last(source_key(0, "other")) == b'{"offset":1}'


def test_a_checkpoint_connectors_offsets_are_as_they_were_written(memory: Memory) -> None:
    key = b'["cpc",{"partition":0,"topic":"us.t","group":"g"}]'
    memory.put(key, b'{"offset":0}')
    assert shown(memory, BESIDE) == [({"partition": 0, "topic": "us.t", "group": "g"}, {"offset": 0})]
    entry = {"group": "g", "topic": "us.t", "partition": 0}
    positions.change(BESIDE, TOPIC, Offsets("cpc", "alter", ((entry, None),)))
    assert memory.last(key) is None
    assert shown(memory, BESIDE) == []
