"""Reads `<tool_call>` blocks, and functions whose wrapper is not there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from serve_app.tools.arguments import from_texts
from serve_app.tools.calls import BlockError, Call, broken, checked, shown
from serve_app.tools.dialects import (
    BROKEN_IN_WRAPPER,
    FUNCTION_CLOSE,
    FUNCTION_OPEN,
    MAX_KEY_CHARS,
    MAX_NAME_CHARS,
    PARAMETER_CLOSE,
    PARAMETER_OPEN,
    WRAPPER_CLOSE,
)
from serve_app.tools.kinds import named
from serve_app.tools.objects import ObjectReader
from serve_app.tools.tape import Reading, Tape
from serve_app.tools.toolset import Tool, ToolSet

#: A function that is opened inside a value.
_OPENED: Final = re.compile(r"<function=[^<>\s]+>")


class FunctionReader:
    """Reads blocks of functions from a tape.

    Args:
        tape: The text.
        tools: The tools that may be called.
    """

    def __init__(self, tape: Tape, tools: ToolSet) -> None:
        self._tape = tape
        self._tools = tools
        self._objects = ObjectReader(tape, tools)

    def wrapper(self) -> Reading[list[Call] | None]:
        """What stands in `<tool_call>`."""
        tape = self._tape
        if (yield from self._is_mention()):
            return None
        tape.kept = -1
        if tape.text.startswith(("{", "["), tape.at):
            return (yield from self._objects.read())
        tag = yield from tape.next_of((FUNCTION_OPEN,))
        if tag is None:
            raise broken(self._tape, "the block has no function")
        calls: list[Call] = []
        while tag == FUNCTION_OPEN:
            tape.at += len(FUNCTION_OPEN)
            tool = yield from self._tool()
            calls.append((yield from self._function(tool, WRAPPER_CLOSE)))
            yield from tape.skip_gap()
            tag = yield from tape.next_of((FUNCTION_OPEN, WRAPPER_CLOSE))
        if tag is None:
            raise broken(self._tape, "the block goes on after its function")
        tape.at += len(WRAPPER_CLOSE)
        return calls

    def _is_mention(self) -> Reading[bool]:
        """True where what follows an opening tag says that the tag was only spoken of."""
        tape = self._tape
        yield from tape.skip_gap()
        first = yield from tape.peek(1)
        if first != "<":
            return bool(first) and first not in "{[" and not (first.isalnum() or first.isspace())
        tags = (FUNCTION_OPEN, *BROKEN_IN_WRAPPER)
        if (yield from tape.next_of(tags)) is not None:
            return False
        rest = tape.text[tape.at :]
        return rest.startswith("</") and not any(tag.startswith(rest) for tag in tags)

    def bare(self) -> Reading[list[Call] | None]:
        """A function without its wrapper: a call only where it names a tool."""
        tape = self._tape
        name = yield from tape.name(MAX_NAME_CHARS)
        if name is None:
            yield from self._unclosed_name()
            return None
        tool = self._tools.get(name)
        if tool is None or (yield from self._is_mention()):
            return None
        tape.kept = -1
        return [(yield from self._function(tool, ""))]

    def _unclosed_name(self) -> Reading[None]:
        """A tag without its `>` is broken where it names a tool and another tag follows."""
        tape = self._tape
        name, tag, _ = tape.text[tape.at : tape.at + MAX_NAME_CHARS + 1].partition("<")
        if tag and name.strip() in self._tools:
            tape.at += len(name)
            if (yield from tape.next_of((PARAMETER_OPEN, FUNCTION_CLOSE))) is not None:
                raise BlockError(f"the tag that names the tool {shown(name.strip())} is not closed")

    def _tool(self) -> Reading[Tool]:
        """The tool that `<function=` names."""
        name = yield from self._tape.name(MAX_NAME_CHARS)
        if name is None:
            raise broken(self._tape, "the tag that names the function is not closed")
        tool = self._tools.get(name)
        if tool is None:
            raise BlockError(f"the tool {shown(name)} was not offered")
        return tool

    def _function(self, tool: Tool, closer: str) -> Reading[Call]:
        """The parameters of one function and its end.

        Args:
            tool: The tool that is called.
            closer: What ends the block behind this function, if anything.
        """
        tape = self._tape
        texts: dict[str, str] = {}
        while True:
            yield from tape.skip_gap()
            tag = yield from tape.next_of((PARAMETER_OPEN, FUNCTION_CLOSE))
            if tag is None:
                raise broken(
                    self._tape, f"the call of {shown(tool.name)} holds text between its tags"
                )
            tape.at += len(tag)
            if tag == FUNCTION_CLOSE:
                for value in texts.values():
                    _check_swallowed(value, tool, texts)
                return checked(tool, from_texts, texts, closer=closer)
            key = yield from tape.name(MAX_KEY_CHARS)
            if key is None:
                raise broken(
                    self._tape, f"the call of {shown(tool.name)} has a broken parameter tag"
                )
            if key in texts:
                raise BlockError(
                    f"the call of {shown(tool.name)} has the parameter {shown(key)} twice"
                )
            texts[key] = yield from self._value(tool)

    def _value(self, tool: Tool) -> Reading[str]:
        """A parameter's text, up to the closing tag behind which the structure goes on."""
        tape = self._tape
        pieces: list[str] = []
        while True:
            end = tape.text.find("<", tape.at)
            if end < 0:
                end = len(tape.text)
            pieces.append(tape.text[tape.at : end])
            tape.at = end
            if end == len(tape.text):
                if not (yield from tape.more()):
                    raise broken(self._tape, "")
                continue
            tag = yield from tape.next_of((PARAMETER_CLOSE, FUNCTION_CLOSE))
            if tag is not None and (yield from self._is_end(tag, tool)):
                return "".join(pieces)
            taken = tag or "<"
            pieces.append(taken)
            tape.at += len(taken)

    def _is_end(self, tag: str, tool: Tool) -> Reading[bool]:
        """True where this tag ends the value; it is then behind. Else nothing is read."""
        tape = self._tape
        tape.kept = tape.at
        tape.at += len(tag)
        yield from tape.skip_gap()
        if tag == PARAMETER_CLOSE:
            marks = (PARAMETER_OPEN, FUNCTION_CLOSE, WRAPPER_CLOSE, PARAMETER_CLOSE)
            after = yield from tape.next_of(marks)
            broken = after in {WRAPPER_CLOSE, PARAMETER_CLOSE}
        else:
            after = yield from tape.next_of((WRAPPER_CLOSE,))
            broken = after is not None
        if broken:
            raise BlockError(f"the call of {shown(tool.name)} has a tag that is not closed")
        if after is None:
            tape.at = tape.kept
        tape.kept = -1
        return after is not None


def _check_swallowed(value: str, tool: Tool, texts: Mapping[str, str]) -> None:
    """A value that holds a tag which should have ended it has lost its own end.

    That is the opening tag of a parameter of its tool that never came by itself, or a function that
    is opened in it and not closed: what closed it was taken for this one's end.

    Raises:
        BlockError: It does.
    """
    if len(_OPENED.findall(value)) > value.count(FUNCTION_CLOSE):
        raise BlockError(f"the call of {shown(tool.name)} holds another that is not closed")
    if PARAMETER_OPEN not in value:
        return
    for key in named(tool.schema.root) - texts.keys():
        if f"{PARAMETER_OPEN}{key}>" in value:
            raise BlockError(f"the call of {shown(tool.name)} has a tag that is not closed")
