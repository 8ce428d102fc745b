"""What is measured: the scenarios, their sizes, and what the figures must show.

A scenario is data only. `load` makes its topic, `turn` lets one peer copy it, `report` holds the figures against
`THRESHOLDS`. Record counts are chosen so that all scenarios with all peers end within half an hour on two cores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Side = Literal["", "source", "target"]
Kind = Literal["copy", "rate", "start", "groups", "beside", "cap", "soak", "growth", "mux", "link", "demux", "spokes"]
STEPS: tuple[Kind, ...] = ("mux", "link", "demux")
BULK: tuple[Kind, ...] = ("copy", *STEPS)  # a full topic, as fast as it goes

MM2, TUNED, HELIOGRAPH, LIMIT, STRAIGHT = "mm2", "mm2-tuned", "heliograph", "limit", "straight"
COPIERS = (MM2, TUNED, HELIOGRAPH, LIMIT)
PEERS = (*COPIERS, STRAIGHT)

# The Java producer's default `batch.size`. With a codec it counts compressed bytes, so a batch of the scenario `lz4`
# is about 16 KiB as stored; without one it is 16 KiB of records.
JAVA_BATCH_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Scenario:
    """One topic, the way it is written, and how long a peer may take over it.

    kind `copy`: the topic is full before a peer starts; how fast is it copied?
    kind `rate`: records arrive at `rate_per_s` for `seconds` while the peer runs; how late are they, at what memory?
    kind `start`: from launching the command to the first record on the target.
    kind `beside`: a full topic is copied while records arrive in another at `rate_per_s`; how late are those?
    kind `cap`: a full topic is copied under a cap of `cap_bytes_per_s` for `seconds`; how near does it come?
    kind `soak`: a topic is written at half the rate at which a full one was copied, for `seconds`; what grows?
    kind `growth`: records arrive at `rate_per_s` while topics appear and partitions are added, each for `seconds`; how
        soon are those copied, looked for every `refresh_s`, and how late are the others meanwhile? (See `growth`.)
    kinds `mux`, `link`, `demux`: many topics through one, a step each, of topics that are full before. (See `steps`.)
    kind `spokes`: records arrive on `spokes` spokes at `rate_per_s` each, on one of them faster; how late are those of
        the others at the hub? (See `spokes`.)
    kind `groups`: `groups` consumer groups at random offsets; how near is each placed on the target? (See `groups`.)
    """

    name: str
    title: str
    kind: Kind
    records: int
    value_bytes: int
    partitions: int = 4
    codec: Literal["none", "lz4"] = "none"
    batch_bytes: int = JAVA_BATCH_BYTES
    far: Side = ""
    rate_per_s: int = 0
    seconds: float = 0
    limit_s: float = 180  # from the first record: a peer that needs longer is ended and shown with what it had copied
    peers: tuple[str, ...] = COPIERS
    runs_at_least: int = 1
    topic_config: tuple[tuple[str, str], ...] = ()  # of the source's topic; every peer carries it to its copy
    groups: int = 0
    brokers: tuple[tuple[str, str], ...] = ()  # further settings of both brokers
    cap_bytes_per_s: int = 0
    spokes: int = 0
    topics: int = 0  # of each spoke
    flood: int = 0  # one spoke's rate, times the others'
    refresh_s: int = 0  # refresh.topics.interval.seconds
    arguments: tuple[str, ...] = ()  # further ones of `heliograph run`
    by_default: bool = True  # whether it is among those of a run that names none

    def scaled(self, scale: float) -> Scenario:
        """The same scenario, smaller or larger: counts and durations, never shapes (partitions, batches, rates)."""
        return replace(
            self,
            records=max(int(self.records * scale), 100) if self.records else 0,
            seconds=max(self.seconds * scale, 5) if self.seconds else 0,
            groups=max(int(self.groups * scale), 5) if self.groups else 0,
        )


# A partition's first index entry touches a page of a sparse file that the broker holds mapped. On a virtual disk that
# page can take 46 ms while its request waits: at Kafka's default of 4096 bytes the partitions of `many` all came
# to it half a minute in, and the source took 20 records a second, whoever copied. Only there: with few partitions a
# sparse index makes brokers scan up to a MiB of small batches for every fetch at a log's end.
SPARSE_INDEX = (("index.interval.bytes", str(1 << 20)),)

ROUND_TRIP_MS = 100
REFRESH_S = 5  # as one sets it who does not want to wait; MM2's default is ten minutes
REPLICATORS = (MM2, TUNED, HELIOGRAPH)

SCENARIOS: dict[str, Scenario] = {
    s.name: s
    for s in (
        Scenario("lz4", "8 M JSON records of ~230 B, lz4, 4 partitions", "copy", 8_000_000, 230, codec="lz4"),
        Scenario("plain", "8 M JSON records of ~230 B, uncompressed, 4 partitions", "copy", 8_000_000, 230),
        Scenario("large", "values of 10 KB, uncompressed, 4 partitions", "copy", 200_000, 10_000, limit_s=120),
        Scenario("tiny", "one record of ~230 B a batch, 4 partitions", "copy", 400_000, 230, batch_bytes=1),
        Scenario(
            "far-source",
            f"{ROUND_TRIP_MS} ms round trip to the source, 16 KiB batches, 4 partitions",
            "copy", 1_500_000, 230, codec="lz4", far="source", limit_s=40, peers=REPLICATORS,
        ),
        Scenario(
            "far-target",
            f"{ROUND_TRIP_MS} ms round trip to the target, 16 KiB batches, 4 partitions",
            "copy", 1_500_000, 230, codec="lz4", far="target", limit_s=40, peers=REPLICATORS,
        ),
        Scenario(
            "many",
            "1,000 partitions, one record in two seconds each",
            "rate", 0, 230, partitions=1000, rate_per_s=500, seconds=60, peers=(TUNED, HELIOGRAPH),
            topic_config=SPARSE_INDEX,
        ),
        Scenario(
            "latency",
            "250 records/s for 3 minutes",
            "rate", 0, 230, rate_per_s=250, seconds=180, peers=REPLICATORS,
        ),
        Scenario(
            "far-live",
            f"a record of 1 KB every 10 ms in one partition, {ROUND_TRIP_MS} ms round trip to the target",
            "rate", 0, 1000, partitions=1, far="target", rate_per_s=100, seconds=600, peers=(HELIOGRAPH,),
            by_default=False,  # ten minutes
        ),
        Scenario(
            "start",
            "from launching the command to the first record copied",
            "start", 1000, 230, peers=REPLICATORS, runs_at_least=3,
        ),
        Scenario(
            "growth",
            f"new topics, then new partitions, beside 400 records/s in four topics, looked for every {REFRESH_S} s",
            "growth", 0, 230, rate_per_s=400, peers=(HELIOGRAPH,), refresh_s=REFRESH_S,
            seconds=7 * REFRESH_S,  # no multiple in a third of it: three events meet different moments of the interval
        ),
        Scenario(
            "translation",
            "200 groups at random offsets of a plain, a compacted and a transactional topic, 3 restarts",
            "groups", 0, 0, groups=200, peers=REPLICATORS,
            brokers=(("log.cleaner.backoff.ms", "300"),),
            by_default=False,  # four minutes, of which MM2 as it comes waits one for its first checkpoints
        ),
        Scenario(
            "beside",
            "5 GB of history in one topic (values of 1 KB) beside 250 records/s in another",
            "beside", 4_900_000, 1000, rate_per_s=250, limit_s=400, peers=(TUNED, HELIOGRAPH),
            by_default=False,  # three to six minutes, most of them MM2's
        ),
        Scenario(
            "cap",
            "a full topic under a cap of 10 MB/s for a minute, over changes of epochs",
            "cap", 900_000, 1000, seconds=60, peers=(HELIOGRAPH,), cap_bytes_per_s=10_000_000,
            arguments=("--epoch-seconds", "15"),
            by_default=False,  # a minute and a half
        ),
        Scenario(
            "mux",
            "lz4's records in 4 topics of 4 partitions into one shared topic, with eight labels",
            "mux", 4_000_000, 230, codec="lz4", limit_s=120, peers=(TUNED, HELIOGRAPH, STRAIGHT), by_default=False,
        ),
        Scenario(
            "link",
            "the shared topic carried over",
            "link", 4_000_000, 230, codec="lz4", limit_s=120, peers=(TUNED, HELIOGRAPH), by_default=False,
        ),
        Scenario(
            "demux",
            "the shared topic put back into 4 topics of 4 partitions, on its own cluster",
            "demux", 4_000_000, 230, codec="lz4", limit_s=120, peers=(TUNED, HELIOGRAPH, STRAIGHT), by_default=False,
        ),
        Scenario(
            "spokes",
            "20 spokes of 20 topics, 20 records/s each and one spoke at 400, to one hub",
            "spokes", 0, 230, partitions=1, rate_per_s=20, seconds=240, peers=(HELIOGRAPH,),
            spokes=20, topics=20, flood=20, by_default=False,
        ),
        Scenario(
            "soak",
            "an hour at half the rate at which a full topic is copied",
            "soak", 8_000_000, 230, codec="lz4", rate_per_s=50, seconds=3600, peers=(HELIOGRAPH,),
            topic_config=(("retention.bytes", str(256 << 20)), ("segment.bytes", str(64 << 20))),
            brokers=(("log.retention.check.interval.ms", "10000"),),
            by_default=False,
        ),
    )
}  # fmt: skip

# A name on the command line that stands for several scenarios.
GROUPS: dict[str, tuple[str, ...]] = {
    "far": ("far-source", "far-target"),
    "hub": ("mux", "link", "demux", "spokes"),
    "all": tuple(name for name, s in SCENARIOS.items() if s.by_default),
}


@dataclass(frozen=True, slots=True)
class Threshold:
    """What Heliograph's figure must be, as the issue asks: `figure` of Heliograph over `against`'s, or by itself."""

    figure: str
    against: str  # a peer, "mm2-best" (the better of the two MM2s), or "" for the figure itself
    bound: float
    at_least: bool
    says: str

    def holds(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


def _faster(than: str, times: float) -> Threshold:
    name = {TUNED: "MM2 tuned", LIMIT: "the limit", STRAIGHT: "record by record"}[than]
    return Threshold("records_per_s", than, times, True, f"records/s at least {times:g} × {name}")


def _found(figure: str, what: str) -> Threshold:
    return Threshold(
        figure, "", REFRESH_S + 2, False, f"{what} copied within {REFRESH_S} s + 2 s, the slowest of three"
    )


_BULK = (
    _faster(TUNED, 3),
    Threshold("cpu_us_window", TUNED, 0.1, False, "CPU per record at most 1/10 of MM2 tuned"),
    _faster(LIMIT, 0.8),
)
_STEP = (
    _faster(TUNED, 1),
    Threshold("cpu_us_window", TUNED, 0.25, False, "CPU per record at most 1/4 of MM2 tuned"),
)
THRESHOLDS: dict[str, tuple[Threshold, ...]] = {
    "lz4": _BULK,
    "plain": _BULK,
    "large": (_faster(TUNED, 1.5),),
    "tiny": (_faster(TUNED, 2),),
    "far-source": (_faster(TUNED, 2),),
    "far-target": (_faster(TUNED, 2),),
    "many": (
        Threshold("steady_mb", "", 1500, False, "steady memory of all its processes under 1,500 MB"),
        Threshold("p99_ms", "", 1000, False, "p99 under a second"),
    ),
    "far-live": (
        Threshold("p99_ms", "", 400, False, "p99 under 400 ms"),
        Threshold("p99_drift", "", 1.5, False, "p99 of the last tenth at most 1.5 × that of the second"),
    ),
    "latency": (Threshold("p99_ms", "mm2-best", 1, False, "p99 not above MM2's (the better of the two)"),),
    "beside": (Threshold("p99_ms", "", 1000, False, "p99 of the live records under a second"),),
    "growth": (
        _found("topic_s", "a new topic"),
        Threshold("topic_p99_ms", "", 500, False, "p99 ms of the others meanwhile under 500"),
        _found("partition_s", "a new partition"),
        Threshold("partition_p99_ms", "", 500, False, "p99 ms of the others meanwhile under 500"),
    ),
    "cap": (Threshold("deviation_percent", "", 5, False, "off the cap by 5 % at most, in any 30 s"),),
    "mux": (*_STEP, _faster(STRAIGHT, 5)),
    "link": _STEP,
    "demux": (*_STEP, _faster(STRAIGHT, 5)),
    "spokes": (Threshold("p99_ms", "", 1000, False, "p99 of the other spokes' records under a second"),),
    "soak": (
        Threshold("memory_growth_percent", "", 5, False, "memory at the end at most 5 % above that after a tenth"),
        Threshold("descriptor_growth", "", 0, False, "no more descriptors at the end than after a tenth"),
        Threshold("p99_drift", "", 1.5, False, "p99 of the last tenth at most 1.5 × that of the second"),
    ),
    "translation": (Threshold("not_exact", "", 0, False, "offsets not placed on the very record: none"),),
    "start": (Threshold("first_record_s", "mm2-best", 1.2, False, "within 1.2 × of MM2 (the better of the two)"),),
}


def select(names: tuple[str, ...]) -> list[Scenario]:
    """The scenarios that the command line names, each once, in the order of the table above."""
    wanted = {full for name in names or ("all",) for full in GROUPS.get(name, (name,))}
    unknown = wanted - set(SCENARIOS)
    if unknown:
        known = ", ".join([*SCENARIOS, *GROUPS])
        raise ValueError(f"no scenario called {', '.join(sorted(unknown))}; there are: {known}")
    return [s for s in SCENARIOS.values() if s.name in wanted]
