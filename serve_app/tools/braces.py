"""Reads `{{name(key=literal, …)}}`, which template code in an answer looks like."""

from __future__ import annotations

from typing import cast

from serve_app.runs import Json
from serve_app.tools.arguments import from_values
from serve_app.tools.calls import BlockError, Call, broken, checked, shown
from serve_app.tools.dialects import (
    BRACES_CLOSE,
    BRACES_HEAD,
    BRACES_HEAD_PART,
    KEY_HEAD,
    KEY_HEAD_PART,
    MAX_UNKNOWN_CHARS,
)
from serve_app.tools.literals import LiteralError, read_keywords
from serve_app.tools.quoted import CutOffError, read_balanced
from serve_app.tools.tape import Reading, Tape
from serve_app.tools.toolset import ToolSet


class BracesReader:
    """Reads calls in braces from a tape.

    Args:
        tape: The text.
        tools: The tools that may be called.
    """

    def __init__(self, tape: Tape, tools: ToolSet) -> None:
        self._tape = tape
        self._tools = tools

    def read(self) -> Reading[list[Call] | None]:
        """`{{name(key=literal, …)}}`."""
        tape = self._tape
        while (head := BRACES_HEAD.match(tape.text, tape.at)) is None:
            waiting = BRACES_HEAD_PART.match(tape.text, tape.at) is not None
            if not waiting or not (yield from tape.more()):
                return None
        name = head["name"]
        start = tape.place
        tape.at = head.end()
        tool = self._tools.get(name)
        if tool is None:
            return (yield from self._unknown_braces(name, start))
        tape.kept = -1
        try:
            values = read_keywords((yield from read_balanced(tape, ")"))[:-1])
            yield from self._end_of_braces()
        except LiteralError as error:
            reason = f"the call of {shown(name)} is not valid: {error}"
            raise BlockError(reason, closer=BRACES_CLOSE) from None
        except CutOffError:
            raise broken(self._tape, "", closer=BRACES_CLOSE) from None
        return [checked(tool, from_values, values, closer="")]

    def _unknown_braces(self, name: str, start: int) -> Reading[None]:
        """What looks like a call of no tool: one only if all of it is there, else template code."""
        tape = self._tape
        while KEY_HEAD.match(tape.text, tape.at) is None:
            waiting = KEY_HEAD_PART.match(tape.text, tape.at) is not None
            if not waiting or not (yield from tape.more()):
                return
        try:
            values = yield from self._short_call(start)
        except (LiteralError, CutOffError):
            return
        if values and tape.place - start <= MAX_UNKNOWN_CHARS:
            raise BlockError(f"the tool {shown(name)} was not offered", closer="")

    def _short_call(self, start: int) -> Reading[Json]:
        """The arguments of a call, given up where it is too long."""
        tape = self._tape
        reading = read_balanced(tape, ")")
        while True:
            try:
                next(reading)
            except StopIteration as end:
                values = read_keywords(cast("str", end.value)[:-1])
                break
            if tape.dropped + len(tape.text) - start > MAX_UNKNOWN_CHARS:
                raise LiteralError("it is too long")
            yield
        yield from self._end_of_braces()
        return values

    def _end_of_braces(self) -> Reading[None]:
        """`}}`."""
        tape = self._tape
        yield from tape.skip_gap()
        if (yield from tape.next_of((BRACES_CLOSE,))) is None:
            if tape.closed and tape.at >= len(tape.text) - 1:
                raise CutOffError
            raise LiteralError("it does not end with '}}'")
        tape.at += len(BRACES_CLOSE)
