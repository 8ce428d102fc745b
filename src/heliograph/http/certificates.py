"""The server's certificate: read again when its files change, and watched for its end.

Invariants:
  a. Each connection gets the context that is in force when it is accepted; those that are open keep theirs.
  b. Files that cannot be read, or do not fit together, change nothing: the last good certificate is served, notices
     say so. A key and a certificate in two files are written one after the other, so a fault counts when it lasts.
  c. What is watched is the certificate that clients are shown, found by a handshake in memory: whatever store it came
     from. Intermediate certificates are not looked at.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from datetime import datetime

import structlog
from cryptography import x509

from heliograph.errors import ConfigError
from heliograph.http.notices import Notices
from heliograph.http.watch import Signature, signature
from heliograph.wire.stores import StoreProblem, server_tls_of

log = structlog.get_logger()

FILES = ("ssl.keystore.location", "ssl.truststore.location")
DAY_S = 86_400.0
STEPS_DAYS = (30, 7, 1, 0)  # before its end a certificate is warned about, once at each; 0: it has ended
FAULT, END = "certificate", "certificate-end"  # topics of the notices


class Certificates:
    """`look`, called every second, takes the files up when they changed."""

    def __init__(self, properties: Mapping[str, str], notices: Notices, *, prefix: str = "listeners.https.") -> None:
        """Raises ConfigError. `prefix`: what the keys begin with where they were written."""
        self._properties, self._notices, self._prefix = dict(properties), notices, prefix
        self._files = [properties[key] for key in FILES if properties.get(key)]
        self._seen: Signature = signature(*self._files)
        self._tried: Signature | None = None  # files that were wrong; told when they are still wrong at the next look
        self._step: int | None = None
        self.context, self.ends = self._load()
        self._watch_end()

    def look(self) -> None:
        now = signature(*self._files)
        if now != self._seen or self._tried is not None:
            self._read_again(now)
        self._watch_end()

    def _read_again(self, now: Signature) -> None:
        try:
            context, ends = self._load()
        except ConfigError as error:
            if self._tried == now and self._seen != now:
                self._seen = now
                why = "; ".join(error.problems)
                text = f"the certificate's files are not taken up, the last good one is served: {why}"
                if self._notices.set(FAULT, text):
                    log.error("the certificate's files are not taken up, the last good one is served", why=why)
            self._tried = now
            return
        self._notices.set(FAULT, "")
        self._seen, self._tried, self._step = now, None, None
        self.context, self.ends = context, ends
        log.warning("the certificate is read again", ends=self.ends.isoformat())

    def _load(self) -> tuple[ssl.SSLContext, datetime]:
        try:
            context = server_tls_of(self._properties)
            return context, shown_by(context).not_valid_after_utc
        except StoreProblem as problem:
            raise ConfigError(f"{self._prefix}{problem.key}: {problem}") from problem
        except (ssl.SSLError, ValueError) as problem:
            raise ConfigError(f"{self._prefix}ssl.keystore.location: no handshake with it: {problem}") from problem

    def _watch_end(self) -> None:
        left_days = (self.ends.timestamp() - time.time()) / DAY_S
        step = next((days for days in reversed(STEPS_DAYS) if left_days <= days), None)
        when = self.ends.isoformat(timespec="minutes")
        if step is None:
            self._notices.set(END, "")
            self._step = None
            return
        if step == 0:
            text = f"the certificate of the HTTP server ended on {when}: clients refuse it. Renew its files"
        else:
            text = f"the certificate of the HTTP server ends within {step} {'day' if step == 1 else 'days'}, on {when}"
        self._notices.set(END, text)
        if step != self._step:
            self._step = step
            (log.error if step == 0 else log.warning)(text, fix="replace its files: they are read again while it runs")


def shown_by(context: ssl.SSLContext) -> x509.Certificate:
    """The certificate that clients are shown: a handshake in memory, before the context is served."""
    wanted, context.verify_mode = context.verify_mode, ssl.CERT_NONE
    try:
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        client.minimum_version = ssl.TLSVersion.TLSv1_2
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        theirs, ours = client.wrap_bio(down, up), context.wrap_bio(up, down, server_side=True)
        for _ in range(10):
            done = [_shake(one) for one in (theirs, ours)]
            if all(done):
                break
        shown = theirs.getpeercert(binary_form=True)
    finally:
        context.verify_mode = wanted
    if shown is None:
        raise ValueError("no certificate was shown")
    return x509.load_der_x509_certificate(shown)


def _shake(one: ssl.SSLObject) -> bool:
    try:
        one.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
