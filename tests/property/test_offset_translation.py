"""A group is never placed past a record it has not read: over holes, foreign records, crashes, an MM2 in between, a map
that cannot be written, copies that were deleted or cut, and maps that were thinned, trimmed and compacted."""

from __future__ import annotations

import os
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.property.copies import MAP, REMOTE, TP, Copied

EXAMPLES = int(os.environ.get("HELIOGRAPH_EXAMPLES", "150"))  # what was found by thousands of them stands below

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("produce", "hole", "copy", "flush") * 4,
                *("transactions", "foreign", "map fails", "position fails", "crash", "crash blind", "no map"),
                *(
                    "mm2",
                    "recreated",
                    "skipped",
                    "cut",
                    "cut and skipped",
                    "set back",
                    "set forward",
                    "trim",
                    "compact",
                    "restart",
                ),
            ]
        ),
        st.integers(1, 12),
    ),
    min_size=5,
    max_size=50,
)


def take(copied: Copied, step: str, size: int) -> None:
    match step:
        case "produce":
            copied.produce(size)
        case "hole":
            copied.hole(size)
        case "transactions":
            for _ in range(size):
                copied.produce(2)
                copied.hole(1)
            copied.copy(2 * size)
        case "copy":
            copied.copy(size)
        case "flush":
            copied.flush()
        case "map fails":
            copied.flush(map_fails=True)
        case "position fails":
            copied.flush(position_fails=True)
        case "crash":
            copied.begin(places_known=True)
        case "crash blind":
            copied.begin(places_known=False)
        case "no map":  # until the next task begins
            copied.begin(places_known=True, kept=False)
            take(copied, "transactions", size)
            copied.flush()
        case "foreign":
            copied.foreign(size)
        case "mm2":
            copied.mm2(size, every=1 + size % 3)
        case "recreated":
            copied.recreate(start=min(size, copied.source_end))
        case "skipped":
            copied.recreate(start=copied.positions.known[TP].next_offset)
        case "cut":
            copied.cut(max(len(copied.log) - size, 0), start=min(size, copied.source_end))
        case "cut and skipped":
            copied.cut(max(len(copied.log) - size, 0), start=copied.positions.known[TP].next_offset)
        case "set back":
            copied.new_generation(max(copied.positions.known[TP].next_offset - size, 0))
        case "set forward":
            copied.new_generation(min(copied.positions.known[TP].next_offset + size, copied.source_end))
        case "trim":
            copied.target.starts[REMOTE] = min(copied.target.starts.get(REMOTE, 0) + size, len(copied.log))
            copied.settle_ends()
            copied.offsets.trim()
        case "compact":
            copied.target.compact(MAP)
            copied.open()
        case "restart":
            copied.open()


@settings(max_examples=EXAMPLES)
@given(STEPS, st.booleans())
@example([("mm2", 2), ("mm2", 1), ("cut and skipped", 1)], True)
@example([("no map", 1), ("cut", 1), ("cut", 2)], False)
@example([("no map", 2), ("cut", 1), ("no map", 1), ("cut and skipped", 1)], False)
@example([("produce", 1), ("no map", 2), ("cut", 1), ("copy", 2), ("cut", 2)], False)
@example([("produce", 1), ("transactions", 1), ("cut and skipped", 1), ("set back", 1), ("set forward", 1)], False)
def test_no_unread_record_is_passed_over(steps: list[tuple[str, int]], bounded: bool) -> None:
    few = {"heliograph.mirror.offsetmap.SEGMENT_RUNS": 4, "heliograph.state.generations.SEGMENT_RUNS": 4}
    few |= {"heliograph.state.offsets.TOTAL_RUNS": 8, "heliograph.state.offsets.LEAST_RUNS": 8} if bounded else {}
    patches = [patch(name, value) for name, value in few.items()]
    for one in patches:
        one.start()
    try:
        copied = Copied()
        for step, size in steps:
            take(copied, step, size)
            copied.check()
        copied.flush()
        copied.check()
        copied.open()
        copied.check()
    finally:
        for one in patches:
            one.stop()
