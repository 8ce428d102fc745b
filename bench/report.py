"""The results as people read them: a table per scenario in Markdown, and one chart.

Rendering is pure: the same rows give the same text. Nothing here measures.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.results import EXACT, Judgement, Measured, Row, judge, ratio, typical
from bench.scenarios import BULK, HELIOGRAPH, LIMIT, MM2, PEERS, SCENARIOS, STEPS, STRAIGHT, THRESHOLDS, TUNED, Scenario

NAMES = {
    MM2: "MM2 as it comes",
    TUNED: "MM2 tuned",
    HELIOGRAPH: "Heliograph",
    LIMIT: "limit",
    STRAIGHT: "record by record",
}

# (heading, figure, format) per kind of scenario
COLUMNS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "copy": (
        ("records/s", "records_per_s", ",.0f"),
        ("MB/s", "mb_per_s", ",.1f"),
        ("CPU µs/record", "cpu_us_window", ".2f"),
        ("CPU µs/record with start-up", "cpu_us_whole", ".2f"),
        ("peak memory MB", "peak_mb", ",.0f"),
        ("first record s", "first_record_s", ".1f"),
        ("all s", "total_s", ".1f"),
    ),
    "rate": (
        ("p50 ms", "p50_ms", ",.1f"),
        ("p95 ms", "p95_ms", ",.1f"),
        ("p99 ms", "p99_ms", ",.1f"),
        ("p99.9 ms", "p99.9_ms", ",.1f"),
        ("CPU µs/record", "cpu_us_window", ",.0f"),
        ("steady memory MB", "steady_mb", ",.0f"),
        ("peak memory MB", "peak_mb", ",.0f"),
    ),
    "beside": (
        ("live p50 ms", "p50_ms", ",.1f"),
        ("live p95 ms", "p95_ms", ",.1f"),
        ("live p99 ms", "p99_ms", ",.1f"),
        ("live most ms", "max_ms", ",.0f"),
        ("live records measured", "measured", ",.0f"),
        ("history MB/s", "mb_per_s", ",.1f"),
        ("history s", "history_s", ",.0f"),
    ),
    "growth": (
        ("new topic after s, slowest", "topic_s", ".1f"),
        ("soonest", "topic_soonest_s", ".1f"),
        ("others' p99 ms", "topic_p99_ms", ",.1f"),
        ("most ms", "topic_max_ms", ",.0f"),
        ("new partition after s, slowest", "partition_s", ".1f"),
        ("soonest", "partition_soonest_s", ".1f"),
        ("others' p99 ms", "partition_p99_ms", ",.1f"),
        ("most ms", "partition_max_ms", ",.0f"),
    ),
    "cap": (
        ("cap MB/s", "cap_mb_per_s", ",.2f"),
        ("MB/s", "mb_per_s", ",.2f"),
        ("off by %, worst 30 s", "deviation_percent", ".2f"),
        ("least MB/s in 30 s", "least_mb_per_s", ",.2f"),
        ("most MB/s in 30 s", "most_mb_per_s", ",.2f"),
        ("most MB/s in 1 s", "peak_mb_per_s", ",.2f"),
    ),
    "spokes": (
        ("others' p50 ms", "p50_ms", ",.1f"),
        ("others' p95 ms", "p95_ms", ",.1f"),
        ("others' p99 ms", "p99_ms", ",.1f"),
        ("most ms", "max_ms", ",.0f"),
        ("slowest spoke's p99 ms", "slowest_p99_ms", ",.1f"),
        ("flooding spoke's p99 ms", "flood_p99_ms", ",.1f"),
        ("records measured", "measured", ",.0f"),
        ("all topics there after s", "all_s", ".0f"),
        ("CPU µs/record", "cpu_us_window", ",.0f"),
        ("steady memory MB", "steady_mb", ",.0f"),
    ),
    "soak": (
        ("minutes", "minutes", ",.0f"),
        ("records/s", "records_per_s", ",.0f"),
        ("p50 ms", "p50_ms", ",.1f"),
        ("p99 ms", "p99_ms", ",.1f"),
        ("p99 ms, second tenth", "p99_early_ms", ",.1f"),
        ("p99 ms, last tenth", "p99_late_ms", ",.1f"),
        ("memory MB, early", "memory_early_mb", ",.0f"),
        ("memory MB, late", "memory_late_mb", ",.0f"),
        ("descriptors, early", "descriptors_early", ",.0f"),
        ("descriptors, late", "descriptors_late", ",.0f"),
    ),
    "start": (
        ("first record s", "first_record_s", ".1f"),
        ("CPU s", "cpu_s", ".1f"),
        ("peak memory MB", "peak_mb", ",.0f"),
    ),
    "groups": (
        ("offsets", "places", ",.0f"),
        ("on the very record", "exact", ",.0f"),
        ("read again, median", "again_median", ",.0f"),
        ("read again, most", "again_max", ",.0f"),
        ("records missed", "missed", ",.0f"),
        ("offsets without translation", "untranslated", ",.0f"),
        ("groups without any", "groups_without", ",.0f"),
    ),
}

COLUMNS |= dict.fromkeys(STEPS, COLUMNS["copy"])

_STEP = (
    "MM2 knows no labels: it mirrors the topics that the step reads, from one cluster to the other. *Record by record* "
    "does the step's work with confluent-kafka (`bench/straight.py`). MB are those of the records before they had "
    "labels. "
)
# What a reader must know of a kind of scenario before its table.
ABOUT = {
    "mux": _STEP + "Heliograph writes straight into the other cluster's shared topic.",
    "link": _STEP + "The shared topic was made by Heliograph's mux; carrying it over is a plain copy.",
    "demux": _STEP + "The shared topic was made by Heliograph's mux; records go back into topics of the same cluster.",
    "spokes": (
        "The spokes are twenty aliases of one broker, with topics of different names, so that two cores can hold them: "
        "twenty flows multiplex, one puts back, the twenty pairs' own flows have nothing to copy, all in one process. "
        "A record's time is from being produced on its spoke to being consumed from its own topic at the hub, by one "
        "clock, counted from half a minute after the full rates on. Producers linger 5 ms and the hub is read every 50 "
        "ms, both in the figures; every topic has two large records from before, so that its logs have their indexes."
    ),
    "beside": (
        "One flow copies both topics from the same moment on. The history is full before; the live records are those "
        "sent between the first and the last record of history on the target, by one clock."
    ),
    "growth": (
        "Three topics are created and written to, one after another, then each gets a partition more, which is written "
        "to. *After*: from asking the source for it to the first record of it on the target. The others' records are "
        "those sent in the half minute in which that happens three times."
    ),
    "cap": (
        "Bytes are the target broker's own word on its log (DescribeLogDirs), asked four times a second; every stretch "
        "of 30 s is held against the cap."
    ),
    "soak": (
        "First a full topic is copied, as in `lz4`; then batches are written to another at half of that rate, and 50 "
        "records/s to a third one whose latency is measured. *Early* is after a tenth of the time, when the "
        "JVM has settled; *late* is the end. The plot is [soak.svg](soak.svg)."
    ),
    "groups": (
        "Every peer copies the same topics in three turns, stopped in order after each; then the groups commit, each "
        "somewhere in each of the six partitions, and every peer is started once more. An offset's place is the last "
        "checkpoint's, which is what `translateOffsets` answers and what group offsets are set to. *Read again*: "
        "records that a group placed there would get a second time; *missed*: records it would never get. How MM2 is "
        "tuned for this (a sync for every record, all intervals a second): `bench/peers.py`; as it comes, it copies "
        "aborted records too."
    ),
}


def markdown(results: Mapping[str, Measured]) -> str:
    """All of `results.md`."""
    shown = [(SCENARIOS[name], results[name]) for name in SCENARIOS if name in results]
    lines = ["# Heliograph beside MirrorMaker 2", "", _preface(), ""]
    if shown:
        lines += ["![records per second of each peer](results.svg)", "", *_summary(shown)]
    for scenario, measured in shown:
        lines += ["", *_section(scenario, measured)]
    return "\n".join(lines) + "\n"


BLOCK = ("<!-- bench:begin -->", "<!-- bench:end -->")


def in_readme(text: str, results: Mapping[str, Measured]) -> str:
    """The README with its measured table renewed."""
    before, _, rest = text.partition(BLOCK[0])
    _, _, after = rest.partition(BLOCK[1])
    return f"{before}{BLOCK[0]}\n{_short(results)}\n{BLOCK[1]}{after}"


def _short(results: Mapping[str, Measured]) -> str:
    there = {row.peer for measured in results.values() for row in measured.rows} | {*PEERS} - {STRAIGHT}
    peers = [peer for peer in PEERS if peer in there]
    heads = ["scenario", "figure", *(NAMES[peer] for peer in peers)]
    lines = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    figures = {
        "copy": (("records/s", "records_per_s", ",.0f"), ("CPU µs/record", "cpu_us_window", ".2f")),
        "rate": (("p99 ms", "p99_ms", ",.0f"), ("steady memory MB", "steady_mb", ",.0f")),
        "start": (("first record after, s", "first_record_s", ".1f"),),
        "beside": (("live p99 ms beside history", "p99_ms", ",.0f"),),
        "spokes": (("p99 ms beside a flooding spoke", "p99_ms", ",.0f"),),
        "growth": (
            ("new topic copied after, s", "topic_s", ".1f"),
            ("new partition copied after, s", "partition_s", ".1f"),
            ("p99 ms of the others", "topic_p99_ms", ",.0f"),
        ),
        "cap": (("off the cap, %", "deviation_percent", ".1f"),),
        "soak": (("p99 ms at half the maximum", "p99_ms", ",.0f"),),
        "groups": (("offsets on the very record, %", "exact_percent", ".0f"),),
    }
    figures |= dict.fromkeys(STEPS, figures["copy"])
    for name, scenario in SCENARIOS.items():
        for head, figure, spec in figures[scenario.kind] if name in results else ():
            values = [typical(results[name].rows, peer, figure) for peer in peers]
            cells = ["—" if value is None else f"{value:{spec}}" for value in values]
            lines.append(f"| {name} | {head} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _preface() -> str:
    return (
        "Made by `make bench`: every peer copies the same source topic between the same two brokers, one after "
        "another, in alternating order, all on one machine, so brokers and copier share its cores. Measured from "
        "outside, the same for all: records/s from the moment 5 % of the records are on the target to the moment all "
        "are, CPU of the copier's whole process tree in that window, memory as the sum of proportional set sizes. "
        "`limit` is two bare loops at the same time, one fetching the batches and dropping them, one appending the "
        "same batches from memory; the slower counts, its CPU is that of both. How the batches are made: "
        "`bench/load.py`. MM2's settings: `bench/peers.py`."
    )


def _summary(shown: list[tuple[Scenario, Measured]]) -> list[str]:
    lines = ["| scenario | must be | is | |", "| --- | --- | --- | --- |"]
    for scenario, measured in shown:
        for threshold in THRESHOLDS[scenario.name]:
            judgement = judge(measured.rows, threshold, HELIOGRAPH)
            lines.append(f"| {scenario.name} | {threshold.says} | {_value(judgement)} | {_mark(judgement)} |")
    return lines


def _value(judgement: Judgement) -> str:
    if judgement.value is None:
        return "—"
    if judgement.threshold.against:
        return f"{judgement.value:,.2f} ×"
    # A figure near a small bound is read to its tenths.
    return (
        f"{judgement.value:,.0f}" if judgement.threshold.bound >= 100 else f"{judgement.value:,.1f}".removesuffix(".0")
    )


def _mark(judgement: Judgement) -> str:
    return {None: "not measured", True: "pass", False: "**fail**"}[judgement.passed]


def _section(scenario: Scenario, measured: Measured) -> list[str]:
    columns = COLUMNS[scenario.kind]
    runs = max((row.run for row in measured.rows), default=0)
    scale = "" if measured.scale == 1 else f", scale {measured.scale:g}"
    lines = [
        f"## {scenario.name}: {scenario.title}",
        "",
        f"{measured.when}, {runs} run{'s' if runs != 1 else ''}{scale}; {_machine(measured.machine)}",
        "",
        *([ABOUT[scenario.kind], ""] if scenario.kind in ABOUT else []),
    ]
    heads = ["peer", *(head for head, _, _ in columns), *(_ratio_heads(scenario)), "copy"]
    lines += ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    present = {row.peer for row in measured.rows}
    for peer in (p for p in PEERS if p in present):
        cells = [NAMES[peer], *(_cell(measured.rows, peer, figure, spec) for _, figure, spec in columns)]
        cells += [*_ratio_cells(scenario, measured.rows, peer), _verdict(measured.rows, peer)]
        lines.append("| " + " | ".join(cells) + " |")
    notes = sorted({f"{NAMES[row.peer]}: {row.note}" for row in measured.rows if row.note})
    return lines + ([""] + [f"- {note}" for note in notes] if notes else [])


def _machine(machine: Mapping[str, str]) -> str:
    return ", ".join(value for value in machine.values() if value)


def _cell(rows: tuple[Row, ...], peer: str, figure: str, spec: str) -> str:
    """The median, and between which figures the runs lay when there were several."""
    value = typical(rows, peer, figure)
    if value is None:
        return "—"
    values = [row.figures[figure] for row in rows if row.peer == peer and figure in row.figures]
    spread = f" ({min(values):{spec}}–{max(values):{spec}})" if len(values) > 1 else ""
    return f"{value:{spec}}{spread}"


def _ratio_heads(scenario: Scenario) -> list[str]:
    if scenario.kind not in BULK:
        return []
    return ["× MM2 tuned", f"× {NAMES[_beside(scenario)]}", "CPU × MM2 tuned"]


def _beside(scenario: Scenario) -> str:
    """Whom, beside MM2, records/s are held against."""
    return LIMIT if scenario.kind == "copy" else STRAIGHT


def _ratio_cells(scenario: Scenario, rows: tuple[Row, ...], peer: str) -> list[str]:
    if scenario.kind not in BULK:
        return []
    ratios = (
        ratio(rows, "records_per_s", peer, TUNED),
        ratio(rows, "records_per_s", peer, _beside(scenario)),
        ratio(rows, "cpu_us_window", peer, TUNED),
    )
    return ["—" if r is None else f"{r:.2f}" for r in ratios]


def _verdict(rows: tuple[Row, ...], peer: str) -> str:
    return "; ".join(
        sorted({row.verdict if row.verdict == EXACT else f"**{row.verdict}**" for row in rows if row.peer == peer})
    )


def draw(results: Mapping[str, Measured], path: Path) -> None:
    """The chart: records/s as bars per scenario, and latency percentiles as lines."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "heliograph"  # the same rows give the same file
    matplotlib.rcParams["svg.fonttype"] = "none"
    colours = {MM2: "#b8b8b8", TUNED: "#7d8ca3", HELIOGRAPH: "#e08a1e", LIMIT: "#3b3b3b", STRAIGHT: "#5aa17f"}
    copies = [name for name, s in SCENARIOS.items() if s.kind == "copy" and name in results]
    rates = [name for name, s in SCENARIOS.items() if s.kind == "rate" and name in results]
    panels = [(name, "records_per_s") for name in copies] + [(name, "") for name in rates]
    if not panels:
        return
    across = min(4, len(panels))
    down = -(-len(panels) // across)
    figure, axes = plt.subplots(down, across, figsize=(3.4 * across, 2.9 * down), squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (name, what) in zip(axes.flat, panels, strict=False):
        _bars(axis, results[name], colours) if what else _lines(axis, results[name], colours)
        axis.set_title(name, fontsize=10)
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _bars(axis, measured: Measured, colours: Mapping[str, str]) -> None:  # type: ignore[no-untyped-def]
    shown = [
        (p, typical(measured.rows, p, "records_per_s") or 0.0) for p in PEERS if any(r.peer == p for r in measured.rows)
    ]
    bars = axis.bar(
        [NAMES[p].replace(" as", "\nas") for p, _ in shown],
        [v / 1e3 for _, v in shown],
        color=[colours[p] for p, _ in shown],
    )
    axis.bar_label(bars, fmt="{:,.0f}", fontsize=7)
    axis.set_ylabel("thousand records/s", fontsize=7)


def _lines(axis, measured: Measured, colours: Mapping[str, str]) -> None:  # type: ignore[no-untyped-def]
    points = ("p50_ms", "p95_ms", "p99_ms", "p99.9_ms")
    for peer in PEERS:
        values = [typical(measured.rows, peer, point) for point in points]
        if None not in values:
            axis.plot(
                [p.removesuffix("_ms") for p in points], values, marker="o", color=colours[peer], label=NAMES[peer]
            )
    axis.set_yscale("log")
    axis.set_ylabel("latency, ms", fontsize=7)
    if axis.lines:
        axis.legend(fontsize=7, frameon=False)
