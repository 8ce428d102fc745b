"""How much is to be copied: by the size of the logs, by one read where that may not be asked, or not to be learnt."""

from __future__ import annotations

from typing import Any

from heliograph.batch import Record, encode
from heliograph.cli.plan import NOTHING, SOMETHING, WRONG, _code, _lines
from heliograph.errors import BrokerError, ConfigError
from heliograph.review.forecast import Begin, FlowForecast
from heliograph.review.rehearsal import Deed
from heliograph.review.volume import Copy, copies
from heliograph.survey.starts import Bounds
from heliograph.types import TopicPartition
from heliograph.wire.codes import CLUSTER_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, broker_error

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
LOGS = {FIRST: Bounds(100, 300), SECOND: Bounds(0, 50)}
BATCH = encode([Record(n, 0, b"k", b"v" * 100) for n in range(10)])


class Source:
    def __init__(self, sizes: dict[TopicPartition, int | BrokerError], *, readable: bool = True) -> None:
        self.sizes, self.readable = sizes, readable

    def log_sizes(self, tps: list[TopicPartition]) -> dict[TopicPartition, int | BrokerError]:
        return {tp: self.sizes[tp] for tp in tps}

    def fetch(self, tp: TopicPartition, offset: int, *, max_bytes: int) -> Any:
        if not self.readable:
            raise broker_error(TOPIC_AUTHORIZATION_FAILED, topic=tp.topic)

        class Fetched:
            records = BATCH

        return Fetched


def volume(source: Any, left: dict[TopicPartition, int]) -> Copy:
    (copy,) = copies(source, left, LOGS, {"orders": "us.orders"})
    return copy


def test_the_share_of_the_logs_that_is_left() -> None:
    found = volume(Source({FIRST: 20_000, SECOND: 999}), {FIRST: 50, SECOND: 0})
    assert found == Copy("orders", "us.orders", 2, 50, 5000, "by the size of the logs")


def test_one_read_where_sizes_may_not_be_asked_and_nothing_where_that_may_not_be_either() -> None:
    refused = broker_error(CLUSTER_AUTHORIZATION_FAILED)
    found = volume(Source({FIRST: refused, SECOND: refused}), {FIRST: 100, SECOND: 0})
    assert (found.bytes, found.measured) == (len(BATCH) * 10, "estimated from one read of each partition")
    blind = volume(Source({FIRST: refused, SECOND: refused}, readable=False), {FIRST: 100, SECOND: 0})
    assert (blind.bytes, blind.measured) == (None, "not to be learnt")


def test_the_exit_code_tells_whether_anything_would_change() -> None:
    waiting = FlowForecast("us->eu", copies=[Copy("orders", "us.orders", 1, 9, 900, "by the size of the logs")])
    assert _code([waiting], []) == NOTHING  # records behind a position change nothing
    assert _code([FlowForecast("us->eu", begins=[Begin(FIRST, 0, "earliest")])], []) == SOMETHING
    assert _code([waiting, FlowForecast("eu->us", [Deed("us", "create topic", "heartbeats", 1)])], []) == SOMETHING
    assert _code([FlowForecast("us->eu", errors=[ConfigError("no")])], []) == WRONG


def test_a_plan_in_words() -> None:
    deeds = [
        Deed("eu", "create topic", "us.orders", 3, 0, 2, {"cleanup.policy": "compact"}),
        Deed("eu", "add partitions", "us.more", 4, 2),
        Deed("eu", "alter settings", "us.more", settings={"retention.ms": None}, settings_now={"retention.ms": "7"}),
    ]
    begins = [Begin(FIRST, 10, "earliest"), Begin(SECOND, 20, "earliest")]
    total = {"records": 5, "bytes": 500, "bytes_per_second": None, "rate": None, "seconds": None}
    words = list(_lines([FlowForecast("us->eu", deeds, begins)], {"us->eu": total}, []))
    assert words[1:] == [
        "  create topic us.orders in eu: 3 partitions, 2 replicas, cleanup.policy=compact",
        "  add partitions to us.more in eu: 2 become 4",
        "  alter settings of us.more in eu: retention.ms 7 becomes the default",
        "  begin orders, 2 partitions, at 10 to 20: earliest",
        "  in all: 5 records, 0.0 MB",
    ]
