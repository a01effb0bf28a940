"""Whole answers: tool calls, runs that are repeated, thinking, and what is buffered."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from deployments.providers import vllm_mlx
from serve_app.ingress.reload import take_over
from tests.fakes.answers import stream
from tests.fakes.sse import finish, reasoning, role, tool_call
from tests.fakes.upstream import Upstream, reply, text
from tests.serve_app.ingress.edge import PROVIDER, Edge, settings_text

Json = dict[str, Any]

TOOL: Json = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "ids": {"type": "array"}},
            "required": ["place"],
        },
    },
}
FORCED: Json = {"type": "function", "function": {"name": "look"}}
OPEN, CLOSE = "<tool_call>\n<function=look>\n", "</function>\n</tool_call>"
GOOD = f"{OPEN}<parameter=place>\nSeoul\n</parameter>\n{CLOSE}"
BROKEN = f"{OPEN}<parameter=place>\nSeoul\n"
NO_PARSER = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
NO_FORCE = 'tool_choice=function "look" requires --tool-call-parser to be set'


def refused(message: str) -> Any:
    """vLLM's own 400."""
    return reply(400, {"error": {"message": message, "type": "BadRequestError", "code": 400}})


def native(arguments: str = '{"place": "Seoul"}', name: str = "look") -> Any:
    """A stream with one native call."""
    call = tool_call(arguments, call_id="call_1", name=name)
    return stream([role(), call, finish("tool_calls"), b"data: [DONE]\n\n"])


async def ask(edge: Edge, **fields: Any) -> httpx.Response:
    """A request with one tool."""
    asked = {"model": "m", "messages": [{"role": "user", "content": "Look."}], "tools": [TOOL]}
    return await edge.client.post("/v1/chat/completions", json={**asked, **fields})


def message_of(response: httpx.Response) -> Json:
    """The message of a good whole answer."""
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]


def deltas_of(response: httpx.Response) -> list[Json]:
    """Everything but `[DONE]` of a stream."""
    lines = [line[6:] for line in response.text.split("\n") if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


@pytest.mark.clause("TEXT-2", "TEXT-4")
async def test_a_broken_call_is_run_again(edge: Edge, upstream: Upstream) -> None:
    """A whole answer is repeated until its call is good; each run is a fresh one."""
    upstream.script = [text(BROKEN), text(GOOD)]
    message = message_of(await ask(edge))
    call = message["tool_calls"][0]["function"]
    assert (call["name"], json.loads(call["arguments"])) == ("look", {"place": "Seoul"})
    assert message["content"] in {None, ""}
    assert len(upstream.requests) == 2
    assert upstream.requests[0].json == upstream.requests[1].json


@pytest.mark.clause("TEXT-4", "ERR-4")
async def test_the_runs_are_bounded(edge: Edge, upstream: Upstream) -> None:
    """After three runs it is an error that no client repeats, and that shows no raw block."""
    upstream.default = text(BROKEN)
    response = await ask(edge)
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (502, "tool_validation_error")
    assert error["code"] == "tool_validation_error"
    assert response.headers["x-should-retry"] == "false"
    assert len(upstream.requests) == 3
    assert len(error["message"]) < 500


@pytest.mark.clause("TEXT-4")
async def test_a_route_has_its_own_bound(edge: Edge, upstream: Upstream) -> None:
    """`tool_validation_attempts` of a route goes before that of all."""
    route = {"model": "once", "adapter": "fake", "tool_validation_attempts": 1}
    openai = {"adapter": "fake", "tool_validation_attempts": 2, "model_routes": [route]}
    assert take_over(edge.gateway, settings_text(openai, None, upstream.url), "edge.yaml")
    upstream.default = text(BROKEN)
    for model, runs in (("once", 1), ("m", 2)):
        before = len(upstream.requests)
        assert (await ask(edge, model=model)).status_code == 502
        assert len(upstream.requests) - before == runs


@pytest.mark.clause("TEXT-5")
async def test_a_live_stream_ends_with_the_error(edge: Edge, upstream: Upstream) -> None:
    """What stood before the block has been shown, the block has not, and nothing follows."""
    upstream.default = text("Let me look. ", BROKEN)
    response = await ask(edge, stream=True)
    *shown, last = deltas_of(response)
    assert last["error"]["code"] == "tool_validation_error"
    content = "".join(c["choices"][0]["delta"].get("content") or "" for c in shown)
    assert content.strip() == "Let me look."
    assert "[DONE]" not in response.text
    assert "function=" not in response.text
    assert len(upstream.requests) == 1


@pytest.mark.clause("STRICT-1", "STRICT-2")
async def test_strict_streams_are_buffered(edge: Edge, upstream: Upstream) -> None:
    """A strict stream is repeated as a whole answer is, and the upstream is told not to think."""
    openai = {"adapter": "fake", "strict_output": True}
    assert take_over(edge.gateway, settings_text(openai, None, upstream.url), "edge.yaml")
    upstream.script = [text("Let me look. ", BROKEN), text(GOOD)]
    response = await ask(edge, stream=True)
    deltas = deltas_of(response)
    assert deltas[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert response.text.endswith("data: [DONE]\n\n")
    assert "Let me look" not in response.text
    assert upstream.requests[0].json["think"] is False
    upstream.default = text(BROKEN)
    assert (await ask(edge, stream=True)).status_code == 502


@pytest.mark.clause("TEXT-6")
async def test_without_tools_text_stays_as_it_is(edge: Edge, upstream: Upstream) -> None:
    """With no tools, and with an empty list, a block is text to the last character."""
    upstream.default = text(GOOD)
    offered: tuple[list[Json] | None, ...] = (None, [])
    for tools in offered:
        assert message_of(await ask(edge, tools=tools))["content"] == GOOD


@pytest.mark.clause("TOOL-4", "TOOL-5")
async def test_native_calls_are_kept(edge: Edge, upstream: Upstream) -> None:
    """A native call comes through with its id; a doubly encoded array is restored."""
    upstream.default = native('{"place": "Seoul", "ids": "[1, 2]"}')
    call = message_of(await ask(edge))["tool_calls"][0]
    assert call["id"] == "call_1"
    assert json.loads(call["function"]["arguments"]) == {"place": "Seoul", "ids": [1, 2]}


@pytest.mark.parametrize("choice", ["required", FORCED], ids=["required", "forced"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_promised_call_that_does_not_come(
    edge: Edge, upstream: Upstream, choice: str | Json, stream: bool
) -> None:
    """A provider that ignores `tool_choice` is no reason for a quiet 200."""
    upstream.default = text("It is sunny.")
    response = await ask(edge, tool_choice=choice, stream=stream)
    assert "tool_validation_error" in response.text
    assert "[DONE]" not in response.text
    upstream.default = native()
    assert "tool_validation_error" not in (await ask(edge, tool_choice=choice)).text
    assert upstream.requests[-1].json["tool_choice"] == choice


async def test_a_call_in_spite_of_none(edge: Edge, upstream: Upstream) -> None:
    """`none` that calls is repeated, and then refused."""
    upstream.default = native()
    assert (await ask(edge, tool_choice="none")).status_code == 502
    assert len(upstream.requests) == 3


@pytest.mark.clause("TOOL-2")
async def test_the_only_tool_is_forced(edge: Edge, upstream: Upstream) -> None:
    """Where `auto` needs a parser that the server does not have, its only tool is forced."""
    upstream.script = [refused(NO_PARSER), native()]
    response = await ask(edge)
    assert message_of(response)["tool_calls"]
    assert "x-iop-openai-text-tool-fallback" not in response.headers
    first, second = (request.json for request in upstream.requests)
    assert "tool_choice" not in first
    assert second == {**first, "tool_choice": FORCED}


@pytest.mark.clause("TOOL-1", "TOOL-3")
@pytest.mark.parametrize("choice", [None, FORCED, "required"], ids=["auto", "forced", "required"])
async def test_tools_are_taught_as_text(
    edge: Edge, upstream: Upstream, choice: str | Json | None
) -> None:
    """The last rung: one system message teaches the tools and what was called of them."""
    refusals = [refused(NO_FORCE)] if choice == FORCED else [refused(NO_PARSER), refused(NO_FORCE)]
    upstream.script = [*refusals, text(GOOD)]
    called = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "Answer in Dutch."},
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c1", "content": "fog"},
    ]
    response = await ask(edge, messages=messages, tool_choice=choice)
    assert message_of(response)["tool_calls"]
    assert response.headers["x-iop-openai-text-tool-fallback"] == "true"
    sent = upstream.requests[-1].json
    assert "tools" not in sent
    assert "tool_choice" not in sent
    system, _, assistant, tool = sent["messages"]
    assert system["content"].startswith("Answer in Dutch.")
    assert '"name":"look"' in system["content"]
    assert ("look now" in system["content"]) is (choice == FORCED)
    assert ("at least one" in system["content"]) is (choice == "required")
    assert "tool_calls" not in assistant
    assert "<function=look>" in assistant["content"]
    assert (tool["role"], "fog" in tool["content"]) == ("user", True)


@pytest.mark.clause("TOOL-3")
async def test_several_tools_cannot_be_forced(edge: Edge, upstream: Upstream) -> None:
    """With more than one tool the text comes right after the first refusal."""
    other = {"type": "function", "function": {"name": "listen"}}
    upstream.script = [refused(NO_PARSER), text(GOOD)]
    assert message_of(await ask(edge, tools=[TOOL, other]))["tool_calls"]
    assert len(upstream.requests) == 2


async def test_another_refusal_is_the_callers(edge: Edge, upstream: Upstream) -> None:
    """A 400 about something else climbs no ladder."""
    upstream.default = refused("temperature is too high")
    assert (await ask(edge)).status_code == 400
    assert len(upstream.requests) == 1


@pytest.mark.clause("REASON-1", "REASON-2", "REASON-3", "REASON-4", "REASON-5", "THINK-5")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_reasoning_alone_is_no_empty_success(
    edge: Edge, upstream: Upstream, stream: bool
) -> None:
    """The reasoning stands in for the text, or a notice says that it was hidden."""
    thought = [role(), reasoning("I think", field="reasoning"), finish("length")]
    upstream.default = _stream([*thought, b"data: [DONE]\n\n"])
    for shown in (True, False):
        response = await ask(edge, tools=None, include_reasoning=shown, stream=stream)
        parts = deltas_of(response) if stream else [response.json()]
        choices: list[Json] = [part["choices"][0] for part in parts]
        said: list[Json] = [one.get("delta") or one.get("message") or {} for one in choices]
        content = "".join(str(one.get("content") or "") for one in said)
        assert ("I think" in response.text) is shown
        assert "[IOP] " in content
        assert "length" in content


async def test_a_bad_schema_is_the_callers(edge: Edge, upstream: Upstream) -> None:
    """A tool whose schema is none is refused before anything runs."""
    bad = {"type": "function", "function": {"name": "x", "parameters": {"type": "nonsense"}}}
    response = await ask(edge, tools=[bad])
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "tools[0].function.parameters"
    assert upstream.requests == []


@pytest.mark.clause("SENT-1", "SENT-2")
async def test_sentinels_of_the_configuration(edge: Edge, upstream: Upstream) -> None:
    """Sentinels of one's own leave the answer as the known ones do."""
    openai = {"adapter": "fake", "sentinels": ["[STOPHERE]"]}
    assert take_over(edge.gateway, settings_text(openai, None, upstream.url), "edge.yaml")
    upstream.default = text("Hi", "<|im_", "end|>", "[STOP", "HERE]", "!")
    assert message_of(await ask(edge, tools=None))["content"] == "Hi!"


async def test_the_upstreams_words_about_a_key_stay_here(edge: Edge, upstream: Upstream) -> None:
    """A server that repeats the gateway's key in its error does not tell it to callers."""
    key = "key-of-the-upstream"
    for status in (401, 400, 500):
        upstream.default = reply(status, {"error": {"message": f"bad key {key}"}})
        response = await ask(edge)
        assert response.status_code >= 400
        assert key not in response.text


@pytest.mark.clause("ERR-1")
async def test_too_many_at_once_are_told_so(edge: Edge, upstream: Upstream) -> None:
    """Beyond the limit it is 503 with `retry-after` at once; health checks go on."""
    openai = {"adapter": "fake", "limits": {"requests": 1}}
    assert take_over(edge.gateway, settings_text(openai, None, upstream.url), "edge.yaml")
    upstream.named = {"slow": text("a", pause_s=0.3)}
    first = asyncio.ensure_future(ask(edge, model="script:slow"))  # noqa: TID251
    await upstream.until(lambda one: one.active == 1)
    second = await ask(edge)
    assert (second.status_code, second.json()["error"]["code"]) == (503, "overloaded")
    assert "retry-after" in second.headers
    assert (await edge.client.get("/healthz")).status_code == 200
    assert (await first).status_code == 200


@pytest.mark.clause("ERR-1")
async def test_a_body_that_stops_coming(edge: Edge, upstream: Upstream) -> None:
    """Half a body holds a place only for a while."""
    openai = {"adapter": "fake", "limits": {"body_idle_s": 0.2}}
    assert take_over(edge.gateway, settings_text(openai, None, upstream.url), "edge.yaml")
    half = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{"
    answer = await edge.raw(half)
    assert (answer.status, answer.json["error"]["code"]) == (408, "request_timeout")


@pytest.mark.clause("ERR-1", "ERR-3", "AUTH-1")
async def test_a_socket_is_refused_in_http(edge: Edge, upstream: Upstream) -> None:
    """A WebSocket is answered as any unknown path: 404, and 401 without the token."""
    lines = [
        b"connection: Upgrade",
        b"upgrade: websocket",
        b"sec-websocket-version: 13",
        b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    ]
    answer = await edge.get("/v1/responses", *lines)
    assert (answer.status, answer.json["error"]["code"]) == (404, "not_found")
    assert answer.headers["x-request-id"]
    openai = {"adapter": "fake", "bearer_token": "secret"}
    assert take_over(edge.gateway, settings_text(openai, None, upstream.url), "edge.yaml")
    assert (await edge.get("/v1/responses", *lines)).status == 401


def _stream(pieces: list[Any]) -> Any:
    return stream(pieces)


@pytest.mark.clause("THINK-7", "THINK-10")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_thinking_that_cannot_be_switched_off_is_refused(
    edge: Edge, upstream: Upstream, stream: bool
) -> None:
    """400 with its own code, and the upstream hears nothing of it."""
    edge.gateway.facts[PROVIDER] = vllm_mlx.PROVIDER
    response = await ask(edge, think=False, stream=stream)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "unsupported_think_control")
    assert error["param"] == "think"
    assert upstream.requests == []
    assert (await ask(edge, think=True)).status_code == 200
    assert upstream.requests[0].json["chat_template_kwargs"] == {"enable_thinking": True}


@pytest.mark.clause("TOOL-2")
async def test_either_flag_begins_the_ladder(edge: Edge, upstream: Upstream) -> None:
    """A refusal that names only one of the two flags means the same."""
    for flag in ("--enable-auto-tool-choice", "--tool-call-parser"):
        upstream.script = [refused(f"requires {flag} to be set"), native()]
        assert message_of(await ask(edge))["tool_calls"]


@pytest.mark.parametrize(
    "value",
    ["the <parameter=place> tag", "a <function=look> and its </function>"],
    ids=["tag of a later parameter", "closed function"],
)
async def test_a_value_may_speak_of_tags(edge: Edge, upstream: Upstream, value: str) -> None:
    """What only mentions a tag is a value like any other."""
    ids = f"<parameter=note>\n{value}\n</parameter>\n"
    upstream.default = text(GOOD.replace("<parameter=place>", f"{ids}<parameter=place>", 1))
    call = message_of(await ask(edge))["tool_calls"][0]["function"]
    assert json.loads(call["arguments"]) == {"note": value, "place": "Seoul"}


async def test_a_value_is_never_cut_silently(edge: Edge, upstream: Upstream) -> None:
    """A call inside a value ends at tags that look like the value's own: that is an error."""
    inner = "Example:\n" + GOOD.replace("Seoul", "x") + "\nend"
    upstream.default = text(GOOD.replace("Seoul", inner, 1))
    assert (await ask(edge)).status_code == 502
