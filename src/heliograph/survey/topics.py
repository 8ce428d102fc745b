"""Which topics a flow copies, and the remote topics they need: made before their data comes.

Reads both clusters' metadata, applies the policy, creates what is missing with the source's partition count and
settings, and adds partitions where the source has more. A remote topic with more partitions is left as it is; what
cannot be made is parked, with the reason. With the identity policy the target's topic of that name is the remote topic.
Where the file chooses the number of partitions, `survey.division` says what follows from it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

import structlog

from heliograph import policy
from heliograph.errors import BrokerError
from heliograph.health.status import ParkedPartition
from heliograph.mirror.assignment import Stage
from heliograph.mirror.positions import Position
from heliograph.survey import division
from heliograph.survey.division import Misfit, Shape
from heliograph.sync.configs import ConfigSync, Entries, creation_configs, needs_durability
from heliograph.types import COPIES_FACTOR, Flow, TopicPartition
from heliograph.wire import Client, NewTopic, TopicMeta
from heliograph.wire.codes import INVALID_PARTITIONS, TOPIC_ALREADY_EXISTS, TOPIC_AUTHORIZATION_FAILED

log = structlog.get_logger()

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")  # a pattern that is no pattern but a name
APPEAR_S = 15.0  # a created topic is in every broker's metadata well before this


@dataclass(frozen=True, slots=True)
class Route:
    """A source partition that can be copied, and where to."""

    tp: TopicPartition
    topic_id: UUID | None
    remote: TopicPartition  # of a divided topic: the first of the strands
    max_batch_bytes: int
    strands: tuple[TopicPartition, ...] = ()  # of a divided topic: all remote partitions, in order
    stages: tuple[Stage, ...] = ()  # what is done to the records of each strand (`survey.stages`)
    limits: tuple[int, ...] = ()  # with stages: the max_batch_bytes of each strand

    @property
    def remotes(self) -> tuple[TopicPartition, ...]:
        return self.strands or (self.remote,)


@dataclass(frozen=True, slots=True)
class Survey:
    routes: tuple[Route, ...] = ()
    parked: tuple[ParkedPartition, ...] = ()
    topics: int = 0
    awaited: int = 0  # topics that are about to be there: looked for soon again


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a remote topic is not as it should be."""

    reason: str
    fix: str


Withhold = Callable[[Mapping[str, TopicMeta], Mapping[str, str]], dict[str, Trouble]]  # by source topic


class Topics:
    def __init__(
        self,
        flow: Flow,
        source: Client,
        target: Client,
        *,
        withhold: Withhold = lambda missing, remote_of: {},
        known: Callable[[], Mapping[TopicPartition, Position]] = dict,
    ) -> None:
        """`withhold` says which remote topics are not to be made although they are missing, and why; `known` what
        positions there are."""
        self.flow = flow
        self._withhold, self._known = withhold, known
        self._source, self._target = source, target
        self._limits: dict[str, int] = {}  # max.message.bytes of remote topics
        self._configs = ConfigSync(flow, source, target, altered=self.forget_limits)
        self._said: set[tuple[str, str]] = set()

    def change(self, flow: Flow) -> None:
        """The next survey goes by this."""
        self.flow = flow
        self._configs = ConfigSync(flow, self._source, self._target, altered=self.forget_limits)

    def survey(self) -> Survey:
        """What can be copied now. Creates remote topics that are missing, and adds the partitions they lack."""
        wanted, hidden, awaited = self._wanted()
        remote_of = {name: policy.remote_topic(self.flow, name) for name in wanted}
        there = self._target.metadata(sorted(remote_of.values())).topics if remote_of else {}
        shapes, misfits = self._shapes(wanted, there, remote_of)
        uncreated, ungrown = self._make_room({name: wanted[name] for name in shapes}, remote_of, there, shapes)
        uncreated |= misfits
        self._learn_limits([name for name, topic in there.items() if topic.partitions])
        routes: list[Route] = []
        parked = [_hidden(name) for name in hidden]
        for name, topic in sorted(wanted.items()):
            remote = remote_of[name]
            if name in uncreated:
                parked.append(ParkedPartition(name, None, uncreated[name].reason, uncreated[name].fix))
            else:
                self._route(topic, remote, there.get(remote), ungrown.get(remote), shapes[name], routes, parked)
        return Survey(tuple(routes), tuple(parked), len(wanted) + len(hidden), awaited)

    def wish(self, tp: TopicPartition, origins: Iterable[TopicPartition]) -> bool:
        """Records of this partition came from elsewhere, and there is no place for them yet; whether that is news. Here
        no record comes from elsewhere."""
        return False

    def forget_limits(self, remotes: Iterable[str] | None = None) -> None:
        """The next survey reads the max.message.bytes of these (None: all) again."""
        for name in list(self._limits) if remotes is None else remotes:
            self._limits.pop(name, None)

    def _wanted(self) -> tuple[dict[str, TopicMeta], list[str], int]:
        """Topics to copy; those the file names outright that the source will not show us; how many are awaited."""
        topics = self._source.metadata(None).topics
        named = [name for name in self.flow.topics if TOPIC_NAME.fullmatch(name) and name not in topics]
        asked = self._source.metadata(named).topics if named else {}
        hidden = [name for name, topic in asked.items() if topic.error == TOPIC_AUTHORIZATION_FAILED]
        wanted = {
            name: topic
            for name, topic in topics.items()
            if not topic.internal and topic.partitions and policy.should_replicate(self.flow, name)
        }
        return wanted, hidden, sum(name not in topics for name in self.flow.awaits)

    @staticmethod
    def _absent(topic: TopicMeta | None) -> bool:
        return topic is None or (not topic.partitions and topic.error != TOPIC_AUTHORIZATION_FAILED)

    def _shapes(
        self, wanted: Mapping[str, TopicMeta], there: Mapping[str, TopicMeta], remote_of: Mapping[str, str]
    ) -> tuple[dict[str, Shape], dict[str, Trouble]]:
        """Source topic -> the shape of its copy, or why it may have none."""
        begun = division.begun(self._known(), {name: topic.id for name, topic in wanted.items()})
        shapes: dict[str, Shape] = {}
        misfits: dict[str, Trouble] = {}
        for name, topic in wanted.items():
            has = _count(there.get(remote_of[name]))
            match division.shape(self.flow, name, len(topic.partitions), has, begun.get(name, ())):
                case Misfit(reason, fix):
                    misfits[name] = Trouble(reason, fix)
                case Shape() as shape:
                    shapes[name] = shape
        self._warn({remote_of[name]: trouble for name, trouble in misfits.items()})
        return shapes, misfits

    # ---------------------------------------------------------------- making room

    def _make_room(
        self,
        wanted: Mapping[str, TopicMeta],
        remote_of: Mapping[str, str],
        there: dict[str, TopicMeta],
        shapes: Mapping[str, Shape],
    ) -> tuple[dict[str, Trouble], dict[str, Trouble]]:
        """Source topic -> why it has no remote topic; remote topic -> why it was not grown. `there` becomes what the
        remote topics are then."""
        missing = {name for name in wanted if self._absent(there.get(remote_of[name]))}
        withheld = self._withhold({name: wanted[name] for name in sorted(missing)}, remote_of)
        due = sorted(missing - withheld.keys())
        uncreated, created = self._create({name: shapes[name].partitions for name in due}, remote_of)
        uncreated |= withheld
        short = {
            remote_of[name]: len(topic.partitions)
            for name, topic in wanted.items()
            if name not in missing
            and not shapes[name].fixed
            and 0 < _count(there.get(remote_of[name])) < len(topic.partitions)
        }
        ungrown = self._grow(short)
        expected = created | {remote: count for remote, count in short.items() if remote not in ungrown}
        if expected:
            there.update(self._await(expected))
        return uncreated, ungrown

    def _create(
        self, counts: Mapping[str, int], remote_of: Mapping[str, str]
    ) -> tuple[dict[str, Trouble], dict[str, int]]:
        """Source topic -> why it has no remote topic; and the partitions of remote topics that are there now."""
        settings, refused = self._settings(counts)
        factor = self.flow.factor(COPIES_FACTOR)
        specs = [
            NewTopic(
                *(remote_of[name], counts[name], factor.replicas, creation_configs(self.flow, entries)),
                lowerable=factor.lowerable,
            )
            for name, entries in settings.items()
        ]
        results = self._target.create_topics(specs)
        created: dict[str, int] = {}
        unsettled: dict[str, str] = {}
        for name, entries in settings.items():
            remote, error = remote_of[name], results[remote_of[name]]
            if error is not None and error.code != TOPIC_ALREADY_EXISTS:
                refused[name] = Trouble(f"{remote} cannot be created: {error.message}", error.fix)
                continue
            created[remote] = counts[name]
            if error is None:
                log.info("remote topic created", flow=self.flow.name, topic=remote, partitions=counts[name])
                if needs_durability(self.flow, entries):
                    unsettled[name] = remote
        self._warn({remote_of[name]: trouble for name, trouble in refused.items()})
        if unsettled:
            self._await({remote: created[remote] for remote in unsettled.values()})
            self._configs.sync(unsettled)
        return refused, created

    def _settings(self, names: Iterable[str]) -> tuple[dict[str, Entries], dict[str, Trouble]]:
        """Source topic -> its settings, or why they cannot be read. Without them it is not copied: a compacted topic's
        copy that is not compacted would lose what is older than the target's retention."""
        settings: dict[str, Entries] = {}
        refused: dict[str, Trouble] = {}
        for name, entries in self._source.describe_topic_configs(names).items():
            if isinstance(entries, BrokerError):
                reason = f"the settings of {name}, which its copy is to have, cannot be read: {entries.message}"
                refused[name] = Trouble(reason, f"allow this principal DESCRIBE_CONFIGS on {name}")
            else:
                settings[name] = entries
        return settings, refused

    def _grow(self, counts: Mapping[str, int]) -> dict[str, Trouble]:
        """Remote topic -> why it did not get its partitions."""
        refused: dict[str, Trouble] = {}
        for remote, error in self._target.create_partitions(counts).items():
            if error is None:
                log.info("remote topic grown", flow=self.flow.name, topic=remote, partitions=counts[remote])
            elif error.code == INVALID_PARTITIONS:  # somebody else did it in this moment
                log.info("remote topic not grown", flow=self.flow.name, topic=remote, why=error.message)
            else:
                fix = f"add partitions: kafka-topics --alter --topic {remote} --partitions {counts[remote]}"
                if error.code == TOPIC_AUTHORIZATION_FAILED:
                    fix = f"allow this principal ALTER on {remote}, or {fix}"
                refused[remote] = Trouble(f"it cannot be given more: {error.message}", fix)
        self._warn(refused)
        return refused

    def _warn(self, troubles: Mapping[str, Trouble]) -> None:
        """Of each once: a survey that parked something is repeated every few seconds."""
        said = {(remote, trouble.reason) for remote, trouble in troubles.items()}
        for remote, reason in sorted(said - self._said):
            log.warning("remote topic refused", flow=self.flow.name, topic=remote, why=reason, fix=troubles[remote].fix)
        self._said |= said

    def _await(self, expected: Mapping[str, int]) -> dict[str, TopicMeta]:
        """Metadata of these, once so many partitions have a leader (bounded: what is late is caught next time)."""
        deadline = time.monotonic() + APPEAR_S
        while True:
            topics = self._target.metadata(sorted(expected)).topics
            if all(_led(topics.get(name)) >= count for name, count in expected.items()) or time.monotonic() > deadline:
                return topics
            time.sleep(0.05)

    def _learn_limits(self, remotes: list[str]) -> None:
        unknown = [name for name in remotes if name not in self._limits]
        if not unknown:
            return
        for name, entries in self._target.describe_topic_configs(unknown).items():
            entry = entries.get("max.message.bytes") if not isinstance(entries, BrokerError) else None
            self._limits[name] = int(entry.value) if entry and entry.value else DEFAULT_MAX_MESSAGE_BYTES

    def _route(
        self,
        topic: TopicMeta,
        remote: str,
        there: TopicMeta | None,
        ungrown: Trouble | None,
        shape: Shape,
        routes: list[Route],
        parked: list[ParkedPartition],
    ) -> None:
        has = there.partitions if there else {}
        if not has:
            code = there.error if there else 3
            why = "not authorised" if code == TOPIC_AUTHORIZATION_FAILED else f"not to be seen yet (error {code})"
            allow = f"allow this principal CREATE, DESCRIBE, READ and WRITE on {remote}"
            fix = allow if code == TOPIC_AUTHORIZATION_FAILED else ""
            parked.append(ParkedPartition(topic.name, None, f"remote topic {remote} is {why}", fix))
            return
        limit = self._limits.get(remote, DEFAULT_MAX_MESSAGE_BYTES)
        strands = tuple(TopicPartition(remote, q) for q in range(shape.partitions)) if shape.divided else ()
        if shape.fixed and len(has) != shape.partitions:  # in this moment: the next survey knows why
            why = f"{remote} shows {len(has)} partitions, {shape.partitions} are chosen"
            parked.append(ParkedPartition(topic.name, None, why, ""))
            return
        for partition in sorted(topic.partitions):
            tp = TopicPartition(topic.name, partition)
            if strands:
                routes.append(Route(tp, topic.id, strands[0], limit, strands))
            elif partition in has:
                routes.append(Route(tp, topic.id, TopicPartition(remote, partition), limit))
            else:
                parked.append(_without_place(topic, partition, remote, len(has), ungrown))


def _count(topic: TopicMeta | None) -> int:
    return len(topic.partitions) if topic else 0


def _led(topic: TopicMeta | None) -> int:
    return sum(part.leader >= 0 for part in topic.partitions.values()) if topic else 0


def _without_place(topic: TopicMeta, partition: int, remote: str, has: int, ungrown: Trouble | None) -> ParkedPartition:
    why = f"{remote} has {has} partitions, its source {topic.name} has {len(topic.partitions)}"
    if ungrown is None:
        return ParkedPartition(topic.name, partition, f"{why}: the new ones are not to be seen yet", "")
    return ParkedPartition(topic.name, partition, f"{why}; {ungrown.reason}", ungrown.fix)


def _hidden(name: str) -> ParkedPartition:
    return ParkedPartition(
        name, None, f"not allowed to see the source topic {name}", f"allow this principal DESCRIBE and READ on {name}"
    )
