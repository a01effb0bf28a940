"""Text around both forms of calls and all sentinels, put together at random."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.tools.dialects import CLOSERS, OPENERS
from serve_app.tools.scanner import Scanner
from serve_app.tools.sentinel_names import KNOWN_SENTINELS
from serve_app.tools.toolset import ToolSet
from tests.serve_app.streams.tool_cases import ALL_TOOLS, say

TOOLS = ToolSet(ALL_TOOLS)
WHOLE = (
    "<tool_call><function=ping></function></tool_call>",
    "<function=ping>\n</function>",
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
    '<tool_call>{"name": "ping", "arguments": {}}</tool_call>',
    "{{ping()}}",
    "{{get_weather(city='Rome')}}",
    "{{tag(tags=['a', \"b\"],)}}",
)
PARTS = (
    *OPENERS,
    *CLOSERS,
    "<parameter=city>",
    "<function=ping>",
    "<function=nobody>",
    "{{ping(",
    "{{nobody(a=",
    "city=",
    "'Rome'",
    '"""',
    ")}}",
    "[ARGS]",
    "\\",
    "`",
    "\n",
    " ",
    "a",
    "서",
    "\U0001f324",
)
SIGNS = "<>/{}()[]='\"|_`\\ \n\tab1,:."


def clipped(text: str) -> st.SearchStrategy[str]:
    """A text, whole or a part of it."""
    return st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).map(
        lambda ends: text[min(ends) : max(ends)] or text
    )


ATOMS = st.one_of(
    st.sampled_from(WHOLE),
    st.sampled_from(PARTS),
    st.sampled_from(KNOWN_SENTINELS),
    st.sampled_from((*WHOLE, *PARTS, *KNOWN_SENTINELS)).flatmap(clipped),
    st.text(SIGNS, max_size=4),
)
TEXTS = st.lists(ATOMS, max_size=14).map("".join)


def pieces_of(text: str, places: list[int]) -> list[str]:
    marks = sorted({0, *(place % (len(text) + 1) for place in places), len(text)})
    return [text[start:end] for start, end in pairwise(marks)]


def is_part(shown: str, text: str) -> bool:
    """True where one text is the other less some of its characters."""
    signs = iter(text)
    return all(sign in signs for sign in shown)


@pytest.mark.clause("TEXT-5", "TEXT-7")
@given(TEXTS, st.lists(st.integers(0, 400), max_size=10))
def test_any_text_in_any_pieces(text: str, places: list[int]) -> None:
    """No cut changes a thing, nothing is lost, and no block is shown, not even before an error."""
    told = say(text)
    assert say(list(text)) == told
    assert say(pieces_of(text, places)) == told
    whole = Scanner(TOOLS)
    whole.feed(text)
    whole.end()
    if whole.calls:  # what stood around a block may now look like another one
        assert is_part(told.content, text)
        return
    if told.error is None:
        assert told.content == text
        return
    assert text.startswith(told.content)
    assert text[len(told.content) :].lstrip().startswith(OPENERS)
    shown = Scanner(TOOLS)
    shown.feed(told.content)
    assert shown.failure is None
