"""The caller's `tools[]` by name, each with its parameters compiled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, cast

from serve_app.errors import Code, InvalidRequestError
from serve_app.runs import Json
from serve_app.tools.restore import restorable
from serve_app.tools.schema import Schema, SchemaFaultError

#: Compiled schemas that are kept: agents send the same tools with every turn.
_KEPT: Final = 512
_ANY_OBJECT: Final = '{"type":"object"}'


class Tool:
    """One function that the model may call.

    Args:
        name: Its name.
        schema: Its parameters.
    """

    def __init__(self, name: str, schema: Schema, *, held: bool) -> None:
        self.name = name
        self.schema = schema
        #: True where parts of a native call's arguments may have to be restored.
        self.held = held


class ToolSet:
    """The tools of one request.

    Args:
        tools: `tools[]` of the request, its shape already checked.

    Raises:
        InvalidRequestError: A name stands twice, or a schema cannot be used.
    """

    def __init__(self, tools: Sequence[Json]) -> None:
        self._tools: dict[str, Tool] = {}
        for index, tool in enumerate(tools):
            function = cast("Json", tool["function"])
            name = cast("str", function["name"])
            if name in self._tools:
                param = f"tools[{index}].function.name"
                message = f"Invalid '{param}': another tool has this name."
                raise InvalidRequestError(message, param=param, code=Code.INVALID_VALUE)
            parameters = function.get("parameters")
            try:
                schema, held = _compiled(json.dumps(parameters) if parameters else _ANY_OBJECT)
            except SchemaFaultError as fault:
                param = f"tools[{index}].function.parameters"
                message = f"Invalid '{param}': {fault}."
                raise InvalidRequestError(message, param=param, code=Code.INVALID_VALUE) from None
            self._tools[name] = Tool(name, schema, held=held)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    def get(self, name: str) -> Tool | None:
        """The tool of this name."""
        return self._tools.get(name)


@lru_cache(maxsize=_KEPT)
def _compiled(parameters: str) -> tuple[Schema, bool]:
    """A schema given as JSON text, and whether anything in it can be restored."""
    schema = Schema(json.loads(parameters))
    return schema, restorable(schema)
