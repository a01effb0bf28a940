"""Reads JSON calls in a `<tool_call>` wrapper."""

from __future__ import annotations

from typing import cast

from serve_app.runs import Json
from serve_app.tools.arguments import from_values
from serve_app.tools.calls import BlockError, Call, broken, checked, shown
from serve_app.tools.dialects import WRAPPER_CLOSE
from serve_app.tools.literals import LiteralError, read_literal
from serve_app.tools.quoted import CutOffError, read_balanced
from serve_app.tools.restore import read_json
from serve_app.tools.tape import Reading, Tape
from serve_app.tools.toolset import ToolSet


class ObjectReader:
    """Reads objects that name a function and its arguments.

    Args:
        tape: The text.
        tools: The tools that may be called.
    """

    def __init__(self, tape: Tape, tools: ToolSet) -> None:
        self._tape = tape
        self._tools = tools

    def read(self) -> Reading[list[Call]]:
        """`{"name": …, "arguments": …}`, one or several, and the end of the wrapper."""
        tape = self._tape
        calls: list[Call] = []
        while True:
            try:
                text = yield from read_balanced(tape)
            except LiteralError as error:
                raise BlockError(f"the block is not valid: {error}") from None
            except CutOffError:
                raise broken(self._tape, "") from None
            calls += self._calls(text)
            yield from tape.skip_gap()
            first = yield from tape.peek(1)
            if first in "{[" and first:
                continue
            if (yield from tape.next_of((WRAPPER_CLOSE,))) is None:
                raise broken(self._tape, "the block goes on after its call")
            tape.at += len(WRAPPER_CLOSE)
            return calls

    def _calls(self, text: str) -> list[Call]:
        """The calls in a JSON text."""
        try:
            value = read_json(text)
        except ValueError:
            try:
                value = read_literal(text)
            except LiteralError as error:
                raise BlockError(f"the block is no JSON: {error}") from None
        listed = cast("list[object]", value if isinstance(value, list) else [value])
        if not listed:
            raise BlockError("the block has no function")
        return [self._call(item) for item in listed]

    def _call(self, item: object) -> Call:
        fields = cast("Json", item) if isinstance(item, dict) else {}
        name = fields.get("name")
        arguments: object = fields.get("arguments", fields.get("parameters", {}))
        if not isinstance(name, str):
            raise BlockError("the block names no function")
        tool = self._tools.get(name.strip())
        if tool is None:
            raise BlockError(f"the tool {shown(name)} was not offered")
        if isinstance(arguments, str):
            try:
                arguments = read_json(arguments) if arguments.strip() else {}
            except ValueError:
                arguments = None
        if not isinstance(arguments, dict):
            raise BlockError(f"the arguments of {shown(name)} are no object")
        return checked(tool, from_values, cast("Json", arguments), closer=WRAPPER_CLOSE)
