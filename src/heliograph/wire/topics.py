"""Topics as an administrator sees them: create, grow, describe, alter, delete.

Answers for the shape of these calls and a result per topic; a failure of one topic is a value, not an exception.
Sending, retrying and finding the controller is the client's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from heliograph.errors import BrokerError
from heliograph.wire import codes, placement
from heliograph.wire.calls import Calls

T = TypeVar("T")

_TOPIC_RESOURCE = 2
_SET, _DELETE = 0, 1  # IncrementalAlterConfigs
# KRaft's controller writes a record for every topic, partition and setting, and refuses a request that makes 10,000.
_RECORDS_AT_ONCE = 5_000
# Topics in one question for settings: some 35 each, so that an answer has a megabyte or two.
_DESCRIBED_AT_ONCE = 500
_OF_THE_TOPIC = 1
# Kafka's names for where a config value comes from (ConfigSource).
_SOURCES = {
    _OF_THE_TOPIC: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "CLIENT_METRICS_CONFIG",
    8: "GROUP_CONFIG",
}


_MIN_INSYNC = "min.insync.replicas"
# Topics of one factor that are validated to learn whether it fits: one answer tells, unless the topic exists already.
_ASKED_FIRST = 20
_UNITS_MS = {".minutes": 60_000, ".hours": 3_600_000}


@dataclass(frozen=True, slots=True)
class NewTopic:
    """-1 for partitions or replication_factor: the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    lowerable: bool = False  # where the cluster has fewer brokers than replication_factor: as many replicas as brokers


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    value: str | None  # None: a secret, or not set
    source: str  # ConfigSource of Kafka: DYNAMIC_TOPIC_CONFIG, DEFAULT_CONFIG …
    read_only: bool
    sensitive: bool
    inherited: str | None = None  # what would hold without a value of the topic's own, if that was asked for

    @property
    def is_default(self) -> bool:
        """Not set on the topic itself."""
        return self.source != "DYNAMIC_TOPIC_CONFIG"


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A topic as it would be made: with what it was asked to have, and the broker's defaults."""

    partitions: int
    replication_factor: int
    configs: Mapping[str, ConfigEntry] | None  # None: we may not see them


def create(
    client: Calls, specs: Sequence[NewTopic], *, validate_only: bool, timeout_s: float
) -> dict[str, BrokerError | None]:
    results: dict[str, BrokerError | None] = {}
    specs = fitted(client, specs, timeout_s=timeout_s)
    for answer in _creations(client, specs, validate_only, timeout_s):
        results.update(_results(client, answer.topics))
    judged = _judged(client, specs, {name: error for name, error in results.items() if error is not None}, timeout_s)
    return results | judged


def foresee(client: Calls, specs: Sequence[NewTopic], *, timeout_s: float) -> dict[str, Foreseen | BrokerError]:
    """What `create` would make, or why not. Nothing is made."""
    specs = fitted(client, specs, timeout_s=timeout_s)
    found = _foreseen(client, specs, timeout_s)
    errors = {name: one for name, one in found.items() if isinstance(one, BrokerError)}
    return found | _judged(client, specs, errors, timeout_s)


def _judged(
    client: Calls, specs: Sequence[NewTopic], errors: Mapping[str, BrokerError], timeout_s: float
) -> dict[str, BrokerError]:
    """Of these errors: a replication factor that the cluster would hold if all its brokers were up. Clusters with
    ZooKeeper place replicas on live brokers only. Nothing is wrong with the factor, and trying again helps."""
    short = {spec.name: spec for spec in specs if spec.name in errors and spec.replication_factor > 0}
    short = {name: spec for name, spec in short.items() if errors[name].code == codes.INVALID_REPLICATION_FACTOR}
    if not short:
        return {}
    most = max(spec.replication_factor for spec in short.values())
    brokers = placement.registered(client, at_least=most, timeout_s=timeout_s)
    return {
        name: placement.brokers_away(client, name, spec.replication_factor, brokers)
        for name, spec in short.items()
        if spec.replication_factor <= len(brokers)
    }


def fitted(client: Calls, specs: Sequence[NewTopic], *, timeout_s: float) -> list[NewTopic]:
    """As the cluster can hold them: a default factor no larger than the number of registered brokers, and
    min.insync.replicas no larger than the factor (with acks=all nothing could be appended). The controller judges
    factors, which knows of brokers that are registered and fenced."""
    alike: dict[tuple[int, bool], list[NewTopic]] = {}
    for spec in specs:
        alike.setdefault((spec.replication_factor, spec.lowerable), []).append(spec)
    done: dict[str, NewTopic] = {}
    for (factor, lowerable), group in alike.items():
        if factor > 0:
            asked = group[:_ASKED_FIRST]
            found = _foreseen(client, asked, timeout_s).values()
            if lowerable and any(_is_too_high(one) for one in found):
                brokers = placement.registered(client, at_least=factor, timeout_s=timeout_s)
                factor = min(factor, max(len(brokers), 1))
                found = _foreseen(
                    client, [replace(one, replication_factor=factor) for one in asked], timeout_s
                ).values()
            configs = _insync(found, factor)
            group = [replace(one, replication_factor=factor, configs={**one.configs, **configs}) for one in group]
        done |= {spec.name: spec for spec in group}
    return [done[spec.name] for spec in specs]


def _is_too_high(found: Foreseen | BrokerError) -> bool:
    return isinstance(found, BrokerError) and found.code == codes.INVALID_REPLICATION_FACTOR


def _insync(found: Iterable[Foreseen | BrokerError], factor: int) -> dict[str, str]:
    """What new topics need so that min.insync.replicas does not exceed their factor."""
    for one in found:
        if isinstance(one, Foreseen) and one.configs is not None and _MIN_INSYNC in one.configs:
            value = one.configs[_MIN_INSYNC].value or ""
            return {_MIN_INSYNC: str(factor)} if value.isdigit() and int(value) > factor else {}
    return {}


def _foreseen(client: Calls, specs: Sequence[NewTopic], timeout_s: float) -> dict[str, Foreseen | BrokerError]:
    wanted = {spec.name: spec for spec in specs}
    found: dict[str, Foreseen | BrokerError] = {}
    for answer in _creations(client, specs, True, timeout_s):
        problems = _results(client, answer.topics)
        for topic in answer.topics:
            name = str(topic.name)
            spec = wanted[name]
            found[name] = problems[name] or Foreseen(
                max(int(getattr(topic, "num_partitions", -1)), spec.partitions),
                max(int(getattr(topic, "replication_factor", -1)), spec.replication_factor),
                _foreseen_configs(topic),
            )
    return found


def _foreseen_configs(topic: Any) -> dict[str, ConfigEntry] | None:
    configs = getattr(topic, "configs", None)
    if configs is None:
        return None
    entries = {}
    for one in configs:
        source = int(one.config_source)
        inherited = None if source == _OF_THE_TOPIC else one.value
        name = _SOURCES.get(source, f"SOURCE_{source}")
        entries[str(one.name)] = ConfigEntry(one.value, name, bool(one.read_only), bool(one.is_sensitive), inherited)
    return entries


def _creations(client: Calls, specs: Sequence[NewTopic], validate_only: bool, timeout_s: float) -> Iterator[Any]:
    for some in _portions((spec, 1 + max(spec.partitions, 1) + len(spec.configs)) for spec in specs):
        yield client.call_controller(
            "create_topics",
            timeout_s=timeout_s,
            topics=[
                {
                    "name": spec.name,
                    "num_partitions": spec.partitions,
                    "replication_factor": spec.replication_factor,
                    "configs": [{"name": key, "value": value} for key, value in spec.configs.items()],
                }
                for spec in some
            ],
            timeout=int(timeout_s * 1000),
            validate_only=validate_only,
        )


def _portions(items: Iterable[tuple[T, int]]) -> Iterator[list[T]]:
    """Each item comes with the records it makes; a portion makes no more than the controller takes at once."""
    portion: list[T] = []
    records = 0
    for item, its in items:
        if portion and records + its > _RECORDS_AT_ONCE:
            yield portion
            portion, records = [], 0
        portion.append(item)
        records += its
    if portion:
        yield portion


def grow(
    client: Calls, counts: Mapping[str, int], *, validate_only: bool, timeout_s: float
) -> dict[str, BrokerError | None]:
    """To so many partitions each. How many a topic has is not known here: it is taken to have none."""
    results: dict[str, BrokerError | None] = {}
    for some in _portions(((name, count), count) for name, count in counts.items()):
        answer = client.call_controller(
            "create_partitions",
            timeout_s=timeout_s,
            topics=[{"name": name, "count": count, "assignments": None} for name, count in some],
            timeout=int(timeout_s * 1000),
            validate_only=validate_only,
        )
        results.update(_results(client, answer.results))
    return results


def delete(client: Calls, names: Iterable[str], *, timeout_s: float) -> dict[str, BrokerError | None]:
    names = list(names)
    if not names:
        return {}
    answer = client.call_controller(
        "delete_topics",
        timeout_s=timeout_s,
        topics=[{"name": name} for name in names],  # from v6
        topic_names=names,  # until v5
        timeout=int(timeout_s * 1000),
    )
    return _results(client, answer.responses)


def describe_configs(
    client: Calls, names: Iterable[str], *, inherited: bool, timeout_s: float
) -> dict[str, dict[str, ConfigEntry] | BrokerError]:
    names = list(names)
    described: dict[str, dict[str, ConfigEntry] | BrokerError] = {}
    for start in range(0, len(names), _DESCRIBED_AT_ONCE):
        answer = client.call(
            "describe_configs",
            timeout_s=timeout_s,
            resources=[
                {"resource_type": _TOPIC_RESOURCE, "resource_name": name, "configuration_keys": None}
                for name in names[start : start + _DESCRIBED_AT_ONCE]
            ],
            include_synonyms=inherited,
        )
        for result in answer.results:
            name, code = str(result.resource_name), int(result.error_code)
            if code:
                described[name] = codes.broker_error(code, result.error_message, cluster=client.alias, topic=name)
            else:
                described[name] = {str(entry.name): _entry(entry) for entry in result.configs}
    return described


def alter_configs(
    client: Calls, changes: Mapping[str, Mapping[str, str | None]], *, validate_only: bool = False, timeout_s: float
) -> dict[str, BrokerError | None]:
    if not changes:
        return {}
    answer = client.call(
        "incremental_alter_configs",
        controller=True,
        timeout_s=timeout_s,
        resources=[
            {
                "resource_type": _TOPIC_RESOURCE,
                "resource_name": name,
                "configs": [
                    {"name": key, "config_operation": _DELETE if value is None else _SET, "value": value}
                    for key, value in configs.items()
                ],
            }
            for name, configs in changes.items()
        ],
        validate_only=validate_only,
    )
    results: dict[str, BrokerError | None] = {}
    for result in answer.responses:
        name, code = str(result.resource_name), int(result.error_code)
        message = result.error_message
        results[name] = codes.broker_error(code, message, cluster=client.alias, topic=name) if code else None
    return results


def _entry(entry: Any) -> ConfigEntry:
    source = int(entry.config_source)
    return ConfigEntry(
        entry.value,
        _SOURCES.get(source, f"SOURCE_{source}"),
        bool(entry.read_only),
        bool(entry.is_sensitive),
        _inherited(entry) if source == _OF_THE_TOPIC else entry.value,
    )


def _inherited(entry: Any) -> str | None:
    """What the topic would have without a value of its own, in the topic's unit.

    Synonyms are broker settings in the order in which they win, and some are in other units: `retention.ms` is
    `log.retention.ms`, which is null unless set, then `log.retention.minutes`, then `log.retention.hours`. Brokers of
    Kafka 4.x leave out the latter two if the first is not set: then it is not known here.
    """
    others = [each for each in entry.synonyms if int(each.source) != _OF_THE_TOPIC and each.value is not None]
    others.sort(key=lambda each: _unit_ms(str(each.name)))  # stable: a smaller unit wins, wherever it is set
    if not others:
        return None
    value, unit_ms = str(others[0].value), _unit_ms(str(others[0].name))
    if unit_ms == 1 or value == "-1" or not value.isascii() or not value.isdigit():
        return value
    return str(int(value) * unit_ms)


def _unit_ms(name: str) -> int:
    return next((ms for ending, ms in _UNITS_MS.items() if name.endswith(ending)), 1)


def _results(client: Calls, results: Iterable[Any]) -> dict[str, BrokerError | None]:
    found: dict[str, BrokerError | None] = {}
    for result in results:
        name, code = str(result.name), int(result.error_code)
        message = getattr(result, "error_message", "")
        found[name] = codes.broker_error(code, message, cluster=client.alias, topic=name) if code else None
    return found
