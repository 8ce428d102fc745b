"""Kafka's record batches as bytes: header, selection, codecs, kernels. Pure: no sockets, no Spark.

Importing this package is cheap. Numba (about a second, with its kernels) is loaded the first time a batch must be
rewritten or a buffer holds more batches than Python should walk; `warm()` does it ahead of time.
"""

from __future__ import annotations

from heliograph.batch.chunk import Chunk, Limits, RecordTooLarge
from heliograph.batch.header import SIZE as HEADER_BYTES
from heliograph.batch.header import Header, headers, patch, verify_crc
from heliograph.batch.piece import Piece
from heliograph.batch.records import Record, decode, decode_all, encode

__all__ = [
    "HEADER_BYTES",
    "Chunk",
    "Header",
    "Limits",
    "Piece",
    "Record",
    "RecordTooLarge",
    "decode",
    "decode_all",
    "encode",
    "headers",
    "patch",
    "verify_crc",
    "warm",
]


def warm() -> None:
    """Load the kernels now (from their disk cache if there is one) rather than at the first backlog."""
    from heliograph.batch import kernels  # noqa: F401
