"""Chunks of real and of odd servers, and the events that they mean."""

from __future__ import annotations

import pytest

from serve_app.errors import UpstreamError
from serve_app.runs import (
    Finish,
    FinishReason,
    Json,
    ReasoningDelta,
    RunEvent,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from serve_app.streams.chat_decode import ChatDecoder
from serve_app.streams.sse import DONE
from tests.fakes.sse import chunk, counts, finish, role, usage, whole
from tests.serve_app.streams.feeding import called, data, decoded, piece

STOP = Finish("stop")

TEXTS: dict[str, tuple[list[Json | bytes], list[RunEvent]]] = {
    "plain": ([role(), chunk("a"), chunk("b"), finish(), DONE], [TextDelta("a"), TextDelta("b")]),
    "null-role-content": ([role(None), chunk("a"), finish()], [TextDelta("a")]),
    "empty-role-content": ([role(""), chunk("a"), finish()], [TextDelta("a")]),
    "no-role-chunk": ([chunk("a"), finish()], [TextDelta("a")]),
    "role-with-text": ([role("a"), finish()], [TextDelta("a")]),
    "white-space-is-text": ([chunk(" "), chunk("\n"), finish()], [TextDelta(" "), TextDelta("\n")]),
    "null-delta": (
        [chunk("a"), chunk(choices=[{"index": 0, "delta": None}]), finish()],
        [TextDelta("a")],
    ),
    "no-choice": ([chunk("a"), chunk(choices=[]), {}, finish()], [TextDelta("a")]),
    "null-choices": ([chunk("a"), {"choices": None}, finish()], [TextDelta("a")]),
    "null-error": ([chunk("a", error=None), finish()], [TextDelta("a")]),
    "other-choices": (
        [
            {"choices": [{"index": 1, "delta": {"content": "x"}, "finish_reason": "stop"}]},
            {"choices": [{"index": 1, "delta": {"content": "x"}}, chunk("a")["choices"][0]]},
            finish(),
        ],
        [TextDelta("a")],
    ),
    "no-index": ([{"choices": [{"delta": {"content": "a"}}]}, finish()], [TextDelta("a")]),
    "empty-finish-reason": (
        [chunk("a", finish_reason=""), chunk("b", finish_reason=""), finish()],
        [TextDelta("a"), TextDelta("b")],
    ),
    "refusal": ([chunk(delta={"refusal": "no"}), finish()], [TextDelta("no")]),
    "reasoning-content": (
        [chunk(delta={"reasoning_content": "r"}), chunk("a"), finish()],
        [ReasoningDelta("r"), TextDelta("a")],
    ),
    "reasoning": (
        [chunk(delta={"reasoning": "r", "content": None}), finish()],
        [ReasoningDelta("r")],
    ),
    "both-reasonings-once": (
        [chunk(delta={"reasoning": "r", "reasoning_content": "r"}), finish()],
        [ReasoningDelta("r")],
    ),
    "null-reasoning": (
        [chunk(delta={"reasoning": None, "reasoning_content": "", "content": "a"}), finish()],
        [TextDelta("a")],
    ),
    "reasoning-before-text-in-one-chunk": (
        [chunk(delta={"content": "a", "reasoning": "r"}), finish()],
        [ReasoningDelta("r"), TextDelta("a")],
    ),
    "several-tokens-with-the-finish": (
        [role(), chunk("one two three", finish_reason="stop"), DONE],
        [TextDelta("one two three")],
    ),
    "done-with-spaces": ([chunk("a"), finish(), b" [DONE] "], [TextDelta("a")]),
    "junk-after-done": ([chunk("a"), finish(), DONE, b"{", chunk("b"), DONE], [TextDelta("a")]),
    "second-finish": ([chunk("a"), finish(), finish("length"), DONE], [TextDelta("a")]),
    "empty-text-after-finish": ([chunk("a"), finish(), chunk(""), DONE], [TextDelta("a")]),
    "unicode": ([chunk("한🙂\u2028\u0085"), finish()], [TextDelta("한🙂\u2028\u0085")]),
    "extra-keys": (
        [chunk("a", timings={"x": 1}, prompt_token_ids=None, system_fingerprint="b"), finish()],
        [TextDelta("a")],
    ),
    "whole-message": ([whole("a") | {"usage": None}], [TextDelta("a")]),
    "whole-message-with-empty-delta": (
        [chunk(choices=[{"delta": {}, "message": {"content": "a"}}]), finish()],
        [TextDelta("a")],
    ),
}


@pytest.mark.parametrize(("items", "expected"), TEXTS.values(), ids=TEXTS)
def test_text_and_reasoning(items: list[Json | bytes], expected: list[RunEvent]) -> None:
    """What the model said, in order, without empty pieces, and one `stop` at the end."""
    assert decoded(*items) == [*expected, STOP]


REASONS: list[tuple[str, bool, FinishReason]] = [
    ("stop", False, "stop"),
    ("stop", True, "tool_calls"),
    ("tool_calls", True, "tool_calls"),
    ("tool_calls", False, "stop"),
    ("function_call", True, "tool_calls"),
    ("function_call", False, "stop"),
    ("length", False, "length"),
    ("length", True, "length"),
    ("max_tokens", False, "length"),
    ("content_filter", False, "content_filter"),
    ("content_filter", True, "content_filter"),
    ("eos_token", False, "stop"),
    ("eos_token", True, "tool_calls"),
]


@pytest.mark.parametrize(("word", "calls", "ours"), REASONS)
def test_the_finish_reason_agrees_with_what_came(
    word: str, calls: bool, ours: FinishReason
) -> None:
    """`stop` and `tool_calls` are told by the calls; a cut or a filter stays one."""
    items = [called(piece("{}", name="f", index=0))] if calls else [chunk("a")]
    assert [event for event in decoded(*items, finish(word)) if isinstance(event, Finish)] == [
        Finish(ours)
    ]


def test_a_call_in_the_finish_chunk_counts() -> None:
    """The reason is judged after the delta that stands beside it."""
    delta = {"tool_calls": [piece("{}", name="f", index=0)]}
    assert decoded(chunk(delta=delta, finish_reason="stop"))[-1] == Finish("tool_calls")


@pytest.mark.parametrize("word", ["abort", "aborted", "error", "cancelled", "timeout"])
def test_an_upstream_that_gave_up_is_an_error(word: str) -> None:
    """Such a word is never a clean end."""
    with pytest.raises(UpstreamError, match=word) as caught:
        decoded(chunk("a"), finish(word), DONE)
    assert caught.value.status == 502


COUNTED = Usage(3, 2, 5)
USAGES: dict[str, tuple[list[Json | bytes], list[Usage]]] = {
    "own-chunk": ([chunk("a"), finish(), usage(), DONE], [COUNTED]),
    "with-the-finish": ([chunk("a", finish_reason="stop", usage=counts())], [COUNTED]),
    "early": (
        [chunk("a", usage=counts(3, 1)), chunk("b", usage=counts()), finish()],
        [Usage(3, 1, 4), COUNTED],
    ),
    "before-any-text": ([chunk("", usage=counts()), chunk("a"), finish()], [COUNTED]),
    "missing": ([chunk("a"), finish()], []),
    "null": ([chunk("a", usage=None), finish(), chunk(choices=[], usage=None)], []),
    "without-choices": ([chunk("a"), finish(), {"usage": counts()}], [COUNTED]),
    "no-total": (
        [finish(), chunk(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 2})],
        [COUNTED],
    ),
    "null-counts": (
        [finish(), chunk(choices=[], usage={"prompt_tokens": 3, "completion_tokens": None})],
        [Usage(3, 0, 3)],
    ),
    "details": (
        [
            finish(),
            chunk(
                choices=[],
                usage=counts()
                | {
                    "prompt_tokens_details": {"cached_tokens": 1, "audio_tokens": None},
                    "completion_tokens_details": {"reasoning_tokens": 0},
                },
            ),
        ],
        [Usage(3, 2, 5, cached_tokens=1, reasoning_tokens=0)],
    ),
    "null-details": (
        [finish(), chunk(choices=[], usage=counts() | {"prompt_tokens_details": None})],
        [COUNTED],
    ),
}


@pytest.mark.parametrize(("items", "expected"), USAGES.values(), ids=USAGES)
def test_usage_wherever_it_comes(items: list[Json | bytes], expected: list[Usage]) -> None:
    """Early, late, in every chunk, in part or never."""
    assert [event for event in decoded(*items) if isinstance(event, Usage)] == expected


F0 = ToolCallDelta(0, "c0", "f", "")
CALLS: dict[str, tuple[list[Json], list[ToolCallDelta]]] = {
    "as-documented": (
        [called(piece("", index=0, id="c0", name="f")), called(piece('{"a"', index=0))],
        [F0, ToolCallDelta(0, arguments='{"a"')],
    ),
    "no-arguments-at-first": (
        [called(piece(index=0, id="c0", name="f"))],
        [F0],
    ),
    "null-marks": (
        [called({"index": 0, "id": None, "function": {"name": None, "arguments": None}})],
        [ToolCallDelta(0)],
    ),
    "null-function": (
        [called({"index": 0, "id": "c0", "function": None})],
        [ToolCallDelta(0, "c0")],
    ),
    "two-interleaved": (
        [
            called(piece("1", index=0, id="c0", name="f"), piece("2", index=1, id="c1", name="g")),
            called(piece("3", index=1), piece("4", index=0)),
        ],
        [
            ToolCallDelta(0, "c0", "f", "1"),
            ToolCallDelta(1, "c1", "g", "2"),
            ToolCallDelta(1, arguments="3"),
            ToolCallDelta(0, arguments="4"),
        ],
    ),
    "numbered-from-one": (
        [called(piece("1", index=1, name="f")), called(piece("2", index=2, name="g"))],
        [ToolCallDelta(0, None, "f", "1"), ToolCallDelta(1, None, "g", "2")],
    ),
    "no-index-with-ids": (
        [
            called(piece("1", id="c0", name="f")),
            called(piece("2")),
            called(piece("3", id="c1", name="g")),
            called(piece("4")),
        ],
        [
            ToolCallDelta(0, "c0", "f", "1"),
            ToolCallDelta(0, arguments="2"),
            ToolCallDelta(1, "c1", "g", "3"),
            ToolCallDelta(1, arguments="4"),
        ],
    ),
    "no-index-and-the-id-repeated": (
        [called(piece("1", id="c0", name="f")), called(piece("2", id="c0", name="f"))],
        [ToolCallDelta(0, "c0", "f", "1"), ToolCallDelta(0, "c0", "f", "2")],
    ),
    "no-index-and-no-id": (
        [called(piece("1", name="f"), piece("2", name="f")), called(piece("3"))],
        [
            ToolCallDelta(0, None, "f", "1"),
            ToolCallDelta(1, None, "f", "2"),
            ToolCallDelta(1, arguments="3"),
        ],
    ),
    "nothing-at-all-at-first": (
        [called(piece("1")), called(piece("2"))],
        [ToolCallDelta(0, arguments="1"), ToolCallDelta(0, arguments="2")],
    ),
    "all-with-the-index-0": (
        [
            called(piece("{}", index=0, id="c0", name="f")),
            called(piece("[]", index=0, id="c1", name="g")),
        ],
        [ToolCallDelta(0, "c0", "f", "{}"), ToolCallDelta(1, "c1", "g", "[]")],
    ),
    "id-after-the-name": (
        [called(piece("1", index=0, name="f")), called(piece("2", index=0, id="c0"))],
        [ToolCallDelta(0, None, "f", "1"), ToolCallDelta(0, "c0", None, "2")],
    ),
    "arguments-as-object": (
        [called(piece({"city": "서울", "n": [1, None]}, id="c0", name="f"))],
        [ToolCallDelta(0, "c0", "f", '{"city":"서울","n":[1,null]}')],
    ),
    "arguments-as-empty-object": (
        [called(piece({}, id="c0", name="f"))],
        [ToolCallDelta(0, "c0", "f", "{}")],
    ),
    "whole-message": (
        [
            chunk(
                choices=[
                    {"message": {"content": None, "tool_calls": [piece("{}", id="c0", name="f")]}}
                ]
            )
        ],
        [ToolCallDelta(0, "c0", "f", "{}")],
    ),
    "empty-list": (
        [chunk(delta={"tool_calls": []}), called(piece("", index=0, id="c0", name="f"))],
        [F0],
    ),
}


@pytest.mark.parametrize(("items", "expected"), CALLS.values(), ids=CALLS)
def test_tool_calls_however_they_are_marked(
    items: list[Json], expected: list[ToolCallDelta]
) -> None:
    """Each piece is put to its call, numbered from 0, with its arguments as text."""
    assert decoded(*items, finish()) == [*expected, Finish("tool_calls")]


def test_events_are_given_at_once() -> None:
    """No event waits for a later chunk."""
    decoder = ChatDecoder()
    given = [decoder.feed(item) for item in data(role(), chunk("a"), finish(), usage(), DONE)]
    assert given == [[], [TextDelta("a")], [STOP], [COUNTED], []]
    assert (decoder.finished, decoder.done, decoder.finish()) == (True, True, [])
