"""Dealing partitions out to tasks: balanced by bytes per second, a partition staying where it was when it can.

Pure. The coordinator calls it before every epoch; the result becomes Spark's input partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heliograph.types import TopicPartition

# A partition at rest still costs a task something (its place in a fetch session, its report), so it weighs a little:
# a thousand idle partitions are spread too. One KiB/s is far below any traffic worth moving a partition for.
IDLE_WEIGHT = 1024.0

# How much heavier than the mean a task may be before partitions are moved away from it. Moving costs nothing but cold
# connections; moving at every small swing would make figures per task hard to read.
TOLERANCE = 1.25

# Between two plans of a flow, and of all flows of a process together: a turn of the page costs Spark 0.15 s of CPU, so
# that forty flows with a minute each would keep a tenth of a core busy with nothing else, and their turns would meet.
EPOCH_S, TURN_EVERY_S = 60.0, 5.0


def epoch_length(chosen_s: float | None, flows: int) -> float:
    """Seconds between two plans, as chosen, or by the number of flows that run beside each other."""
    return chosen_s if chosen_s is not None else max(EPOCH_S, TURN_EVERY_S * flows)


def task_count(partitions: int, tasks_max: int | None, cores: int) -> int:
    """`tasks.max` if the file says so, otherwise one for two cores: a task mostly waits for sockets, one Python process
    moves more than a million records a second, and the fewer tasks, the more batches go in one request. Measured on
    two cores with the brokers beside it: one task copied 1.2–1.6 M records/s at 0.40 µs each, two 1.0–1.3 M at 0.57."""
    return max(1, min(partitions, tasks_max if tasks_max is not None else cores // 2))


def deal(
    partitions: Sequence[TopicPartition],
    tasks: int,
    rates: Mapping[TopicPartition, float],
    previous: Sequence[Sequence[TopicPartition]] = (),
) -> list[list[TopicPartition]]:
    """One list a task. Every partition exactly once; none empty unless there are fewer partitions than tasks."""
    weight = {tp: max(rates.get(tp, 0.0), 0.0) + IDLE_WEIGHT for tp in partitions}
    shares: list[list[TopicPartition]] = [[] for _ in range(tasks)]
    loads = [0.0] * tasks
    homeless = _seat(previous, shares, loads, weight, ceiling=TOLERANCE * sum(weight.values()) / max(tasks, 1))
    for tp in sorted(homeless, key=lambda tp: (-weight[tp], tp)):
        lightest = min(range(tasks), key=lambda i: (loads[i], len(shares[i]), i))
        shares[lightest].append(tp)
        loads[lightest] += weight[tp]
    for empty in (share for share in shares if not share):
        fullest = max(shares, key=len)
        if len(fullest) > 1:
            empty.append(fullest.pop())
    return [sorted(share) for share in shares if share]


def _seat(
    previous: Sequence[Sequence[TopicPartition]],
    shares: list[list[TopicPartition]],
    loads: list[float],
    weight: Mapping[TopicPartition, float],
    ceiling: float,
) -> set[TopicPartition]:
    """Put partitions back where they were, heaviest first, while their task stays below the ceiling."""
    homeless = set(weight)
    for i, share in enumerate(previous[: len(shares)]):
        for tp in sorted(homeless.intersection(share), key=lambda tp: (-weight[tp], tp)):
            if shares[i] and loads[i] + weight[tp] > ceiling:
                continue
            shares[i].append(tp)
            loads[i] += weight[tp]
            homeless.discard(tp)
    return homeless
