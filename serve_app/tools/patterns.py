"""Regular expressions of a caller's schema, in bounded time.

Python's own engine can take years over twenty characters. pydantic's, written in Rust, takes
linear time, but knows no look-around and no back-references; what it cannot take is left to
Python on short strings, and on longer ones the pattern is not checked at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from pydantic_core import SchemaError, SchemaValidator, core_schema

#: Longest string that Python's engine is given, by how many open repeats a pattern has.
_REACH: Final = (10_000, 1_000, 200, 60, 30)
_NESTED: Final = re.compile(r"\)(?:[*+]|\{\d*,)")
_REPEAT: Final = re.compile(r"(?<!\\)(?:[*+]|\{\d*,\d*\})")
_NESTED_REACH: Final = 16


@lru_cache(maxsize=2048)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a string holds a match of this pattern, as a function.

    A pattern that neither engine can read, such as one only JavaScript knows, matches anything:
    its tool still has its own check.
    """
    try:
        string = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
        return SchemaValidator(string).isinstance_python
    except (SchemaError, ValueError):
        pass
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return _anything
    repeats = min(len(_REPEAT.findall(pattern)), len(_REACH) - 1)
    reach = _NESTED_REACH if _NESTED.search(pattern) else _REACH[repeats]
    return lambda text: len(text) > reach or compiled.search(text) is not None


def _anything(_text: str) -> bool:
    return True
