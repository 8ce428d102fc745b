"""What a topic would have without a setting of its own, from the synonyms that a broker names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliograph.wire import ConfigEntry
from heliograph.wire.calls import Calls
from heliograph.wire.topics import describe_configs

TOPIC, DYNAMIC_BROKER, STATIC, DEFAULT = 1, 2, 4, 5


class FakeCalls:
    """Answers DescribeConfigs with one setting of one topic."""

    alias = "eu"

    def __init__(self, name: str, value: str, source: int, *synonyms: tuple[str, str | None, int]) -> None:
        found = [SimpleNamespace(name=n, value=v, source=s) for n, v, s in synonyms]
        entry = SimpleNamespace(
            name=name, value=value, config_source=source, read_only=False, is_sensitive=False, synonyms=found
        )
        result = SimpleNamespace(resource_name="t", error_code=0, configs=[entry])
        self._answer = SimpleNamespace(results=[result])

    def call(self, api: str, **_: Any) -> Any:
        assert api == "describe_configs"
        return self._answer


def described(name: str, value: str, source: int, *synonyms: tuple[str, str | None, int]) -> ConfigEntry:
    client = cast(Calls, FakeCalls(name, value, source, *synonyms))
    found = describe_configs(client, ["t"], inherited=True, timeout_s=1)["t"]
    assert isinstance(found, dict)
    return found[name]


MS, MINUTES, HOURS = "log.retention.ms", "log.retention.minutes", "log.retention.hours"
OWN = ("retention.ms", "-1", TOPIC)
DEFAULTS = ((MS, None, DEFAULT), (MINUTES, None, DEFAULT), (HOURS, "168", DEFAULT))


@pytest.mark.parametrize(
    ("synonyms", "inherited"),
    [
        (DEFAULTS, "604800000"),  # as a broker with no setting of its own has it
        (((HOURS, "24", STATIC), *DEFAULTS), "86400000"),
        (((HOURS, "-1", STATIC), *DEFAULTS), "-1"),
        (((MINUTES, "5", STATIC), (HOURS, "24", STATIC), *DEFAULTS), "300000"),
        (((MS, "7", DYNAMIC_BROKER), (HOURS, "24", STATIC), *DEFAULTS), "7"),
        (((HOURS, "1", DYNAMIC_BROKER), (MS, "7", STATIC), *DEFAULTS), "7"),  # Kafka takes the smaller unit
        ((), None),
    ],
)
def test_the_default_of_retention_in_milliseconds(
    synonyms: tuple[tuple[str, str | None, int], ...], inherited: str | None
) -> None:
    """0.1 took the first synonym: null for most brokers, hours for others."""
    assert described(*OWN, OWN, *synonyms).inherited == inherited


def test_a_setting_that_is_not_the_topics_own_is_what_it_inherits() -> None:
    assert described("retention.ms", "604800000", DEFAULT, *DEFAULTS).inherited == "604800000"
    synonyms = (("min.insync.replicas", "2", TOPIC), ("min.insync.replicas", "1", DEFAULT))
    assert described("min.insync.replicas", "2", TOPIC, *synonyms).inherited == "1"
