"""The bare way to a broker: name, TCP, TLS; and words for every way it can fail.

Answers for addresses, opening a socket within a deadline, and turning the errors of sockets and OpenSSL into
Heliograph's. Does not speak Kafka.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from dataclasses import dataclass
from typing import NamedTuple

from heliograph.errors import ConfigError, ConnectionLost, Unreachable, Untrusted, WireError
from heliograph.types import Cluster

# What Python raises, instead of an OSError, for a host that is no host name (`broker..internal` or a label of more than
# 63 characters: UnicodeError, a ValueError; a NUL: TypeError) and for a port beyond 65535. Brokers advertise what an
# operator typed into advertised.listeners.
NOT_AN_ADDRESS = (ValueError, TypeError, OverflowError)


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Tls:
    """How to secure a socket. `truststore` names the key that decides whom we trust, for error messages."""

    context: ssl.SSLContext
    truststore: str = ""
    keystore: str = ""


def bootstrap_addresses(cluster: Cluster) -> list[Address]:
    """`<alias>.bootstrap.servers` as addresses; ConfigError for what is not one."""
    key = f"{cluster.alias}.bootstrap.servers"
    found, problems = [], []
    for item in filter(None, (part.strip() for part in cluster.bootstrap.split(","))):
        host, _, port = item.rpartition("://")[2].rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if host and port.isascii() and port.isdigit() and 0 < int(port) < 65536:
            found.append(Address(host, int(port)))
        else:
            problems.append(f"{key}: {item!r} is not host:port")
    if not found and not problems:
        problems.append(f"{key}: is not set; name at least one broker as host:port")
    if problems:
        raise ConfigError(problems)
    return found


def connect(address: Address, alias: str, tls: Tls | None, deadline: float) -> socket.socket:
    """A connected (and secured) socket, or Unreachable, Untrusted."""
    try:
        if not 0 < address.port < 65536:  # with a numeric host, getaddrinfo would take 70000 for 4464
            raise OverflowError(f"port {address.port}")
        sock = socket.create_connection(address, timeout=max(deadline - time.monotonic(), 0.001))
    except OSError as error:
        raise unreachable(address, alias, error) from error
    except NOT_AN_ADDRESS as error:
        raise not_an_address(address, alias, error) from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A far broker that vanishes without a word is noticed in minutes, not in hours.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return sock if tls is None else secure(sock, address, alias, tls, deadline)
    except BaseException:
        sock.close()
        raise


def secure(sock: socket.socket, address: Address, alias: str, tls: Tls, deadline: float) -> socket.socket:
    try:
        secured = tls.context.wrap_socket(sock, server_hostname=address.host, do_handshake_on_connect=False)
    except NOT_AN_ADDRESS as error:  # not for every name that resolves: an empty one does
        raise not_an_address(address, alias, error) from error
    try:
        secured.settimeout(max(deadline - time.monotonic(), 0.001))
        secured.do_handshake()
    except OSError as error:  # ssl.SSLError is one
        with contextlib.suppress(OSError):
            secured.close()
        raise tls_error(address, alias, tls, error) from error
    return secured


def reason(error: OSError) -> str:
    """An OS error in a few words."""
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, socket.gaierror):
        return "the host name does not resolve"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    return error.strerror.lower() if error.strerror else str(error)


def unreachable(address: Address, alias: str, error: OSError) -> Unreachable:
    fix = {
        "refused": "Is the broker up, and is this its port?",
        "the host name does not resolve": "Check the name, or the broker's advertised.listeners",
        "no answer in time": "Check the address, firewalls, and the broker's advertised.listeners",
    }.get(reason(error), "")
    return Unreachable(
        f"{alias} broker {address}: {reason(error)}", fix=fix, reason=reason(error), **_context(address, alias)
    )


def not_an_address(address: Address, alias: str, error: Exception) -> Unreachable:
    """Retriable: the cluster may advertise another address by the next try."""
    why = "this is not a host name and a port"
    return Unreachable(
        f"{alias} broker {address}: {why}: {error}",
        fix=f"Check {alias}.bootstrap.servers, and advertised.listeners of that broker",
        reason=why,
        **_context(address, alias),
    )


def tls_error(address: Address, alias: str, tls: Tls, error: OSError) -> WireError:
    where = f"{alias} broker {address}"
    context = _context(address, alias)
    if isinstance(error, ssl.SSLCertVerificationError):
        if "hostname" in error.verify_message.lower() or "ip address" in error.verify_message.lower():
            return Untrusted(
                f"{where}: its certificate is for another host: {error.verify_message}",
                fix=f"Use a name that is in the certificate, or set {alias}.ssl.endpoint.identification.algorithm to "
                "nothing",
                **context,
            )
        return Untrusted(
            f"{where}: its certificate is not trusted: {error.verify_message}",
            fix=f"Put the authority that signed it into {alias}.{tls.truststore}",
            **context,
        )
    if isinstance(error, ssl.SSLError) and _is_refusal(error):
        return _refused(where, alias, tls, error, context)
    if isinstance(error, TimeoutError):
        return Unreachable(
            f"{where}: no answer to the TLS handshake",
            fix=f"Is this a TLS port? {alias}.security.protocol says so",
            **context,
        )
    return Unreachable(
        f"{where}: the TLS handshake failed: {reason(error)}",
        fix=f"If this port is a plaintext listener's, set {alias}.security.protocol to PLAINTEXT or SASL_PLAINTEXT",
        **context,
    )


def _is_refusal(error: ssl.SSLError) -> bool:
    return "ALERT" in (error.reason or "")


def _refused(where: str, alias: str, tls: Tls, error: ssl.SSLError, context: dict[str, str]) -> Untrusted:
    said = (error.reason or "").lower().replace("_", " ")
    fix = (
        f"Set {alias}.ssl.keystore.location (or ssl.keystore.key and ssl.keystore.certificate.chain): the broker may "
        "ask for a client certificate"
        if not tls.keystore
        else f"Check that the broker trusts the certificate of {alias}.{tls.keystore}"
    )
    return Untrusted(f"{where} refused the TLS handshake: {said}", fix=fix, **context)


def closed_while_opening(address: Address, alias: str, protocol: str, error: ConnectionLost) -> WireError:
    """The broker hung up before it answered: mostly the wrong protocol for the port, and with TLS 1.3 also the moment
    at which it refuses our certificate."""
    cause = error.__cause__
    if isinstance(cause, ssl.SSLError) and _is_refusal(cause):
        # TLS 1.3: our certificate is looked at after our side of the handshake is done.
        said = (cause.reason or "").lower().replace("_", " ")
        return Untrusted(
            f"{alias} broker {address} refused this client's certificate: {said}",
            fix=f"Set {alias}.ssl.keystore.location to a certificate that the broker trusts",
            **_context(address, alias),
        )
    other = "a plaintext" if "SSL" in protocol else "a TLS"
    return Unreachable(
        f"{alias} broker {address} hung up while the connection was opened ({error.message.rpartition(': ')[2]})",
        fix=f"{alias}.security.protocol is {protocol}; the port may be {other} listener's",
        **_context(address, alias),
    )


def _context(address: Address, alias: str) -> dict[str, str]:
    return {"cluster": alias, "broker": str(address)}
