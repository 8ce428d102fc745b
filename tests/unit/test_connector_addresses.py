"""What a connector's JSON may make the worker do: import, read, fetch, and where it may send the worker's credentials
(faults E2, E3, E5)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from heliograph.config import credentials, keys, worker
from heliograph.config.connectors import Made, make
from heliograph.config.shape import Kind
from heliograph.connect.validation import judge
from heliograph.errors import ConfigError

FILE = b"""bootstrap.servers=good:9092
group.id=g
config.storage.topic=c
offset.storage.topic=o
status.storage.topic=s
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=x.PlainLoginModule required username="worker" password="WORKERPW";
ssl.truststore.location=/etc/trust.pem
"""
BASE = {
    "connector.class": "MirrorSourceConnector",
    "name": "x",
    "source.cluster.alias": "us",
    "target.cluster.alias": "eu",
    "source.cluster.bootstrap.servers": "127.0.0.1:1",
    "topics": ".*",
}
URL = "sasl.oauthbearer.token.endpoint.url"


def made(config: dict[str, str], more: bytes = b"") -> Made:
    return make("x", {**BASE, **config}, worker.parse(FILE + more, environment={}).worker)


# ---- classes ----


@pytest.mark.parametrize("name", [key.name for key in keys.KEYS if key.kind is Kind.CLASS])
@pytest.mark.parametrize("value", ["this:s", "this", "antigravity:fly"])
def test_no_class_name_of_a_connector_is_imported(name: str, value: str) -> None:
    readers = worker.parse(FILE, environment={}).worker.for_readers()
    for prefix in ("", "source.cluster.", "producer.override."):
        judge("x", {**BASE, f"{prefix}{name}": value}, readers)
        judge("x", {**BASE, f"{prefix}{name}": value}, worker.parse(FILE, environment={}).worker)
    assert not {"this", "antigravity"} & set(sys.modules)


def test_a_connector_cannot_allow_itself_a_class() -> None:
    config = {"replication.policy.class": "this:s", "heliograph.policy.classes": "this:s"}
    assert "may not be imported" in made(config).problems["replication.policy.class"][0]
    assert "this" not in sys.modules


# ---- token endpoints ----


def token_url(url: str, allowed: str = "", prefix: str = "source.cluster.") -> tuple[str, ...]:
    own = {"producer.override.sasl.jaas.config": "x.M required;"}
    listed = f"org.apache.kafka.sasl.oauthbearer.allowed.urls={allowed}\n".encode() if allowed else b""
    return made({f"{prefix}{URL}": url, **own}, listed).problems.get(f"{prefix}{URL}", ())


@pytest.mark.parametrize("prefix", ["source.cluster.", "target.cluster.", "producer.override.", "source.consumer."])
def test_tokens_of_connectors_come_from_where_the_worker_allows(prefix: str) -> None:
    url = "https://idp.example:8443/realms/a/token"
    assert "org.apache.kafka.sasl.oauthbearer.allowed.urls" in token_url(url, prefix=prefix)[0]
    assert not token_url(url, url, prefix)
    assert not token_url(url, f"https://other/, {url}", prefix)
    assert not token_url(url, "https://IDP.example:8443/", prefix)


@pytest.mark.parametrize(
    "url",
    [
        *("file:/etc/passwd", "FILE:///etc/passwd", "ftp://idp.example/", "data:,x", "idp.example", ""),
        "http://idp.example:8443/realms/a/token",  # another scheme
        "https://idp.example/realms/a/token",  # another port
        "https://idp.example:8443/realms/a/token/../../admin",  # another path
        "https://idp.example:8443@evil.example/",
        "https://evil.example\\@idp.example:8443/",
        "https://idp.example:8443\t.evil.example/",
        "http://169.254.169.254/latest/meta-data",
        "https://[half",
        "https:///x",
    ],
)
def test_no_other_address(url: str) -> None:
    assert token_url(url, "https://idp.example:8443/realms/a/token")


def test_the_workers_list_is_of_urls() -> None:
    for bad in ("file:/etc/token", "idp.example", "https://a b/"):
        with pytest.raises(ConfigError, match=r"allowed\.urls"):
            worker.parse(FILE + f"org.apache.kafka.sasl.oauthbearer.allowed.urls={bad}\n".encode())


def test_a_file_with_a_token_is_only_read_for_a_file_of_the_operators(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("root-only-secret")
    found = judge("x", {**BASE, f"source.cluster.{URL}": (tmp_path / "secret").as_uri()}, worker.parse(FILE).worker)
    assert found.made.flow is None
    assert "files of the worker's machine are not read" in found.words


# ---- credentials ----


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bootstrap.servers", "evil:9092"),
        ("security.protocol", "SASL_PLAINTEXT"),  # the worker's is SASL_SSL: the password would be read on the way
        ("ssl.endpoint.identification.algorithm", ""),  # unset, it is https
        ("ssl.truststore.certificates", "-----BEGIN CERTIFICATE-----"),
    ],
)
def test_the_workers_credentials_go_to_the_workers_cluster_alone(key: str, value: str) -> None:
    found = made({f"producer.override.{key}": value})
    assert found.flow is None
    assert "producer.override.sasl.jaas.config" in found.problems[f"producer.override.{key}"][0]
    own = made({f"producer.override.{key}": value, "producer.override.sasl.jaas.config": "OWN"})
    assert own.flow is not None
    assert "WORKERPW" not in repr(dict(own.flow.target.properties))


def test_an_override_of_the_same_address_inherits_them() -> None:
    found = made({"producer.override.bootstrap.servers": "good:9092"})
    assert found.flow is not None
    assert "WORKERPW" in found.flow.target.properties["sasl.jaas.config"]


STORED = {
    "source.cluster.bootstrap.servers": "good:9092",
    "source.cluster.sasl.jaas.config": "SECRET",
    "target.cluster.bootstrap.servers": "other:9092",
    "target.cluster.sasl.jaas.config": "OTHER",
    "topics": "a",
}
MOVES = [
    {"source.cluster.bootstrap.servers": "evil:9092"},
    {"consumer.bootstrap.servers": "evil:9092"},
    {"source.consumer.bootstrap.servers": "evil:9092"},
    {"source.cluster.security.protocol": "SASL_PLAINTEXT"},
    {"source.cluster.sasl.oauthbearer.token.endpoint.url": "https://evil/"},
    {"source.cluster.ssl.endpoint.identification.algorithm": " "},
    {"source.cluster.ssl.truststore.certificates": "x"},
    {"bootstrap.servers": "evil:9092"},
]


@pytest.mark.parametrize("move", MOVES)
def test_hidden_secrets_stay_with_the_address_they_were_given_for(move: dict[str, str]) -> None:
    seen = credentials.masked(STORED)
    with pytest.raises(credentials.SecretsNotKept, match=r"give source\.cluster\.sasl\.jaas\.config"):
        credentials.unmasked({**seen, **move}, STORED)
    with pytest.raises(credentials.SecretsNotKept, match=r"give source\.cluster\.sasl\.jaas\.config"):
        credentials.patched(move, STORED)
    with pytest.raises(credentials.SecretsNotKept):
        credentials.patched({**move, "source.cluster.sasl.jaas.config": "***"}, STORED)


def test_other_changes_keep_them_and_secrets_given_again_go_anywhere() -> None:
    seen = credentials.masked(STORED)
    assert credentials.unmasked({**seen, "topics": "b"}, STORED) == {**STORED, "topics": "b"}
    assert credentials.patched({"topics": "b"}, STORED) == {**STORED, "topics": "b"}
    moved = {"source.cluster.bootstrap.servers": "new:9092", "source.cluster.sasl.jaas.config": "NEW"}
    assert credentials.unmasked({**seen, **moved}, STORED) == {**STORED, **moved}
    assert credentials.patched(moved, STORED) == {**STORED, **moved}


def test_a_target_that_is_left_out_is_another_address() -> None:
    stored = {**STORED, "producer.override.sasl.jaas.config": "MINE"}
    with pytest.raises(credentials.SecretsNotKept, match=r"target\.cluster\.bootstrap\.servers changed"):
        credentials.patched({"target.cluster.bootstrap.servers": None}, stored)


# ---- how much is judged ----


def test_a_configuration_of_a_hundred_thousand_keys_is_not_judged_key_by_key() -> None:
    """Looking for the nearest known key of each would take ten minutes, for any reader's `validate`."""
    many = {f"topic{number}": "x" for number in range(100_000)}
    assert "a connector may have" in made(many).problems[""][0]
    some = made({f"topic{number}": "x" for number in range(900)})
    assert sum("did you mean" in text for text in some.warnings) == 10
    assert len(some.warnings) == 900


# ---- what the worker's file allows ----


@pytest.mark.parametrize(
    ("policy", "refused"),
    [
        ("All", []),
        ("None", ["linger.ms", "sasl.jaas.config"]),
        ("org.apache.kafka.connect.connector.policy.PrincipalConnectorClientConfigOverridePolicy", ["linger.ms"]),
    ],
)
def test_connectors_override_what_the_policy_of_the_workers_file_allows(policy: str, refused: list[str]) -> None:
    """It was passed over without a word, and connectors overrode what the operator had forbidden."""
    own = {f"{client}.override.linger.ms": "5" for client in ("producer", "consumer", "admin")}
    own |= {f"{client}.override.sasl.jaas.config": "x.Plain required;" for client in ("producer", "consumer", "admin")}
    found = made(own, f"connector.client.config.override.policy={policy}\n".encode()).problems
    wanted = {f"{client}.override.{key}" for client in ("producer", "consumer", "admin") for key in refused}
    assert {key for key in found if "override" in key} == wanted
    assert all("connector.client.config.override.policy" in found[key][0] for key in wanted)


def test_a_policy_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be All, None or Principal"):
        worker.parse(FILE + b"connector.client.config.override.policy=com.acme.Strict\n", environment={})


@pytest.mark.parametrize(
    "line", [b"rest.extension.classes=org.apache.kafka.BasicAuthSecurityRestExtension", b"admin.listeners="]
)
def test_keys_that_keep_nobody_out_here_say_so(line: bytes) -> None:
    (warning,) = worker.parse(FILE + line, environment={}).warnings
    assert "--users FILE" in warning
