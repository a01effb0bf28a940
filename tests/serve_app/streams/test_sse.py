"""Server-sent events: every way to write and to cut them."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.errors import Code, UpstreamProtocolError
from serve_app.streams.sse import SseDecoder, frame
from tests.serve_app.streams.feeding import cut, drain, single, sse_data

CASES: dict[str, tuple[bytes, list[bytes]]] = {
    "nothing": (b"", []),
    "one": (b"data: a\n\n", [b"a"]),
    "two": (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
    "no-space": (b"data:a\n\n", [b"a"]),
    "only-one-space-goes": (b"data:  a \n\n", [b" a "]),
    "tab-stays": (b"data:\ta\n\n", [b"\ta"]),
    "colon-in-data": (b"data: a: b\n\n", [b"a: b"]),
    "crlf": (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
    "cr": (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
    "mixed": (b"data: a\r\n\ndata: b\n\r\ndata: c\r\r\ndata: d\n\r", [b"a", b"b", b"c", b"d"]),
    "cr-lf-lf-is-one-end-and-one-blank": (b"data: a\r\n\ndata: b\r\n\n", [b"a", b"b"]),
    "comment": (b": ping\n\ndata: a\n\n", [b"a"]),
    "comment-inside": (b"data: a\n: x\ndata: b\n\n", [b"a\nb"]),
    "empty-comments": (b":\n:\n\n:\n\ndata: a\n\n", [b"a"]),
    "multi-line": (b"data: {\ndata:  1\ndata: }\n\n", [b"{\n 1\n}"]),
    "empty-data": (b"data:\n\ndata: \n\ndata\n\ndata: a\n\n", [b"a"]),
    "empty-line-of-data": (b"data: a\ndata\ndata: b\n\n", [b"a\n\nb"]),
    "other-fields": (b"event: x\nid: 1\nretry: 5\nfoo: y\nbar\ndata: a\n\n", [b"a"]),
    "event-without-data": (b"event: x\n\ndata: a\n\n", [b"a"]),
    "near-misses": (b"data : a\nDATA: b\n data: c\ndatax: d\n\ndata: e\n\n", [b"e"]),
    "blank-lines": (b"\n\n\ndata: a\n\n\n\n", [b"a"]),
    "no-last-blank-line": (b"data: a\n\ndata: b\n", [b"a", b"b"]),
    "no-last-line-end": (b"data: a\n\ndata: b", [b"a", b"b"]),
    "no-last-line-end-cr": (b"data: a\r\rdata: b\r", [b"a", b"b"]),
    "half-a-field-name-at-the-end": (b"data: a\n\ndat", [b"a"]),
    "byte-order-mark": (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
    "byte-order-mark-alone": (b"\xef\xbb\xbf", []),
    "byte-order-mark-later": (b"data: a\n\n\xef\xbb\xbfdata: b\n\ndata: c\n\n", [b"a", b"c"]),
    "two-byte-order-marks": (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", [b"b"]),
    "korean-and-emoji": (
        "data: 안녕 👩‍👩‍👧‍👦 é\n\ndata: 끝\n\n".encode(),
        ["안녕 👩‍👩‍👧‍👦 é".encode(), "끝".encode()],
    ),
    "unicode-line-ends": (
        "data: a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\n\n".encode(),
        ["a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg".encode()],
    ),
    "not-utf8": (b"data: \xff\xfe\x00\n\n", [b"\xff\xfe\x00"]),
    "done": (b"data: a\n\ndata: [DONE]\n\n", [b"a", b"[DONE]"]),
}
each_case = pytest.mark.parametrize(
    ("raw", "expected"), [pytest.param(*case, id=name) for name, case in CASES.items()]
)


@each_case
def test_the_data_of_each_event_is_given(raw: bytes, expected: list[bytes]) -> None:
    """Fed whole, each event's data comes out, and nothing else."""
    assert sse_data([raw]) == expected


@each_case
def test_a_cut_anywhere_changes_nothing(raw: bytes, expected: list[bytes]) -> None:
    """Every single place, between the bytes of a character and of a line end too."""
    for place in range(len(raw) + 1):
        assert sse_data(cut(raw, [place])) == expected, place


@each_case
def test_byte_by_byte_changes_nothing(raw: bytes, expected: list[bytes]) -> None:
    """One byte a read, with an empty read after each."""
    assert sse_data(single(raw)) == expected
    assert sse_data([piece for byte in single(raw) for piece in (byte, b"")]) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(*case, id=name)
        for name, case in CASES.items()
        if not case[0].startswith(b"\xef\xbb\xbf")  # which belongs to the start
    ],
)
def test_what_came_before_changes_nothing(raw: bytes, expected: list[bytes]) -> None:
    """After an earlier event the short way for whole events gives the same as the long one."""
    assert sse_data([b"data: 0\n\n", raw]) == [b"0", *expected]


@settings(deadline=None)
@given(
    lines=st.lists(
        st.sampled_from(
            [
                b"data: {}",
                b"data:a",
                b"data",
                b"data: ",
                b": c",
                b"event: x",
                b"",
                b"",
                "data: 한🙂\u2028\u0085".encode(),
                b"\xef\xbb\xbfdata: x",
                b"dat",
            ]
        )
    ),
    ends=st.lists(st.sampled_from([b"\n", b"\r", b"\r\n"]), min_size=1),
    places=st.lists(st.integers(0, 200)),
)
def test_any_text_in_any_pieces_gives_the_same(
    lines: list[bytes], ends: list[bytes], places: list[int]
) -> None:
    """Lines of all kinds with line ends of all kinds: the cuts never show."""
    raw = b"".join(line + ends[at % len(ends)] for at, line in enumerate(lines))
    whole = sse_data([raw])
    assert sse_data(cut(raw, places)) == whole
    assert sse_data(single(raw)) == whole


@given(st.lists(st.binary(min_size=1).filter(lambda d: not {10, 13} & set(d))))
def test_what_is_framed_is_found_again(items: list[bytes]) -> None:
    """`frame` and the decoder are each other's inverse, for data without line ends."""
    assert sse_data([b"".join(map(frame, items))]) == items


def test_an_event_is_given_as_soon_as_it_is_whole() -> None:
    """Nothing is held back that is certain: the blank line's own byte is enough."""
    decoder = SseDecoder()
    steps = [b"data: a\r", b"\n", b"\r", b"\ndata: b\n\nda", b"ta: c", b"\n\n"]
    assert [decoder.feed(step) for step in steps] == [[], [], [b"a"], [b"b"], [], [b"c"]]


@each_case
def test_after_the_end_comes_nothing(raw: bytes, expected: list[bytes]) -> None:
    """A second `finish` gives nothing more."""
    decoder = SseDecoder()
    assert drain(decoder, [raw]) == expected
    assert decoder.finish() == []


LIMIT = 100
TOO_LARGE = {
    "one-line": b"data: " + b"x" * LIMIT + b"\n\n",
    "one-line-that-never-ends": b"data: " + b"x" * 10 * LIMIT,
    "many-lines": b"data: xxxx\n" * 11,
    "many-empty-lines": b"data:\n" * 30,
    "comment": b":" * 2 * LIMIT + b"\n",
    "no-field": b"x" * (LIMIT + 1),
    "line-after-lines": b"data: " + b"x" * 50 + b"\n: " + b"y" * 60,
}


@pytest.mark.parametrize("raw", TOO_LARGE.values(), ids=TOO_LARGE)
@pytest.mark.parametrize("size", [1, 7, LIMIT, 10**6])
def test_an_event_that_is_too_large_is_refused(raw: bytes, size: int) -> None:
    """However it comes in pieces, and before an end of it is in sight."""
    decoder = SseDecoder(max_event_bytes=LIMIT)
    with pytest.raises(UpstreamProtocolError) as caught:
        drain(decoder, [b"data: ok\n\n", *cut(raw, range(size, len(raw), size))])
    assert caught.value.code is Code.UPSTREAM_PROTOCOL_ERROR


@pytest.mark.parametrize("size", [1, 7, LIMIT, 10**6])
def test_an_event_of_just_the_limit_is_given(size: int) -> None:
    """Only what one event holds counts: not those around it, nor comments between them."""
    event = b"data: " + b"x" * (LIMIT - 6) + b"\n"
    raw = (event + b"\n") * 3 + b": ping\n" * 50 + event + b"\n"
    pieces = cut(raw, range(size, len(raw), size))
    assert drain(SseDecoder(max_event_bytes=LIMIT), pieces) == [b"x" * (LIMIT - 6)] * 4


def test_an_endless_event_is_bounded_in_memory() -> None:
    """An upstream that sends 64 MiB without a line end is stopped at the limit."""
    pieces = (b"x" * size for size in [2**16] * 2**10)
    tracemalloc.start()
    try:
        with pytest.raises(UpstreamProtocolError, match="1 MiB"):
            drain(SseDecoder(max_event_bytes=2**20), pieces)
        assert 2**20 < tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_the_long_way_takes_what_the_short_way_leaves() -> None:
    """A piece that ends in the middle of an event goes on where it was cut."""
    decoder = SseDecoder()
    given = [decoder.feed(piece) for piece in (b"data: a\n\n", b"data: b\n\nda", b"ta: c\n\n")]
    assert given == [[b"a"], [b"b"], [b"c"]]
