"""Kafka's record batches as bytes: header, selection, codecs, kernels. Pure: no sockets, no Spark.

Importing this package is cheap: numba and the kernels come when they are first needed (`loading`), or by `warm()`.
"""

from __future__ import annotations

from heliograph.batch.cache import compiled, compiling
from heliograph.batch.chunk import Chunk, Limits
from heliograph.batch.header import SIZE as HEADER_BYTES
from heliograph.batch.header import Header, base_timestamp, headers, patch, verify_crc
from heliograph.batch.loading import ready, warm
from heliograph.batch.piece import Piece
from heliograph.batch.records import Record, decode, decode_all, encode

__all__ = [
    "HEADER_BYTES",
    "Chunk",
    "Header",
    "Limits",
    "Piece",
    "Record",
    "base_timestamp",
    "compiled",
    "compiling",
    "decode",
    "decode_all",
    "encode",
    "headers",
    "patch",
    "ready",
    "verify_crc",
    "warm",
]
