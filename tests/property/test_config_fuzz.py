"""Whatever stands in a file, reading it ends in a model or in a ConfigError, never in another exception."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph import policy
from heliograph.config import keys, properties, providers
from heliograph.config.load import parse
from heliograph.config.model import Config
from heliograph.errors import ConfigError

DATA = Path(__file__).parent.parent / "data" / "mm2"
ALIASES = ("us", "eu", "us.west", "source", "topics", "é", "")
ENVIRONMENT = {"A": "b:1", "TRUE": "true", "NUL": "\0", "LINES": "a\nb"}
PREFIXES = st.one_of(
    st.just(""),
    st.sampled_from(ALIASES).map(lambda a: f"{a}."),
    st.tuples(st.sampled_from(ALIASES), st.sampled_from(ALIASES)).map(lambda p: f"{p[0]}->{p[1]}."),
    st.sampled_from(["us.consumer.", "eu.producer.", "us->eu.source.consumer.", "us->eu.consumer."]),
    st.sampled_from(["us.admin.", "us->eu.producer.override.", "us->eu.target.producer.", "config.providers.env."]),
)
NAMES = st.one_of(
    st.sampled_from([key.name for key in keys.KEYS]),
    st.sampled_from([key.name for key in keys.KEYS if key.honoured]),
    st.sampled_from(["isolation.level", "auto.offset.reset", "fetch.min.bytes", "ssl.key.password", "class"]),
    st.text(max_size=12),
)
VALUES = st.one_of(
    st.text(max_size=30),
    st.text(alphabet="ab.*+?{}[]()|\\^$&-,~<>:=!idmsux0159 ", max_size=25),
    st.sampled_from(
        [
            *(
                "${env:A}",
                "${env:TRUE}",
                "${env:NUL}x${env:LINES}",
                "${env:NONE}",
                "${dir:/:etc}",
                "${file:/dev/null:x}",
            ),
            *("env, file, dir", "latest", "read_uncommitted", "source", "target", "3", "_", "a:b", "os:path", "..x:y"),
            *(f"{providers.PACKAGE}{name}ConfigProvider" for name in ("EnvVar", "File", "Directory")),
            *("org.apache.kafka.connect.mirror.IdentityReplicationPolicy", "IdentityReplicationPolicy"),
        ]
    ),
    st.sampled_from(
        ["true", "false", "us, eu", "us,eu,us.west", "-1", "0", "1", "SASL_SSL", "PLAIN", "h:1", "9" * 5000]
    ),
)
LINES = st.lists(st.tuples(PREFIXES, NAMES, VALUES).map(lambda t: f"{t[0]}{t[1]} = {t[2]}"), max_size=12)
GOOD = "clusters = us, eu\nus.bootstrap.servers = a:1\neu.bootstrap.servers = b:1\nus->eu.enabled = true\n"
PROVIDERS = f"""config.providers = env, file, dir
config.providers.env.class = {providers.PACKAGE}EnvVarConfigProvider
config.providers.file.class = {providers.PACKAGE}FileConfigProvider
config.providers.dir.class = {providers.PACKAGE}DirectoryConfigProvider
"""


def read(data: bytes, lenient: bool = False) -> Config | ConfigError:
    problem = None
    try:
        config = parse(data, lenient=lenient, environment=ENVIRONMENT)
    except ConfigError as refused:
        problem = refused
    if problem:
        assert problem.problems
        assert all(text.isprintable() for text in problem.problems)
        return problem
    assert config.flows or config.heartbeat_only
    for flow in (*config.flows, *config.heartbeat_only):
        assert flow.source.alias in config.clusters
        assert flow.target.bootstrap
        assert flow.refresh_topics_interval_seconds > 0
        assert flow.naming.separator
        assert config.explained[flow.name]
        policy.should_replicate(flow, "orders")
    assert all(warning.isprintable() for warning in config.warnings)
    return config


@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    read(data)


@given(LINES, st.sampled_from(["", GOOD, GOOD + PROVIDERS]), st.booleans())
@settings(max_examples=800)
def test_any_keys_and_values(lines: list[str], beginning: str, lenient: bool) -> None:
    read((beginning + "\n".join(lines)).encode(), lenient)


@pytest.mark.parametrize("file", sorted(DATA.glob("*.properties")), ids=lambda path: path.stem)
@given(data=st.data())
@settings(max_examples=15)
def test_a_real_file_with_a_piece_cut_out_or_doubled(file: Path, data: st.DataObject) -> None:
    text = file.read_bytes()
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(len(text), begin + 60)))
    piece = data.draw(st.sampled_from([b"", text[begin:end] * 2, b"\\", b"\0", b"\xff", b"${", b"->", b"\n"]))
    read(text[:begin] + piece + text[end:], lenient=data.draw(st.booleans()))


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=8))
def test_what_is_written_with_escapes_is_read_back(pairs: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        return "".join(f"\\u{unit:04x}" for unit in _utf16(text))

    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in pairs.items())
    entries = properties.parse(text.encode()).entries
    assert {key: entry.value for key, entry in entries.items()} == pairs


def _utf16(text: str) -> list[int]:
    raw = text.encode("utf-16-be")
    return [int.from_bytes(raw[i : i + 2], "big") for i in range(0, len(raw), 2)]
