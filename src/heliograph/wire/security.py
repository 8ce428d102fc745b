"""From Kafka's client properties to what a connection needs: a TLS context and a login.

Answers for reading `security.protocol`, `ssl.*` and `sasl.*`, and for a ConfigError that names every bad key with the
cluster's alias. Does not open connections; the exchanges are in `sasl`, the stores in `stores`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass

from heliograph.errors import ConfigError
from heliograph.types import Cluster
from heliograph.wire import jaas, oauth
from heliograph.wire.link import Tls
from heliograph.wire.sasl import MECHANISMS, Login
from heliograph.wire.stores import StoreProblem, tls_of

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_FILES = ("ssl.truststore.location", "ssl.keystore.location")


@dataclass(frozen=True, slots=True)
class Security:
    protocol: str
    tls: Tls | None
    login: Login | None


def security_of(cluster: Cluster) -> Security:
    """Raises ConfigError. Kept until a property or a store's file changes: key stores are slow to open."""
    relevant = tuple(
        sorted(item for item in cluster.properties.items() if item[0].startswith(("security.", "ssl.", "sasl.")))
    )
    return _security(cluster.alias, relevant, _times(cluster.properties))


def _times(properties: Mapping[str, str]) -> tuple[int, ...]:
    times = []
    for key in _FILES:
        try:
            times.append(os.stat(properties[key]).st_mtime_ns)
        except (KeyError, OSError, ValueError):  # ValueError: a NUL in the path; `stores` says what is wrong with it
            times.append(0)
    return tuple(times)


@functools.lru_cache(maxsize=32)
def _security(alias: str, items: tuple[tuple[str, str], ...], _times: tuple[int, ...]) -> Security:
    properties = dict(items)
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"{alias}.security.protocol: is {protocol!r}, must be one of {', '.join(PROTOCOLS)}")
    problems: list[str] = []
    tls, login = None, None
    if protocol.endswith("SSL"):
        try:
            tls = tls_of(properties)
        except StoreProblem as problem:
            problems.append(f"{alias}.{problem.key}: {problem}")
    if protocol.startswith("SASL"):
        try:
            login = _login(alias, properties)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return Security(protocol, tls, login)


def _login(alias: str, properties: Mapping[str, str]) -> Login:
    mechanism = properties.get("sasl.mechanism", "").strip().upper()
    if mechanism not in MECHANISMS:
        why = f"is {mechanism!r}" if mechanism else "is not set"
        raise ConfigError(f"{alias}.sasl.mechanism: {why}, must be one of {', '.join(MECHANISMS)}")
    options = _options(alias, properties)
    _require_utf8(alias, {**properties, **options})
    if mechanism == "OAUTHBEARER":
        source = oauth.source_of(alias, properties, options)
        return Login(alias, mechanism, source.principal, "", token=source, extensions=source.extensions)
    username = options.get("username", properties.get("sasl.username", ""))
    password = options.get("password", properties.get("sasl.password", ""))
    missing = [name for name, value in (("username", username), ("password", password)) if not value]
    if missing:
        where = "sasl.jaas.config" if properties.get("sasl.jaas.config") else f"sasl.jaas.config (or sasl.{missing[0]})"
        raise ConfigError(f"{alias}.{where}: has no {' and no '.join(missing)} for {mechanism}")
    by_token = options.get("tokenauth", "").lower() == "true"
    return Login(alias, mechanism, username, password, extensions={"tokenauth": "true"} if by_token else {})


def _require_utf8(alias: str, settings: Mapping[str, str]) -> None:
    """A connector's JSON may hold half of a surrogate pair, which no login can send."""
    for key, value in settings.items():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"{alias}.sasl.jaas.config: {key} holds half a surrogate pair, which is no text"
            ) from None


def _options(alias: str, properties: Mapping[str, str]) -> dict[str, str]:
    text = properties.get("sasl.jaas.config", "").strip()
    if not text:
        return {}
    try:
        return jaas.parse(text).options
    except ValueError as error:
        raise ConfigError(f"{alias}.sasl.jaas.config: {error}") from None


def principal_of(cluster: Cluster) -> str | None:
    """Our principal as the cluster's ACLs name it; None where only the broker knows: principals of certificates and
    tokens follow its own rules (`ssl.principal.mapping.rules`, claims). Never raises: what is wrong with a login is
    `security_of`'s to say."""
    properties = cluster.properties
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol == "PLAINTEXT":
        return "User:ANONYMOUS"
    if not protocol.startswith("SASL"):
        return None
    try:
        options = _options(cluster.alias, properties)
    except ConfigError:
        return None
    if properties.get("sasl.mechanism", "").strip().upper() == "OAUTHBEARER":
        unsecured = not properties.get("sasl.oauthbearer.token.endpoint.url", "").strip()
        claim = options.get("unsecuredLoginPrincipalClaimName", "sub")
        name = options.get(f"unsecuredLoginStringClaim_{claim}", "") if unsecured else ""
    elif options.get("tokenauth", "").lower() == "true":
        name = ""  # a delegation token's id; the principal is its owner
    else:
        name = options.get("username", properties.get("sasl.username", ""))
    return f"User:{name}" if name else None
