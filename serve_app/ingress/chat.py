"""`POST /v1/chat/completions`."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Final

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from serve_app.ingress.answer import Answer, Plan
from serve_app.ingress.caller import Watch, read_body
from serve_app.ingress.failures import as_failure
from serve_app.ingress.gateway import Gateway
from serve_app.policies.order import lower
from serve_app.runs import RunEvent, RunRequest
from serve_app.streams.chat_encode import ChatEncoder, chat_completion, error_frame
from serve_app.streams.collect import Collector
from serve_app.tools.toolset import ToolSet
from serve_app.wire.body import parse_object
from serve_app.wire.chat import ChatRequest, parse_chat
from serve_app.wire.metadata import split_metadata

#: From this size of a request on, its tools are compiled in a thread.
_MANY_TOOLS_BYTES: Final = 8192


async def chat_completions(request: Request) -> Response:
    """Check the request, find its route, and hand both to the answer that was asked for.

    Raises:
        GatewayError: Anything that fails before the first event.
    """
    gateway: Gateway = request.app.state.gateway
    current = gateway.current
    limits = current.settings.openai.limits
    raw = await read_body(
        request.scope, request.receive, limit_mib=limits.body_mib, idle_s=limits.body_idle_s
    )
    chat = parse_chat(parse_object(raw, max_depth=limits.json_depth))
    workspace, metadata = split_metadata(chat.metadata)
    request.scope["state"]["model"] = chat.model[:200]
    route = current.catalog.resolve(chat.model)
    run = _run_request(
        chat,
        request_id=request.scope["state"]["request_id"],
        target=route.members[0].target,
        workspace=workspace,
        metadata=metadata,
    )
    openai = current.settings.openai
    completion_id = f"chatcmpl-{uuid.uuid4().hex}"
    # Schemas that were not seen before take some tenths of a millisecond a part to compile: a few
    # tools are compiled at once, many beside the other requests.
    many = len(raw) > _MANY_TOOLS_BYTES
    tools = run.tools
    toolset = (
        (await asyncio.to_thread(ToolSet, tools) if many else ToolSet(tools)) if tools else None
    )
    plan = Plan(
        run=lower(run, strict=openai.strict_output, policy=route.policy),
        route=route,
        toolset=toolset,
        attempts=route.tool_validation_attempts or openai.tool_validation_attempts,
        sentinels=tuple(openai.sentinels),
        call_prefix=completion_id.removeprefix("chatcmpl-"),
    )
    # A strict stream is seen by nobody before it is whole.
    live = chat.stream and not openai.strict_output
    return _ChatAnswer(chat, completion_id, Answer(gateway, plan), live=live, gateway=gateway)


class _ChatAnswer(Response):
    """A response that runs the answer while it is being sent."""

    def __init__(
        self,
        chat: ChatRequest,
        completion_id: str,
        answer: Answer,
        *,
        live: bool,
        gateway: Gateway,
    ) -> None:
        super().__init__()
        self._watched = gateway.watches_callers
        self._chat = chat
        self._completion_id = completion_id
        self._answer = answer
        self._live = live
        self._created = int(time.time())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["provider"] = self._answer.provider
        with Watch(receive if self._watched else None) as watch:
            if self._live:
                await self._stream(scope, send, watch)
            else:
                events = await self._answer.whole()
                scope["state"]["provider"] = self._answer.provider
                watch.stop()
                await (self._send_stream if self._chat.stream else self._send_whole)(send, events)

    async def _send_whole(self, send: Send, events: list[RunEvent]) -> None:
        """One whole `chat.completion`."""
        collector = Collector()
        for event in events:
            collector.feed(event)
        answer = chat_completion(
            collector.result(),
            completion_id=self._completion_id,
            created=self._created,
            model=self._chat.model,
        )
        body = to_json(answer)
        headers = self._headers(b"application/json")
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _send_stream(self, send: Send, events: list[RunEvent]) -> None:
        """`chat.completion.chunk`s of an answer that is whole already."""
        encoder = self._encoder()
        frames = [frame for event in events for frame in encoder.feed(event)]
        await self._start_stream(send)
        await _write(send, b"".join((*frames, *encoder.finish())), last=True)

    async def _stream(self, scope: Scope, send: Send, watch: Watch) -> None:
        """`chat.completion.chunk`s as they come; a failure on the way is the last event."""
        encoder = self._encoder()
        async with self._answer.live() as batches:
            await self._start_stream(send)
            try:
                async for events in batches:
                    frames = [frame for event in events for frame in encoder.feed(event)]
                    if frames:
                        await _write(send, b"".join(frames))
            except Exception as error:  # noqa: BLE001 - a stream that broke always says so
                failure = as_failure(error, scope["state"])
                watch.stop()
                await _write(send, error_frame(failure), last=True)
                return
            watch.stop()
            await _write(send, b"".join(encoder.finish()), last=True)

    def _encoder(self) -> ChatEncoder:
        return ChatEncoder(
            completion_id=self._completion_id,
            created=self._created,
            model=self._chat.model,
            include_usage=self._chat.include_usage,
        )

    async def _start_stream(self, send: Send) -> None:
        headers = self._headers(b"text/event-stream; charset=utf-8")
        headers += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    def _headers(self, content_type: bytes) -> list[tuple[bytes, bytes]]:
        provider = self._answer.provider.encode()
        headers = [(b"content-type", content_type), (b"x-iop-provider", provider)]
        for name, value in self._answer.metadata.items():
            headers.append((f"x-iop-{name.replace('_', '-')}".encode(), value.encode()))
        return headers


async def _write(send: Send, body: bytes, *, last: bool = False) -> None:
    """One write. It waits while the caller's own buffers are full."""
    await send({"type": "http.response.body", "body": body, "more_body": not last})


def _run_request(
    chat: ChatRequest,
    *,
    request_id: str,
    target: str,
    workspace: str | None,
    metadata: dict[str, str],
) -> RunRequest:
    """The caller's request, free of its surface."""
    limit = chat.max_completion_tokens
    return RunRequest(
        request_id=request_id,
        model=chat.model,
        target=target,
        messages=[dict(message) for message in chat.messages],
        max_tokens=limit if limit is not None else chat.max_tokens,
        temperature=chat.temperature,
        top_p=chat.top_p,
        presence_penalty=chat.presence_penalty,
        frequency_penalty=chat.frequency_penalty,
        seed=chat.seed,
        stop=tuple(chat.stop or ()),
        response_format=dict(chat.response_format) if chat.response_format else None,
        tools=tuple(dict(tool) for tool in chat.tools or ()),
        tool_choice=_choice(chat),
        think=chat.think,
        reasoning_effort=chat.reasoning_effort,
        thinking_token_budget=chat.thinking_token_budget,
        include_reasoning=chat.include_reasoning,
        workspace=workspace,
        metadata=metadata,
    )


def _choice(chat: ChatRequest) -> str | dict[str, object] | None:
    """The caller's tool choice; an object as a plain one."""
    choice = chat.tool_choice
    return choice if choice is None or isinstance(choice, str) else dict(choice)
