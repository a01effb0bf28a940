"""Frames of the chat surface, exactly; and that they say what was collected."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from serve_app.errors import Code, UpstreamTimeoutError
from serve_app.runs import (
    Completion,
    Finish,
    FinishReason,
    Json,
    ReasoningDelta,
    RunEvent,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from serve_app.streams.chat_encode import (
    ChatEncoder,
    chat_completion,
    error_frame,
    made_call_id,
    usage_object,
)
from tests.serve_app.streams.feeding import drain, events_of, folded, sse_data

ID = "chatcmpl-" + "0" * 32
STOP = Finish("stop")
COUNTS = Usage(3, 2, 5)
HEAD: Json = {"id": ID, "object": "chat.completion.chunk", "created": 7, "model": "m"}


def frames(events: Sequence[RunEvent], *, include_usage: bool = False) -> list[bytes]:
    encoder = ChatEncoder(completion_id=ID, created=7, model="m", include_usage=include_usage)
    return drain(encoder, events)


def chunks(events: Sequence[RunEvent], *, include_usage: bool = False) -> list[Json]:
    """The frames' objects; checks that each frame is one event, and `[DONE]` the last."""
    out = frames(events, include_usage=include_usage)
    assert all(one.startswith(b"data: ") and one.endswith(b"\n\n") for one in out)
    assert out[-1] == b"data: [DONE]\n\n"
    return [json.loads(one[6:]) for one in out[:-1]]


def deltas(events: Sequence[RunEvent]) -> list[Json]:
    return [chunk["choices"][0]["delta"] for chunk in chunks(events)]


def chunk(delta: Json, reason: str | None = None, **more: Any) -> Json:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return {**HEAD, "choices": [choice], **more}


ROLE: Json = {"role": "assistant", "content": ""}


@pytest.mark.clause("CHAT-5")
def test_a_text_stream_is_exactly_this() -> None:
    """Role first, then text, then the reason; the same id, time and model in each."""
    assert chunks([TextDelta("a"), TextDelta(" 한\n"), Finish("length")]) == [
        chunk(ROLE),
        chunk({"content": "a"}),
        chunk({"content": " 한\n"}),
        chunk({}, "length"),
    ]


@pytest.mark.clause("CHAT-2", "CHAT-5")
def test_usage_has_its_own_last_chunk_where_it_was_asked_for() -> None:
    """No choice in it, and `usage: null` in all before it."""
    events = [COUNTS, TextDelta("a"), STOP]
    assert chunks(events, include_usage=True) == [
        chunk(ROLE, usage=None),
        chunk({"content": "a"}, usage=None),
        chunk({}, "stop", usage=None),
        {**HEAD, "choices": [], "usage": usage_object(COUNTS)},
    ]


@pytest.mark.clause("CHAT-2")
def test_usage_is_not_shown_to_who_did_not_ask() -> None:
    """Neither a chunk nor a key, wherever the upstream's counts came."""
    for events in ([COUNTS, STOP], [STOP, COUNTS], [TextDelta("a"), COUNTS, STOP]):
        assert all("usage" not in one and one["choices"] for one in chunks(events))


def test_usage_that_never_came_has_no_chunk() -> None:
    """Nothing is made up; `usage: null` stays on the others."""
    assert chunks([TextDelta("a"), STOP], include_usage=True)[-1] == chunk({}, "stop", usage=None)


def test_the_last_counts_are_shown() -> None:
    """Servers that count in every chunk count upwards."""
    last = chunks([Usage(3, 1, 4), TextDelta("a"), STOP, COUNTS], include_usage=True)[-1]
    assert last["usage"] == usage_object(COUNTS)


@pytest.mark.clause("CHAT-5")
def test_an_empty_answer_still_has_role_and_reason() -> None:
    """The shortest stream there is."""
    assert chunks([STOP]) == [chunk(ROLE), chunk({}, "stop")]


def test_empty_pieces_are_not_sent() -> None:
    """No delta without text, and no role before there is something to say."""
    encoder = ChatEncoder(completion_id=ID, created=7, model="m")
    assert [encoder.feed(event) for event in (TextDelta(""), ReasoningDelta(""))] == [[], []]
    assert deltas([TextDelta(""), TextDelta("a"), ReasoningDelta(""), STOP]) == [
        ROLE,
        {"content": "a"},
        {},
    ]


def test_reasoning_has_its_own_field() -> None:
    """`reasoning_content`, whatever the upstream's field was."""
    assert deltas([ReasoningDelta("r"), TextDelta("a"), STOP]) == [
        ROLE,
        {"reasoning_content": "r"},
        {"content": "a"},
        {},
    ]


def first(index: int, call_id: str, name: str, arguments: str = "") -> Json:
    function = {"name": name, "arguments": arguments}
    call = {"index": index, "id": call_id, "type": "function", "function": function}
    return {"tool_calls": [call]}


def later(index: int, arguments: str) -> Json:
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}


MADE = made_call_id(ID, 0)
TOOLS: dict[str, tuple[list[ToolCallDelta], list[Json]]] = {
    "in-pieces": (
        [
            ToolCallDelta(0, "c", "f"),
            ToolCallDelta(0, arguments="{"),
            ToolCallDelta(0, arguments="}"),
        ],
        [first(0, "c", "f"), later(0, "{"), later(0, "}")],
    ),
    "in-one": ([ToolCallDelta(0, "c", "f", "{}")], [first(0, "c", "f", "{}")]),
    "marks-repeated": (
        [ToolCallDelta(0, "c", "f", "1"), ToolCallDelta(0, "c", "f", "2")],
        [first(0, "c", "f", "1"), later(0, "2")],
    ),
    "nothing-new": (
        [ToolCallDelta(0, "c", "f", "1"), ToolCallDelta(0, "c", "f", "")],
        [first(0, "c", "f", "1")],
    ),
    "no-id": ([ToolCallDelta(0, None, "f", "{}")], [first(0, MADE, "f", "{}")]),
    "name-late": (
        [ToolCallDelta(0, "c"), ToolCallDelta(0, arguments="1"), ToolCallDelta(0, None, "f", "2")],
        [first(0, "c", "f", "12")],
    ),
    "name-never": ([ToolCallDelta(0, arguments="{}")], [first(0, MADE, "", "{}")]),
    "id-too-late": (
        [ToolCallDelta(0, None, "f", "1"), ToolCallDelta(0, "c", None, "2")],
        [first(0, MADE, "f", "1"), later(0, "2")],
    ),
    "two": (
        [
            ToolCallDelta(0, "c", "f"),
            ToolCallDelta(1, "d", "g", "1"),
            ToolCallDelta(0, arguments="2"),
        ],
        [first(0, "c", "f"), first(1, "d", "g", "1"), later(0, "2")],
    ),
}


@pytest.mark.parametrize(("pieces", "expected"), TOOLS.values(), ids=TOOLS)
def test_id_type_and_name_come_once(pieces: list[ToolCallDelta], expected: list[Json]) -> None:
    """They stand in a call's first delta; the later ones have its index and arguments."""
    assert deltas([*pieces, Finish("tool_calls")]) == [ROLE, *expected, {}]


@pytest.mark.parametrize(("pieces", "expected"), TOOLS.values(), ids=TOOLS)
def test_a_collected_call_is_the_streamed_one(
    pieces: list[ToolCallDelta], expected: list[Json]
) -> None:
    """Whoever does not stream gets the same id, name and arguments."""
    turn = folded([*pieces, Finish("tool_calls")])
    message = whole(turn)["choices"][0]["message"]
    streamed = folded(events_of(sse_data(frames([*pieces, Finish("tool_calls")]))))
    assert message["tool_calls"] == whole(streamed)["choices"][0]["message"]["tool_calls"]


def test_made_up_ids_are_short_and_unique() -> None:
    """At most 64 characters, and no two the same in one answer or in two."""
    ids = [made_call_id(f"chatcmpl-{turn:032x}", call) for turn in range(50) for call in range(200)]
    assert len(set(ids)) == len(ids)
    assert all(len(one) <= 64 and one.startswith("call_") for one in ids)


def test_line_ends_of_any_kind_stay_inside_a_frame() -> None:
    """Text with every line end there is makes one event."""
    text = "a\nb\r\nc\rd\u2028e\u2029f\u0085g\x0bh\x0ci"
    out = frames([TextDelta(text), STOP])
    assert all(one.count(b"\n") == 2 and b"\r" not in one for one in out)
    assert folded(events_of(sse_data(out))).content == text


def test_a_model_name_is_escaped() -> None:
    """The caller's own name of the model may hold anything."""
    name = 'a"b\\c\n한'
    encoder = ChatEncoder(completion_id=ID, created=7, model=name)
    objects = [json.loads(one) for one in sse_data(drain(encoder, [TextDelta("x")])[:-1])]
    assert {one["model"] for one in objects} == {name}


def test_the_official_client_can_read_every_chunk() -> None:
    """Each object is what the official Python client takes for a chunk."""
    events = [
        ReasoningDelta("r"),
        TextDelta("a"),
        ToolCallDelta(0, "c", "f", "{}"),
        COUNTS,
        Finish("tool_calls"),
    ]
    for one in chunks(events, include_usage=True):
        ChatCompletionChunk.model_validate(one, strict=True)


def test_an_error_is_one_frame() -> None:
    """The envelope as the data of one event; no `[DONE]` belongs to it."""
    out = error_frame(UpstreamTimeoutError("late\nvery"))
    assert out.count(b"\n") == 2
    assert [json.loads(one) for one in sse_data([out])] == [
        {
            "error": {
                "message": "late\nvery",
                "type": "upstream_error",
                "param": None,
                "code": Code.UPSTREAM_TIMEOUT,
            }
        }
    ]


# Whole answers


def whole(turn: Completion) -> Json:
    return chat_completion(turn, completion_id=ID, created=7, model="m")


@pytest.mark.clause("CHAT-5")
def test_a_whole_answer_is_exactly_this() -> None:
    """A `chat.completion`, with reasoning and counts where there are any."""
    turn = folded([ReasoningDelta("r"), TextDelta("a"), Usage(3, 2, 5, 1, 0), STOP])
    assert whole(turn) == {
        "id": ID,
        "object": "chat.completion",
        "created": 7,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "a",
                    "refusal": None,
                    "reasoning_content": "r",
                },
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 2,
            "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 1},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }


@pytest.mark.parametrize(
    ("events", "content", "calls"),
    [
        pytest.param([STOP], "", None, id="nothing"),
        pytest.param([ReasoningDelta("r"), STOP], "", None, id="only-reasoning"),
        pytest.param([TextDelta("a"), STOP], "a", None, id="text"),
        pytest.param([ToolCallDelta(0, "c", "f", "{}")], None, 1, id="calls"),
        pytest.param([TextDelta("a"), ToolCallDelta(0, "c", "f", "{}")], "a", 1, id="both"),
    ],
)
def test_content_is_null_only_beside_tool_calls(
    events: list[RunEvent], content: str | None, calls: int | None
) -> None:
    """An empty answer is an empty string; no empty list of calls is shown."""
    message = whole(folded(events))["choices"][0]["message"]
    assert message["content"] == content
    assert (len(message["tool_calls"]) if "tool_calls" in message else None) == calls
    ChatCompletion.model_validate(whole(folded(events)), strict=True)


# The law: a stream folded is what is collected


@st.composite
def turns(draw: st.DrawFn) -> list[RunEvent]:
    """Any turn: calls begin one after the other, and their rest comes in any order."""
    text = st.text(max_size=5)
    events: list[RunEvent] = []
    count = draw(st.integers(0, 3))
    for index in range(count):
        call_id = draw(st.sampled_from([None, f"c{index}"]))
        name = draw(st.text("abc", min_size=1, max_size=3))
        events += draw(st.lists(st.builds(TextDelta, text), max_size=2))
        if draw(st.booleans()):
            events.append(ToolCallDelta(index, call_id, None, draw(text)))
        events.append(ToolCallDelta(index, call_id, name, draw(text)))
    anything = st.one_of(st.builds(TextDelta, text), st.builds(ReasoningDelta, text))
    if count:
        more = st.builds(ToolCallDelta, st.integers(0, count - 1), arguments=text)
        anything = st.one_of(anything, more)
    events += draw(st.lists(anything, max_size=8))
    reasons: list[FinishReason] = ["length", "content_filter", "tool_calls" if count else "stop"]
    events.append(Finish(draw(st.sampled_from(reasons))))
    if draw(st.booleans()):
        counts = Usage(*draw(st.tuples(*[st.integers(1, 10**6)] * 3)))
        events.insert(draw(st.integers(0, len(events))), counts)
    return events


def with_ids(turn: Completion) -> Completion:
    """A turn in which calls have the ids that a caller is shown."""
    calls = [
        ToolCall(call.id or made_call_id(ID, at), call.name, call.arguments)
        for at, call in enumerate(turn.tool_calls)
    ]
    return Completion(turn.content, turn.reasoning, calls, turn.finish_reason, turn.usage)


@settings(deadline=None, max_examples=300)
@given(turns())
def test_a_stream_folded_is_what_is_collected(events: list[RunEvent]) -> None:
    """Decoding our own frames and folding them gives the turn that a collector makes."""
    streamed = folded(events_of(sse_data(frames(events, include_usage=True))))
    assert streamed == with_ids(folded(events))


@settings(deadline=None)
@given(turns())
def test_no_frame_is_empty_and_all_heads_are_the_same(events: list[RunEvent]) -> None:
    """Whatever the turn: role once and first, one reason and last, no delta without a meaning."""
    objects = chunks(events)
    assert all({key: one[key] for key in HEAD} == HEAD for one in objects)
    start, *middle, end = [one["choices"][0] for one in objects]
    assert start["delta"] == ROLE
    assert end["delta"] == {}
    assert all(one["finish_reason"] is None and "role" not in one["delta"] for one in middle)
    said = [value for one in middle for value in one["delta"].values()]
    assert all(said)
    assert len(said) == len(middle)


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\u0085"])
def test_no_frame_holds_what_clients_take_for_a_line_end(odd: str) -> None:
    """Clients that split lines as Unicode does would break such a frame: it is escaped."""
    encoder = ChatEncoder(completion_id="chatcmpl-1", created=1, model="m")
    text = f"a{odd}b — 한글"
    *_, written = encoder.feed(TextDelta(text))
    assert odd.encode() not in written
    delta = json.loads(written.removeprefix(b"data: "))["choices"][0]["delta"]
    assert delta == {"content": text}
