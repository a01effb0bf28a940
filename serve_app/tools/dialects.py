"""The forms in which models write tool calls as text, as tables of their markers.

    <tool_call><function=NAME><parameter=KEY>JSON or text</parameter></function></tool_call>
    {{NAME(key=literal, …)}}

The first one may lack its opening wrapper, and may hold `{"name": …, "arguments": {…}}` in place
of functions. What follows an opening marker decides whether it is a call or is only spoken of.
"""

from __future__ import annotations

import re
from typing import Final

WRAPPER_OPEN: Final = "<tool_call>"
WRAPPER_CLOSE: Final = "</tool_call>"
FUNCTION_OPEN: Final = "<function="
FUNCTION_CLOSE: Final = "</function>"
PARAMETER_OPEN: Final = "<parameter="
PARAMETER_CLOSE: Final = "</parameter>"
BRACES_OPEN: Final = "{{"
BRACES_CLOSE: Final = "}}"
#: Marker of a form that is not read: it would be shown to people as it is.
CALLS_MARK: Final = "[TOOL_CALLS]"

OPENERS: Final = (WRAPPER_OPEN, FUNCTION_OPEN, BRACES_OPEN, CALLS_MARK)
OPENER: Final = re.compile("|".join(re.escape(opener) for opener in OPENERS))
#: Without one of these a text holds no beginning of an opener.
OPENER_CHARS: Final = "<{["

#: Debris after a block: it belongs to the block.
CLOSERS: Final = (WRAPPER_CLOSE, FUNCTION_CLOSE, PARAMETER_CLOSE)
#: Tags that make a wrapper a block, though a broken one. Anything else says that it was a mention.
BROKEN_IN_WRAPPER: Final = (*CLOSERS, WRAPPER_OPEN, "<function", "<parameter")

#: `{{name(` whole, and as the end of a text that may still become it.
BRACES_HEAD: Final = re.compile(r"\{\{\s{0,64}(?P<name>\w[\w./:-]{0,127})[ \t]{0,8}\(")
BRACES_HEAD_PART: Final = re.compile(r"\{\{\s{0,64}(?:\w[\w./:-]{0,127}[ \t]{0,8})?\Z")
#: ` key=` as a call begins whose name says nothing; and as the end of a text.
KEY_HEAD: Final = re.compile(r"\s{0,64}[A-Za-z_][\w-]{0,127}\s{0,8}=(?=[^=])")
KEY_HEAD_PART: Final = re.compile(r"\s{0,64}(?:[A-Za-z_][\w-]{0,127}\s{0,8}=?)?\Z")
#: What stands after `[TOOL_CALLS]` where calls really follow, and the start of it.
MARKED_CALLS: Final = re.compile(r"\s{0,64}(?:[\[{]|\w[\w./:-]{0,127}\s?[\[{(])")
MARKED_CALLS_PART: Final = re.compile(r"\s{0,64}(?:\w[\w./:-]{0,127}\s?)?\Z")

MAX_NAME_CHARS: Final = 128
MAX_KEY_CHARS: Final = 256
#: White space and sentinels that may stand between two tags.
MAX_GAP_CHARS: Final = 1024
#: Text that looks like the call of an unknown function is held back for no longer than this.
MAX_UNKNOWN_CHARS: Final = 4096
#: White space at the start of an answer or after a block, which waits for what follows it.
MAX_WHITE_CHARS: Final = 64
