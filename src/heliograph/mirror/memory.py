"""Memory that the lanes of a task hold: a running total over all partitions, and which lanes hold it without moving.

Answers for how many bytes a fetch may still bring. Live partitions and history have a pool each, so that a backlog
never keeps a live partition from being read. Asking brokers and stalling lanes is done by `mirror.fetch`.

Invariants:
  a. The running total is at least what the lanes hold. Acknowledgements are not noted one by one, so it may be too
     high; `recount` corrects it before a session waits longer than a moment.
  b. What is asked for is reserved until it arrives. So a pool exceeds its size by at most one batch for each fetch
     under way: a broker returns a first batch whole (KIP-74), which is how a batch larger than what is left
     makes progress.
  c. With nothing held and nothing under way there is room, whatever the pool's size.
  d. A lane that holds memory and does not move (its target partition has no leader, say) gives it up after a while:
     what it holds can be fetched again, behind the probe where it has passed over something since the last one.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from heliograph.mirror.lane import Lane
from heliograph.mirror.turns import party_of

# No broker is asked for less than this: responses would become ever smaller, and each costs a request.
LEAST_ROOM_BYTES = 256 << 10

# A lane that did not move gives up its memory once the others have sent this many pools' worth. Lanes take turns in
# requests, so in one pool's worth every lane that can send has sent a batch.
TURNS = 2

# If no lane of a full pool moves, all of them give up their memory after this long: partitions that could move may hold
# none. Then at doubling intervals, because the whole target may be away and reading the source again costs traffic.
PATIENCE_FIRST_S, PATIENCE_MOST_S = 5.0, 300.0


@dataclass(slots=True)
class _Look:
    """The last check of one pool's lanes, while it was full."""

    moved_at: float = 0.0  # when one of them last moved
    patience_s: float = PATIENCE_FIRST_S
    places: dict[Lane, tuple[tuple[int, int], int]] = field(
        default_factory=dict
    )  # with `_left_bytes` when it got there


class Memory:
    """Of one task."""

    def __init__(self, lanes: Iterable[Lane]) -> None:
        self._lanes = list(lanes)
        self._parties = {lane: party_of(lane.spec).name for lane in self._lanes}
        self._held: dict[Lane, tuple[bool, int]] = {}  # whether it was history, and its bytes, when last noted
        self._totals = [0, 0]  # live, history
        self._of_party: Counter[tuple[bool, str]] = Counter()
        self._reserved = [0, 0]
        self._left_bytes = 0  # all bytes that ever left a lane
        self._looks = [_Look(), _Look()]

    def note(self, lane: Lane) -> None:
        """Count the lane again: its queue may have changed."""
        was_history, was = self._held.get(lane, (lane.history, 0))
        held = lane.held_bytes
        if held == was and lane.history == was_history:
            return
        party = self._parties[lane]
        self._totals[was_history] -= was
        self._of_party[was_history, party] -= was
        self._totals[lane.history] += held
        self._of_party[lane.history, party] += held
        self._left_bytes += max(was - held, 0)
        if held:
            self._held[lane] = lane.history, held
        else:
            self._held.pop(lane, None)

    def recount(self) -> None:
        for lane in list(self._held):  # lanes get bytes only by a fetch, which notes them: others are empty
            self.note(lane)

    def held(self, *, history: bool) -> int:
        return self._totals[history]

    def held_by(self, party: str, *, history: bool) -> int:
        return self._of_party[history, party]

    def reserve(self, size: int, *, history: bool) -> None:
        """For a fetch that is under way; negative when it has arrived."""
        self._reserved[history] += size

    def room(self, most_bytes: int, *, history: bool) -> int:
        """How many bytes a fetch may bring into a pool of this size. Both pools together are bounded too: a live
        session also carries partitions that turn out to be history."""
        if not any(self._totals) and not any(self._reserved):
            return max(most_bytes, LEAST_ROOM_BYTES)
        own = most_bytes - self._totals[history] - self._reserved[history]
        return max(min(own, 2 * most_bytes - sum(self._totals) - sum(self._reserved)), 0)

    def stuck(self, most_bytes: int, now: float, *, history: bool) -> list[Lane]:
        """Lanes of a full pool that have to give up what they hold (invariant d)."""
        look = self._looks[history]
        before, look.places = look.places, {}
        if self._totals[history] < most_bytes - LEAST_ROOM_BYTES:
            return []
        moved, found = False, []
        for lane, (was_history, _) in self._held.items():
            if was_history != history or not lane.chunks:
                continue
            place = lane.acked.next_offset, lane.next_sequence
            then, left = before.get(lane, (place, self._left_bytes))
            if then != place:
                moved, left = True, self._left_bytes
            elif self._left_bytes - left >= TURNS * most_bytes:
                found.append(lane)
            look.places[lane] = place, left
        if moved:
            look.patience_s = PATIENCE_FIRST_S
        if moved or not before:
            look.moved_at = now
        elif now - look.moved_at >= look.patience_s:
            look.moved_at, look.patience_s = now, min(look.patience_s * 2, PATIENCE_MOST_S)
            return list(look.places)
        return found
