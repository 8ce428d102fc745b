"""All flows of one process: coordinators, one Spark session, a supervised streaming query per flow.

What is wrong with a cluster at the start is raised before Spark's JVM is launched and before anything is written, so
that a typing error ends the command at once; what goes wrong later is retried for ever, with its reason shown. PySpark
is imported while the clusters are asked, and the flows are made ready while the JVM starts: the check costs no time.

Flows come, change and go while it runs (`change`), each without the others noticing. One change at a time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from heliograph.errors import EngineError, FlowError, HeliographError
from heliograph.flow.changes import Way, way
from heliograph.flow.charge import Charge
from heliograph.flow.coordinator import Coordinator
from heliograph.flow.factors import check_factors
from heliograph.flow.helm import Steered
from heliograph.flow.hub import Hub
from heliograph.flow.patience import Patience, insist, is_passing
from heliograph.flow.plan import epoch_length
from heliograph.flow.reach import check_begin, check_clusters, check_targets
from heliograph.flow.specialists import Specialists
from heliograph.flow.tenure import settle
from heliograph.health.status import FlowReport, FlowStatus, Generation, Scope, Word
from heliograph.mirror.compiler import Compiler
from heliograph.spark import security
from heliograph.state.replicas import needed_by
from heliograph.types import Flow

if TYPE_CHECKING:
    from heliograph.spark.engine import Engine

log = structlog.get_logger()

# Of a local Spark. A task holds its slot for a whole epoch, and flows come while it runs: those of an edited file and
# those of a node that died. Too few, and some copy nothing; one that nobody uses is a number that is not counted down.
SLOTS = 4096
PORT_SETTING = "spark.heliograph.port"  # of the coordinator, for executors behind a firewall; any free one by default


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a change did to one flow."""

    flow: str
    what: str  # added, removed, changed, restarted
    words: str


class Runner:
    def __init__(
        self,
        flows: Sequence[Flow],
        *,
        master: str | None = None,
        spark_settings: Mapping[str, str] | None = None,
        epoch_seconds: float | None = None,
        file: str = "",
        take_over: bool = False,
        wait_s: float | None = None,
        spark: EngineOnce | None = None,
    ) -> None:
        """`file`: what others are told that this process runs. `take_over`: others that run these flows let go.
        `spark`: one that the caller has begun to start; it ends with the flows.
        `wait_s`: how long the start waits for clusters that are away; None: as long as an answer may take."""
        self._patience = None if wait_s is None else _Shown(wait_s, self)
        self._master = master
        self._file, self._take_over = file, take_over
        self._settings = dict(spark_settings or {})
        security.secured(master, self._settings)  # raises, before anything is opened
        self._epoch_seconds = epoch_seconds
        self._address = self._settings.get("spark.driver.host", "127.0.0.1")
        self._hub = Hub(self._address, int(self._settings.get(PORT_SETTING, "0")))
        self.generation = Generation()
        self._coordinators: dict[str, Coordinator] = {}  # replaced, never changed: others look at it
        enabled = [flow for flow in flows if flow.enabled]
        self._coordinators = {flow.name: self._coordinator(flow, len(enabled)) for flow in enabled}
        # Pairs that only send heartbeats.
        self._beating = {flow.name: Specialists(flow) for flow in flows if not flow.enabled}
        self._charges: dict[str, Charge] = {}
        self._engine: Engine | None = None
        self._spark = spark
        self._compiler = Compiler()
        self._changing = threading.RLock()
        self._stopping = threading.Event()
        self._over = threading.Event()  # stopped, or nothing is left to run

    def _coordinator(self, flow: Flow, flows: int) -> Coordinator:
        """One of so many."""
        seconds = epoch_length(self._epoch_seconds, flows)
        coordinator = Coordinator(flow, self._hub.coordinates, epoch_seconds=seconds, file=self._file)
        coordinator.generation = self.generation.count
        coordinator.supersedes = True  # `settle` comes before it is opened
        coordinator.tenure.let_go = lambda state, why: self._let_go(coordinator, state, why)
        self._hub.add(flow.name, coordinator)
        return coordinator

    # ---------------------------------------------------------------- from start to stop

    def start(self) -> None:
        try:
            self._start()
        except BaseException:
            self._compiler.close()
            raise

    def _start(self) -> None:
        if self._coordinators:
            self._start_flows()
        else:  # nothing is copied: no Spark, no coordinators
            beating_only = [beating.flow for beating in self._beating.values()]
            check_targets(beating_only, patience=self._patience)
            check_factors(beating_only, self._patience)
        for beating in self._beating.values():
            beating.start()

    def _start_flows(self) -> None:
        coordinators = list(self._coordinators.values())
        self._compile()
        with ThreadPoolExecutor(len(coordinators) + 2, thread_name_prefix="start") as pool:
            engine_class = pool.submit(_import_engine)  # takes about as long as the check beside it
            try:
                flows = [coordinator.flow for coordinator in coordinators]
                late = self._prepare(flows)
            except HeliographError:
                self._hub.close()
                raise
            for coordinator in coordinators:
                coordinator.supersedes = coordinator.flow.name not in late
            engine = pool.submit(lambda: self._start_engine(engine_class.result()))
            opened = [pool.submit(one.open) for one in coordinators if one.flow.name not in late]
            late |= self._not_ready(zip([c for c in coordinators if c.flow.name not in late], opened, strict=True))
            problems = [f.exception() for f in opened if f.exception() is not None and not self._waits_for(f)]
            problems += [] if engine.exception() is None else [engine.exception()]
            if problems:
                if engine.exception() is None:
                    engine.result().stop(2.0)
                self._hub.close()
                raise problems[0] or EngineError("start failed")
            self._engine = engine.result()
        for coordinator in coordinators:
            self._charge(coordinator, opened=coordinator.flow.name not in late)

    def _compile(self) -> None:
        """Where tasks run on this machine, the kernels are compiled while Spark starts."""
        local = self._master is None or self._master.startswith("local")
        if local and not self._compiler.ensure():
            waiting = [c.flow.name for c in self._coordinators.values() if c.flow.staged or c.flow.target_partitions]
            words = "compiling kernels, once on this machine, for half a minute or so; `heliograph warm` does it ahead"
            if waiting:
                log.warning(words, flows_that_wait_for_it=waiting)
            else:
                log.info(words)

    def _prepare(self, flows: Sequence[Flow]) -> frozenset[str]:
        """Everything that is looked at before anything is written. Names of flows that are begun later."""
        late = check_begin(flows, self._patience)
        begun = [flow for flow in flows if flow.name not in late]
        beating = [one.flow for one in self._beating.values()]
        check_factors([*begun, *(flow for flow in beating if _is_target_of(flow, begun))], self._patience)
        insist(lambda: settle(begun, take_over=self._take_over), self._patience)
        self._waiting("")
        return late

    def _waiting(self, why: str) -> None:
        """What the start waits for is what its flows wait for."""
        for coordinator in self._coordinators.values():
            coordinator.query("starting", why)

    def _waits_for(self, opened: Future[None]) -> bool:
        """A flow that could not be opened since a broker restarts, say, is opened by its supervisor, later."""
        return self._patience is not None and self._patience.wait_s > 0 and is_passing(opened.exception())

    def _not_ready(self, opened: Iterable[tuple[Coordinator, Future[None]]]) -> frozenset[str]:
        late = [(one, future) for one, future in opened if self._waits_for(future)]
        for one, future in late:
            one.supersedes = False  # by the time it is opened another process may have been told something else
            why = str(future.exception())
            log.warning("a flow is not ready yet, and is tried again", flow=one.flow.name, why=why)
        return frozenset(one.flow.name for one, _ in late)

    def _charge(self, coordinator: Coordinator, *, opened: bool) -> None:
        assert self._engine is not None
        charge = Charge(coordinator, self._engine, self._hub.coordinates, opened=opened)
        self._charges = {**self._charges, coordinator.flow.name: charge}
        charge.start()

    def wait(self, timeout_s: float) -> bool:
        return self._over.wait(timeout_s)

    def stop(self, timeout_s: float = 4.0) -> None:
        """Tasks first, so that positions are written; then Spark, gently as long as there is time, then not."""
        deadline = time.monotonic() + timeout_s
        self._stopping.set()
        self._over.set()
        for beating in self._beating.values():
            beating.stop()
        coordinators = [c for name, c in self._coordinators.items() if not self._has_ended(name)]
        for coordinator in coordinators:
            coordinator.stop()
        for charge in self._charges.values():
            charge.ask_end()
        patience = time.monotonic() + timeout_s * 0.6
        while any(c.working for c in coordinators) and time.monotonic() < patience:
            time.sleep(0.02)
        if self._engine is not None:
            (self._spark or self._engine).stop(max(deadline - time.monotonic(), 0.2))
        for coordinator in coordinators:
            coordinator.query("stopped")
            coordinator.close()
        for beating in self._beating.values():
            beating.close()
        self._compiler.close()
        self._hub.close()

    def _has_ended(self, flow: str) -> bool:
        charge = self._charges.get(flow)
        return charge is not None and charge.ended

    def _start_engine(self, engine_class: type[Engine]) -> Engine:
        if self._spark is not None:
            return self._spark.get()
        return engine_class(master=self._master, slots=SLOTS, settings=self._settings, address=self._address)

    # ---------------------------------------------------------------- what is told

    def steer(self, flow: str, scope: Scope, word: Word, by: str) -> Steered:
        coordinator = self._coordinators.get(flow)
        if coordinator is None:
            there = ", ".join(self._coordinators) or "none"
            raise FlowError(f"no flow {flow!r} runs in this process: there is {there}", fix="name one of these")
        return coordinator.steer(scope, word, by)

    def flow(self, name: str) -> Flow:
        return self._coordinators[name].flow

    def restart(self, name: str) -> Outcome:
        """This flow alone, from where it stands."""
        with self._changing:
            if self._stopping.is_set() or name not in self._coordinators:
                raise FlowError(f"no flow {name!r} runs in this process", fix="name one that does")
            flow = self._coordinators[name].flow
            self._remove(name)
            return self._add(flow, "restarted")

    def change(self, flows: Sequence[Flow]) -> list[Outcome]:
        """These from now on, and no others. What is wrong with a cluster is raised before anything is touched."""
        with self._changing:
            if self._stopping.is_set():
                raise FlowError("this process is being stopped", fix="start it again with the new file")
            wanted = {flow.name: flow for flow in flows if flow.enabled}
            running = {name: c.flow for name, c in self._coordinators.items()}
            ways = {name: way(running[name], flow) for name, flow in wanted.items() if name in running}
            fresh = [flow for name, flow in wanted.items() if ways.get(name, Way.ANEW) is Way.ANEW]
            check_clusters(fresh)
            check_factors(flow for name, flow in wanted.items() if _creates_otherwise(running.get(name), flow))
            settle([flow for flow in fresh if flow.name not in running], take_over=False)
            outcomes = [self._remove(name) for name in running if name not in wanted]
            for name, flow in wanted.items():
                if name not in running:
                    outcomes.append(self._add(flow, "added"))
                elif ways[name] is Way.ANEW:
                    self._remove(name)
                    outcomes.append(self._add(flow, "restarted"))
                elif ways[name] is Way.ALIVE:
                    words = self._coordinators[name].change(flow)
                    self._coordinators[name].generation = self.generation.count
                    outcomes.append(Outcome(name, "changed", words))
            return outcomes + self._change_beating({flow.name: flow for flow in flows if not flow.enabled})

    def _add(self, flow: Flow, what: str) -> Outcome:
        if self._engine is None:
            self._engine = self._start_engine(_import_engine())
        coordinator = self._coordinator(flow, len(self._coordinators) + 1)
        self._coordinators = {**self._coordinators, flow.name: coordinator}
        trouble = ""
        try:
            coordinator.open()
        except HeliographError as error:
            trouble = f"; it is not ready yet, which is tried again: {error}"
        self._charge(coordinator, opened=not trouble)
        words = "it copies from where it stood" if what == "restarted" else "it is copied from now on"
        return Outcome(flow.name, what, words + trouble)

    def _remove(self, name: str) -> Outcome:
        charge = self._charges.get(name)
        if charge is not None and not charge.ended:
            charge.end()
        if name in self._coordinators:
            self._hub.remove(name, self._coordinators[name])
        self._charges = {key: one for key, one in self._charges.items() if key != name}
        self._coordinators = {key: one for key, one in self._coordinators.items() if key != name}
        return Outcome(name, "removed", "it is copied no more; its positions and its copies stay")

    def _let_go(self, coordinator: Coordinator, state: str, why: str) -> bool:
        """Somebody else has the flow from now on. By a thread of its own: a chore of the flow says so."""
        log.warning("the flow ends here", flow=coordinator.flow.name, why=why)
        threading.Thread(target=self._end_one, args=(coordinator, state, why), name="let-go", daemon=True).start()
        return True

    def _end_one(self, coordinator: Coordinator, state: str, why: str) -> None:
        """Top of a thread. A flow that cannot be ended in order is shown as failed: its tasks have been told to finish,
        and stop by themselves once their driver has ended."""
        name = coordinator.flow.name
        while name not in self._charges and not self._stopping.wait(0.1):
            pass  # it was told before Spark had started
        with self._changing:
            charge = self._charges.get(name)
            if self._stopping.is_set() or charge is None or charge.coordinator is not coordinator or charge.ended:
                return
            try:
                charge.end(why, state=state)
            except Exception as error:
                log.exception("the flow could not be ended in order", flow=name, fix="restart this process")
                words = f"{why}; it could not be ended in order: {type(error).__name__}: {error}"
                with contextlib.suppress(Exception):  # it is logged already; the process must not wait for this flow
                    coordinator.query("failed", words)
            if all(one.ended for one in self._charges.values()) and not self._beating:
                self._over.set()

    def _change_beating(self, wanted: Mapping[str, Flow]) -> list[Outcome]:
        """Pairs that only send heartbeats: cheap, so a changed one is made anew."""
        outcomes = []
        for name in [name for name, beating in self._beating.items() if wanted.get(name) != beating.flow]:
            beating = self._beating.pop(name)
            beating.stop()
            beating.close()
            if name not in wanted and name not in self._coordinators:
                outcomes.append(Outcome(name, "removed", "no heartbeats are sent any more"))
        for name, flow in wanted.items():
            if name not in self._beating:
                self._beating = {**self._beating, name: Specialists(flow)}
                self._beating[name].start()
                outcomes.append(Outcome(name, "changed", "heartbeats only"))
        return outcomes

    # ---------------------------------------------------------------- what people see

    @property
    def flows(self) -> tuple[str, ...]:
        return tuple(self._coordinators)

    def status(self) -> tuple[FlowStatus, ...]:
        if not self._coordinators:
            return tuple(self._beats(beating) for beating in self._beating.values())
        return tuple(coordinator.status() for coordinator in self._coordinators.values())

    def report(self) -> tuple[FlowReport, ...]:
        return tuple(coordinator.report() for coordinator in self._coordinators.values())

    def _beats(self, beating: Specialists) -> FlowStatus:
        """Of a pair that copies nothing. Shown only when no pair does: beside flows it would be noise."""
        state = "stopped" if self._stopping.is_set() else "idle"
        reason = next(iter(beating.troubles), "the flow is not enabled: heartbeats only")
        return FlowStatus(beating.flow.name, state, reason)


class _Shown(Patience):
    """Whoever looks at the flows sees what their start waits for."""

    def __init__(self, wait_s: float, runner: Runner) -> None:
        super().__init__(wait_s)
        self._runner = runner

    def say(self, why: str) -> None:
        super().say(why)
        self._runner._waiting(f"waiting: {why}")


def _creates_otherwise(old: Flow | None, new: Flow) -> bool:
    """Whether the new flow creates other topics, or by other replication factors."""
    return old is None or needed_by(old) != needed_by(new)


def _is_target_of(flow: Flow, begun: Sequence[Flow]) -> bool:
    """Whether the cluster that a pair's heartbeats go to was reached."""
    return any(flow.target.alias in (one.source.alias, one.target.alias) for one in begun)


class EngineOnce:
    """One Spark for flows that come one by one: started when the first of them needs it."""

    def __init__(self, master: str | None, settings: Mapping[str, str], address: str) -> None:
        security.secured(master, settings)  # raises
        self._how = master, dict(settings), address
        self._lock = threading.Lock()
        self._engine: Engine | None = None

    def begin(self) -> None:
        """Start it while the caller does something else. What goes wrong is for `get` to find out."""
        threading.Thread(target=self._begin, name="spark", daemon=True).start()

    def _begin(self) -> None:
        with contextlib.suppress(HeliographError):
            self.get()

    def get(self) -> Engine:
        """Raises EngineError."""
        with self._lock:
            if self._engine is None:
                master, settings, address = self._how
                self._engine = _import_engine()(master=master, slots=SLOTS, settings=settings, address=address)
            return self._engine

    def stop(self, timeout_s: float) -> None:
        if self._lock.acquire(timeout=timeout_s):
            try:
                if self._engine is not None:
                    self._engine.stop(timeout_s)
                    self._engine = None
            finally:
                self._lock.release()


def _import_engine() -> type[Engine]:
    from heliograph.spark.engine import Engine

    return Engine
