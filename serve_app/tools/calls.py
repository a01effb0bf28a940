"""One call as a block's reader gives it, and what is wrong with a block that gives none."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from serve_app.tools.arguments import ArgumentsError
from serve_app.tools.dialects import MAX_NAME_CHARS, WRAPPER_CLOSE
from serve_app.tools.schema import Schema
from serve_app.tools.tape import Tape
from serve_app.tools.toolset import Tool

_SHOWN_CHARS = 64
_V = TypeVar("_V")


class Call(NamedTuple):
    """One valid call; `arguments` is a JSON text."""

    name: str
    arguments: str


class BlockError(Exception):
    """A block is broken, or is a call that cannot be made.

    Args:
        reason: What is wrong, as a sentence that begins with "the".
        cut: True where the text ended inside the block.
        closer: The marker with which the block would have ended.
    """

    def __init__(self, reason: str, *, cut: bool = False, closer: str = WRAPPER_CLOSE) -> None:
        super().__init__(reason)
        self.reason = reason
        self.cut = cut
        self.closer = closer


def broken(tape: Tape, reason: str, *, closer: str = WRAPPER_CLOSE) -> BlockError:
    """The error for a block that is broken here: cut off, if the text is at its end."""
    if tape.closed and (not reason or len(tape.text) - tape.at < MAX_NAME_CHARS):
        return BlockError("the block is not closed", cut=True, closer=closer)
    return BlockError(reason, closer=closer)


def checked(tool: Tool, convert: Callable[[_V, Schema], str], values: _V, *, closer: str) -> Call:
    """A call whose arguments satisfy the schema.

    Args:
        tool: The tool that is called.
        convert: What makes its arguments of the values.
        values: The values, as the block gives them.
        closer: What ends the block behind this call, if anything.

    Raises:
        BlockError: The arguments do not satisfy it.
    """
    try:
        return Call(tool.name, convert(values, tool.schema))
    except ArgumentsError as error:
        reason = f"the arguments of {shown(tool.name)} do not satisfy its schema: {error}"
        raise BlockError(reason, closer=closer) from None


def shown(name: str) -> str:
    """A name as it is quoted in a message."""
    return f"'{name[:_SHOWN_CHARS]}…'" if len(name) > _SHOWN_CHARS else f"'{name}'"
