"""How a worker is reached: its addresses, who we are, whom we trust. Secrets come from a file or the environment alone:
an argument can be read by every user of the machine, and stays in the shell's history.

A file of credentials is `user = …` and `password = …`, or `token = …`, a line each. Nothing is sent here.
"""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from heliograph.errors import ConfigError

USER, PASSWORD, TOKEN = "HELIOGRAPH_CONNECT_USER", "HELIOGRAPH_CONNECT_PASSWORD", "HELIOGRAPH_CONNECT_TOKEN"
FIELDS = ("user", "password", "token")
PORTS = {"http": 80, "https": 443}
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Address:
    scheme: str
    host: str
    port: int
    path: str = ""  # before /connectors, where a proxy puts workers below one

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


@dataclass(frozen=True, slots=True)
class Access:
    """`authorization`: the header's value, or empty; it is never printed."""

    addresses: tuple[Address, ...]
    authorization: str = field(default="", repr=False)
    context: ssl.SSLContext | None = None

    @property
    def in_the_clear(self) -> bool:
        """Whether secrets would cross a network unencrypted."""
        return bool(self.authorization) and any(
            one.scheme == "http" and one.host not in LOOPBACK for one in self.addresses
        )


def access(
    urls: str,
    *,
    credentials: Path | None = None,
    cacert: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Access:
    """`urls`: one, or several of one group with commas between; the first that answers is asked. Raises ConfigError."""
    addresses = tuple(_address(url.strip()) for url in urls.split(",") if url.strip())
    if not addresses:
        raise ConfigError("no address of a worker: --url http://host:8083")
    login = _from_file(credentials) if credentials else _from_environment(environment or os.environ)
    return Access(addresses, _authorization(login), _context(cacert, addresses))


def _address(url: str) -> Address:
    if "://" not in url:
        url = f"http://{url}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        raise ConfigError(f"--url {_public(url)}: {problem}") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"--url {_public(url)}: no user or password in an address: use --credentials FILE or {USER} and {PASSWORD}"
        )
    if parts.scheme not in PORTS or not parts.hostname:
        raise ConfigError(f"--url {_public(url)}: not http://HOST:PORT or https://HOST:PORT")
    if parts.query or parts.fragment:
        raise ConfigError(f"--url {_public(url)}: the address of a worker has no ? and no #")
    return Address(parts.scheme, parts.hostname, port or _port(parts), parts.path.rstrip("/"))


def _port(parts: SplitResult) -> int:
    return PORTS[parts.scheme]


def _public(url: str) -> str:
    """Without what stands before an @."""
    scheme, _, rest = url.rpartition("://")
    return f"{scheme}://…@{rest.rpartition('@')[2]}" if "@" in rest else url


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    named = {"user": USER, "password": PASSWORD, "token": TOKEN}
    found = {name: environment[variable] for name, variable in named.items() if environment.get(variable)}
    return _complete(found, "the environment", named)


def _from_file(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"the credentials cannot be read: {problem}", source=str(path)) from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or name.strip() not in FIELDS:  # the line itself is not shown: it may be the secret
            raise ConfigError(f"line {number} is not user = …, password = … or token = …", source=str(path))
        found[name.strip()] = value.strip()
    if not found:
        raise ConfigError("has neither user and password nor token", source=str(path))
    return _complete(found, str(path), {name: name for name in FIELDS})


def _complete(found: dict[str, str], source: str, names: Mapping[str, str]) -> dict[str, str]:
    if "token" in found and len(found) > 1:
        raise ConfigError(f"either {names['token']}, or {names['user']} and {names['password']}", source=source)
    if ("user" in found) != ("password" in found):
        missing = "password" if "user" in found else "user"
        raise ConfigError(f"{names[missing]} is missing", source=source)
    if any(not value.isprintable() for value in found.values()):
        raise ConfigError("a secret with control characters in it", source=source)
    if ":" in found.get("user", ""):
        raise ConfigError(f"{names['user']}: basic authentication has no colon in a user's name", source=source)
    return found


def _authorization(login: Mapping[str, str]) -> str:
    if "token" in login:
        return f"Bearer {login['token']}"
    if "user" in login:
        pair = f"{login['user']}:{login['password']}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"
    return ""


def _context(cacert: Path | None, addresses: tuple[Address, ...]) -> ssl.SSLContext | None:
    if not any(one.scheme == "https" for one in addresses):
        if cacert is not None:
            raise ConfigError(f"--cacert {cacert}: no address begins with https://")
        return None
    try:
        return ssl.create_default_context(cafile=None if cacert is None else str(cacert))
    except (OSError, ssl.SSLError) as problem:
        raise ConfigError(f"--cacert {cacert}: no certificates in PEM can be read from it: {problem}") from None
