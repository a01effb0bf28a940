"""Regular expressions of a caller's schema, in bounded time.

Python's own engine can take years over twenty characters. pydantic's, written in Rust, takes
linear time, but knows no look-around and no back-references. A pattern that needs those is not
checked at all: the tool still has its own check, and the gateway stays up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from pydantic_core import SchemaError, SchemaValidator, core_schema


@lru_cache(maxsize=2048)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a string holds a match of this pattern, as a function.

    One that cannot be read in linear time matches anything.
    """
    try:
        string = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
        return SchemaValidator(string).isinstance_python
    except (SchemaError, ValueError):
        return _anything


def _anything(_text: str) -> bool:
    return True
