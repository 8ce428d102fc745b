"""One node of a Connect cluster: it reads the topics, runs the connectors that are its own, and says how they fare.

A thread of its own goes round: topics read, connectors brought to what they shall be (`connect.posts`), what changed of
them written down. Which connectors are its own is the group's word (`connect.membership`).

Invariants:
  a. What is said of a connector is said by the node whose it is, and only when it changed.
  b. A node that cannot read the topics leaves its connectors as they are: they go on copying.
  c. A node that is cut off from its group takes no connectors and writes nothing to the topics.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

import structlog

from heliograph import __version__
from heliograph.config.worker import WorkerFile
from heliograph.connect import records, validation
from heliograph.connect.asking import Sight
from heliograph.connect.board import Board, Connector
from heliograph.connect.loggers import Loggers
from heliograph.connect.membership import Membership
from heliograph.connect.posts import Post, PostLook, Room, Wanted
from heliograph.connect.records import Pair, Status
from heliograph.connect.siblings import NAMING, named_otherwise, siblings_of
from heliograph.connect.store import Store
from heliograph.connect.validation import Verdict
from heliograph.connect.works import Beside, Copying, Work
from heliograph.errors import HeliographError
from heliograph.flow.factors import check_needed
from heliograph.flow.hub import Hub
from heliograph.flow.patience import Patience, insist
from heliograph.flow.plan import epoch_length
from heliograph.flow.reach import reach
from heliograph.flow.runner import EngineOnce
from heliograph.state.replicas import Needed
from heliograph.types import Flow

log = structlog.get_logger()

LOOK_EVERY_S = 0.25  # at the topics: within this a node hears what another was told
REPAIR_AFTER_S = 1.0  # of the config topic's last records, by a node that did not write them
STALE_S = 10.0  # topics that were not read for so long: the node is not healthy
TASK_CLASSES = {"Source": "MirrorSourceTask", "Checkpoint": "MirrorCheckpointTask", "Heartbeat": "MirrorHeartbeatTask"}


class Node:
    def __init__(
        self,
        file: WorkerFile,
        *,
        master: str | None = None,
        spark_settings: Mapping[str, str] | None = None,
        epoch_seconds: float | None = None,
        name: str = "",
        wait_s: float = 0.0,
    ) -> None:
        """`name`: of the file, for whoever else runs a flow. `wait_s`: how long the start waits for the cluster."""
        self._patience = Patience(wait_s)
        settings = dict(spark_settings or {})
        address = settings.get("spark.driver.host", "127.0.0.1")
        self.file, self.store, self.loggers = file, Store(file), Loggers()
        self.worker_id = file.advertised
        self.generation = 0
        self._membership = Membership(file, self.worker_id, self._formed)
        self._hub = Hub(address, 0)
        self._engine = EngineOnce(master, settings, address)
        self._epoch_seconds, self._name = epoch_seconds, name
        self._posts: dict[str, Post] = {}
        self._room = Room()
        self._leaving: list[Post] = []
        self._verdicts: dict[str, tuple[tuple[int, int, tuple[str, ...]], Verdict]] = {}
        # By connector and topic: what was counted when the topic was last told, or forgotten.
        self._topics: dict[tuple[str, str], int] = {}
        self._read_at = 0.0
        self._trouble = ""
        self._apart = ""  # why it is out of the group
        self._poked = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._go_round, name="node", daemon=True)

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Raises what is wrong with the worker's cluster."""
        file = self.file
        reach([file.cluster], patience=self._patience)
        topics = (file.configs, file.offsets, file.statuses)
        check_needed([Needed(file.cluster, one.name, one.factor) for one in topics], self._patience)
        insist(self.store.open, self._patience)
        self._read_at = time.monotonic()
        self._membership.start()
        self._thread.start()

    def stop(self, timeout_s: float = 4.0) -> None:
        """Work first, so that positions are written; then Spark."""
        deadline = time.monotonic() + timeout_s
        self._stopping.set()
        self._poked.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s / 4)
            threading.Thread(target=self._membership.stop, name="leave", daemon=True).start()
        posts = [*self._posts.values(), *self._leaving]
        for post in posts:
            post.leave()
        for post in posts:
            post.join(max(deadline - time.monotonic() - timeout_s / 4, 0.1))
        self._engine.stop(max(deadline - time.monotonic(), 0.2))
        self._hub.close()
        self.store.close()

    def poke(self) -> None:
        """There is something new in the topics."""
        self._poked.set()

    def sight(self) -> Sight:
        stale = bool(self._read_at) and time.monotonic() - self._read_at > STALE_S
        alone = not self._membership.nodes
        trouble = f"the worker's topics cannot be read: {self._trouble}" if stale else self._apart
        return Sight(
            board=self.store.board,
            worker=self.file.worker,
            version=__version__,
            cluster_id=self.store.cluster_id,
            worker_id=self.worker_id,
            ready=bool(self._read_at) and not alone,
            trouble=trouble or (self._membership.trouble if alone else ""),
            topic_tracking=self.file.topic_tracking,
            topic_reset=self.file.topic_reset,
            levels=self.loggers.levels(),
        )

    def _formed(self, generation: int) -> None:
        self.generation = generation
        self.poke()

    def has_ended(self, connector: str) -> bool:
        """Whether nothing of it runs here any more."""
        post = self._posts.get(connector)
        return (post is None or post.look().state == "STOPPED") and all(p.name != connector for p in self._leaving)

    # ---------------------------------------------------------------- its round

    def _go_round(self) -> None:
        while not self._stopping.is_set():
            self._poked.wait(LOOK_EVERY_S)
            self._poked.clear()
            try:
                board = self.store.catch_up()
                self._read_at = time.monotonic()
                self._round(board)
            except HeliographError as error:  # invariant b
                if str(error) != self._trouble:
                    log.warning("the worker's topics cannot be reached", condition=error.condition, why=str(error))
                self._trouble = str(error)
            except Exception as error:  # the top of a loop: said, and the next round is gone
                log.exception("a round of the node failed")
                self._trouble = f"{type(error).__name__}: {error}"

    def _round(self, board: Board) -> None:
        self._look_around()
        self._place(board)
        if not self._apart:  # invariant c
            self._repair()
            self._speak(board)

    def _repair(self) -> None:
        """Invariant e of the board. The node that wrote such a record repairs it at once, if it lives; then the others
        do, one after the other, so that they do not all write the same."""
        nodes = self._membership.nodes
        rank = nodes.index(self.worker_id) if self.worker_id in nodes else len(nodes)
        if self.store.stale_s > REPAIR_AFTER_S * (1 + rank):
            self.store.repair()

    def _look_around(self) -> None:
        if not self._membership.cut_off:
            self._apart = ""
        elif not self._apart:
            self._apart = f"the group's coordinator has not answered for session.timeout.ms: {self._membership.trouble}"
            log.warning("cut off from the group: nothing new is taken, what runs goes on", why=self._membership.trouble)

    def _place(self, board: Board) -> None:
        """Posts for the connectors that are ours, and for no others."""
        for logger, level in board.levels.items():
            self.loggers.follow(logger, level)
        mine = self._membership.mine(board, self._posts)
        for name in [name for name in self._posts if name not in mine]:
            post = self._posts.pop(name)
            post.leave()
            self._leaving.append(post)
            self._drop(name)
        self._leaving = [post for post in self._leaving if not post.gone]
        busy = {post.name for post in self._leaving}
        for name in sorted(mine - busy):
            wanted = self._wanted(board, board.connectors[name])
            known = self._posts.get(name)
            if known is not None and not known.gone:
                known.want(wanted)
                continue
            if known is not None:
                log.error("the thread of a connector has ended by itself: it gets another", connector=name)
            self._posts[name] = Post(name, self._make, wanted, self._room)

    def _drop(self, name: str) -> None:
        """What was known of a connector that is not ours any more: names come and go for as long as the node lives."""
        self._verdicts.pop(name, None)
        for key in [key for key in self._topics if key[0] == name]:
            del self._topics[key]

    def _wanted(self, board: Board, one: Connector) -> Wanted:
        verdict = self._judged(board, one)
        post = self._posts.get(one.name)
        restarts = one.restarts
        if post is not None and one.restart_failed and not _has_failed(post.look()):
            restarts = post.wanted.restarts  # only what failed was to begin anew
        if verdict.count:
            return Wanted(None, verdict.words, one.target, restarts)
        return Wanted(verdict.made.flow, "", one.target, restarts)

    def _judged(self, board: Board, one: Connector) -> Verdict:
        """Once for each configuration, and again when it is restarted: what providers give may have changed."""
        siblings = siblings_of(board, one.config)
        mark = one.version, one.restarts, siblings
        known = self._verdicts.get(one.name)
        if known is None or known[0] != mark:
            known = mark, validation.judge(one.name, one.config, self.file.worker, siblings)
            self._verdicts[one.name] = known
            if others := named_otherwise(board, one.config):
                log.warning(
                    "checkpoints will name topics as nobody calls them",
                    connector=one.name,
                    why=f"{', '.join(others)} names its copies by another policy",
                    fix=f"give {one.name} the same {' and '.join(NAMING)}",
                )
        return known[1]

    def _make(self, flow: Flow) -> Work:
        if flow.enabled and flow.copies:
            how = {"epoch_seconds": epoch_length(self._epoch_seconds, len(self._posts) + 1), "file": self._name}
            return Copying(flow, self._hub, self._engine, **how)  # type: ignore[arg-type]
        return Beside(flow)

    # ---------------------------------------------------------------- what it says

    def _speak(self, board: Board) -> None:
        statuses: list[Pair] = []
        refused: HeliographError | None = None
        known: dict[str, list[tuple[str, int | None]]] = {}
        for key in board.statuses:  # once for all connectors, not once for each
            known.setdefault(key[0], []).append(key)
        for name, post in self._posts.items():
            look = post.look()
            statuses += self._changed(board, name, look, known.get(name, ()))
            try:
                self._deal(board.connectors.get(name), look)
            except HeliographError as error:
                if error.retriable:
                    raise
                refused = error  # one connector's tasks (too large, say): the others are spoken of all the same
            if self.file.topic_tracking:
                statuses += self._used(board, name, look)
        statuses += self._forgotten(board)
        if statuses:
            self.store.tell(statuses)
            self.store.catch_up()
        if refused is not None:
            raise refused

    def _changed(self, board: Board, name: str, look: PostLook, told: Iterable[tuple[str, int | None]]) -> list[Pair]:
        """Invariant a. `told`: of what of it something was said."""
        now: dict[tuple[str, int | None], Status] = {(name, None): self._status(look.state, look.trace)}
        for n, task in enumerate(look.work.tasks if look.state != "STOPPED" else ()):
            # What the connector is its tasks are, but for those that cannot go on.
            state = "FAILED" if task.trace and look.state == "RUNNING" else look.state
            now[name, n] = self._status(state, task.trace or task.trouble)
        pairs: list[Pair] = []
        for key, status in now.items():
            known = board.statuses.get(key)
            if known is None or replace(known, generation=0) != replace(status, generation=0):
                pairs.append((records.status_key(*key), records.status_value(status)))
        gone = [key for key in told if key not in now]
        return [*pairs, *((records.status_key(*key), None) for key in gone)]

    def _status(self, state: str, trace: str) -> Status:
        return Status(state, self.worker_id, trace or None, self.generation, __version__)

    def _deal(self, one: Connector | None, look: PostLook) -> None:
        """Tasks written down as Connect would have dealt them, so that it can go on from there."""
        if one is None or one.target == "STOPPED" or not look.work.tasks:
            return
        last = (one.config.get("connector.class") or "").rpartition(".")[2]
        kind = last.removeprefix("Mirror").removesuffix("Connector")
        task_class = f"org.apache.kafka.connect.mirror.{TASK_CLASSES.get(kind, 'MirrorSourceTask')}"
        plain = {key: value for key, value in one.config.items() if value is not None}
        configs = [{**plain, "task.class": task_class, **task.settings} for task in look.work.tasks]
        if [dict(config) for config in one.tasks] != configs:
            self.store.write(records.tasks(one.name, configs))

    def _used(self, board: Board, name: str, look: PostLook) -> list[Pair]:
        now_ms = time.time_ns() // 1_000_000
        known = board.topics.get(name, ())
        pairs: list[Pair] = []
        for topic, count in look.work.topics.items():
            if topic in known:
                self._topics[name, topic] = count
            elif count > self._topics.get((name, topic), 0):  # not what was counted before it was forgotten
                pairs.append((records.topic_key(name, topic), records.topic_value(name, topic, 0, now_ms)))
        return pairs

    def _forgotten(self, board: Board) -> list[Pair]:
        """Of connectors that were deleted: nobody speaks of them any more."""
        leaving = {post.name for post in self._leaving}
        gone = {key for key in board.statuses if key[0] not in board.connectors and key[0] not in leaving}
        topics = [
            (name, topic) for name, some in board.topics.items() if name not in board.connectors for topic in some
        ]
        pairs = [(records.status_key(*key), None) for key in sorted(gone, key=str)]
        return [*pairs, *((records.topic_key(name, topic), None) for name, topic in topics)]


def _has_failed(look: PostLook) -> bool:
    return look.state == "FAILED" or any(task.trace for task in look.work.tasks)
