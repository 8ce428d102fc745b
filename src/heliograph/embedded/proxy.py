"""A `Link`: a loopback port that leads to a broker over a line one can make long, cut, or close.

    links = Links(delay_ms=50)
    with links, Kafka("far", advertised=links.advertise) as kafka:      # clients only ever meet the links
        links[1].cut()

The engine is `relay.py`, in a thread of this process or (the default) in a process of its own.
`python -m heliograph.embedded.proxy TARGET [--port P] [--delay-ms D]` runs one by hand.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click

from heliograph.embedded import relay
from heliograph.embedded.ports import LOOPBACK, claim_port
from heliograph.errors import EmbeddedError


@dataclass(frozen=True, slots=True)
class Cuts:
    """Connections cut at random points: after every low..high bytes carried, at most `limit` times (0: for ever)."""

    seed: int
    low_bytes: int = 1_000
    high_bytes: int = 1_000_000
    limit: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """What a link has seen so far."""

    connections: int
    failed: int  # connections for which the target could not be reached
    bytes: int
    cuts: int  # connections cut, by `cut()` or by `Cuts`
    open: int


class Link:
    """A TCP proxy to `target` ("host:port" or a loopback port). It listens at once, and until `close`."""

    def __init__(
        self,
        target: str | int,
        *,
        port: int | None = None,
        delay_ms: float = 0,
        cuts: Cuts | None = None,
        own_process: bool = True,
    ) -> None:
        host, _, number = str(target).rpartition(":")
        self._claim = claim_port(port)
        self.port = self._claim.number
        options = {
            "port": self.port,
            "host": host or LOOPBACK,
            "target_port": int(number),
            "delay_ms": delay_ms,
            "cuts": asdict(cuts) if cuts else None,
        }
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._control, theirs = socket.socketpair()
        self._control.settimeout(10)
        self._answers = self._control.makefile("rb")
        if own_process:
            self._start_process(theirs, options)
        else:
            engine = relay.Relay(theirs, options)
            self._thread = threading.Thread(target=engine.run, name=f"link-{self.port}", daemon=True)
            self._thread.start()
        self.counts()  # an answer means that it listens

    def _start_process(self, theirs: socket.socket, options: dict[str, Any]) -> None:
        # Ends by itself when our end of the control socket closes, so it needs no watchdog.
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(relay.__file__)), json.dumps(options)],
                stdin=theirs.fileno(),
                start_new_session=True,
            )

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process that carries the bytes, if it has one of its own."""
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        return self._process is None or self._process.poll() is None

    def counts(self) -> Counts:
        return self._ask(do="count")

    def cut(self) -> Counts:
        """Reset every connection now. New ones may come."""
        return self._ask(do="cut")

    def refuse(self, on: bool = True) -> None:
        """Refuse new connections, as a port where nobody listens; those that exist go on (see `cut`)."""
        self._ask(do="refuse", on=on)

    def delay(self, delay_ms: float) -> None:
        """Each way, from now on."""
        self._ask(do="delay", delay_ms=delay_ms)

    def cut_after(self, cuts: Cuts | None) -> None:
        """Cut by this rule from now on (None: no more); the count of cuts begins anew."""
        self._ask(do="cuts", cuts=asdict(cuts) if cuts else None)

    def _ask(self, **command: Any) -> Counts:
        with self._lock:
            try:
                self._control.sendall(json.dumps(command).encode() + b"\n")
                answer = self._answers.readline()
            except OSError as error:
                raise EmbeddedError(f"the link on port {self.port} does not answer: {error}") from error
        if not answer:
            raise EmbeddedError(f"the link on port {self.port} has ended", fix="See its error on stderr")
        return Counts(**json.loads(answer))

    def close(self) -> None:
        self._answers.close()
        self._control.close()
        if self._process is not None:
            self._process.wait(10)
        if self._thread is not None:
            self._thread.join(10)
        self._claim.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Links:
    """A link in front of every broker's client listener; pass `advertise` to a Kafka. Indexed by broker id."""

    def __init__(self, *, delay_ms: float = 0, cuts: Cuts | None = None, own_process: bool = True) -> None:
        self._options: dict[str, Any] = {"delay_ms": delay_ms, "cuts": cuts, "own_process": own_process}
        self._links: dict[tuple[int, str], Link] = {}

    def advertise(self, broker_id: int, listener: str, port: int) -> str:
        link = Link(port, **self._options)
        self._links[broker_id, listener] = link
        return link.address

    def __getitem__(self, broker_id: int) -> Link:
        return next(link for (one, _), link in self._links.items() if one == broker_id)

    def all(self) -> list[Link]:
        return list(self._links.values())

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@click.command()
@click.argument("target")
@click.option("--port", type=int, help="Port to listen on; any free one by default.")
@click.option("--delay-ms", type=float, default=0, show_default=True, help="Delay each way.")
def main(target: str, port: int | None, delay_ms: float) -> None:
    """Carry TCP connections to TARGET (host:port) until Ctrl-C."""
    with Link(target, port=port, delay_ms=delay_ms) as link:
        click.echo(link.address)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            click.echo(f"{link.counts()}", err=True)


if __name__ == "__main__":
    main()
