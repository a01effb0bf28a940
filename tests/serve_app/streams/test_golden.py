"""Recorded streams of real servers: what each means, and that no cut changes it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.errors import Code, UpstreamError
from serve_app.runs import FinishReason, Usage
from serve_app.streams.chat_encode import ChatEncoder
from tests.serve_app.streams.feeding import cut, drain, events_of, folded, single, sse_data

FOLDER = Path(__file__).parents[2] / "golden" / "providers"
FILES = {f"{path.parent.name}/{path.stem}": path for path in sorted(FOLDER.glob("*/*.sse"))}
each_file = pytest.mark.parametrize("name", FILES)


def read(name: str) -> bytes:
    return FILES[name].read_bytes()


class Told(NamedTuple):
    """What a recording says, in short."""

    content: str | None
    reasoning: str | None
    calls: list[str]
    reason: FinishReason
    usage: Usage | None


def usage(prompt: int, completion: int, **details: int) -> Usage:
    return Usage(prompt, completion, prompt + completion, **details)


PARIS = "The capital of France is Paris"
WEATHER = "The weather in Paris is described as a w"

#: Recording → the first 40 characters of its texts, the names called, reason and counts.
TOLD: dict[str, Told] = {
    "llama_server/non_ascii": Told(WEATHER, None, [], "length", None),
    "llama_server/reasoning": Told("ok done", "hmm\n", [], "stop", None),
    "llama_server/tool_auto": Told("Paris is very hot in Paris.", None, [], "stop", None),
    "llama_server/tool_call_cut_off": Told(
        None, None, ["get_weather", "get_weather"], "length", usage(208, 60, cached_tokens=207)
    ),
    "llama_server/usage": Told(PARIS, None, [], "length", usage(43, 6, cached_tokens=42)),
    "vllm/forced_tool_all_reasoning": Told(None, WEATHER, [], "stop", None),
    "vllm/reasoning": Told(None, PARIS + ".", [], "stop", None),
    "vllm/tool_call_auto": Told("Ok. ", None, ["get_weather"], "tool_calls", None),
    "vllm/tool_call_forced": Told(
        None, None, ["get_weather"], "tool_calls", usage(199, 49, reasoning_tokens=0)
    ),
    "vllm/usage": Told("The capital of", None, [], "length", usage(22, 3)),
    "vllm/usage_in_every_chunk": Told("The capital", None, [], "length", usage(22, 2)),
    "vllm_mlx/heartbeat_and_reasoning": Told(
        None, "Paris, France, the capital of art and cu", [], "length", usage(218, 24)
    ),
    "vllm_mlx/usage": Told("The capital of", None, [], "length", usage(22, 3)),
    "vllm_mlx/usage_on_content": Told("\nA:", None, [], "length", usage(31, 3)),
    "xllamacpp/usage": Told(PARIS, None, [], "length", usage(22, 6, cached_tokens=21)),
}
#: The one that is an error from the start.
FAILED = "vllm_mlx/error_in_a_200"


def test_every_recording_is_under_test() -> None:
    """A new recording needs its line above."""
    assert set(FILES) == {*TOLD, FAILED}


@pytest.mark.parametrize("name", TOLD)
def test_a_recording_means_this(name: str) -> None:
    """Decoded and collected, each real stream says what its server meant."""
    turn = folded(events_of(sse_data([read(name)])))
    told = Told(
        turn.content and turn.content[:40],
        turn.reasoning and turn.reasoning[:40],
        [call.name for call in turn.tool_calls],
        turn.finish_reason,
        turn.usage,
    )
    assert told == TOLD[name]


def test_an_error_inside_a_200_is_an_error() -> None:
    """A server that says 200 and fails then is a server that failed."""
    with pytest.raises(UpstreamError) as caught:
        events_of(sse_data([read(FAILED)]))
    assert (caught.value.status, caught.value.code) == (502, Code.UPSTREAM_ERROR)
    assert "Internal server error" in caught.value.message


@each_file
def test_a_cut_at_any_byte_changes_nothing(name: str) -> None:
    """Every single place of every recording."""
    raw = read(name)
    whole = sse_data([raw])
    for place in range(1, len(raw)):
        assert sse_data((raw[:place], raw[place:])) == whole, place


@each_file
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_bytes_one_by_one_change_nothing(name: str, line_end: bytes) -> None:
    """The slowest connection there is, for each kind of line end."""
    raw = read(name)
    assert sse_data(single(raw.replace(b"\n", line_end))) == sse_data([raw])


@settings(deadline=None, max_examples=50)
@given(name=st.sampled_from(sorted(TOLD)), places=st.lists(st.integers(0, 13_000), max_size=40))
def test_any_cuts_change_no_event(name: str, places: list[int]) -> None:
    """From bytes to events, in any pieces: the same events in the same order."""
    raw = read(name)
    assert events_of(sse_data(cut(raw, places))) == events_of(sse_data([raw]))


@pytest.mark.parametrize("name", TOLD)
def test_a_recording_comes_through_us_whole(name: str) -> None:
    """Encoded for a caller and decoded again, a real stream is the same turn."""
    turn = folded(events_of(sse_data([read(name)])))
    encoder = ChatEncoder(
        completion_id="chatcmpl-1", created=1, model="m", include_usage=turn.usage is not None
    )
    frames = drain(encoder, events_of(sse_data([read(name)])))
    assert folded(events_of(sse_data(frames))) == turn


@pytest.mark.parametrize("name", TOLD)
def test_a_recording_that_is_cut_off_is_an_error(name: str) -> None:
    """Up to its finish reason, a stream that ends at any event is broken."""
    data = sse_data([read(name)])
    end = next(at for at, one in enumerate(data) if b'"finish_reason":"' in one)
    for kept in range(end + 1):
        with pytest.raises(UpstreamError) as caught:
            events_of(data[:kept])
        assert caught.value.code is Code.UPSTREAM_DISCONNECTED
    assert folded(events_of(data[: end + 1])).finish_reason == TOLD[name].reason
