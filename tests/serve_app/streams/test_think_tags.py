"""Think tags at the start of content become reasoning, wherever they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.runs import Finish, ReasoningDelta, RunEvent, TextDelta
from serve_app.streams.think_tags import MAX_SPACE, ThinkTags
from tests.serve_app.streams.event_cuts import (
    CALL,
    STOP,
    USAGE,
    content,
    cut,
    held_at_most,
    obey_the_cuts,
    reasoning,
    run,
)


def split(text: str, *, look_ahead: int = 0) -> tuple[str, str]:
    """Reasoning and content of a text, however it is cut; reasoning comes first."""
    events: list[RunEvent] = [TextDelta(text), STOP]
    out = obey_the_cuts(lambda: ThinkTags(look_ahead=look_ahead), events)
    thoughts = [event for event in out if isinstance(event, ReasoningDelta)]
    assert out[: len(thoughts)] == thoughts
    assert out[-1] == STOP
    return reasoning(out), content(out)


@pytest.mark.parametrize("name", ["think", "thinking"])
@pytest.mark.parametrize("space", ["", "\n", " \r\n\t ", "\u3000", " " * MAX_SPACE])
def test_a_tag_at_the_start_holds_reasoning(name: str, space: str) -> None:
    """After white space at most; the tags go, and line ends behind them."""
    text = f"{space}<{name}>\nplan <b>\n</{name}>\n\nAnswer </{name}> 한🙂\n"
    assert split(text) == ("plan <b>\n", f"Answer </{name}> 한🙂\n")


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        pytest.param("<think>a</think>b", "a", "b", id="tight"),
        pytest.param("<think></think>b", "", "b", id="empty"),
        pytest.param("<think>\n\n</think>\n\nb", "", "b", id="template-without-thinking"),
        pytest.param("<think>a</think>", "a", "", id="no-answer"),
        pytest.param("<think>a</think>\n    code", "a", "    code", id="indentation-stays"),
        pytest.param("<think>  a </think> b", "  a ", " b", id="spaces-stay"),
        pytest.param("<think>a</thinking>b</think>c", "a</thinking>b", "c", id="other-closer"),
        pytest.param("<thinking>a</think>b</thinking>c", "a</think>b", "c", id="closer-inside"),
        pytest.param("<think>a<think>b</think>c", "a<think>b", "c", id="opener-inside"),
        pytest.param("<think>a</think>b<think>c</think>d", "a", "b<think>c</think>d", id="second"),
        pytest.param("<think>a</think><think>b", "a", "<think>b", id="second-at-once"),
        pytest.param("<think>a</thin</think>b", "a</thin", "b", id="closer-begins-twice"),
        pytest.param("<think>a<</think>b", "a<", "b", id="bracket-before-closer"),
    ],
)
def test_where_reasoning_ends(text: str, thought: str, answer: str) -> None:
    """At the tag that closes the first one; all later tags are text."""
    assert split(text) == (thought, answer)


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        ("<think>\nlong plan...", "long plan..."),
        ("<think>plan </thin", "plan </thin"),
        ("<thinking>plan </think>", "plan </think>"),
        ("<think>", ""),
        ("<think>\n", ""),
    ],
)
def test_a_tag_that_never_closes_is_all_reasoning(text: str, thought: str) -> None:
    """The model was cut off while it thought: nothing of it is an answer."""
    assert split(text) == (thought, "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello",
        "A <think>tag</think>.",
        ". <think>",
        "<thin",
        "<thinker>a</thinker>",
        "<think >a</think>",
        "<Think>a</Think>",
        "< think>",
        "\n\n<p>",
        " \n ",
        " \n <",
        "</thin",
        "</b>",
        "a</think>b",
        "`<think>` opens",
        " " * (MAX_SPACE + 1) + "<think>a</think>",
    ],
)
def test_all_else_is_content(text: str) -> None:
    """Whole and in order, with its white space."""
    assert split(text) == ("", text)


@pytest.mark.parametrize("tag", ["</think>", "</thinking>"])
def test_a_lone_closing_tag_at_the_start_goes(tag: str) -> None:
    """It ends a thought of which nothing is left, or that came as reasoning."""
    assert split(f"\n{tag}\n\nb{tag}") == ("", f"b{tag}")


# The tag was opened in the prompt


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        pytest.param('e.\n</think>{"a": 1}', "e.\n", '{"a": 1}', id="tail"),
        pytest.param("long</thinking>b", "long", "b", id="other-tag"),
        pytest.param("a</think>b</thinking>c", "a", "b</thinking>c", id="first-of-two"),
        pytest.param("<think>a</think>b", "a", "b", id="opened-after-all"),
        pytest.param("</think>b", "", "b", id="nothing-left"),
        pytest.param("no tag", "", "no tag", id="no-tag"),
        pytest.param("</thin", "", "</thin", id="half-a-tag"),
        pytest.param("1234567890123456</think>b", "1234567890123456", "b", id="just-within"),
        pytest.param("12345678901234567</think>b", "", "12345678901234567</think>b", id="beyond"),
        pytest.param("\n\n1234567890123456</think>b", "1234567890123456", "b", id="behind-space"),
    ],
)
def test_a_lone_closing_tag_is_looked_for_as_far_as_is_said(
    text: str, thought: str, answer: str
) -> None:
    """Within the first 24 characters, here; what comes before it is the thought's end."""
    assert split(text, look_ahead=24) == (thought, answer)


@pytest.mark.parametrize("look_ahead", [0, 1, 5, 24, 1000])
def test_what_is_held_is_bounded(look_ahead: int) -> None:
    """No more than is looked ahead, or a tag less its last character."""
    text = "a" * 3000 + "<think>" + "</thinking" * 9
    most = held_at_most(lambda: ThinkTags(look_ahead=look_ahead), [TextDelta(text)])
    assert most <= max(look_ahead, 0)
    inside = held_at_most(ThinkTags, [TextDelta("<think>" + "</thin" * 99)])
    assert inside <= len("<think>") + len("</think>") - 1
    assert held_at_most(ThinkTags, [TextDelta(" " * 1000)]) <= MAX_SPACE


def test_reasoning_is_passed_on_as_it_comes() -> None:
    """Only what may be the closing tag waits."""
    step = ThinkTags()
    assert step.feed(TextDelta("<think>a")) == [ReasoningDelta("a")]
    assert step.feed(TextDelta("b <")) == [ReasoningDelta("b ")]
    assert step.feed(TextDelta("c")) == [ReasoningDelta("<c")]
    assert step.feed(TextDelta("</think>d")) == [TextDelta("d")]
    assert step.feed(TextDelta("<")) == [TextDelta("<")]


# What comes between


def test_reasoning_of_the_upstreams_own_stays() -> None:
    """A tag in the content after it counts all the same."""
    events: list[RunEvent] = [ReasoningDelta("r"), TextDelta("<think>s</think>t"), STOP]
    assert obey_the_cuts(ThinkTags, events) == [ReasoningDelta("rs"), TextDelta("t"), STOP]


def test_usage_in_the_middle_cuts_nothing() -> None:
    """Some servers send it with every chunk."""
    events = [TextDelta("<thin"), USAGE, TextDelta("k>a</th"), USAGE, TextDelta("ink>b"), STOP]
    out = obey_the_cuts(ThinkTags, events)
    assert (reasoning(out), content(out)) == ("a", "b")


@pytest.mark.parametrize("other", [ReasoningDelta("r"), CALL])
def test_what_comes_between_keeps_its_place(other: RunEvent) -> None:
    """What is held goes first, and a tag that was cut by it is none."""
    events = [TextDelta(" <thin"), other, TextDelta("k>a"), STOP]
    assert obey_the_cuts(ThinkTags, events) == events
    inside = obey_the_cuts(ThinkTags, [TextDelta("<think>a</thin"), CALL, TextDelta("k>b"), STOP])
    assert inside == [ReasoningDelta("a</thin"), CALL, ReasoningDelta("k>b"), STOP]


def test_white_space_decides_nothing() -> None:
    """A tag may come after white space that something else has ended."""
    events = [TextDelta("\n"), CALL, TextDelta("<think>a</think>b"), STOP]
    out = [TextDelta("\n"), CALL, ReasoningDelta("a"), TextDelta("b"), STOP]
    assert obey_the_cuts(ThinkTags, events) == out


def test_what_is_held_comes_before_the_finish() -> None:
    """Also at the end of a stream that has none."""
    assert run(ThinkTags(), [TextDelta("<th"), STOP, USAGE]) == [TextDelta("<th"), STOP, USAGE]
    assert run(ThinkTags(), [TextDelta("<think>a<")]) == [ReasoningDelta("a<")]
    assert run(ThinkTags(look_ahead=9), [TextDelta("abc")]) == [TextDelta("abc")]


def test_what_it_does_not_know_passes_untouched() -> None:
    """The very same objects, and content once it is no start any more."""
    step = ThinkTags()
    step.feed(TextDelta("Hello"))
    events: list[RunEvent] = [USAGE, CALL, TextDelta("<think>"), Finish("length"), USAGE]
    out = [one for event in events for one in step.feed(event)]
    assert [id(one) for one in out] == [id(one) for one in events]


WORDS = ["<think>", "</think>", "<thinking>", "</thinking>", "<thin", "k>", "<", "\n", " ", "a한"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=10).map("".join)
EVENTS = st.lists(
    st.one_of(TEXTS.map(TextDelta), TEXTS.map(ReasoningDelta), st.sampled_from([CALL, USAGE])),
    max_size=6,
).map(lambda events: [*events, STOP])


@given(st.data(), EVENTS, st.sampled_from([0, 3, 12, 40]))
def test_no_cut_matters(data: st.DataObject, events: list[RunEvent], look_ahead: int) -> None:
    """The same answer to any pieces, and all else in its order."""
    whole = run(ThinkTags(look_ahead=look_ahead), events)
    assert run(ThinkTags(look_ahead=look_ahead), data.draw(cut(events))) == whole
    others = [event for event in events if not isinstance(event, TextDelta | ReasoningDelta)]
    assert [e for e in whole if not isinstance(e, TextDelta | ReasoningDelta)] == others


@given(st.text(alphabet="ab<>\n ", max_size=40))
def test_an_answer_without_tags_is_left_as_it_is(text: str) -> None:
    """Nothing is added or lost where there is no tag."""
    assert content(run(ThinkTags(), [TextDelta(text), STOP])) == text
