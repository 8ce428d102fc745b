"""Several nodes with one `group.id`: who is there, and whose each connector is.

Kafka's group protocol keeps the list of living nodes; the leader hands it to all of them, and nothing else. Whose a
connector is follows from that list and from the board, by a rule that every node works out for itself (`share_out`), so
that no group has to be formed anew when a connector comes or goes. Nodes that see the board at different moments may
both have a connector for a while, which exactly-once makes harmless; the last word in the status topic settles it.

Invariants:
  a. With the same board and the same list, all nodes work out the same owners.
  b. A connector stays with the node that has it while that one lives and has no more than its share.
  c. A node that the coordinator has not heard for session.timeout.ms is out of the group, whatever it last knew of it:
     it takes nothing more and says nothing of what it has. That goes on copying, until the topics say that it is
     another's or that it is no more.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec
import structlog

from heliograph.config.worker import WorkerFile
from heliograph.connect.board import Board
from heliograph.errors import HeliographError
from heliograph.wire import Client
from heliograph.wire.members import Expelled, Joined, Member, Terms

log = structlog.get_logger()

KIND = "heliograph-connect"
AGAIN_FIRST_S, AGAIN_MOST_S = 0.2, 3.0  # a coordinator that moves is there within moments, mostly
LEAVE_S = 1.0


def share_out(board: Board, nodes: Iterable[str]) -> dict[str, str]:
    """Connector -> the node whose it is. Pure."""
    alive = sorted(set(nodes))
    if not alive:
        return {}
    most = -(-len(board.connectors) // len(alive))
    loads = dict.fromkeys(alive, 0)
    owners: dict[str, str] = {}
    for name in sorted(board.connectors):  # invariant b
        status = board.statuses.get((name, None))
        if status is not None and loads.get(status.worker_id, most) < most:
            owners[name] = status.worker_id
            loads[status.worker_id] += 1
    for name in sorted(board.connectors.keys() - owners.keys()):
        owners[name] = min(alive, key=lambda node: (loads[node], node))
        loads[owners[name]] += 1
    return owners


class Membership:
    def __init__(self, file: WorkerFile, node: str, changed: Callable[[int], None]) -> None:
        """`node`: what we are called. `changed` is told each new generation."""
        self._node, self._changed = node, changed
        self._client = Client(file.cluster, timeout_s=file.session_timeout_ms / 1000)
        self._beat_s, self._session_s = file.heartbeat_interval_ms / 1000, file.session_timeout_ms / 1000
        self._heard_at = 0.0  # when the coordinator last answered
        terms = Terms(file.group_id, KIND, file.session_timeout_ms, file.rebalance_timeout_ms)
        self._member = Member(self._client, terms)
        self.nodes: tuple[str, ...] = ()  # as they were last told; none before the first time
        self.trouble = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._belong, name="membership", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(self._beat_s + LEAVE_S)
        if not self._thread.is_alive():
            with contextlib.suppress(HeliographError):
                self._member.leave(LEAVE_S)
        self._client.close()

    @property
    def cut_off(self) -> bool:
        """Invariant c."""
        return bool(self.nodes) and time.monotonic() - self._heard_at > self._session_s

    def mine(self, board: Board, has: Collection[str]) -> frozenset[str]:
        """`has`: what this node runs now."""
        if self.cut_off:
            return frozenset(name for name in has if name in board.connectors and not self._is_anothers(board, name))
        return frozenset(name for name, node in share_out(board, self.nodes).items() if node == self._node)

    def _is_anothers(self, board: Board, name: str) -> bool:
        status = board.statuses.get((name, None))
        return status is not None and status.worker_id != self._node

    # ---------------------------------------------------------------- its thread

    def _belong(self) -> None:
        pause_s = 0.0
        while not self._stopping.wait(pause_s):
            joined: Joined | None = None
            try:
                joined = self._member.join(self._node.encode(), _decide)
                self._hear(joined)
                pause_s = 0.0
                while not self._stopping.wait(self._beat_s):
                    self._member.beat(joined.generation)
                    self._heard_at = time.monotonic()
            except Expelled as expelled:
                log.info("the group forms anew", why=str(expelled))
                if joined is None:  # not once in a group since it was last told so
                    pause_s = _longer(pause_s)
            except HeliographError as error:
                if str(error) != self.trouble:
                    log.warning("the group cannot be reached", condition=error.condition, why=str(error))
                self.trouble = str(error)
                pause_s = _longer(pause_s)
            except Exception as error:  # the top of a loop: said, and tried again
                log.exception("the membership failed")
                self.trouble = f"{type(error).__name__}: {error}"
                pause_s = _longer(pause_s)

    def _hear(self, joined: Joined) -> None:
        found = _nodes(joined.assignment)
        if self._node not in found:  # a leader that speaks otherwise: we are there all the same
            found = tuple(sorted({*found, self._node}))
        log.info("nodes of the group", nodes=found, generation=joined.generation)
        self.nodes, self.trouble, self._heard_at = found, "", time.monotonic()
        self._changed(joined.generation)


def _longer(pause_s: float) -> float:
    return min(max(pause_s * 2, AGAIN_FIRST_S), AGAIN_MOST_S)


def _decide(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """The leader's: everybody is told who is there."""
    nodes = sorted({about.decode(errors="replace") for about in members.values()})
    if len(nodes) < len(members):
        fix = "name each by rest.advertised.host.name and rest.advertised.port"
        log.warning("two nodes have one name, so that each takes the other's connectors", nodes=nodes, fix=fix)
    told = msgspec.json.encode({"nodes": nodes})
    return dict.fromkeys(members, told)


def _nodes(told: bytes) -> tuple[str, ...]:
    try:
        found = msgspec.json.decode(told)["nodes"]
        return tuple(sorted(str(one) for one in found))
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()
