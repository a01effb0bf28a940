"""The official `openai` client, sync and async, against the running gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.fakes.answers import stream
from tests.fakes.sse import DONE, finish, role, tool_call
from tests.fakes.upstream import Upstream, reply
from tests.serve_app.ingress.edge import PROVIDER, Edge, running

TOKEN = "sesame-0123456789"
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]
ROUTES = [{"model": "team/model", "adapter": PROVIDER, "target": "m"}]

_T = TypeVar("_T")

#: Script → the exception of the client, and the code in it.
RAISES: list[tuple[str, type[openai.APIStatusError], str]] = [
    ("status:400", openai.BadRequestError, "upstream_rejected"),
    ("error_429", openai.RateLimitError, "upstream_rate_limited"),
    ("error_500", openai.InternalServerError, "upstream_error"),
    ("error_503", openai.InternalServerError, "upstream_unavailable"),
    ("status:401", openai.InternalServerError, "upstream_unauthorized"),
    ("status:413", openai.APIStatusError, "upstream_rejected"),
    ("reset_before_headers", openai.InternalServerError, "upstream_disconnected"),
]

BOTH = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])


@pytest.fixture
async def edge(upstream: Upstream) -> AsyncGenerator[Edge]:
    """A gateway with a token and one listed model."""
    openai_section = {"bearer_token": TOKEN, "model_routes": ROUTES}
    async with running(upstream, openai=openai_section) as gateway:
        yield gateway


@pytest.fixture
async def client(edge: Edge) -> AsyncGenerator[openai.AsyncOpenAI]:
    """The asynchronous client."""
    async with openai.AsyncOpenAI(base_url=edge.url, api_key=TOKEN, max_retries=0) as official:
        yield official


async def in_thread(edge: Edge, work: Callable[[openai.OpenAI], _T], key: str = TOKEN) -> _T:
    """Do something with the synchronous client, beside the gateway's loop."""

    def run() -> _T:
        with openai.OpenAI(base_url=edge.url, api_key=key, max_retries=0) as sync:
            return work(sync)

    return await asyncio.to_thread(run)


@pytest.mark.clause("CHAT-5")
async def test_create(client: openai.AsyncOpenAI) -> None:
    """A whole answer is parsed with nothing missing."""
    answer = await client.chat.completions.create(model="script:usage", messages=HELLO)
    assert answer.choices[0].message.content == "Hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 5
    assert answer.model == "script:usage"
    assert answer.model_extra == {}


@pytest.mark.clause("CHAT-5")
async def test_create_a_stream(client: openai.AsyncOpenAI) -> None:
    """Pieces, then the finish, then usage because it was asked for."""
    chunks = await client.chat.completions.create(
        model="script:hello",
        messages=HELLO,
        stream=True,
        stream_options={"include_usage": True},
    )
    got = [chunk async for chunk in chunks]
    *_, last, usage = got
    assert "".join(c.choices[0].delta.content or "" for c in got if c.choices) == "Hello"
    assert got[0].choices[0].delta.role == "assistant"
    assert last.choices[0].finish_reason == "stop"
    assert usage.usage is not None
    assert usage.usage.total_tokens == 5


@pytest.mark.clause("CHAT-5")
async def test_the_streaming_helper(client: openai.AsyncOpenAI, upstream: Upstream) -> None:
    """The client's own accumulation of a stream finds a whole tool call in it."""
    upstream.default = stream(
        [
            role(),
            tool_call(call_id="c1", name="look"),
            tool_call('{"at": '),
            tool_call('"끝"}'),
            finish("tool_calls"),
            DONE,
        ]
    )
    async with client.chat.completions.stream(model="m", messages=HELLO) as events:
        async for _ in events:
            pass
        answer = await events.get_final_completion()
    calls = answer.choices[0].message.tool_calls
    assert calls
    assert (calls[0].id, calls[0].type) == ("c1", "function")
    assert (calls[0].function.name, calls[0].function.arguments) == ("look", '{"at": "끝"}')


@pytest.mark.clause("CHAT-5")
async def test_the_synchronous_client(edge: Edge) -> None:
    """Whole and streamed."""

    def work(sync: openai.OpenAI) -> tuple[str | None, str]:
        whole = sync.chat.completions.create(model="script:hello", messages=HELLO)
        with sync.chat.completions.create(
            model="script:hello", messages=HELLO, stream=True
        ) as chunks:
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        return whole.choices[0].message.content, text

    assert await in_thread(edge, work) == ("Hello", "Hello")


@pytest.mark.clause("ROUTE-4")
async def test_models(client: openai.AsyncOpenAI, edge: Edge) -> None:
    """They can be listed and retrieved, with a slash in the name too."""
    listed = [model async for model in client.models.list()]
    assert [model.id for model in listed] == ["team/model"]
    assert await client.models.retrieve("team/model") == listed[0]
    assert await in_thread(edge, lambda sync: [m.id for m in sync.models.list()]) == ["team/model"]
    with pytest.raises(openai.NotFoundError) as caught:
        await client.models.retrieve("nope")
    assert caught.value.code == "model_not_found"


@pytest.mark.clause("ERR-1")
@BOTH
@pytest.mark.parametrize(("script", "error", "code"), RAISES)
async def test_failures_raise_the_clients_own_errors(
    client: openai.AsyncOpenAI,
    script: str,
    error: type[openai.APIStatusError],
    code: str,
    streamed: bool,
) -> None:
    """The class fits the status, and code, type and request id are there to be read."""
    with pytest.raises(error) as caught:
        await client.chat.completions.create(
            model=f"script:{script}", messages=HELLO, stream=streamed
        )
    assert caught.value.code == code
    assert caught.value.type
    assert caught.value.request_id == caught.value.response.headers["x-request-id"]


@pytest.mark.clause("AUTH-1")
async def test_a_wrong_key(edge: Edge, client: openai.AsyncOpenAI) -> None:
    """It is an authentication error, for the asynchronous and the synchronous client."""
    with pytest.raises(openai.AuthenticationError) as caught:
        await client.with_options(api_key="wrong").models.list()
    assert caught.value.code == "unauthorized"
    with pytest.raises(openai.AuthenticationError):
        await in_thread(edge, lambda sync: sync.models.list(), key="wrong")


@pytest.mark.clause("ERR-2")
@pytest.mark.parametrize(
    ("fields", "param"),
    [({"temperature": 9}, "temperature"), ({"extra_body": {"top_k": 1}}, "top_k")],
    ids=["range", "unknown"],
)
async def test_a_bad_request(
    client: openai.AsyncOpenAI, fields: dict[str, Any], param: str
) -> None:
    """The field at fault is in the error."""
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="m", messages=HELLO, **fields)
    assert caught.value.param == param


@pytest.mark.clause("ROUTE-5")
async def test_completions(client: openai.AsyncOpenAI) -> None:
    """The legacy call is told where to go."""
    with pytest.raises(openai.NotFoundError, match="/v1/chat/completions"):
        await client.completions.create(model="m", prompt="x")


@pytest.mark.clause("ERR-1")
@pytest.mark.parametrize("script", ["reset_after_2", "no_finish", "bad_json", "end_after_2"])
async def test_a_stream_that_breaks_raises(client: openai.AsyncOpenAI, script: str) -> None:
    """The client would take a stream that just ends for a whole answer; the event stops it."""
    chunks = await client.chat.completions.create(
        model=f"script:{script}", messages=HELLO, stream=True
    )
    pieces: list[str] = []

    async def read() -> None:
        async for chunk in chunks:
            pieces.append(chunk.choices[0].delta.content or "")

    with pytest.raises(openai.APIError) as caught:
        await read()
    assert "".join(pieces)
    assert caught.value.code in {"upstream_disconnected", "upstream_protocol_error"}
    assert caught.value.type == "upstream_error"


async def test_a_synchronous_stream_that_breaks_raises(edge: Edge) -> None:
    """So does the synchronous one."""

    def work(sync: openai.OpenAI) -> str:
        text = ""
        with sync.chat.completions.create(
            model="script:reset_after_2", messages=HELLO, stream=True
        ) as chunks:
            for chunk in chunks:
                text += chunk.choices[0].delta.content or ""
        return text

    with pytest.raises(openai.APIError, match="'fake'"):
        await in_thread(edge, work)


async def test_the_client_repeats_by_itself_what_may_be_repeated(
    client: openai.AsyncOpenAI, upstream: Upstream
) -> None:
    """A 429 with a wait is repeated after it, and succeeds."""
    upstream.script = [reply(429, {"error": {"message": "slow"}}, {"retry-after": "1"})]
    patient = client.with_options(max_retries=1)
    answer = await patient.chat.completions.create(model="m", messages=HELLO)
    assert answer.choices[0].message.content == "Hello"
    first, second = upstream.requests
    assert second.arrived_s - first.arrived_s >= 0.9


@pytest.mark.clause("CHAT-7")
async def test_closing_a_stream_ends_it_upstream(
    client: openai.AsyncOpenAI, upstream: Upstream
) -> None:
    """`close` in the middle is a caller who leaves."""
    chunks = await client.chat.completions.create(
        model="script:hang_after_2", messages=HELLO, stream=True
    )
    async for _ in chunks:
        break
    await chunks.close()
    await upstream.until(lambda u: u.disconnected == 1, 1.0)
