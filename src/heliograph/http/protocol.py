"""One connection of the server: uvicorn's HTTP/1.1 protocol on our parser, with deadlines.

uvicorn waits for a request for as long as it takes, closes half-closed connections before their answers, and drops
answers to bad requests where bytes are left unread. Here a request must be whole within REQUEST_S however slowly its
bytes come, an answer must be taken within ANSWER_S, and a connection may be idle for IDLE_S.

The states, each with one deadline:
  idle       nothing of a request has come; closed without a word
  receiving  a part of a request has come; 408
  answering  a whole request has come; no deadline, the handler has its own
  closing    our last word is on its way; whatever comes is thrown away until the other side is done, or HANG_UP_S
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Literal, Protocol

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from heliograph.http import deadlines
from heliograph.http.message import Refused, Response
from heliograph.http.parsing import Parser

State = Literal["idle", "receiving", "answering", "closing"]


class Place(Protocol):
    """Where the connection is counted."""

    def waits(self) -> None: ...
    def is_answered(self) -> None: ...
    def gone(self) -> None: ...


class HttpProtocol(H11Protocol):
    def __init__(self, config: Config, server_state: ServerState, place: Place) -> None:
        super().__init__(config, server_state, {})
        self.conn: Parser = Parser()
        self._place = place
        self._state: State = "idle"
        self._deadline: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._at_end = False  # the other side will send nothing more

    # ---------------------------------------------------------------- asyncio's events

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._enter("idle")

    def data_received(self, data: bytes) -> None:
        if self._state == "closing":
            return
        self.conn.receive_data(data)
        self.handle_events()

    def eof_received(self) -> bool:  # type: ignore[override]
        """A client that has only closed its sending side still gets the answers to what it sent."""
        self._at_end = True
        if self._state == "answering" and self.scheme != "https":
            return True
        if self._state != "closing":
            self._abandon_request()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_deadline(None)
        self._cancel_writing()
        self._state = "closing"
        super().connection_lost(exc)
        self._place.gone()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing = self.loop.call_later(deadlines.ANSWER_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_writing()
        super().resume_writing()

    # ---------------------------------------------------------------- uvicorn's steps

    def handle_events(self) -> None:
        try:
            super().handle_events()
        except Refused as refused:
            self.refuse(refused)
        else:
            self._settle()

    def _should_upgrade(self) -> bool:
        return False  # as RFC 9110 7.8 allows; uvicorn would log a warning for each that asks

    def on_response_complete(self) -> None:
        self._unset_keepalive_if_required()
        if self.transport.is_closing():
            self._enter("closing")
            return
        self.flow.resume_reading()
        if self.conn.our_state is h11.DONE and self.conn.their_state is h11.DONE:
            self.conn.start_next_cycle()
            self.handle_events()  # requests that came behind this one
        else:
            self._settle()
        if self._at_end and self._state in ("idle", "receiving"):
            self.close()

    def shutdown(self) -> None:
        self.close()

    # ---------------------------------------------------------------- states

    def _settle(self) -> None:
        """The state that follows from what was received and answered."""
        if self._state == "closing":
            return
        if self.transport.is_closing():
            self._enter("closing")
        elif self.cycle is not None and not self.cycle.response_complete:
            self._enter("receiving" if self.cycle.more_body else "answering")
        else:
            self._enter("receiving" if self.conn.holds_bytes else "idle")

    def _enter(self, state: State) -> None:
        if state == self._state and self._deadline is not None:
            return  # more bytes of the same request do not move its deadline
        self._state = state
        if state == "answering":
            self._place.is_answered()
            self._set_deadline(None)
        elif state == "closing":
            self._set_deadline(deadlines.ANSWER_S)
        else:
            self._place.waits()
            self._set_deadline(deadlines.IDLE_S if state == "idle" else deadlines.REQUEST_S)

    def _set_deadline(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self._is_late) if seconds is not None else None

    def _is_late(self) -> None:
        self._deadline = None
        if self._state == "receiving":
            why = f"the request was not whole within {deadlines.REQUEST_S:g} s"
            self.refuse(Refused(HTTPStatus.REQUEST_TIMEOUT, why, close=True))
        elif self._state == "idle" and not self.transport.get_write_buffer_size():
            self.close()
        else:
            self.transport.abort()

    def _cancel_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    # ---------------------------------------------------------------- ends

    def refuse(self, refused: Refused) -> None:
        """The last word on this connection; what follows on it makes no sense."""
        if self._state == "closing" or self.transport.is_closing():
            return
        self._abandon_request()
        self._state = "closing"
        self.transport.write(Response.refusal(refused).encode())
        self.flow.resume_reading()
        if self.scheme != "https" and self.transport.can_write_eof():
            # Closing a socket that holds unread bytes would make the other side lose our answer: read until its end.
            self.transport.write_eof()
            self._set_deadline(deadlines.HANG_UP_S)
        else:
            self._set_deadline(deadlines.ANSWER_S)
            self.transport.close()

    def close(self) -> None:
        if not self.transport.is_closing():
            self._abandon_request()
            self._enter("closing")
            self.transport.close()

    def abort(self) -> None:
        """Closed at once, whatever is still to be said."""
        self.transport.abort()

    def _abandon_request(self) -> None:
        """The application that reads this request's body, if one does, is told that there is no more."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
