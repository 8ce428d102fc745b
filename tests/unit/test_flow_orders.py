"""Orders: which counts for a partition, what resuming takes back, which of two records counts; a helm that obeys."""

from __future__ import annotations

import pytest

from heliograph.batch import Record
from heliograph.errors import Unreachable
from heliograph.flow.helm import Helm
from heliograph.flow.observer import Observer
from heliograph.flow.orders import Orders, _key, _now_ms, _order_of, _scope_of, _value
from heliograph.flow.relay import Relay
from heliograph.flow.tally import Tally
from heliograph.health.status import Order, Scope
from heliograph.health.verdict import Health
from heliograph.mirror.positions import is_for_others, partition_of_key
from heliograph.mirror.protocol import DriverMessage, Halt
from heliograph.survey.topics import Route
from heliograph.types import Cluster, Flow, TopicPartition

FLOW = Flow(Cluster("us"), Cluster("eu"))
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
WHOLE: Scope = (None, None)


def orders() -> Orders:
    return Orders(FLOW, None)  # type: ignore[arg-type]  # reached only by `look` and `write`


def test_the_stricter_and_the_wider_order_counts() -> None:
    known = orders()
    assert known.of(A0) is None
    known.give(("a", 0), "paused", "kim")
    assert (known.of(A0).word, known.of(A1)) == ("paused", None)  # type: ignore[union-attr]
    known.give(("a", None), "stopped", "lee")
    assert [one.by for one in (known.of(A0), known.of(A1)) if one] == ["lee", "lee"]
    known.give(WHOLE, "paused", "max")
    assert known.of(A0).by == "lee"  # type: ignore[union-attr]
    assert known.of(B0).by == "max"  # type: ignore[union-attr]
    assert known.whole is not None
    assert [one.where for one in known.standing] == ["the whole flow", "a", "a-0"]


def test_resuming_takes_back_what_is_inside() -> None:
    known = orders()
    for scope in (("a", 0), ("a", None), ("b", None), WHOLE):
        known.give(scope, "paused", "kim")
    assert {one.where for one in known.give(("a", None), "running", "lee")} == {"a", "a-0"}
    assert [one.where for one in known.standing] == ["the whole flow", "b"]
    assert {one.where for one in known.give(WHOLE, "running", "lee")} == {"the whole flow", "b"}
    assert known.standing == ()
    assert known.whole is None
    assert known.give(WHOLE, "running", "lee") == ()


def test_of_two_records_the_later_counts_whatever_the_clocks_say() -> None:
    known = orders()
    (mine,) = known.give(("a", 0), "paused", "kim")
    late = Order("a", 0, "running", "lee", mine.at_ms + 5_000)
    assert known._take([late])
    assert known.of(A0) is None
    assert not known._take([mine])  # read again, or read late
    assert known.of(A0) is None
    (again,) = known.give(("a", 0), "stopped", "kim")
    assert again.at_ms > late.at_ms


def test_its_key_is_no_position_and_its_value_comes_back() -> None:
    for scope in (WHOLE, ("a", None), ("a", 3)):
        key = _key(FLOW, scope)
        assert partition_of_key(key, "us") is None
        assert is_for_others(key, "us")
        assert _scope_of(key, FLOW) == scope
        order = Order(*scope, "paused", "kim@host", 1_700_000_000_000)
        assert _order_of(scope, _value(order)) == order
    assert order.words == "paused by kim@host since 2023-11-14 22:13:20Z"


@pytest.mark.parametrize(
    "key",
    [
        *(None, b"", b"[]", b"nonsense", b'["HeliographOrder", 3]', b'["HeliographOrder", {"cluster": "us"}]'),
        b'["HeliographOrder",{"cluster":"us","partition":0,"target":"eu","topic":null}]',
        b'["HeliographOrder",{"cluster":"us","partition":true,"target":"eu","topic":"a"}]',
        b'["HeliographOrder",{"cluster":"us","partition":"0","target":"eu","topic":"a"}]',
        _key(Flow(Cluster("us"), Cluster("ap")), WHOLE),
    ],
)
def test_other_keys_are_no_orders(key: bytes | None) -> None:
    assert _scope_of(key, FLOW) is None


@pytest.mark.parametrize(
    "value",
    [
        *(None, b"", b"[]", b"3", b'{"word": "paused"}', b'{"word": "asleep", "by": "x", "at": 1}'),
        *(b'{"word": "paused", "by": "x", "at": 1e300}', b'{"word": "paused", "by": "x", "at": -1}'),
    ],
)
def test_other_values_are_no_orders(value: bytes | None) -> None:
    assert _order_of(WHOLE, value) is None


class Topic:
    """The partition of orders, in memory."""

    partitions = 1

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.read_to = 0

    def append(self, partition: int, pairs: list[tuple[bytes, bytes | None]]) -> None:
        self.records += [Record(len(self.records) + n, 0, key, value, ()) for n, (key, value) in enumerate(pairs)]

    def news(self, partition: int) -> list[tuple[int, Record]]:
        begin, self.read_to = self.read_to, len(self.records)
        return [(0, record) for record in self.records[begin:]]

    def give(self, order: Order) -> None:
        """By another process."""
        self.append(0, [(_key(FLOW, order.scope), _value(order))])


def written(topic: Topic) -> Orders:
    known = orders()
    known._log = topic  # type: ignore[assignment]
    return known


@pytest.mark.parametrize("ahead_ms", [3_600_000, -3_600_000])
def test_an_order_stands_before_an_earlier_one_of_a_clock_that_is_off(ahead_ms: int) -> None:
    topic = Topic()
    mine = written(topic)
    topic.give(Order("a", 0, "running", "lee", _now_ms() + ahead_ms))  # not read yet when kim pauses
    mine.write(mine.give(("a", 0), "paused", "kim"))
    reader = written(topic)
    topic.read_to = 0
    reader.look()
    for one in (mine, reader):
        assert one.of(A0) is not None
        assert one.of(A0).by == "kim"  # type: ignore[union-attr]


@pytest.mark.parametrize("ahead_ms", [3_600_000, -3_600_000])
def test_a_process_that_slept_before_it_wrote_an_order_does_not_undo_a_later_one(ahead_ms: int) -> None:
    topic = Topic()
    mine = written(topic)
    given = mine.give(("a", 0), "running", "kim") or mine.give(("a", 0), "paused", "kim")
    mine._given_at -= 60  # frozen
    theirs = Order("a", 0, "stopped", "lee", given[0].at_ms + ahead_ms)
    topic.give(theirs)
    mine.write(given)
    assert mine.of(A0) == theirs
    assert len(topic.records) == 1


class Heard:
    def __init__(self) -> None:
        self.words: list[str] = []
        self.halted: list[tuple[str, int]] = []

    def send(self, message: DriverMessage) -> None:
        self.words.append(str(type(message).__struct_config__.tag))
        if isinstance(message, Halt):
            self.halted = message.partitions


class Unwritable(Orders):
    def write(self, given: object) -> None:
        raise Unreachable("no broker at eu:1")


class Deck:
    """A helm of three partitions, one task connected."""

    def __init__(self, known: Orders | None = None) -> None:
        self.orders = known or Written(FLOW, None)  # type: ignore[arg-type]
        self.relay, self.task = Relay(), Heard()
        self.relay.turn_to(1, 1)
        self.relay.joined((1, 0, 0), self.task)
        self.now = 100.0
        self.observer = Observer(Tally(), clock=lambda: self.now, order_of=self.orders.of)
        self.observer.copy({tp: tp for tp in (A0, A1, B0)})
        self.planned, self.replans = {A0, A1, B0}, 0
        self.helm = Helm(
            *("us->eu", self.orders, self.relay, self.observer),
            partitions=lambda: [A0, A1, B0],
            planned=lambda: self.planned,
            replan=self.replan,
        )

    def replan(self) -> None:
        self.replans += 1

    def health(self, tp: TopicPartition) -> Health:
        return self.observer.verdicts()[tp].health


class Written(Orders):
    def write(self, given: object) -> None: ...


def test_tasks_are_told_at_once_and_no_epoch_ends() -> None:
    deck = Deck()
    done = deck.helm.steer(("a", 1), "paused", "kim")
    assert (deck.task.words, deck.task.halted, done.partitions) == (["halt"], [A1], 1)
    assert (deck.health(A1), deck.health(B0)) == (Health.PAUSED, Health.STARTING)
    deck.now += 60
    deck.helm.steer(("a", 1), "running", "kim")
    assert (deck.task.words, deck.task.halted, deck.replans) == (["halt", "halt"], [], 0)
    assert deck.health(A1) is Health.STARTING  # what it owes is counted from now, it is not stalled
    assert deck.health(B0) is Health.STALLED


def test_what_is_stopped_is_planned_no_more_and_coming_back_takes_a_plan() -> None:
    deck = Deck()
    routes = [Route(tp, None, tp, 1) for tp in (A0, A1, B0)]
    deck.helm.steer(("a", None), "stopped", "kim")
    assert [r.tp for r in deck.helm.plannable(routes)] == [B0]
    deck.helm.steer(("a", 0), "running", "kim")
    assert deck.helm.steer(("a", 0), "running", "kim").standing[0].where == "a"  # said: still held back
    deck.planned = {B0}  # the next epoch
    deck.helm.steer(("a", None), "running", "kim")
    assert deck.replans == 1
    assert deck.task.words[-1] == "halt"
    assert "finish" not in deck.task.words


def test_a_task_that_is_tried_again_hears_that_nothing_is_halted_any_more() -> None:
    deck, new, again = Deck(), Heard(), Heard()
    deck.helm.joined(new)
    assert new.words == []
    deck.helm.steer(("a", 1), "paused", "kim")
    deck.helm.steer(("a", 1), "running", "kim")
    deck.helm.joined(again)
    assert (again.words, again.halted) == (["halt"], [])


def test_a_flow_that_is_stopped_ends_its_tasks_and_those_that_come() -> None:
    deck, late = Deck(), Heard()
    deck.helm.steer(WHOLE, "stopped", "kim")
    deck.helm.joined(late)
    assert deck.task.words == ["halt", "finish"]
    assert late.words == ["halt", "finish"]
    assert deck.helm.plannable([Route(A0, None, A0, 1)]) == ()
    deck.relay.left((1, 0, 0), deck.task)
    deck.helm.steer(WHOLE, "running", "kim")
    assert deck.replans == 1


def test_an_order_that_cannot_be_written_counts_and_says_so() -> None:
    deck = Deck(Unwritable(FLOW, None))  # type: ignore[arg-type]
    done = deck.helm.steer(WHOLE, "paused", "kim")
    assert "a restart will not know of it: no broker at eu:1" in done.unwritten
    assert deck.task.halted == [A0, A1, B0]
