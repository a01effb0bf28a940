"""Answers as callers get them, whole and as a stream (clause CHAT-5)."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import httpx
import pytest

from tests.fakes.answers import golden, stream
from tests.fakes.sse import DONE, chunk, counts, finish, frames, reasoning, role, tool_call
from tests.fakes.upstream import Chunk, End, Hang, Head, Upstream, reply
from tests.serve_app.ingress.edge import Edge, Json, body

#: Every odd but complete answer of the fake that says "Hello".
HELLO = [
    "hello",
    "usage",
    "no_done",
    "comments",
    "empty_data",
    "no_space",
    "crlf",
    "cr",
    "bom",
    "multi_line_data",
    "no_last_newline",
    "early_usage",
]


def events(response: httpx.Response) -> list[Json]:
    """The chunks of a stream, which has to be well formed and end with `[DONE]`."""
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    *frames, last = response.content.split(b"\n\n")[:-1]
    assert response.content.endswith(b"\n\n")
    assert last == b"data: [DONE]"
    assert all(frame.startswith(b"data: {") and b"\n" not in frame for frame in frames)
    return [json.loads(frame.removeprefix(b"data: ")) for frame in frames]


def deltas(response: httpx.Response) -> list[tuple[Json, str | None]]:
    """Delta and finish reason of each chunk that has a choice."""
    choices = [event["choices"][0] for event in events(response) if event["choices"]]
    return [(choice["delta"], choice["finish_reason"]) for choice in choices]


@pytest.mark.clause("CHAT-5")
async def test_a_stream_byte_for_byte(edge: Edge) -> None:
    """Role, pieces, finish, `[DONE]`: each a chunk with the same id, time and model."""
    before = int(time.time())
    response = await edge.chat(stream=True)
    found = re.match(rb'data: \{"id":"(chatcmpl-[0-9a-f]{32})","obj', response.content)
    assert found is not None
    created = events(response)[0]["created"]
    assert before <= created <= time.time()
    head = (
        f'data: {{"id":"{found[1].decode()}","object":"chat.completion.chunk","created":{created},'
        '"model":"script:hello","choices":[{"index":0,"delta":'
    )
    ends = [
        '{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}',
        '{"content":"He"},"logprobs":null,"finish_reason":null}]}',
        '{"content":"llo"},"logprobs":null,"finish_reason":null}]}',
        '{},"logprobs":null,"finish_reason":"stop"}]}',
    ]
    assert response.text == "".join(f"{head}{end}\n\n" for end in ends) + DONE.decode()
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["x-iop-provider"] == "fake"
    assert "content-length" not in response.headers


@pytest.mark.clause("CHAT-5")
async def test_a_whole_answer(edge: Edge) -> None:
    """One `chat.completion` with its usage, though the upstream was asked for a stream."""
    before = int(time.time())
    response = await edge.chat("usage")
    answer = response.json()
    assert response.headers["content-type"] == "application/json"
    assert int(response.headers["content-length"]) == len(response.content)
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{32}", answer.pop("id"))
    assert before <= answer.pop("created") <= time.time()
    assert answer == {
        "object": "chat.completion",
        "model": "script:usage",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": counts(3, 2),
    }


@pytest.mark.clause("CHAT-5", "CHAT-2")
@pytest.mark.parametrize("script", ["hello", "usage", "early_usage"])
async def test_a_usage_chunk_comes_only_when_asked_for(edge: Edge, script: str) -> None:
    """It is the last before `[DONE]`, has no choice, and the others then have `usage: null`."""
    asked = events(await edge.chat(script, stream=True, stream_options={"include_usage": True}))
    *others, last = asked
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 5)
    assert all(event["usage"] is None for event in others)
    assert others[-1]["choices"][0]["finish_reason"] == "stop"
    for options in (None, {}, {"include_usage": False}):
        plain = events(await edge.chat(script, stream=True, stream_options=options))
        assert not [event for event in plain if "usage" in event or not event["choices"]]


@pytest.mark.clause("CHAT-5")
@pytest.mark.parametrize("script", HELLO)
async def test_odd_upstream_streams_make_ordinary_answers(edge: Edge, script: str) -> None:
    """Whatever the upstream's habits, the caller gets the same stream and the same object."""
    streamed = deltas(await edge.chat(script, stream=True))
    assert streamed[0] == ({"role": "assistant", "content": ""}, None)
    assert streamed[-1] == ({}, "stop")
    assert "".join(delta["content"] for delta, _ in streamed[1:-1]) == "Hello"
    assert all(delta["content"] for delta, _ in streamed[1:-1])
    whole = (await edge.chat(script)).json()["choices"][0]
    assert (whole["message"]["content"], whole["finish_reason"]) == ("Hello", "stop")


@pytest.mark.clause("CHAT-5")
async def test_text_of_many_bytes_a_character_survives_every_cut(edge: Edge) -> None:
    """Korean and emoji, cut inside each of their characters on the wire."""
    streamed = deltas(await edge.chat("split_utf8", stream=True))
    assert "".join(delta.get("content", "") for delta, _ in streamed) == "안녕 🙂👍🏽 끝"
    whole = await edge.chat("split_utf8")
    assert whole.json()["choices"][0]["message"]["content"] == "안녕 🙂👍🏽 끝"
    assert "안녕 🙂👍🏽 끝".encode() in whole.content


@pytest.mark.clause("CHAT-5")
@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "stop"),
        ("eos", "stop"),
    ],
)
async def test_finish_reasons_are_of_the_known_four(
    edge: Edge, upstream: Upstream, said: str, seen: str
) -> None:
    """A provider's own word becomes one of OpenAI's."""
    upstream.default = stream([role(), chunk("x"), finish(said), DONE])
    assert deltas(await edge.chat("", model="m", stream=True))[-1] == ({}, seen)
    assert (await edge.chat("", model="m")).json()["choices"][0]["finish_reason"] == seen


@pytest.mark.clause("CHAT-5")
async def test_tool_calls_and_reasoning(edge: Edge, upstream: Upstream) -> None:
    """Reasoning has its own field; a call's id and name come once and arguments in pieces."""
    upstream.default = stream(
        [
            role(),
            reasoning("Hm", "reasoning"),
            tool_call(call_id="c1", name="look"),
            tool_call('{"at":'),
            tool_call(' "끝"}'),
            finish("tool_calls"),
            DONE,
        ]
    )
    function = {"name": "look", "arguments": ""}
    assert deltas(await edge.chat("", model="m", stream=True)) == [
        ({"role": "assistant", "content": ""}, None),
        ({"reasoning_content": "Hm"}, None),
        (
            {"tool_calls": [{"index": 0, "function": function, "id": "c1", "type": "function"}]},
            None,
        ),
        ({"tool_calls": [{"index": 0, "function": {"arguments": '{"at":'}}]}, None),
        ({"tool_calls": [{"index": 0, "function": {"arguments": ' "끝"}'}}]}, None),
        ({}, "tool_calls"),
    ]
    call = {"name": "look", "arguments": '{"at": "끝"}'}
    assert (await edge.chat("", model="m")).json()["choices"][0] == {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "reasoning_content": "Hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": call}],
        },
        "logprobs": None,
        "finish_reason": "tool_calls",
    }


@pytest.mark.clause("CHAT-5")
async def test_an_empty_answer_is_an_empty_text(edge: Edge, upstream: Upstream) -> None:
    """No delta for nothing in a stream, and a string, not null, in the object."""
    upstream.default = stream([role(), chunk(""), finish(), DONE])
    assert deltas(await edge.chat("", model="m", stream=True)) == [
        ({"role": "assistant", "content": ""}, None),
        ({}, "stop"),
    ]
    assert (await edge.chat("", model="m")).json()["choices"][0]["message"]["content"] == ""


@pytest.mark.clause("CHAT-5")
@pytest.mark.parametrize("asked", [False, True], ids=["whole", "stream"])
async def test_a_whole_answer_where_a_stream_was_asked_for(
    edge: Edge, upstream: Upstream, asked: bool
) -> None:
    """An upstream that cannot stream is served from all the same."""
    message = {"role": "assistant", "content": "안녕"}
    choice = {"index": 0, "message": message, "finish_reason": "length"}
    upstream.default = reply(200, {"choices": [choice], "usage": counts(3, 2)})
    response = await edge.chat("", model="m", stream=asked)
    if asked:
        assert [delta for delta, _ in deltas(response)] == [
            {"role": "assistant", "content": ""},
            {"content": "안녕"},
            {},
        ]
    else:
        answer: Any = response.json()
        assert answer["choices"][0]["message"]["content"] == "안녕"
        assert answer["usage"] == counts(3, 2)


async def test_pieces_are_passed_on_as_they_come(edge: Edge, upstream: Upstream) -> None:
    """A piece reaches the caller while the upstream has not sent the next."""
    upstream.default = (
        Head(),
        Chunk(frames([role(), chunk("first")])),
        Hang(),
        Chunk(frames([chunk("second"), finish()], done=True)),
        End(),
    )
    got = b""
    request = {**body(), "model": "m", "stream": True}
    async with edge.client.stream("POST", "/v1/chat/completions", json=request) as response:
        async for piece in response.aiter_raw():
            got += piece
            if b"first" in got and b"second" not in got:
                upstream.release()
    assert b"second" in got
    assert got.endswith(DONE)


async def test_connections_upstream_are_used_again(edge: Edge, upstream: Upstream) -> None:
    """Answers one after another come by one connection, streamed or whole."""
    for streamed in (False, True, False, True):
        assert (await edge.chat(stream=streamed)).status_code == 200
    assert len({request.peer_port for request in upstream.requests}) == 1


async def test_a_slot_is_used_again(edge: Edge) -> None:
    """Requests one after another need one slot between them."""
    for streamed in (False, True, False, True):
        assert (await edge.chat(stream=streamed)).status_code == 200
    assert edge.slots.asked == 1


@pytest.mark.parametrize("case", ["llama_server/non_ascii", "vllm/usage", "vllm_mlx/usage"])
async def test_recordings_through_real_sockets(edge: Edge, upstream: Upstream, case: str) -> None:
    """A real server's stream gives the same text streamed and whole, cut here and there."""
    texts: set[str] = set()
    for cuts in (range(0), range(7, 400, 61), range(1, 1100, 13)):
        upstream.named = {"cut": golden(case, cuts)}
        streamed = deltas(await edge.chat("cut", stream=True))
        texts.add("".join(delta.get("content", "") for delta, _ in streamed))
        whole = await edge.chat("cut")
        assert whole.status_code == 200, whole.text
        texts.add(whole.json()["choices"][0]["message"]["content"])
    assert len(texts) == 1
    assert "�" not in texts.pop()
