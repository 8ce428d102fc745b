"""The three files by which one source cluster is deployed: `mm2-msc-C.json`, `mm2-cpc-C.json`, `mm2-hbc-C.json`, each a
connector's configuration as `PUT /connectors/NAME/config` takes it. Every problem of all three is told at once.

What the values mean is the worker's affair (`validate`); here it is that there are three whole configurations which
belong together. Pure but for reading.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heliograph.errors import ConfigError

CLASSES = "org.apache.kafka.connect.mirror"
TOGETHER = (  # what the three of one cluster must agree on, or one of them works on something else
    "source.cluster.alias",
    "source.cluster.bootstrap.servers",
    "target.cluster.alias",
    "target.cluster.bootstrap.servers",
    "replication.policy.class",
    "replication.policy.separator",
)


@dataclass(frozen=True, slots=True)
class Kind:
    letters: str  # in the file's name
    word: str
    connector: str  # its class, without the package

    @property
    def names(self) -> tuple[str, ...]:
        """As Connect takes them: in full, without the package, and without the ending."""
        return (f"{CLASSES}.{self.connector}", self.connector, self.connector.removesuffix("Connector"))


KINDS = (
    Kind("msc", "source", "MirrorSourceConnector"),
    Kind("cpc", "checkpoint", "MirrorCheckpointConnector"),
    Kind("hbc", "heartbeat", "MirrorHeartbeatConnector"),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A connector as its file has it. All values are texts, as Connect keeps them."""

    name: str
    kind: Kind
    path: Path
    config: Mapping[str, str]


def names_of(cluster: str) -> list[str]:
    """The connectors of a source cluster. Raises ConfigError for what is no name of one."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", cluster):
        raise ConfigError(f"{cluster!r} is no name of a cluster: letters, digits, '.', '_' and '-'")
    return [f"mm2-{kind.letters}-{cluster}" for kind in KINDS]


def read_files(folder: Path, cluster: str) -> tuple[list[Wanted], list[str]]:
    """The three, and warnings. Raises ConfigError with everything that is wrong."""
    problems: list[str] = []
    found: list[Wanted] = []
    for kind, name in zip(KINDS, names_of(cluster), strict=True):
        path = folder / f"{name}.json"
        try:
            config = _read(path)
        except ValueError as problem:
            problems.append(f"{path}: {problem}")
            continue
        wrong = _problems(config, kind, name)
        problems += [f"{path}: {text}" for text in wrong]
        if not wrong:
            found.append(Wanted(name, kind, path, {"name": name, **config}))
    if problems:
        raise ConfigError(problems)
    return found, _disagreements(found)


def _read(path: Path) -> dict[str, Any]:
    """Raises ValueError, in words."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise ValueError("missing") from None
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    except OSError as problem:
        raise ValueError(f"cannot be read: {problem.strerror}") from None
    try:
        # Numbers stay as they are written: Connect keeps texts, and 1e3 is not 1000.0.
        found = json.loads(text, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_once)
    except json.JSONDecodeError as problem:
        raise ValueError(f"no JSON: {problem.msg}, line {problem.lineno}, column {problem.colno}") from None
    except RecursionError:
        raise ValueError("no configuration: nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError('no configuration: it must be an object, { "name": …, "connector.class": … }')
    return {key: str(value).lower() if isinstance(value, bool) else value for key, value in found.items()}


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"said twice: {', '.join(twice)}")
    return found


def _problems(config: Mapping[str, Any], kind: Kind, name: str) -> list[str]:
    if isinstance(config.get("config"), dict) and "connector.class" not in config:
        return ["has the form of POST /connectors: what stands under `config` must stand at the top"]
    wrong = [
        f"{key} = {json.dumps(value)}: a value is a text, a number or a boolean"
        for key, value in config.items()
        if not isinstance(value, str)
    ]
    if config.get("name", name) != name:
        wrong.append(f"name = {config['name']}: must be {name}, as the file is called")
    known = config.get("connector.class")
    if known is None:
        wrong.append(f"connector.class is missing: {kind.names[0]}")
    elif known not in kind.names:
        wrong.append(f"connector.class = {known}: in this file it must be {kind.names[0]}")
    return wrong


def _disagreements(found: Sequence[Wanted]) -> list[str]:
    warnings = []
    for key in TOGETHER:
        said = {one.path.name: one.config[key] for one in found if key in one.config}
        if len(set(said.values())) > 1:
            each = ", ".join(f"{value} in {file}" for file, value in said.items())
            warnings.append(f"{key} is not the same: {each}")
    return warnings
