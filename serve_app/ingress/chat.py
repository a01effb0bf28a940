"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time
import uuid

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from serve_app.catalog import Route
from serve_app.ingress.caller import Watch, read_body
from serve_app.ingress.failures import as_failure
from serve_app.ingress.gateway import Gateway
from serve_app.ingress.turn import Turn
from serve_app.policies.generation import apply_generation
from serve_app.runs import RunRequest
from serve_app.streams.chat_encode import ChatEncoder, chat_completion, error_frame
from serve_app.streams.collect import Collector
from serve_app.wire.body import parse_object
from serve_app.wire.chat import ChatRequest, parse_chat
from serve_app.wire.metadata import split_metadata


async def chat_completions(request: Request) -> Response:
    """Check the request, find its route, and hand both to the answer that was asked for.

    Raises:
        GatewayError: Anything that fails before the first event.
    """
    gateway: Gateway = request.app.state.gateway
    current = gateway.current
    limits = current.settings.openai.limits
    raw = await read_body(request.scope, request.receive, limit_mib=limits.body_mib)
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
    run = apply_generation(
        run,
        default_max_tokens=route.policy.default_max_tokens,
        min_max_tokens=route.policy.min_max_tokens,
        default_thinking_token_budget=route.policy.default_thinking_token_budget,
    )
    return _ChatAnswer(gateway, chat, run, route)


class _ChatAnswer(Response):
    """A response that runs the turn while it is being sent."""

    def __init__(self, gateway: Gateway, chat: ChatRequest, run: RunRequest, route: Route) -> None:
        super().__init__()
        self._watched = gateway.watches_callers
        self._chat = chat
        self._turn = Turn(gateway, run, route)
        self._created = int(time.time())
        self._completion_id = f"chatcmpl-{uuid.uuid4().hex}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["provider"] = self._turn.member.provider
        with Watch(receive if self._watched else None) as watch:
            if self._chat.stream:
                await self._stream(scope, send, watch)
            else:
                await self._collect(send, watch)

    async def _collect(self, send: Send, watch: Watch) -> None:
        """One whole `chat.completion`."""
        collector = Collector()
        async with self._turn as turn:
            async for events in turn:
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
        watch.stop()
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, scope: Scope, send: Send, watch: Watch) -> None:
        """`chat.completion.chunk`s; a failure on the way is the stream's last event."""
        encoder = ChatEncoder(
            completion_id=self._completion_id,
            created=self._created,
            model=self._chat.model,
            include_usage=self._chat.include_usage,
        )
        async with self._turn as turn:
            headers = self._headers(b"text/event-stream; charset=utf-8")
            headers += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            try:
                async for events in turn:
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

    def _headers(self, content_type: bytes) -> list[tuple[bytes, bytes]]:
        provider = self._turn.member.provider.encode()
        return [(b"content-type", content_type), (b"x-iop-provider", provider)]


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
