"""The engine of a `Link`: one selector loop that carries bytes between clients and one address, late or not at all.

It is commanded by lines of JSON over a socket (`proxy.py` holds the other end) and ends when that socket does, so it
runs the same in a thread and, as `python relay.py` (standard library only), in a process that shares nobody's GIL.

Invariants:
A. The delay is a line, not a pause: each chunk carries the time at which it is due, and reading goes on meanwhile. So
   the delay limits no bandwidth; memory is bounded by what a gigabyte a second leaves on the line.
B. Bytes of one direction leave in the order they came; an end of stream and a cut stand in the same line.
C. A cut happens after an exact number of bytes, drawn from a seeded generator, whoever carries that byte.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import random
import selectors
import socket
import struct
import sys
import time
from collections import deque
from typing import Any

CHUNK_BYTES = 512 * 1024
SLACK_BYTES = 4 << 20  # held for a slow reader when there is no delay
LINE_RATE_BYTES_PER_MS = 1_000_000  # 1 GB/s: more than the brokers give
RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close sends RST
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class End:
    """What stands in a line after the last byte: a half-close, or the end of the whole connection."""

    def __init__(self, kind: str) -> None:
        self.kind = kind  # "shut": half-close; "fin", "rst": a cut


class Lane:
    """One direction of one connection: a queue of (due, bytes or End)."""

    def __init__(self, source: socket.socket, sink: socket.socket, pair: Pair) -> None:
        self.source, self.sink, self.pair = source, sink, pair
        self.queue: deque[tuple[float, memoryview | End]] = deque()
        self.queued_bytes = 0
        self.reading = True  # until the source's end
        self.blocked = False  # the sink takes no more
        self.scheduled = False  # stands in the relay's timetable


class Pair:
    """A client's connection and ours to the target."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.up, self.down = Lane(client, server, self), Lane(server, client, self)
        self.connected = False
        self.open = True
        self.shut = 0


class Relay:
    def __init__(self, control: socket.socket, options: dict[str, Any]) -> None:
        self._control = control
        self._buffer = b""
        self._port: int = options["port"]
        self._target = (options["host"], int(options["target_port"]))
        self._delay_seconds: float = options.get("delay_ms", 0) / 1000
        self._selector = selectors.DefaultSelector()
        self._listener: socket.socket | None = None
        self._pairs: set[Pair] = set()
        self._masks: dict[socket.socket, int] = {}
        self._timetable: list[tuple[float, int, Lane]] = []
        self._order = itertools.count()
        self._running = True
        self.counts = {"connections": 0, "failed": 0, "bytes": 0, "cuts": 0}
        self._cuts: dict[str, Any] | None = None
        self._until_cut = -1
        self._random = random.Random()
        self._set_cuts(options.get("cuts"))
        self._listen()
        self._selector.register(control, READ, None)

    def run(self) -> None:
        try:
            while self._running:
                for key, mask in self._selector.select(self._timeout()):
                    self._serve(key, mask)
                self._release_due()
        finally:
            self._refuse(True)
            self._cut_all()
            self._selector.close()
            self._control.close()

    def _timeout(self) -> float | None:
        return max(0.0, self._timetable[0][0] - time.monotonic()) if self._timetable else None

    def _serve(self, key: selectors.SelectorKey, mask: int) -> None:
        if key.data is None:
            self._command()
        elif key.data is self:
            if key.fileobj is self._listener:  # else a command of this very turn has closed it
                self._accept()
        else:
            pair: Pair = key.data
            if not pair.open:
                return
            if not pair.connected and key.fileobj is pair.server:
                self._connected(pair)
                return
            reads, writes = (pair.up, pair.down) if key.fileobj is pair.client else (pair.down, pair.up)
            if mask & WRITE:
                writes.blocked = False
                self._write(writes)
            if mask & READ and pair.open and reads.reading:
                self._read(reads)
            self._watch(pair)

    # Connections

    def _listen(self) -> None:
        listener = socket.create_server(("127.0.0.1", self._port), backlog=512)
        listener.setblocking(False)
        self._listener = listener
        self._selector.register(listener, READ, self)

    def _accept(self) -> None:
        assert self._listener is not None  # `_serve` looked
        try:
            client, _ = self._listener.accept()
        except OSError:  # gone again before we came to it
            return
        server = socket.socket()
        for one in (client, server):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.connect_ex(self._target)
        pair = Pair(client, server)
        self._pairs.add(pair)
        self.counts["connections"] += 1
        self._set_mask(server, WRITE, pair)

    def _connected(self, pair: Pair) -> None:
        if pair.server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.counts["failed"] += 1
            self._close(pair, reset=True)
            return
        pair.connected = True
        self._watch(pair)

    def _close(self, pair: Pair, *, reset: bool) -> None:
        if not pair.open:
            return
        pair.open = False
        self._pairs.discard(pair)
        for lane in (pair.up, pair.down):
            lane.queue.clear()
        for one in (pair.client, pair.server):
            self._set_mask(one, 0, pair)
            self._masks.pop(one, None)
            if reset:
                with contextlib.suppress(OSError):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            one.close()

    def _watch(self, pair: Pair) -> None:
        """Ask the selector for exactly what can be used now."""
        if not pair.open or not pair.connected:
            return
        room = SLACK_BYTES + self._delay_seconds * 1000 * LINE_RATE_BYTES_PER_MS
        for one, reads, writes in ((pair.client, pair.up, pair.down), (pair.server, pair.down, pair.up)):
            mask = READ if reads.reading and reads.queued_bytes < room else 0
            self._set_mask(one, mask | (WRITE if writes.blocked else 0), pair)

    def _set_mask(self, one: socket.socket, mask: int, pair: Pair) -> None:
        old = self._masks.get(one, 0)
        if mask == old:
            return
        self._masks[one] = mask
        if not old:
            self._selector.register(one, mask, pair)
        elif not mask:
            self._selector.unregister(one)
        else:
            self._selector.modify(one, mask, pair)

    # Bytes

    def _read(self, lane: Lane) -> None:
        try:
            data = lane.source.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._close(lane.pair, reset=True)
            return
        due = time.monotonic() + self._delay_seconds if self._delay_seconds else 0.0
        if not data:
            self._end(lane, due, "shut")
            return
        piece, cut = self._until_the_cut(memoryview(data))
        self.counts["bytes"] += len(piece)
        lane.queue.append((due, piece))
        lane.queued_bytes += len(piece)
        if cut:
            self._end(lane, due, cut)
        elif self._delay_seconds:
            self._schedule(lane)
        elif not lane.blocked:
            self._write(lane)

    def _end(self, lane: Lane, due: float, kind: str) -> None:
        lane.reading = False
        lane.queue.append((due, End(kind)))
        self._schedule(lane)

    def _until_the_cut(self, data: memoryview) -> tuple[memoryview, str]:
        """The part of the data before the next cut, and how to cut, if the cut falls into it (invariant C)."""
        if self._cuts is None or self._until_cut < 0:
            return data, ""
        if len(data) < self._until_cut:
            self._until_cut -= len(data)
            return data, ""
        kept = data[: self._until_cut]
        self.counts["cuts"] += 1
        self._draw()
        return kept, self._random.choice(("fin", "rst"))

    def _draw(self) -> None:
        assert self._cuts is not None
        done = self._cuts["limit"] and self.counts["cuts"] >= self._cuts["limit"]
        self._until_cut = -1 if done else self._random.randint(self._cuts["low_bytes"], self._cuts["high_bytes"])

    def _schedule(self, lane: Lane) -> None:
        if lane.queue and not lane.scheduled and not lane.blocked:
            lane.scheduled = True
            heapq.heappush(self._timetable, (lane.queue[0][0], next(self._order), lane))

    def _release_due(self) -> None:
        now = time.monotonic()
        while self._timetable and self._timetable[0][0] <= now:
            lane = heapq.heappop(self._timetable)[2]
            lane.scheduled = False
            if lane.pair.open and not lane.blocked:
                self._write(lane)
                self._watch(lane.pair)

    def _write(self, lane: Lane) -> None:
        """Send what is due, until the sink is full."""
        now = time.monotonic()
        while lane.queue and lane.queue[0][0] <= now:
            due, item = lane.queue[0]
            if isinstance(item, End):
                lane.queue.popleft()
                self._finish(lane, item)
                return
            try:
                sent = lane.sink.send(item)
            except BlockingIOError:
                lane.blocked = True
                return
            except OSError:
                self._close(lane.pair, reset=True)
                return
            lane.queued_bytes -= sent
            if sent == len(item):
                lane.queue.popleft()
            else:
                lane.queue[0] = (due, item[sent:])
        self._schedule(lane)

    def _finish(self, lane: Lane, end: End) -> None:
        pair = lane.pair
        if end.kind != "shut":
            self._close(pair, reset=end.kind == "rst")
            return
        pair.shut += 1
        if pair.shut == 2:
            self._close(pair, reset=False)
            return
        with contextlib.suppress(OSError):
            lane.sink.shutdown(socket.SHUT_WR)

    # Commands

    def _command(self) -> None:
        try:
            data = self._control.recv(65536)
        except OSError:  # the other end died with our answer unread
            data = b""
        if not data:
            self._running = False
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            self._obey(command)
            answer = {**self.counts, "open": len(self._pairs)}
            self._control.sendall(json.dumps(answer).encode() + b"\n")

    def _obey(self, command: dict[str, Any]) -> None:
        match command["do"]:
            case "cut":
                self.counts["cuts"] += self._cut_all()
            case "refuse":
                self._refuse(command["on"])
            case "delay":
                self._delay_seconds = command["delay_ms"] / 1000
            case "cuts":
                self._set_cuts(command["cuts"])
            case "stop":
                self._running = False
            case "count":
                pass

    def _set_cuts(self, cuts: dict[str, Any] | None) -> None:
        self._cuts, self._until_cut = cuts, -1
        if cuts is not None:
            self.counts["cuts"] = 0
            self._random.seed(cuts["seed"])
            self._draw()

    def _cut_all(self) -> int:
        victims = list(self._pairs)
        for pair in victims:
            self._close(pair, reset=True)
        return len(victims)

    def _refuse(self, on: bool) -> None:
        if on and self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None
        elif not on and self._listener is None:
            self._listen()


def main() -> None:
    """As a process: options as one JSON argument, the control socket as standard input."""
    Relay(socket.socket(fileno=0), json.loads(sys.argv[1])).run()


if __name__ == "__main__":
    main()
