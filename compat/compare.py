"""Whether a copy holds what its source holds, record by record, and whether groups stand on the very record. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from tests.broker.processes import difference
from tests.kit import Record


def compare(source: Mapping[int, Sequence[Record]], copy: Mapping[int, Sequence[Record]]) -> str:
    """Empty when every partition holds the same records in the same order; otherwise what is wrong, in one line."""
    if set(source) != set(copy):
        return f"partitions {sorted(source)} became {sorted(copy)}"
    for partition, records in sorted(source.items()):
        said = difference([one.content for one in records], [one.content for one in copy[partition]])
        if said:
            return f"partition {partition}: {_short(said)}"
    return ""


def compare_divided(source: Mapping[int, Sequence[Record]], copy: Mapping[int, Sequence[Record]], copies: int) -> str:
    """Each record once, wherever; in each target partition those of a source partition in their order; keys stay
    together. Values are `source partition:number`."""
    if sorted(copy) != list(range(copies)):
        return f"{copies} partitions were asked for, the copy has {sorted(copy)}"
    there = Counter(one.content for records in source.values() for one in records)
    here = Counter(one.content for records in copy.values() for one in records)
    if there != here:
        lost, extra = there - here, here - there
        first = next(iter(lost or extra))
        return _short(f"{lost.total()} lost, {extra.total()} too many, for example {first}")
    homes: dict[bytes, int] = {}
    for partition, records in copy.items():
        last: dict[str, int] = defaultdict(lambda: -1)
        for one in records:
            origin, _, number = (one.value or b"").decode().partition(":")
            if int(number) <= last[origin]:
                return f"partition {partition}, offset {one.offset}: {one.value!r} lies behind a later record"
            last[origin] = int(number)
            if one.key is not None and homes.setdefault(one.key, partition) != partition:
                return f"key {one.key!r} is in partitions {homes[one.key]} and {partition}"
    return ""


def compare_group(source: Sequence[Record], copy: Sequence[Record], upstream: int, downstream: int | None) -> str:
    """Empty when what the group reads next on the copy is what it would have read next on the source."""
    if downstream is None:
        return "the group has no offset on the target"
    left = [one.content for one in source if one.offset >= upstream]
    found = [one.content for one in copy if one.offset >= downstream]
    if len(left) == len(found):
        return ""
    how = "skips" if len(found) < len(left) else "reads again"
    return f"source offset {upstream} became {downstream}: the group {how} {abs(len(left) - len(found))} records"


def _short(text: str) -> str:
    return text if len(text) <= 400 else f"{text[:400]}…"
