"""Settings of the turns about records that travel together: mux, link, demux, and many spokes. Pure.

`job.topic` names the origins (`<topic>-0`, `<topic>-1` …) and their shared topic (`<topic>-shared`). A step's source is
wherever its records lie; at `demux` that is the hub, so for it `job.target` is read and written, and `job.source` is
only asked how the topics are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.scenarios import HELIOGRAPH

if TYPE_CHECKING:
    from bench.peers import Job

ORIGINS = 4  # topics that travel together in a step
SHARED_PARTITIONS = 4
NO_TOPIC = "no-topic-is-called-so"  # what the file of a lone demux multiplexes: nothing


def origins(topic: str) -> list[str]:
    return [f"{topic}-{number}" for number in range(ORIGINS)]


def shared(topic: str) -> str:
    return f"{topic}-shared"


def spoke(number: int) -> str:
    return f"s{number:02d}"


def topics_of(spoke_name: str, count: int) -> list[str]:
    """Called so that no two spokes have the same: all of them may be one cluster."""
    return [f"{spoke_name}-t{number:02d}" for number in range(count)]


def settings(job: Job) -> dict[str, str]:
    """The file of a turn, without what every file has."""
    if job.scenario.kind == "spokes":
        return _spokes(job)
    flow = f"{job.alias}->{job.target_alias}"
    if job.peer != HELIOGRAPH or job.scenario.kind == "link":
        plain = f"{job.topic}-[0-9]+" if job.scenario.kind == "mux" else shared(job.topic)
        return {**job.pair, f"{flow}.topics": plain}
    if job.scenario.kind == "mux":
        return {
            **job.pair,
            f"{flow}.mux.topics": f"{job.topic}-[0-9]+",
            f"{flow}.mux.topic": job.remote,
            f"{flow}.mux.partitions": str(SHARED_PARTITIONS),
        }
    return {
        **job.pair,
        f"{flow}.mux.topics": NO_TOPIC,
        f"{flow}.mux.topic": shared(job.topic),
        f"{flow}.demux": "prefixed",
        f"{flow}.demux.topics": f"{job.topic}-[0-9]+",
        f"{flow}.demux.headers": "strip",
    }


def _spokes(job: Job) -> dict[str, str]:
    """Every spoke an alias, and all of them one broker: what is measured is the hub's side and ours."""
    names = [spoke(number) for number in range(job.scenario.spokes)]
    file = {
        "clusters": ", ".join((*names, job.target_alias)),
        f"{job.target_alias}.bootstrap.servers": job.target,
        "emit.heartbeats.enabled": "false",
        "tasks.max": "1",
    }
    for name in names:
        flow = f"{name}->{job.target_alias}"
        file |= {
            f"{name}.bootstrap.servers": job.source,
            f"{flow}.enabled": "true",
            f"{flow}.mux.topics": f"{name}-t[0-9]+",
            f"{flow}.demux": "original",
        }
    return file


def straight(job: Job) -> list[str]:
    """The arguments of `bench.straight` for a turn."""
    group = ["--group", job.alias]
    if job.scenario.kind == "mux":
        return ["mux", job.source, job.target, job.remote, *group, *origins(job.topic)]
    return ["demux", job.target, job.target, f"{job.alias}.", *group, shared(job.topic)]
