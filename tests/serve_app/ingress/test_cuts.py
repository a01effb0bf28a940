"""However an upstream's bytes are cut, the caller gets the same (clause CHAT-5)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

import pytest

from serve_app.errors import Code, UpstreamProtocolError
from tests.fakes.answers import GOLDEN
from tests.fakes.sse import DONE, answer_text, chunk, finish, frame, frames, role, usage
from tests.serve_app.ingress.canned import CannedEdge, canned

KOREAN = b"".join(answer_text("안녕", " 🙂👍🏽 é", " 끝", with_usage=True))

GOOD = {
    "simple": b"".join(answer_text("He", "llo", with_usage=True)),
    "many bytes a character": KOREAN,
    "crlf": KOREAN.replace(b"\n", b"\r\n"),
    "cr": KOREAN.replace(b"\n", b"\r"),
    "comments": KOREAN.replace(b"data: {", b": ping\n\n:\ndata: {"),
    "byte order mark": b"\xef\xbb\xbf" + KOREAN,
    "data in two lines": KOREAN.replace(b', "obj', b',\ndata: "obj'),
    "no done": frames([role(), chunk("끝"), finish(), usage()]),
    "no last line end": KOREAN.rstrip(b"\n"),
}

#: Streams that fail, with the deltas that come before it.
BAD: dict[str, tuple[bytes, list[str]]] = {
    "no finish": (frames([role(), chunk("a"), chunk("b")], done=True), ["a", "b"]),
    "broken frame": (frames([role(), chunk("a"), '{"choices":[{', chunk("b"), finish()]), ["a"]),
    "error object": (frames([role(), chunk("a"), {"error": {"message": "boom"}}]), ["a"]),
    "gave up": (frames([role(), chunk("a"), finish("abort")], done=True), ["a"]),
    "goes on": (frames([role(), chunk("a"), finish(), chunk("b")], done=True), ["a"]),
    "error after all": (frames([role(), chunk("a"), finish(), {"error": "boom"}]), ["a"]),
    "bare message": (frames([role(), chunk("a"), {"message": "boom"}, finish()]), ["a"]),
    "broken at once": (frames(["nonsense", chunk("a"), finish()], done=True), []),
}

#: Whole by their finish reason; what comes after it does not matter any more.
WHOLE = {
    "garbage after the finish": frames([role(), chunk("a"), finish(), "nonsense"]),
    "cut after the finish": frames([role(), chunk("a"), finish()]) + b'data: {"usage',
    "garbage after the end": frames([role(), chunk("a"), finish(), DONE, "nonsense", chunk("b")]),
}

#: Every recorded stream of a real server, by its place in the folder.
RECORDED = {
    f"{path.parent.name}/{path.stem}": path.read_bytes() for path in sorted(GOLDEN.glob("*/*.sse"))
}


@pytest.fixture
async def edge() -> AsyncGenerator[CannedEdge]:
    """The application over an upstream that has its bytes ready."""
    async with canned() as application:
        yield application


def texts(answer: bytes) -> list[str]:
    """The pieces of text of a stream."""
    events = [line[6:] for line in answer.split(b"\n\n") if line.startswith(b"data: {")]
    choices = [json.loads(event).get("choices") for event in events]
    deltas = [choice[0]["delta"] for choice in choices if choice]
    return [delta["content"] for delta in deltas if delta.get("content")]


@pytest.mark.clause("CHAT-5")
@pytest.mark.parametrize("data", GOOD.values(), ids=GOOD)
async def test_a_stream_in_two_writes_cut_anywhere(edge: CannedEdge, data: bytes) -> None:
    """Every position of the cut gives the same frames, and the same object."""
    streamed = await edge.ask(data, stream=True)
    whole = await edge.ask(data, stream=False)
    assert streamed[1].endswith(DONE)
    for at in range(1, len(data)):
        assert await edge.ask(data[:at], data[at:], stream=True) == streamed, at
        assert await edge.ask(data[:at], data[at:], stream=False) == whole, at
    assert whole[0] == streamed[0] == 200


@pytest.mark.clause("CHAT-5")
@pytest.mark.parametrize("data", RECORDED.values(), ids=RECORDED)
async def test_a_recording_byte_by_byte_and_cut_here_and_there(
    edge: CannedEdge, data: bytes
) -> None:
    """What a real server sent gives one and the same answer, in one piece or in thousands."""
    for stream in (True, False):
        expected = await edge.ask(data, stream=stream)
        single = [data[at : at + 1] for at in range(len(data))]
        assert await edge.ask(*single, stream=stream) == expected
        for at in range(1, len(data), 17):
            assert await edge.ask(data[:at], data[at:], stream=stream) == expected, at


@pytest.mark.clause("ERR-1")
@pytest.mark.parametrize(("data", "before"), BAD.values(), ids=BAD)
async def test_a_broken_stream_cut_anywhere(
    edge: CannedEdge, data: bytes, before: list[str]
) -> None:
    """What came before the fault is passed on, then an error and no `[DONE]`, for every cut."""
    streamed = await edge.ask(data, stream=True)
    whole = await edge.ask(data, stream=False)
    assert whole[0] == 502
    assert streamed[0] == (200 if before else 502)
    assert texts(streamed[1]) == before
    assert DONE not in streamed[1]
    assert streamed[1].endswith(whole[1] + b"\n\n" * bool(before))
    for at in range(1, len(data)):
        assert await edge.ask(data[:at], data[at:], stream=True) == streamed, at
        assert await edge.ask(data[:at], data[at:], stream=False) == whole, at


@pytest.mark.parametrize("data", WHOLE.values(), ids=WHOLE)
async def test_what_follows_the_finish_does_not_spoil_an_answer(
    edge: CannedEdge, data: bytes
) -> None:
    """An answer with its finish reason is whole, whatever comes then and however it is cut."""
    streamed = await edge.ask(data, stream=True)
    assert streamed[0] == 200
    assert texts(streamed[1]) == ["a"]
    assert streamed[1].endswith(DONE)
    for at in range(1, len(data)):
        assert await edge.ask(data[:at], data[at:], stream=True) == streamed, at
        assert (await edge.ask(data[:at], data[at:], stream=False))[0] == 200, at


@pytest.mark.clause("ERR-1")
async def test_a_connection_lost_anywhere(edge: CannedEdge) -> None:
    """Before the first text a status, after it an error event, after the finish nothing lost."""
    data = b"".join(answer_text("안녕", "끝", with_usage=True))
    text_at = data.index(b"}\n\n", data.index("안녕".encode())) + 3
    finish_at = data.index(b"}\n\n", data.index(b'"stop"')) + 3
    lost = UpstreamProtocolError("It is gone.", code=Code.UPSTREAM_DISCONNECTED)
    for at in range(finish_at + 40, 0, -7):
        status, streamed = await edge.ask(data[:at], stream=True, end=lost)
        assert status == (502 if at < text_at else 200), at
        assert streamed.endswith(DONE) == (at >= finish_at), at
        assert (b'"error"' in streamed) == (at < finish_at), at
        if at < text_at:
            break


@pytest.mark.clause("ERR-1")
async def test_one_event_without_end_is_not_kept_for_ever(edge: CannedEdge) -> None:
    """A line that never ends is a fault of the upstream once it is too long."""
    start = frame(chunk("a"))
    endless = [b"data: " + b"x" * 2**20] + [b"x" * 2**20] * 20
    status, streamed = await edge.ask(start, *endless, stream=True)
    assert status == 200
    assert b"upstream_protocol_error" in streamed
