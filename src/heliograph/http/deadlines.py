"""How long the other side of a connection may take. Read when a deadline is set, so that tests can shorten them."""

from __future__ import annotations

REQUEST_S = 5.0  # from a request's first byte to its last; also a TLS handshake
ANSWER_S = 10.0  # to take an answer
IDLE_S = 30.0  # without a request: scrapers come every 15 s and keep their connection
HANG_UP_S = 1.0  # to read our last word
