"""An operator's orders carried out: tasks told at once, plans made accordingly, and what is freed begun again.

`flow.orders` knows what was said; this makes it so in one running flow. A word goes to the tasks, who leave or take up
partitions in a tenth of a second; no epoch ends for it. Only what no task has at all (it was stopped when the plan was
made) needs a new plan.

Invariants:
  a. A task that joins hears what is halted before it may copy, whatever was said while it was planned.
  b. What is stopped is in no plan made afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import structlog

from heliograph.errors import HeliographError
from heliograph.flow.observer import Observer
from heliograph.flow.orders import Orders
from heliograph.flow.relay import Channel, Relay
from heliograph.health.status import Order, Scope, Word
from heliograph.mirror.protocol import Finish, Halt
from heliograph.survey.topics import Route
from heliograph.types import TopicPartition

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Steered:
    """What came of an order."""

    given: tuple[Order, ...]  # or taken back
    standing: tuple[Order, ...]  # wider ones that still hold it back
    partitions: int  # that it is about
    unwritten: str = ""  # why it could not be written down


class Helm:
    def __init__(
        self,
        flow: str,
        orders: Orders,
        relay: Relay,
        observer: Observer,
        *,
        partitions: Callable[[], Collection[TopicPartition]],
        planned: Callable[[], Collection[TopicPartition]],
        replan: Callable[[], None],
    ) -> None:
        """`partitions`: all that the flow copies; `planned`: those of the plan that runs."""
        self._flow, self.orders = flow, orders
        self._relay, self._observer = relay, observer
        self._partitions, self._planned, self._replan = partitions, planned, replan
        self._halted: frozenset[TopicPartition] = frozenset()
        self._revision = 0  # of the halted partitions: a task that hears two keeps the later
        self._ever = False  # something was halted since the process began
        self._telling = threading.Lock()  # tasks hear of changes in the order in which they were made

    # ---------------------------------------------------------------- orders

    def begin(self) -> None:
        """What was said before this process began; said again, for nobody expects it of a start."""
        self.orders.look()
        for order in self.orders.standing:
            log.warning("as ordered before", flow=self._flow, what=f"{order.where} is {order.words}")

    def look(self) -> None:
        """Somebody else may have given an order, by another process that runs the flow."""
        if self.orders.look():
            log.info("orders changed", flow=self._flow, standing=[f"{o.where} {o.words}" for o in self.orders.standing])
            self.obey()

    def steer(self, scope: Scope, word: Word, by: str) -> Steered:
        """Carried out when this returns, as far as tasks hear it."""
        given = self.orders.give(scope, word, by)
        self.obey()
        unwritten = self._write(given) if given else ""
        aim = Order(*scope, word, by, 0)
        about = sum(aim.covers(tp) for tp in self._partitions())
        wider = tuple(one for one in self.orders.standing if word == "running" and one.covers(scope))
        log.info("ordered", flow=self._flow, what=f"{aim.where} {word}", by=by, partitions=about, unwritten=unwritten)
        return Steered(given, wider, about, unwritten)

    def _write(self, given: tuple[Order, ...]) -> str:
        before = self.orders.known
        try:
            self.orders.write(given)
        except HeliographError as error:
            return f"it counts, but could not be written to the target, so a restart will not know of it: {error}"
        finally:
            if self.orders.known != before:  # others gave orders meanwhile
                self.obey()
        return ""

    # ---------------------------------------------------------------- carried out

    def obey(self) -> None:
        """Make it so, after orders or partitions changed."""
        with self._telling:
            halted = frozenset(tp for tp in self._partitions() if self.orders.of(tp) is not None)
            freed, self._halted = self._halted - halted, halted
            self._ever = self._ever or bool(halted)
            self._observer.freed(freed)
            self._revision += 1
            self._relay.send_all(self._halt)
            if self.stopped:
                self._relay.send_all(Finish())
            elif freed and (not self._relay.busy or not freed <= set(self._planned())):
                self._replan()

    @property
    def _halt(self) -> Halt:
        return Halt(self._revision, [(tp.topic, tp.partition) for tp in sorted(self._halted)])

    def joined(self, channel: Channel) -> None:
        """Also that nothing is halted any more: a task that is tried again goes by a plan that may say otherwise."""
        with self._telling:
            if self._ever:
                channel.send(self._halt)
            if self.stopped:
                channel.send(Finish())

    @property
    def halted(self) -> frozenset[TopicPartition]:
        return self._halted

    @property
    def stopped(self) -> bool:
        """The whole flow."""
        whole = self.orders.whole
        return whole is not None and whole.word == "stopped"

    def plannable(self, routes: Iterable[Route]) -> tuple[Route, ...]:
        return tuple(r for r in routes if (order := self.orders.of(r.tp)) is None or order.word != "stopped")
