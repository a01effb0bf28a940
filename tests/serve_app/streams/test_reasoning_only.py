"""An answer that holds only reasoning gets a content; hidden reasoning is nowhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.runs import Finish, FinishReason, ReasoningDelta, RunEvent, TextDelta
from serve_app.streams.reasoning_only import (
    MAX_SPACE,
    NOTICE,
    NOTICE_CUT,
    NOTICE_HIDDEN,
    ReasoningOnly,
)
from tests.fakes.sse import chunk
from tests.serve_app.streams.event_cuts import (
    CALL,
    STOP,
    USAGE,
    content,
    cut,
    obey_the_cuts,
    reasoning,
    run,
)
from tests.serve_app.streams.feeding import decoded, drain

REASONS: tuple[FinishReason, ...] = ("stop", "length", "tool_calls", "content_filter")


def maker(shown: bool | None) -> Callable[[], ReasoningOnly]:
    return lambda: ReasoningOnly(include_reasoning=shown)


def of(shown: bool | None, *events: RunEvent) -> list[RunEvent]:
    """The step's answer, which no cut changes."""
    return obey_the_cuts(maker(shown), events)


# Only reasoning


@pytest.mark.clause("REASON-1", "REASON-2", "REASON-4")
@pytest.mark.parametrize("shown", [None, True])
@pytest.mark.parametrize("reason", ["stop", "tool_calls"])
def test_reasoning_stands_for_the_answer(shown: bool | None, reason: FinishReason) -> None:
    """It stays reasoning and is the content too; a reason of calls without calls is `stop`."""
    events: list[RunEvent] = [ReasoningDelta("I think,\n한🙂"), Finish(reason)]
    assert of(shown, *events) == [events[0], TextDelta("I think,\n한🙂"), events[1]]


@pytest.mark.clause("REASON-2", "REASON-4")
@pytest.mark.parametrize("shown", [None, True])
@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_notice_follows_where_the_answer_did_not_just_stop(
    shown: bool | None, reason: FinishReason
) -> None:
    """It names the reason."""
    out = of(shown, ReasoningDelta("I think"), Finish(reason))
    notice = NOTICE.format(reason=reason)
    assert out == [ReasoningDelta("I think"), TextDelta(f"I think\n\n{notice}"), Finish(reason)]


@pytest.mark.clause("REASON-1", "REASON-3", "REASON-4", "THINK-5")
@pytest.mark.parametrize("reason", REASONS)
def test_hidden_reasoning_is_replaced_by_a_notice(reason: FinishReason) -> None:
    """No word of it anywhere; the notice says that it was hidden, and names the reason."""
    out = of(False, ReasoningDelta("secret"), Finish(reason))
    assert out == [TextDelta(NOTICE_HIDDEN.format(reason=reason)), Finish(reason)]
    assert "reasoning was hidden" in content(out)
    assert reason in content(out)


@pytest.mark.clause("REASON-1")
@pytest.mark.parametrize("space", ["\n", " \n\n ", "\t"])
@pytest.mark.parametrize("shown", [None, False])
def test_white_space_is_no_answer(space: str, shown: bool | None) -> None:
    """It is left out: the content is the text, or the notice, and nothing else."""
    expected = "why" if shown is None else NOTICE_HIDDEN.format(reason="stop")
    for events in (
        [ReasoningDelta("why"), TextDelta(space), STOP],
        [TextDelta(space), ReasoningDelta("why"), STOP],
    ):
        assert content(of(shown, *events)) == expected


@pytest.mark.clause("REASON-4")
@pytest.mark.parametrize("shown", [None, False])
def test_it_is_one_delta_before_the_finish(shown: bool | None) -> None:
    """Usage may come before and after; a second finish adds nothing."""
    step = ReasoningOnly(include_reasoning=shown)
    step.feed(ReasoningDelta("a"))
    step.feed(ReasoningDelta("b"))
    assert step.feed(USAGE) == [USAGE]
    first, last = step.feed(STOP)
    assert isinstance(first, TextDelta)
    assert last == STOP
    assert step.feed(USAGE) == [USAGE]
    assert step.feed(STOP) == [STOP]
    assert step.finish() == []


@pytest.mark.clause("REASON-5", "REASON-2")
@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_either_field_of_an_upstream_counts(field: str) -> None:
    """Newer servers have another name for it."""
    events = decoded(
        chunk(delta={field: "why"}), chunk(delta={}, finish_reason="length"), b"[DONE]"
    )
    out = drain(ReasoningOnly(), events)
    assert out[:-1] == [
        ReasoningDelta("why"),
        TextDelta("why\n\n" + NOTICE.format(reason="length")),
    ]


# Not only reasoning


@pytest.mark.clause("THINK-5")
@pytest.mark.parametrize("answer", [[TextDelta("a")], [CALL], [TextDelta(" a"), CALL]])
@pytest.mark.parametrize("shown", [None, True, False])
@pytest.mark.parametrize("reason", REASONS)
def test_an_answer_is_left_as_it_is(
    answer: list[RunEvent], shown: bool | None, reason: FinishReason
) -> None:
    """Only the reasoning goes where it is to be hidden."""
    events = [ReasoningDelta("why"), *answer, ReasoningDelta("more"), USAGE, Finish(reason)]
    out = of(shown, *events)
    if shown is False:
        events = [event for event in events if not isinstance(event, ReasoningDelta)]
    assert out == events


@pytest.mark.clause("THINK-5")
def test_white_space_before_an_answer_is_kept() -> None:
    """It is held until a word or a call follows."""
    assert of(None, TextDelta("\n "), TextDelta("a b "), STOP) == [TextDelta("\n a b "), STOP]
    assert of(None, TextDelta("\n"), CALL, STOP) == [TextDelta("\n"), CALL, STOP]
    assert of(False, ReasoningDelta("r"), TextDelta("\n"), TextDelta("a"), STOP) == [
        TextDelta("\na"),
        STOP,
    ]


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("shown", [None, True, False])
@pytest.mark.parametrize("text", ["", " \n"])
def test_nothing_at_all_is_returned_as_it_came(
    reason: FinishReason, shown: bool | None, text: str
) -> None:
    """No reasoning, no content, no calls: an agent's last word may be empty."""
    given_text: list[RunEvent] = [TextDelta(text)] if text else []
    assert of(shown, *given_text, USAGE, Finish(reason)) == [
        *([USAGE, *given_text]),
        Finish(reason),
    ]


@pytest.mark.parametrize("shown", [None, False])
def test_reasoning_of_white_space_is_none(shown: bool | None) -> None:
    """It could stand for no answer, and there is nothing to hide."""
    assert content(of(shown, ReasoningDelta(" \n"), STOP)) == ""


def test_without_a_finish_nothing_is_made_up() -> None:
    """A stream that broke says so elsewhere."""
    assert run(ReasoningOnly(), [ReasoningDelta("why")]) == [ReasoningDelta("why")]
    assert run(ReasoningOnly(), [TextDelta("\n")]) == [TextDelta("\n")]


def test_what_it_does_not_know_passes_untouched() -> None:
    """The very same objects, reasoning and text too."""
    step = ReasoningOnly()
    events: list[RunEvent] = [ReasoningDelta("r"), USAGE, CALL, TextDelta(" "), STOP, USAGE]
    out = [one for event in events for one in step.feed(event)]
    assert [id(one) for one in out] == [id(one) for one in events]


# Bounds and words


@pytest.mark.clause("REASON-2")
@pytest.mark.parametrize("reason", REASONS)
def test_a_boundless_reasoning_is_repeated_in_part(reason: FinishReason) -> None:
    """What is kept is bounded; the notice tells how much of it stands there."""
    events: list[RunEvent] = [ReasoningDelta("12345"), ReasoningDelta("678"), Finish(reason)]
    notice = NOTICE_CUT.format(reason=reason, kept=6)
    out = obey_the_cuts(lambda: ReasoningOnly(max_reasoning=6), events)
    assert out == [ReasoningDelta("12345678"), TextDelta(f"123456\n\n{notice}"), Finish(reason)]
    exact = obey_the_cuts(lambda: ReasoningOnly(max_reasoning=8), [*events[:2], STOP])
    assert content(exact) == "12345678"


def test_what_is_kept_is_let_go_with_the_answer() -> None:
    """Reasoning that need not stand for an answer costs no memory."""
    step = ReasoningOnly(max_reasoning=100)
    for _ in range(100):
        step.feed(ReasoningDelta("12345"))
    assert vars(step)["_kept"].tell() == 100
    step.feed(TextDelta("a"))
    step.feed(ReasoningDelta("12345"))
    assert vars(step)["_kept"].tell() == 0


def test_white_space_is_bounded() -> None:
    """More than can be layout is passed on, however it comes."""
    events: list[RunEvent] = [ReasoningDelta("r"), TextDelta(" " * (MAX_SPACE + 50)), STOP]
    whole = run(ReasoningOnly(), events)
    assert whole == [events[0], TextDelta(" " * (MAX_SPACE + 50) + "r"), STOP]
    pieces: list[RunEvent] = [TextDelta(" ")] * (MAX_SPACE + 50)
    assert run(ReasoningOnly(), [events[0], *pieces, STOP]) == whole


@pytest.mark.parametrize("notice", [NOTICE, NOTICE_CUT, NOTICE_HIDDEN])
def test_a_notice_is_one_sentence_that_clients_can_match(notice: str) -> None:
    """It begins with `[IOP] `, ends with a full stop, and names the finish reason."""
    text = notice.format(reason="length", kept=5)
    assert text.startswith("[IOP] The ")
    assert text.endswith(".")
    assert text.count(". ") == 0
    assert "(finish_reason: length)" in text


TEXTS = st.sampled_from(["", " ", "\n", "a", " b ", "한🙂"])
EVENTS = st.tuples(
    st.lists(
        st.one_of(TEXTS.map(TextDelta), TEXTS.map(ReasoningDelta), st.sampled_from([CALL, USAGE])),
        max_size=8,
    ),
    st.sampled_from(REASONS).map(Finish),
).map(lambda pair: [*pair[0], pair[1]])


@pytest.mark.clause("REASON-1", "REASON-3", "REASON-4", "THINK-5")
@given(st.data(), EVENTS, st.sampled_from([None, True, False]))
def test_no_cut_matters_and_no_success_is_empty(
    data: st.DataObject, events: list[RunEvent], shown: bool | None
) -> None:
    """Whatever comes: reasoning alone never ends without content, and hidden is hidden."""
    whole = run(ReasoningOnly(include_reasoning=shown), events)
    assert run(ReasoningOnly(include_reasoning=shown), data.draw(cut(events))) == whole
    assert reasoning(whole) == ("" if shown is False else reasoning(events))
    if reasoning(events).strip() and CALL not in events:
        assert content(whole).strip()
    if content(events).strip() or CALL in events:
        assert content(whole) == content(events)
    assert whole[-1] == events[-1]
