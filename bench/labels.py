"""What labels cost: µs of CPU a record to multiplex and to put back, one core, no brokers. `python -m bench.labels`

Records as in the `lz4` scenario (230 bytes of JSON), in batches of 1,000, the fetch's bytes in, batches to be appended
out: unpacked, labelled or divided, checked, packed again. Beside it what is paid without labels: the same records taken
apart and put together by the kernels of `batch` alone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

from heliograph.batch import Chunk, Limits, Record, encode, patch, warm
from heliograph.batch.demux import Targets, demux
from heliograph.batch.labels import Stamp, write
from heliograph.batch.mux import mux
from heliograph.types import TopicPartition

BATCHES, BATCH = 40, 1_000
RECORDS = BATCHES * BATCH
CODECS = {"none": 0, "lz4": 3}
NOW_MS = 1_790_000_000_000


def fetch(codec: int) -> bytes:
    dice = random.Random(1)
    batches = []
    for base in range(0, RECORDS, BATCH):
        records = [
            Record(base + n, NOW_MS + base + n, b"%d" % dice.randrange(10_000), _json(dice, base + n), (("t", b"x"),))
            for n in range(BATCH)
        ]
        batches.append(encode(records, codec=codec))
    return b"".join(batches)


def _json(dice: random.Random, n: int) -> bytes:
    text = f'{{"id":{n},"user":"u{dice.randrange(10**6)}","amount":{dice.random():.6f},"state":"settled","note":"'
    return (text + "".join(dice.choices("abcdefgh ", k=230 - len(text) - 2)) + '"}').encode()


def batches_of(share: bytes | memoryview, codec: int) -> list[bytes]:
    """As a lane would append them, with the source's offsets as a log would number them."""
    chunk = Chunk(share, wanted=0, limits=Limits(codec_of_target=codec), check_crc=False)
    found, offset = [], 0
    while (piece := chunk.take(merge=True)) is not None:
        patch(piece.data, 1, 0, 0)
        data = bytearray(piece.data)
        data[:8] = offset.to_bytes(8, "big")
        offset += piece.records
        found.append(bytes(data))
    return found


def cost(work: Callable[[], object]) -> float:
    """The best of five, in µs of CPU a record."""
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best / RECORDS * 1e6


def measure(codec: int) -> Iterator[tuple[str, float]]:
    origins = [TopicPartition(f"orders-{topic}", partition) for topic in range(10) for partition in range(4)]
    about = ("spoke1:9092", "mux-replication_spoke1", "spoke1", "abcdefghijklmnopqrstuv")
    stamps, targets = [Stamp(tp, *about) for tp in origins], Targets(origins)
    source, mixed = fetch(codec), mixed_of(stamps, codec)

    def label() -> bytes | memoryview:
        return mux(source, stamps[7], NOW_MS).shares.buffers[0]

    def divide(carried: bytes) -> list[bytes | memoryview]:
        return demux(carried, targets, keep=False).shares.buffers

    one = b"".join(batches_of(label(), codec))
    yield "bytes a record as it comes", len(source) / RECORDS
    yield "bytes a record with labels", len(one) / RECORDS
    yield "mux: labels alone, µs", cost(label)
    yield "mux: batches to append, µs", cost(lambda: batches_of(label(), codec))
    yield "demux of 40 origins: divided, µs", cost(lambda: divide(mixed))
    yield "demux of 40 origins: to append, µs", cost(lambda: [batches_of(share, codec) for share in divide(mixed)])
    yield "demux of one origin: to append, µs", cost(lambda: [batches_of(share, codec) for share in divide(one)])
    yield "no labels, packed otherwise, µs", cost(lambda: batches_of(source, 0 if codec else 3))


def main() -> None:
    warm()
    for name, codec in CODECS.items():
        for what, figure in measure(codec):
            print(f"{name:5} {what:36} {figure:8.2f}")


def mixed_of(stamps: list[Stamp], codec: int) -> bytes:
    """Records of all origins in turn, as a shared partition has them."""
    dice = random.Random(2)
    records = []
    for n in range(RECORDS):
        labels = write(stamps[n % len(stamps)], NOW_MS + n, n // len(stamps))
        records.append(Record(n, NOW_MS + n, b"%d" % n, _json(dice, n), (("t", b"x"), *labels)))
    return b"".join(encode(records[at : at + BATCH], codec=codec) for at in range(0, len(records), BATCH))


if __name__ == "__main__":
    main()
