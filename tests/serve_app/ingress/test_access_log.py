"""The access log's file, and the headers that are cleaned before Ray Serve sees them."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from serve_app.ingress.access_log import FileAccessLog, LoggerAccessLog, serve_access_log
from serve_app.ingress.request_id import serve_middlewares
from tests.serve_app.ingress.edge import until


def lines_of(path: Path) -> list[dict[str, object]]:
    """The lines of a log, parsed."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def test_lines_are_written_together(tmp_path: Path) -> None:
    """What is noted is in the file a little later, a line a request, in order."""
    path = tmp_path / "access.log"
    log = FileAccessLog(path)
    for number in range(100):
        log.add({"request_id": f"r{number}", "path": "/끝\n"})
    assert not path.exists()
    await until(lambda: path.exists() and len(lines_of(path)) == 100, 2)
    assert [line["request_id"] for line in lines_of(path)] == [f"r{n}" for n in range(100)]
    log.add({"request_id": "later"})
    await until(lambda: len(lines_of(path)) == 101, 2)
    log.close()


async def test_closing_writes_what_is_held(tmp_path: Path) -> None:
    """A replica that is stopped loses no line; closing twice does no harm."""
    path = tmp_path / "access.log"
    log = FileAccessLog(path)
    log.add({"request_id": "last"})
    log.close()
    log.close()
    assert lines_of(path) == [{"request_id": "last"}]


def test_it_stands_beside_the_replicas_own_log(tmp_path: Path) -> None:
    """Where Serve writes a file the access log is one too; else it goes by Python's logging."""
    serve = logging.getLogger("ray.serve")
    kept = list(serve.handlers)
    handler = logging.FileHandler(tmp_path / "replica.log", delay=True)
    try:
        serve.handlers = [handler]
        log = serve_access_log("app_Ingress_1")
        serve.handlers = []
        assert isinstance(serve_access_log("x"), LoggerAccessLog)
    finally:
        serve.handlers = kept
    assert isinstance(log, FileAccessLog)
    log.close()
    handler.close()


@pytest.mark.clause("ERR-3")
@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        pytest.param([(b"x-request-id", b"mine")], [b"mine"], id="good"),
        pytest.param([(b"x-request-id", b"a b")], [], id="bad"),
        pytest.param([], [], id="missing"),
        pytest.param([(b"x-request-id", b"a"), (b"x-request-id", b"b")], [], id="two"),
    ],
)
async def test_serve_gets_one_good_id_and_none_of_its_switches(
    sent: list[tuple[bytes, bytes]], kept: list[bytes]
) -> None:
    """A caller cannot set a time limit, keep a request alive or pick a replica by a header."""
    switches = [
        (b"x-request-timeout-seconds", b"1"),
        (b"x-request-disconnect-disabled", b"?1"),
        (b"x-session-id", b"s"),
        (b"serve_multiplexed_model_id", b"m"),
    ]
    seen: list[tuple[bytes, bytes]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.extend(scope["headers"])

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        raise AssertionError(message)

    (middleware,) = serve_middlewares()
    scope: Scope = {"type": "http", "headers": [(b"host", b"x"), *switches, *sent]}
    await middleware.cls(app, *middleware.args, **middleware.kwargs)(scope, receive, send)
    (host, (name, value)) = seen
    assert (host, name) == ((b"host", b"x"), b"x-request-id")
    assert value in kept if kept else value.startswith(b"req_")
