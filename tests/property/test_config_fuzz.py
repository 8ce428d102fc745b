"""Whatever stands in a file, reading it ends in a model or in a ConfigError, never in another exception."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.config import keys, properties
from heliograph.config.load import parse
from heliograph.config.model import Config
from heliograph.errors import ConfigError

ALIASES = ("us", "eu", "us.west", "source", "topics", "é", "")
PREFIXES = st.one_of(
    st.just(""),
    st.sampled_from(ALIASES).map(lambda a: f"{a}."),
    st.tuples(st.sampled_from(ALIASES), st.sampled_from(ALIASES)).map(lambda p: f"{p[0]}->{p[1]}."),
    st.sampled_from(["us.consumer.", "eu.producer.", "us->eu.source.consumer.", "us->eu.consumer."]),
)
NAMES = st.one_of(st.sampled_from([key.name for key in keys.KEYS]), st.text(max_size=12))
VALUES = st.one_of(
    st.text(max_size=30),
    st.text(alphabet="ab.*+?{}[]()|\\^$&-,~<>:=!idmsux0159 ", max_size=25),
    st.sampled_from(
        ["true", "false", "us, eu", "us,eu,us.west", "-1", "0", "1", "SASL_SSL", "PLAIN", "h:1", "9" * 5000]
    ),
)
LINES = st.lists(st.tuples(PREFIXES, NAMES, VALUES).map(lambda t: f"{t[0]}{t[1]} = {t[2]}"), max_size=12)
GOOD = "clusters = us, eu\nus.bootstrap.servers = a:1\neu.bootstrap.servers = b:1\nus->eu.enabled = true\n"


def read(data: bytes) -> Config | ConfigError:
    problem = None
    try:
        config = parse(data)
    except ConfigError as refused:
        problem = refused
    if problem:
        assert problem.problems
        assert all(text.isprintable() for text in problem.problems)
        return problem
    assert config.flows
    for flow in config.flows:
        assert flow.source.alias in config.clusters
        assert flow.target.bootstrap
        assert flow.refresh_topics_interval_seconds > 0
    assert all(warning.isprintable() for warning in config.warnings)
    return config


@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    read(data)


@given(LINES, st.booleans())
@settings(max_examples=400)
def test_any_keys_and_values(lines: list[str], begin_well: bool) -> None:
    read(((GOOD if begin_well else "") + "\n".join(lines)).encode())


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
