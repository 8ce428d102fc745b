"""Topics that travel together (`mux.*`, `demux`): what the keys of a pair mean, and the flows that follow from them.

    spoke1->hub.mux.topics = orders, payments
    spoke1->hub.demux = original

Answers for what contradicts itself, for what is left of the pair's own flow, and for the flows that do it: one that
puts the topics into the shared one, and one for each hub that puts all its spokes' records back. What they do is
`survey.stages`' affair.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from heliograph import policy
from heliograph.config import values
from heliograph.config.keys import nearest_of
from heliograph.config.model import Explained
from heliograph.config.reader import Reader
from heliograph.config.report import Report
from heliograph.config.views import View
from heliograph.javaregex import java_regex
from heliograph.types import COPIES_FACTOR, MUX_HEADERS, Cap, Cluster, Demux, Flow, Mux

KEYS = (
    *("mux.identifier", "mux.topic", "mux.partitions", "mux.headers", "mux.via"),
    *("demux", "demux.topics", "demux.headers"),
)
# These mean something only with `demux`.
BACK_KEYS = ("demux.topics", "demux.headers", "demux.weight", "demux.max.bytes.per.second")
DEFAULT_PARTITIONS = 4
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class Chosen:
    """What one pair says."""

    mux: Mux
    intermediate: bool  # by a topic on the source, which the pair's flow, or any MirrorMaker, carries over
    back: Literal["", "original", "prefixed"]
    keep_headers: bool
    weight: int = 1
    cap_bytes_per_s: int = 0  # of what is put back of it; 0: none
    put_back: tuple[str, ...] = ()  # what labels may name


# By the pair's name: its flow as it would be without, what was chosen, and its source as a cluster to write to.
Pairs = Mapping[str, tuple[Flow, Chosen, Cluster]]


def read(source: str, hub: str, view: View, reader: Reader) -> Chosen | None:
    """None: the pair multiplexes nothing."""
    nothing: tuple[str, ...] = ()
    every: tuple[str, ...] = MUX_HEADERS
    topics = reader.read(view, "mux.topics", _topics, nothing)
    identifier = reader.read(view, "mux.identifier", _identifier, source)
    topic = reader.read(view, "mux.topic", _topic, f"mux-replication_{identifier}")
    if not _NAME.fullmatch(topic) and reader.setting(view, "mux.identifier") is not None:
        reader.report.refuse(
            view["mux.identifier"].entry, f"{topic!r} can be no topic's name: choose another, or set mux.topic too"
        )
    partitions = reader.integer(view, "mux.partitions", DEFAULT_PARTITIONS)
    headers = reader.read(view, "mux.headers", _headers, every)
    via = reader.choice(view, "mux.via", "straight")
    back = reader.read(view, "demux", _back, "")
    put_back = reader.read(view, "demux.topics", _topics, topics)
    keep = reader.choice(view, "demux.headers", "keep")
    weight = reader.integer(view, "demux.weight", 1)
    cap = reader.integer(view, "demux.max.bytes.per.second", 0)
    if reader.setting(view, "mux.topics") is None:
        _refuse_alone(view, reader)
        return None
    if topic in topics:
        reader.report.refuse(view["mux.topics"].entry, f"{topic} is the shared topic itself: leave it out")
    for name in BACK_KEYS:
        own = reader.setting(view, name)
        if not back and own is not None and own.entry.key != name:  # at the top level it is for those that do
            reader.report.refuse(own.entry, "nothing is put back: set demux = original or prefixed too")
    mux = Mux(topics, topic, identifier, partitions, headers, hub)
    kind: Literal["", "original", "prefixed"] = "original" if back == "original" else "prefixed" if back else ""
    return Chosen(mux, via == "intermediate", kind, keep == "keep", weight, cap, put_back)


def _refuse_alone(view: View, reader: Reader) -> None:
    """Keys that say how, where nothing says what."""
    if "mux.topics" in view:
        return  # it was refused itself
    for name in (*KEYS, *BACK_KEYS[1:]):
        found = reader.setting(view, name)
        if found is not None and found.entry.key != name:  # at the top level it is for those that have `mux.topics`
            reader.report.refuse(found.entry, "has no effect: this flow has no mux.topics. Set it, or remove this line")


def rest_of(flow: Flow, chosen: Chosen, *, told: bool) -> Flow:
    """The pair's own flow beside it: it carries the shared topic, if that lies on the source, and what `topics` says
    (`told`), but for those that were chosen. Those that were not stay where they are."""
    shared = chosen.mux.topic.replace(".", r"\.") if chosen.intermediate else ""
    topics = (*(flow.topics if told else ()), *([shared] if shared else ()))
    without = [f"(?!{shared}$)(?:{one})" if shared else one for one in chosen.mux.topics]
    awaits = (chosen.mux.topic,) if chosen.intermediate else ()
    return replace(flow, topics=topics, topics_exclude=(*flow.topics_exclude, *without), awaits=awaits)


def flows_of(pairs: Pairs) -> list[Flow]:
    """Those that multiplex, and one for each hub that puts back."""
    found: list[Flow] = []
    hubs: dict[str, list[tuple[Flow, Demux, int]]] = {}
    for flow, chosen, writable in pairs.values():
        target = writable if chosen.intermediate else flow.target
        topic = f"mm2-mux.{flow.source.alias}.{flow.target.alias}.internal"
        caps = () if chosen.intermediate else flow.caps  # a cap is for what crosses over
        found.append(replace(_bare(flow), target=target, mux=chosen.mux, positions_topic=topic, caps=caps))
        if chosen.back:
            hubs.setdefault(flow.target.alias, []).append((flow, _demux(flow, chosen), chosen.cap_bytes_per_s))
    for alias, some in hubs.items():
        first = some[0][0]
        found.append(
            replace(
                _bare(first),
                source=first.target,
                caps=tuple(Cap(cap, rule.topic.replace(".", r"\.")) for _, rule, cap in some if cap),
                start=(),
                start_at="earliest",
                demux=tuple(replace(rule, shared=_shared_on(alias, pairs)) for _, rule, _ in some),
                positions_topic=f"mm2-demux.{alias}.internal",
            )
        )
    return found


def _arriving(flow: Flow, chosen: Chosen) -> str:
    """The shared topic, as it is called on the target."""
    return policy.remote_topic(flow, chosen.mux.topic) if chosen.intermediate else chosen.mux.topic


def _shared_on(alias: str, pairs: Pairs) -> tuple[str, ...]:
    """Topics of a cluster in which records travel: those that come there, and those that begin there."""
    arriving = {_arriving(flow, chosen) for flow, chosen, _ in pairs.values() if flow.target.alias == alias}
    leaving = {one.mux.topic for flow, one, _ in pairs.values() if one.intermediate and flow.source.alias == alias}
    return tuple(sorted(arriving | leaving))


def _demux(flow: Flow, chosen: Chosen) -> Demux:
    shared = _arriving(flow, chosen)
    prefix = f"{flow.source.alias}{flow.naming.separator}" if chosen.back == "prefixed" else ""
    return Demux(
        *(shared, prefix, chosen.keep_headers, flow.source, flow.factor(COPIES_FACTOR)),
        weight=chosen.weight,
        topics=chosen.put_back,
        sync_configs_s=flow.sync_topic_configs_s,
        lower_durability=flow.lower_durability,
        shorten_retention=flow.shorten_retention,
    )


def _bare(flow: Flow) -> Flow:
    """Without what goes on beside copying, which is the pair's own flow's. Its positions are in a topic that no MM2
    knows: one partition, one batch a second, however many source partitions move."""
    return replace(
        flow,
        offset_storage_partitions=1,
        topics=(),
        heartbeats_replication=False,
        target_partitions=(),
        sync_topic_configs_s=None,
        sync_topic_acls_s=None,
        emit_offset_syncs=False,
        emit_checkpoints_s=None,
        sync_group_offsets_s=None,
        emit_heartbeats_s=None,
    )


def check(pairs: Pairs, flows: Sequence[Flow], report: Report) -> None:
    """What pairs say together."""
    _check_shared(pairs, report)
    for name, (flow, chosen, _) in pairs.items():
        if chosen.back == "original":
            _check_way_back(name, flow, chosen, pairs, flows, report)


def _check_shared(pairs: Pairs, report: Report) -> None:
    """A shared topic is one pair's, and a source has one intermediate topic."""
    taken: dict[tuple[str, str], str] = {}
    by_source: dict[str, str] = {}
    for name, (flow, chosen, _) in pairs.items():
        alias, topic = (flow.source if chosen.intermediate else flow.target).alias, chosen.mux.topic
        if (alias, topic) in taken:
            first = taken[alias, topic]
            words = f"{name}.mux.topic = {topic} is the shared topic of {first} too, on {alias}: give each its own"
            report.problem(0, words)
        elif chosen.intermediate and alias in by_source:
            words = f"{name}.mux.via = intermediate: {by_source[alias]} has an intermediate topic on {alias} already. "
            report.problem(0, words + "Let both flows carry that one, or set mux.via = straight")
        taken[alias, topic] = name
        if chosen.intermediate:
            by_source[alias] = name


def _check_way_back(name: str, flow: Flow, chosen: Chosen, pairs: Pairs, flows: Sequence[Flow], report: Report) -> None:
    """Names that are kept both ways, so that nothing tells that a record has been there before."""
    turned = (flow.target.alias, flow.source.alias)
    for other, (their, theirs, _) in pairs.items():
        opposite = (their.source.alias, their.target.alias) == turned
        if opposite and theirs.back == "original" and _meet(chosen.mux, theirs.mux):
            words = f"{name}.demux = original and {other}.demux = original would carry the same records round and "
            report.problem(0, words + "round. Set one of them to prefixed, or choose other topics for one")
    for back in flows:
        if (back.source.alias, back.target.alias) == turned and back.naming.policy == policy.IDENTITY_POLICY:
            words = (
                f"{name}.demux = original and {back.name} would carry the same records round and round: {back.name} "
            )
            words += f"keeps names (IdentityReplicationPolicy). Set {name}.demux = prefixed, or take the default policy"
            report.problem(0, words)


def _meet(one: Mux, other: Mux) -> bool:
    """Whether some topic is chosen by both, as far as names tell."""
    first, second = policy.Filter(one.topics), policy.Filter(other.topics)
    fit = any(map(first.accepts, other.topics)) or any(map(second.accepts, one.topics))
    return fit or bool({*one.topics} & {*other.topics})


def explained(flow: Flow) -> tuple[Explained, ...]:
    """What the flows come to that follow from the keys; those are explained with the pair that they stand under."""
    rows = [Explained("positions", flow.positions_topic or "")]
    if flow.mux is not None:
        rows += [Explained("from", ", ".join(flow.mux.topics)), Explained("into", flow.mux.topic)]
    rows += [
        Explained(
            f"from {rule.topic}",
            f"into {rule.prefix or ''}<topic>, asking {rule.spoke.alias} how it is; weight {rule.weight}",
        )
        for rule in flow.demux
    ]
    rows += [Explained(f"at most of {cap.topics}", f"{cap.bytes_per_s} bytes/s") for cap in flow.caps if cap.topics]
    return tuple(rows)


# ---- single values; ValueError with the reason, in words that can follow `key = value: ` ----


def _topics(text: str) -> tuple[str, ...]:
    items = values.regexes(text)
    if not items:
        raise ValueError("names no topic: write names or regular expressions, or remove the line")
    return items


def _identifier(text: str) -> str:
    text = text.strip()
    if not text or not text.isprintable() or len(text.encode()) > 200:
        raise ValueError("must be 1 to 200 bytes of printable text")
    return text


def _topic(text: str) -> str:
    text = text.strip()
    if not _NAME.fullmatch(text) or text in (".", ".."):
        raise ValueError("is no topic's name: 1 to 249 of a-z A-Z 0-9 . _ -")
    if text.startswith("__") or java_regex(policy.DEFAULT_EXCLUDE[4][0]).fullmatch(text):
        raise ValueError("is the name of an internal topic: choose another")
    return text


def _headers(text: str) -> tuple[str, ...]:
    names = values.split(text)
    for name in names:
        if name not in MUX_HEADERS:
            near = nearest_of(name, MUX_HEADERS)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(MUX_HEADERS)}"
            raise ValueError(f"{name!r} is none of these headers; {hint}")
    return tuple(name for name in MUX_HEADERS if name in names or name in MUX_HEADERS[:2])


def _back(text: str) -> str:
    word = text.strip()
    if word not in ("original", "prefixed"):
        raise ValueError("must be original (topics are called as on the source) or prefixed (<source>.topic)")
    return word
