"""Which partitions of a task an operator has halted: left at once when told so, taken up again when told so.

Knows nothing of who said it or why; the coordinator does (`flow.orders`). A halted lane keeps its place in the task:
going on takes a word and rule D's answer, not a new epoch, so that no other partition notices either.

Invariant: a lane in here never flows. Every way to FLOWING leads through the answer to rule D, where the task asks
whether the lane is in here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from heliograph.mirror.lane import Lane, State
from heliograph.types import TopicPartition


class Halts:
    def __init__(
        self,
        lanes: Sequence[Lane],
        halted: frozenset[TopicPartition],
        *,
        leave: Callable[[Lane], None],
        ask: Callable[[list[Lane]], None],
    ) -> None:
        """`leave`: stop fetching it; `ask`: rule D."""
        self._lanes, self._halted = lanes, halted
        self._leave, self._ask = leave, ask
        self.active = False  # before a task's first question nothing flows, so nothing is to be left or taken up

    def __contains__(self, lane: Lane) -> bool:
        return lane.spec.tp in self._halted

    def set(self, partitions: Iterable[TopicPartition]) -> None:
        """These, and no others, from now on. Partitions of other tasks may be among them."""
        before, self._halted = self._halted, frozenset(partitions)
        if not self.active:
            return
        for lane in self._lanes:
            if lane in self and lane.spec.tp not in before:
                self._leave(lane)
                lane.halt()
        # Those that have been asked about and not answered yet are LOST still: their answer will find them free.
        free = [lane for lane in self._lanes if lane.state is State.HALTED and lane not in self]
        for lane in free:
            lane.go_on()
        if free:
            self._ask(free)
