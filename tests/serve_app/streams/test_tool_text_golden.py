"""Cases of tool calls in text: what comes of each, however its text is cut."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.runs import Json
from tests.serve_app.streams.feeding import cut
from tests.serve_app.streams.tool_cases import (
    Told,
    cases,
    chunk_events,
    cuts,
    feed,
    reply_events,
    same,
    step,
)

#: Sentinels in text are taken out by a later step.
SENTINELS_IN_TEXT = {
    "sentinel_content.01",
    "sentinel_content.02",
    "sentinel_content.03",
    "sentinel_content.04",
    "sentinel_reasoning.02",
    "am.sentinel_eos_s.01",
    "am.sentinel_tool_call_end.01",
    "st.stream_sentinel_split.01",
    "st.stream_sentinel_split.03",
}
#: Thinking that stands in the content is told apart by an earlier step.
THINKING_IN_TEXT = {"am.think_tags_in_content.01"}
ELSEWHERE = SENTINELS_IN_TEXT | THINKING_IN_TEXT

ANSWERS = {
    name: case
    for name, case in (cases("cases") | cases("decided")).items()
    if case["request"].get("tools") and name not in ELSEWHERE
}
STREAMS = {
    name: case
    for name, case in cases("streams").items()
    if case["request"].get("tools") and name not in ELSEWHERE
}
MARKER = re.compile(r"<tool_|</tool_|<function|<parameter|\{\{")


def expected(case: Json) -> Json:
    return case.get("expect") or case["options"][case["recommendation"]]


def reply(case: Json) -> Json:
    """The reply that the expectation is about: of several the last, the others being refused."""
    return case["provider_replies"][-1] if "provider_replies" in case else case["provider_reply"]


def run(case: Json, pieces: list[str]) -> Told:
    request = case["request"]
    stage = step(request["tools"], request.get("tool_choice"))
    return feed(stage, reply_events(reply(case), pieces))


def squeezed(text: str | None) -> str:
    return " ".join((text or "").split())


def check(told: Told, wanted: Json) -> None:
    """Compare a turn with what a case expects."""
    if wanted["outcome"] == "tool_validation_error":
        assert told.error
        assert not MARKER.search(told.content)
        return
    assert told.error is None
    assert same(
        [[one["name"], one["arguments"]] for one in wanted["tool_calls"]],
        [list(one) for one in told.calls],
    )
    assert told.turn.finish_reason == wanted["finish_reason"]
    if wanted["outcome"] == "tool_calls":
        assert squeezed(told.content) == squeezed(wanted["content"])
    else:
        assert told.content == (wanted["content"] or "")


@pytest.mark.clause("TOOL-4", "TOOL-5", "TEXT-1", "TEXT-2", "TEXT-3", "TEXT-5", "TEXT-7")
@pytest.mark.parametrize("name", ANSWERS)
def test_what_comes_of_an_answer(name: str) -> None:
    """Calls, text or an error, and the same for every cut of the text."""
    case = ANSWERS[name]
    first = None
    for pieces in cuts(reply(case).get("content") or ""):
        told = run(case, pieces)
        check(told, expected(case))
        first = first or told
        assert told == first


@pytest.mark.clause("TEXT-2", "TEXT-3", "TEXT-5")
@pytest.mark.parametrize("name", STREAMS)
def test_what_comes_of_a_stream(name: str) -> None:
    """Calls, text or an error, from chunks as they come."""
    case = STREAMS[name]
    check(feed(step(case["request"]["tools"]), chunk_events(case)), case["expect"])


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, case in cases("cases").items()
        if case.get("provider_replies") and case["kind"] == "retry_then_success"
    ],
)
def test_a_reply_that_is_asked_for_again(name: str) -> None:
    """The first of several replies is refused here; to ask again is another part's."""
    case = cases("cases")[name]
    refused = case | {"provider_replies": case["provider_replies"][:1]}
    text = reply(refused)["content"]
    assert all(run(refused, pieces).error for pieces in cuts(text))


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_no_cut_changes_an_answer(data: st.DataObject) -> None:
    """Cuts at several places at once."""
    case = ANSWERS[data.draw(st.sampled_from(sorted(ANSWERS)))]
    text = (reply(case).get("content") or "").encode("utf-32-le")
    places = data.draw(st.lists(st.integers(0, len(text) // 4), max_size=8))
    pieces = [piece.decode("utf-32-le") for piece in cut(text, [4 * place for place in places])]
    assert run(case, pieces) == run(case, [text.decode("utf-32-le")])


@pytest.mark.clause("TEXT-5", "TEXT-7")
def test_prose_flows_on() -> None:
    """Of text that holds no block hardly more than a marker's length ever waits."""
    prose = [case for case in ANSWERS.values() if expected(case)["outcome"] == "content"]
    most = max(
        held for case in prose for held in run(case, list(reply(case)["content"] or "")).held
    )
    assert 10 <= most <= 19


ARGUMENTS = cases("arguments")


def argument_reply(case: Json) -> Json:
    """An upstream's reply with one call of these arguments."""
    given_text = case["arguments_in"]
    if case["mode"] == "native_json":
        call = {"id": "c", "function": {"name": "subject", "arguments": given_text}}
        return {"tool_calls": [call], "finish_reason": "tool_calls"}
    if case["mode"] == "mustache_args":
        return {"content": f"{{{{subject({given_text})}}}}"}
    if case["mode"] == "text_json":
        given_text = "".join(
            f"<parameter={key}>{one if isinstance(one, str) else json.dumps(one)}</parameter>"
            for key, one in json.loads(given_text).items()
        )
    return {"content": f"<tool_call><function=subject>{given_text}</function></tool_call>"}


@pytest.mark.clause("TOOL-5", "ARGS-1", "ARGS-2", "ARGS-3", "ARGS-4")
@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_comes_of_arguments(name: str) -> None:
    """Arguments in the shape that the schema wants, or an error."""
    case = ARGUMENTS[name]
    subject = {"name": "subject", "parameters": case["schema"]}
    answer = argument_reply(case)
    for pieces in cuts(answer.get("content") or ""):
        told = feed(step([{"function": subject}]), reply_events(answer, pieces))
        if "error" in case:
            assert told.error
        else:
            assert told.error is None
            assert same(case["arguments_out"], told.calls[0][1])
