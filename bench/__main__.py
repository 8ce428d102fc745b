"""`python -m bench [SCENARIO…]`: Heliograph and its peers side by side, figures in `bench/results.md`."""

from __future__ import annotations

import datetime
import os
import platform
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import click
import psutil
from confluent_kafka import KafkaException

from bench import endurance, growth, report, results, spokes, steps, translation, turns, under_load
from bench.load import Loaded, load
from bench.peers import Job
from bench.results import EXACT, Measured, Row
from bench.rig import Rig, rig
from bench.scenarios import LIMIT, PEERS, STEPS, Scenario, Side, select
from bench.show import Progress
from heliograph.embedded.jars import RELEASE
from heliograph.embedded.java import find_java
from heliograph.embedded.process import Folder
from heliograph.errors import HeliographError

HOME = Path(__file__).parent
TOPIC = "events"
WARM_SHARE = 0.75  # of a topic that the bare loops move before anybody is measured: the brokers' JVMs are warm then


@click.command()
@click.argument("scenarios", nargs=-1)
@click.option("--peers", default=",".join(PEERS), show_default=True, help="Which peers, separated by commas.")
@click.option("--runs", default=1, show_default=True, help="How often each peer has its turn; the order alternates.")
@click.option("--scale", default=1.0, show_default=True, help="Records and seconds, times this.")
@click.option("--minutes", type=click.FloatRange(min=1), help="How long `soak` lasts. [default: 60]")
@click.option("--save/--no-save", default=None, help="Renew results.md. [default: if all peers run at scale 1]")
def main(
    scenarios: tuple[str, ...], peers: str, runs: int, scale: float, minutes: float | None, save: bool | None
) -> None:
    """Measure SCENARIOS.

    By default all of lz4, plain, large, tiny, far, many, latency, start and growth, which takes half an hour. When
    named: translation (four minutes), beside (5 GB of history beside live records; six), cap (a byte-rate cap for a
    minute; two), far-live (a record every 10 ms to a target 100 ms away; eleven), mux, link and demux (many topics
    through one, a step each; three minutes each), spokes (20 spokes of one hub, one of them flooding; four), soak (half
    the maximum rate for --minutes, then bench/soak.svg).
    """
    wanted = _peers(peers)
    try:
        chosen = [_lasting(scenario.scaled(scale), minutes) for scenario in select(scenarios)]
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that every `finally` runs, as it does for Ctrl-C
    show = Progress()
    measured = []
    for far, brokers in dict.fromkeys((s.far, s.brokers) for s in chosen):
        together = [s for s in chosen if (s.far, s.brokers) == (far, brokers)]
        for one in _measure(far, together, wanted, runs, scale, show):
            measured.append(one)
            _keep(one, save if save is not None else scale == 1 and set(wanted) == set(PEERS), show)
    click.echo(report.markdown({one.scenario: one for one in measured}))
    if any(row.verdict != EXACT and row.peer == "heliograph" for one in measured for row in one.rows):
        raise SystemExit(1)


def _lasting(scenario: Scenario, minutes: float | None) -> Scenario:
    return replace(scenario, seconds=minutes * 60) if scenario.kind == "soak" and minutes is not None else scenario


def _peers(text: str) -> tuple[str, ...]:
    wanted = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = set(wanted) - set(PEERS)
    if unknown or not wanted:
        raise click.UsageError(f"no peer called {', '.join(sorted(unknown))}; there are: {', '.join(PEERS)}")
    return wanted


def _measure(
    far: Side, scenarios: list[Scenario], peers: tuple[str, ...], runs: int, scale: float, show: Progress
) -> Iterator[Measured]:
    show.headline(f"two clusters start{', the ' + far + ' far away' if far else ''}")
    with rig(far, dict(scenarios[0].brokers)) as both, _folder() as folder:
        for scenario in scenarios:
            show.headline(f"{scenario.name}: {scenario.title}")
            taking_part = [p for p in scenario.peers if p in peers]
            rows = list(_rows(both, scenario, taking_part, max(runs, scenario.runs_at_least), folder, show))
            when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
            yield Measured(scenario.name, when, scale, machine(), tuple(rows))


def _rows(both: Rig, scenario: Scenario, peers: list[str], runs: int, folder: Path, show: Progress) -> Iterator[Row]:
    if scenario.kind == "groups":
        for run in range(1, runs + 1):
            show.begin(f"{scenario.name} {run}/{runs}")
            order = peers if run % 2 else peers[::-1]
            for row in translation.rows(both, scenario, order, run, folder, show.say):
                show.headline(f"  {scenario.name} {run}/{runs} {row.peer}: {brief(row)}")
                yield row
        return
    topic = f"{TOPIC}-{scenario.name}"
    if scenario.kind in STEPS:
        show.begin(scenario.name)
        for row in steps.rows(both, scenario, topic, peers, runs, folder, show.say):
            show.headline(f"  {scenario.name} {row.run}/{runs} {row.peer}: {brief(row)}")
            yield row
        return
    loaded = None
    if scenario.kind not in ("rate", "growth", "spokes"):
        show.begin("loader")
        source = both.source
        loaded = load(source.watch, source.cluster, topic, scenario, lambda n: show.say("fills", n / scenario.records))
        per_batch = loaded.records / loaded.batches
        show.headline(f"  {loaded.records:,} records, {loaded.bytes / 1e6:,.0f} MB, {per_batch:.1f} records a batch")
        _warm(both, scenario, loaded, folder, show)
    for run in range(1, runs + 1):
        for peer in peers if run % 2 else reversed(peers):
            job = turns.job_of(both, scenario, topic, peer, run, folder)
            show.begin(f"{scenario.name} {run}/{runs} {peer}")
            row = _turn(both, job, loaded, run, show)
            show.headline(f"  {scenario.name} {run}/{runs} {peer}: {brief(row)}")
            yield row
    both.source.watch.delete([topic])


def _warm(both: Rig, scenario: Scenario, loaded: Loaded, folder: Path, show: Progress) -> None:
    show.begin("warm-up")
    job = turns.job_of(both, scenario, loaded.topic, "warm-up", 0, folder)
    turns.bare_loops(both, job, loaded, 0, show.say, int(loaded.records * WARM_SHARE) + 1)
    turns.clear(both, job)


def _turn(both: Rig, job: Job, loaded: Loaded | None, run: int, show: Progress) -> Row:
    try:
        if job.scenario.kind == "growth":
            return growth.growth(both, job, run, show.say)
        if job.scenario.kind == "spokes":
            return spokes.spokes(both, job, run, show.say)
        if loaded is None:
            both.source.watch.create(job.topic, job.scenario.partitions, dict(job.scenario.topic_config))
            return turns.stream(both, job, run, show.say)
        if job.peer == LIMIT:
            return turns.bare_loops(both, job, loaded, run, show.say)
        if job.scenario.kind == "start":
            return turns.start(both, job, loaded, run, show.say)
        if job.scenario.kind == "beside":
            return under_load.beside(both, job, loaded, run, show.say)
        if job.scenario.kind == "cap":
            return under_load.cap(both, job, loaded, run, show.say)
        if job.scenario.kind == "soak":
            return endurance.soak(both, job, loaded, run, show.say, HOME / "soak.svg")
        return turns.copy(both, job, loaded, run, show.say)
    except (
        HeliographError,
        KafkaException,
        OSError,
        RuntimeError,
    ) as error:  # the others have their turns all the same
        return Row(job.peer, run, f"failed: {type(error).__name__}", note=str(error))
    finally:
        turns.clear(both, job)
        if loaded is None:  # a stream starts on an empty topic every time
            both.source.watch.delete([job.topic])


def brief(row: Row) -> str:
    """A row in a few words."""
    shown = {
        "records_per_s": "{:,.0f} records/s", "cpu_us_window": "{:,.2f} µs CPU a record", "p50_ms": "p50 {:,.1f} ms",
        "p99_ms": "p99 {:,.1f} ms", "first_record_s": "first record after {:.1f} s", "peak_mb": "peak {:,.0f} MB",
        "exact": "{:,.0f} on the very record", "places": "of {:,.0f}", "again_max": "up to {:,.0f} read again",
        "missed": "{:,.0f} missed", "deviation_percent": "off the cap by {:.2f} %", "mb_per_s": "{:,.1f} MB/s",
        "memory_growth_percent": "memory {:+.1f} %", "descriptor_growth": "{:+.0f} descriptors",
        "topic_s": "a new topic after {:.1f} s", "topic_p99_ms": "the others' p99 {:,.1f} ms",
        "flood_p99_ms": "the flooding spoke's p99 {:,.1f} ms",
        "partition_s": "a new partition after {:.1f} s", "partition_p99_ms": "the others' p99 {:,.1f} ms",
    }  # fmt: skip
    words = [text.format(row.figures[figure]) for figure, text in shown.items() if figure in row.figures]
    return ", ".join([row.verdict, *words, *([row.note] if row.note else [])])


def machine() -> dict[str, str]:
    """Where this was measured."""
    memory_gib = psutil.virtual_memory().total / 2**30
    return {
        "cores": f"{os.cpu_count()} cores",
        "memory": f"{memory_gib:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "java": f"Java {find_java().release}",
        "kafka": f"Kafka and MM2 {RELEASE}",
        "spark": f"PySpark {version('pyspark')}",
        "python": f"Python {platform.python_version()}",
        "heliograph": f"Heliograph {version('heliograph')}",
    }


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Folder("heliograph-bench-")
    try:
        yield folder.path
    finally:
        folder.delete()


def _keep(measured: Measured, save: bool, show: Progress) -> None:
    """Raw figures always go to bench/out; results.json, .md and .svg are renewed when asked."""
    stamp = measured.when.replace(" ", "-").replace(":", "")
    results.write(HOME / "out" / f"{measured.scenario}-{stamp}.json", {measured.scenario: measured})
    if not save:
        show.headline("  kept in bench/out only (all peers at scale 1, or --save, renew results.md)")
        return
    everything = results.merge(results.read(HOME / "results.json"), [measured])
    results.write(HOME / "results.json", everything)
    (HOME / "results.md").write_text(report.markdown(everything), encoding="utf-8")
    readme = HOME.parent / "README.md"
    readme.write_text(report.in_readme(readme.read_text(encoding="utf-8"), everything), encoding="utf-8")
    report.draw(everything, HOME / "results.svg")


if __name__ == "__main__":
    main()
