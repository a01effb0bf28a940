"""Turns with tools: choices, native calls, reasoning, ends and errors."""

from __future__ import annotations

import time

import pytest

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
from tests.serve_app.streams.tool_cases import (
    ALL_TOOLS,
    PING,
    TAGS,
    WEATHER,
    feed,
    say,
    step,
)

CALL = "{{ping()}}"
STOP = Finish("stop")


def forced(name: str) -> Json:
    return {"type": "function", "function": {"name": name}}


def test_calls_come_whole_before_the_finish() -> None:
    """Each in one piece, with an id of its own; the text behind a block comes first."""
    stage = step(ALL_TOOLS)
    assert stage.feed(TextDelta(f"a {CALL}b")) == [TextDelta("a b")]
    assert stage.feed(TextDelta(CALL)) == []
    assert stage.feed(STOP) == [
        ToolCallDelta(0, "call_t_0", "ping", "{}"),
        ToolCallDelta(1, "call_t_1", "ping", "{}"),
        Finish("tool_calls"),
    ]
    assert stage.finish() == []


@pytest.mark.parametrize(
    ("text", "reason", "ours"),
    [
        (CALL, "stop", "tool_calls"),
        (CALL, "tool_calls", "tool_calls"),
        (CALL, "length", "tool_calls"),
        (CALL, "content_filter", "content_filter"),
        ("a", "tool_calls", "stop"),
        ("a", "length", "length"),
    ],
)
def test_the_finish_reason(text: str, reason: FinishReason, ours: FinishReason) -> None:
    """It agrees with the calls that there are."""
    assert say(text, reason=reason).turn.finish_reason == ours


def test_a_cut_is_named() -> None:
    """A block that the length limit cut off says so."""
    assert "length limit" in (say("<tool_call><function=pi", reason="length").error or "")
    assert "length limit" not in (say("<tool_call><function=pi").error or "length limit")


def test_text_before_a_broken_block_is_shown() -> None:
    """Also where both came in one piece: the error comes with the next event."""
    told = say("Looking. <tool_call><function=warp></function></tool_call> More.")
    assert told.content == "Looking. "
    assert "'warp' was not offered" in (told.error or "")


def test_an_error_shows_little_of_the_model() -> None:
    """A message has at most 200 characters of what the model wrote."""
    long = "x" * 5000
    for text in (
        f"{{{{get_weather(city='a', unit='{long}')}}}}",
        f'<tool_call>{{"name": "{long}"}}</tool_call>',
        f"{{{{get_weather(city={long})}}}}",
    ):
        error = say(text).error or ""
        assert error
        assert error.count("x") <= 200
        assert len(error) < 300


def test_choice_none_leaves_text_alone() -> None:
    """The caller has switched tools off: a block is text, a native call an error."""
    for text in (CALL, "<tool_call><function=x"):
        told = say(list(text), choice="none")
        assert (told.content, told.calls, told.error) == (text, [], None)
    native = [ToolCallDelta(0, "c", "ping", "{}"), STOP]
    assert "'none'" in (feed(step([PING], "none"), native).error or "")


@pytest.mark.parametrize(
    ("choice", "text", "fails"),
    [
        (forced("ping"), CALL, False),
        (forced("ping"), "no", True),
        (forced("get_weather"), CALL, True),
        (forced("ping"), CALL + "{{get_weather(city='Rome')}}", True),
        ("required", CALL, False),
        ("required", "no", True),
        ("auto", "no", False),
    ],
)
def test_a_choice_is_kept(choice: str | Json, text: str, fails: bool) -> None:
    """A forced tool is called and no other; `required` means at least one."""
    assert bool(say(text, choice=choice).error) is fails


def test_a_choice_holds_for_native_calls() -> None:
    """They are judged by their names too."""
    for name, fails in (("ping", False), ("get_weather", True)):
        events: list[RunEvent] = [ToolCallDelta(0, "c", name, '{"city":"a"}'), STOP]
        assert bool(feed(step(ALL_TOOLS, forced("ping")), events).error) is fails


def test_a_filtered_turn_owes_no_call() -> None:
    """Its reason says more than the missing call."""
    assert say("", choice="required", reason="content_filter").error is None


@pytest.mark.clause("TOOL-4")
def test_native_arguments_flow_on_where_nothing_can_change() -> None:
    """A tool without arrays and objects has its pieces passed on as they come."""
    stage = step([WEATHER])
    pieces: list[RunEvent] = [
        ToolCallDelta(0, "c", "get_weather"),
        ToolCallDelta(0, arguments='{"ci'),
        ToolCallDelta(0, arguments='ty":"a"}'),
    ]
    assert [stage.feed(piece) for piece in pieces] == [[piece] for piece in pieces]
    assert stage.feed(Finish("tool_calls")) == [Finish("tool_calls")]


@pytest.mark.clause("TOOL-5")
def test_native_arguments_wait_where_something_can_change() -> None:
    """The call is announced at once, its arguments come whole before the finish."""
    stage = step([TAGS])
    assert stage.feed(ToolCallDelta(0, "c", "tag", '{"tags":')) == [ToolCallDelta(0, "c", "tag")]
    assert stage.feed(ToolCallDelta(0, arguments='"[1]"}')) == []
    assert stage.feed(STOP) == [
        ToolCallDelta(0, arguments='{"tags": [1]}'),
        Finish("tool_calls"),
    ]


@pytest.mark.parametrize("tools", [[WEATHER], [TAGS], []], ids=["flat", "held", "unknown"])
@pytest.mark.parametrize("arguments", [[], [""], [" ", ""]])
def test_no_native_arguments_are_an_empty_object(tools: list[Json], arguments: list[str]) -> None:
    """Clients parse them, whatever the tool."""
    name = tools[0]["function"]["name"] if tools else "other"
    events: list[RunEvent] = [
        ToolCallDelta(0, "c", name),
        *(ToolCallDelta(0, arguments=text) for text in arguments),
        STOP,
    ]
    assert feed(step(tools or [PING]), events).calls == [(name, {})]


def test_an_undeclared_native_call_passes() -> None:
    """Its name and its arguments are the upstream's business."""
    told = feed(step([PING]), [ToolCallDelta(0, "c", "other", '{"a":"[1]"}'), STOP])
    assert told.turn.tool_calls[0].arguments == '{"a":"[1]"}'


def test_a_name_may_come_late() -> None:
    """Arguments wait for the name that says what may be changed in them."""
    events: list[RunEvent] = [
        ToolCallDelta(0, arguments='{"tags":"[]"}'),
        ToolCallDelta(0, "c", "tag"),
        STOP,
    ]
    assert feed(step([TAGS]), events).calls == [("tag", {"tags": []})]


def test_long_native_arguments_do_not_wait() -> None:
    """Beyond the limit they pass as they come."""
    stage = step([TAGS], max_block_chars=8)
    assert stage.feed(ToolCallDelta(0, "c", "tag", '{"tags": "[]"')) == [
        ToolCallDelta(0, "c", "tag", '{"tags": "[]"')
    ]
    assert stage.feed(ToolCallDelta(0, arguments="}")) == [ToolCallDelta(0, arguments="}")]


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        (CALL, "", ""),
        (f"a {CALL}", " b", "a  b"),
        ("a <tool_call><function=get_w", "", "a "),
        ("", CALL + "b", "b"),
        ("", "<tool_call><function=nobody></function></tool_call>b", "b"),
        ("", "{{get_weather(1)}}b {{nobody(a=1)}}c", "b c"),
        ("", "{{get_weather(city=1)}}b <function=get_weather></function>c", "b c"),
        ("", "<tool_call>oh", ""),
        ("\n\n", "", ""),
        ("a {{wait", "", "a {{wait"),
    ],
)
def test_native_calls_win_over_text(before: str, after: str, left: str) -> None:
    """Blocks in the text beside them are taken out, whole or broken, and make no call."""
    for pieces in ([after], list(after)):
        events: list[RunEvent] = [
            TextDelta(before),
            ToolCallDelta(0, "c", "ping", "{}"),
            *map(TextDelta, pieces),
            STOP,
        ]
        told = feed(step(ALL_TOOLS), events)
        assert told.error is None
        assert (told.content, told.calls) == (left, [("ping", {})])


def test_a_block_broken_before_a_native_call_is_an_error() -> None:
    """By then the turn has failed."""
    events: list[RunEvent] = [TextDelta("a <tool_call>no"), ToolCallDelta(0, "c", "ping"), STOP]
    assert feed(step(ALL_TOOLS), events).error


@pytest.mark.clause("TEXT-5")
def test_a_call_in_the_reasoning_alone_is_an_error() -> None:
    """It is no call, and may not be shown in place of the answer that is missing."""
    drafts = [CALL, "<tool_call><function=nobody>", "{{nobody(a=1)}}", "<tool_call>"]
    for draft in drafts:
        pieces = [ReasoningDelta(sign) for sign in f"I would {draft}"]
        assert "reasoning" in (feed(step(ALL_TOOLS), [*pieces, STOP]).error or "")
        assert feed(step(ALL_TOOLS), [*pieces, TextDelta("\n"), STOP]).error
        assert feed(step(ALL_TOOLS), [*pieces, TextDelta("Yes."), STOP]).error is None
        assert feed(step(ALL_TOOLS, "none"), [*pieces, STOP]).error is None


def test_reasoning_passes_as_it_is() -> None:
    """Text that waits goes on waiting beside it: they are two channels."""
    stage = step(ALL_TOOLS)
    assert stage.feed(TextDelta("a <tool_")) == [TextDelta("a ")]
    assert stage.feed(ReasoningDelta("<tool_call>")) == [ReasoningDelta("<tool_call>")]
    assert stage.feed(Usage(1, 2, 3)) == [Usage(1, 2, 3)]
    assert stage.feed(TextDelta("calls>")) == [TextDelta("<tool_calls>")]
    assert feed(step(ALL_TOOLS), [ReasoningDelta("only prose"), STOP]).error is None


def test_a_stream_without_an_end() -> None:
    """What waits is given at last; an open block is an error."""
    assert feed(step(ALL_TOOLS), [TextDelta("a <tool_")]).content == "a <tool_"
    assert feed(step(ALL_TOOLS), [TextDelta("a <tool_call>")]).error


def test_plain_text_is_passed_on_itself() -> None:
    """Text without a marker's first character costs next to nothing."""
    stage = step(ALL_TOOLS)
    stage.feed(TextDelta("Hello"))
    event = TextDelta(" there,\n")
    assert stage.feed(event)[0] is event
    start = time.process_time()
    for _ in range(20_000):
        stage.feed(event)
    assert (time.process_time() - start) / 20_000 < 20e-6
