"""Messages of the formats before Kafka 0.11 (magic 0 and 1), turned into v2 batches at their own offsets.

Brokers up to 3.x hand them out as they lie in old segments. After `upgrade` nobody else has to know: a buffer of v2
batches comes out, with holes where the offsets had them.
"""

from __future__ import annotations


def upgrade(view: memoryview, check_crc: bool) -> bytes:
    raise NotImplementedError
