"""Which reader reads a block, by the marker that opens it.

A reader returns the calls of a block; or `None` where the marker was only spoken of, and then
nothing behind the marker counts as read. A block that is broken raises `BlockError`.
"""

from __future__ import annotations

from serve_app.tools.braces import BracesReader
from serve_app.tools.calls import BlockError, Call
from serve_app.tools.dialects import (
    BRACES_OPEN,
    FUNCTION_OPEN,
    MARKED_CALLS,
    MARKED_CALLS_PART,
    WRAPPER_OPEN,
)
from serve_app.tools.functions import FunctionReader
from serve_app.tools.tape import Reading, Tape
from serve_app.tools.toolset import ToolSet


class BlockReader:
    """Reads blocks from a tape.

    Args:
        tape: The text.
        tools: The tools that may be called.
    """

    def __init__(self, tape: Tape, tools: ToolSet) -> None:
        self._tape = tape
        self._functions = FunctionReader(tape, tools)
        self._in_braces = BracesReader(tape, tools)

    def read(self, opener: str) -> Reading[list[Call] | None]:
        """Read the block that this marker, which stands here, may have opened."""
        tape = self._tape
        tape.kept = tape.at
        if opener == BRACES_OPEN:
            return (yield from self._in_braces.read())
        tape.at += len(opener)
        if opener == WRAPPER_OPEN:
            return (yield from self._functions.wrapper())
        if opener == FUNCTION_OPEN:
            return (yield from self._functions.bare())
        return (yield from _read_marked(tape))


def _read_marked(tape: Tape) -> Reading[None]:
    """`[TOOL_CALLS]`: where calls follow it is of a form that is not read."""
    while MARKED_CALLS.match(tape.text, tape.at) is None:
        waiting = MARKED_CALLS_PART.match(tape.text, tape.at) is not None
        if not waiting:
            return
        if not (yield from tape.more()):
            if tape.text[tape.at :].strip():
                return
            break
    raise BlockError("the calls are written in a form that is not known", closer="")
