"""Sentinels never leave, wherever they are cut; text that looks like one does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.runs import Finish, ReasoningDelta, RunEvent, TextDelta
from serve_app.streams.sentinels import MAX_HEADER, MAX_HELD, Sentinels
from serve_app.tools.sentinel_names import KNOWN_SENTINELS
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
    single,
)

#: These belong to headers, which take the name between them along.
IN_HEADERS = {
    "<|channel|>",
    "<|start|>",
    "<|message|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
}
PLAIN = [name for name in KNOWN_SENTINELS if name not in IN_HEADERS]
LONGEST = max(map(len, KNOWN_SENTINELS))


def cleaned(text: str) -> str:
    """What is left of a content, and of a reasoning, however it is cut."""
    out = obey_the_cuts(Sentinels, [TextDelta(text), STOP])
    assert out[-1] == STOP
    assert obey_the_cuts(Sentinels, [ReasoningDelta(text), STOP])[:-1] == [
        ReasoningDelta(event.text) for event in out if isinstance(event, TextDelta)
    ]
    return content(out)


# What goes


@pytest.mark.clause("SENT-1", "SENT-2")
@pytest.mark.parametrize("name", KNOWN_SENTINELS)
@pytest.mark.parametrize(
    ("before", "after"),
    [("", ""), ("Good", ""), ("", "bye"), ("Good", "bye"), ("a < ", " > b"), ("<|", "|>")],
)
def test_a_known_sentinel_goes(name: str, before: str, after: str) -> None:
    """At the start, in the middle and at the end; what stands around it stays."""
    assert cleaned(before + name + after) == before + after


@pytest.mark.clause("SENT-1")
@pytest.mark.parametrize("name", KNOWN_SENTINELS)
def test_an_answer_of_nothing_else_is_empty(name: str) -> None:
    """No delta is left of it."""
    assert run(Sentinels(), [TextDelta(name * 3), STOP]) == [STOP]


@pytest.mark.clause("SENT-1")
def test_several_in_a_row_go() -> None:
    """As templates write them at an end."""
    assert cleaned("Fin.<|mask_end|><|im_end|>\n<|endoftext|>") == "Fin.\n"


@pytest.mark.clause("SENT-1", "SENT-2")
@pytest.mark.parametrize("inner", PLAIN)
@pytest.mark.parametrize("place", [1, 2, 5, 9])
def test_one_that_appears_when_another_is_cut_out_goes_too(inner: str, place: int) -> None:
    """Until there is none left, three deep too."""
    outer = "<|im_end|>"
    nested = outer[:place] + inner + outer[place:]
    deeper = "<|eot" + nested + "_id|>"
    assert cleaned(f"a{nested}b{deeper}c") == "abc"


@pytest.mark.clause("SENT-1")
@pytest.mark.parametrize("name", ["[INST]", "<<", "x", "[/INST]", "끝!", "<|my_app_cursor|>"])
def test_the_list_can_be_added_to(name: str) -> None:
    """A configured sentinel goes as the known ones do, and these still do."""
    out = obey_the_cuts(lambda: Sentinels([name]), [TextDelta(f"a{name}b<|im_end|>c"), STOP])
    assert content(out) == "abc"


@pytest.mark.clause("SENT-1")
def test_the_longer_of_two_goes() -> None:
    """Where one is the end of another."""
    events: list[RunEvent] = [TextDelta("a!<|end|>b"), STOP]
    assert content(obey_the_cuts(lambda: Sentinels(["!<|end|>"]), events)) == "ab"


# What stays


@pytest.mark.clause("SENT-2")
@pytest.mark.parametrize(
    "text",
    [
        "Cursor is at <|my_app_cursor|> here.",
        "<|not_a_token|>",
        "<| x |>",
        "The tokens <|mask_start and mask_end|> are odd.",
        "a < b and b > a",
        "a <| b |> c",
        "<<<<<<< HEAD\n=======\n>>>>>>> main",
        "<|im_end|",
        "<|im_end",
        "<",
        "<|",
        "<|im_en<|im_en<|im_en",
        "<|IM_END|>",
        "<|im_end| >",
        "im_end|>",
        "<p>한국어 <b>텍스트</b> 🙂</p>",
        "<think>x</think>",
        "if (a<|b)",
    ],
)
def test_what_is_no_known_sentinel_stays(text: str) -> None:
    """Whole and in order, also where it ends in the middle of one."""
    assert cleaned(text) == text


def test_text_without_a_beginning_is_passed_on_at_once() -> None:
    """Nothing is held back that cannot become a sentinel."""
    step = Sentinels()
    assert step.feed(TextDelta("Hello, ")) == [TextDelta("Hello, ")]
    assert step.feed(TextDelta("a <")) == [TextDelta("a ")]
    assert step.feed(TextDelta("b> c")) == [TextDelta("<b> c")]
    assert step.feed(ReasoningDelta("why")) == [ReasoningDelta("why")]


# The end of a text


@pytest.mark.clause("SENT-1")
@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Done.</s>", "Done."),
        ("Done.</s></s>", "Done."),
        ("Done.</s><|im_end|>", "Done."),
        ("Done.<|im_end|></s>", "Done."),
        ("Done.</<|im_end|>s>", "Done."),
        ("</s>", ""),
        ("<s>old</s> new", "<s>old</s> new"),
        ("<s>old</s>\n", "<s>old</s>\n"),
        ("a</s", "a</s"),
        ("a</", "a</"),
        ("a</s></", "a</s></"),
        ("a</s>b</s>", "a</s>b"),
        ("a</s><|im_", "a</s><|im_"),
        ("a</strong>", "a</strong>"),
    ],
)
def test_an_end_of_sentence_goes_at_the_very_end_alone(text: str, left: str) -> None:
    """Anywhere else it is the closing tag of HTML."""
    assert cleaned(text) == left


def test_ends_without_end_are_bounded() -> None:
    """A model that writes nothing else is not kept in memory."""
    assert cleaned("a" + "</s>" * 30) == "a" + "</s>" * 22


# Headers


@pytest.mark.clause("SENT-1")
@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<|channel|>final<|message|>Hello", "Hello"),
        ("<|start|>assistant<|channel|>final<|message|>Hello<|return|>", "Hello"),
        ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|message|>Hi", "Hm.Hi"),
        ("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}", "{}"),
        ("<|start_header_id|>assistant<|end_header_id|>\n\nHello", "\n\nHello"),
        ("a<|channel|>final", "afinal"),
        ("a<|message|>b", "ab"),
        ("a<|channel|>b\nc<|message|>d", "ab\ncd"),
        ("a <<|channel|>final<|message|>b", "a <b"),
        ("a <<|channel|>final b", "a <final b"),
        ("a<|im_<|channel|>end|>b<|message|>c", "abc"),
        ("a<|im_.<|channel|>n<|message|>end|>b", "a<|im_.end|>b"),
        ("a<|<|channel|>n<|message|>end|>b", "ab"),
        ("a</s><|channel|>n<|message|>", "a"),
        ("x<|channel|>" + "n" * MAX_HEADER + "<|message|>y", "xy"),
        (f"x<|channel|>{'n' * (MAX_HEADER + 1)}<|message|>y", f"x{'n' * (MAX_HEADER + 1)}y"),
    ],
)
def test_a_header_goes_with_its_name(text: str, left: str) -> None:
    """A name is short and in one line; what is no whole header loses its tokens alone."""
    assert cleaned(text) == left


# Two texts, and what comes between


@pytest.mark.clause("SENT-2")
def test_content_and_reasoning_are_two_texts() -> None:
    """A beginning in the one and an end in the other are no sentinel."""
    events = [ReasoningDelta("r <|mask_"), TextDelta("end|> c"), STOP]
    assert obey_the_cuts(Sentinels, events) == events


@pytest.mark.clause("SENT-2")
def test_usage_in_the_middle_cuts_nothing() -> None:
    """Some servers send it with every chunk."""
    events = [TextDelta("Ready<|mask"), USAGE, TextDelta("_end|>!"), USAGE, STOP]
    out = obey_the_cuts(Sentinels, events)
    assert content(out) == "Ready!"
    assert [event for event in out if event == USAGE] == [USAGE, USAGE]


@pytest.mark.parametrize("other", [ReasoningDelta("why"), CALL])
@pytest.mark.clause("SENT-1")
def test_what_comes_between_keeps_its_place(other: RunEvent) -> None:
    """What is held goes first; completed afterwards it is still no whole sentinel."""
    events = [TextDelta("a<|im_"), other, TextDelta("end|>b"), STOP]
    assert obey_the_cuts(Sentinels, events) == [TextDelta("a<|im_"), other, TextDelta("b"), STOP]


def test_a_header_does_not_go_on_over_something_else() -> None:
    """Its name is given as text, before what comes between."""
    events = [TextDelta("a<|channel|>fin"), CALL, TextDelta("al<|message|>b"), STOP]
    out = [TextDelta("afin"), CALL, TextDelta("alb"), STOP]
    assert obey_the_cuts(Sentinels, events) == out


@pytest.mark.parametrize("text", ["a<|im_", "a</s", "a<|channel|>b"])
def test_what_is_held_comes_before_the_finish(text: str) -> None:
    """The finish is the end of the content; a stream without one gives it at its end."""
    left = text.replace("<|channel|>", "")
    assert run(Sentinels(), [TextDelta(text), STOP, USAGE]) == [TextDelta(left), STOP, USAGE]
    assert run(Sentinels(), [TextDelta(text)]) == [TextDelta(left)]


def test_what_it_does_not_know_passes_untouched() -> None:
    """The very same objects, a finish of any reason too."""
    events: list[RunEvent] = [USAGE, CALL, Finish("length"), USAGE]
    out = [one for event in events for one in Sentinels().feed(event)]
    assert [id(one) for one in out] == [id(one) for one in events]


# Bounds


@pytest.mark.clause("SENT-2")
@pytest.mark.parametrize(
    "text", ["a <|im_end b " * 20, "<|begin_of_texX" * 9, "<<|im<|start_of_turX"]
)
def test_ordinary_text_is_held_no_longer_than_it_must(text: str) -> None:
    """Never more than the longest sentinel less its last character, in one chain of beginnings."""
    assert held_at_most(Sentinels, [TextDelta(text)]) <= 2 * LONGEST


@pytest.mark.clause("SENT-1")
@pytest.mark.parametrize("depth", [30, 60, 400])
@pytest.mark.parametrize("start", ["<|im_", "<", "<|im_end|"])
def test_beginnings_within_beginnings_are_bounded_and_still_no_leak(start: str, depth: int) -> None:
    """What is given up as text is remembered: its rest is cut out when it comes after all."""
    rest = "<|im_end|>"[len(start) :]
    assert held_at_most(Sentinels, [TextDelta(start * depth)]) <= MAX_HELD + LONGEST
    out = run(Sentinels(), single([TextDelta(start * depth + rest * depth + "!"), STOP]))
    assert out == run(Sentinels(), [TextDelta(start * depth + rest * depth + "!"), STOP])
    assert not [name for name in KNOWN_SENTINELS if name in content(out)]
    assert content(out).endswith("!")


# Everything together

WORDS = st.sampled_from(
    [
        *KNOWN_SENTINELS,
        "<|im_",
        "end|>",
        "<|",
        "|>",
        "<",
        ">",
        "</s>",
        "</s",
        "한🙂",
        " a ",
        "\n",
        "<|x|>",
        "final",
    ]
)
TEXTS = st.lists(WORDS, max_size=12).map("".join)
EVENTS = st.lists(
    st.one_of(TEXTS.map(TextDelta), TEXTS.map(ReasoningDelta), st.sampled_from([CALL, USAGE])),
    max_size=8,
).map(lambda events: [*events, STOP])


def naive(text: str) -> str:
    """The rule in its plainest form: cut out what is whole, from the left, until nothing is."""
    out = ""
    for char in text:
        out += char
        name = next((name for name in PLAIN if out.endswith(name)), "")
        out = out[: len(out) - len(name)]
    return out


@pytest.mark.clause("SENT-1", "SENT-2")
@given(st.lists(st.sampled_from([*PLAIN, "<|im_", "<|", "end|>", "<", "a", "한"])).map("".join))
def test_it_is_the_plain_rule(text: str) -> None:
    """As long as nothing is given up, the answer is that of a reading of the whole."""
    if held_at_most(Sentinels, [TextDelta(text)]) < MAX_HELD:
        assert content(run(Sentinels(), [TextDelta(text)])) == naive(text)


@pytest.mark.clause("SENT-1", "SENT-2")
@given(st.data(), EVENTS)
def test_no_stream_leaks_and_no_cut_matters(data: st.DataObject, events: list[RunEvent]) -> None:
    """In whatever order and pieces: the same answer, and no whole sentinel in it."""
    whole = run(Sentinels(), events)
    assert run(Sentinels(), data.draw(cut(events))) == whole
    for text in (content(whole), reasoning(whole)):
        assert not [name for name in KNOWN_SENTINELS if name in text]


@given(EVENTS)
def test_the_order_of_all_else_is_kept(events: list[RunEvent]) -> None:
    """Calls, usage and the finish come out as they went in, the finish last."""
    out = run(Sentinels(), events)
    others = [event for event in events if not isinstance(event, TextDelta | ReasoningDelta)]
    assert [e for e in out if not isinstance(e, TextDelta | ReasoningDelta)] == others
    assert out[-1] == STOP
