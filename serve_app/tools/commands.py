"""`commands` of a call written as text, in the shape that the tool's schema wants (clauses ARGS).

A command is a shell line, or an argv of `command` and `args`. One is made the other only where
both mean the same: no shell is invented, and shell syntax is never split.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Final, NamedTuple, cast

from serve_app.runs import Json
from serve_app.tools.kinds import ALL, Spot, accepted, in_place, named
from serve_app.tools.schema import element

#: The name of the argument that these rules are about.
COMMANDS: Final = "commands"
#: What agents add for their own display; dropped where the schema does not name it.
HINTS: Final = frozenset({"description", "runInTerminal"})

#: Characters that a shell reads, wherever they stand.
_SHELL_CHARS: Final = re.compile(r"""[|&;<>()$`\\"'*?\[\]{}\n\r]|(?:^|[ \t])[~#]""")
#: Words that only a shell knows, as the first one of a line.
_SHELL_WORDS: Final = frozenset(
    """
    cd command test [ ! . source export unset alias unalias set shopt eval exec exit return shift
    builtin declare local readonly typeset let read mapfile trap type ulimit umask pushd popd dirs
    jobs fg bg wait disown hash history bind enable times time if then else elif fi for while until
    do done case esac select function coproc : break continue getopts logout suspend
    """.split()  # noqa: SIM905 (a list of fifty strings is harder to read)
)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_BLANKS: Final = re.compile(r"[ \t]+")


class _Shapes(NamedTuple):
    """What a schema has room for among its commands."""

    lines: bool
    argv: bool
    named: frozenset[str]


def fit_commands(value: object, place: Spot, accepts: Callable[[object], bool]) -> object:
    """Commands in a shape that the schema accepts; unchanged where there is none.

    Args:
        value: What the model wrote.
        place: What the schema says of `commands`.
        accepts: Whether the schema accepts a value there.
    """
    shapes = _shapes(place)
    if not (shapes.lines or shapes.argv):
        return value
    if isinstance(value, str | dict):
        value = cast("object", value)
        if "array" not in place.kinds() or (isinstance(value, str) and accepts(value)):
            return value
        value = [value]
    if not isinstance(value, list):
        return value
    plain = [_without_hints(item, shapes.named) for item in cast("list[object]", value)]
    structured = [_argv(item, accepts) for item in plain] if shapes.argv else plain
    lines = [_line(item) for item in plain] if shapes.lines else plain
    for candidate in (structured, lines, plain):
        if accepts(candidate):
            return candidate
    return plain


def needs_shell(line: str) -> bool:
    """True where a command line means something that only a shell can do."""
    words = _words(line)
    if not words or _SHELL_CHARS.search(line):
        return True
    return words[0] in _SHELL_WORDS or _ASSIGNMENT.match(words[0]) is not None


def _argv(item: object, accepts: Callable[[object], bool]) -> object:
    """A command as argv where it needs no shell; an object that fits stays as it is."""
    if isinstance(item, str):
        line = item
        rest: Json = {}
    elif isinstance(item, dict):
        fields = cast("Json", item)
        line = fields.get("command")
        if fields.get("args") is not None or not isinstance(line, str) or accepts([fields]):
            return fields
        rest = {key: one for key, one in fields.items() if key not in {"command", "args"}}
    else:
        return item
    if needs_shell(line):
        return _line(cast("object", item))
    first, *others = _words(line)
    return {"command": first, "args": others, **rest}


def _line(item: object) -> object:
    """A command object as a shell line; unchanged where it says more than a line can."""
    if not isinstance(item, dict):
        return item
    fields = cast("Json", item)
    command = fields.get("command")
    args = _texts(fields.get("args"))
    if not isinstance(command, str) or args is None or fields.keys() - {"command", "args"}:
        return fields
    if not args:
        return command
    # A command with blanks in it is the beginning of a line, not the name of a program.
    first = command if _BLANKS.search(command.strip()) else shlex.quote(command)
    return f"{first} {shlex.join(args)}"


def _texts(args: object) -> list[str] | None:
    """Arguments as strings; `None` where they are none."""
    if args is None:
        return []
    if not isinstance(args, list):
        return None
    listed = cast("list[object]", args)
    if any(isinstance(one, bool) or not isinstance(one, str | int) for one in listed):
        return None
    return [str(one) for one in listed]


def _without_hints(item: object, names: frozenset[str]) -> object:
    """A command object less the hints that its schema does not name."""
    if not isinstance(item, dict):
        return item
    fields = cast("Json", item)
    if "command" not in fields:
        return fields
    return {key: one for key, one in fields.items() if key in names or key not in HINTS}


def _words(line: str) -> list[str]:
    return [word for word in _BLANKS.split(line) if word]


def _shapes(place: Spot) -> _Shapes:
    """What the items of `commands` may be, over all branches of its schema."""
    nodes = (*place.always, *place.either)
    items = [one for node in nodes for part in in_place(node) for one in element(part, 0)]
    names = frozenset[str]().union(*(named(one) for one in items))
    lines = any("string" in kinds and kinds != ALL for kinds in map(accepted, items))
    return _Shapes(lines=lines, argv={"command", "args"} <= names, named=names)
