"""The effective configuration of 36 files, ours beside what MM2's own classes compute for them.

Needs Java, no broker. `tests/data/mm2/Effective.java` runs MM2's `MirrorMakerConfig` and its connectors'
configurations of the pinned release, once for all files. Whatever is not equal is listed here as data, with the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from heliograph import policy
from heliograph.config import clients, keys, properties
from heliograph.config.load import NEVER_S, parse
from heliograph.config.model import Config
from heliograph.config.place import Standing, judge, locate
from heliograph.config.shape import Scope
from heliograph.config.views import Setting, Views, is_connector_key, is_shared
from heliograph.embedded.jars import fetch_jars
from heliograph.embedded.java import find_java
from heliograph.types import Flow

DATA = Path(__file__).parent.parent / "data" / "mm2"
FILES = sorted(path.stem for path in DATA.glob("*.properties"))
ENVIRONMENT = {
    "MM2_US": "us-1:9092,us-2:9092",
    "MM2_EU_HOST": "eu",
    "MM2_EU_PORT": "9092",
    "MM2_ENABLED": "true",
    "MM2_TOPICS": "orders, users",
    "MM2_FACTOR": "1",
}

# ---- differences, and why ----

OLD_NAMES = {
    "topics.blacklist": "topics.exclude",
    "groups.blacklist": "groups.exclude",
    "config.properties.blacklist": "config.properties.exclude",
}
# Keys at the top level that only one of the two takes into a connector's configuration.
ONLY_OURS = {
    **dict.fromkeys(OLD_NAMES, "MM2 4.x dropped the old names without a word; files of 3.x must exclude what they did"),
    "use.incremental.alter.configs": "gone in 4.0; named in a warning, read by nobody",
    "add.source.alias.to.metrics": "gone in 4.0; named in a warning, read by nobody",
}
# Keys of a connector that MM2 does not have. Each is named: one that MM2 should have known is not to slip through.
OUR_OWN = {
    "heliograph.mm2.rules": "which release's rules names and defaults go by",
    "sync.topic.configs.lower.durability": "MM2 lets it sink without asking",
    "sync.topic.acls.own.principal": "MM2 carries over denials that lock it out itself",
    "sync.topic.configs.shorten.retention": "MM2 shortens the target's retention without asking",
    "sasl.username": "librdkafka's name, which clients' files have",
    "sasl.password": "librdkafka's name, which clients' files have",
    "start": "MM2 begins at auto.offset.reset, for all partitions alike",
    "target.partitions": "MM2 makes as many as the source has",
    "max.bytes.per.second": "MM2 leaves that to brokers' quotas",
    **dict.fromkeys(
        ("on.gap", "on.refused", "on.source.recreated", "on.source.truncated", "on.target.lost"),
        "MM2 skips, begins anew or ends its task, each without being asked",
    ),
    **dict.fromkeys(("mux.partitions", "mux.headers", "mux.via"), "MM2 has a remote topic for each topic"),
    **dict.fromkeys(("demux", "demux.headers"), "the way back of mux.topics"),
    **dict.fromkeys(("demux.weight", "demux.max.bytes.per.second"), "a spoke's share of the hub"),
}
# What MM2 adds of its own; it follows from the flow's name.
ADDED_BY_MM2 = {"name", "connector.class", "source.cluster.alias", "target.cluster.alias", "enabled"}
ADDED_TO_WORKERS = {
    *("client.id", "group.id", "offset.storage.topic", "status.storage.topic", "config.storage.topic"),
    *("key.converter", "value.converter", "header.converter"),
}
# Fields of a flow whose value differs when the file does not set them.
OTHER_DEFAULTS = {
    "tasks_max": ("tasks.max", None, 1, "unset means as many as the work can use"),
    "isolation": (
        *("isolation.level", "read_committed", None),
        "aborted records are not data: copying them by default was MM2's oversight",
    ),
}
# file -> field -> ours, MM2's, why
KEPT = "an empty separator cannot tell hops: what the trick is for has a policy of its own since 3.0"
IN_ONE_FILE = {
    "35-names-kept-by-a-trick": {
        "policy": (policy.IDENTITY_POLICY, policy.DEFAULT_POLICY, KEPT),
        "separator": (".", "", KEPT),
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files as they are read, with what the providers of one of them look up."""
    folder = tmp_path_factory.mktemp("mm2")
    (folder / "login.properties").write_text("user = copier\npassword = pass=word\n")
    (folder / "secrets").mkdir()
    (folder / "secrets" / "trust").write_text("changeit")
    for name in FILES:
        text = (DATA / f"{name}.properties").read_text()
        (folder / f"{name}.properties").write_text(text.replace("@FOLDER@", str(folder)))
    return folder


@pytest.fixture(scope="module")
def mm2(folder: Path) -> dict[str, Any]:
    """What MM2 makes of all files, in one JVM."""
    command = [
        *(str(find_java().executable), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        *("-cp", os.pathsep.join(map(str, fetch_jars())), str(DATA / "Effective.java")),
        *(str(folder / f"{name}.properties") for name in FILES),
    ]
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout[done.stdout.index('{"names"') :])
    found["files"] = {Path(path).stem: answer for path, answer in found["files"].items()}
    return found  # type: ignore[no-any-return]


def ours(folder: Path, name: str) -> Config:
    data = (folder / f"{name}.properties").read_bytes()
    return parse(data, f"{name}.properties", environment={**os.environ, **ENVIRONMENT})


def as_written(folder: Path, name: str) -> Views:
    entries = properties.parse((folder / f"{name}.properties").read_bytes()).entries
    return Views({key: Setting(entry.value, entry) for key, entry in entries.items()})


def pair_of(flow: str) -> tuple[str, str]:
    source, target = flow.split("->")
    return source, target


def test_there_are_thirty_files() -> None:
    assert len(FILES) >= 30


@pytest.mark.parametrize("name", FILES)
def test_the_pairs_that_run(name: str, folder: Path, mm2: dict[str, Any]) -> None:
    """Those that copy, and those that only emit heartbeats."""
    config, theirs = ours(folder, name), mm2["files"][name]
    assert "error" not in theirs
    assert set(config.clusters) == set(theirs["clusters"])
    copying = {flow.name for flow in config.flows}
    beating = {flow.name for flow in config.heartbeat_only}
    enabled = {flow for flow, found in theirs["flows"].items() if found["Source"]["values"]["enabled"]}
    emitting = {flow for flow, found in theirs["flows"].items() if emits_heartbeats(found)}
    assert copying == enabled
    assert copying | beating == enabled | emitting


def emits_heartbeats(found: dict[str, Any]) -> bool:
    interval_ms: int = found["Heartbeat"]["intervals"]["emitHeartbeatsInterval"]
    return interval_ms >= 0


@pytest.mark.parametrize("name", FILES)
def test_what_connectors_are_given(name: str, folder: Path, mm2: dict[str, Any]) -> None:
    """Key by key, as written: MM2's connectorBaseConfig."""
    views = as_written(folder, name)
    for flow, found in mm2["files"][name]["flows"].items():
        theirs = found["Source"]["base"]
        view = views.connector(pair_of(flow))
        mine = {k: s.value for k, s in view.items() if k in theirs or k not in ONLY_OURS}
        assert {k: v for k, v in theirs.items() if k in mine or k not in ADDED_BY_MM2} == mine, flow


@pytest.mark.parametrize("name", FILES)
def test_what_workers_are_given(name: str, folder: Path, mm2: dict[str, Any]) -> None:
    """MM2's workerConfig, with the expressions of providers replaced."""
    config = properties.parse((folder / f"{name}.properties").read_bytes())
    resolved = resolved_views(folder, name)
    for flow, found in mm2["files"][name]["flows"].items():
        mine = {k: s.value for k, s in resolved.worker(pair_of(flow)[1]).items()}
        theirs = {k: v for k, v in found["worker"].items() if not k.startswith("config.providers")}
        assert {k: v for k, v in theirs.items() if k in mine or k not in ADDED_TO_WORKERS} == mine, flow
    assert config.entries


def resolved_views(folder: Path, name: str) -> Views:
    from heliograph.config import providers

    entries = properties.parse((folder / f"{name}.properties").read_bytes()).entries
    texts = {key: entry.value for key, entry in entries.items()}
    known, complaints = providers.declared(texts, {**os.environ, **ENVIRONMENT})
    assert not complaints
    return Views({key: Setting(known.replace(entry.value).text, entry) for key, entry in entries.items()})


@pytest.mark.parametrize("name", FILES)
def test_the_values_of_flows(name: str, folder: Path, mm2: dict[str, Any]) -> None:
    config = ours(folder, name)
    for flow in (*config.flows, *config.heartbeat_only):
        found = mm2["files"][name]["flows"][flow.name]
        mine, theirs = fields(flow), fields_of_mm2(found)
        for field, (key, unset, mm2s, _) in OTHER_DEFAULTS.items():
            if mine[field] == unset and theirs[field] == mm2s:
                assert key not in found["Source"]["base"]
                del mine[field], theirs[field]
        for field, (unlike, mm2s, _) in IN_ONE_FILE.get(name, {}).items():
            assert (mine.pop(field), theirs.pop(field)) == (unlike, mm2s)
        for old, new in OLD_NAMES.items():
            entry = as_written(folder, name).connector(pair_of(flow.name)).get(old)
            if entry and new not in found["Source"]["base"]:
                assert mine.pop(new) == tuple(item.strip() for item in entry.value.split(","))
                del theirs[new]
        assert mine == theirs, flow.name


def fields(flow: Flow) -> dict[str, Any]:
    def ms(seconds: float | None) -> int | None:
        return None if seconds is None or seconds == NEVER_S else round(seconds * 1000)

    return {
        "enabled": flow.enabled,
        "topics": flow.topics,
        "topics.exclude": flow.topics_exclude,
        "policy": flow.naming.policy,
        "separator": flow.naming.separator,
        "internal_separator": flow.naming.internal_separator,
        "heartbeats_replication": flow.heartbeats_replication,
        "tasks_max": flow.tasks_max,
        "replication_factor": flow.replication_factor,
        "isolation": flow.isolation,
        "start_at": flow.start_at,
        "refresh_topics": ms(flow.refresh_topics_interval_seconds),
        "sync_topic_configs": ms(flow.sync_topic_configs_s),
        "sync_topic_acls": ms(flow.sync_topic_acls_s),
        "config.properties.exclude": flow.config_properties_exclude,
        "use_defaults_from": flow.use_defaults_from,
        "emit_offset_syncs": flow.emit_offset_syncs,
        "offset_syncs_location": flow.offset_syncs_location,
        "offset_syncs_replication_factor": flow.offset_syncs_replication_factor,
        "offset_lag_max": flow.offset_lag_max,
        "offset_flush": ms(flow.offset_flush_s),
        "offset_storage_replication_factor": flow.offset_storage_replication_factor,
        "offset_storage_partitions": flow.offset_storage_partitions,
        "positions_topic": flow.positions_topic or policy.positions_topic(flow.source.alias),
        "emit_checkpoints": ms(flow.emit_checkpoints_s),
        "checkpoints_replication_factor": flow.checkpoints_replication_factor,
        "groups": flow.groups,
        "groups.exclude": flow.groups_exclude,
        "refresh_groups": ms(flow.refresh_groups_s),
        "sync_group_offsets": ms(flow.sync_group_offsets_s),
        "emit_heartbeats": ms(flow.emit_heartbeats_s),
        "heartbeats_replication_factor": flow.heartbeats_replication_factor,
        "admin_timeout": ms(flow.admin_timeout_s),
        "source": dict(flow.source.properties),
        "target": dict(flow.target.properties),
    }


def fields_of_mm2(found: dict[str, Any]) -> dict[str, Any]:
    source, checkpoint, heartbeat = (found[kind]["values"] for kind in ("Source", "Checkpoint", "Heartbeat"))
    every_ms = {
        k: None if v < 0 else v for kind in found if kind != "worker" for k, v in found[kind]["intervals"].items()
    }
    base, worker, consumer = found["Source"]["base"], found["worker"], found["Source"]["consumer"]
    # A checkpoint connector refuses to run without offset syncs, and has no tasks without an interval.
    translates = source["emit.offset-syncs.enabled"] and every_ms["emitCheckpointsInterval"] is not None
    return {
        "enabled": source["enabled"],
        "topics": tuple(source["topics"]),
        "topics.exclude": tuple(source["topics.exclude"]),
        "policy": found["Source"]["policy"],
        "separator": source["replication.policy.separator"],
        "internal_separator": source["replication.policy.internal.topic.separator.enabled"],
        "heartbeats_replication": source["heartbeats.replication.enabled"],
        "tasks_max": source["tasks.max"],
        "replication_factor": source["replication.factor"],
        "isolation": consumer.get("isolation.level"),
        "start_at": consumer["auto.offset.reset"],
        "refresh_topics": every_ms["refreshTopicsInterval"],
        "sync_topic_configs": every_ms["syncTopicConfigsInterval"],
        "sync_topic_acls": every_ms["syncTopicAclsInterval"],
        "config.properties.exclude": tuple(source["config.properties.exclude"]),
        "use_defaults_from": base.get("use.defaults.from", "target"),
        "emit_offset_syncs": source["emit.offset-syncs.enabled"],
        "offset_syncs_location": source["offset-syncs.topic.location"],
        "offset_syncs_replication_factor": source["offset-syncs.topic.replication.factor"],
        "offset_lag_max": source["offset.lag.max"],
        "offset_flush": int(worker.get("offset.flush.interval.ms", 60_000)),
        "offset_storage_replication_factor": int(worker.get("offset.storage.replication.factor", 3)),
        "offset_storage_partitions": int(worker.get("offset.storage.partitions", 25)),
        "positions_topic": worker["offset.storage.topic"],
        "emit_checkpoints": every_ms["emitCheckpointsInterval"] if translates else None,
        "checkpoints_replication_factor": checkpoint["checkpoints.topic.replication.factor"],
        "groups": tuple(checkpoint["groups"]),
        "groups.exclude": tuple(checkpoint["groups.exclude"]),
        "refresh_groups": every_ms["refreshGroupsInterval"],
        "sync_group_offsets": every_ms["syncGroupOffsetsInterval"] if translates else None,
        "emit_heartbeats": every_ms["emitHeartbeatsInterval"],
        "heartbeats_replication_factor": heartbeat["heartbeats.topic.replication.factor"],
        "admin_timeout": source["admin.timeout.ms"],
        "source": {k: normal(k, v) for k, v in consumer.items() if is_shared(k)},
        "target": {k: normal(k, v) for k, v in producer_of(found).items() if is_shared(k)},
    }


def producer_of(found: dict[str, Any]) -> dict[str, str]:
    """As Connect's worker puts the settings of the producer together that writes the records."""
    worker, base = found["worker"], found["Source"]["values"] | found["Source"]["base"]
    settings = {k.removeprefix("producer."): v for k, v in worker.items() if k.startswith("producer.")}
    return settings | {
        k.removeprefix("producer.override."): v for k, v in base.items() if k.startswith("producer.override.")
    }


def normal(key: str, value: Any) -> str:
    """We keep blanks out of addresses and protocols in capitals; Java does so when it parses them."""
    text = str(value).strip()
    if key == "bootstrap.servers":
        return ",".join(item.strip() for item in text.split(","))
    return text.upper() if key == "security.protocol" else text


# ---- names ----

NOT_A_SETTING = {"task.assigned.groups", "task.assigned.partitions", "task.index"}  # what MM2 tells its own tasks


def test_every_setting_that_kafka_has_is_known(mm2: dict[str, Any]) -> None:
    """Nothing that MM2's classes define may be refused as unknown, wherever it stands."""
    names = mm2["names"]
    candidates = {f"us.{client}.{name}" for client in clients.CLIENTS for name in names[client]}
    candidates |= {f"us->eu.{side}.consumer.{name}" for side in ("source", "target") for name in names["consumer"]}
    for prefix in ("", "us.", "us->eu."):
        for kind in ("client", "Source", "Checkpoint", "Heartbeat", "worker", *clients.CLIENTS):
            candidates |= {f"{prefix}{name}" for name in names[kind]}
    unknown = {key for key in candidates if judge(locate(key, ["us", "eu"])).standing is Standing.UNKNOWN}
    assert unknown == set()


def test_what_connectors_take_from_the_top_level(mm2: dict[str, Any]) -> None:
    names = mm2["names"]
    theirs = {name for kind in ("Source", "Checkpoint", "Heartbeat") for name in names[kind]}
    mine = {key.name for key in keys.KEYS if is_connector_key(key.name) and not key.is_family}
    gone = {"auto.include.jmx.reporter", *ONLY_OURS}
    assert mine - theirs - gone == OUR_OWN.keys()
    assert {name for name in theirs if not is_connector_key(name)} == {
        "config.providers",  # taken by its prefix, with its family
    }


def test_what_every_client_shares(mm2: dict[str, Any]) -> None:
    theirs = set(mm2["names"]["client"])
    assert {name for name in theirs if not is_shared(name)} == set()
    mine = {key.name for key in keys.KEYS if key.scope is Scope.CLIENT and not key.is_family and is_shared(key.name)}
    assert mine - theirs == {"sasl.username", "sasl.password"}
