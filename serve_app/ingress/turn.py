"""The one path of a request: slot, upstream call, bytes, events.

Rules of this file:
1. A failure before the first event is raised from `open`, so that it becomes an HTTP status.
2. The answer always comes as events; who does not stream collects them.
3. Whatever ends a turn, its upstream call is closed and its slot given back.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from serve_app.catalog import Member, Route
from serve_app.errors import Code, GatewayError, UpstreamRejectedError
from serve_app.ingress.gateway import Gateway
from serve_app.policies.order import can_serve
from serve_app.policies.pool import least_loaded
from serve_app.policies.think import control
from serve_app.policies.tool_choice import next_rung
from serve_app.runs import RunEvent, RunRequest
from serve_app.streams.chat_decode import ChatDecoder
from serve_app.streams.sse import SseDecoder
from serve_app.upstream.client import UpstreamStream
from serve_app.upstream.request_body import chat_body
from serve_app.upstream.slots import Lease

#: Attempts at one provider while nothing of an answer has come.
_ATTEMPTS: Final = 2

#: Failures that say nothing about the request: the slot's server was gone.
_GONE: Final = frozenset({Code.UPSTREAM_UNAVAILABLE, Code.UPSTREAM_DISCONNECTED})

#: How long an answer that is already whole may take to close its connection for reuse.
_DRAIN_S: Final = 0.25


class Turn:
    """One turn of a model, from the slot to the last event.

    Args:
        gateway: The ingress's parts.
        run: What to run; its `target` becomes that of the member that is chosen.
        route: Who may serve it.

    Raises:
        UnsupportedThinkError: Nobody who may serve it can do what it says about thinking.
    """

    def __init__(self, gateway: Gateway, run: RunRequest, route: Route) -> None:
        self._gateway = gateway
        self._timeouts = gateway.current.settings.openai.timeouts
        self.member = _choose(gateway, run, route)
        name = self.member.provider
        self.facts = gateway.facts[name]
        # Another member may have another name for the model.
        named = run if run.target == self.member.target else replace(run, target=self.member.target)
        entry = gateway.current.settings.provider(name)
        self._run = control(named, self.facts, takes_think_fields=entry.takes_think_fields)
        self._callers_choice = run.tool_choice
        #: What is to be told about the run besides its answer.
        self.metadata: dict[str, str] = {}
        self._pool = gateway.pools[name]
        self._lease: Lease | None = None
        self._stream: UpstreamStream | None = None
        self._sse = SseDecoder()
        self._decoder = ChatDecoder()
        self._first: list[RunEvent] = []
        self._fault: GatewayError | None = None
        self._ended = False

    async def __aenter__(self) -> Self:
        """Open the turn: what is raised here is still an HTTP status.

        Raises:
            GatewayError: No slot, or the upstream failed before its first event.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                await self._open(chat_body(self._run, self.facts))
            except UpstreamRejectedError as error:
                await self._end(reuse=True)
                if not self._climb(error.message):
                    raise self._blamed(error) from error
                attempt = 0  # it was another request
            except GatewayError as error:
                await self._end(reuse=error.code not in _GONE)
                if error.code not in _GONE or attempt == _ATTEMPTS:
                    raise self._blamed(error) from error
                # The replica restarts its engine and grants no slot until it is well again.
                await asyncio.sleep(random.uniform(0.1, 0.2))  # noqa: S311 - only jitter
            except BaseException:
                await self._end(reuse=True)
                raise
            else:
                return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._ended and exc is None and self._stream is not None:
            await self._drain(self._stream)
        await self._end(reuse=self._fault is None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[RunEvent]:
        """The next events, as many as came together.

        Raises:
            UpstreamError: The answer broke off, or a time limit passed.
        """
        if self._first:
            events, self._first = self._first, []
            return events
        if self._ended:
            raise StopAsyncIteration
        try:
            events = await self._read()
        except GatewayError as error:
            if not self._decoder.finished:
                raise self._blamed(error) from error
            # It has its finish reason; what broke is only the way it says goodbye.
            self._ended = True
            raise StopAsyncIteration from error
        if not events and self._ended:
            raise StopAsyncIteration
        return events

    def _climb(self, refusal: str) -> bool:
        """Take the next rung of the tool ladder, if the refusal is one that it is for."""
        choice = self._callers_choice
        rung = next_rung(self._run, refusal, callers_choice=choice)
        if rung is None:
            return False
        self._run = rung
        if not rung.tools:
            self.metadata["openai_text_tool_fallback"] = "true"
        return True

    async def _open(self, body: bytes) -> None:
        """Take a slot, send the request, wait for the first event."""
        self._sse = SseDecoder()
        self._decoder = ChatDecoder()
        self._fault = None
        self._lease = await self._pool.lease(timeout_s=self._timeouts.slot_s)
        self._stream = await self._gateway.client.post(
            self._lease.slot,
            self.facts.chat_path,
            body,
            timeouts=self._timeouts,
            request_id=self._run.request_id,
        )
        self._first = await self._read()

    async def _read(self) -> list[RunEvent]:
        """Read until there is an event, or the end.

        What came before a fault is given first: how the bytes were cut must not matter.
        """
        stream = self._stream
        if stream is None:
            raise RuntimeError("the turn is not open")
        if self._fault is not None:
            raise self._fault
        events: list[RunEvent] = []
        try:
            while not events and not self._ended:
                self._decode(await stream.read(), events, whole=stream.whole)
        except GatewayError as error:
            self._fault = error
            if not events:
                raise
        if events:
            stream.got_event()
        if self._decoder.finished:
            stream.got_finish()
        return events

    def _decode(self, chunk: bytes, events: list[RunEvent], *, whole: bool) -> None:
        """Add the events of some bytes; none mean that the answer is over."""
        if whole:
            events += self._whole(chunk)
        else:
            for data in self._sse.feed(chunk) if chunk else self._sse.finish():
                events += self._decoder.feed(data)
        if self._decoder.done or not chunk:
            events += self._decoder.finish()
            self._ended = True

    def _whole(self, body: bytes) -> list[RunEvent]:
        """Events of an answer that came as one JSON body where a stream was asked for."""
        self._decoder.done = False
        events = self._decoder.feed(body) if body else []
        self._decoder.done = True
        return events

    async def _drain(self, stream: UpstreamStream) -> None:
        """Read to the very end, so that the connection can serve the next request."""
        try:
            async with asyncio.timeout(_DRAIN_S):
                while await stream.read():
                    pass
        except (TimeoutError, GatewayError):
            pass  # the answer is whole; only the connection is lost

    async def _end(self, *, reuse: bool) -> None:
        """Close the call and give the slot back. Does nothing the second time."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        lease, self._lease = self._lease, None
        if lease is not None:
            self._pool.release(lease, reuse=reuse)

    def _blamed(self, error: GatewayError) -> GatewayError:
        """The error with the provider's name, which the pure steps do not know."""
        if error.provider is None:
            error.provider = self.member.provider
            error.message = f"Provider '{self.member.provider}': {error.message}"
        return error


def _choose(gateway: Gateway, run: RunRequest, route: Route) -> Member:
    """The least loaded of the members that can do what the request says about thinking."""
    able = [one for one in route.members if can_serve(run, gateway.facts[one.provider])]
    return least_loaded(able or route.members, lambda one: gateway.load(one.provider))
