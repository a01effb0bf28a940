"""Tool calls that an upstream sends as such: passed on, with double encoding undone."""

from __future__ import annotations

from dataclasses import dataclass, field

from serve_app.runs import ToolCallDelta
from serve_app.tools.restore import restore_native
from serve_app.tools.toolset import Tool, ToolSet


@dataclass(slots=True)
class _Call:
    """One call under way. Arguments are held while they may have to be changed."""

    name: str = ""
    tool: Tool | None = None
    live: bool = False
    held: list[str] = field(default_factory=list[str])
    size: int = 0


class NativeCalls:
    """Pieces of native calls in, pieces of the same calls out.

    Arguments in which nothing can be restored flow on at once. Others are held to the end, but
    their calls are announced, so that the order of the calls stays.

    Args:
        tools: The tools that may be called; other names pass as they are.
        max_chars: Arguments longer than this are passed on as they come.
    """

    def __init__(self, tools: ToolSet, *, max_chars: int) -> None:
        self._tools = tools
        self._max_chars = max_chars
        self._calls: dict[int, _Call] = {}

    @property
    def names(self) -> list[str]:
        """Names of the calls so far."""
        return [call.name for call in self._calls.values()]

    def feed(self, piece: ToolCallDelta) -> list[ToolCallDelta]:
        """Take one piece."""
        call = self._calls.setdefault(piece.index, _Call())
        if piece.name and not call.name:
            call.name = piece.name
            call.tool = self._tools.get(piece.name)
        if call.live:
            return [piece]
        if piece.arguments:
            call.held.append(piece.arguments)
            call.size += len(piece.arguments)
        call.live = self._may_flow(call)
        arguments = ""
        if call.live:
            arguments = "".join(call.held)
            call.held.clear()
        if not (piece.id or piece.name or arguments):
            return []
        return [ToolCallDelta(piece.index, piece.id, piece.name, arguments)]

    def finish(self) -> list[ToolCallDelta]:
        """What was held, each call's arguments whole."""
        return [
            ToolCallDelta(
                index,
                arguments=restore_native(
                    "".join(call.held), call.tool.schema if call.tool else None
                ),
            )
            for index, call in sorted(self._calls.items())
            if not call.live
        ]

    def _may_flow(self, call: _Call) -> bool:
        """True where nothing in these arguments will have to be changed."""
        if call.size > self._max_chars:
            return True
        if not call.name or (call.tool is not None and call.tool.held):
            return False
        # Arguments that begin with a quote are an object inside a string.
        start = next((text for piece in call.held if (text := piece.lstrip())), "")
        return bool(start) and not start.startswith('"')
