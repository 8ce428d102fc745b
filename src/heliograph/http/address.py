"""Where to listen, as it is written behind `--http`: [https://][HOST:]PORT."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from heliograph.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    tls: bool = False


def parse_address(text: str, *, insecure: bool = False) -> Address:
    """PORT alone means 127.0.0.1. Beyond this machine only when told so: nobody is asked for a password."""
    scheme, separator, rest = text.strip().rpartition("://")
    host, _, port = rest.removesuffix("/").rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    known = not separator or scheme.lower() in ("http", "https")
    if not known or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise ConfigError(
            f"--http {text}: not HOST:PORT or PORT, e.g. --http 8083, --http 127.0.0.1:8083 or --http https://0.0.0.0:8443"
        )
    if not insecure and not is_loopback(host):
        raise ConfigError(
            f"--http {text}: whoever reaches {host} could read topic names and figures, for nobody is asked for a "
            "password; keep to loopback (--http PORT), name --users FILE, or say --insecure"
        )
    return Address(host, int(port), scheme.lower() == "https")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
